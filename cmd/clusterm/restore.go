// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/sirupsen/logrus"
	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/management/daemon"
	"github.com/contiv/cluster/management/restore"
)

func restoreCommand(config cli.Flag) *cli.Command {
	return &cli.Command{
		Name:  "restore",
		Usage: "put a backup in the place of the store; clusterm must not run",
		UsageText: "clusterm restore FILE [--config FILE]\n" +
			"clusterm restore FILE --verify\n" +
			"clusterm restore FILE --replace",
		Description: "FILE is a backup of clusterctl backup. It is read and checked as a whole before anything is " +
			"changed. A store that has records is only replaced with --replace: the one inside is kept beside as " +
			"etcd.TIME, and the records of an existing etcd are removed.\n\n" +
			"Jobs that ran end as interrupted, all changes are frozen, and policies and rollouts are paused, until " +
			"an operator has compared the records with the hosts. See docs/operating/backup.md:\n\n" +
			"   systemctl stop clusterm; clusterm restore clusterm.backup && systemctl start clusterm",
		Flags: []cli.Flag{
			config,
			&cli.BoolFlag{Name: "verify", Usage: "check the backup, and change nothing"},
			&cli.BoolFlag{Name: "replace", Usage: "take the place of a store that has records"},
			&cli.BoolFlag{Name: "without-secrets", Usage: "restore although the key of the secrets is lost"},
			&cli.StringFlag{
				Name:  "manager",
				Usage: "restore the backup of another manager, by its `ID`: this host becomes that manager",
			},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.Args().Len() != 1 {
				return usageError{errors.New("restore needs one file")}
			}

			self, err := os.Executable()
			if err != nil {
				return err
			}

			log := logger()
			log.SetLevel(logrus.ErrorLevel)

			return daemon.Restore(ctx, daemon.Options{
				ConfigPath: c.String("config"), UsualPath: defaultConfig, Command: []string{self}, Logger: log,
			}, restore.Options{
				File: c.Args().First(), Verify: c.Bool("verify"), Replace: c.Bool("replace"),
				Manager: c.String("manager"), WithoutSecrets: c.Bool("without-secrets"),
				Say: func(format string, args ...any) {
					fmt.Fprintf(c.Root().Writer, format+"\n", args...)
				},
			})
		},
	}
}
