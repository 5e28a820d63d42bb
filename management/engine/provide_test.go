// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	. "github.com/contiv/cluster/management/engine"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/state"
)

// provide submits a job of the verb, and returns it at its end.
func (b *bench) provide(labels, erase, how string) job.Job {
	b.t.Helper()

	r := job.Request{Verb: inventory.VerbProvide}
	for label := range strings.FieldsSeq(labels) {
		r.Nodes = append(r.Nodes, label+"-1")
	}
	r.Erase = erase

	j, err := b.Submit(b.within(patience), r)
	b.must(err)

	return b.end(j.ID, how)
}

// runsOf returns the runs of the job as "playbook digest hosts".
func runsOf(j job.Job) string {
	var runs []string
	for _, r := range j.Runs {
		runs = append(runs, r.Playbook+" "+r.PlaybookDigest+" "+strings.Join(r.Hosts, ","))
	}

	return strings.Join(runs, "; ")
}

// TestProvide: residue goes with the playbooks that left it, then clean.yml runs. A node that fails keeps no other
// back.
func TestProvide(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	b.see("a b c")
	b.do(commission, "a", master, "Complete")
	b.books.configure("tree-2")

	b.books.on(job.PlaybookCleanup, failsOn("a-1"))
	b.do(decommission, "a", "", "Complete")
	b.books.on(job.PlaybookCleanup, succeeds)

	b.do(inventory.VerbManage, "a b c", "", "Complete")
	b.are("a Manageable, b Manageable, c Manageable")

	b.books.on(job.PlaybookClean, failsOn("b-1"))

	j := b.provide("a b c", "", "Errored failed")
	b.are("a Unallocated, b Quarantined, c Unallocated")

	want := "cleanup.yml tree-1 a-1; clean.yml tree-2 a-1,b-1,c-1"
	if got := runsOf(j); got != want {
		t.Errorf("runs %s\nwant %s", got, want)
	}
	if n := b.node("a-1"); len(n.Residue) > 0 || n.LastError != "" {
		t.Errorf("%+v", n)
	}
	if n := b.node("b-1"); !strings.HasPrefix(n.LastError, "not cleaned: ") {
		t.Errorf("last error %q", n.LastError)
	}
}

// TestClearAfterAFailedCleaning: the node stays fenced until clean.yml succeeds, also if clear fails in between, and no
// way around leads it into service.
func TestClearAfterAFailedCleaning(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	b.see("a")
	b.do(inventory.VerbManage, "a", "", "Complete")

	b.books.on(job.PlaybookClean, failsOn("a-1"))
	b.provide("a", "", "Errored failed")
	b.do(inventory.VerbClear, "a", "", "Errored failed")
	b.are("a Quarantined")

	b.do(decommission, "a", "", "Complete")
	_, err := b.Submit(b.within(patience), job.Request{Verb: commission, Group: master, Nodes: []string{"a-1"}})
	b.refused(err, inventory.KindRefused, "a cleaning failed on a-1")

	b.do(inventory.VerbManage, "a", "", "Complete")
	b.provide("a", "", "Errored failed")

	b.books.on(job.PlaybookClean, succeeds)
	j := b.do(inventory.VerbClear, "a", "", "Complete")
	b.are("a Unallocated")

	if n := b.node("a-1"); n.Uncleaned || runsOf(j) != "clean.yml tree-1 a-1" {
		t.Errorf("uncleaned %v after the runs %s", n.Uncleaned, runsOf(j))
	}
}

// TestProvideWithTheBundledPlaybook: a folder without clean.yml has that of the program. Disks are always erased with
// that of the program, which learns how.
func TestProvideWithTheBundledPlaybook(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	b.see("a")
	b.do(inventory.VerbManage, "a", "", "Complete")

	b.books.mu.Lock()
	b.books.outlines[[2]string{"tree-1", job.PlaybookClean}] = configuration.Outline{Missing: true}
	b.books.mu.Unlock()

	j := b.provide("a", inventory.EraseMetadata, "Complete")
	b.are("a Unallocated")

	if got, want := runsOf(j), "erase.yml bundled a-1; clean.yml bundled a-1"; got != want {
		t.Errorf("runs %s\nwant %s", got, want)
	}

	specs := b.books.started()
	for _, s := range specs[len(specs)-2:] {
		if h := s.Hosts[0]; s.PlaybookDigest != job.PlaybooksBundled || h.Extra["clusterm_erase"] != "metadata" ||
			h.Group != "" {
			t.Errorf("%+v", s)
		}
	}
}

// TestProvideNeedsManageable: no other node is cleaned, and no disk of a machine without an address is erased.
func TestProvideNeedsManageable(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	b.see("a")

	_, err := b.Submit(b.within(patience), job.Request{Verb: inventory.VerbProvide, Nodes: []string{"a-1"}})
	b.refused(err, inventory.KindRefused, "a-1 is Unallocated; provide takes nodes that are Manageable")

	r := job.Request{Verb: inventory.VerbProvide, Nodes: []string{"a-1"}}
	r.Erase = "everything"
	_, err = b.Submit(b.within(patience), r)
	b.refused(err, inventory.KindInvalid, `erase is "everything"`)
}

// TestProvideOfARegisteredMachine: a node whose agent has not told its label is reached as it was registered, and shows
// the host key that is recorded of it.
func TestProvideOfARegisteredMachine(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	b.see("a")

	registered := b.register(inventory.Manageable)

	j, err := b.Submit(b.within(patience), job.Request{Verb: inventory.VerbProvide, Nodes: []string{"r1"}})
	b.must(err)
	b.end(j.ID, "Complete")

	specs := b.books.started()
	h := specs[len(specs)-1].Hosts[0]

	if h.Name != "r1" || h.Addr != "10.0.0.77" || !slices.Equal(h.HostKeys, registered.HostKeys) ||
		h.Vars["rack"].Value != "r7" {
		t.Errorf("%+v", h)
	}

	if n, _ := b.View().Lookup("r1"); n.Status != inventory.Unallocated || n.Label != "" {
		t.Errorf("%+v", n)
	}
}

// register makes the node r1 of a registered machine, with a host key and a variable.
func (b *bench) register(status inventory.Status) inventory.Node {
	b.t.Helper()

	n := inventory.Node{
		Name: "r1", Addr: "10.0.0.77", Status: status, State: inventory.Unknown,
		HostKeys: []string{"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDIhz2GK/XCUj4i6Q5yQJNL1MDC4Qo5Gf9dTcQZ3d9vV"},
	}
	b.must(node.PutNodes(b.within(patience), b.store, []state.NodeWrite{{Node: n}}))
	b.until("it is known", func(v *state.View) bool { _, known := v.Lookup("r1"); return known })

	_, _, err := b.SetVars(b.within(patience), state.ScopeNode("r1"), configuration.Vars{"rack": "r7"}, "anna", nil)
	b.must(err)

	return n
}

// TestDiscoverOfARegisteredMachine: the host is reached as it was registered, and keeps its name.
func TestDiscoverOfARegisteredMachine(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	b.set(func(s *Settings) { s.Appear = 50 * time.Millisecond })
	registered := b.register(inventory.Unallocated)

	j, err := b.Submit(b.within(patience), job.Request{Verb: discover, Addrs: []string{registered.Addr}})
	b.must(err)
	b.end(j.ID, "Errored absent")

	h := b.books.started()[0].Hosts[0]
	if h.Name != registered.Addr || h.Label != "" || !slices.Equal(h.HostKeys, registered.HostKeys) ||
		h.Vars["rack"].Value != "r7" {
		t.Errorf("%+v", h)
	}
}
