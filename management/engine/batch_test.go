// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	. "github.com/contiv/cluster/management/engine"
	"github.com/contiv/cluster/management/explain"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
)

// inService commissions the labels as masters, one job.
func (b *bench) inService(masters, workers string) {
	b.t.Helper()
	b.see(strings.TrimSpace(masters + " " + workers))
	b.do(commission, masters, master, "Complete")

	if workers != "" {
		b.do(commission, workers, worker, "Complete")
	}
}

// askInBatches submits a job in batches of one node.
func (b *bench) askInBatches(verb inventory.Verb, labels string, failures int) string {
	b.t.Helper()

	j, err := b.Submit(
		b.t.Context(),
		job.Request{
			Verb:       verb,
			Nodes:      names(labels),
			JobOptions: inventory.JobOptions{Serial: "1", MaxFailures: failures},
		},
	)
	b.must(err)

	return j.ID
}

// where runs the script if the run acts on the host, and succeeds otherwise.
func where(host string, script func(*scriptedRun)) func(*scriptedRun) {
	return func(r *scriptedRun) {
		if slices.Contains(r.acted(), host) {
			script(r)
		} else {
			succeeds(r)
		}
	}
}

// touched returns the nodes that runs of the playbook have acted on since the
// first n runs.
func (b *bench) touched(playbook string, n int) string {
	var hosts []string
	for _, spec := range b.books.started()[n:] {
		for _, h := range spec.Hosts {
			if spec.Playbook == playbook && h.Role == "target" {
				hosts = append(hosts, h.Name)
			}
		}
	}

	return strings.Join(hosts, " ")
}

// TestMastersOneByOne updates every master: the others are peers and helpers of
// each batch, and the rule of the groups holds for each batch.
func TestMastersOneByOne(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	b.inService("a b c", "d")

	_, err := b.Submit(t.Context(), job.Request{Verb: update, Nodes: names("a b c")})
	b.refused(err, inventory.KindRefused, "without a-1, b-1, c-1")

	before := len(b.books.started())
	b.end(b.askInBatches(update, "a b c", 0), "Complete")
	b.are("a Allocated service-master, b Allocated service-master, c Allocated service-master")

	for _, spec := range b.books.started()[before:] {
		roles := map[string][]string{}
		for _, h := range spec.Hosts {
			roles[string(h.Role)] = append(roles[string(h.Role)], h.Name)
		}

		if len(roles["target"]) != 1 || len(roles["helper"]) != 1 || len(roles["peer"]) != 1 {
			t.Errorf("%s ran with %v", spec.Playbook, roles)
		}
	}
}

// TestCleanedNodeIsOutOfService: after a reapply that failed the node does not count for the
// budget of its group and for requirements of others, until it is configured.
func TestCleanedNodeIsOutOfService(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	b.inService("m n", "a b")
	b.set(func(s *Settings) {
		s.Groups = inventory.Groups{
			{Name: master},
			{
				Name: worker, Requires: inventory.Requirements{master: 2},
				Budget: inventory.Budget{MinAvailable: 1},
			},
		}
	})

	b.books.on(job.PlaybookSite, failsOn("a-1"))
	b.do(reapply, "a", "", "Errored failed")
	b.books.on(job.PlaybookSite, succeeds)

	ask := func(verb inventory.Verb, label string) error {
		_, err := b.Submit(t.Context(), job.Request{Verb: verb, Nodes: names(label)})
		return err
	}
	b.refused(ask(apply, "b"), inventory.KindRefused, "must keep 1 node available",
		"unavailable already: a-1 (cleaned, and not configured since)")

	e, err := b.Explain(t.Context(), b.View(), "a-1")
	b.must(err)

	says := slices.ContainsFunc(e.Findings, func(f explain.Finding) bool {
		return strings.Contains(f.Message, "it does not serve: its configuration was removed")
	})
	if e.Ready || !says {
		t.Errorf("%+v", e)
	}

	// A node that does not serve may always be repaired.
	b.do(apply, "a", "", "Complete")
	b.must(ask(apply, "b"))

	if e, err := b.Explain(t.Context(), b.View(), "a-1"); err != nil || !e.Ready {
		t.Errorf("%+v, %v", e, err)
	}
}

// TestBatchAfterAFailure leaves the batches after a failure as they were.
func TestBatchAfterAFailure(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	b.inService("m", "a b c")
	applied := b.node("c-1").Applied
	before := len(b.books.started())

	b.books.on(job.PlaybookSite, where("b-1", failsOn("b-1")))
	j := b.end(b.askInBatches(update, "a b c", 0), "Errored failed")
	b.are("a Allocated service-worker, b Unallocated, c Allocated service-worker")

	if got := b.touched(job.PlaybookCleanup, before); got != "a-1 b-1 b-1" {
		t.Errorf("cleaned %q", got)
	}

	const notBegun = "not begun, because 1 node failed and max_failures is 0: c-1"
	if got := b.node("c-1"); got.Applied != applied || !strings.HasSuffix(j.Message, notBegun) {
		t.Errorf("%+v, %s", got, j.Message)
	}

	if text := b.log(j.ID, job.StreamText); !strings.Contains(text, "configure (site.yml), batch 2 of 3") {
		t.Errorf("the log is %s", text)
	}

	// The rule of the groups holds when a batch begins, not only at acceptance.
	b.books.on(job.PlaybookSite, succeeds)
	b.do(commission, "b", worker, "Complete")

	if got := b.books.started(); got[len(got)-1].Playbook != job.PlaybookSite {
		t.Errorf("the last run is %+v", got[len(got)-1])
	}
}

// TestRuleOfABatch ends a job whose next batch has become illegal.
func TestRuleOfABatch(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	b.inService("a b", "d")

	g := newGate()
	b.books.on(job.PlaybookSite, g.script)

	id := b.askInBatches(update, "a b", 0)
	b.begun(g)
	b.lose("a")
	g.open <- succeeds

	j := b.end(id, "Errored precondition")
	b.are("a Allocated service-master, b Allocated service-master")

	if !strings.Contains(j.Message, "without b-1") || !strings.Contains(j.Message, "not begun: b-1") {
		t.Errorf("%s", j.Message)
	}

	e := b.explainer.Job(b.View(), j, explain.Reader{})
	if len(e.Findings) == 0 || strings.Contains(e.Findings[0].Message, "it touched nothing") {
		t.Errorf("%+v", e.Findings)
	}
}

// TestCancelledBatch cancels the second of three batches: the third stays as it was.
func TestCancelledBatch(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	b.inService("m", "a b c")
	before := len(b.books.started())

	g := newGate()
	b.books.on(job.PlaybookSite, where("b-1", g.script))

	id := b.askInBatches(apply, "a b c", 9)
	b.begun(g)
	_, err := b.Cancel(t.Context(), id, "ben", nil, nil)
	b.must(err)
	j := b.end(id, "Cancelled cancelled")
	b.are("a Allocated service-worker, b Allocated service-worker, c Allocated service-worker")

	if b.node("a-1").Applied != id || b.node("b-1").Applied != "" || b.node("c-1").Applied == "" ||
		b.touched(job.PlaybookSite, before) != "a-1 b-1" || j.Message != "cancelled by ben; not begun: c-1" {
		t.Errorf("%s, touched %q", j.Message, b.touched(job.PlaybookSite, before))
	}
}

// TestRestartBetweenBatches takes the manager away at every write of a job in
// batches: it goes on with the next batch, and no batch runs twice.
func TestRestartBetweenBatches(t *testing.T) {
	t.Parallel()

	for _, phase := range []string{"apply:", "apply:done", "apply:done apply:", "apply:done apply:done"} {
		t.Run(phase, func(t *testing.T) {
			t.Parallel()

			holding := make(chan struct{}, 1)
			release := make(chan struct{})
			b := newBench(t, func(b *bench) {
				b.wrap = func(s keeper) keeper {
					return &heldStore{keeper: s, at: phase, holding: holding, release: release}
				}
			})
			b.inService("m", "a b c")
			before := len(b.books.started())

			id := b.askInBatches(apply, "a b c", 0)

			select {
			case <-holding:
			case <-b.within(patience).Done():
				t.Fatal("the write does not come")
			}

			b.wrap = nil
			close(release)
			b.restart()

			j := b.end(id, "Complete")

			got := b.touched(job.PlaybookSite, before)
			if got != "a-1 b-1 c-1" || phases(j) != "apply:done apply:done apply:done" {
				t.Errorf("touched %q: %s", got, phases(j))
			}
		})
	}
}

// heldStore refuses every write of a job once its runs are at the given phases:
// the manager is gone then.
type heldStore struct {
	keeper
	at      string
	holding chan struct{}
	release chan struct{}
	held    bool
}

func (s *heldStore) Commit(ctx context.Context, tx *record.Tx) (int64, error) {
	j := runningIn(tx)
	if j != nil && s.held {
		return 0, errGone
	}

	revision, err := s.keeper.Commit(ctx, tx)
	if err == nil && j != nil && phases(*j) == s.at {
		s.held = true
		s.holding <- struct{}{}
		<-s.release
	}

	return revision, err
}

var errGone = inventory.Errorf(inventory.KindInternal, "the manager is gone")

func (b *bench) node(name string) inventory.Node {
	b.t.Helper()
	n, err := b.View().Node(name)
	b.must(err)
	return n
}
