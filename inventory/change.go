// SPDX-License-Identifier: Apache-2.0

package inventory

import "slices"

// change is a change of the status of a node that takes no job; an empty from: the record is new.
type change struct {
	verb Verb
	from Status
	to   []Status
}

// changes are those beside the lifecycle table.
var changes = []change{
	{VerbRegister, "", []Status{Enrolled}},
	{VerbRegister, Manageable, []Status{Enrolled}},
	{VerbDiscovered, "", []Status{Unallocated, Manageable, Quarantined}},
	{VerbDiscovered, Enrolled, []Status{Unallocated, Manageable}},
	{VerbQuarantine, Allocated, []Status{Quarantined}},
	{VerbQuarantine, Unallocated, []Status{Quarantined}},
}

// CheckLifecycle returns an error of KindInternal if the verb may not have taken a node from one status to the other.
func (e HistoryEntry) CheckLifecycle() error {
	if e.From == e.To || e.isLegal() {
		return nil
	}

	from := string(e.From)
	if from == "" {
		from = "nowhere"
	}

	return Errorf(KindInternal, "it went from %s to %s by %s, which the lifecycle does not have", from, e.To, e.Verb)
}

func (e HistoryEntry) isLegal() bool {
	row, _ := TransitionOf(e.Verb)
	before := slices.Concat(row.From, row.FromResidue)

	switch {
	case !row.ChangesStatus():
		return slices.ContainsFunc(changes, func(c change) bool {
			return c.verb == e.Verb && c.from == e.From && slices.Contains(c.to, e.To)
		})
	case e.To == row.Through:
		return slices.Contains(before, e.From)
	case e.From != row.Through:
		return false
	}

	// The end of a job that is lost quarantines its nodes; one that has changed nothing restores them.
	ends := append(before, row.Success, row.Failed, row.Dirty, Quarantined)

	return e.To != "" && e.To != AsBefore && slices.Contains(ends, e.To)
}

// ChangeFrom returns the change of the status from former, an earlier record of the node or nil, to n, without what
// only the history has. It is right if the status changed once.
func (n *Node) ChangeFrom(former *Node) HistoryEntry {
	e := HistoryEntry{Seq: n.Entries, Verb: VerbDiscovered, To: n.Status, Job: n.Job}
	if former != nil {
		e.From = former.Status
	}

	switch {
	case n.Status.InProgress():
		e.Verb = n.Verb
	case e.From.InProgress():
		e.Verb, e.Job = former.Verb, former.Job
	case n.Status == Enrolled:
		e.Verb = VerbRegister
	case n.Status == Quarantined && former != nil:
		e.Verb = VerbQuarantine
	}

	return e
}
