// SPDX-License-Identifier: Apache-2.0

package power_test

import (
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
)

// The verb, its only kind of step, and the phase of that.
const (
	verb  inventory.Verb = "power"
	kind  job.StepKind   = "power"
	phase job.Phase      = "power"
)

func init() {
	inventory.Lifecycle = append(inventory.Lifecycle, inventory.Transition{
		Verb: verb, From: []inventory.Status{inventory.Unallocated}, Through: inventory.Maintenance,
		Success: inventory.Unallocated, Failed: inventory.Unallocated, Dirty: inventory.Unallocated,
		Options: []inventory.Option{{Field: inventory.FieldExtraVars, Meaning: "to: on or off"}},
		Meaning: "switch nodes on or off",
		Failure: "the nodes stay as they were",
	})

	job.Register(job.Verb{
		Name:  verb,
		Steps: []job.StepKind{kind},
		Plan:  func(p *job.Planner) job.Step { return p.Once(kind, phase) },
	})
}
