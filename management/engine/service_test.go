// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/cluster"
	. "github.com/contiv/cluster/management/engine"
	store "github.com/contiv/cluster/management/etcd"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/window"
)

const (
	commission   = inventory.VerbCommission
	update       = inventory.VerbUpdate
	apply        = inventory.VerbApply
	reapply      = inventory.VerbReapply
	maintenance  = inventory.VerbMaintenance
	decommission = inventory.VerbDecommission
	clearing     = inventory.VerbClear
	forget       = inventory.VerbForget
	discover     = inventory.VerbDiscover

	master = inventory.GroupMaster
	worker = inventory.GroupWorker
)

// TestLife takes a node through its whole life.
func TestLife(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a b")
	j := b.do(commission, "a b", master, "Complete")
	b.are("a Allocated service-master, b Allocated service-master")

	if phases(j) != "configure:done" || j.Started.IsZero() || j.Ended.Before(j.Started) || j.Instance != "bench-1" ||
		j.PlaybookDigest != "tree-1" {
		t.Errorf("%+v", j)
	}

	text := b.log(j.ID, job.StreamText)
	if !strings.Contains(
		text,
		"# job 1, commission of a-1, b-1: configure (site.yml)\nsite.yml ran on a-1, b-1\n# job 1 ended Complete\n",
	) ||
		b.log(j.ID, job.StreamEvents) != "{\"event\":\"stats\"}\n" ||
		j.LogBytes != int64(len(text)+len("{\"event\":\"stats\"}\n")) {
		t.Errorf("%d bytes of log: %q", j.LogBytes, text)
	}

	b.do(maintenance, "a", "", "Complete")
	b.do(update, "b", worker, "Complete")
	b.are("a Allocated service-master, b Allocated service-worker")
	b.do(decommission, "a b", "", "Complete")
	b.are("a Decommissioned, b Decommissioned")
	b.do(commission, "a", "", "Complete")
	b.are("a Allocated service-master")

	h, err := b.History(t.Context(), "a-1", 0)
	b.must(err)

	var moves []string
	for i, e := range h {
		moves = append(moves, string(e.To))
		if e.Seq != uint64(i+1) || i > 0 && e.Read == 0 {
			t.Errorf("%+v", e)
		}
	}

	if got := strings.Join(
		moves,
		" ",
	); got != "Unallocated Provisioning Allocated Maintenance Allocated Decommissioning Decommissioned Provisioning "+
		"Allocated" {
		t.Errorf("%s", got)
	}

	if n, _ := b.View().Node("a-1"); n.Applied != "5" || n.PrevStatus != inventory.Provisioning {
		t.Errorf("%+v", n)
	}
}

// TestFailedBatch: when commission fails on any node all are cleaned, and the
// same request succeeds once the cause is corrected.
func TestFailedBatch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a b c")
	b.books.on(job.PlaybookSite, failsOn("b-1"))

	j := b.do(commission, "a b c", master, "Errored failed")
	if phases(j) != "configure:failed undo:done" || !strings.Contains(j.Message, `b-1: task "Install": no space left`) {
		t.Errorf("%s: %s", phases(j), j.Message)
	}

	b.are("a Unallocated, b Unallocated, c Unallocated")

	if n, _ := b.View().Node("b-1"); n.LastError != `task "Install": no space left` {
		t.Errorf("%+v", n)
	}

	if last, _ := b.View().Job("last"); last.ID != j.ID {
		t.Errorf("the last job is %s", last.ID)
	}

	b.books.on(job.PlaybookSite, succeeds)
	b.do(commission, "a b c", master, "Complete")
	b.are("a Allocated service-master, b Allocated service-master, c Allocated service-master")

	if n, _ := b.View().Node("b-1"); n.LastError != "" {
		t.Errorf("%+v", n)
	}
}

func TestFailedOnly(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a b")
	b.books.on(job.PlaybookSite, failsOn("b-1"))
	j, err := b.Submit(
		t.Context(),
		job.Request{
			Verb:       commission,
			Nodes:      names("a b"),
			Group:      master,
			JobOptions: inventory.JobOptions{OnFailure: inventory.OnFailureFailed},
		},
	)
	b.must(err)
	b.end(j.ID, "Errored failed")
	b.are("a Allocated service-master, b Unallocated")

	if specs := b.books.started(); len(specs[1].Hosts) != 1 || specs[1].Hosts[0].Name != "b-1" {
		t.Errorf("%+v", specs[1].Hosts)
	}
}

// TestQuarantine: where the cleanup fails as well, the node is fenced until it
// is cleared.
func TestQuarantine(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a b")
	b.books.on(job.PlaybookSite, failsOn("a-1"))
	b.books.on(job.PlaybookCleanup, failsOn("a-1"))
	b.do(commission, "a b", master, "Errored failed")
	b.are("a Quarantined service-master, b Unallocated")
	_, err := b.Submit(t.Context(), job.Request{Verb: commission, Nodes: names("a"), Group: master})
	b.refused(err, inventory.KindRefused, "a-1 is Quarantined", "legal now: decommission, clear, forget")
	b.do(clearing, "a", "", "Errored failed")
	b.are("a Quarantined service-master")
	b.books.on(job.PlaybookCleanup, succeeds)
	b.do(clearing, "a", "", "Complete")
	b.are("a Unallocated")
}

// TestUnreached: a host that ssh never reached is as it was, so that the same request may be
// repeated once the cause is mended.
func TestUnreached(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a b")
	b.books.on(job.PlaybookSite, func(r *scriptedRun) {
		r.ends(RunExit{Code: 4}, map[string]job.HostResult{
			"a-1": {Begun: true, Done: true, OK: 3, Changed: 2},
			"b-1": {
				Begun: true, Unreachable: true,
				Message: "no ssh connection to 10.0.0.2, port 22: no route to host",
			},
		})
	})
	b.books.on(job.PlaybookCleanup, func(r *scriptedRun) {
		if len(r.spec.Hosts) != 1 || r.spec.Hosts[0].Name != "a-1" {
			t.Errorf("the cleanup is of %v", r.spec.Hosts)
		}

		succeeds(r)
	})

	if j := b.do(commission, "a b", master, "Errored failed"); !strings.Contains(j.Message, "no route to host") {
		t.Errorf("the message is %q", j.Message)
	}

	b.are("a Unallocated, b Unallocated")

	b.books.on(job.PlaybookSite, succeeds)
	b.do(commission, "a b", master, "Complete")
	b.are("a Allocated service-master, b Allocated service-master")
}

// TestForcedClear: a cleanup that was skipped is made up for by the next commission.
func TestForcedClear(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a")
	b.books.on(job.PlaybookSite, failsOn("a-1"))
	b.books.on(job.PlaybookCleanup, failsOn("a-1"))
	b.do(commission, "a", master, "Errored failed")
	// It needs neither Ansible nor the folder.
	b.books.parse = errors.New("not to be asked")
	b.books.check = errors.New("not to be asked")
	j, err := b.Submit(
		t.Context(),
		job.Request{
			Verb:  clearing,
			Nodes: names("a"),
			JobOptions: inventory.JobOptions{
				Force:         true,
				SharedOptions: inventory.SharedOptions{Reason: "re-installed by hand"},
			},
		},
	)
	b.must(err)

	b.books.parse, b.books.check = nil, nil
	if j = b.end(j.ID, "Complete"); len(j.Runs) != 0 || j.PlaybookDigest != "" {
		t.Errorf("%+v with %q", j.Runs, j.PlaybookDigest)
	}

	n, _ := b.View().Node("a-1")
	if n.Status != inventory.Unallocated || !slices.Equal(n.Residue, []string{master}) {
		t.Errorf("%+v", n)
	}

	b.books.on(job.PlaybookSite, succeeds)
	b.books.on(job.PlaybookCleanup, succeeds)

	if j = b.do(commission, "a", master, "Complete"); phases(j) != "residue:done configure:done" {
		t.Errorf("%s", phases(j))
	}

	if n, _ = b.View().Node("a-1"); len(n.Residue) != 0 {
		t.Errorf("%+v", n)
	}
}

// TestDeadHost: a host that is gone can be decommissioned, and what could not be
// cleaned is remembered.
func TestDeadHost(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a")
	b.do(commission, "a", master, "Complete")
	b.lose("a")
	b.books.on(job.PlaybookCleanup, func(r *scriptedRun) {
		r.ends(RunExit{Code: 4}, map[string]job.HostResult{"a-1": {Unreachable: true, Message: "no route to host"}})
	})
	j := b.do(decommission, "a", "", "Complete")

	n, _ := b.View().Node("a-1")
	if n.Status != inventory.Decommissioned || !slices.Equal(n.Residue, []string{master}) ||
		!strings.Contains(n.LastError, "no route to host") ||
		!strings.Contains(j.Message, "not everything could be cleaned") {
		t.Errorf("%+v, %s", n, j.Message)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	t.Run("once", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		b.see("a")
		g := newGate()
		b.books.on(job.PlaybookSite, g.script)
		j := b.ask(commission, "a", master)
		run := b.begun(g)

		got, err := b.Cancel(t.Context(), "active", "berta", nil, nil)
		if err != nil || got.ID != j.ID || got.Cancel != 1 {
			t.Fatalf("%+v, %v", got, err)
		}

		j = b.end(j.ID, "Cancelled cancelled")
		if phases(j) != "configure:cancelled undo:done" || j.Message != "cancelled by berta" || run.cancels != 1 {
			t.Errorf("%s, %s, %d", phases(j), j.Message, run.cancels)
		}

		b.are("a Unallocated")
		_, err = b.Cancel(t.Context(), j.ID, "berta", nil, nil)
		b.refused(err, inventory.KindRefused, "job 1 has ended: Cancelled")
		_, err = b.Cancel(t.Context(), "9", "berta", nil, nil)
		b.refused(err, inventory.KindNotFound, `no job "9"`)
		_, err = b.Cancel(t.Context(), "active", "berta", nil, nil)
		b.refused(err, inventory.KindNotFound, "no job is running")
	})
	t.Run("again, which skips the cleanup", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		b.see("a")
		site, cleanup := newGate(), newGate()
		b.books.on(job.PlaybookSite, site.script)
		b.books.on(job.PlaybookCleanup, cleanup.script)
		j := b.ask(commission, "a", master)
		b.begun(site)
		_, err := b.Cancel(t.Context(), j.ID, "berta", nil, nil)
		b.must(err)
		run := b.begun(cleanup)
		run.mu.Lock()
		if run.cancels != 0 {
			t.Error("the first cancel ends the cleanup")
		}

		run.mu.Unlock()
		_, err = b.Cancel(t.Context(), j.ID, "carla", nil, nil)
		b.must(err)

		j = b.end(j.ID, "Cancelled cancelled")
		if phases(j) != "configure:cancelled undo:cancelled" || j.CancelBy != "berta" {
			t.Errorf("%s, %s", phases(j), j.CancelBy)
		}

		b.are("a Quarantined service-master")
	})
	t.Run("while it is queued", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		b.see("a")
		first, g := b.held(job.PlaybookSite, commission, "a", master)
		second := b.ask(decommission, "a", "")

		got, err := b.Cancel(t.Context(), second.ID, "berta", nil, nil)
		if err != nil || got.Status != job.Cancelled || len(got.Runs) != 0 ||
			got.Message != "cancelled by berta while it was queued" {
			t.Errorf("%+v, %v", got, err)
		}

		g.open <- succeeds
		b.end(first.ID, "Complete")
		b.are("a Allocated service-master")
	})
}

// TestDeadline: a run that takes too long is ended by its runner; the cleanup
// has a deadline of its own.
func TestDeadline(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a")
	b.books.on(job.PlaybookSite, endsBy(job.CauseDeadline))
	j, err := b.Submit(t.Context(), job.Request{
		Verb: commission, Nodes: names("a"), Group: master, Timeout: time.Minute,
	})
	b.must(err)
	j = b.end(j.ID, "Errored deadline")
	b.are("a Unallocated")

	specs := b.books.started()
	if got := specs[0].Deadline.Sub(j.Started); got != time.Minute {
		t.Errorf("the run has until %s after the start", got)
	}
	if got := specs[1].Deadline.Sub(j.Runs[1].Started); got < 59*time.Second || got > 2*time.Minute {
		t.Errorf("the cleanup has until %s after its start", got)
	}
}

// TestWhatHostsSayIsText: the line at the end of the output repeats it.
func TestWhatHostsSayIsText(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a")
	b.books.on(job.PlaybookSite, func(r *scriptedRun) {
		r.ends(RunExit{Code: -1, Cause: job.CauseInterrupted, Message: "two\nlines,\t\x1b[2J\u009b1m and an ö\r"}, nil)
	})

	j := b.do(commission, "a", master, "Errored interrupted")
	if text, want := b.log(
		j.ID,
		job.StreamText,
	), "# job 1 ended Errored: two lines, \uFFFD[2J\uFFFD1m and an ö \n"; !strings.HasSuffix(
		text,
		want,
	) {
		t.Errorf("%q does not end with %q", text, want)
	}
}

// TestRunnerDoesNotStart: only a run that is known to have never begun leaves its
// node without a cleanup.
func TestRunnerDoesNotStart(t *testing.T) {
	fault := errors.New("fork: out of memory")

	for _, tt := range []struct {
		name  string
		start error
		ends  string
		node  string
	}{
		{"a fault", &NotBegunError{Cause: job.CauseInternal, Err: fault}, "Errored internal", "a Unallocated"},
		{"killed", &NotBegunError{Cause: job.CauseInterrupted, Err: fault}, "Errored interrupted", "a Unallocated"},
		{"not known", fault, "Errored interrupted", "a Quarantined service-master"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.see("a")
			b.books.start = tt.start

			j := b.do(commission, "a", master, tt.ends)
			if !strings.Contains(j.Message, "fork: out of memory") {
				t.Errorf("%s", j.Message)
			}

			b.are(tt.node)
		})
	}
}

// TestEventsAreIncomplete: a node of a run whose last events are lost may have been
// touched, so it does not stay in service.
func TestEventsAreIncomplete(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a")
	b.do(commission, "a", master, "Complete")
	b.books.on(job.PlaybookCleanup, func(r *scriptedRun) {
		if strings.HasSuffix(r.spec.ID, "-0") {
			r.ends(RunExit{Code: -1, Cause: job.CauseInterrupted, Incomplete: true}, nil)
			return
		}

		succeeds(r)
	})

	b.do(update, "a", master, "Errored interrupted")
	b.are("a Unallocated")
}

// TestRestart stops the Service in every phase, and starts another one that
// finds the run going on, ended, or gone.
func TestRestart(t *testing.T) {
	const cleanup, site, upgrade = job.PlaybookCleanup, job.PlaybookSite, job.PlaybookUpgrade
	for _, tt := range []struct {
		name  string
		ready func(*bench) // takes node a to where the verb is legal
		verb  inventory.Verb
		at    string // the playbook in the middle of which it happens
		left  string // how it ends where the runner is gone
		node  string
		runs  string
	}{
		{"configure", nil, commission, site, "Errored interrupted", "a Unallocated", "configure:interrupted undo:done"},
		{
			"undo", func(b *bench) { b.books.on(site, failsOn("a-1")) }, commission, cleanup, "Errored failed",
			"a Quarantined service-master", "configure:failed undo:interrupted undo:interrupted",
		},
		{
			"upgrade", func(b *bench) { b.do(commission, "a", master, "Complete") }, maintenance, upgrade,
			"Errored interrupted", "a Allocated service-master", "upgrade:interrupted",
		},
		{
			"cleanup", func(b *bench) { b.do(commission, "a", master, "Complete") }, decommission, cleanup,
			"Errored interrupted", "a Decommissioned", "cleanup:interrupted",
		},
		{
			"first half of update", func(b *bench) { b.do(commission, "a", master, "Complete") }, update, cleanup,
			"Errored interrupted", "a Quarantined service-master",
			"cleanup:interrupted undo:interrupted undo:interrupted",
		},
		{
			"second half of update", func(b *bench) { b.do(commission, "a", master, "Complete") }, update, site,
			"Errored interrupted", "a Unallocated", "cleanup:done configure:interrupted undo:done",
		},
		{"residue", func(b *bench) {
			b.do(commission, "a", master, "Complete")
			b.books.on(cleanup, failsOn("a-1"))
			b.do(decommission, "a", "", "Complete")
		}, commission, cleanup, "Errored interrupted", "a Unallocated", "residue:interrupted"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			for _, how := range []string{"goes on", "has ended", "is gone", "was told to end"} {
				b := newBench(t, func(b *bench) { b.prefix += "/" + strings.ReplaceAll(how, " ", "-") })
				b.see("a")

				if tt.ready != nil {
					tt.ready(b)
				}

				g := newGate()
				b.books.on(tt.at, g.script)
				j := b.ask(tt.verb, "a", "")
				run := b.begun(g)
				b.down()

				switch how {
				case "has ended":
					g.open <- succeeds

					if _, err := run.Wait(b.within(patience)); err != nil {
						t.Fatal(err)
					}
				case "is gone":
					b.books.on(tt.at, endsBy(job.CauseInterrupted))
					g.open <- endsBy(job.CauseInterrupted)
				case "was told to end": // as a machine that shuts down tells everybody
					b.books.on(tt.at, endsBy(job.CauseCancelled))
					g.open <- endsBy(job.CauseCancelled)
				}

				b.up()

				if how == "goes on" {
					b.until("the job goes on", func(v *state.View) bool { return b.books.run(run.spec.ID) == run })

					if got := b.job(j.ID); got.Status != job.Running {
						t.Fatalf("%s: %+v", how, got)
					}

					g.open <- succeeds
				}

				b.until(
					"the job has ended",
					func(v *state.View) bool { j, err := v.Job(j.ID); return err == nil && j.Status.Ended() },
				)

				j = b.job(j.ID)
				if how == "is gone" || how == "was told to end" {
					if got := strings.TrimSpace(
						string(j.Status) + " " + string(j.Cause),
					); got != tt.left ||
						phases(j) != tt.runs {
						t.Errorf("%s: %s after %s", how, got, phases(j))
					}

					b.are(tt.node)
				} else if strings.Contains(phases(j), "interrupted") {
					t.Errorf("%s: %s after %s", how, j.Status, phases(j))
				}

				text := b.log(j.ID, job.StreamText)
				if strings.Count(text, tt.at+" begins\n") != 1 || !strings.Contains(text, "# job "+j.ID+" ended ") {
					t.Errorf("%s: the log is not whole: %q", how, text)
				}

				b.down()
				b.up() // once more, with nothing to do

				if again := b.job(j.ID); again.Revision != j.Revision {
					t.Errorf("an ended job was written again")
				}
			}
		})
	}
}

// TestFirstGenerationRestart: a restart lost groups, globals, jobs, logs and
// every node that serf did not report at that moment.
func TestFirstGenerationRestart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a b")
	b.do(commission, "a", master, "Complete")
	_, _, err := b.SetVars(t.Context(), state.ScopeGlobal, configuration.Vars{"env": "prod"}, "anna", nil)
	b.must(err)
	_, _, err = b.SetVars(t.Context(), state.ScopeGroup(master), configuration.Vars{"x": "y"}, "anna", nil)
	b.must(err)
	b.lose("b")
	before, log := b.View(), b.log("1", job.StreamText)
	b.restart()

	after := b.View()
	if !reflect.DeepEqual(records(after), records(before)) ||
		!reflect.DeepEqual(after.Jobs(), before.Jobs()) ||
		!reflect.DeepEqual(record.List(after, &state.Variables), record.List(before, &state.Variables)) ||
		b.log("1", job.StreamText) != log {
		t.Errorf("it was\n%+v\nand is\n%+v", before, after)
	}

	b.are("a Allocated service-master, b Unallocated")

	if n, _ := after.Node("b-1"); n.State != inventory.Disappeared {
		t.Errorf("%+v", n)
	}
}

// TestSideBySide: jobs on disjoint nodes run at the same time, up to the limit;
// those that overlap wait, and say for what.
func TestSideBySide(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.inService("d", "")
	b.see("a b c")
	g := newGate()
	b.books.on(job.PlaybookSite, g.script)
	one, two := b.ask(commission, "a", worker), b.ask(commission, "b", worker)
	b.begun(g)
	b.begun(g)

	if b.job(one.ID).Status != job.Running || b.job(two.ID).Status != job.Running {
		t.Fatal("they do not run side by side")
	}

	over := b.ask(decommission, "a", "")

	ids, why, _ := b.Waits(b.View(), b.job(over.ID))
	if !slices.Equal(ids, []string{one.ID}) || why != "a-1 needed by job "+one.ID {
		t.Errorf("it waits for %v: %s", ids, why)
	}

	b.set(func(s *Settings) { s.JobLimit = 2 })

	third := b.ask(commission, "c", worker)
	if ids, why, _ = b.Waits(b.View(), b.job(third.ID)); len(ids) != 2 || !strings.Contains(why, "limit") {
		t.Errorf("it waits for %v: %s", ids, why)
	}

	if ids, why, _ = b.Waits(b.View(), b.job(one.ID)); ids != nil || why != "" {
		t.Errorf("a running job waits for %v: %s", ids, why)
	}

	g.open <- succeeds
	g.open <- succeeds
	b.end(one.ID, "Complete")
	b.end(two.ID, "Complete")
	b.begun(g)
	g.open <- succeeds
	b.end(over.ID, "Complete")
	b.end(third.ID, "Complete")
	b.are("a Decommissioned, b Allocated service-worker, c Allocated service-worker, d Allocated service-master")
	// Queued jobs survive a restart.
	b.books.on(job.PlaybookUpgrade, g.script)
	first := b.ask(maintenance, "b", "")
	b.begun(g)
	second := b.ask(maintenance, "b", "")
	b.restart()
	g.open <- succeeds
	b.end(first.ID, "Complete")
	b.begun(g)
	g.open <- succeeds
	b.end(second.ID, "Complete")
}

// TestWindowOpens: a job waits for the window of its node, and begins when that opens. One
// that overrides the window, with a reason, goes first.
func TestWindowOpens(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a b")
	b.do(commission, "a", master, "Complete")

	windows := func(cron string, duration time.Duration, groups ...string) {
		c, err := window.New([]window.Spec{
			{Name: "rare", Cron: cron, Duration: duration, Groups: groups},
		}, inventory.DefaultGroups())
		b.must(err)
		b.set(func(s *Settings) { s.Windows = c })
	}

	// It opens half a year from now.
	windows(fmt.Sprintf("0 0 1 %d *", (time.Now().Month()+5)%12+1), time.Hour, master)

	held := b.ask(maintenance, "a", "")

	ids, why, until := b.Waits(b.View(), held)
	if until.Day() != 1 || until.Before(time.Now()) || time.Until(until) > 366*24*time.Hour {
		t.Errorf("it waits until %s", until)
	}
	if ids != nil || !strings.Contains(why, "a-1 is outside of the maintenance window rare, which opens on") {
		t.Errorf("it waits for %v: %s", ids, why)
	}

	// A node without a window does not wait, nor does an override.
	b.do(commission, "b", worker, "Complete")

	request := job.Request{
		Verb:       maintenance,
		Nodes:      names("a"),
		JobOptions: inventory.JobOptions{SharedOptions: inventory.SharedOptions{OverrideWindow: true}},
	}
	_, err := b.Submit(b.within(patience), request)
	b.refused(err, inventory.KindInvalid, "a reason is needed")

	request.Reason = "it burns"
	override, err := b.Submit(b.within(patience), request)
	b.must(err)
	b.end(override.ID, "Complete")

	if j := b.job(held.ID); j.Status != job.Queued {
		t.Errorf("the job that waits is %s", j.Status)
	}

	windows("* * * * *", time.Minute, master)
	b.end(held.ID, "Complete")
}

// TestPrecondition: a job that is no longer legal when its turn comes touches
// nothing, and names who changed the ground.
func TestPrecondition(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a b")
	first, g := b.held(job.PlaybookSite, commission, "a", master)
	second := b.ask(commission, "b", worker)

	ids, why, _ := b.Waits(b.View(), b.job(second.ID))
	if !slices.Equal(ids, []string{first.ID}) || !strings.Contains(why, "not legal before the end of job 1") {
		t.Errorf("it waits for %v: %s", ids, why)
	}

	g.open <- failsOn("a-1")
	b.end(first.ID, "Errored failed")

	j := b.end(second.ID, "Errored precondition")
	if !strings.Contains(j.Message, "since job 1, a commission of a-1, ended Errored") || len(j.Runs) != 0 ||
		!j.Started.IsZero() {
		t.Errorf("%+v", j)
	}

	b.are("a Unallocated, b Unallocated")

	if h, err := b.History(t.Context(), "b-1", 0); err != nil || len(h) != 1 {
		t.Errorf("%+v, %v", h, err)
	}

	if text := b.log(j.ID, job.StreamText); !strings.Contains(text, "# job 2 ended Errored: b-1 cannot join") {
		t.Errorf("%q", text)
	}
}

// TestHelperResults: the record has the results of a helper, and the message of
// the job its failure, which leaves the nodes of the job as they are.
func TestHelperResults(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a b")
	b.do(commission, "a b", master, "Complete")
	b.books.on(job.PlaybookCleanup, failsOn("a-1"))

	j := b.ask(decommission, "b", "")
	b.end(j.ID, "Complete")

	ended := b.job(j.ID)
	if r := ended.Runs[0].Results["a-1"]; r.Failed != 1 || r.Done || r.Task != "Install" {
		t.Errorf("the result of the helper is %+v", r)
	}
	if want := `cleanup.yml failed on a-1: task "Install": no space left`; ended.Message != want {
		t.Errorf("the message is %q, want %q", ended.Message, want)
	}

	if got := ended.Runs[0].Helped(); !slices.Equal(got, names("a")) {
		t.Errorf("helped: %v", got)
	}
}

// TestNoHelpers: without a play that acts on helpers, a job holds no node besides its own.
func TestNoHelpers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.books.unhelped = true
	b.see("a b c")
	b.do(commission, "a", master, "Complete")
	b.do(commission, "b", master, "Complete")

	g := newGate()
	b.books.on(job.PlaybookSite, g.script)
	j := b.ask(commission, "c", master)
	b.begun(g)

	if got := b.job(j.ID); len(got.Helpers) > 0 {
		t.Errorf("helpers %v", got.Helpers)
	}

	// A node of the same group is free meanwhile.
	b.do(maintenance, "a", "", "Complete")
	g.open <- succeeds
	b.end(j.ID, "Complete")
}

// TestHelpers: a surviving master does its part, and is held meanwhile.
func TestHelpers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a b c")
	b.do(commission, "a", master, "Complete")
	b.do(commission, "b", worker, "Complete")
	g := newGate()
	b.books.on(job.PlaybookSite, g.script)
	j := b.ask(commission, "c", master)

	run := b.begun(g)
	if got := b.job(j.ID); !slices.Equal(got.Helpers, names("a")) {
		t.Errorf("helpers %v", got.Helpers)
	}

	roles := map[string]string{}
	for _, h := range run.spec.Hosts {
		roles[h.Name] = string(h.Role) + " " + h.Group
	}

	if fmt.Sprint(roles) != "map[a-1:helper service-master c-1:target service-master]" {
		t.Errorf("%v", roles)
	}

	held := b.ask(maintenance, "a", "")
	if ids, why, _ := b.Waits(
		b.View(),
		b.job(held.ID),
	); !slices.Equal(ids, []string{j.ID}) ||
		why != "a-1 needed by job 3" {
		t.Errorf("%v: %s", ids, why)
	}

	_, err := b.Forget(t.Context(), names("a"), true, "", "anna", nil)
	b.refused(err, inventory.KindRefused, "a-1 helps job 3")
	g.open <- succeeds
	b.end(j.ID, "Complete")
	b.end(held.ID, "Complete")
	// A worker's job names the masters as peers, so that templates can refer to them.
	g = newGate()
	b.books.on(job.PlaybookUpgrade, g.script)
	j = b.ask(maintenance, "b", "")
	run = b.begun(g)
	clear(roles)

	for _, h := range run.spec.Hosts {
		roles[h.Name] = string(h.Role)
	}

	if fmt.Sprint(roles) != "map[a-1:peer b-1:target c-1:peer]" {
		t.Errorf("%v", roles)
	}

	g.open <- succeeds
	b.end(j.ID, "Complete")
}

// TestPinned: what is changed after a job was accepted does not change it.
func TestPinned(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(b *bench) {
		b.settings.Vars = configuration.Vars{"layer": "config", "from_config": "{{ template }}"}
		b.settings.Connection = configuration.Connection{User: "site", Port: 22}
		b.settings.Connections = map[string]configuration.Connection{master: {User: "masters"}}
	})
	b.see("a b")
	set := func(scope state.Scope, layer string) {
		t.Helper()
		_, _, err := b.SetVars(
			t.Context(),
			scope,
			configuration.Vars{"layer": layer, "from_" + layer: "x"},
			"anna",
			nil,
		)
		b.must(err)
	}
	set(state.ScopeGlobal, "global")
	set(state.ScopeGroup(master), "group")
	set(state.ScopeNode("a-1"), "node")
	_, err := b.PatchNode(t.Context(), "a-1", node.Patch{
		Connection: &configuration.Connection{Port: 2222},
	}, "anna", nil)
	b.must(err)
	g := newGate()
	b.books.on(job.PlaybookUpgrade, g.script)
	b.do(commission, "a b", master, "Complete")
	first := b.ask(maintenance, "a", "")
	b.begun(g)
	j, err := b.Submit(
		t.Context(),
		job.Request{
			Verb:  maintenance,
			Nodes: names("a b"),
			Extra: configuration.Vars{"layer": "request", "t": "{{ evil }}"},
		},
	)
	b.must(err)

	if len(j.Warnings) != 1 || !strings.Contains(j.Warnings[0], "looks like a template") {
		t.Errorf("%v", j.Warnings)
	}

	set(state.ScopeGlobal, "changed")
	set(state.ScopeGroup(master), "changed")
	set(state.ScopeNode("a-1"), "changed")
	b.books.mu.Lock()
	b.books.pinned = "tree-2"
	b.books.mu.Unlock()
	b.set(func(s *Settings) { s.Connection.User, s.Vars = "other", nil })
	g.open <- succeeds
	b.end(first.ID, "Complete")
	run := b.begun(g)
	g.open <- succeeds
	b.end(j.ID, "Complete")

	if run.spec.PlaybookDigest != "tree-1" || fmt.Sprint(run.spec.Extra["layer"]) != "request" {
		t.Errorf("%+v", run.spec)
	}

	vars := map[string]string{}
	for _, h := range run.spec.Hosts {
		for k, v := range h.Vars {
			vars[h.Name+" "+k] = fmt.Sprint(v.Value, " ", v.Origin, " ", v.Trusted)
		}

		vars[h.Name] = fmt.Sprintf("%s:%d", h.Connection.User, h.Connection.Port)
	}

	for k, want := range map[string]string{
		"a-1 layer": "node node false", "b-1 layer": "group group false",
		"a-1 from_config": "{{ template }} config true",
		"a-1 from_global": "x global false", "b-1 from_group": "x group false", "a-1": "masters:2222",
		"b-1": "masters:22", "b-1 from_node": "",
	} {
		if vars[k] != want {
			t.Errorf("%s is %q, want %q", k, vars[k], want)
		}
	}

	in, err := b.Inputs(t.Context(), j.ID)
	if err != nil || fmt.Sprint(in.Vars["a-1"]["layer"].Value) != "node" {
		t.Errorf("%+v, %v", in, err)
	}

	merged, err := b.MergedVars("a-1")
	if err != nil || fmt.Sprint(merged["layer"].Value) != "changed" {
		t.Errorf("%+v, %v", merged, err)
	}
}

// TestRefusedSubmit: nothing costly is done for what is wrong, and what comes
// from the playbooks refuses before anything is accepted.
func TestRefusedSubmit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a")
	ask := func(r job.Request) error { _, err := b.Submit(t.Context(), r); return err }
	good := job.Request{Verb: commission, Nodes: names("a"), Group: master}
	b.refused(ask(job.Request{Verb: commission, Nodes: names("a x y")}), inventory.KindNotFound, "x-1, y-1")

	for _, extra := range []configuration.Vars{
		{"ansible_connection": "local"}, {"a b": "c"}, {"deep": make(chan int)},
	} {
		r := good
		r.Extra = extra
		b.refused(ask(r), inventory.KindInvalid)
	}

	if len(b.books.parsed) != 0 {
		t.Errorf("checked %v for nothing", b.books.parsed)
	}

	missing := inventory.Errorf(inventory.KindUnavailable, "ansible-playbook is not installed")
	b.books.check = missing
	b.refused(ask(good), inventory.KindUnavailable, "not installed")
	b.books.check, b.books.pin = nil, inventory.Errorf(inventory.KindInvalid, "no such folder")
	b.refused(ask(good), inventory.KindInvalid, "no such folder")
	b.books.pin, b.books.parse = nil, inventory.Errorf(inventory.KindInvalid, "site.yml: line 3")
	b.refused(ask(good), inventory.KindInvalid, "line 3")
	b.books.parse = nil
	b.set(func(s *Settings) {
		s.AgentVars, s.NoAgents = nil, inventory.Errorf(inventory.KindRefused, "gossip: off")
	})
	b.refused(ask(job.Request{Verb: discover, Addrs: []string{"10.0.0.9"}}), inventory.KindRefused, "gossip: off")

	if v := b.View(); len(v.Jobs()) != 0 || v.Newest() != 0 {
		t.Errorf("%+v", v.Jobs())
	}

	b.must(ask(good))

	got := b.books.parsed[len(b.books.parsed)-1]
	if got != "tree-1:site.yml,cleanup.yml:service-master,service-worker:a-1" {
		t.Errorf("checked %s", got)
	}
}

// TestFirstGenerationLastJob: a refused request replaced the last job.
func TestFirstGenerationLastJob(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a")

	j := b.do(commission, "a", master, "Complete")
	for _, r := range []job.Request{
		{Verb: commission, Nodes: names("a")}, {Verb: decommission, Nodes: names("x")}, {Verb: decommission},
	} {
		if _, err := b.Submit(t.Context(), r); err == nil {
			t.Errorf("%+v is accepted", r)
		}
	}

	if last, err := b.View().Job("last"); err != nil || last.ID != j.ID || len(b.View().Jobs()) != 1 {
		t.Errorf("%+v, %v", last, err)
	}
}

// TestManyAtOnce: requests on the same nodes at once are each accepted or
// refused, and every accepted one ends.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a b c d")

	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			label := string(rune('a' + i%4))

			verb := commission
			if i >= 8 {
				verb = decommission
			}

			_, err := b.Submit(
				b.t.Context(),
				job.Request{Verb: verb, Nodes: names(label), Group: map[bool]string{true: master}[verb == commission]},
			)
			if err != nil && inventory.KindOf(err) != inventory.KindRefused {
				t.Error(err)
			}
		})
	}

	wg.Wait()
	b.until("all have ended", func(v *state.View) bool {
		return !slices.ContainsFunc(v.Jobs(), func(j *job.Job) bool { return !j.Status.Ended() })
	})

	for i, j := range b.View().Jobs() {
		if j.Seq() != uint64(i+1) || j.Status != job.Complete {
			t.Errorf("%+v", j)
		}
	}

	for _, n := range b.View().Nodes() {
		if n.Status.InProgress() || n.Job != "" {
			t.Errorf("%+v", n)
		}
	}
}

// TestHostKeyOfAnotherNode: a host that shows the key of another node at the first contact is
// refused with both names, and is not recorded with that key in any case.
func TestHostKeyOfAnotherNode(t *testing.T) {
	t.Parallel()

	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDIhz2GK/XCUj4i6Q5yQJNL1MDC4Qo5Gf9dTcQZ3d9vV"

	b := newBench(t)
	for _, label := range []string{"a", "b", "c"} {
		b.see(label)
	}

	shows := func(host string, end func(*scriptedRun)) func(*scriptedRun) {
		return func(r *scriptedRun) {
			r.mu.Lock()
			r.keys = map[string][]string{host: {key}}
			r.mu.Unlock()
			end(r)
		}
	}

	b.books.on(job.PlaybookSite, shows("a-1", succeeds))
	b.do(commission, "a", master, "Complete")

	b.books.on(job.PlaybookSite, func(r *scriptedRun) {
		r.ends(RunExit{Code: 4}, map[string]job.HostResult{"b-1": {Unreachable: true, Message: "Failed to connect to " +
			"the host via ssh: Host key ED25519 " + configuration.Fingerprint(key) +
			" revoked by file /d/taken_keys\r\n" +
			"Host key verification failed."}})
	})
	j := b.do(commission, "b", worker, "Errored failed")

	specs := b.books.started()
	if taken := specs[1].Hosts[0].Taken; len(taken) != 1 || taken[key] != "a-1" {
		t.Errorf("taken: %v", taken)
	}

	if text := fmt.Sprint(j.Runs[0].Results["b-1"].Message); !strings.Contains(text, "the ssh host key of b-1") ||
		!strings.Contains(text, "is that of node a-1") {
		t.Errorf("message: %s", text)
	}

	// Should a run end well nevertheless, the key stays with its node alone.
	b.books.on(job.PlaybookSite, shows("c-1", succeeds))
	b.do(commission, "c", worker, "Complete")

	if n, _ := b.View().Node("c-1"); len(n.HostKeys) > 0 {
		t.Errorf("recorded: %v", n.HostKeys)
	}
}

// TestHostKeys: a key is recorded at the first contact, and handed to every
// later run; a changed one is the playbook's error until it is forgotten.
func TestHostKeys(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a")
	key := "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFirst"
	with := func(key string) func(*scriptedRun) {
		return func(r *scriptedRun) {
			r.mu.Lock()
			r.keys = map[string][]string{"a-1": {key}, "10.0.0.77": {key}}
			r.mu.Unlock()
			succeeds(r)
		}
	}
	b.books.on(job.PlaybookSite, with(key))
	b.do(commission, "a", master, "Complete")
	b.books.on(job.PlaybookUpgrade, with("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOther"))
	b.do(maintenance, "a", "", "Complete")
	n, _ := b.View().Node("a-1")

	specs := b.books.started()
	if !slices.Equal(n.HostKeys, []string{key}) || len(specs[0].Hosts[0].HostKeys) != 0 ||
		!slices.Equal(specs[1].Hosts[0].HostKeys, []string{key}) {
		t.Errorf("%v, %+v", n.HostKeys, specs)
	}

	j, g := b.held(job.PlaybookUpgrade, maintenance, "a", "")
	_, err := b.PatchNode(t.Context(), "a-1", node.Patch{ForgetHostKey: true}, "anna", nil)
	b.refused(err, inventory.KindRefused, "held by job")
	g.open <- succeeds
	b.end(j.ID, "Complete")

	if n, err = b.PatchNode(
		t.Context(),
		"a-1",
		node.Patch{ForgetHostKey: true},
		"anna",
		nil,
	); err != nil ||
		n.HostKeys != nil {
		t.Errorf("%+v, %v", n, err)
	}
}

func TestPatchNode(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a")
	patch := func(name string, p node.Patch) error {
		_, err := b.PatchNode(t.Context(), name, p, "anna", nil)
		return err
	}
	b.refused(patch("a-1", node.Patch{}), inventory.KindInvalid, "nothing is to be changed")
	b.refused(patch("x-1", node.Patch{ForgetHostKey: true}), inventory.KindNotFound, "x-1")
	b.refused(patch("a-1", node.Patch{Connection: &configuration.Connection{Port: 70000}}), inventory.KindInvalid)
	b.must(patch("a-1", node.Patch{Connection: &configuration.Connection{User: "u"}}))

	if c := b.View().Connection("a-1"); c == nil || c.User != "u" {
		t.Errorf("%+v", c)
	}

	b.must(patch("a-1", node.Patch{Connection: &configuration.Connection{}}))

	if c := b.View().Connection("a-1"); c != nil {
		t.Errorf("%+v", c)
	}
}

// TestPreconditions: of changes that depend on the same reading, one is made.
func TestPreconditions(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a")
	ctx := t.Context()
	held := errors.New("")
	at := func(revision int64, now func(*state.View) int64) access.Precondition {
		return func(v *state.View) error {
			if now(v) != revision {
				return inventory.Errorf(inventory.KindPrecondition, "it is at %d, not at %d", now(v), revision)
			}
			return nil
		}
	}
	nodeAt := func(v *state.View) int64 { n, _ := v.Node("a-1"); return n.Revision }
	vars := func(v *state.View) int64 { return record.Revision(v, &state.Variables, string(state.ScopeGlobal)) }
	j := b.ask(commission, "a", master)
	b.end(j.ID, "Complete")
	job := func(v *state.View) int64 { j, _ := v.Job(j.ID); return j.Revision }

	one := "1"
	for what, change := range map[string]func(access.Precondition) error{
		"labels": func(c access.Precondition) error {
			_, err := b.PatchNode(ctx, "a-1", node.Patch{Labels: map[string]*string{"x": &one}}, "anna", c)
			return err
		},
		"set": func(c access.Precondition) error {
			_, _, err := b.SetVars(ctx, state.ScopeGlobal, configuration.Vars{"a": "b"}, "anna", c)
			return err
		},
		"patch": func(c access.Precondition) error {
			_, _, err := b.PatchVars(ctx, state.ScopeGlobal, configuration.Vars{"a": nil, "c": "d"}, "anna", c)
			return err
		},
	} {
		now := vars
		if what == "labels" {
			now = nodeAt
		}
		only := at(now(b.View()), now)
		var made, refused atomic.Int32

		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				switch err := change(only); inventory.KindOf(err) {
				case "":
					made.Add(1)
				case inventory.KindPrecondition:
					refused.Add(1)
				default:
					t.Errorf("%s: %v", what, err)
				}
			})
		}

		all.Wait()

		if made.Load() != 1 || refused.Load() != 4 {
			t.Errorf("%s: %d were made, %d refused", what, made.Load(), refused.Load())
		}

		b.must(change(at(now(b.View()), now)))
	}

	_, err := b.Cancel(ctx, j.ID, "anna", at(job(b.View())+1, job), nil)
	b.refused(err, inventory.KindPrecondition)
	_, err = b.Cancel(ctx, j.ID, "anna", at(job(b.View()), job), nil)
	b.refused(err, inventory.KindRefused, "has ended")

	_, err = b.Cancel(ctx, j.ID, "anna", func(*state.View) error { return held }, nil)
	if !errors.Is(err, held) {
		t.Errorf("%v", err)
	}
}

// TestLabels: they are the operator's. What happens to the node leaves them
// alone, a job that holds it included, and they go with its record.
func TestLabels(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a")
	rack, r1, r2, bad := "rack", "r1", "r2", "a b"
	patch := func(p node.Patch) error { _, err := b.PatchNode(t.Context(), "a-1", p, "anna", nil); return err }
	labels := func(want string) {
		t.Helper()

		n, err := b.View().Node("a-1")
		if err != nil || fmt.Sprint(n.Labels) != want {
			t.Errorf("%v, not %s (%v)", n.Labels, want, err)
		}
	}
	b.must(patch(node.Patch{Labels: map[string]*string{rack: &r1, "old": &r1}}))
	b.refused(
		patch(node.Patch{Labels: map[string]*string{rack: &bad}, Connection: &configuration.Connection{User: "u"}}),
		inventory.KindInvalid,
		"value of a label",
	)
	b.refused(patch(node.Patch{
		Labels: map[string]*string{"status": &r1},
	}), inventory.KindInvalid, "field of every node")

	if b.View().Connection("a-1") != nil {
		t.Error("a part of a refused patch was written")
	}

	labels("map[old:r1 rack:r1]")
	b.books.on(job.PlaybookSite, func(r *scriptedRun) {
		b.must(patch(node.Patch{Labels: map[string]*string{rack: &r2, "old": nil}}))
		labels("map[rack:r2]")
		succeeds(r)
	})
	b.do(commission, "a", master, "Complete")
	labels("map[rack:r2]")

	n, _ := b.View().Lookup("a-1")
	n.Hardware = &inventory.Hardware{MemoryMB: 65536}
	b.must(node.PutNodes(t.Context(), b.store, []state.NodeWrite{{Node: n}}))

	// A run has the labels and the hardware of its start.
	b.do(maintenance, "a", "", "Complete")

	for i, want := range []string{"map[old:r1 rack:r1]", "map[rack:r2]"} {
		if got := b.books.started()[i].Hosts[0].Labels; fmt.Sprint(got) != want {
			t.Errorf("run %d has the labels %v, want %s", i, got, want)
		}
	}

	if first, then := b.books.started()[0].Hosts[0].Hardware, b.books.started()[1].Hosts[0].Hardware; first != nil ||
		then == nil || then.MemoryMB != 65536 {
		t.Errorf("the runs have the hardware %+v and %+v", first, then)
	}

	h, err := b.History(t.Context(), "a-1", 0)
	if err != nil || len(h) != 5 {
		t.Errorf("labels are no transition: %v, %v", h, err)
	}

	_, err = b.Forget(t.Context(), []string{"a-1"}, true, "", "anna", nil)
	b.must(err)
	b.see("a")
	labels("map[]")
}

// TestFirstGenerationAddressChange: an address change reached the monitor but
// not Ansible. It reaches the very next run, of a queued job too.
func TestFirstGenerationAddressChange(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a")
	b.books.on(job.PlaybookSite, func(r *scriptedRun) {
		w := word("a", true)
		w.Addr = "fd00::77"
		b.must(b.Observe(b.t.Context(), "gossip", []inventory.Observation{w}))
		failsOn("a-1")(r)
	})
	b.do(commission, "a", master, "Errored failed")

	specs := b.books.started()
	if specs[0].Hosts[0].Addr != "10.0.0.1" || specs[1].Hosts[0].Addr != "fd00::77" {
		t.Errorf("%+v", specs)
	}
}

func TestVars(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a")

	ctx := t.Context()
	for _, scope := range []state.Scope{
		state.ScopeGlobal, state.ScopeGroup(worker), state.ScopeGroup(inventory.GroupPrepare), state.ScopeNode("a-1"),
	} {
		rev, warnings, err := b.SetVars(ctx, scope, configuration.Vars{"a": "1", "b": "{{ x }}"}, "anna", nil)
		if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "the value of b looks like a template") ||
			rev != b.View().Revision {
			t.Errorf("%s: %v, %v", scope, warnings, err)
		}

		_, warnings, err = b.PatchVars(
			ctx,
			scope,
			configuration.Vars{"b": nil, "c": map[string]any{"d": []any{"e"}}, "nope": nil},
			"anna",
			nil,
		)
		if err != nil || len(warnings) != 0 {
			t.Errorf("%s: %v, %v", scope, warnings, err)
		}

		vars, err := b.Vars(scope)
		if err != nil || fmt.Sprint(vars) != "map[a:1 c:map[d:[e]]]" {
			t.Errorf("%s: %v, %v", scope, vars, err)
		}

		_, _, err = b.PatchVars(ctx, scope, configuration.Vars{"ansible_user": "root"}, "anna", nil)
		b.refused(err, inventory.KindInvalid, "ansible_user")
		_, _, err = b.SetVars(ctx, scope, configuration.Vars{"not a name": "x"}, "anna", nil)
		b.refused(err, inventory.KindInvalid)

		if vars, _ = b.Vars(scope); len(vars) != 2 {
			t.Errorf("a refusal changed %v", vars)
		}

		_, _, err = b.SetVars(ctx, scope, nil, "anna", nil)
		b.must(err)

		if vars, err = b.Vars(scope); err != nil || len(vars) != 0 {
			t.Errorf("%s: %v, %v", scope, vars, err)
		}
	}

	for scope, kind := range map[state.Scope]inventory.Kind{
		"": inventory.KindInvalid, "site": inventory.KindInvalid, state.ScopeNode("x-1"): inventory.KindNotFound,
		state.ScopeGroup("nope"): inventory.KindNotFound,
	} {
		_, _, err := b.SetVars(ctx, scope, configuration.Vars{"a": "b"}, "anna", nil)
		b.refused(err, kind)
		_, err = b.Vars(scope)
		b.refused(err, kind)
	}

	_, err := b.MergedVars("x-1")
	b.refused(err, inventory.KindNotFound)
	_, err = b.History(ctx, "x-1", 0)
	b.refused(err, inventory.KindNotFound)
	// Patches at once lose nothing.
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if _, _, err := b.PatchVars(
				ctx,
				state.ScopeGlobal,
				configuration.Vars{fmt.Sprintf("k%d", i): "v"},
				"anna",
				nil,
			); err != nil {
				t.Error(err)
			}
		})
	}

	wg.Wait()

	if vars, _ := b.Vars(state.ScopeGlobal); len(vars) != 8 {
		t.Errorf("%v", vars)
	}
}

func TestForget(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a b c")
	b.do(commission, "a", master, "Complete")
	b.do(commission, "b", worker, "Complete")
	ctx := t.Context()
	lose := func(labels string, force bool) error {
		_, err := b.Forget(ctx, names(labels), force, "scrapped", "anna", nil)
		return err
	}
	b.refused(lose("x y c", true), inventory.KindNotFound, "x-1, y-1")
	b.refused(lose("", true), inventory.KindInvalid)
	b.refused(lose("c c", true), inventory.KindInvalid)
	b.refused(lose("b c", false), inventory.KindRefused,
		"b-1 is Allocated and still Discovered", "c-1 is still Discovered")
	b.lose("a")
	b.refused(lose("a", false), inventory.KindRefused, "without a-1", "b-1")
	b.lose("b")
	b.must(lose("a b", false))

	tomb := record.Get(b.View(), &state.Tombstones, "a-1")
	if v := b.View(); len(v.Nodes()) != 1 || tomb == nil || tomb.Reason != "scrapped" || tomb.Actor != "anna" {
		t.Errorf("%+v", v)
	}

	b.see("a")
	b.are("a Quarantined, c Unallocated")

	if n, _ := b.View().Node("a-1"); !strings.Contains(n.LastError, "forgotten") {
		t.Errorf("%+v", n)
	}

	b.do(clearing, "a", "", "Complete")
	b.are("a Unallocated")
}

// TestForgetWithAgent is a job; what it could not remove stays known.
func TestForgetWithAgent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a b c")
	b.books.on(job.PlaybookCleanup, failsOn("b-1"))

	j := b.do(forget, "a b", "", "Errored failed")
	if specs := b.books.started(); specs[0].Hosts[0].Group != inventory.GroupPrepare || phases(j) != "cleanup:failed" {
		t.Errorf("%s, %+v", phases(j), specs)
	}

	b.are("b Unallocated, c Unallocated")

	if _, err := b.View().Node("a-1"); err == nil || record.Get(b.View(), &state.Tombstones, "a-1") == nil {
		t.Error("a-1 is still known, or left no tombstone")
	}

	b.lose("a") // its agent says so on its way out

	if len(b.View().Nodes()) != 2 {
		t.Errorf("%+v", records(b.View()))
	}

	j, g := b.held(job.PlaybookCleanup, forget, "b", "")
	_, err := b.Submit(t.Context(), job.Request{Verb: commission, Nodes: names("b"), Group: master})
	b.refused(err, inventory.KindRefused, "b-1 is no longer known, or will be forgotten by then")
	g.open <- succeeds
	b.end(j.ID, "Complete")

	if len(b.View().Nodes()) != 1 {
		t.Errorf("%+v", records(b.View()))
	}
}

// TestRetention keeps the newest, and tells the runner what is still needed.
func TestRetention(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a")
	b.do(commission, "a", master, "Complete")

	for range 3 {
		b.do(maintenance, "a", "", "Complete")
	}

	b.books.mu.Lock()
	b.books.pinned = "tree-2" // the jobs that ended keep theirs: they can be retried
	b.books.mu.Unlock()
	j, g := b.held(job.PlaybookUpgrade, maintenance, "a", "")
	b.set(func(s *Settings) { s.Retention.Count = 2 })
	b.down()
	pruned, tell := context.WithCancel(context.Background())
	b.books.pruned = tell
	b.up() // it is looked after at the start
	b.until("old jobs are gone", func(v *state.View) bool { return len(v.Jobs()) == 3 })

	if v := b.View(); v.Jobs()[0].ID != "3" || v.Newest() != 5 {
		t.Errorf("%+v", v.Jobs())
	}

	_, err := b.Inputs(t.Context(), "1")
	b.refused(err, inventory.KindNotFound)
	_, err = b.View().Job("1")
	b.refused(err, inventory.KindNotFound, "job 1 is no longer kept", "[show-settings key=jobs]")
	_, err = b.Retry(t.Context(), "1", false, "anna", nil)
	b.refused(err, inventory.KindNotFound, "nor are its inputs")
	_, err = b.View().Job("6")
	b.refused(err, inventory.KindNotFound, `no job "6"`)

	select {
	case <-pruned.Done():
	case <-b.within(patience).Done():
		t.Fatal("no runner was told what is still needed")
	}

	g.open <- succeeds
	b.end(j.ID, "Complete")
	b.books.mu.Lock()
	defer b.books.mu.Unlock()

	if fmt.Sprint(b.books.kept) != "[[5-0] [tree-1 tree-2]]" {
		t.Errorf("kept %v", b.books.kept)
	}
}

// TestIncompleteSettings: while the settings are not those that the operator chose,
// no job is accepted, and none expires.
func TestIncompleteSettings(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a")
	b.do(commission, "a", master, "Complete")
	b.do(maintenance, "a", "", "Complete")
	b.set(func(s *Settings) {
		s.Retention.Count = 1
		s.Incomplete = inventory.Errorf(inventory.KindRefused, "jobs.keep does not fit").Do("config unset jobs.keep")
	})

	request := job.Request{Verb: maintenance, Nodes: names("a")}
	_, err := b.Submit(t.Context(), request)
	b.refused(err, inventory.KindRefused, "no job is accepted: jobs.keep does not fit", "config unset jobs.keep")
	b.must(b.Engine.Prune(t.Context()))

	if v := b.View(); len(v.Jobs()) != 2 {
		t.Errorf("%+v", v.Jobs())
	}

	b.set(func(s *Settings) { s.Incomplete = nil })
	b.must(b.Engine.Prune(t.Context()))

	if v := b.View(); len(v.Jobs()) != 1 {
		t.Errorf("%+v", v.Jobs())
	}

	b.do(maintenance, "a", "", "Complete")
}

// TestIncompleteSettingsHoldTheQueue: a job in the queue neither begins nor ends while the
// settings are not those that the operator chose, in which its group may not exist.
func TestIncompleteSettingsHoldTheQueue(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a b")

	g := newGate()
	b.books.on(job.PlaybookSite, g.script)
	first := b.ask(commission, "a", master)
	b.begun(g)
	second := b.ask(commission, "b", worker)

	groups := b.current().Groups

	b.set(func(s *Settings) {
		s.Groups = groups[:1]
		s.Incomplete = inventory.Errorf(inventory.KindRefused, "groups does not fit").Do("config unset groups")
	})
	b.books.on(job.PlaybookSite, succeeds)
	g.open <- succeeds
	b.end(first.ID, "Complete")

	ids, reason, _ := b.Waits(b.View(), b.job(second.ID))
	if len(ids) != 0 || reason != "no job begins: groups does not fit" {
		t.Errorf("it waits for %v: %s", ids, reason)
	}

	b.set(func(s *Settings) { s.Groups, s.Incomplete = groups, nil })
	b.end(second.ID, "Complete")
}

// TestRetentionWithUnreadableRecord expects that no file is removed while it may be in
// use by the subject of a record that cannot be read.
func TestRetentionWithUnreadableRecord(t *testing.T) {
	t.Parallel()

	for _, key := range []string{"v/nodes/x-1", "v/jobs/7", "v/tombstones/x-1"} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)

			_, err := b.client.Put(t.Context(), b.client.Prefix+"/"+key, "{nonsense")
			b.must(err)
			b.down()

			var pruned atomic.Bool

			b.books.pruned = func() { pruned.Store(true) }
			b.up()
			b.must(b.Prune(t.Context()))

			if pruned.Load() {
				t.Error("files were removed")
			}

			b.must(store.RemoveUnreadable(t.Context(), b.client, kinds, key))
			b.must(b.store.Sync(b.within(patience)))
			b.must(b.Prune(t.Context()))

			if !pruned.Load() {
				t.Error("nothing was removed without an unreadable record")
			}
		})
	}
}

// TestLog follows a job's log with readers that come early, late, slowly, in the
// middle, and not at all.
func TestLog(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a")
	g := newGate()
	b.books.on(job.PlaybookSite, g.script)
	j := b.ask(commission, "a", master)
	run := b.begun(g)

	// A follower that stalls after the first bytes.
	stalled, release := make(chan struct{}), make(chan struct{})
	var slow []byte
	var wg sync.WaitGroup
	wg.Go(func() {
		first := true

		err := b.Log(t.Context(), j.ID, job.StreamText, 0, true, func(_ int64, data []byte) error {
			if slow = append(slow, data...); first {
				first = false
				close(stalled)
				<-release
			}

			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-stalled
	var live string
	wg.Go(func() { live = b.log(j.ID, job.StreamText) })

	for i := range 500 {
		run.says(job.StreamText, "line %d\n", i)
	}

	g.open <- succeeds
	b.end(j.ID, "Complete") // while the follower stalls
	close(release)
	wg.Wait()

	later := b.log(j.ID, job.StreamText)
	if live != later || string(slow) != later || !strings.Contains(later, "line 0\n") ||
		!strings.Contains(later, "line 499\n") {
		t.Errorf("live %d bytes, slow %d, later %d", len(live), len(slow), len(later))
	}

	// From an offset, without waiting, and broken off.
	var rest []byte
	b.must(b.Log(t.Context(), "last", job.StreamText, 100, false, func(offset int64, data []byte) error {
		if offset != int64(100+len(rest)) {
			t.Errorf("offset %d", offset)
		}

		rest = append(rest, data...)
		return nil
	}))

	if string(rest) != later[100:] {
		t.Errorf("%q", rest)
	}

	if size, err := b.LogSize(t.Context(), j.ID, job.StreamText); err != nil || size != int64(len(later)) {
		t.Errorf("%d, %v", size, err)
	}

	enough := errors.New("enough")
	if err := b.Log(
		t.Context(),
		j.ID,
		job.StreamText,
		0,
		true,
		func(int64, []byte) error { return enough },
	); !errors.Is(
		err,
		enough,
	) {
		t.Errorf("%v", err)
	}

	nothing := func(int64, []byte) error { t.Error("bytes"); return nil }
	b.must(b.Log(t.Context(), j.ID, job.StreamText, int64(len(later))+5, true, nothing))
	b.refused(b.Log(t.Context(), j.ID, job.StreamText, -1, true, nothing), inventory.KindInvalid, "negative")
	b.refused(b.Log(t.Context(), "77", job.StreamText, 0, true, nothing), inventory.KindNotFound, `no job "77"`)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	next, g2 := b.held(job.PlaybookUpgrade, maintenance, "a", "")

	if err := b.Log(gone, next.ID, job.StreamText, 1<<20, true, nothing); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}

	g2.open <- succeeds
	b.end(next.ID, "Complete")
}

// TestEventsAreBounded with a visible mark.
func TestEventsAreBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(b *bench) { b.settings.EventLimit = 200 })
	b.see("a")
	b.books.on(job.PlaybookSite, func(r *scriptedRun) {
		for i := range 100 {
			r.says(job.StreamEvents, "{\"event\":\"ok\",\"n\":%d}\n", i)
		}

		succeeds(r)
	})
	j := b.do(commission, "a", master, "Complete")

	events := b.log(j.ID, job.StreamEvents)
	if len(events) > 400 ||
		!strings.HasSuffix(
			events,
			"\n{\"event\":\"truncated\",\"message\":\"further events of this job are not kept\"}\n",
		) {
		t.Errorf("%d bytes: %s", len(events), events)
	}
}

// TestEventsOfManyHosts: what hosts report at once is in the logs, each entry whole, and the events have their bound.
func TestEventsOfManyHosts(t *testing.T) {
	t.Parallel()

	const hosts, limit = 50, 4000

	for _, bounded := range []bool{false, true} {
		b := newBench(t, func(b *bench) {
			if bounded {
				b.settings.EventLimit = limit
			}
		})

		var labels strings.Builder
		for i := range hosts {
			fmt.Fprintf(&labels, "n%02d ", i)
		}

		b.see(labels.String())
		j := b.do(inventory.VerbManage, labels.String(), "", "Complete")

		if text := b.log(j.ID, job.StreamText); strings.Count(text, ": power: ok\n") != hosts {
			t.Errorf("the output lacks hosts:\n%s", text)
		}

		events := b.log(j.ID, job.StreamEvents)
		ends := map[string]int{}

		for line := range strings.Lines(events) {
			var e struct{ Event, Host string }
			if err := json.Unmarshal([]byte(line), &e); err != nil && line != "\n" {
				t.Fatalf("%v: %s", err, line)
			}
			if e.Event != "task" {
				ends[e.Event]++
			}
		}

		switch {
		case !bounded && ends["ok"] != hosts, !bounded && ends["truncated"] != 0:
			t.Errorf("%v of %d hosts", ends, hosts)
		case bounded && (ends["truncated"] != 1 || len(events) > limit+100 || len(events) < limit-400):
			t.Errorf("%d bytes with a limit of %d: %v", len(events), limit, ends)
		}
	}
}

// TestSubmitAtOnce: those who ask at the same time wait for each other; nobody is
// told that somebody else was first.
func TestSubmitAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)

	var labels []string
	for i := range 60 {
		labels = append(labels, fmt.Sprintf("n%02d", i))
	}

	b.see(strings.Join(labels, " "))
	g := newGate() // nothing ends meanwhile
	b.books.on(job.PlaybookSite, g.script)
	errs := make([]error, len(labels))

	var all sync.WaitGroup
	for i, label := range labels {
		all.Go(func() {
			_, errs[i] = b.Submit(
				b.within(patience),
				job.Request{Verb: commission, Nodes: names(label), Group: master},
			)
		})
	}

	all.Wait()

	for i, err := range errs {
		if err != nil {
			t.Errorf("%s: %v", labels[i], err)
		}
	}

	if v := b.View(); len(v.Jobs()) != len(labels) || v.Newest() != uint64(len(labels)) {
		t.Errorf("%d jobs, the newest is number %d", len(v.Jobs()), v.Newest())
	}
}

// pausedWriter is a store that takes the records of an owner's jobs when the channel is closed.
type pausedWriter struct {
	keeper
	on chan struct{}
}

func (p pausedWriter) Commit(ctx context.Context, tx *record.Tx) (int64, error) {
	if j := runningIn(tx); j != nil && j.Cancel == 0 {
		select {
		case <-p.on:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return p.keeper.Commit(ctx, tx)
}

// TestTakeOver: another instance, on a host that knows nothing of the run, goes
// on with a job only when what the first has started is over for sure, and then
// with the phase that was interrupted.
func TestTakeOver(t *testing.T) {
	t.Parallel()

	const lease = 500 * time.Millisecond
	for _, cancel := range []bool{false, true} { // before it is taken over
		t.Run(fmt.Sprint("cancelled ", cancel), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, func(b *bench) { b.prefix += fmt.Sprint("/", cancel); b.settings.Lease = lease })
			b.see("a")
			j, g := b.held(job.PlaybookSite, commission, "a", master)
			b.down()
			b.books, b.instance = newPlaybooks(), "bench-2"

			began := make(chan time.Time, 2)
			for _, playbook := range []string{job.PlaybookSite, job.PlaybookCleanup} {
				b.books.on(playbook, func(r *scriptedRun) { began <- time.Now(); succeeds(r) })
			}

			on := make(chan struct{})
			b.wrap = func(s keeper) keeper { return pausedWriter{s, on} }
			before := time.Now()
			b.up()

			if cancel {
				if _, err := b.Cancel(t.Context(), j.ID, "test", nil, nil); err != nil {
					t.Fatal(err)
				}
			}

			close(on)
			b.until(
				"the job has ended",
				func(v *state.View) bool { j, err := v.Job(j.ID); return err == nil && j.Status.Ended() },
			)

			if waited := (<-began).Sub(before); waited < lease {
				t.Errorf("it went on after %s, while the first run may have gone on", waited)
			}

			j = b.job(j.ID)

			want := "Complete configure:interrupted configure:done"
			if cancel {
				want = "Cancelled configure:interrupted undo:done"
			}
			if got := string(j.Status) + " " + phases(j); got != want || j.Instance != "bench-2" {
				t.Errorf("%s on %s, want %s", got, j.Instance, want)
			}

			if text := b.log(j.ID, job.StreamText); !strings.Contains(text, "was run by bench-1") {
				t.Errorf("the log does not say so: %q", text)
			}

			g.open <- succeeds // the first host's, which nobody asks any more
		})
	}
}

// TestTakenOverNotBegun: a run that did not begin on this host may have begun on
// that of the former instance, so its hosts are cleaned.
func TestTakenOverNotBegun(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(b *bench) { b.settings.Lease = 500 * time.Millisecond })
	b.see("a")

	j, g := b.held(job.PlaybookSite, commission, "a", master)
	b.down()

	b.books, b.instance = newPlaybooks(), "bench-2"
	b.books.on(job.PlaybookSite, func(r *scriptedRun) {
		r.ends(RunExit{Cause: job.CauseInternal, Message: "no such program", NotBegun: true}, nil)
	})
	b.up()

	j = b.end(j.ID, "Errored internal")
	if got := phases(j); got != "configure:interrupted configure:internal undo:done" || j.Runs[1].NotBegun {
		t.Errorf("%s: %+v", got, j.Runs)
	}

	g.open <- succeeds // the end of the first host's run
}

// hasOthers gives the manager another live instance, which runs nothing.
func (b *bench) hasOthers() {
	b.t.Helper()

	other := state.Instance{Identity: cluster.Identity{ID: "id-other", Node: "other"}}
	_, err := record.Replace(b.t.Context(), b.store, &state.Instances, other.ID, 0, &other)
	b.must(err)
	b.until(
		"another instance is seen",
		func(v *state.View) bool { return record.Get(v, &state.Instances, other.ID) != nil },
	)
}

// TestTakeOverBound: what an instance starts beside others ends with its ownership of the job, so the next owner waits
// for nothing.
func TestTakeOverBound(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(b *bench) { b.settings.Lease = time.Hour })
	b.see("a")
	b.hasOthers()

	j, g := b.held(job.PlaybookSite, commission, "a", master)
	b.down()
	b.books, b.instance = newPlaybooks(), "bench-2"
	b.up()

	j = b.end(j.ID, "Complete")
	if got := phases(j); got != "configure:interrupted configure:done" || !j.Runs[0].Lost || !j.Runs[1].TakenOver {
		t.Errorf("%s: %+v", got, j.Runs)
	}

	g.open <- succeeds // the end of the first host's run
}

// TestLostRun: a run whose lease ended is begun again where the job goes on, but not for ever.
func TestLostRun(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name        string
		lost        int
		alone       bool
		end, phases string
	}{
		{name: "once", lost: 1, end: "Complete", phases: "configure:interrupted configure:done"},
		{
			name: "each time", lost: 9, end: "Errored interrupted",
			phases: "configure:interrupted configure:interrupted configure:interrupted undo:done",
		},
		{name: "alone", lost: 1, alone: true, end: "Errored interrupted", phases: "configure:interrupted undo:done"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			b := newBench(t, func(b *bench) { b.prefix += "/" + strings.ReplaceAll(c.name, " ", "") })
			b.see("a")

			if !c.alone {
				b.hasOthers()
			}

			runs := 0

			b.books.on(job.PlaybookSite, func(r *scriptedRun) {
				if runs++; runs > c.lost {
					succeeds(r)
					return
				}
				r.ends(
					RunExit{Cause: job.CauseInterrupted, Message: "the lease ended", Lost: true, Incomplete: true},
					nil,
				)
			})

			j, err := b.Engine.Submit(t.Context(), access.Caller{Principal: "ann"}, job.Request{
				Verb: inventory.VerbCommission, Nodes: names("a"), Group: master,
			})
			b.must(err)

			if got := phases(b.end(j.ID, c.end)); got != c.phases {
				t.Errorf("%s, want %s", got, c.phases)
			}
		})
	}
}

// TestTombstonesExpire: the retention removes old tombstones, and no others.
func TestTombstonesExpire(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	b.see("a b")

	for name, at := range map[string]time.Time{"a-1": time.Now().AddDate(-3, 0, 0), "b-1": time.Now()} {
		_, err := b.store.Forget(t.Context(), b.View().Revision, nil, []state.NodeWrite{{
			Node: b.node(name), Tombstone: &inventory.Tombstone{Name: name, Time: at},
		}}, nil)
		b.must(err)
	}

	b.must(b.Prune(t.Context()))

	if left := record.List(b.View(), &state.Tombstones); len(left) != 1 || left[0].Name != "b-1" {
		t.Errorf("%d are left, %+v", len(left), left)
	}
}
