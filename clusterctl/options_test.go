// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/optiontest"
	"github.com/contiv/cluster/management/api"
)

// TestOptionsOfJobs: each option of a job is one of the command of every verb that takes it, and of a rollout that
// hands it on; help and completion show it, and the command that a remedy recommends has it.
func TestOptionsOfJobs(t *testing.T) {
	commands := map[string]*cli.Command{}
	leaves(tree(t), "clusterctl", func(c *cli.Command, path string) { commands[path] = c })

	for _, row := range inventory.Lifecycle {
		path := "clusterctl nodes " + string(row.Verb)
		a := inventory.Submit(row.Verb, "web-1")

		if row.TakesAddrs {
			path, a = "clusterctl "+string(row.Verb), inventory.Discover("10.0.0.1")
		}

		for _, o := range inventory.Options {
			takes := row.Accepts(o.Field)

			// Forgetting a record without a job takes it; apply takes one for its --clean.
			forget := row.Verb == inventory.VerbForget && o.Field == inventory.FieldForce
			clean := row.Verb == inventory.VerbApply && o.Field == inventory.FieldPlaybooks

			if hasOption(commands[path], o) != (takes || forget || clean) {
				t.Errorf("%s: --%s, which the verb takes: %t", path, o.Name(), takes)
			}

			if !takes {
				continue
			}

			var options inventory.JobOptions
			optiontest.Set(&options, o)

			line := api.CommandsOf("clusterctl", []inventory.Action{a.With(options)})[0]
			if !slices.Contains(strings.Fields(line), "--"+o.Name()) {
				t.Errorf("%s is recommended as %q", o.Field, line)
			}
		}
	}

	for _, o := range inventory.Options {
		start := hasOption(commands["clusterctl rollout start"], o)
		if own := o.Field == inventory.FieldMaxFailures; start != (o.Shared || own) {
			t.Errorf("rollout start has --%s: %t", o.Name(), start)
		}

		if len(choicesOf(o.Name())) != len(o.Choices) {
			t.Errorf("the values of --%s are not completed", o.Name())
		}
	}
}

// hasOption reports whether the command has the option, visible, with a usage.
func hasOption(c *cli.Command, o inventory.JobOption) bool {
	return slices.ContainsFunc(c.Flags, func(f cli.Flag) bool {
		d, ok := f.(cli.DocGenerationFlag)
		return ok && slices.Contains(f.Names(), o.Name()) && d.GetUsage() != "" && d.TakesValue() == (o.Value != "")
	})
}
