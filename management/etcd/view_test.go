// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/sirupsen/logrus/hooks/test"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// applier returns a view without etcd, and a function that applies the write of a
// record, or its deletion if the record is nil, at the next revision.
func applier(t testing.TB) (v *view, apply func(key string, record any)) {
	t.Helper()
	log, _ := test.NewNullLogger()
	v = &view{}
	v.init(&etcd.Client{Prefix: "/p"}, testKinds, log, StaleAfter)
	revision := int64(0)

	return v, func(key string, record any) {
		revision++

		e := &clientv3.Event{
			Type: mvccpb.Event_DELETE,
			Kv:   &mvccpb.KeyValue{Key: []byte("/p/v/" + key), ModRevision: revision},
		}
		if record != nil {
			b, err := json.Marshal(record)
			if err != nil {
				t.Fatal(err)
			}
			e.Type, e.Kv.Value = mvccpb.Event_PUT, b
		}

		v.applyAll([]*clientv3.Event{e})
	}
}

// rebuilt returns the nodes and job ids of a snapshot made from nothing but the stored nodes.
func rebuilt(v *view, stored map[string]inventory.Node) (nodes []inventory.Node, jobs []string) {
	for _, n := range stored {
		m := n

		_, unreadable := v.unreadable.m["v/jobs/"+n.Job]
		if n.Before != nil && !unreadable && v.job(n.Job).Status != job.Running {
			m = n.Unreserved()
		}

		nodes = append(nodes, m)
	}

	slices.SortFunc(nodes, func(a, b inventory.Node) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})

	for _, j := range record.All(v.tables.View(), &job.Kind) {
		jobs = append(jobs, j.ID)
	}

	slices.SortFunc(jobs, func(a, b string) int { x, _ := strconv.Atoi(a); y, _ := strconv.Atoi(b); return x - y })

	return nodes, jobs
}

// TestIncrementalSnapshots applies random events in random batches. Each snapshot must
// equal one made from nothing, and no earlier snapshot may change.
func TestIncrementalSnapshots(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	v, apply := applier(t)
	type earlier struct {
		view *state.View
		text string
	}

	var snapshots []earlier

	stored := map[string]inventory.Node{}
	put := func(n inventory.Node) {
		stored[n.Name] = n
		apply("nodes/"+n.Name, n)
	}

	for round := range 400 {
		for range r.IntN(4) {
			name, id := "n-"+strconv.Itoa(r.IntN(40)), strconv.Itoa(1+r.IntN(12))
			switch r.IntN(5) {
			case 0:
				delete(stored, name)
				apply("nodes/"+name, nil)
			case 1:
				put(inventory.Node{Name: name, Status: inventory.Unallocated, Entries: uint64(round)})
			case 2:
				put(inventory.Node{
					Name:   name,
					Status: inventory.Provisioning,
					Job:    id,
					Before: &inventory.Before{Status: inventory.Unallocated},
				})
			case 3:
				status := []job.Status{job.Queued, job.Running, job.Complete, ""}[r.IntN(4)]
				if status == "" {
					apply("jobs/"+id, "no job")
				} else {
					apply("jobs/"+id, job.Job{ID: id, Status: status})
				}
			case 4:
				if r.IntN(4) == 0 {
					apply("jobs/"+id, nil)
				} else {
					apply("connections/"+name, configuration.Connection{User: strconv.Itoa(round)})
				}
			}
		}

		got := v.current()

		if r.IntN(3) == 0 {
			continue // nothing lists the nodes, so that the next list has the changes of both
		}

		nodes, jobs := rebuilt(v, stored)
		shown := []inventory.Node(nil)
		for _, n := range got.Nodes() {
			m := *n
			m.Revision = 0 // of no interest here
			shown = append(shown, m)
		}

		var ids []string
		for _, j := range got.Jobs() {
			ids = append(ids, j.ID)
		}

		if got.Nodes() == nil || !reflect.DeepEqual(shown, nodes) || !slices.Equal(ids, jobs) {
			t.Fatalf("round %d: got\n%+v %v\nwant\n%+v %v", round, shown, ids, nodes, jobs)
		}

		snapshots = append(snapshots, earlier{got, fmt.Sprintf("%+v %v %v", shown, ids, connectionsOf(got))})
	}

	for i, o := range snapshots {
		var nodes []inventory.Node
		for _, n := range o.view.Nodes() {
			m := *n
			m.Revision = 0
			nodes = append(nodes, m)
		}

		var ids []string
		for _, j := range o.view.Jobs() {
			ids = append(ids, j.ID)
		}

		if text := fmt.Sprintf("%+v %v %v", nodes, ids, connectionsOf(o.view)); text != o.text {
			t.Fatalf("snapshot %d was\n%s\nand is now\n%s", i, o.text, text)
		}
	}
}

// TestSnapshotsShare checks that the next snapshot shares unchanged records and
// unchanged lists.
func TestSnapshotsShare(t *testing.T) {
	t.Parallel()

	v, apply := applier(t)
	for i := range 100 {
		name := fmt.Sprintf("n-%02d", i)
		apply("nodes/"+name, inventory.Node{Name: name})
	}

	apply("jobs/1", job.Job{ID: "1", Status: job.Queued})
	before := v.current()
	apply("nodes/n-50", inventory.Node{Name: "n-50", Addr: "10.0.0.1"})

	after := v.current()
	for i := range after.Nodes() {
		if same := after.Nodes()[i] == before.Nodes()[i]; same != (i != 50) {
			t.Errorf("node %d: shared %t", i, same)
		}
	}

	if &before.Jobs()[0] != &after.Jobs()[0] {
		t.Error("the list of jobs was copied")
	}

	// A record under the key of another node would break the order of the list.
	apply("nodes/n-51", inventory.Node{Name: "x"})

	if v.current().Nodes()[51] != before.Nodes()[51] {
		t.Error("a record under the key of another node was applied")
	}
}

// TestOutageBound: a write during an outage is refused within two seconds, as documented,
// the first one included.
func TestOutageBound(t *testing.T) {
	t.Parallel()

	var v view
	v.init(&etcd.Client{}, testKinds, silent(), StaleAfter)

	if bound := v.probeEvery + v.probeTimeout + v.probeGrace; bound > 2*time.Second {
		t.Errorf("it is refused within %s", bound)
	}
}

// connectionsOf returns the connection settings of all nodes.
func connectionsOf(v *state.View) map[string]configuration.Connection {
	all := map[string]configuration.Connection{}
	for name, c := range record.All(v, &state.Connections) {
		all[name] = *c
	}

	return all
}

// BenchmarkView measures what one change of a record costs a view of 10 000 nodes and 2 000 jobs.
func BenchmarkView(b *testing.B) {
	v, apply := applier(b)
	for i := range 10_000 {
		name := fmt.Sprintf("n-%05d", i)
		apply("nodes/"+name, inventory.Node{Name: name, Addr: "10.0.0.1"})
	}

	for i := range 2000 {
		id := strconv.Itoa(i + 1)
		apply("jobs/"+id, job.Job{ID: id, Status: job.Complete, Targets: []job.Target{{Name: "n-00001"}}})
	}

	v.current()

	node := func(i int) {
		name := fmt.Sprintf("n-%05d", i*7%10_000)
		apply("nodes/"+name, inventory.Node{Name: name, Addr: strconv.Itoa(i)})
	}
	finish := func(i int) {
		id := strconv.Itoa(1 + i*7%2000)
		apply("jobs/"+id, job.Job{ID: id, Status: job.Complete, LogBytes: int64(i)})
	}

	for _, bench := range []struct {
		name   string
		change func(int)
		read   func()
	}{
		{"node/list", node, func() { v.current().Nodes() }},
		{"node/get", node, func() { v.current().Find("n-00007") }},
		{"job/list", finish, func() { v.current().Jobs() }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				bench.change(i)
				bench.read()
			}
		})
	}
}
