// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// table is the lifecycle as the design draws it, written down a second time: a
// change of the data has to be made here as well, on purpose.
var table = []struct {
	verb                           Verb
	from                           string
	through, success, clean, dirty Status
	discovered                     bool
}{
	{VerbCommission, "Unallocated Decommissioned", Provisioning, Allocated, Unallocated, Quarantined, true},
	{VerbUpdate, "Allocated", Maintenance, Allocated, Unallocated, Quarantined, true},
	{VerbMaintenance, "Allocated", Maintenance, Allocated, Allocated, Allocated, true},
	{VerbDecommission, "Allocated Quarantined", Decommissioning, Decommissioned, Decommissioned, Decommissioned, false},
	{VerbClear, "Quarantined", Decommissioning, Unallocated, Quarantined, Quarantined, false},
	{VerbForget, "Unallocated Decommissioned Quarantined", Decommissioning, "", "", "", true},
}

func TestTable(t *testing.T) {
	t.Parallel()

	if len(table) != len(Lifecycle) {
		t.Errorf("the lifecycle has %d verbs, the test knows %d", len(Lifecycle), len(table))
	}

	for _, want := range table {
		got, ok := TransitionOf(want.verb)
		if !ok {
			t.Errorf("%s has no row", want.verb)
			continue
		}

		var from []string
		for _, s := range got.From {
			from = append(from, string(s))
		}

		if strings.Join(from, " ") != want.from || got.Through != want.through || got.Success != want.success ||
			got.Failed != want.clean || got.Dirty != want.dirty || got.NeedsDiscover != want.discovered {
			t.Errorf("%s: %+v", want.verb, got)
		}

		if got.Meaning == "" || got.Failure == "" {
			t.Errorf("%s says nothing of itself", want.verb)
		}
	}

	for _, v := range []Verb{VerbDiscovered, VerbDisappeared, VerbDiscover, "", "Commission"} {
		if _, ok := TransitionOf(v); ok {
			t.Errorf("%q has a row", v)
		}
	}
}

// TestTableIsSound holds the data against itself.
func TestTableIsSound(t *testing.T) {
	t.Parallel()
	known := func(s Status) bool { _, err := ParseStatus(string(s)); return err == nil }

	reached := map[Status]bool{Unallocated: true, Quarantined: true} // by being seen
	for _, r := range Lifecycle {
		if !r.Through.InProgress() {
			t.Errorf("%s goes through %s, which is not in progress", r.Verb, r.Through)
		}

		for _, s := range r.From {
			if !known(s) || s.InProgress() {
				t.Errorf("%s is legal from %q", r.Verb, s)
			}
		}

		for _, s := range []Status{r.Success, r.Failed, r.Dirty} {
			if s != "" && (!known(s) || s.InProgress()) {
				t.Errorf("%s ends in %q", r.Verb, s)
			}

			reached[s] = true
		}
	}

	for _, row := range Statuses {
		if row.InProgress != row.Status.InProgress() || row.Meaning == "" {
			t.Errorf("%+v", row)
		}

		if row.InProgress {
			continue
		}

		if !reached[row.Status] {
			t.Errorf("%s is never reached", row.Status)
		}

		if !slices.ContainsFunc(Lifecycle, func(r Transition) bool { return slices.Contains(r.From, row.Status) }) {
			t.Errorf("nothing is legal from %s: a node would be stuck", row.Status)
		}
	}
}

func nodeIn(status Status, state State) Node {
	n := Node{
		Name:       "node-1",
		Label:      "node",
		Serial:     "1",
		Addr:       "10.0.0.1",
		Status:     status,
		State:      state,
		PrevStatus: Decommissioned,
		Group:      GroupWorker,
		LastError:  "an old error",
		Applied:    "3",
		Residue:    []string{GroupMaster},
		Entries:    7,
		Revision:   42,
		Seen:       map[string]bool{"gossip": true},
	}
	if status.InProgress() {
		n.Job, n.Verb, n.Before = "9", VerbCommission, &Before{Status: Unallocated, Entries: 6}
	}

	return n
}

// TestGrid walks status × state × duplicate × verb.
func TestGrid(t *testing.T) {
	t.Parallel()

	for _, row := range table {
		tr, _ := TransitionOf(row.verb)
		for _, s := range Statuses {
			for _, st := range States {
				for _, twin := range []bool{false, true} {
					n := nodeIn(s.Status, st.State)
					if twin {
						n.Duplicates = []string{"10.0.0.2"}
					}

					legal := slices.Contains(strings.Fields(row.from), string(s.Status)) &&
						(!row.discovered || st.State == Discovered && !twin)
					err := tr.Check(n)
					held, entry, herr := n.Hold(tr, "", Trigger{Actor: "anna", Job: "10", Reason: "because", Time: noon})

					where := string(row.verb) + " of a node that is " + string(s.Status) + " and " + string(st.State)
					if (err == nil) != legal || (herr == nil) != legal {
						t.Errorf("%s, twin %v: Check %v, Hold %v", where, twin, err, herr)
						continue
					}

					if legal {
						checkHeld(t, where, n, held, entry, row.verb, row.through)
						continue
					}

					if KindOf(err) != KindRefused || !strings.Contains(err.Error(), "node-1") ||
						!strings.Contains(err.Error(), ";") {
						t.Errorf("%s: the refusal does not say what, why and what to do: %v", where, err)
					}

					if !slices.Equal(err.(*Error).Nodes, []string{"node-1"}) {
						t.Errorf("%s: about %v", where, err.(*Error).Nodes)
					}

					if s.InProgress && !strings.Contains(err.Error(), "clusterctl job cancel 9") {
						t.Errorf("%s: the job that holds it is not named: %v", where, err)
					}
				}
			}
		}
	}
}

func checkHeld(t *testing.T, where string, n, held Node, e HistoryEntry, verb Verb, through Status) {
	t.Helper()

	if held.Status != through || held.PrevStatus != n.Status || held.Job != "10" || held.Verb != verb ||
		held.LastError != "" ||
		held.Group != n.Group {
		t.Errorf("%s: held %+v", where, held)
	}

	if e.Seq != 8 || held.Entries != 8 || e.From != n.Status || e.To != through || e.Verb != verb || e.Actor != "anna" ||
		e.Job != "10" || e.Reason != "because" ||
		!e.Time.Equal(noon) ||
		e.Read != 42 ||
		e.State != n.State {
		t.Errorf("%s: entry %+v", where, e)
	}

	back := held.Unreserved()

	back.Entries, back.Updated = n.Entries, n.Updated
	if !same(back, n) {
		t.Errorf("%s: without the reservation it is\n%+v, it was\n%+v", where, back, n)
	}
}

func TestHoldTakesTheGroup(t *testing.T) {
	t.Parallel()
	tr, _ := TransitionOf(VerbCommission)
	n := nodeIn(Unallocated, Discovered)

	held, entry, err := n.Hold(tr, GroupMaster, Trigger{Job: "10", Time: noon})
	if err != nil || held.Group != GroupMaster || entry.Group != GroupMaster || held.Before.Group != GroupWorker {
		t.Errorf("%+v, %v", held, err)
	}

	held.Residue[0], held.Seen["gossip"] = "changed", false
	if n.Residue[0] != GroupMaster || !n.Seen["gossip"] || held.Before.Residue[0] != GroupMaster {
		t.Error("the held node shares memory with the one it was made of")
	}
}

// TestRelease ends every verb in every status that its row names.
func TestRelease(t *testing.T) {
	t.Parallel()

	for _, tr := range Lifecycle {
		for _, to := range []Status{tr.Success, tr.Failed, tr.Dirty} {
			if to == "" {
				continue
			}

			from := nodeIn(tr.From[0], Discovered)

			held, _, err := from.Hold(tr, "", Trigger{Job: "10", Time: noon})
			if err != nil {
				t.Fatal(err)
			}

			held.Revision = 43

			free, e := held.Release(
				Outcome{
					Status:  to,
					Group:   "g",
					Applied: "10",
					Residue: []string{"r"},
					Error:   "it broke",
					Reason:  "in words",
				},
				Trigger{Actor: "anna", Job: "10", Time: noon.Add(time.Minute)},
			)
			if free.Status != to || free.PrevStatus != tr.Through || free.Job != "" || free.Verb != "" || free.Before != nil ||
				free.Group != "g" ||
				free.Applied != "10" ||
				free.LastError != "it broke" ||
				!slices.Equal(free.Residue, []string{"r"}) {
				t.Errorf("%s: %+v", tr.Verb, free)
			}

			if e.Seq != 9 || e.Verb != tr.Verb || e.From != tr.Through || e.To != to || e.Read != 43 ||
				e.Reason != "in words" ||
				e.Job != "10" {
				t.Errorf("%s: entry %+v", tr.Verb, e)
			}

			if err := tr.Check(free); to == tr.From[0] && err != nil {
				t.Errorf("%s cannot be repeated after it failed: %v", tr.Verb, err)
			}
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()

	for _, row := range Statuses {
		for _, s := range []string{string(row.Status), strings.ToLower(string(row.Status)), strings.ToUpper(string(row.Status))} {
			if got, err := ParseStatus(s); err != nil || got != row.Status {
				t.Errorf("%q: %v, %v", s, got, err)
			}
		}
	}

	for _, row := range States {
		if got, err := ParseState(
			strings.ToLower(string(row.State)),
		); err != nil || got != row.State ||
			row.Meaning == "" {
			t.Errorf("%q: %v, %v", row.State, got, err)
		}
	}

	for _, s := range []string{"", "Gone", "Allocated "} {
		if _, err := ParseStatus(s); KindOf(err) != KindInvalid {
			t.Errorf("%q is a status: %v", s, err)
		}

		if _, err := ParseState(s); KindOf(err) != KindInvalid {
			t.Errorf("%q is a state: %v", s, err)
		}
	}

	if Status("Gone").InProgress() {
		t.Error("what is no status is in progress")
	}
}

func TestCheckForget(t *testing.T) {
	t.Parallel()

	for _, s := range Statuses {
		for _, st := range States {
			for _, force := range []bool{false, true} {
				err := nodeIn(s.Status, st.State).CheckForget(force)
				if legal := !s.InProgress && (force || st.State == Disappeared); (err == nil) != legal {
					t.Errorf("forget of %s, %s, force %v: %v", s.Status, st.State, force, err)
				} else if err != nil && KindOf(err) != KindRefused {
					t.Errorf("kind of %v", err)
				}
			}
		}
	}
}
