// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/management/api"
)

// formerNames are the names that the first generation had for commands. They work
// without being shown.
var formerNames = map[string][]string{
	"clusterctl nodes":              {"n", "a"},
	"clusterctl nodes get":          {"g"},
	"clusterctl nodes commission":   {"c"},
	"clusterctl nodes decommission": {"d"},
	"clusterctl nodes update":       {"u"},
	"clusterctl nodes maintenance":  {"m"},
	"clusterctl discover":           {"d"},
	"clusterctl global":             {"g"},
	"clusterctl global get":         {"g"},
	"clusterctl global set":         {"s"},
	"clusterctl job":                {"j"},
	"clusterctl job get":            {"g"},
	"clusterctl config":             {"c"},
	"clusterctl config get":         {"g"},
	"clusterctl config set":         {"s"},
}

// metaShown is the key of the aliases that help and suggestions include.
const metaShown = "shown"

// addFormer adds the first generation's names and its option --json.
func addFormer(c *cli.Command, path string) {
	if names := formerNames[path]; names != nil {
		if c.Metadata == nil {
			c.Metadata = map[string]any{}
		}

		c.Metadata[metaShown] = c.Aliases
		c.Aliases = append(c.Aliases[:len(c.Aliases):len(c.Aliases)], names...)

		if strings.HasSuffix(path, " get") {
			c.Flags = append(c.Flags, &cli.BoolFlag{Name: "json", Aliases: []string{"j"}, Hidden: true})
		}
	}

	for _, sub := range c.Commands {
		addFormer(sub, path+" "+sub.Name)
	}
}

// shownAliases returns the aliases of a command without those of the first
// generation.
func shownAliases(c *cli.Command) []string {
	if shown, ok := c.Metadata[metaShown].([]string); ok {
		return shown
	}
	return c.Aliases
}

// formatOf returns the value of --output, or json for the first generation's option.
func formatOf(c *cli.Command) string {
	if c.Bool("json") {
		return print.FormatJSON
	}
	return c.String("output")
}

// isFileOrStdin reports whether an argument is -, or a file on this host.
func isFileOrStdin(arg string) bool {
	info, err := os.Stat(arg)
	return arg == "-" || err == nil && info.Mode().IsRegular()
}

// formerConfig sends a configuration file of the first generation, - for stdin.
func (c *call) formerConfig(ctx context.Context, name string) error {
	text, source, err := c.objectText(ctx, "@"+name)
	if err != nil {
		return err
	}
	config, err := configuration.ParseJSONVars([]byte(text))
	if err != nil || len(config) == 0 {
		return exit.Usagef("%s holds no JSON object: %v", source, err).
			Try("give KEY=VALUE, or a configuration of the first generation in JSON")
	}

	raw, err := json.Marshal(config)
	if err != nil {
		return err
	}
	if err := c.manager.SetFormerConfig(ctx, raw); err != nil {
		return err
	}

	c.say("set: the keys of %s are in force", source)

	return nil
}

// formerConfigKey returns the key of today for a key of the first generation, or the
// key itself. Without an equivalent, the error names the way of today.
func (c *call) formerConfigKey(key string) (string, error) {
	k, former := api.FindFormerKey(key)

	switch {
	case !former:
		return key, nil
	case k.Fixed != "":
		return "", exit.Errorf(exit.Refused, "%s is always %s", key, k.Fixed).
			Try("give the playbook that name in its folder")
	case k.Instead != "":
		return "", exit.Errorf(exit.Refused, "%s has no equivalent in this manager", key).Try("%s", k.Instead)
	}

	c.say("%s of the first generation is %s", key, k.Now)

	return k.Now, nil
}

// formerConfigKeys replaces the keys of the first generation in a patch.
func (c *call) formerConfigKeys(patch api.Vars) (api.Vars, error) {
	out := api.Vars{}
	for _, key := range slices.Sorted(maps.Keys(patch)) {
		now, err := c.formerConfigKey(key)
		if err != nil {
			return nil, err
		}
		if _, twice := out[now]; twice {
			return nil, exit.Usagef("%s is given twice, once under its former name", now).Try("give it once")
		}

		out[now] = patch[key]
	}

	return out, nil
}
