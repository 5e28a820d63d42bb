// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory/errtest"
)

func observation(observer string, alive bool) Observation {
	return Observation{Observer: observer, Label: "node", Serial: "1", Addr: "10.0.0.1", Alive: alive}
}

func TestNewNode(t *testing.T) {
	t.Parallel()

	n, entry := NewNode(observation("gossip", true), nil, noon)

	want := Node{
		Name: "node-1", Label: "node", Serial: "1", Addr: "10.0.0.1",
		Status: Unallocated, State: Discovered, PrevState: Unknown, Seen: map[string]bool{"gossip": true},
		Sightings: map[string]Sighting{"gossip": {Addr: "10.0.0.1", Since: noon}},
		Entries:   1, Created: noon, Updated: noon, Actor: "monitor:gossip", Presence: Presence{Since: noon},
	}
	if !same(n, want) {
		t.Errorf("got %+v, want %+v", n, want)
	}

	wantEntry := HistoryEntry{
		Seq: 1, Time: noon, Verb: VerbDiscovered, To: Unallocated, State: Discovered,
		Actor: "monitor:gossip", Reason: "seen for the first time",
	}
	if entry != wantEntry {
		t.Errorf("got entry %+v, want %+v", entry, wantEntry)
	}

	if m, _ := NewNode(observation("gossip", false), nil, noon); m.State != Disappeared {
		t.Errorf("a node first reported as lost is %s", m.State)
	}
}

func TestNewNodeWithTombstone(t *testing.T) {
	t.Parallel()

	tomb := &Tombstone{
		Name:     "node-1",
		Label:    "node",
		Serial:   "1",
		HostKeys: []string{"ssh-ed25519 AAAA"},
		Residue:  []string{"service-worker"}, Uncleaned: true,
		Time: noon.Add(-time.Hour),
	}

	n, entry := NewNode(observation("gossip", true), tomb, noon)
	if n.Status != Quarantined || n.State != Discovered || !slices.Equal(n.HostKeys, tomb.HostKeys) {
		t.Errorf("got %+v, want a quarantined node with the keys of the tombstone", n)
	}
	if !strings.Contains(n.LastError, "forgotten on 2026-01-02T11:00:00Z") {
		t.Errorf("got last error %q", n.LastError)
	}

	if entry.To != Quarantined || entry.Reason != n.LastError {
		t.Errorf("got entry %+v", entry)
	}

	// Whoever registers the machine again is not told that it is clean, and its agent does not offer it.
	again, _ := Enroll("node-1", "10.0.0.1", tomb, Trigger{Time: noon})
	for _, m := range []Node{n, again} {
		if !m.Uncleaned || !slices.Equal(m.Residue, tomb.Residue) {
			t.Errorf("%s has forgotten what the host may carry: %+v", m.Status, m)
		}
	}

	if m, _, _ := again.Observe(observation("gossip", true), noon); m.Status != Manageable {
		t.Errorf("its agent makes it %s", m.Status)
	}

	n.HostKeys[0] = "changed"
	if tomb.HostKeys[0] == "changed" {
		t.Error("the node shares its keys with the tombstone")
	}
}

// TestObserve applies observations in order and checks the node after each.
func TestObserve(t *testing.T) {
	t.Parallel()

	gossip, post := observation("gossip", true), observation(ObserverPost, true)
	agent := observation("agent-b", true)

	lost := func(o Observation) Observation { o.Alive = false; return o }
	joined := func(o Observation) Observation { o.Joined = true; return o }
	at := func(o Observation, addr string) Observation { o.Addr = addr; return o }
	withOthers := func(o Observation, others ...string) Observation { o.Others = others; return o }

	hasAddr := func(addr string) func(Node) bool { return func(n Node) bool { return n.Addr == addr } }
	hadState := func(s State) func(Node) bool { return func(n Node) bool { return n.PrevState == s } }
	hasDuplicates := func(want ...string) func(Node) bool {
		return func(n Node) bool { return slices.Equal(n.Duplicates, want) }
	}

	for name, steps := range map[string][]observeStep{
		"one observer loses it and sees it again": {
			{gossip, Discovered, VerbDiscovered, true, nil},
			{gossip, Discovered, "", false, nil},
			{lost(gossip), Disappeared, VerbDisappeared, true, hadState(Discovered)},
			{lost(gossip), Disappeared, "", false, nil},
			{gossip, Discovered, VerbDiscovered, true, hadState(Disappeared)},
		},
		"it is Discovered while any observer sees it": {
			{gossip, Discovered, VerbDiscovered, true, nil},
			{agent, Discovered, "", true, nil},
			{lost(gossip), Discovered, "", true, nil},
			{lost(agent), Disappeared, VerbDisappeared, true, nil},
		},
		"a POST holds until the next one": {
			{post, Discovered, VerbDiscovered, true, nil},
			{gossip, Discovered, "", true, nil},
			{lost(gossip), Discovered, "", true, nil},
			{lost(post), Disappeared, VerbDisappeared, true, nil},
		},
		"a POST holds until gossip sees the node join anew": {
			{post, Discovered, VerbDiscovered, true, nil},
			{joined(gossip), Discovered, "", true, func(n Node) bool { _, ok := n.Seen[ObserverPost]; return !ok }},
			{lost(gossip), Disappeared, VerbDisappeared, true, nil},
		},
		"a join outdates a POST that reported it lost": {
			{gossip, Discovered, VerbDiscovered, true, nil},
			{lost(gossip), Disappeared, VerbDisappeared, true, nil},
			{lost(post), Disappeared, "", true, nil},
			{joined(gossip), Discovered, VerbDiscovered, true, func(n Node) bool { return len(n.Seen) == 1 }},
		},
		"a POST with joined does not outdate itself": {
			{joined(post), Discovered, VerbDiscovered, true, func(n Node) bool { return n.Seen[ObserverPost] }},
		},
		"it returns with another address": {
			{gossip, Discovered, VerbDiscovered, true, nil},
			{at(gossip, "10.0.0.9"), Discovered, "", true, hasAddr("10.0.0.9")},
			{at(lost(gossip), "10.0.0.7"), Disappeared, VerbDisappeared, true, hasAddr("10.0.0.9")},
		},
		"two hosts claim its identity": {
			{withOthers(gossip, "10.0.0.3", "10.0.0.2"), Discovered, VerbDiscovered, true,
				hasDuplicates("10.0.0.2", "10.0.0.3")},
			{withOthers(gossip, "10.0.0.2", "10.0.0.3"), Discovered, "", false, nil},
			// A POST covers one host and is no evidence on duplicates.
			{post, Discovered, "", true, hasDuplicates("10.0.0.2", "10.0.0.3")},
			{lost(post), Discovered, "", true, hasDuplicates("10.0.0.2", "10.0.0.3")},
			{gossip, Discovered, VerbConflict, true, hasDuplicates()},
			{withOthers(gossip, "10.0.0.2"), Discovered, VerbConflict, true, nil},
			{lost(gossip), Disappeared, VerbDisappeared, true, hasDuplicates()},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			n := Node{
				Name: "node-1", Label: "node", Serial: "1", Addr: "10.0.0.1",
				Status: Allocated, PrevStatus: Provisioning, State: Unknown, PrevState: Unknown,
				Group: GroupMaster, Applied: "4", Revision: 5,
			}
			for i, s := range steps {
				n = s.observe(t, i, n)
			}
		})
	}
}

type observeStep struct {
	observation Observation
	state       State
	verb        Verb // of the history entry; empty: no entry
	changed     bool
	check       func(Node) bool // further expectations; may be nil
}

// observe applies step i to n, checks the result and returns it.
func (s observeStep) observe(t *testing.T, i int, n Node) Node {
	t.Helper()

	before := n.Clone()
	at := noon.Add(time.Duration(i) * time.Minute)

	m, entry, changed := n.Observe(s.observation, at)
	if !same(n, before) {
		t.Fatalf("step %d changed the original", i)
	}
	if m.State != s.state || changed != s.changed || s.check != nil && !s.check(m) {
		t.Fatalf("step %d: changed %v, node %+v", i, changed, m)
	}

	if (entry != nil) != (s.verb != "") {
		t.Fatalf("step %d: got entry %+v, want verb %q", i, entry, s.verb)
	}

	if entry != nil {
		reason := ""
		if s.verb == VerbConflict {
			reason = entry.Reason
		}

		want := HistoryEntry{
			Seq: n.Entries + 1, Time: at, Verb: s.verb, From: Allocated, To: Allocated, State: s.state,
			Reason: reason, Group: GroupMaster, Actor: "monitor:" + s.observation.Observer, Read: 5,
		}
		if *entry != want {
			t.Fatalf("step %d: got entry %+v, want %+v", i, *entry, want)
		}
	}

	if changed && !m.Updated.Equal(at) {
		t.Fatalf("step %d: updated at %s, want %s", i, m.Updated, at)
	}

	if m.Status != Allocated || m.PrevStatus != Provisioning || m.Group != GroupMaster || m.Applied != "4" {
		t.Fatalf("step %d changed more than the observed part: %+v", i, m)
	}

	return m
}

func TestHistorySequence(t *testing.T) {
	t.Parallel()

	n, entry := NewNode(observation("gossip", true), nil, noon)
	seqs := []uint64{entry.Seq}

	for _, alive := range []bool{false, true, true, false} {
		var changed *HistoryEntry
		if n, changed, _ = n.Observe(observation("gossip", alive), noon); changed != nil {
			seqs = append(seqs, changed.Seq)
		}
	}

	n.State = Discovered
	tr, _ := TransitionOf(VerbCommission)

	held, entry, err := n.Hold(tr, GroupMaster, Trigger{Job: "1", Time: noon})
	errtest.None(t, err)
	seqs = append(seqs, entry.Seq)

	// The sequence number of a withdrawn reservation is not used again.
	again, entry, err := held.Unreserved().Hold(tr, GroupMaster, Trigger{Job: "2", Time: noon})
	errtest.None(t, err)
	seqs = append(seqs, entry.Seq)

	_, entry = again.Release(Outcome{Status: Allocated}, Trigger{Job: "2", Time: noon})
	if seqs = append(seqs, entry.Seq); !slices.Equal(seqs, []uint64{1, 2, 3, 4, 5, 6, 7}) {
		t.Errorf("got sequence numbers %v, want 1 to 7", seqs)
	}
}

func TestCommissionedAndInService(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		status                  Status
		verb                    Verb
		commissioned, inService bool
	}{
		{Unallocated, "", false, false},
		{Provisioning, VerbCommission, false, true},
		{Allocated, "", true, true},
		{Maintenance, VerbMaintenance, true, true},
		{Maintenance, VerbUpdate, false, true},
		{Decommissioning, VerbDecommission, false, false},
		{Decommissioned, "", false, false},
		{Quarantined, "", false, false},
	} {
		n := Node{Status: tt.status, Verb: tt.verb}
		if n.Commissioned() != tt.commissioned || n.InService() != tt.inService {
			t.Errorf("%s %s: got commissioned %v, in service %v, want %v, %v",
				tt.status, tt.verb, n.Commissioned(), n.InService(), tt.commissioned, tt.inService)
		}
	}
}

// TestCleaned: a node that was cleaned in service does not serve until a configuration is
// applied whole, or its service ends.
func TestCleaned(t *testing.T) {
	t.Parallel()

	reapplied := Outcome{Status: Allocated, Group: GroupWorker, Cleaned: true, Error: "cleaned, and not configured"}

	for _, tt := range []struct {
		name    string
		cleaned bool
		outcome Outcome
		want    bool
	}{
		{"a reapply failed", false, reapplied, true},
		{"an apply failed", false, Outcome{Status: Allocated, Group: GroupWorker, Error: "x"}, false},
		{"an apply of it failed", true, Outcome{Status: Allocated, Group: GroupWorker, Error: "x"}, true},
		{"a part of the tasks was applied", true, Outcome{Status: Allocated, Group: GroupWorker}, true},
		{"a check", true, Outcome{Status: Allocated, Group: GroupWorker, Applied: "3", AsBefore: true}, true},
		{"it was configured", true, Outcome{Status: Allocated, Group: GroupWorker, Applied: "7"}, false},
		{"it was decommissioned", true, Outcome{Status: Decommissioned}, false},
	} {
		n := nodeIn(Maintenance, Discovered)
		n.Cleaned, n.Before.Status = tt.cleaned, Allocated

		got, _ := n.Release(tt.outcome, Trigger{})
		if got.Cleaned != tt.want {
			t.Errorf("%s: cleaned is %v", tt.name, got.Cleaned)
		}
		serves := got.Status == Allocated && !tt.want
		if got.Serves() != serves || got.Healthy() != serves || got.Available() != serves {
			t.Errorf("%s: it serves %v, is healthy %v, available %v, want %v",
				tt.name, got.Serves(), got.Healthy(), got.Available(), serves)
		}
	}
}

// TestClone changes every field that a shallow copy would share.
func TestClone(t *testing.T) {
	t.Parallel()

	n := nodeIn(Provisioning, Discovered)
	n.Duplicates, n.HostKeys, n.Before.Residue = []string{"a"}, []string{"k"}, []string{"r"}
	n.Sightings, n.SetAside = map[string]Sighting{"gossip": {Addr: "a"}}, []string{"a"}
	n.Labels = map[string]string{"l": "v"}
	n.Playbooks = map[string]string{"g": "d"}
	n.Verification = &Verdict{Result: Clean}
	n.Configured = &Configured{Extra: []string{"e"}}
	n.Alerts = []Alert{{Reason: "r"}}
	n.Hardware, n.Installed = &Hardware{Serial: "s"}, &Installed{Image: "i"}

	want, err := json.Marshal(n)
	errtest.None(t, err)

	m := n.Clone()
	m.Residue[0], m.Duplicates[0], m.HostKeys[0], m.SetAside[0] = "x", "x", "x", "x"
	m.Sightings["gossip"] = Sighting{Addr: "x"}
	m.Before.Residue[0], m.Before.Status = "x", "x"
	m.Labels["l"], m.Playbooks["g"], m.Seen["gossip"] = "x", "x", false
	m.Verification.Result, m.Alerts[0].Reason = Drifted, "x"
	m.Configured.Extra[0], m.Configured.Group = "x", "x"
	m.Hardware.Serial, m.Installed.Image = "x", "x"

	if got, _ := json.Marshal(n); string(got) != string(want) {
		t.Errorf("changing the copy changed the original to %s", got)
	}

	references := 0
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Node]()) {
		switch f.Type.Kind() {
		case reflect.Slice, reflect.Map, reflect.Pointer:
			references++
		}
	}

	if references != 14 {
		t.Errorf("Node has %d reference fields, want 14: add the new one to Clone and to this test", references)
	}
}

// TestFirstGenerationAddressChange is a regression test: in the first generation Ansible kept
// using the old address after the monitor saw a new one.
func TestFirstGenerationAddressChange(t *testing.T) {
	t.Parallel()

	n, _ := NewNode(observation("gossip", true), nil, noon)
	moved := observation("gossip", true)
	moved.Addr = "fd00::9"

	if m, _, changed := n.Observe(moved, noon); !changed || m.Addr != "fd00::9" || m.Name != n.Name {
		t.Errorf("got changed %v, node %+v", changed, m)
	}
}

// TestReleaseVerification: a verdict stays until a job may have changed the host.
func TestReleaseVerification(t *testing.T) {
	t.Parallel()

	verified := nodeIn(Maintenance, Discovered)
	verified.Verification = &Verdict{Result: Clean, Job: "1"}
	verified.Before = &Before{Status: Allocated, LastError: "an earlier failure", Applied: "1"}

	drifted := &Verdict{Result: Drifted, Job: "2"}

	for name, tt := range map[string]struct {
		outcome Outcome
		want    *Verdict
	}{
		"another verdict":      {Outcome{AsBefore: true, Verdict: drifted}, drifted},
		"a check":              {Outcome{AsBefore: true}, verified.Verification},
		"nothing was touched":  {Outcome{Status: Allocated, Untouched: true}, verified.Verification},
		"configured again":     {Outcome{Status: Allocated}, nil},
		"out of service as is": {Outcome{Status: Quarantined, Untouched: true}, nil},
	} {
		n, _ := verified.Release(tt.outcome, Trigger{Time: noon})
		if !reflect.DeepEqual(n.Verification, tt.want) {
			t.Errorf("%s: got %+v", name, n.Verification)
		}
		if tt.outcome.AsBefore && (n.LastError != "an earlier failure" || n.Applied != "1" || n.Status != Allocated) {
			t.Errorf("%s: the record is %+v", name, n)
		}
	}
}

func TestVerdictInWords(t *testing.T) {
	t.Parallel()

	for want, v := range map[string]Verdict{
		"clean": {Result: Clean},
		"clean: 1 task not judged by check mode; 2 tasks executed for real": {
			Result: Clean, Unjudged: 1, Executed: 2,
		},
		"drifted: 3 tasks would change; verify.yml: x": {Result: Drifted, Differences: 3, Reason: "verify.yml: x"},
		"unknown: unreachable":                         {Result: Unverified, Reason: "unreachable"},
	} {
		if got := v.Describe(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestExpiredTombstones: the old ones go, and beyond the number the oldest.
func TestExpiredTombstones(t *testing.T) {
	t.Parallel()

	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	all := []*Tombstone{
		{Name: "old-1", Time: now.AddDate(-2, 0, -1)}, {Name: "new-1", Time: now.AddDate(-1, 0, 0)},
		{Name: "older-1", Time: now.AddDate(-9, 0, 0)},
	}

	if got := ExpiredTombstones(all, now); !slices.Equal(got, []string{"older-1", "old-1"}) {
		t.Errorf("%q", got)
	}

	for i := range TombstoneLimit + 1 {
		all = append(all, &Tombstone{Name: fmt.Sprintf("b-%05d", i), Time: now.Add(-time.Duration(i) * time.Minute)})
	}

	got := ExpiredTombstones(all, now)
	if want := []string{"older-1", "old-1", "new-1", "b-10000"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestFresh: who was used, or whose job failed, is not offered by itself.
func TestFresh(t *testing.T) {
	t.Parallel()

	for _, row := range Statuses {
		n := Node{Status: Unallocated, PrevStatus: row.Status}

		want := row.Status == Enrolled || row.Status == Cleaning
		if n.Fresh() != want {
			t.Errorf("after %s: fresh %t, want %t", row.Status, !want, want)
		}

		n.PrevStatus, n.Status = "", row.Status
		if want := row.Status == Unallocated; n.Fresh() != want {
			t.Errorf("%s: fresh %t, want %t", row.Status, !want, want)
		}
	}

	for _, n := range []Node{
		{Status: Unallocated, LastError: "failed"}, {Status: Unallocated, Residue: []string{"service-worker"}},
	} {
		if n.Fresh() {
			t.Errorf("%+v is fresh", n)
		}
	}
}

// TestDiscoveredStatus: the site decides what a host becomes whose agent speaks for the first time.
func TestDiscoveredStatus(t *testing.T) {
	t.Parallel()

	for _, want := range []Status{Unallocated, Manageable} {
		o := observation(ObserverGossip, true)
		o.Becomes = want

		if n, entry := NewNode(o, nil, noon); n.Status != want || entry.To != want {
			t.Errorf("a new node is %s with the entry %+v, want %s", n.Status, entry, want)
		}

		if n, _ := NewNode(o, &Tombstone{Time: noon}, noon); n.Status != Quarantined {
			t.Errorf("a forgotten node is %s", n.Status)
		}

		registered, _ := Enroll("r1", "10.0.0.1", nil, Trigger{Time: noon})
		if m, entry, _ := registered.Observe(o, noon); m.Status != want || entry.To != want || m.Label == "" {
			t.Errorf("a registered machine is %+v with the entry %+v, want %s", m, entry, want)
		}

		// Credentials that were checked decide.
		registered.Status = Manageable
		if m, _, _ := registered.Observe(o, noon); m.Status != Manageable {
			t.Errorf("a machine with verified credentials is %s", m.Status)
		}

		// The agent spoke while the credentials were checked, and then the check failed.
		registered.Status = Verifying

		failed, _, _ := registered.Observe(o, noon)
		if failed.Status != Verifying {
			t.Errorf("a check is interrupted: the machine is %s", failed.Status)
		}

		failed.Status, failed.LastError = Enrolled, "the BMC refused the login"

		m, entry, changed := failed.Observe(o, noon)
		if m.Status != want || !changed || entry == nil || entry.From != Enrolled || entry.To != want ||
			m.LastError == "" {
			t.Errorf("after a failed check: %+v with the entry %+v, want %s", m, entry, want)
		}

		if _, entry, changed := m.Observe(o, noon); changed || entry != nil {
			t.Errorf("the same report again changes %+v", entry)
		}
	}
}
