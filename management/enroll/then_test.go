// SPDX-License-Identifier: Apache-2.0

package enroll

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
)

// jobs accepts jobs, each key once, as the engine does.
type jobs struct {
	mu       sync.Mutex
	accepted []job.Job
	byKey    map[string]job.Job
	calls    int
	fails    error // of every call
}

func (j *jobs) Submit(_ context.Context, c access.Caller, r job.Request) (job.Job, error) {
	j.mu.Lock()
	defer j.mu.Unlock()

	j.calls++

	if was, again := j.byKey[c.Key.ID]; again {
		return was, nil
	}

	if j.fails != nil {
		return job.Job{}, j.fails
	}

	out := job.Job{ID: fmt.Sprint(len(j.accepted) + 1), Verb: r.Verb, Actor: c.Principal, Status: job.Running}
	for _, name := range r.Nodes {
		out.Targets = append(out.Targets, job.Target{Name: name, From: inventory.Enrolled})
	}

	j.accepted = append(j.accepted, out)
	j.byKey[c.Key.ID] = out

	return out, nil
}

// did returns the accepted jobs: VERB NODES by ACTOR.
func (j *jobs) did() string {
	j.mu.Lock()
	defer j.mu.Unlock()

	var texts []string
	for _, a := range j.accepted {
		texts = append(texts, fmt.Sprintf("%s %s by %s", a.Verb, strings.Join(a.Names(), ","), a.Actor))
	}

	return strings.Join(texts, "; ")
}

var manage = []inventory.Verb{inventory.VerbManage}

// TestThen: one job follows, on the new nodes and the changed ones that are Enrolled still.
func TestThen(t *testing.T) {
	t.Parallel()

	w := newWorld(t, nodeOf("free-1", inventory.Unallocated, inventory.Discovered),
		nodeOf("serves-1", inventory.Allocated, inventory.Discovered))
	s := w.run()

	w.expect(s, api.Import{File: `[{"name":"old","addr":"10.0.0.1"}]`}, "old created")

	if got := w.jobs.did(); got != "" {
		t.Errorf("without then: %s", got)
	}

	done, err := w.request(s, api.Import{Then: manage, File: `[{"name":"old","addr":"10.0.0.1","memory":1},
{"name":"new","pm_type":"ipmi","pm_addr":"10.9.0.5"},{"name":"free-1","addr":"free-1.example","memory":1},
{"name":"serves-1","addr":"serves-1.example","memory":1}]`})
	if err != nil {
		t.Fatal(err)
	}

	if got := w.jobs.did(); got != "manage old,new by anna" {
		t.Errorf("the jobs are %s", got)
	}

	var got []string
	for _, m := range done.Machines {
		got = append(got, m.Node+":"+strings.Join(m.Checks, "+"))
	}

	if strings.Join(got, " ") != "old:ssh new:bmc free-1: serves-1:" || !slices.Equal(done.Jobs, []string{"1"}) {
		t.Errorf("got %s, the jobs %s", got, done.Jobs)
	}

	// Nothing has changed, so nothing follows.
	done, err = w.request(s, api.Import{Then: manage, File: `[{"name":"old","addr":"10.0.0.1","memory":1}]`})
	if err != nil || len(done.Jobs) > 0 || w.jobs.did() != "manage old,new by anna" {
		t.Errorf("the second time: %+v, %v, %s", done, err, w.jobs.did())
	}

	for _, wrong := range [][]inventory.Verb{
		{"commission"}, {"manage", "manage"}, {"polish"}, {"forget"}, {"discover"}, make([]inventory.Verb, 100),
	} {
		if _, err := w.request(s, api.Import{Then: wrong, File: one}); inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("then %v: %v", wrong, err)
		}
	}
}

// TestThenIsRefused: the machines are registered all the same, and the answer has the reason.
func TestThenIsRefused(t *testing.T) {
	t.Parallel()

	w := newWorld(t)
	w.jobs.fails = inventory.Errorf(inventory.KindRefused, "no job is accepted now")
	s := w.run()

	done, err := w.request(s, api.Import{Then: manage, File: one})
	if err != nil || len(done.Jobs) > 0 ||
		!strings.Contains(strings.Join(done.Warnings, " "), "no job is accepted now") {
		t.Errorf("got %+v, %v", done, err)
	}

	if n, _ := w.View().Lookup("r1"); n.Status != inventory.Enrolled {
		t.Errorf("got %+v", n)
	}
}

// TestThenAfterACrash stops the leader after each number of commits, and once between the job and its record. The job
// is accepted once.
func TestThenAfterACrash(t *testing.T) {
	t.Parallel()

	const nodes = 40

	for crash := 1; crash < 6; crash++ {
		w := newWorld(t)

		commits, crashed := 0, make(chan struct{})
		w.Before = func(*record.Tx) error {
			if commits++; commits <= crash {
				return nil
			}

			if commits == crash+1 {
				close(crashed)
			}

			return errors.New("the process was killed")
		}

		first := w.service()
		first.Start(t.Context())

		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)

		go func() {
			_, err := first.Import(
				ctx,
				access.Caller{Principal: "anna"},
				nil,
				api.Import{File: many(nodes), Then: manage},
			)
			result <- err
		}()

		select {
		case <-crashed:
		case err := <-result:
			// All commits were made before: there was no crash.
			result <- err
		}

		first.Stop()
		cancel()
		<-result

		w.Before = nil
		w.run()

		for !over(w) {
			changed := w.Changed()
			if over(w) {
				break
			}

			select {
			case <-changed:
			case <-time.After(time.Minute):
				t.Fatal("the import does not end")
			}
		}

		if n := len(w.jobs.accepted); n != 1 || len(w.jobs.accepted[0].Targets) != nodes {
			t.Errorf("crash after %d commits: %d jobs were accepted: %s", crash, n, w.jobs.did())
		}
	}
}

// over reports whether nothing follows the imports any more.
func over(w *world) bool {
	return len(pending(w)) == 0 && !slices.ContainsFunc(record.List(w.View(), &Kind), func(i *Import) bool {
		return len(i.Then) > 0
	})
}
