// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"encoding/json"
	"iter"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// follower keeps the objects received from a watch.
type follower struct {
	t    *testing.T
	ctx  context.Context
	mu   sync.Mutex
	file string            // the socket it connects to
	have map[string]string // object by kind/name
	sync int               // number of sync events
	lost int
	news chan struct{} // holds one token where there is something new
}

// follow watches nodes, jobs and variables until the test ends.
func (s *site) follow() *follower {
	ctx, cancel := context.WithCancel(s.t.Context())
	f := &follower{t: s.t, ctx: ctx, file: s.dir + "/w", have: map[string]string{}, news: make(chan struct{}, 1)}
	f.mayConnect(true)
	c, err := client.New(client.Options{Socket: f.file, Patience: patience})
	s.must(err)
	ended := make(chan struct{})

	s.t.Cleanup(func() { cancel(); <-ended })
	go func() {
		defer close(ended)

		for change, err := range c.Watch(ctx, client.WatchOptions{
			Kinds: []api.WatchKind{api.WatchNodes, api.WatchJobs, api.WatchVars},
			Lost:  func(error) { f.change(func() { f.lost++ }) },
		}) {
			if err != nil {
				if ctx.Err() == nil {
					s.t.Errorf("the watch ended: %v", err)
				}
				return
			}

			f.change(func() {
				switch key := string(change.Kind) + "/" + change.Name; change.Type {
				case api.ChangePut:
					f.have[key] = string(change.Object)
				case api.ChangeDelete:
					delete(f.have, key)
				case api.ChangeSync:
					f.sync++
				}
			})
		}
	}()

	return f
}

// mayConnect allows or prevents new connections of the follower.
func (f *follower) mayConnect(may bool) {
	f.t.Helper()

	err := os.Remove(f.file)
	if may {
		err = os.Symlink("s", f.file)
	}

	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *follower) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()

	select {
	case f.news <- struct{}{}:
	default:
	}
}

// until waits until the condition holds.
func (f *follower) until(what string, holds func() bool) {
	f.t.Helper()

	ctx, cancel := context.WithTimeout(f.ctx, patience)
	defer cancel()

	for {
		f.mu.Lock()
		done := holds()
		f.mu.Unlock()

		if done {
			return
		}

		select {
		case <-f.news:
		case <-ctx.Done():
			f.mu.Lock()
			defer f.mu.Unlock()
			f.t.Fatalf("%s: never; it has %v", what, f.have)
		}
	}
}

// agrees waits until the follower has exactly the objects that reads return.
func (f *follower) agrees(s *site) {
	f.t.Helper()
	want := map[string]string{}
	put := func(key string, object any) {
		data, err := json.Marshal(object)
		s.must(err)
		want[key] = string(data)
	}
	nodes, err := s.Nodes(s.ctx(), client.NodeFilter{})
	s.must(err)

	for _, n := range nodes.Items {
		put("nodes/"+n.Name, n)
	}

	jobs, err := s.Jobs(s.ctx(), client.JobFilter{})
	s.must(err)

	for _, j := range jobs.Items {
		put("jobs/"+j.ID, j)
	}

	vars, err := s.Vars(s.ctx(), client.ScopeGlobal)
	s.must(err)

	if len(vars) > 0 {
		put("vars/global", vars)
	}

	f.until("it agrees with what is read", func() bool { return reflect.DeepEqual(f.have, want) })
}

// TestWatchThroughRestarts checks that a follower converges after restarts of the
// manager, and after changes while it was cut off.
func TestWatchThroughRestarts(t *testing.T) {
	t.Parallel()
	s := begin(t)
	f := s.follow()
	f.until("the beginning", func() bool { return f.sync == 1 })
	s.report("a b c")
	_, err := s.SetVars(s.ctx(), client.ScopeGlobal, api.Vars{"motd": "hello", "db_password": "x"})
	s.must(err)
	s.runJob(api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}, Group: inventory.GroupMaster})
	f.agrees(s)

	if f.have["vars/global"] != `{"db_password":"(hidden)","motd":"hello"}` {
		t.Error(f.have["vars/global"])
	}

	// Nothing happens meanwhile.
	s.restart()
	f.until("it is back", func() bool { return f.sync == 2 })
	s.report("d")
	f.agrees(s)

	// While it is cut off, things change and go.
	f.mayConnect(false)
	s.restart()
	_, err = s.Forget(s.ctx(), api.Forget{Nodes: []string{"b-1"}, Force: true})
	s.must(err)
	_, err = s.SetVars(s.ctx(), client.ScopeGlobal, api.Vars{})
	s.must(err)
	s.runJob(api.JobRequest{Verb: inventory.VerbDecommission, Nodes: []string{"a-1"}})
	f.until("it is cut off", func() bool { return f.sync == 2 && f.lost > 1 })
	f.mayConnect(true)
	f.agrees(s)
}

// TestFileInTagAndWatch checks that a reload of a changed file changes the entity tag
// and reaches watches.
func TestFileInTagAndWatch(t *testing.T) {
	t.Parallel()
	s := begin(t)
	tag := func() string {
		t.Helper()
		_, tag, err := s.TaggedConfig(s.ctx())
		s.must(err)
		return tag
	}
	ctx, cancel := context.WithCancel(s.ctx())

	next, stop := iter.Pull2(s.Watch(ctx, client.WatchOptions{Kinds: []api.WatchKind{api.WatchConfig}}))
	defer stop()
	defer cancel()

	nextForks := func() any {
		t.Helper()

		for {
			change, err, _ := next()
			s.must(err)

			if change.Type == api.ChangePut {
				config, err := change.Config()
				s.must(err)
				return config["jobs.forks"].Value
			}
		}
	}
	if got := nextForks(); got != 50.0 {
		t.Fatalf("at first %v", got)
	}

	first := tag()
	s.write("jobs: {forks: 8}")
	s.must(s.Reload())

	if got := nextForks(); got != 8.0 {
		t.Fatalf("reloaded: %v", got)
	}

	_, err := s.IfMatch(first).PatchConfig(s.ctx(), map[string]any{"jobs.limit": 3})
	if inventory.KindOf(err) != inventory.KindPrecondition {
		t.Errorf("a change that depends on what was read before: %v", err)
	}

	second := tag()
	s.must(s.Reload()) // the file is unchanged
	_, err = s.IfMatch(second).PatchConfig(s.ctx(), map[string]any{"jobs.limit": 3})
	s.must(err)

	if got := nextForks(); got != 8.0 {
		t.Errorf("%v", got)
	}

	_, err = s.Client.PatchConfig(s.ctx(), map[string]any{"jobs.limit": nil})
	s.must(err)
	revision := func() string { before, _, _ := strings.Cut(tag(), "."); return before }
	third := revision()
	s.restart()

	if got := revision(); got != third {
		t.Errorf("after a restart with the same file: %s, was %s", got, third)
	}

	s.write("jobs: {forks: 9}")
	s.restart()

	if got := revision(); got == third {
		t.Errorf("after a restart with another file it is still %s", got)
	}
}
