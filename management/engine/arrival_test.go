// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
)

// TestOrderOfArrival: while the folder of the first request is parsed, a request
// behind it waits, and is judged as if the first one were done.
func TestOrderOfArrival(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a b")

	parsing, parsed := make(chan struct{}), make(chan struct{})

	var once sync.Once

	b.books.held = func() {
		once.Do(func() {
			close(parsing)
			<-parsed
		})
	}

	first := make(chan job.Job, 1)

	var submits sync.WaitGroup

	submits.Go(func() {
		j, err := b.submitWith(t.Context(), job.Request{Verb: commission, Nodes: []string{"a-1"}, Group: master}, nil)
		if err != nil {
			t.Error(err)
		}
		first <- j
	})

	<-parsing

	// Without the first job, both requests are refused: nothing is in service yet.
	join := job.Request{Verb: commission, Nodes: []string{"b-1"}, Group: worker}
	out := job.Request{Verb: inventory.VerbDecommission, Nodes: []string{"a-1"}}

	for _, r := range []job.Request{join, out} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if _, err := b.submitWith(ctx, r, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s %v overtook the first request: %v", r.Verb, r.Nodes, err)
		}
		cancel()
	}

	if n := len(b.View().Jobs()); n > 0 {
		t.Errorf("%d jobs were accepted", n)
	}

	close(parsed)

	second, err := b.submitWith(t.Context(), join, nil)
	if err != nil {
		t.Fatal(err)
	}

	submits.Wait()

	if j := <-first; j.Seq() >= second.Seq() {
		t.Errorf("the first request became job %s, the second job %s", j.ID, second.ID)
	}
}
