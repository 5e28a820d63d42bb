// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/variable"
)

// replica is a copy of a view that follows it by its changes alone.
type replica struct {
	revision int64
	nodes    map[string]inventory.Node
	conns    map[string]configuration.Connection
	jobs     map[string]job.Job
	settings map[state.Scope]configuration.Vars
	tombs    map[string]bool // the tombstones, which are never removed here
}

func copyOf(v *state.View) *replica {
	c := &replica{
		v.Revision,
		map[string]inventory.Node{},
		map[string]configuration.Connection{},
		map[string]job.Job{},
		map[state.Scope]configuration.Vars{},
		map[string]bool{},
	}
	for name := range record.All(v, &state.Tombstones) {
		c.tombs[name] = true
	}

	for _, n := range v.Nodes() {
		c.nodes[n.Name] = *n
		if conn := v.Connection(n.Name); conn != nil {
			c.conns[n.Name] = *conn
		}
	}

	for _, j := range v.Jobs() {
		c.jobs[j.ID] = *j
	}

	for _, vars := range record.All(v, &state.Variables) {
		c.settings[vars.Scope] = vars.Vars
	}

	return c
}

// follow applies all changes since and returns their number.
func (c *replica) follow(t *testing.T, v *state.View, f *state.Feed) int {
	t.Helper()

	count := 0
	for {
		changes, err := f.Since(c.revision, 3)
		must(t, err)

		for _, ch := range changes.List {
			c.apply(t, v, ch)
		}

		count += len(changes.List)

		c.revision = changes.Revision
		if !changes.More {
			return count
		}
	}
}

// apply applies a change. A node is shown with its connection, which is in the view.
func (c *replica) apply(t *testing.T, v *state.View, ch state.Change) {
	t.Helper()

	switch ch.Kind {
	case job.Nodes.Name:
		was, ok := c.nodes[ch.Key]
		if ok != (ch.Former != nil) || ok && !reflect.DeepEqual(was, *ch.Former.(*inventory.Node)) {
			t.Fatalf("revision %d: %s was %+v, but the change has %+v", ch.Revision, ch.Key, was, ch.Former)
		}

		delete(c.nodes, ch.Key)
		delete(c.conns, ch.Key)

		if ch.Record != nil {
			c.nodes[ch.Key] = *ch.Record.(*inventory.Node)
			if conn := v.Connection(ch.Key); conn != nil {
				c.conns[ch.Key] = *conn
			}
		}
	case job.Kind.Name:
		was, ok := c.jobs[ch.Key]
		gone := ok && ch.Record == nil

		if gone != (ch.Former != nil) || gone && !reflect.DeepEqual(was, *ch.Former.(*job.Job)) {
			t.Fatalf("revision %d: job %s was %+v, but the change has %+v", ch.Revision, ch.Key, was, ch.Former)
		}

		delete(c.jobs, ch.Key)

		if ch.Record != nil {
			c.jobs[ch.Key] = *ch.Record.(*job.Job)
		}
	case state.Variables.Name:
		delete(c.settings, state.Scope(ch.Key))

		if ch.Record != nil {
			c.settings[state.Scope(ch.Key)] = ch.Record.(*state.ScopeVars).Vars
		}
	case state.Tombstones.Name:
		c.tombs[ch.Key] = true

		if ch.Former != nil {
			t.Fatalf("revision %d: a new record was %+v", ch.Revision, ch.Former)
		}
	}
}

func (c *replica) same(t *testing.T, v *state.View) {
	t.Helper()
	want := copyOf(v)

	want.revision = c.revision
	if !reflect.DeepEqual(c, want) {
		t.Fatalf("at revision %d the replica has\n%+v\nthe view has\n%+v", v.Revision, c, want)
	}
}

// disturb makes one random change and returns its name, or "" if the chosen change was
// not possible.
func disturb(t *testing.T, s *Store, r *rand.Rand, i int) (change string) {
	t.Helper()
	ctx := within(t, patience)
	v := s.View()

	var free []string
	for _, n := range v.Nodes() {
		if n.Job == "" && r.IntN(3) == 0 {
			free = append(free, n.Name)
		}
	}

	newest := func(status job.Status) (job.Job, bool) {
		for _, j := range slices.Backward(v.Jobs()) {
			if j.Status == status {
				return *j, true
			}
		}

		return job.Job{}, false
	}
	switch r.IntN(12) {
	case 0, 1:
		changeAddr(t, s, v.Nodes()[r.IntN(len(v.Nodes()))].Name)
		return "address"
	case 2:
		setConnection(t, s, v.Nodes()[r.IntN(len(v.Nodes()))].Name, configuration.Connection{User: fmt.Sprint(i)})
		return "connection"
	case 3:
		var vars configuration.Vars // nil removes them
		if r.IntN(2) == 0 {
			vars = configuration.Vars{"i": fmt.Sprint(i)}
		}

		_, err := putVars(ctx, s, s.View(), state.ScopeNode(v.Nodes()[0].Name), vars, variable.Change{})
		must(t, err)

		return "vars"
	case 4:
		if len(free) > 0 {
			accepted(t, s, free)
			return "accept"
		}

	case 5: // an uncommitted reservation
		if j, ok := newest(job.Queued); ok {
			_, writes := claimOfFree(t, v, j)
			reserveOnly(t, s, writes)
			return "abandon"
		}

	case 6, 7: // a claim, after an abandoned one or not
		if j, ok := newest(job.Queued); ok {
			running, writes := claimOfFree(t, v, j)
			_, err := s.Claim(ctx, state.Claim{Job: running, Writes: writes, Revision: v.Revision})
			must(t, err)
			return "claim"
		}
	case 8:
		if j, ok := newest(job.Running); ok {
			j.Targets = slices.DeleteFunc(slices.Clone(j.Targets), func(target job.Target) bool {
				_, err := v.Node(target.Name)
				return err != nil
			})

			over, writes := released(t, v, j)
			for i := range writes {
				writes[i].Node.Status = inventory.Unallocated
			}

			_, err := s.Finish(ctx, over, writes)
			must(t, err)

			return "finish"
		} else if j, ok := newest(job.Queued); ok {
			j.Status, j.Ended = job.Cancelled, noon
			_, err := s.Finish(ctx, j, nil)
			must(t, err)
			return "cancel"
		}
	case 9:
		if len(free) > 0 && len(v.Nodes()) > 6 {
			n, err := v.Node(free[0])
			must(t, err)
			_, err = s.Forget(
				ctx,
				v.Revision, nil,
				[]state.NodeWrite{{Node: n, Tombstone: &inventory.Tombstone{Name: n.Name, Time: noon}}},
				nil,
			)
			must(t, err)

			return "forget"
		}
	case 10:
		if j, ok := newest(job.Complete); ok {
			dropJobs(t, s, j.ID)
			return "drop"
		}

	case 11: // the commit point after an uncommitted reservation
		if j, ok := newest(job.Queued); ok && reservedBy(s, j.ID) {
			j.Status, j.Started = job.Running, noon
			_, err := putJob(ctx, s, j)
			must(t, err)
			return "commit"
		}
	}

	return ""
}

// reservedBy reports whether the job has reserved a node.
func reservedBy(s *Store, id string) bool {
	for _, n := range s.view.reserved {
		if n.Job == id {
			return true
		}
	}

	return false
}

// claimOfFree returns the claim of those nodes of the job that are free.
func claimOfFree(t *testing.T, v *state.View, j job.Job) (job.Job, []state.NodeWrite) {
	t.Helper()
	j.Targets = slices.DeleteFunc(slices.Clone(j.Targets), func(target job.Target) bool {
		n, err := v.Node(target.Name)
		return err != nil || n.Status != inventory.Unallocated
	})

	return held(t, v, j)
}

// TestChangesMakeTheView checks that a view and the changes after it make the next view,
// and that uncommitted reservations appear in neither.
func TestChangesMakeTheView(t *testing.T) {
	t.Parallel()
	s := store(t)
	r := rand.New(rand.NewPCG(7, 8))
	seen(t, s, 12)

	c, counts := copyOf(s.View()), map[string]int{}
	for i := range 300 {
		counts[disturb(t, s, r, i)]++
		c.follow(t, s.View(), s.view.feed)
		c.same(t, s.View())
	}

	for _, change := range []string{
		"address", "connection", "vars", "accept", "abandon", "commit", "claim", "finish", "cancel", "forget", "drop",
	} {
		if counts[change] == 0 {
			t.Errorf("the test never made the change %q", change)
		}
	}

	changeAddr(t, s, s.View().Nodes()[0].Name)

	late := open(t, s.client)
	if _, err := late.Changes(c.revision, 10); inventory.KindOf(err) != inventory.KindExpired {
		t.Errorf("the changes before a restart: %v", err)
	}
}

// TestReload checks that reading all records again publishes exactly the missed changes.
func TestReload(t *testing.T) {
	t.Parallel()
	s := store(t)
	r := rand.New(rand.NewPCG(9, 10))
	seen(t, s, 12)
	late := &Store{client: s.client}
	late.view.init(s.client, testKinds, silent(), StaleAfter)
	reload := func() {
		t.Helper()
		_, err := late.view.load(within(t, patience))
		must(t, err)
	}
	reload()

	c := copyOf(late.View())
	for i := range 20 {
		for k := range 10 {
			disturb(t, s, r, 10*i+k)
		}

		reload()
		c.follow(t, late.View(), late.view.feed)
		c.same(t, late.View())
	}

	reload()

	if n := c.follow(t, late.View(), late.view.feed); n != 0 {
		t.Errorf("%d changes without a write", n)
	}
}
