// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
)

func TestAnsibleOptions(t *testing.T) {
	t.Parallel()

	o := AnsibleOptions{
		Check: true, Diff: true, Tags: []string{"web", "a:b"}, SkipTags: []string{"slow"}, Verbosity: 3,
	}

	const want = "check; diff; tags web, a:b; skip_tags slow; verbosity 3"
	if err := o.Validate(); err != nil || o.String() != want || !o.Partial() {
		t.Errorf("%q, %v", o, err)
	}

	if o := (AnsibleOptions{}); o.String() != "" || o.Partial() || o.Validate() != nil {
		t.Errorf("%q, %v", o, o.Validate())
	}
}

// TestAnsibleOptionsRefused: a tag is untrusted text that reaches a command line.
func TestAnsibleOptionsRefused(t *testing.T) {
	t.Parallel()

	many := make([]string, inventory.MaxTags+1)
	for i := range many {
		many[i] = "a"
	}

	for name, o := range map[string]AnsibleOptions{
		"an option":            {Tags: []string{"--become"}},
		"a dash":               {SkipTags: []string{"-"}},
		"a list":               {Tags: []string{"a,b"}},
		"empty":                {Tags: []string{""}},
		"a space":              {Tags: []string{"a b"}},
		"a new line":           {Tags: []string{"a\n"}},
		"a template":           {Tags: []string{"{{ x }}"}},
		"another alphabet":     {SkipTags: []string{"ä"}},
		"too long":             {Tags: []string{strings.Repeat("a", 65)}},
		"too many":             {Tags: many},
		"a negative verbosity": {Verbosity: -1},
		"a high verbosity":     {Verbosity: inventory.MaxVerbosity + 1},
	} {
		if err := o.Validate(); inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}
