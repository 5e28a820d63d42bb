// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl/bundle"
	"github.com/contiv/cluster/clusterctl/exit"
)

func (a *app) supportBundle() leaf {
	return leaf{
		name: "support-bundle", args: "[FILE]", formats: []string{},
		usage: "collect diagnostics for a problem report in a .tar.gz file", complete: fileNames,
		about: "The bundle contains versions, configuration, health, metrics, instances, nodes and jobs; output and " +
			"events of the last failed jobs; history and explanation of nodes with a problem.\n" +
			"The values of variables are left out, and everything that looks like a password, token or private key " +
			"is redacted. The output of a task may still contain private data: read the files before you send them. " +
			"README.txt in the bundle lists the contents and the omissions. Only you can read the file (mode 0600).",
		flags:    []cli.Flag{switchFlag("journal", "include the last lines of the journal of clusterm on this host")},
		examples: []string{"clusterctl support-bundle", "clusterctl support-bundle --journal report.tar.gz"},
		run:      writeBundle,
	}
}

func writeBundle(ctx context.Context, c *call) error {
	name := "clusterm-support-" + time.Now().UTC().Format("20060102T150405Z") + ".tar.gz"
	if len(c.args) > 0 {
		name = c.args[0]
	}

	result, err := bundle.Write(ctx, name, bundle.Options{
		Manager: c.manager,
		Where:   c.manager.Where(),
		Version: c.app.Version,
		Journal: c.Bool("journal"),
		Say:     c.say,
	})
	if err != nil {
		return err
	}

	// The bundle lists the omissions as well.
	for _, line := range result.LeftOut {
		c.say("left out: %s", line)
	}

	c.say("%d files, described in README.txt. Read them before you send them.", result.Files)

	if err := c.write([]byte(name + "\n")); err != nil {
		return err
	}

	// The file exists, but a script must notice.
	if result.Incomplete != nil {
		message, remedy := exit.Explain(c.self(), result.Incomplete)
		return exit.Errorf(exit.Unreachable, "the bundle is incomplete: %s", message).Try("%s", remedy)
	}

	return nil
}
