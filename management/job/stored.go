// SPDX-License-Identifier: Apache-2.0

package job

import (
	"encoding/json"

	"github.com/contiv/cluster/inventory"
)

// fields are those of a Job, without its methods.
type fields Job

// stored is the stored form of a job. It has some of the options in an object of their own: an earlier version that
// found them elsewhere would take a check for a job that changes its nodes.
type stored struct {
	fields // without those options

	Ansible ansible `json:"ansible,omitzero"`
}

type ansible struct {
	inventory.Selection

	Check     bool `json:"check,omitempty"`
	Diff      bool `json:"diff,omitempty"`
	Verbosity int  `json:"verbosity,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (j Job) MarshalJSON() ([]byte, error) {
	s := stored{fields(j), ansible{j.Selection(), j.Check, j.Diff, j.Verbosity}}
	s.Tags, s.SkipTags = nil, nil
	s.fields.Check, s.fields.Diff, s.fields.Verbosity = false, false, 0
	return json.Marshal(s)
}

// UnmarshalJSON implements json.Unmarshaler.
func (j *Job) UnmarshalJSON(text []byte) error {
	var s stored
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}

	*j = Job(s.fields)
	j.Tags, j.SkipTags = s.Ansible.Tags, s.Ansible.SkipTags
	j.Check, j.Diff, j.Verbosity = s.Ansible.Check, s.Ansible.Diff, s.Ansible.Verbosity

	return nil
}
