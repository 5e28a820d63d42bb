// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/localfile"
	"github.com/contiv/cluster/management/daemon"
	"github.com/contiv/cluster/management/pki"
)

// caCommand groups the commands for the CA of the manager. They need no running
// daemon.
func caCommand(config cli.Flag) *cli.Command {
	return &cli.Command{
		Name:  "ca",
		Usage: "show the CA of the API over HTTPS, and issue client certificates",
		UsageText: "clusterm ca fingerprint\n" +
			"clusterm ca show > ca.pem\n" +
			"clusterm ca issue --role monitor NAME FILE",
		Description: "The first start with the key listen makes the CA. Run these commands as root on its host.",
		Commands: []*cli.Command{
			{
				Name:      "fingerprint",
				Usage:     "print the fingerprint of the CA, for clusterctl login and clusterm monitor",
				UsageText: "clusterm ca fingerprint [--config FILE]",
				Flags:     []cli.Flag{config},
				Action: func(_ context.Context, c *cli.Command) error {
					ca, err := daemon.OpenCA(configOf(c))
					if err != nil {
						return err
					}
					_, err = fmt.Fprintln(c.Root().Writer, ca.Fingerprint())

					return err
				},
			},
			{
				Name:      "show",
				Usage:     "print the certificate of the CA in PEM, without its key",
				UsageText: "clusterm ca show [--config FILE] > ca.pem",
				Flags:     []cli.Flag{config},
				Action: func(_ context.Context, c *cli.Command) error {
					ca, err := daemon.OpenCA(configOf(c))
					if err != nil {
						return err
					}
					_, err = c.Root().Writer.Write(ca.PEM())

					return err
				},
			},
			caIssueCommand(config),
		},
		Action: func(_ context.Context, c *cli.Command) error {
			if word := c.Args().First(); word != "" {
				return usageError{fmt.Errorf("there is no command \"ca %s\"", word)}
			}
			return usageError{errors.New("ca needs a command: fingerprint, show or issue")}
		},
	}
}

func caIssueCommand(config cli.Flag) *cli.Command {
	return &cli.Command{
		Name:  "issue",
		Usage: "write a client certificate and its key to a new file",
		UsageText: "clusterm ca issue --role ROLE [--days N] [--scope-group GROUP] [--scope-selector SELECTOR] " +
			"NAME FILE",
		Description: "NAME is recorded with each request. clusterctl certificate list shows the certificate, and " +
			"clusterctl certificate revoke NAME ends it. A scope limits a viewer or an operator to some nodes, like " +
			"that of a token. A certificate for the monitor on rack1, and one for its operator:\n\n" +
			"   clusterm ca issue --role monitor rack1 rack1.pem\n" +
			"   clusterm ca issue --role operator --scope-selector rack=r1 ann ann.pem",
		Flags: []cli.Flag{
			config,
			&cli.StringFlag{Name: "role", Usage: "the `ROLE`: viewer, monitor, operator or admin", Required: true},
			&cli.IntFlag{Name: "days", Value: 90, Usage: "the lifetime in days, 1 to 825"},
			&cli.StringSliceFlag{Name: "scope-group", Usage: "only the nodes of this `GROUP`; may be repeated"},
			&cli.StringFlag{Name: "scope-selector", Usage: "only the nodes that match `SELECTOR`, e.g. rack=r1"},
		},
		Action: func(_ context.Context, c *cli.Command) error {
			days, name, path := c.Int("days"), c.Args().Get(0), c.Args().Get(1)
			grant := pki.Grant{
				Name: name, Role: c.String("role"), Groups: c.StringSlice("scope-group"),
				Selector: c.String("scope-selector"),
			}

			// An empty flag, as of an unset variable, must not be every node.
			noScope := len(grant.Groups) == 0 && grant.Selector == "" || slices.Contains(grant.Groups, "")

			switch {
			case noScope && (c.IsSet("scope-group") || c.IsSet("scope-selector")):
				return usageError{errors.New("the scope is empty and would be every node")}
			case c.Args().Len() != 2:
				return usageError{errors.New("ca issue needs a name and a file")}
			case days < 1 || days > 825:
				return usageError{fmt.Errorf("--days %d is not within 1 and 825", days)}
			}

			// An existing file may be a certificate in use.
			if _, err := os.Lstat(path); err == nil {
				return inventory.Errorf(inventory.KindRefused, "%s exists", path).Do("name another file, or remove it")
			}

			ca, err := daemon.OpenCA(configOf(c))
			if err != nil {
				return err
			}
			content, err := ca.Issue(grant, time.Duration(days)*24*time.Hour)
			if err != nil {
				return err
			}
			return localfile.Replace(path, content)
		},
	}
}

// configOf returns the configuration file of a command.
func configOf(c *cli.Command) string {
	return daemon.Options{ConfigPath: c.String("config"), UsualPath: defaultConfig}.Path()
}
