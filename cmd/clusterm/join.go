// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v3"
	"golang.org/x/term"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/daemon"
)

// joinCommand makes this host an instance of a manager that runs elsewhere.
func joinCommand(config cli.Flag) *cli.Command {
	return &cli.Command{
		Name:      "join",
		Usage:     "become a further instance of a manager that runs on another host",
		UsageText: "clusterm join URL --fingerprint sha256:… [--token-file FILE] [--config FILE]",
		Description: "`clusterctl instance invite` on the manager prints this command and a token, which one host " +
			"can use once, and which is read from stdin. Run it as root, with an empty data directory, and then " +
			"start the service:\n\n" +
			"   clusterm join https://192.0.2.11:9443 --fingerprint sha256:…\n" +
			"   systemctl enable --now clusterm\n\n" +
			"The manager gives this host a certificate and the keys that all instances have in common: those of the " +
			"secrets, of the gossip, of ssh and of the CA. Its etcd becomes a member of that of the manager, which " +
			"listens on the ports of the section instances of the configuration. Give both hosts the same " +
			"configuration and the same playbooks.",
		Flags: []cli.Flag{
			config,
			&cli.StringFlag{
				Name: "token-file", Usage: "read the token of the invitation from this `FILE`; - is stdin", Value: "-",
			},
			&cli.StringFlag{Name: "fingerprint", Usage: "the `FINGERPRINT` of the manager's CA", Required: true},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.Args().Len() != 1 {
				return usageError{errors.New("join needs the URL of the manager, as https://HOST:PORT")}
			}

			token, err := joinToken(ctx, c)
			if err != nil {
				return err
			}
			file, answer, err := daemon.Join(ctx, configOf(c), client.Options{
				URL: c.Args().First(), Token: token, UserAgent: "clusterm/" + version,
				Trust: client.Trust{Fingerprint: c.String("fingerprint")},
			})
			if err != nil {
				return err
			}

			out := c.Root().Writer
			fmt.Fprintf(out, "this host is an instance of the manager, with %d others; its data is in %s\n",
				len(answer.Members)-1, file.DataDir)
			printMissing(out, daemon.CheckFile(ctx, configOf(c)))
			fmt.Fprintln(out, "start it:  systemctl enable --now clusterm")

			if file.Listen == "" {
				fmt.Fprintln(
					out,
					"clients on other hosts need a port here as well: set listen in the configuration file",
				)
			}

			return nil
		},
	}
}

// printMissing prints what the operator has to bring to an instance that has joined. problem is what the check of its
// configuration has found, or nil.
func printMissing(out io.Writer, problem error) {
	fmt.Fprintln(
		out,
		"the join brings keys and records. Not in it: the configuration file, a folder of playbooks, and "+
			"the files that\nthe configuration names, such as secrets of notifications and keys of single nodes; copy "+
			"them from another instance",
	)

	if problem != nil {
		fmt.Fprintf(out, "this host is not ready: %v\nsee if it is then:  clusterm check\n", problem)
	}
}

// joinToken reads the token of an invitation, which is never an argument: other accounts of this host could see that.
func joinToken(ctx context.Context, c *cli.Command) (string, error) {
	if path := c.String("token-file"); path != "-" {
		return client.ReadToken(path)
	}

	in := c.Root().Reader
	if f, ok := in.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		fmt.Fprint(os.Stderr, "token: ")
	}

	type line struct {
		text string
		err  error
	}

	// It cannot be interrupted, and ends with the process.
	read := make(chan line, 1)
	go func() {
		text, err := bufio.NewReader(io.LimitReader(in, client.MaxToken+2)).ReadString('\n')
		read <- line{strings.TrimSpace(text), err}
	}()

	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case l := <-read:
		if l.text != "" {
			return l.text, nil
		}

		return "", inventory.Errorf(inventory.KindInvalid, "the token cannot be read: %w", l.err).
			Do("give the token of clusterctl instance invite on stdin, or --token-file FILE")
	}
}
