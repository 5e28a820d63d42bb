// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// TestNodeOps checks the bound of the history and the precondition of every write.
func TestNodeOps(t *testing.T) {
	t.Parallel()

	s := store(t)
	ctx := within(t, patience)

	// commit returns the new revision, or 0 if the precondition failed.
	commit := func(ops etcd.Ops, err error) int64 {
		t.Helper()
		must(t, err)

		resp, err := s.client.Txn(ctx).If(ops.If...).Then(ops.Then...).Commit()
		must(t, err)

		if !resp.Succeeded {
			return 0
		}

		return resp.Header.Revision
	}

	n := inventory.Node{Name: "a-1"}
	for seq := uint64(0); seq < inventory.HistoryLimit+5; {
		var entries []inventory.HistoryEntry
		for range 15 {
			seq++
			entries = append(entries, inventory.HistoryEntry{Seq: seq})
		}

		if n.Revision = commit(s.putNodeOps(n, entries)); n.Revision == 0 {
			t.Fatalf("the write of entry %d failed its precondition", seq)
		}
	}

	kept, err := s.client.Get(ctx, s.historyPrefix("a-1"), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	must(t, err)

	if len(kept.Kvs) != inventory.HistoryLimit || string(kept.Kvs[0].Key) != s.historyKey("a-1", 6) {
		t.Errorf("%d entries are left, want %d", len(kept.Kvs), inventory.HistoryLimit)
	}

	stale := n
	stale.Revision--

	tombstone := inventory.Tombstone{Name: "a-1"}

	wrote := commit(s.putNodeOps(stale, nil)) != 0
	forgot := commit(s.forgetOps(stale, tombstone)) != 0
	created := commit(s.putNodeOps(inventory.Node{Name: "a-1"}, nil)) != 0

	if wrote || forgot || created {
		t.Error("a write on a stale revision was committed")
	}

	// The name of the other node begins with the name of the forgotten one.
	other := commit(s.putNodeOps(inventory.Node{Name: "a-10"}, []inventory.HistoryEntry{{Seq: 1}}))
	if other == 0 || commit(s.forgetOps(n, tombstone)) == 0 {
		t.Error("a write on the current revision failed its precondition")
	}

	left, err := s.client.Get(ctx, s.client.Prefix+"/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	must(t, err)

	var keys []string
	for _, kv := range left.Kvs {
		keys = append(keys, strings.TrimPrefix(string(kv.Key), s.client.Prefix))
	}

	want := "/v/nodes/a-10 /v/tombstones/a-1 /x/history/a-10/0000000000000001"
	if got := strings.Join(keys, " "); got != want {
		t.Errorf("the keys %s are left, want %s", got, want)
	}
}

// TestAppeared: a node whose agent speaks is new only if no machine was registered since that was decided. It goes with
// what its agent said.
func TestAppeared(t *testing.T) {
	t.Parallel()

	s := store(t)
	ctx := within(t, patience)
	decided := s.View().Revision

	appear := func(decided int64, from, to int) (conflicts []string) {
		t.Helper()

		var writes []state.NodeWrite
		for i := from; i < to; i++ {
			o := inventory.Observation{Observer: "gossip", Label: "n", Serial: fmt.Sprint(i), Alive: true}
			n, entry := inventory.NewNode(o, nil, noon)
			writes = append(writes, state.NodeWrite{
				Node: n, Entries: []inventory.HistoryEntry{entry},
				Agent: &state.Agent{Node: n.Name, MACs: []string{"52:54:00:aa:00:01"}}, Decided: decided,
			})
		}

		conflicts, err := s.PutNodes(ctx, writes)
		must(t, err)

		return conflicts
	}

	const many = 100 // of several transactions
	if conflicts := appear(decided, 0, many); len(conflicts) > 0 || len(s.View().Nodes()) != many {
		t.Errorf("%d nodes, and conflicts of %d", len(s.View().Nodes()), len(conflicts))
	}

	_, _, err := record.Decide(ctx, s, func(tx *record.Tx) (none struct{}, err error) {
		record.Put(tx, &state.Machines, &state.Machine{Machine: machine.Machine{Node: "r1"}})
		return none, nil
	})
	must(t, err)

	if conflicts := appear(decided, many, many+1); len(conflicts) != 1 || len(s.View().Nodes()) != many {
		t.Errorf("after a registration: %d nodes, conflicts %q", len(s.View().Nodes()), conflicts)
	}

	if conflicts := appear(s.View().Revision, many, many+1); len(conflicts) > 0 {
		t.Errorf("decided anew: %q", conflicts)
	}

	n, err := s.View().Node("n-7")
	must(t, err)

	if a := record.Get(s.View(), &state.Agents, n.Name); a == nil || len(a.MACs) != 1 {
		t.Errorf("%+v", a)
	}

	gone := state.NodeWrite{Node: n, Tombstone: &inventory.Tombstone{Name: n.Name}}
	_, err = s.Forget(ctx, s.View().Revision, nil, []state.NodeWrite{gone}, nil)
	must(t, err)

	if a := record.Get(s.View(), &state.Agents, n.Name); a != nil {
		t.Errorf("it is forgotten: %+v", a)
	}
}
