// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// seat is an instance on the etcd of several.
type seat struct {
	*Store
	session *testSession
	lanes   chan struct{} // the requests under way
}

func (s seat) id() string { return s.session.self.ID }

// do carries out a request in its turn, and again for as long as the store is too slow for an answer. An attempt
// without an answer may have done it, so each finds what an earlier one has done.
func (s seat) do(ctx context.Context, request func(context.Context, seat) (bool, error)) (mine bool, err error) {
	s.lanes <- struct{}{}
	defer func() { <-s.lanes }()

	for {
		mine, err = request(ctx, s)
		if inventory.KindOf(err) != inventory.KindUnavailable || ctx.Err() != nil {
			return mine, err
		}
	}
}

// register registers a machine, and reports whether this instance did it.
func (s seat) register(ctx context.Context, name string) (mine bool, err error) {
	mine, _, err = record.Decide(ctx, s, func(tx *record.Tx) (bool, error) {
		if m := record.Get(tx, &state.Machines, name); m != nil {
			return m.Actor == s.id(), nil
		}

		n, entry := inventory.Enroll(name, "", nil, inventory.Trigger{Actor: s.id(), Time: noon})
		tx.Attach(state.NodeWrite{Node: n, Entries: []inventory.HistoryEntry{entry}})
		record.Put(tx, &state.Machines, &state.Machine{Machine: machine.Machine{Node: name, Actor: s.id()}})

		return true, nil
	})

	return mine, err
}

// claim holds the node of a queued job for it, and reports whether this instance did it.
func (s seat) claim(ctx context.Context, j job.Job) (mine bool, err error) {
	if err := s.Sync(ctx); err != nil {
		return false, err
	}

	v := s.View()

	if now, err := v.Job(j.ID); err != nil || now.Status == job.Running {
		return now.Instance == s.session.self.Node, err
	}

	n, err := v.Node(j.Targets[0].Name)
	if err != nil {
		return false, err
	}

	row, _ := inventory.TransitionOf(j.Verb)

	held, entry, err := n.Hold(row, j.Group, inventory.Trigger{Actor: s.id(), Job: j.ID, Time: noon})
	if err != nil {
		return false, err
	}

	j.Status, j.Started, j.Instance = job.Running, noon, s.session.self.Node
	_, err = s.Claim(ctx, state.Claim{
		Job: j, Writes: []state.NodeWrite{{Node: held, Entries: []inventory.HistoryEntry{entry}}}, Revision: v.Revision,
	})

	if inventory.KindOf(err) == inventory.KindConflict {
		return false, nil
	}

	return err == nil, err
}

// grant makes this instance the owner of a job until the test ends, and reports whether it did.
func (s seat) grant(ctx context.Context, j job.Job) (mine bool, err error) {
	_, release, err := s.session.Own(ctx, j.ID, j.Revision)
	if inventory.KindOf(err) == inventory.KindRefused {
		return false, nil
	}

	if err == nil {
		context.AfterFunc(ctx, release)
	}

	return err == nil, err
}

// acceptMany stores a queued commission of each node.
func acceptMany(t *testing.T, s *Store, names []string) (all []job.Job) {
	t.Helper()

	for some := range slices.Chunk(names, 20) {
		tx := record.NewTx(s)
		first := state.ViewOf(tx).Newest() + 1

		for i, name := range some {
			j := job.Job{
				ID: fmt.Sprint(first + uint64(i)), Verb: inventory.VerbCommission, Status: job.Queued, Accepted: noon,
				Group: inventory.GroupMaster, Timeout: time.Hour, Actor: "anna",
				Targets: []job.Target{{Name: name, Group: inventory.GroupMaster}},
			}
			record.Put(tx, &job.Kind, &j)
			all = append(all, j)
		}

		newest := first + uint64(len(some)) - 1
		record.Put(tx, &job.Newest, &newest)

		revision, err := s.Commit(within(t, patience), tx)
		must(t, err)

		for i := range some {
			all[len(all)-1-i].Revision = revision
		}
	}

	return all
}

// TestNothingGlobal has three instances import, claim and own at once, each thing at two of them. One of the two does
// it, and whoever was in the way was so at the record of that thing: no key is everybody's.
func TestNothingGlobal(t *testing.T) {
	t.Parallel()

	const things = 834 // of each kind, at two instances: 5 004 requests

	first := store(t)
	seats := []seat{{Store: first}, {Store: open(t, first.client)}, {Store: open(t, first.client)}}

	for i := range seats {
		seats[i].lanes = make(chan struct{}, 64)

		var err error
		seats[i].session, err = enter(t, seats[i].Store, instance(string(rune('a'+i))), time.Hour)
		must(t, err)
	}

	jobs := acceptMany(t, first, seen(t, first, 2*things))
	toClaim, toOwn := jobs[:things], jobs[things:]

	for _, s := range seats {
		must(t, s.Sync(within(t, patience)))
	}

	type request struct {
		thing string
		at    []seat
		do    func(context.Context, seat) (bool, error)
	}

	requests := make([]request, 0, 3*things)
	for i := range things {
		name := fmt.Sprintf("new-%d", i)
		two := []seat{seats[i%3], seats[(i+1)%3]}
		// The first instance leads. Another one that claims takes itself for the leader.
		leader := []seat{seats[0], seats[1+i%2]}

		requests = append(requests, request{name, two, func(ctx context.Context, s seat) (bool, error) {
			return s.register(ctx, name)
		}}, request{"claim " + toClaim[i].ID, leader, func(ctx context.Context, s seat) (bool, error) {
			return s.claim(ctx, toClaim[i])
		}}, request{"grant " + toOwn[i].ID, two, func(ctx context.Context, s seat) (bool, error) {
			return s.grant(ctx, toOwn[i])
		}})
	}

	var (
		mu   sync.Mutex
		won  = map[string][]string{} // the instances that did it, by thing
		all  sync.WaitGroup
		gate = make(chan struct{})
		ctx  = within(t, patience)
	)

	for _, r := range requests {
		for _, s := range r.at {
			all.Go(func() {
				<-gate

				mine, err := s.do(ctx, r.do)

				mu.Lock()
				defer mu.Unlock()

				if err != nil {
					t.Errorf("%s at %s: %v", r.thing, s.id(), err)
				}
				if mine {
					won[r.thing] = append(won[r.thing], s.id())
				}
			})
		}
	}

	begun := time.Now()

	close(gate)
	all.Wait()
	t.Logf("%d requests took %s", 2*len(requests), time.Since(begun).Round(time.Millisecond))

	// What is there agrees with what each instance was told.
	v := open(t, first.client).View()

	for _, r := range requests {
		if len(won[r.thing]) != 1 {
			t.Errorf("%s was done by the instances %q, want one", r.thing, won[r.thing])
		}
	}

	for i := range things {
		name, by := fmt.Sprintf("new-%d", i), func(what string) string { return fmt.Sprint(won[what]) }

		n, known := v.Lookup(name)
		m := record.Get(v, &state.Machines, name)

		if !known || n.Entries != 1 || m == nil || by(name) != "["+m.Actor+"]" {
			t.Errorf("%s was imported by %s, and is %+v, %+v", name, by(name), n, m)
		}

		claimed := toClaim[i]
		n, _ = v.Lookup(claimed.Targets[0].Name)
		j, err := v.Job(claimed.ID)

		if n.Job != claimed.ID || n.Entries != 2 || err != nil ||
			by("claim "+claimed.ID) != "["+strings.TrimPrefix(j.Instance, "host-")+"]" {
			t.Errorf("job %s was claimed by %s; it is of %q, and %+v", j.ID, by("claim "+j.ID), j.Instance, n)
		}

		id := toOwn[i].ID
		if o := record.Get(v, &state.Owners, id); o == nil || by("grant "+id) != "["+o.ID+"]" {
			t.Errorf("job %s was granted to %s; its owner is %+v", id, by("grant "+id), o)
		}
	}

	// Who was second at a job that has an owner has waited for that owner, and nobody waited for what is everybody's.
	sum := map[string]int{}

	for _, s := range seats {
		waited := s.Conflicts()
		maps.DeleteFunc(waited, func(_ string, n int) bool { return n == 0 })
		t.Logf("the instance %s waited for %v", s.id(), waited)

		for kind, n := range waited {
			sum[kind] += n
		}
	}

	// Nobody writes the last one, the lead: it refuses claims of those who do not have it.
	own := []string{state.Machines.Name, job.Nodes.Name, job.Kind.Name, state.Owners.Name, "holder", unknownKind}
	for kind, n := range sum {
		if !slices.Contains(own, kind) || n > things*2 {
			t.Errorf("%d transactions waited for %s", n, kind)
		}
	}

	if n := sum[state.Owners.Name] + sum[unknownKind]; n < things {
		t.Errorf("%d transactions waited for an owner, want %d", n, things)
	}

	emitted := map[string]int{}

	for _, s := range seats {
		s.Measure(func(name string, value float64, labels ...string) {
			if name == "clusterm_store_conflicts_total" && value > 0 {
				emitted[labels[0]] += int(value)
			}
		})
	}

	if !maps.Equal(emitted, sum) {
		t.Errorf("the metric has %v", emitted)
	}
}

// TestAcceptanceIsInOrder has three instances accept jobs, each one after the other as an engine does. The jobs have
// one order, so an instance waits for the number of the newest one of another, and is not starved by the others.
func TestAcceptanceIsInOrder(t *testing.T) {
	t.Parallel()

	const each = 60

	first := store(t)
	names := seen(t, first, 3)
	stores := []*Store{first, open(t, first.client), open(t, first.client)}

	for _, s := range stores {
		must(t, s.Sync(within(t, patience)))
	}

	var all sync.WaitGroup

	for i, s := range stores {
		all.Go(func() {
			for range each {
				_, _, err := record.Decide(within(t, patience), s, func(tx *record.Tx) (none struct{}, err error) {
					state.AcceptJob(tx, job.Job{
						ID: state.ViewOf(tx).NextID(), Verb: inventory.VerbCommission, Status: job.Queued,
						Actor: fmt.Sprint(i), Group: inventory.GroupMaster, Accepted: noon,
						Targets: []job.Target{{Name: names[i]}},
					}, job.Inputs{})

					return none, nil
				})
				if err != nil {
					t.Errorf("the instance %d: %v", i, err)
				}
			}
		})
	}

	all.Wait()

	v, accepted := open(t, first.client).View(), map[string]int{}
	for number := range 3 * each {
		j, err := v.Job(fmt.Sprint(number + 1))
		must(t, err)

		accepted[j.Actor]++
	}

	if len(v.Jobs()) != 3*each || len(accepted) != 3 {
		t.Errorf("there are %d jobs, accepted by %v", len(v.Jobs()), accepted)
	}

	for i, s := range stores {
		if accepted[fmt.Sprint(i)] != each {
			t.Errorf("the instance %d has %d jobs, want %d", i, accepted[fmt.Sprint(i)], each)
		}

		waited := s.Conflicts()
		maps.DeleteFunc(waited, func(_ string, n int) bool { return n == 0 })
		t.Logf("the instance %d waited for %v", i, waited)

		for kind := range waited {
			if kind != job.Newest.Name && kind != job.Kind.Name && kind != unknownKind {
				t.Errorf("%d acceptances waited for %s", waited[kind], kind)
			}
		}
	}
}
