// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory/errtest"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// table repeats the lifecycle of the design, so that a change of the data takes a
// deliberate second change here.
var table = []struct {
	verb                           Verb
	from                           string
	through, success, clean, dirty Status
	discovered, serves             bool
	residue                        string // further statuses of nodes with residue
}{
	{VerbDiscover, "", "", "", "", "", false, false, ""},
	{VerbManage, "Enrolled Unallocated Decommissioned", Verifying, Manageable, "", "", false, false, ""},
	{VerbInspect, "Manageable", Inspecting, Manageable, Manageable, Manageable, false, false, ""},
	{VerbInstall, "Manageable Quarantined", Installing, Manageable, Manageable, Quarantined, false, false, ""},
	{VerbProvide, "Manageable", Cleaning, Unallocated, Manageable, Quarantined, false, false, ""},
	{VerbCommission, "Unallocated Decommissioned", Provisioning, Allocated, Unallocated, Quarantined, true, false, ""},
	{VerbUpdate, "Allocated", Maintenance, Allocated, Unallocated, Quarantined, true, false, ""},
	{VerbApply, "Allocated", Maintenance, Allocated, Allocated, Allocated, true, true, ""},
	{VerbReapply, "Allocated", Maintenance, Allocated, Allocated, Allocated, true, false, ""},
	{VerbMaintenance, "Allocated", Maintenance, Allocated, Allocated, Allocated, true, true, ""},
	{VerbVerify, "Allocated", Maintenance, Allocated, Allocated, Allocated, true, true, ""},
	{
		VerbDecommission, "Allocated Quarantined",
		Decommissioning, Decommissioned, Decommissioned, Decommissioned, false, false, "Unallocated Decommissioned",
	},
	{VerbClear, "Quarantined", Decommissioning, Unallocated, Quarantined, Quarantined, false, false, ""},
	{
		VerbPower,
		"Enrolled Manageable Unallocated Allocated Decommissioned Quarantined",
		Maintenance,
		AsBefore,
		"",
		"",
		false,
		false,
		"",
	},
	{
		VerbForget, "Enrolled Manageable Unallocated Decommissioned Quarantined",
		Decommissioning, "", "", "", true, false, "",
	},
}

func TestLifecycle(t *testing.T) {
	t.Parallel()

	if len(table) != len(Lifecycle) {
		t.Errorf("the lifecycle has %d verbs, want %d", len(Lifecycle), len(table))
	}

	for _, want := range table {
		got, ok := TransitionOf(want.verb)
		if !ok {
			t.Errorf("%s has no row", want.verb)
			continue
		}

		statuses := []Status{got.Through, got.Success, got.Failed, got.Dirty}
		wantStatuses := []Status{want.through, want.success, want.clean, want.dirty}

		if joinWords(got.From, " ") != want.from || joinWords(got.FromResidue, " ") != want.residue ||
			!slices.Equal(statuses, wantStatuses) ||
			got.NeedsDiscover != want.discovered ||
			got.KeepsService != want.serves {
			t.Errorf("%s: got %+v, want %+v", want.verb, got, want)
		}

		if got.Meaning == "" || got.Failure == "" {
			t.Errorf("%s is not documented", want.verb)
		}
	}

	for _, v := range []Verb{VerbDiscovered, VerbDisappeared, "", "Commission"} {
		if _, ok := TransitionOf(v); ok {
			t.Errorf("%q has a row, but no job carries it out", v)
		}
	}
}

// TestLifecycleIsConsistent checks the data for contradictions and dead ends.
func TestLifecycleIsConsistent(t *testing.T) {
	t.Parallel()

	resting := func(s Status) bool {
		_, err := ParseStatus(string(s))
		return err == nil && !s.InProgress()
	}

	// By an import, and by the first observation.
	reached := map[Status]bool{Enrolled: true, Unallocated: true, Quarantined: true}
	for _, r := range Lifecycle {
		if !r.ChangesStatus() {
			if statuses := []Status{r.Success, r.Failed, r.Dirty}; len(r.From) > 0 || slices.Max(statuses) != "" {
				t.Errorf("%s changes no status, but its row has some: %+v", r.Verb, r)
			}

			continue
		}

		if !r.Through.InProgress() {
			t.Errorf("%s goes through %s, which is not in progress", r.Verb, r.Through)
		}

		for _, s := range r.From {
			if !resting(s) {
				t.Errorf("%s is legal from %q", r.Verb, s)
			}
		}

		for _, s := range []Status{r.Success, r.Failed, r.Dirty} {
			if s != "" && s != AsBefore && !resting(s) {
				t.Errorf("%s ends in %q", r.Verb, s)
			}

			reached[s] = true
		}
	}

	for _, row := range Statuses {
		if row.InProgress != row.Status.InProgress() || row.Meaning == "" {
			t.Errorf("%+v is inconsistent or has no meaning", row)
		}

		if row.InProgress {
			continue
		}

		if !reached[row.Status] {
			t.Errorf("no verb ends in %s", row.Status)
		}

		if len(legalVerbs(Node{Status: row.Status})) == 0 {
			t.Errorf("no verb is legal from %s: a node would be stuck", row.Status)
		}
	}
}

// nodeIn returns a node with every field set, in the given status and state.
func nodeIn(status Status, state State) Node {
	n := Node{
		Name: "node-1", Label: "node", Serial: "1", Addr: "10.0.0.1",
		Status: status, PrevStatus: Decommissioned, State: state,
		Group: GroupWorker, LastError: "an old error", Applied: "3", Residue: []string{GroupMaster},
		Entries: 7, Revision: 42, Seen: map[string]bool{"gossip": true},
	}
	if status.InProgress() {
		n.Job, n.Verb, n.Before = "9", VerbCommission, &Before{Status: Unallocated, Entries: 6}
	}
	return n
}

// TestHold tries every verb in every status and state, with and without a
// duplicate of the node, and with and without residue.
func TestHold(t *testing.T) {
	t.Parallel()

	for _, row := range table {
		for _, s := range Statuses {
			for _, st := range States {
				for _, duplicate := range []bool{false, true} {
					for _, clean := range []bool{false, true} {
						n := nodeIn(s.Status, st.State)
						if duplicate {
							n.Duplicates = []string{"10.0.0.2"}
						}

						from := row.from
						if clean {
							n.Residue = nil
						} else {
							from += " " + row.residue
						}

						legal := slices.Contains(strings.Fields(from), string(s.Status)) &&
							!duplicate && (!row.discovered || st.State == Discovered)

						checkHold(t, n, row.verb, legal)
					}
				}
			}
		}
	}
}

// TestUncleanedIsNotOffered walks every path of the lifecycle from a node on which a cleaning failed: none that lacks
// clean.yml leads to a node that is offered or in service, whatever the verbs come to, and one that has it does.
func TestUncleanedIsNotOffered(t *testing.T) {
	t.Parallel()

	offered := func(s Status) bool { return s == Unallocated || s == Allocated }
	reached, mended := map[Status]bool{}, false
	open := []Status{Quarantined, Manageable, Enrolled, Decommissioned}

	for len(open) > 0 {
		n := Node{Name: "a-1", Label: "a", Serial: "1", Addr: "10.0.0.1", Status: open[0], State: Discovered}
		n.Uncleaned, n.Residue = true, []string{GroupWorker}
		open = open[1:]

		if reached[n.Status] {
			continue
		}
		reached[n.Status] = true

		seen, _, _ := n.Observe(Observation{Observer: ObserverGossip, Alive: true, Addr: n.Addr}, noon)
		open = append(open, seen.Status)

		for _, row := range Lifecycle {
			held, _, err := n.Hold(row, "", Trigger{Job: "10", Time: noon})
			if err != nil || row.Success == AsBefore {
				continue
			}

			for _, end := range []Status{row.Success, row.Failed, row.Dirty} {
				trusted := row.CleansHost && end == row.Success
				after, _ := held.Release(Outcome{Status: cmp.Or(end, n.Status), Trusted: trusted}, Trigger{Time: noon})

				if after.Uncleaned == trusted {
					t.Errorf("%s of a node that is %s to %s: uncleaned %v", row.Verb, n.Status, end, after.Uncleaned)
				}
				if mended = mended || trusted; after.Uncleaned {
					open = append(open, after.Status)
				}
			}
		}
	}

	for s := range reached {
		if offered(s) {
			t.Errorf("a node on which a cleaning failed becomes %s", s)
		}
	}
	if !mended || !reached[Decommissioned] {
		t.Errorf("reached %v, cleaned %v", reached, mended)
	}
}

// checkHold holds n for the verb and compares the result with legal.
func checkHold(t *testing.T, n Node, verb Verb, legal bool) {
	t.Helper()

	tr, _ := TransitionOf(verb)
	err := tr.Check(n)
	held, entry, holdErr := n.Hold(tr, "", Trigger{Actor: "anna", Job: "10", Reason: "because", Time: noon})
	name := fmt.Sprintf("%s of a node that is %s and %s, duplicates %v", verb, n.Status, n.State, n.Duplicates)

	switch {
	case (err == nil) != legal || (holdErr == nil) != legal:
		t.Errorf("%s: Check returns %v and Hold %v, want legal %v", name, err, holdErr, legal)
	case legal:
		checkHeld(t, name, n, held, entry, tr)
	default:
		checkRefusal(t, name, n, err)
	}
}

func checkHeld(t *testing.T, name string, n, held Node, got HistoryEntry, tr Transition) {
	t.Helper()

	want := n.Clone()
	want.Before = held.Before
	want.Status, want.PrevStatus, want.Job, want.Verb, want.LastError = tr.Through, n.Status, "10", tr.Verb, ""
	want.Entries, want.Updated, want.Actor = 8, noon, "anna"

	if held.Before == nil || !same(held, want) {
		t.Errorf("%s: held\n%+v, want\n%+v", name, held, want)
	}

	wantEntry := HistoryEntry{
		Seq: 8, Time: noon, Verb: tr.Verb, From: n.Status, To: tr.Through, State: n.State, Group: n.Group,
		Actor: "anna", Job: "10", Reason: "because", Read: 42,
	}
	if got != wantEntry {
		t.Errorf("%s: entry\n%+v, want\n%+v", name, got, wantEntry)
	}

	back := held.Unreserved()
	// A withdrawn reservation leaves a gap in the history.
	back.Entries, back.Updated, back.Actor = n.Entries, n.Updated, n.Actor

	if !same(back, n) {
		t.Errorf("%s: without the reservation\n%+v, want\n%+v", name, back, n)
	}
}

func checkRefusal(t *testing.T, name string, n Node, err error) {
	t.Helper()

	e, ok := errors.AsType[*Error](err)
	if !ok || e.Kind != KindRefused || !strings.Contains(e.Message, "node-1") || e.Remedy == "" {
		t.Errorf("%s: got %v, want a refused error with the node and a remedy", name, err)
		return
	}

	if !slices.Equal(e.Nodes, []string{"node-1"}) {
		t.Errorf("%s: the error is about %v", name, e.Nodes)
	}

	if n.Status.InProgress() && !slices.ContainsFunc(e.Actions, CancelJob("9").Equal) {
		t.Errorf("%s: the remedy %v does not cancel the job", name, e.Actions)
	}
}

func TestHoldSetsTheGroup(t *testing.T) {
	t.Parallel()

	tr, _ := TransitionOf(VerbCommission)
	n := nodeIn(Unallocated, Discovered)

	held, entry, err := n.Hold(tr, GroupMaster, Trigger{Job: "10", Time: noon})
	if err != nil || held.Group != GroupMaster || entry.Group != GroupMaster || held.Before.Group != GroupWorker {
		t.Errorf("got %+v, %v", held, err)
	}
	held.Residue[0], held.Seen["gossip"] = "changed", false
	if n.Residue[0] != GroupMaster || !n.Seen["gossip"] || held.Before.Residue[0] != GroupMaster {
		t.Error("the held node shares memory with the original")
	}
}

// TestReleaseAsBefore: a verb that has left the node as it was shows only in its history.
func TestReleaseAsBefore(t *testing.T) {
	t.Parallel()

	row, _ := TransitionOf(VerbApply)
	n := nodeIn(Allocated, Discovered)
	n.Group, n.Applied, n.LastError, n.PrevStatus = "g", "3", "an earlier error", Provisioning
	n.Playbooks = map[string]string{"g": "digest"}

	held, _, err := n.Hold(row, "", Trigger{Job: "10", Time: noon})
	if err != nil || held.LastError != "" {
		t.Fatalf("%+v, %v", held, err)
	}

	outcome := Outcome{Status: Allocated, Error: "the check failed", Reason: "in words", AsBefore: true}
	free, entry := held.Release(outcome, Trigger{Job: "10", Time: noon.Add(time.Minute)})

	want := n.Clone()
	want.Entries, want.Updated = free.Entries, noon.Add(time.Minute)

	if !same(free, want) {
		t.Errorf("released\n%+v, want\n%+v", free, want)
	}

	if entry.From != Maintenance || entry.To != Allocated || entry.Reason != "in words" || entry.Job != "10" {
		t.Errorf("%+v", entry)
	}
}

// TestRelease ends every verb in every status of its row.
func TestRelease(t *testing.T) {
	t.Parallel()

	outcome := Outcome{Group: "g", Applied: "10", Residue: []string{"r"}, Error: "it broke", Reason: "in words"}
	for _, tr := range Lifecycle {
		if !tr.ChangesStatus() {
			continue
		}

		for _, to := range []Status{tr.Success, tr.Failed, tr.Dirty} {
			if to == "" {
				continue
			}

			held, _, err := nodeIn(tr.From[0], Discovered).Hold(tr, "", Trigger{Job: "10", Time: noon})
			errtest.None(t, err)
			held.Revision = 43
			outcome.Status = to
			free, entry := held.Release(outcome, Trigger{Actor: "anna", Job: "10", Time: noon.Add(time.Minute)})

			want := held.Clone()
			want.Status, want.PrevStatus, want.Job, want.Verb, want.Before = to, tr.Through, "", "", nil
			want.Group, want.Applied, want.Residue, want.LastError = "g", "10", []string{"r"}, "it broke"
			want.Entries, want.Updated, want.Actor = 9, noon.Add(time.Minute), "anna"

			if want.Status == Quarantined {
				want.Presence.Fenced = want.Updated
			}

			if !same(free, want) {
				t.Errorf("%s: released\n%+v, want\n%+v", tr.Verb, free, want)
			}

			wantEntry := HistoryEntry{
				Seq: 9, Time: noon.Add(time.Minute), Verb: tr.Verb, From: tr.Through, To: to, State: Discovered,
				Group: "g", Actor: "anna", Job: "10", Reason: "in words", Read: 43,
			}
			if entry != wantEntry {
				t.Errorf("%s: entry\n%+v, want\n%+v", tr.Verb, entry, wantEntry)
			}

			if err := tr.Check(free); to == tr.From[0] && err != nil {
				t.Errorf("%s cannot be repeated after a failure: %v", tr.Verb, err)
			}
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()

	for _, row := range Statuses {
		name := string(row.Status)
		for _, s := range []string{name, strings.ToLower(name), strings.ToUpper(name)} {
			if got, err := ParseStatus(s); err != nil || got != row.Status {
				t.Errorf("ParseStatus(%q) = %q, %v", s, got, err)
			}
		}
	}

	for _, row := range States {
		got, err := ParseState(strings.ToLower(string(row.State)))
		if err != nil || got != row.State {
			t.Errorf("ParseState(%q) = %q, %v", strings.ToLower(string(row.State)), got, err)
		}

		if row.Meaning == "" {
			t.Errorf("the state %s has no meaning", row.State)
		}
	}

	for _, s := range []string{"", "Gone", "Allocated "} {
		if _, err := ParseStatus(s); KindOf(err) != KindInvalid {
			t.Errorf("ParseStatus(%q): got %v, want an invalid error", s, err)
		}

		if _, err := ParseState(s); KindOf(err) != KindInvalid {
			t.Errorf("ParseState(%q): got %v, want an invalid error", s, err)
		}
	}

	if Status("Gone").InProgress() {
		t.Error("an unknown status is in progress")
	}
}

func TestCheckForget(t *testing.T) {
	t.Parallel()

	for _, s := range Statuses {
		for _, st := range States {
			for _, force := range []bool{false, true} {
				err := nodeIn(s.Status, st.State).CheckForget(force)

				// No agent could bring it back.
				registered := (s.Status == Enrolled || s.Status == Manageable) && st.State == Unknown

				legal := !s.InProgress && (force || st.State == Disappeared || registered)
				if (err == nil) != legal {
					t.Errorf("forget of %s, %s, force %v: got %v, want legal %v", s.Status, st.State, force, err, legal)
				} else if err != nil && KindOf(err) != KindRefused {
					t.Errorf("forget of %s, %s: got %v, want a refused error", s.Status, st.State, err)
				}
			}
		}
	}
}

// TestForgetInService: the remedy takes a node out of service; it does not leave its
// services without a record.
func TestForgetInService(t *testing.T) {
	t.Parallel()

	for _, st := range []State{Discovered, Unknown} {
		n := nodeIn(Allocated, st)

		e, ok := errors.AsType[*Error](n.CheckForget(false))
		if !ok || len(e.Actions) != 1 || !e.Actions[0].Equal(Submit(VerbDecommission, n.Name)) {
			t.Errorf("%s: %+v", st, e)
		}
	}
}

// TestForgetSeen: a node that its agent still reports comes back after a forget by force, so the
// first remedy removes the agent, where a job for that is legal.
func TestForgetSeen(t *testing.T) {
	t.Parallel()

	for _, st := range []State{Discovered, Unknown} {
		for _, s := range []Status{Unallocated, Decommissioned, Quarantined} {
			n := nodeIn(s, st)

			want := []Action{ForgetNodes(n.Name).Forced()}
			if st == Discovered {
				want = []Action{Submit(VerbForget, n.Name), ForgetNodes(n.Name).Forced()}
			}

			e, ok := errors.AsType[*Error](n.CheckForget(false))
			if !ok || !slices.EqualFunc(e.Actions, want, Action.Equal) || !strings.Contains(e.Remedy, "Quarantined") {
				t.Errorf("%s, %s: %+v", s, st, e)
			}
		}
	}
}

func same(a, b Node) bool { return reflect.DeepEqual(a, b) }

// TestMachineWithoutAgent: no agent can bring a machine back whose agent never spoke, whatever was done with it.
func TestMachineWithoutAgent(t *testing.T) {
	t.Parallel()

	for _, s := range []Status{Enrolled, Manageable, Unallocated, Quarantined} {
		n := nodeIn(s, Unknown)
		n.Label, n.Serial, n.Addr = "", "", ""

		if err := n.CheckForget(false); err != nil {
			t.Errorf("forget of %s: %v", s, err)
		}
	}

	n := nodeIn(Unallocated, Unknown)
	n.Addr = ""
	row, _ := TransitionOf(VerbCommission)

	e, ok := errors.AsType[*Error](row.Check(n))
	if !ok || len(e.Actions) > 0 || !strings.Contains(e.Remedy, "import its addr") {
		t.Errorf("got %+v, want no action without an address", e)
	}
}
