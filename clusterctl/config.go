// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

func configRows() rows {
	return rows{
		"config get": {complete: configKeys(false), run: configGet},
		"config set": {
			complete: func(ctx context.Context, c *completer, current string) []candidate {
				keys := configKeys(true)(ctx, c, current)
				for i := range keys {
					keys[i].word += "="
				}

				return keys
			},
			run: func(ctx context.Context, c *call) error {
				// The first generation took a file, or - for stdin.
				if len(c.args) == 1 && isFileOrStdin(c.args[0]) {
					if c.Bool("dry-run") {
						return exit.Usagef("a configuration of the first generation cannot be checked only").
							Try("leave out --dry-run, or give KEY=VALUE")
					}

					return c.formerConfig(ctx, c.args[0])
				}

				v, err := assignments(c.args)
				if err != nil {
					return err
				}
				return c.patchConfig(ctx, v, "set")
			},
		},
		"config unset": {
			complete: configKeys(true),
			run: func(ctx context.Context, c *call) error {
				// In a patch, null removes an override.
				v := api.Vars{}
				for _, k := range c.args {
					v[k] = nil
				}

				return c.patchConfig(ctx, v, "unset")
			},
		},
	}
}

func configGet(ctx context.Context, c *call) error {
	all, err := c.manager.Config(ctx)
	if err != nil {
		return err
	}
	if len(c.args) == 0 {
		return c.showConfig(all)
	}

	// jobs and jobs. both select jobs.limit, but job does not.
	key, err := c.formerConfigKey(c.args[0])
	if err != nil {
		return err
	}
	prefix := strings.TrimSuffix(key, ".") + "."

	matches := api.Config{}
	for k, s := range all {
		if k == key || strings.HasPrefix(k, prefix) {
			matches[k] = s
		}
	}

	if len(matches) == 0 {
		err := exit.Errorf(exit.NotFound, "the configuration has no key %q", key)
		if near := inventory.Closest(key, slices.Collect(maps.Keys(all))); near != "" {
			return err.Try("did you mean %s?", near)
		}
		return err.Try("to list the keys: clusterctl config get")
	}

	return c.showConfig(matches)
}

// patchConfig changes the configuration, and shows the new values.
func (c *call) patchConfig(ctx context.Context, patch api.Vars, verb string) error {
	patch, err := c.formerConfigKeys(patch)
	if err != nil {
		return err
	}

	change, is := c.manager.PatchConfig, "is now"
	if c.Bool("dry-run") {
		change, is = c.manager.PreviewConfig, "would be"
	}

	before, _ := c.manager.Config(ctx) // only to name what the change drops

	now, err := change(ctx, patch)
	if err != nil {
		return err
	}

	// The manager returns the whole configuration.
	changed := api.Config{}
	for k := range patch {
		if s, ok := now[k]; ok {
			changed[k] = s
		}
	}

	if c.format != print.FormatTable {
		return c.showConfig(changed)
	}

	for _, k := range slices.Sorted(maps.Keys(changed)) {
		value := print.Scalar(changed[k].Value)
		if value == "" {
			value = "empty"
		}
		c.say("%s: %s %s %s (%s)", verb, k, is, value, changed[k].Origin)
	}

	c.sayDropped(before, now)
	c.showFormer(changed["playbooks"].Former)

	return nil
}

// maxFormer is the number of names that showFormer prints.
const maxFormer = 5

// showFormer prints the nodes that are cleaned with other playbooks than the new ones.
func (c *call) showFormer(names []string) {
	if len(names) == 0 {
		return
	}

	text := print.List(names[:min(len(names), maxFormer)])
	if more := len(names) - maxFormer; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	c.say("  still cleaned with the playbooks that configured them, until 'nodes %s': %s", inventory.VerbApply, text)
}

// settingRow is one key of the configuration.
type settingRow struct {
	Key string `json:"key"`
	api.Setting
}

var (
	settingColumns = print.ColumnsOf[settingRow](nil, "key", "value", "origin")
	settingDetails = print.ColumnsOf[settingRow](nil, "key", "value", "origin", "settable")
)

// settingRows returns the configuration in the order of the keys.
func settingRows(cfg api.Config) []settingRow {
	var rows []settingRow
	for _, k := range slices.Sorted(maps.Keys(cfg)) {
		rows = append(rows, settingRow{k, cfg[k]})
	}

	return rows
}

func (c *call) showConfig(cfg api.Config) error {
	rows := settingRows(cfg)

	return c.show(print.Answer{
		Wire: cfg, Names: slices.Sorted(maps.Keys(cfg)),
		Table: func(p *print.Printer) { settingColumns.Table(p, rows) },
		Long:  func(p *print.Printer) { settingDetails.Table(p, rows) },
	})
}
