// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// shortDigest is the number of digits of a digest in a table.
const shortDigest = 8

// desiredOf returns the desired configuration of a node in service; nil otherwise.
func desiredOf(n *api.Node) *inventory.Configuration {
	switch {
	case n.Desired != nil:
		return n.Desired
	case n.Configured != nil && n.Outdated != nil:
		return &n.Configured.Configuration // the answer has only a different one
	}

	return nil
}

// shortConfigured returns the applied configuration in a short form.
func shortConfigured(n *api.Node) string {
	if n.Configured == nil {
		return ""
	}
	return shortConfiguration(&n.Configured.Configuration)
}

// shortConfiguration returns the beginnings of the commit or the digest of the playbooks,
// and of the hash of the variables.
func shortConfiguration(c *inventory.Configuration) string {
	if c == nil {
		return ""
	}

	playbooks := c.Commit
	if playbooks == "" {
		playbooks = c.Playbooks
	}
	return Line(begin(playbooks) + "/" + begin(hashOf(c.Variables)))
}

// hashOf returns the hash of variables without the id of its key, which all nodes share.
func hashOf(variables string) string {
	_, hash, _ := strings.Cut(variables, "-")
	return hash
}

func begin(digest string) string {
	if digest == "" {
		return "?"
	}
	return digest[:min(len(digest), shortDigest)]
}

// outdated returns whether a node in service is outdated, and by which parts.
func (p Paint) outdated(n *api.Node) string {
	switch {
	case n.Outdated == nil && desiredOf(n) == nil:
		return ""
	case n.Outdated == nil:
		return "unknown"
	case !*n.Outdated:
		return "no"
	}

	return p.Bad("yes") + " (" + differing(n) + ")"
}

// differing returns the parts by which a node is outdated.
func differing(n *api.Node) string {
	parts := make([]string, len(n.Differs))
	for i, part := range n.Differs {
		parts[i] = Line(string(part))
	}

	return strings.Join(parts, ", ")
}

func appliedAt(n *api.Node) string {
	if n.Configured == nil {
		return ""
	}
	return Time(n.Configured.Time)
}

// appliedText returns the applied configuration, or why it is unknown.
func appliedText(n *api.Node) string {
	switch c := n.Configured; {
	case c != nil:
		return configurationText(c.Configuration) +
			withPrefix("\nvariables of the request: ", List(c.ExtraVars)) +
			withPrefix("\nthe next job takes back: ", List(n.RequestVars))
	case n.Status != inventory.Allocated:
		return ""
	case n.Applied == "":
		return "unknown: nodes explain has the reason"
	}

	return "unknown: it was not recorded; nodes apply records it"
}

// desiredText returns the desired configuration.
func desiredText(n *api.Node) string {
	want := desiredOf(n)

	switch {
	case want == nil:
		return ""
	case n.Desired == nil:
		return "as applied"
	}

	return configurationText(*want)
}

// configurationText returns a configuration with a line for each part.
func configurationText(c inventory.Configuration) string {
	var lines []string
	for _, part := range []struct{ name, value string }{
		{"playbooks", c.Playbooks},
		{"commit", c.Commit},
		{"group", c.Group},
		{"variables", c.Variables},
		{"image", c.Image},
		{"choice of tasks:", c.Tags},
		{"masters", c.Masters},
	} {
		if part.value != "" {
			lines = append(lines, fmt.Sprintf("%s %s", part.name, Line(part.value)))
		}
	}

	return strings.Join(lines, "\n")
}
