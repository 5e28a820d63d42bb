// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"time"

	"github.com/contiv/cluster/clusterctl/bundle"
	"github.com/contiv/cluster/clusterctl/exit"
)

func supportRows() rows {
	return rows{
		"support-bundle": {formats: []string{}, complete: fileNames, run: writeBundle},
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
