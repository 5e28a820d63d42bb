// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
)

// Undo returns the rollout, Planned, that takes this one back: each node that it changed goes
// back to the group and the playbooks before, with the variables of now. An upgrade goes back by
// the former site.yml: packages only as far as that names their versions. A node that cannot go
// back is skipped with the reason. kept reports whether playbooks are still there, or why that is not known.
func (r Record) Undo(
	s job.Snapshot, open []*Record, kept func(digest string) (bool, error), reason string, now time.Time,
) (Record, error) {
	row, _ := inventory.TransitionOf(r.Spec.Action)
	action := row.Undo

	switch {
	case action == "":
		return r, inventory.Errorf(inventory.KindRefused, "rollout %s changed nothing: %s compares nodes only",
			r.ID, r.Spec.Action).Do("nothing is to be taken back")
	case r.UndoOf != "":
		return r, inventory.Errorf(inventory.KindRefused, "rollout %s is itself the undo of %s", r.ID, r.UndoOf).
			Do("start a new rollout with the playbooks of today")
	case r.Status == Aborting:
		return r, inventory.Errorf(inventory.KindRefused, "jobs of rollout %s have not ended", r.ID).
			Do("wait until it is over").With(inventory.ShowRollout(r.ID))
	case !r.Status.Ended() && r.Count().InProgress > 0:
		return r, inventory.Errorf(inventory.KindRefused, "jobs of rollout %s have not ended", r.ID).
			Do("abort it, and wait until it is over").
			With(inventory.AbortRollout(r.ID), inventory.ShowRollout(r.ID))
	case !r.Status.Ended():
		return r, inventory.Errorf(inventory.KindRefused, "rollout %s is %s, and may go on", r.ID, r.Status).
			Do("abort it first, then undo it").With(inventory.AbortRollout(r.ID))
	}

	// No canary, promotion or approval: an undo is urgent, and goes to a known state.
	u := Record{Status: Planned, UndoOf: r.ID, Created: now, Spec: Spec{
		Action:         action,
		MaxUnavailable: r.Spec.MaxUnavailable,
		MaxFailures:    r.Spec.MaxFailures,
		Soak:           r.Spec.Soak,
		Order:          r.Spec.Order,
		Strategies:     r.Spec.Strategies,
		Gate:           r.Spec.Gate,
		Timeout:        r.Spec.Timeout,
		SharedOptions:  inventory.SharedOptions{Reason: reason},
	}}

	possible := 0

	for i := range r.Nodes {
		n := &r.Nodes[i]
		if n.Attempt == 0 {
			continue // it was not touched
		}
		back := Node{Name: n.Name, Group: n.Group, Rack: n.Rack, State: Waiting, Since: now, Playbooks: n.Former}

		why, err := r.cannotUndo(s, n, action, kept)
		if err != nil {
			return r, fmt.Errorf("looking for the playbooks that had configured %s: %w", n.Name, err)
		}

		if back.Reason = why; why != "" {
			back.State = Skipped
		} else {
			possible++
		}

		u.Nodes = append(u.Nodes, back)
	}

	if possible == 0 {
		return r, r.nothingToUndo(u)
	}

	u.Estimate = pace(s.Jobs(), u.Spec)

	// The skipped nodes stay as they are, so another rollout may have them.
	return u, checkFree(open, u.waiting())
}

// OnlyWith returns the undo without the command of its gate, unless the configuration has it. An
// event says so: to go back is more urgent than the command of a rollout that is given up.
func (r Record) OnlyWith(commands []string) Record {
	command := r.Spec.Gate.Command
	if command == nil || slices.Contains(commands, command.Name) {
		return r
	}

	r.Spec.Gate.Command = nil
	text := "the command %s of the gate is left out: gate_commands in the configuration file has it no longer"
	r.note(Event{Time: r.Created, Kind: EventSkipped, Text: fmt.Sprintf(text, command.Name)})

	return r
}

// waiting returns the record with its Waiting nodes only.
func (r Record) waiting() Record {
	r.Nodes = slices.DeleteFunc(slices.Clone(r.Nodes), func(n Node) bool { return n.State != Waiting })
	return r
}

func (r Record) nothingToUndo(u Record) error {
	why := "it began no node"
	if len(u.Nodes) > 0 {
		why = fmt.Sprintf("%s: %s", u.Nodes[0].Name, u.Nodes[0].Reason)
	}
	return inventory.Errorf(inventory.KindRefused, "no node of rollout %s can go back: %s", r.ID, why).
		Do("start a rollout with the playbooks that you want")
}

// cannotUndo returns why the node cannot go back to its former state, or "".
func (r Record) cannotUndo(
	s job.Snapshot, n *Node, action inventory.Verb, kept func(string) (bool, error),
) (string, error) {
	node, known := s.Lookup(n.Name)

	// A failed job leaves no applied job: the node may be anything, and goes back as well.
	switch {
	case !known:
		return "it was forgotten", nil
	case !n.hadJob():
		return "its job was refused: it is as it was", nil
	case node.Applied != "" && node.Applied == n.Applied:
		return "it is as it was: the rollout did not change what is configured on it", nil
	case node.Applied != "" && node.Applied != n.Job && node.Applied != n.Changed:
		return fmt.Sprintf("job %s has configured it since", node.Applied), nil
	case !configures(action):
		return "", nil
	case n.Former == "":
		return "it is not known which playbooks had configured it before", nil
	}

	is, err := kept(n.Former)
	if err != nil || is {
		return "", err
	}

	return fmt.Sprintf("the playbooks that had configured it (digest %s) are no longer kept",
		n.Former[:min(len(n.Former), 12)]), nil
}
