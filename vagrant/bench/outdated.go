// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// outdated measures the time from a change, of the playbooks or of the globals, until an
// answer shows that all nodes are outdated. The baseline is the same question when
// nothing has changed.
func outdated(ctx context.Context, b *bench) []row {
	w := b.full(ctx, "")
	w.allocate(ctx)

	ask := func() int {
		return must(w.Nodes(ctx, client.NodeFilter{Selector: "outdated=true", Limit: 1})).Total
	}
	// until asks until so many nodes are outdated.
	until := func(want int) {
		for begun := time.Now(); ; {
			total := ask()
			if total == want {
				return
			}
			if time.Since(begun) > time.Minute {
				fail("%d nodes are outdated, want %d", total, want)
			}
		}
	}
	after := func(what string, change, undo func()) row {
		return row{
			Name:     fmt.Sprintf("%d nodes outdated after a change of %s", b.nodes, what),
			Unit:     "s",
			Against:  "the same question without a change",
			Rounds:   5,
			floor:    atMost(0, 0.5, "<= 0.5 s"),
			baseline: func() float64 { return timed(func() { ask() }) },
			product: func() float64 {
				defer undo()
				until(0)
				return timed(func() { change(); until(b.nodes) })
			},
		}
	}
	globals := func(release any) func() {
		return func() { _ = must(w.PatchVars(ctx, client.ScopeGlobal, api.Vars{"release": release})) }
	}

	return []row{
		after("the playbooks", func() { w.changePlaybooks(ctx) }, func() {}), // the daemon undoes it
		after("the globals", globals("2.0"), globals(nil)),
	}
}

// changePlaybooks notes other playbooks for the only instance, as it does by itself some
// seconds after a change of its folder. At its next look the daemon corrects that.
func (w *world) changePlaybooks(ctx context.Context) {
	resp := must(w.raw.Get(ctx, keys+"/v/playbooks/", clientv3.WithPrefix()))
	if len(resp.Kvs) != 1 {
		fail("%d instances have noted their playbooks", len(resp.Kvs))
	}

	record := fmt.Sprintf(`{"digest":"another","since":%q}`, time.Now().Format(time.RFC3339Nano))
	_ = must(w.raw.Put(ctx, string(resp.Kvs[0].Key), record))
}

// allocate puts all nodes into service in the records, as is desired: three masters, and workers.
func (w *world) allocate(ctx context.Context) {
	group := func(i int) string {
		if i < 3 {
			return inventory.GroupMaster
		}
		return inventory.GroupWorker
	}

	w.rewrite(ctx, func(i int, record map[string]any) {
		record["status"], record["group"] = inventory.Allocated, group(i)
	})

	desired := map[string]inventory.Configuration{}

	for _, i := range []int{0, 3} {
		n := must(w.Node(ctx, name(i)))
		if n.Desired == nil {
			fail("a node in service has no desired configuration")
		}

		desired[group(i)] = *n.Desired
	}

	w.rewrite(ctx, func(i int, record map[string]any) {
		record["applied"] = "1"
		record["configured"] = map[string]any{
			"time": time.Now(), "group": group(i),
			"playbooks": desired[group(i)].Playbooks, "variables": desired[group(i)].Variables,
		}
	})
}

// rewrite changes the records of all nodes.
func (w *world) rewrite(ctx context.Context, change func(i int, record map[string]any)) {
	w.puts(ctx, w.bench.nodes, func(i int) clientv3.Op {
		key := keys + "/v/nodes/" + name(i)
		record := map[string]any{}

		for _, kv := range must(w.raw.Get(ctx, key)).Kvs {
			check(json.Unmarshal(kv.Value, &record))
		}

		change(i, record)

		return clientv3.OpPut(key, string(must(json.Marshal(record))))
	})
}
