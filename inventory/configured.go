// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"
	"strings"
	"time"
)

// Configuration is what a node would be configured with. An absent member is not known, or does not apply.
//
// Variables are the id of the key, a hyphen, and the hash. Masters have the same form, and after another hyphen the
// variables of these groups and nodes. A record of an earlier version lacks one or both: that is unknown, so that an
// upgrade of the program makes no node outdated.
type Configuration struct {
	Playbooks string `json:"playbooks,omitempty"` // the digest of the playbooks
	Commit    string `json:"commit,omitempty"`    // the commit of their git repository
	Group     string `json:"group,omitempty"`     // the host group
	// A keyed hash of the merged variables, secrets included. Equal variables have equal hashes; no value can be
	// read from one.
	Variables string `json:"variables,omitempty"`
	Image     string `json:"image,omitempty"` // the image of the operating system
	// The choice of tasks of the group, as text, such as `tags web, db; skip_tags slow`; absent for all tasks.
	Tags string `json:"tags,omitempty"`
	// Keyed hashes of the nodes in service of groups that others require: of names, addresses and groups, and of
	// their variables.
	Masters string `json:"masters,omitempty"`
}

// Configured is the configuration that a verb has applied to a node.
type Configured struct {
	Configuration

	Time time.Time `json:"time"`
	// Extra are names of variables that the request of the verb had set, sorted, at
	// most MaxExtraNames. Configuration.Variables covers their values, and nothing
	// keeps them for the next verb.
	Extra []string `json:"extra,omitempty"`
	// ExtraSums are keyed hashes of their values, parallel to Extra; nil: unknown, in a record of an
	// earlier version.
	ExtraSums []string `json:"extra_sums,omitempty"`
	// MasterNames are the nodes behind Masters, sorted; nil: unknown, or more than MaxMasterNames.
	MasterNames []string `json:"master_names,omitempty"`
}

// MaxExtraNames bounds Configured.Extra.
const MaxExtraNames = 16

// MaxMasterNames bounds Configured.MasterNames.
const MaxMasterNames = 16

// Part is one part of a Configuration.
type Part string

// The parts of a Configuration.
const (
	PartPlaybooks Part = "playbooks" // by their content
	PartGroup     Part = "group"     // the host group
	PartVariables Part = "variables" // merged, secrets included
	PartImage     Part = "image"     // of the operating system
	PartTags      Part = "tags"      // of the group, by which it chooses tasks
	// PartMasters are the nodes in service of groups that others require: names, addresses, groups and variables.
	PartMasters Part = "masters"
)

// Differs returns the parts in which both configurations are known and differ. A
// commit with the same playbooks is no difference, and hashes of variables with two
// keys cannot be compared.
func (c Configuration) Differs(from Configuration) []Part {
	playbooks, other := c.Playbooks, from.Playbooks
	if playbooks == "" || other == "" {
		playbooks, other = c.Commit, from.Commit
	}

	var parts []Part
	for _, pair := range []struct {
		part    Part
		one, to string
	}{
		{PartPlaybooks, playbooks, other},
		{PartGroup, c.Group, from.Group},
		{PartVariables, c.Variables, hashLike(from.Variables, c.Variables)},
		{PartImage, c.Image, from.Image},
	} {
		if pair.one != "" && pair.to != "" && pair.one != pair.to {
			parts = append(parts, pair.part)
		}
	}

	if c.Group != "" && from.Group != "" && c.Tags != from.Tags {
		parts = append(parts, PartTags)
	}

	if nodes, vars := c.MastersDiffer(from); nodes || vars {
		parts = append(parts, PartMasters)
	}

	return parts
}

// MastersOf returns Masters of the hash of the nodes and that of their variables; "": unknown.
func MastersOf(nodes, variables string) string {
	if _, hash, known := strings.Cut(variables, "-"); known {
		return nodes + "-" + hash
	}
	return nodes
}

// MastersDiffer reports whether the masters of both, and whether their variables, are known and differ.
func (c Configuration) MastersDiffer(from Configuration) (nodes, vars bool) {
	one, other := strings.Split(c.Masters, "-"), strings.Split(hashLike(from.Masters, c.Masters), "-")
	differ := func(i int) bool { return i < len(one) && i < len(other) && one[i] != other[i] }
	return differ(1), differ(2)
}

// hashLike returns the hash, or "" if the other one is not known, or was made with another key.
func hashLike(hash, other string) string {
	key, _, _ := strings.Cut(hash, "-")
	if !strings.HasPrefix(other, key+"-") {
		return ""
	}
	return hash
}

// Undone returns the names in Extra whose values the next verb would replace or leave out. differ:
// its variables are others than these. sum returns the keyed hash of the value that a variable would
// have, see ExtraSums, or "".
func (c *Configured) Undone(differ bool, sum func(name string) string) []string {
	if c == nil || !differ {
		return nil
	}

	var names []string
	for i, name := range c.Extra {
		if i >= len(c.ExtraSums) || c.ExtraSums[i] == "" || sum(name) != c.ExtraSums[i] {
			names = append(names, name)
		}
	}

	return names
}

// Complete reports whether playbooks, group and variables of both are known and can be
// compared.
func (c Configuration) Complete(with Configuration) bool {
	with.Variables = hashLike(with.Variables, c.Variables)
	for _, one := range []Configuration{c, with} {
		if one.Playbooks == "" && one.Commit == "" || one.Group == "" || one.Variables == "" {
			return false
		}
	}

	return true
}

// Clone returns a deep copy, or nil for nil.
func (c *Configured) Clone() *Configured {
	if c == nil {
		return nil
	}

	m := *c
	m.Extra, m.ExtraSums = slices.Clone(c.Extra), slices.Clone(c.ExtraSums)
	m.MasterNames = slices.Clone(c.MasterNames)

	return &m
}

// configuredAfter returns the configuration on the node after a verb with the
// outcome. It is known as long as the job that applied it is.
func (n Node) configuredAfter(o Outcome, applied string) *Configured {
	switch {
	case o.Configured != nil:
		return o.Configured.Clone()
	case applied != "" && applied == n.Applied:
		return n.Configured.Clone()
	}

	return nil
}
