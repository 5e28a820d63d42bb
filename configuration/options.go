// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"fmt"
	"strings"

	"github.com/contiv/cluster/inventory"
)

// AnsibleOptions are the options of a run of ansible-playbook. inventory.JobOptions has those of a request, which were
// checked.
type AnsibleOptions struct {
	Check     bool     // change nothing, and report what would change
	Diff      bool     // show the differences in files
	Tags      []string // run only tasks with one of these tags; empty: all tasks
	SkipTags  []string // leave out tasks with one of these tags
	Verbosity int      // 0 to inventory.MaxVerbosity
}

// Partial reports whether a run with the options may leave out tasks.
func (o AnsibleOptions) Partial() bool { return len(o.Tags)+len(o.SkipTags) > 0 }

// Validate refuses options outside their bounds with an error of kind invalid.
func (o AnsibleOptions) Validate() error {
	return inventory.JobOptions{
		Verbosity: o.Verbosity, SharedOptions: inventory.SharedOptions{Tags: o.Tags, SkipTags: o.SkipTags},
	}.CheckOptions()
}

// Selection describes the choice of tasks in words, such as "tags web, db".
func (o AnsibleOptions) Selection() string { return o.tags().String() }

func (o AnsibleOptions) tags() inventory.Selection {
	return inventory.Selection{Tags: o.Tags, SkipTags: o.SkipTags}
}

// Within returns the options for a run on nodes of a group that chooses tasks by its own
// tags. It returns an error of KindInvalid if o has a tag that the group does not run.
func (o AnsibleOptions) Within(group string, of inventory.Selection) (AnsibleOptions, error) {
	both, err := o.tags().Within(group, of)
	if err != nil {
		return o, err
	}
	o.Tags, o.SkipTags = both.Tags, both.SkipTags

	return o, nil
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
