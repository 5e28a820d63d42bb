// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// stepKind is the kind of record that a step writes.
type stepKind int

const (
	stepConfig stepKind = iota
	stepVars
	stepNode
)

// addSteps adds the requests that carry the plan out, in order: the changes that the jobs
// need, the jobs, and the removals that had to wait for them.
func (p *Plan) addSteps() error {
	if err := p.addChanges(false); err != nil {
		return err
	}

	for _, j := range p.Jobs {
		title := fmt.Sprintf("%s %s", j.Verb, shortList(j.Nodes))
		if j.Group != "" {
			title += " in " + j.Group
		}

		// The nodes are to be as they were compared.
		expect := map[string]api.Expected{}
		for _, name := range j.Nodes {
			expect[name] = api.Expected{Status: p.nodes[name].Status, Group: p.nodes[name].Group}
		}

		request := api.JobRequest{Verb: j.Verb, Nodes: j.Nodes, Group: j.Group, Expect: expect}
		p.Steps = append(p.Steps, api.FleetStep{Title: title, Job: &request})
	}

	return p.addChanges(true)
}

// addChanges adds the steps of the changes before or after the jobs. A group exists
// before its variables, and until after them.
func (p *Plan) addChanges(late bool) error {
	order := []stepKind{stepConfig, stepVars, stepNode}
	if late {
		order = []stepKind{stepVars, stepConfig, stepNode}
	}

	index := map[string]*api.FleetApply{} // by title
	for _, kind := range order {
		for _, c := range p.changes {
			if c.Late != late || kindOf(c.FleetCell) != kind {
				continue
			}

			title := recordOf(c.FleetCell)
			if index[title] == nil {
				index[title] = &api.FleetApply{}
				if kind == stepConfig {
					index[title].Groups = p.groups
				}

				p.Steps = append(p.Steps, api.FleetStep{Title: title, Apply: index[title]})
			}

			w, err := c.write()
			if err != nil {
				return err
			}
			index[title].Changes = append(index[title].Changes, w)
		}
	}

	return nil
}

// write returns the change as it is sent back to be carried out.
func (c Change) write() (api.FleetWrite, error) {
	w := api.FleetWrite{FleetCell: c.FleetCell, Secret: c.source}

	var err error
	if from := c.before(); from != nil {
		if w.From, err = json.Marshal(from); err != nil {
			return w, err
		}
	}

	if c.value != nil && c.source == nil {
		w.To, err = json.Marshal(c.value)
	}

	return w, err
}

func kindOf(c Cell) stepKind {
	switch {
	case c.Part == api.PartVars, c.Part == api.PartSecrets:
		return stepVars
	case c.Level == api.LevelNode:
		return stepNode
	}

	return stepConfig
}

// recordOf names the record that a cell is a value of. Each step writes one.
func recordOf(c Cell) string {
	switch kindOf(c) {
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
