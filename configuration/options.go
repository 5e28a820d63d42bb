// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"fmt"
	"strings"

	"github.com/contiv/cluster/inventory"
)

// MaxVerbosity is the highest verbosity of ansible-playbook that a request may ask for.
const MaxVerbosity = 4

const (
	maxTags   = 50 // in each of the two lists
	maxTagLen = 64 // bytes
)

// AnsibleOptions are the options of ansible-playbook that a request chooses.
type AnsibleOptions struct {
	Check     bool     // change nothing, and report what would change
	Diff      bool     // show the differences in files
	Tags      []string // run only tasks with one of these tags; empty: all tasks
	SkipTags  []string // leave out tasks with one of these tags
	Verbosity int      // 0 to MaxVerbosity
}

// Partial reports whether a run with the options may leave out tasks.
func (o AnsibleOptions) Partial() bool { return len(o.Tags)+len(o.SkipTags) > 0 }

// tagName is the grammar of a tag. Nothing in it has a meaning for Ansible.
var tagName = lazy(`^[A-Za-z0-9_][A-Za-z0-9_.:-]*$`)

// Validate refuses options outside their bounds with an error of kind invalid.
func (o AnsibleOptions) Validate() error {
	if o.Verbosity < 0 || o.Verbosity > MaxVerbosity {
		return inventory.Errorf(inventory.KindInvalid, "verbosity is %d", o.Verbosity).
			Do("write a number from 0 to %d", MaxVerbosity)
	}

	for _, list := range []struct {
		field string
		tags  []string
	}{{"tags", o.Tags}, {"skip_tags", o.SkipTags}} {
		if len(list.tags) > maxTags {
			return inventory.Errorf(inventory.KindInvalid, "%s has %d tags, the limit is %d",
				list.field, len(list.tags), maxTags)
		}

		for _, tag := range list.tags {
			if len(tag) > maxTagLen || !tagName().MatchString(tag) {
				return inventory.Errorf(inventory.KindInvalid, "%s: %q is not a tag", list.field,
					inventory.Shorten(tag, maxTagLen)).
					Do("begin with a letter, a digit or _, and go on with these or . : -, at most %d bytes", maxTagLen)
			}
		}
	}

	return nil
}

// Selection describes the choice of tasks in words, such as "tags web, db".
func (o AnsibleOptions) Selection() string {
	var parts []string
	if len(o.Tags) > 0 {
		parts = append(parts, "tags "+strings.Join(o.Tags, ", "))
	}

	if len(o.SkipTags) > 0 {
		parts = append(parts, "skip_tags "+strings.Join(o.SkipTags, ", "))
	}

	return strings.Join(parts, "; ")
}

// String describes the options in words, such as "check; tags web", or is empty.
func (o AnsibleOptions) String() string {
	var parts []string
	if o.Check {
		parts = append(parts, "check")
	}

	if o.Diff {
		parts = append(parts, "diff")
	}

	if o.Partial() {
		parts = append(parts, o.Selection())
	}

	if o.Verbosity > 0 {
		parts = append(parts, fmt.Sprintf("verbosity %d", o.Verbosity))
	}

	return strings.Join(parts, "; ")
}
