// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// answerLoser is a store whose answers get lost: every write is carried out,
// and every first answer of its kind says that the store does not answer.
type answerLoser struct {
	keeper
	mu       sync.Mutex
	lost     map[string]int
	finished map[string]int // by job
}

func (s *answerLoser) lose(what string) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.lost[what]++; s.lost[what]%2 == 0 {
		return nil
	}
	return inventory.Errorf(inventory.KindUnavailable, "the answer to %s was lost", what)
}

func (s *answerLoser) Claim(ctx context.Context, c state.Claim) (job.Job, error) {
	out, err := s.keeper.Claim(ctx, c)
	if err == nil {
		err = s.lose("claim")
	}
	return out, err
}

func (s *answerLoser) Commit(ctx context.Context, tx *record.Tx) (int64, error) {
	revision, err := s.keeper.Commit(ctx, tx)
	if err == nil && runningIn(tx) != nil {
		err = s.lose("put")
	}
	return revision, err
}

func (s *answerLoser) Finish(ctx context.Context, j job.Job, w []state.NodeWrite) (job.Job, error) {
	out, err := s.keeper.Finish(ctx, j, w)
	if err == nil {
		s.mu.Lock()
		s.finished[j.ID]++
		s.mu.Unlock()
		err = s.lose("finish")
	}

	return out, err
}

func (s *answerLoser) AppendLog(ctx context.Context, id string, stream job.Stream, offset int64, data []byte) error {
	err := s.keeper.AppendLog(ctx, id, stream, offset, data)
	if err == nil {
		err = s.lose("append")
	}
	return err
}

// TestLostAnswers: a job is taken to its end, once, although nobody can be sure
// that what was written is written.
func TestLostAnswers(t *testing.T) {
	t.Parallel()

	loser := &answerLoser{lost: map[string]int{}, finished: map[string]int{}}
	b := newBench(t, func(b *bench) {
		b.wrap = func(s keeper) keeper {
			loser.keeper = s
			return loser
		}
	})
	b.see("a b c")
	b.do(commission, "a", master, "Complete")
	b.books.on(job.PlaybookSite, failsOn("b-1"))
	b.books.on(job.PlaybookCleanup, failsOn("b-1"))
	b.do(commission, "b c", worker, "Errored failed")
	b.are("a Allocated service-master, b Quarantined service-worker, c Unallocated")
	b.do(decommission, "b", "", "Complete")
	b.books.on(job.PlaybookSite, succeeds)
	b.books.on(job.PlaybookCleanup, succeeds)

	j := b.do(commission, "b", worker, "Complete")
	if phases(j) != "residue:done configure:done" {
		t.Errorf("%s", phases(j))
	}

	for _, j := range b.View().Jobs() {
		text := b.log(j.ID, job.StreamText)
		for _, r := range j.Runs {
			if strings.Count(text, r.Playbook+" ran on ") > len(j.Runs) {
				t.Errorf("job %s: output is kept twice: %q", j.ID, text)
			}
		}
	}

	// The end of a job ends its ownership, so a second one would conflict for ever.
	loser.mu.Lock()
	for id, times := range loser.finished {
		if times != 1 {
			t.Errorf("job %s was finished %d times", id, times)
		}
	}

	loser.mu.Unlock()

	h, err := b.History(t.Context(), "a-1", 0)
	if err != nil || len(h) != 3 {
		t.Errorf("%+v, %v", h, err)
	}

	b.restart()

	for _, n := range b.View().Nodes() {
		if n.Job != "" || n.Status.InProgress() {
			t.Errorf("%+v", n)
		}
	}
}

// lateClaimer is a store that answers the first claim before it has carried it out.
type lateClaimer struct {
	keeper
	mu    sync.Mutex
	first *state.Claim
	late  error // of the first claim, carried out before the second one
	begun bool
}

func (s *lateClaimer) Claim(ctx context.Context, c state.Claim) (job.Job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.first == nil {
		s.first = &c
		return job.Job{}, inventory.Errorf(inventory.KindUnavailable, "the store does not answer")
	}

	if !s.begun {
		s.begun = true
		_, s.late = s.keeper.Claim(ctx, *s.first)
	}

	return s.keeper.Claim(ctx, c)
}

// TestLateClaim: a claim without an answer cannot be made any more once another one is
// decided.
func TestLateClaim(t *testing.T) {
	t.Parallel()

	late := &lateClaimer{}
	b := newBench(t, func(b *bench) {
		b.wrap = func(s keeper) keeper {
			late.keeper = s
			return late
		}
	})
	b.see("a")
	b.do(commission, "a", master, "Complete")

	late.mu.Lock()
	defer late.mu.Unlock()

	if !late.begun || inventory.KindOf(late.late) != inventory.KindConflict {
		t.Errorf("the late claim: %v, %v", late.begun, late.late)
	}
}

// claimRefuser is a store that never lets a job of that node begin.
type claimRefuser struct {
	keeper
	node string
	why  error
}

func (s *claimRefuser) Claim(ctx context.Context, c state.Claim) (job.Job, error) {
	if slices.Contains(c.Job.Names(), s.node) {
		return job.Job{}, s.why
	}
	return s.keeper.Claim(ctx, c)
}

// TestClaimNeverSucceeds: a job that cannot be claimed ends, or waits alone; it
// does not stop those behind it.
func TestClaimNeverSucceeds(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		why  error
		ends string
	}{
		{inventory.Errorf(inventory.KindTooLarge, "the record is larger than the store takes"), "Errored precondition"},
		{errors.New("a fault"), ""},
	} {
		b := newBench(t, func(b *bench) {
			b.wrap = func(s keeper) keeper { return &claimRefuser{s, "b-1", c.why} }
		})
		b.see("a b c")
		b.do(commission, "a", master, "Complete")
		stuck := b.ask(commission, "b", worker)
		b.do(commission, "c", worker, "Complete")

		if c.ends != "" {
			if j := b.end(stuck.ID, c.ends); !strings.Contains(j.Message, c.why.Error()) {
				t.Errorf("%s", j.Message)
			}
		} else if j := b.job(stuck.ID); j.Status != job.Queued {
			t.Errorf("job %s is %s: %s", j.ID, j.Status, j.Message)
		}

		b.are("a Allocated service-master, b Unallocated, c Allocated service-worker")
	}
}

// TestOutage takes the store away in the middle of a job, by which the run is
// not disturbed, and gives it back.
func TestOutage(t *testing.T) {
	t.Parallel()

	dir, err := os.MkdirTemp("", "cm")
	if err != nil {
		t.Fatal(err)
	}
	pidfile := filepath.Join(dir, "pid")

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	server, err := etcd.StartServer(
		ctx,
		etcd.ServerOptions{Dir: filepath.Join(dir, "e"), Pause: 50 * time.Millisecond, Log: silent(),
			Command: []string{"/bin/sh", "-c", `echo $$ >"$0"; exec "$@"`, pidfile, os.Args[0], "etcd"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close(); os.RemoveAll(dir) })
	signal := func(sig string) {
		t.Helper()

		pid, err := os.ReadFile(pidfile)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("kill", "-"+sig, strings.TrimSpace(string(pid))).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	b := newBench(t, func(b *bench) { b.server = server })
	b.see("a")
	g := newGate()
	b.books.on(job.PlaybookSite, g.script)
	j := b.ask(commission, "a", master)

	run := b.begun(g)
	for range 2 {
		signal("KILL") // the supervisor starts it again

		for i := range 20 {
			run.says(job.StreamText, "line %d\n", i)
		}

		for b.store.Sync(ctx) != nil {
			if ctx.Err() != nil {
				t.Fatal("the store does not come back")
			}
		}
	}

	signal("STOP")
	run.says(job.StreamText, "in the dark\n")
	g.open <- succeeds

	if _, err := run.Wait(ctx); err != nil {
		t.Fatal(err)
	}

	if _, err := b.View().Node("a-1"); err != nil {
		t.Errorf("what is known is no longer served: %v", err)
	}

	signal("CONT")
	b.end(j.ID, "Complete")
	b.are("a Allocated service-master")

	text := b.log(j.ID, job.StreamText)
	if strings.Count(text, "line 19\n") != 2 || strings.Count(text, "line 7\n") != 2 ||
		strings.Count(text, "in the dark\n") != 1 {
		t.Errorf("%q", text)
	}
}

// TestDeadlineDoesNotCountOutages: a job whose time is over between two of its runs goes on if the store was away in
// that time, and says so; else it ends by its deadline.
func TestDeadlineDoesNotCountOutages(t *testing.T) {
	t.Parallel()

	for _, away := range []bool{false, true} {
		b := newBench(t)
		b.see("a")
		b.end(b.ask(commission, "a", master).ID, "Complete")

		g := newGate()
		b.books.on(job.PlaybookCleanup, g.script)
		j, err := b.Submit(t.Context(), job.Request{
			Verb: inventory.VerbUpdate, Nodes: names("a"), Group: master, Timeout: time.Second,
		})
		b.must(err)
		b.begun(g)
		b.books.on(job.PlaybookCleanup, succeeds) // that of the failure path

		j, err = b.View().Job(j.ID)
		b.must(err)

		if away {
			b.Outages().Note(true, j.Started)
			b.Outages().Note(false, j.Started.Add(time.Hour))
		}

		// The clock of the deadline is real, as that of the runner is.
		over, cancel := context.WithDeadline(t.Context(), j.Deadline.Add(time.Millisecond))
		<-over.Done()
		cancel()
		g.open <- succeeds

		if !away {
			if j = b.end(j.ID, "Errored deadline"); j.Outage != 0 {
				t.Errorf("%+v", j)
			}

			continue
		}

		j = b.end(j.ID, "Complete")
		if j.Outage <= time.Second || j.Outage > time.Hour || len(j.Runs) != 2 ||
			j.Deadline.Sub(j.Started) != j.Timeout+j.Outage {
			t.Errorf("%+v", j)
		}
	}
}

// TestTroublesOfAFailedRun: a run that fails records what troubled the manager, and one that succeeds records nothing.
func TestTroublesOfAFailedRun(t *testing.T) {
	t.Parallel()

	for _, fails := range []bool{true, false} {
		b := newBench(t)

		var troubles state.Troubles
		b.SetTroubles(&troubles)
		b.see("a")

		g := newGate()
		b.books.on(job.PlaybookSite, g.script)

		id := b.ask(commission, "a", master).ID
		b.begun(g)

		begun := time.Now()
		troubles.Probed(3*time.Second, begun)
		b.Outages().Note(true, begun)
		b.Outages().Note(false, begun.Add(12*time.Second))

		if !fails {
			g.open <- succeeds
			if j := b.end(id, "Complete"); j.Runs[0].Troubles != nil {
				t.Errorf("%q", j.Runs[0].Troubles)
			}

			continue
		}

		g.open <- failsOn("a")

		j := b.end(id, "Errored failed")
		if got := strings.Join(j.Runs[0].Troubles, "; "); !strings.Contains(got, "its store took 3s to answer") {
			t.Errorf("%q", got)
		}
	}
}
