// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/daemon"
)

// joinCommand makes this host an instance of a manager that runs elsewhere.
func joinCommand(config cli.Flag) *cli.Command {
	return &cli.Command{
		Name:      "join",
		Usage:     "become a further instance of a manager that runs on another host",
		UsageText: "clusterm join URL --token TOKEN --fingerprint sha256:… [--config FILE]",
		Description: "`clusterctl instance invite` on the manager prints this command with its token, which one host " +
			"can use once. Run it as root, with an empty data directory, and then start the service:\n\n" +
			"   clusterm join https://192.0.2.11:9443 --fingerprint sha256:… --token clusterm-…\n" +
			"   systemctl enable --now clusterm\n\n" +
			"The manager gives this host a certificate and the keys that all instances have in common: those of the " +
			"secrets, of the gossip, of ssh and of the CA. Its etcd becomes a member of that of the manager, which " +
			"listens on the ports of the section instances of the configuration. Give both hosts the same " +
			"configuration and the same playbooks.",
		Flags: []cli.Flag{
			config,
			&cli.StringFlag{Name: "token", Usage: "the `TOKEN` of the invitation"},
			&cli.StringFlag{Name: "token-file", Usage: "read it from this `FILE`, or from stdin with -"},
			&cli.StringFlag{Name: "fingerprint", Usage: "the `FINGERPRINT` of the manager's CA", Required: true},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.Args().Len() != 1 {
				return usageError{errors.New("join needs the URL of the manager, as https://HOST:PORT")}
			}

			token, err := joinToken(c)
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

func joinToken(c *cli.Command) (string, error) {
	token, path := c.String("token"), c.String("token-file")

	switch {
	case (token == "") == (path == ""):
		return "", usageError{errors.New("join needs --token or --token-file, from clusterctl instance invite")}
	case token != "":
		return token, nil
	}

	in := io.ReadCloser(os.Stdin)
	if path != "-" {
		var err error
		if in, err = os.Open(path); err != nil {
			return "", inventory.Errorf(inventory.KindInvalid, "the token cannot be read: %w", err).
				Do("write the token of clusterctl instance invite into the file")
		}
		defer in.Close()
	}

	text, err := io.ReadAll(io.LimitReader(in, client.MaxToken+1))
	if err != nil {
		return "", err
	}

	return strings.TrimSpace(string(text)), nil
}
