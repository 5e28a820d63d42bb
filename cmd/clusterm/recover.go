// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"

	"github.com/sirupsen/logrus"
	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/management/daemon"
	"github.com/contiv/cluster/management/restore"
)

func recoverCommand(config cli.Flag) *cli.Command {
	return &cli.Command{
		Name:      "recover",
		Usage:     "go on with this instance alone, after most of the others are lost for good; clusterm must not run",
		UsageText: "clusterm recover --yes [--config FILE]",
		Description: "A majority of the instances keeps the manager in service by itself. If that is lost for good, " +
			"one that is left becomes the only one, with everything that it had applied; others join it anew. It is " +
			"refused while another instance answers. An instance that was lost must not start again with its data: " +
			"move its data directory away. See docs/operating/etcd.md:\n\n" +
			"   systemctl stop clusterm; clusterm recover --yes && systemctl start clusterm",
		Flags: []cli.Flag{config, &cli.BoolFlag{Name: "yes", Usage: "the others are lost for good"}},
		Action: func(ctx context.Context, c *cli.Command) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}

			log := logger()
			log.SetLevel(logrus.ErrorLevel)

			return daemon.Recover(ctx, daemon.Options{
				ConfigPath: c.String("config"), UsualPath: defaultConfig, Command: []string{self}, Logger: log,
			}, restore.Options{
				Say: func(format string, args ...any) { fmt.Fprintf(c.Root().Writer, format+"\n", args...) },
			}, c.Bool("yes"))
		},
	}
}
