// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"strings"

	"github.com/contiv/cluster/inventory"
)

// The results of a step.
const (
	StepDone        = "done"
	StepFailed      = "failed"
	StepInterrupted = "interrupted" // its job, if it has one, continues
	StepPending     = "not done"
)

// Step is one request of a plan. It is carried out as a whole or not at all.
type Step struct {
	Title  string `json:"title"`
	Result string `json:"result"`
	Job    string `json:"job,omitempty"`
	Error  string `json:"error,omitempty"`

	changes []Change
	kind    stepKind
	move    *Move
}

// stepKind is the kind of record that a step writes.
type stepKind int

const (
	stepConfig stepKind = iota
	stepVars
	stepNode
	stepJob
)

// Steps returns the requests that carry the plan out, in order: the changes that the jobs
// need, the jobs, and the removals that had to wait for them.
func (p *Plan) Steps() []Step {
	steps := p.changeSteps(false)

	for i := range p.Jobs {
		m := &p.Jobs[i]

		title := fmt.Sprintf("%s %s", m.Verb, shortList(m.Nodes))
		if m.Group != "" {
			title += " in " + m.Group
		}

		steps = append(steps, Step{Title: title, Result: StepPending, kind: stepJob, move: m})
	}

	return append(steps, p.changeSteps(true)...)
}

// changeSteps returns the steps of the changes before or after the jobs. A group exists
// before its variables, and until after them.
func (p *Plan) changeSteps(late bool) []Step {
	order := []stepKind{stepConfig, stepVars, stepNode}
	if late {
		order = []stepKind{stepVars, stepConfig, stepNode}
	}

	var steps []Step

	index := map[string]int{} // by title
	for _, kind := range order {
		for _, c := range p.Changes {
			if c.Late != late || kindOf(c.Cell) != kind {
				continue
			}

			title := titleOf(kind, c.Cell)

			i, begun := index[title]
			if !begun {
				i = len(steps)
				index[title] = i
				steps = append(steps, Step{Title: title, Result: StepPending, kind: kind})
			}

			steps[i].changes = append(steps[i].changes, c)
		}
	}

	return steps
}

func kindOf(c Cell) stepKind {
	switch {
	case c.Part == PartVars, c.Part == PartSecrets:
		return stepVars
	case c.Level == LevelNode:
		return stepNode
	}

	return stepConfig
}

func titleOf(kind stepKind, c Cell) string {
	switch kind {
	case stepConfig:
		return "the configuration of the manager"
	case stepVars:
		return "the variables of " + c.Where()
	}

	return "labels and connection of " + c.Where()
}

func shortList(names []string) string {
	return strings.Join(inventory.ShortenAll(names, 5, 2*inventory.MaxLabel), ", ")
}
