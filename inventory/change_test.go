// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"
	"testing"
)

// TestCheckLifecycle takes a node through every row of the table, by Hold and Release, and expects that each change is
// legal. Of all pairs of statuses, it then expects exactly those that were reached so, or that need no job.
func TestCheckLifecycle(t *testing.T) {
	t.Parallel()

	type pair struct {
		verb     Verb
		from, to Status
	}

	legal := map[pair]bool{
		{VerbRegister, "", Enrolled}:               true,
		{VerbRegister, Manageable, Enrolled}:       true,
		{VerbDiscovered, "", Unallocated}:          true,
		{VerbDiscovered, "", Manageable}:           true,
		{VerbDiscovered, "", Quarantined}:          true,
		{VerbDiscovered, Enrolled, Unallocated}:    true,
		{VerbDiscovered, Enrolled, Manageable}:     true,
		{VerbQuarantine, Allocated, Quarantined}:   true,
		{VerbQuarantine, Unallocated, Quarantined}: true,
	}

	for _, row := range Lifecycle {
		if !row.ChangesStatus() {
			continue
		}

		for _, from := range slices.Concat(row.From, row.FromResidue) {
			n := Node{
				Name: "a-1", Status: from, State: Discovered, Addr: "127.0.0.1", Residue: []string{"g"},
				HostKeys: []string{"k"},
			}

			held, entry, err := n.Hold(row, "", Trigger{Job: "1"})
			if err != nil {
				t.Fatalf("%s from %s: %v", row.Verb, from, err)
			}

			legal[pair{row.Verb, from, row.Through}] = true
			if step := held.ChangeFrom(&n); entry.CheckLifecycle() != nil || step.CheckLifecycle() != nil ||
				step.Verb != row.Verb || step.Job != "1" {
				t.Errorf("%+v, %+v", entry, step)
			}

			outcomes := []Outcome{{AsBefore: true}, {Status: Quarantined}, {Status: from}}
			for _, to := range []Status{row.Success, row.Failed, row.Dirty} {
				if to != "" && to != AsBefore {
					outcomes = append(outcomes, Outcome{Status: to})
				}
			}

			for _, o := range outcomes {
				free, entry := held.Release(o, Trigger{Job: "1"})
				legal[pair{row.Verb, row.Through, free.Status}] = true

				if step := free.ChangeFrom(&held); entry.CheckLifecycle() != nil || step.CheckLifecycle() != nil ||
					step.Verb != row.Verb || step.Job != "1" {
					t.Errorf("%+v, %+v", entry, step)
				}
			}
		}
	}

	all := []Status{"", AsBefore, "Lost"}
	for _, row := range Statuses {
		all = append(all, row.Status)
	}

	verbs := []Verb{VerbDiscovered, VerbDisappeared, VerbRegister, VerbQuarantine, VerbAlert, "", "lost"}
	for _, row := range Lifecycle {
		verbs = append(verbs, row.Verb)
	}

	for _, v := range verbs {
		for _, from := range all {
			for _, to := range all {
				e := HistoryEntry{Verb: v, From: from, To: to}
				if err := e.CheckLifecycle(); (err == nil) != (from == to || legal[pair{v, from, to}]) {
					t.Errorf("%s from %q to %q: %v", v, from, to, err)
				}
			}
		}
	}
}

// TestChangeFrom: the verb of a change without a job follows from the statuses.
func TestChangeFrom(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		from, to Status
		want     Verb
	}{
		{"", Enrolled, VerbRegister},
		{"", Quarantined, VerbDiscovered},
		{"", Unallocated, VerbDiscovered},
		{Enrolled, Unallocated, VerbDiscovered},
		{Manageable, Enrolled, VerbRegister},
		{Allocated, Quarantined, VerbQuarantine},
	} {
		var former *Node
		if c.from != "" {
			former = &Node{Status: c.from}
		}

		e := (&Node{Status: c.to, Entries: 3}).ChangeFrom(former)
		if e.Verb != c.want || e.Seq != 3 || e.CheckLifecycle() != nil {
			t.Errorf("%s to %s: %+v", c.from, c.to, e)
		}
	}

	// A record that was written past the manager.
	held := &Node{Status: Provisioning, Verb: VerbCommission}
	for _, to := range []Status{Enrolled, Manageable, Maintenance} {
		if e := (&Node{Status: to}).ChangeFrom(held); e.CheckLifecycle() == nil {
			t.Errorf("%+v is legal", e)
		}
	}
}
