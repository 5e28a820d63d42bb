// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	. "github.com/contiv/cluster/management/engine"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

// configure sets the digest of the configured folder.
func (p *scriptedPlaybooks) configure(digest string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pinned = digest
}

// cleanedWith returns the cleanups so far: the digest of each, and its targets.
func (b *bench) cleanedWith() string {
	var runs []string
	for _, spec := range b.books.started() {
		if spec.Playbook != job.PlaybookCleanup {
			continue
		}

		var targets []string
		for _, h := range spec.Hosts {
			if h.Role == "target" {
				targets = append(targets, h.Label)
			}
		}

		slices.Sort(targets)
		runs = append(runs, spec.PlaybookDigest+": "+strings.Join(targets, " "))
	}

	return strings.Join(runs, "; ")
}

// TestOwnPlaybooks: nodes are cleaned with the playbooks that configured them, which
// are kept as long as a node carries them.
func TestOwnPlaybooks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a b c d")
	b.do(commission, "a b", master, "Complete")
	b.books.configure("tree-2")
	b.do(commission, "c d", worker, "Complete")

	n, err := b.View().Node("a-1")
	b.must(err)

	if fmt.Sprint(n.Playbooks) != "map[service-master:tree-1]" {
		t.Errorf("a carries %v", n.Playbooks)
	}

	b.do(decommission, "b d", "", "Complete")

	if got, want := b.cleanedWith(), "tree-1: b; tree-2: d"; got != want {
		t.Errorf("cleaned with %s, want %s", got, want)
	}

	// No job of tree-1 is left, but a node.
	b.set(func(s *Settings) { s.Retention.Count = 1 })
	b.down()

	pruned := make(chan struct{})
	b.books.pruned = func() { close(pruned) }

	b.up()
	b.until("only the last job is kept", func(v *state.View) bool { return len(v.Jobs()) == 1 })

	select {
	case <-pruned:
	case <-b.within(patience).Done():
		t.Fatal("nothing was pruned")
	}

	b.books.mu.Lock()
	if kept := b.books.kept[1]; !slices.Equal(kept, []string{"tree-1", "tree-2"}) {
		t.Errorf("kept %v", kept)
	}

	b.books.mu.Unlock()

	b.do(commission, "b", master, "Complete")
	b.books.configure("tree-3")

	j, err := b.Submit(t.Context(), job.Request{
		Verb: decommission, Nodes: names("a"), JobOptions: inventory.JobOptions{Playbooks: inventory.PlaybooksCurrent},
	})
	b.must(err)
	b.end(j.ID, "Complete")

	if got := b.cleanedWith(); !strings.HasSuffix(got, "tree-3: a") {
		t.Errorf("cleaned with %s", got)
	}

	_, err = b.Submit(
		t.Context(),
		job.Request{Verb: decommission, Nodes: names("c"), JobOptions: inventory.JobOptions{Playbooks: "latest"}},
	)
	b.refused(err, inventory.KindInvalid, `playbooks is "latest"`, `use "current"`)

	_, err = b.Submit(
		t.Context(),
		job.Request{Verb: maintenance, Nodes: names("c"), JobOptions: inventory.JobOptions{Playbooks: "current"}},
	)
	b.refused(err, inventory.KindInvalid, "maintenance does not accept playbooks")
}

// TestOwnPlaybooksAreMissing: without its playbooks a node is not cleaned with
// others, unless the request says so.
func TestOwnPlaybooksAreMissing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a b")
	b.do(commission, "a", master, "Complete")
	b.do(commission, "b", worker, "Complete")
	b.books.configure("tree-2")

	b.books.mu.Lock()
	b.books.gone = []string{"tree-1"}
	b.books.mu.Unlock()

	_, err := b.Submit(t.Context(), job.Request{Verb: decommission, Nodes: names("b")})
	b.refused(err, inventory.KindRefused,
		"the playbooks that configured b-1 (digest tree-1) are missing or damaged on this host",
		"clean with the playbooks of today", "submit verb=decommission nodes=b-1 playbooks=current")
	b.are("a Allocated service-master, b Allocated service-worker")

	// The folder as it was restores them.
	b.books.configure("tree-1")

	j, g := b.held(job.PlaybookCleanup, decommission, "b", "")
	g.open <- succeeds
	b.end(j.ID, "Complete")
}

// TestOwnPlaybooksNeedNoFolder: a broken folder keeps no node from a cleanup with
// its own playbooks.
func TestOwnPlaybooksNeedNoFolder(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a b")
	b.do(commission, "a", master, "Complete")
	b.do(commission, "b", worker, "Complete")

	b.books.mu.Lock()
	b.books.pin = errors.New("no such folder")
	b.books.mu.Unlock()

	b.do(decommission, "b", "", "Complete")

	if got, want := b.cleanedWith(), "tree-1: b"; got != want {
		t.Errorf("cleaned with %s, want %s", got, want)
	}

	if _, err := b.Submit(t.Context(), job.Request{Verb: update, Nodes: names("a")}); err == nil {
		t.Error("an update was accepted without playbooks")
	}
}

// TestKeptPlaybooks: a store that does not answer is no proof that playbooks are gone, and broken
// playbooks of now are not what is looked for.
func TestKeptPlaybooks(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	b.books.lost = true
	down := inventory.Errorf(inventory.KindUnavailable, "etcd does not answer")

	for _, tt := range []struct {
		pin, want error
		kept      bool
	}{
		{nil, nil, true},
		{down, down, false},
		{inventory.Errorf(inventory.KindInvalid, "no such folder"), nil, false},
	} {
		b.books.pin = tt.pin

		kept, err := b.KeptPlaybooks(t.Context(), b.books.pinned)
		if kept != tt.kept || !errors.Is(err, tt.want) {
			t.Errorf("%v: %t, %v", tt.pin, kept, err)
		}
	}
}
