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

	"github.com/sirupsen/logrus/hooks/test"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

// told is a view without a store, which is told things.
func told(t *testing.T) (v *view, tell func(key string, value any)) {
	t.Helper()
	log, _ := test.NewNullLogger()
	v = &view{}
	v.empty(&etcd.Client{Prefix: "/p"}, log, StaleAfter)
	revision := int64(0)

	return v, func(key string, value any) {
		revision++

		e := &clientv3.Event{
			Type: mvccpb.Event_DELETE,
			Kv:   &mvccpb.KeyValue{Key: []byte("/p/v/" + key), ModRevision: revision},
		}
		if value != nil {
			b, err := json.Marshal(value)
			if err != nil {
				t.Fatal(err)
			}

			e.Type, e.Kv.Value = mvccpb.Event_PUT, b
		}

		v.mu.Lock()
		defer v.mu.Unlock()
		v.apply(e)
		v.publish(revision)
	}
}

// naive is what the view should show, made from nothing.
func naive(v *view) (nodes []inventory.Node, jobs []string) {
	for _, n := range v.nodes {
		m := *n
		if n.Before != nil && v.jobs[n.Job].Status != job.Running {
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

	for _, j := range v.jobs {
		jobs = append(jobs, j.ID)
	}

	slices.SortFunc(jobs, func(a, b string) int { x, _ := strconv.Atoi(a); y, _ := strconv.Atoi(b); return x - y })

	return nodes, jobs
}

// TestViewFollows: whatever comes in whatever order, and however much between
// two looks, the view shows what one made from nothing would; and no view that
// was handed out ever changes.
func TestViewFollows(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	v, tell := told(t)
	type old struct {
		view *state.View
		text string
	}

	var olds []old
	for round := range 400 {
		for range r.IntN(4) {
			name, id := "n-"+strconv.Itoa(r.IntN(40)), strconv.Itoa(1+r.IntN(12))
			switch r.IntN(5) {
			case 0:
				tell("nodes/"+name, nil)
			case 1:
				tell("nodes/"+name, inventory.Node{Name: name, Status: inventory.Unallocated, Entries: uint64(round)})
			case 2:
				tell("nodes/"+name, inventory.Node{
					Name:   name,
					Status: inventory.Provisioning,
					Job:    id,
					Before: &inventory.Before{Status: inventory.Unallocated},
				})
			case 3:
				status := []job.Status{job.Queued, job.Running, job.Complete}[r.IntN(3)]
				tell("jobs/"+id, job.Job{ID: id, Status: status})
			case 4:
				if r.IntN(4) == 0 {
					tell("jobs/"+id, nil)
				} else {
					tell("connections/"+name, map[string]any{"user": strconv.Itoa(round)})
				}
			}
		}

		got := v.current()
		nodes, jobs := naive(v)

		shown := []inventory.Node(nil)
		for _, n := range got.Nodes {
			shown = append(shown, *n)
		}

		var ids []string
		for _, j := range got.Jobs {
			ids = append(ids, j.ID)
		}

		if got.Nodes == nil || !reflect.DeepEqual(shown, nodes) || !slices.Equal(ids, jobs) {
			t.Fatalf("round %d: it shows\n%+v %v\nand should\n%+v %v", round, shown, ids, nodes, jobs)
		}

		olds = append(olds, old{got, fmt.Sprintf("%+v %v %v", shown, ids, got.Connections)})
	}

	for i, o := range olds {
		var nodes []inventory.Node
		for _, n := range o.view.Nodes {
			nodes = append(nodes, *n)
		}

		var ids []string
		for _, j := range o.view.Jobs {
			ids = append(ids, j.ID)
		}

		if text := fmt.Sprintf("%+v %v %v", nodes, ids, o.view.Connections); text != o.text {
			t.Fatalf("view %d was\n%s\nand has become\n%s", i, o.text, text)
		}
	}
}

// TestViewShares: what has not changed is the same record in the next view, and
// a list in which nothing has is the same list.
func TestViewShares(t *testing.T) {
	t.Parallel()

	v, tell := told(t)
	for i := range 100 {
		name := fmt.Sprintf("n-%02d", i)
		tell("nodes/"+name, inventory.Node{Name: name})
	}

	tell("jobs/1", job.Job{ID: "1", Status: job.Queued})
	before := v.current()
	tell("nodes/n-50", inventory.Node{Name: "n-50", Addr: "10.0.0.1"})

	after := v.current()
	for i := range after.Nodes {
		if same := after.Nodes[i] == before.Nodes[i]; same != (i != 50) {
			t.Errorf("node %d: the same record: %t", i, same)
		}
	}

	if &before.Jobs[0] != &after.Jobs[0] {
		t.Error("the jobs were copied")
	}

	// A record under the name of another is refused: the order would be lost.
	tell("nodes/n-51", inventory.Node{Name: "x"})

	if v.current().Nodes[51] != before.Nodes[51] {
		t.Error("a record of another node was taken")
	}
}
