// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"reflect"
	"testing"
)

// TestDiffers compares configurations part by part: an unknown part differs from nothing.
func TestDiffers(t *testing.T) {
	t.Parallel()

	whole := Configuration{Playbooks: "p", Commit: "c", Group: "g", Variables: "k-v", Image: "i", Tags: "tags a",
		Masters: "k-m"}
	change := func(f func(*Configuration)) Configuration {
		c := whole
		f(&c)
		return c
	}

	for name, tt := range map[string]struct {
		other Configuration
		want  []Part
	}{
		"the same":      {whole, nil},
		"playbooks":     {change(func(c *Configuration) { c.Playbooks = "x" }), []Part{PartPlaybooks}},
		"only a commit": {change(func(c *Configuration) { c.Commit = "x" }), nil},
		"a commit without a digest": {
			change(func(c *Configuration) { c.Playbooks, c.Commit = "", "x" }), []Part{PartPlaybooks},
		},
		"group": {change(func(c *Configuration) { c.Group = "x" }), []Part{PartGroup}},
		"variables": {
			change(func(c *Configuration) { c.Variables = "k-x" }), []Part{PartVariables},
		},
		"another key":                      {change(func(c *Configuration) { c.Variables = "l-v" }), nil},
		"image":                            {change(func(c *Configuration) { c.Image = "x" }), []Part{PartImage}},
		"tags":                             {change(func(c *Configuration) { c.Tags = "tags b" }), []Part{PartTags}},
		"all tasks":                        {change(func(c *Configuration) { c.Tags = "" }), []Part{PartTags}},
		"masters":                          {change(func(c *Configuration) { c.Masters = "k-x" }), []Part{PartMasters}},
		"masters of a record without them": {change(func(c *Configuration) { c.Masters = "" }), nil},
		"masters by another key":           {change(func(c *Configuration) { c.Masters = "l-x" }), nil},
		"no group":                         {change(func(c *Configuration) { c.Group, c.Tags = "", "" }), nil},
		"unknown":                          {Configuration{}, nil},
		"all": {
			Configuration{Playbooks: "x", Group: "x", Variables: "k-x", Image: "x", Masters: "k-x"},
			[]Part{PartPlaybooks, PartGroup, PartVariables, PartImage, PartTags, PartMasters},
		},
	} {
		if got := whole.Differs(tt.other); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}

		if got := tt.other.Differs(whole); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s, the other way: got %v, want %v", name, got, tt.want)
		}
	}
}

// TestComplete: only known parts that can be compared show that nothing differs.
func TestComplete(t *testing.T) {
	t.Parallel()

	whole := Configuration{Playbooks: "p", Group: "g", Variables: "k-v"}
	for name, tt := range map[string]struct {
		other Configuration
		want  bool
	}{
		"the same":         {whole, true},
		"another":          {Configuration{Commit: "c", Group: "h", Variables: "k-w", Image: "i"}, true},
		"no playbooks":     {Configuration{Group: "g", Variables: "k-v"}, false},
		"no group":         {Configuration{Playbooks: "p", Variables: "k-v"}, false},
		"no variables":     {Configuration{Playbooks: "p", Group: "g"}, false},
		"of another key":   {Configuration{Playbooks: "p", Group: "g", Variables: "l-v"}, false},
		"nothing is known": {Configuration{}, false},
	} {
		if whole.Complete(tt.other) != tt.want || tt.other.Complete(whole) != tt.want {
			t.Errorf("%s: want %v", name, tt.want)
		}
	}
}

// TestReleaseConfigured: a node has the configuration of the job that configured it,
// as long as that job is known.
func TestReleaseConfigured(t *testing.T) {
	t.Parallel()

	before := &Configured{Configuration: Configuration{Group: "g", Variables: "old"}}
	after := &Configured{Configuration: Configuration{Group: "g", Variables: "new"}}

	node := nodeIn(Maintenance, Discovered)
	node.Applied, node.Configured = "1", before
	node.Before = &Before{Status: Allocated, Applied: "1"}

	for name, tt := range map[string]struct {
		outcome Outcome
		want    *Configured
	}{
		"applied":             {Outcome{Status: Allocated, Applied: "2", Configured: after}, after},
		"left as it was":      {Outcome{AsBefore: true}, before},
		"not begun":           {Outcome{Status: Allocated, Applied: "1"}, before},
		"failed half-way":     {Outcome{Status: Allocated}, nil},
		"taken out":           {Outcome{Status: Decommissioned}, nil},
		"a job without a sum": {Outcome{Status: Allocated, Applied: "2"}, nil},
	} {
		n, _ := node.Release(tt.outcome, Trigger{Time: noon})
		if !reflect.DeepEqual(n.Configured, tt.want) {
			t.Errorf("%s: got %+v, want %+v", name, n.Configured, tt.want)
		}
	}
}
