// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
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
func outdated(ctx context.Context, b *bench) error {
	w, err := b.full(ctx, "")
	if err != nil {
		return err
	}
	defer w.discard()

	if err := w.allocate(ctx, b.nodes); err != nil {
		return err
	}

	question := client.NodeFilter{Selector: "outdated=true", Limit: 1}

	// until asks until so many nodes are outdated, and returns the seconds since begun.
	until := func(ctx context.Context, want int, begun time.Time) (float64, error) {
		for {
			list, err := w.Nodes(ctx, question)
			if err != nil || list.Total == want {
				return time.Since(begun).Seconds(), err
			}

			if time.Since(begun) > time.Minute {
				return 0, fmt.Errorf("%d nodes are outdated, want %d", list.Total, want)
			}
		}
	}
	globals := func(ctx context.Context, release any) error {
		_, err := w.PatchVars(ctx, client.ScopeGlobal, api.Vars{"release": release})
		return err
	}

	for _, change := range []struct {
		name     string
		do, undo func(ctx context.Context) error
	}{
		{"the playbooks", w.changePlaybooks, func(context.Context) error { return nil }}, // the daemon does
		{
			"the globals",
			func(ctx context.Context) error { return globals(ctx, "2.0") },
			func(ctx context.Context) error { return globals(ctx, nil) },
		},
	} {
		err := b.compare(ctx, comparison{
			name:    fmt.Sprintf("%d nodes outdated after a change of %s", b.nodes, change.name),
			unit:    "s",
			against: "the same question without a change",
			rounds:  5,
			floor:   atMost(0, 0.5, "<= 0.5 s"),
			product: func(ctx context.Context) (float64, error) {
				if _, err := until(ctx, 0, time.Now()); err != nil {
					return 0, err
				}

				begun := time.Now()

				if err := change.do(ctx); err != nil {
					return 0, err
				}

				took, err := until(ctx, b.nodes, begun)

				return took, errors.Join(err, change.undo(ctx))
			},
			baseline: func(ctx context.Context) (float64, error) {
				begun := time.Now()
				_, err := w.Nodes(ctx, question)

				return time.Since(begun).Seconds(), err
			},
		})
		if err != nil {
			return err
		}
	}

	return nil
}

// benchPlaybooks is an instance's record of the playbooks in the store.
type benchPlaybooks struct {
	Digest string    `json:"digest"`
	Since  time.Time `json:"since"`
}

// changePlaybooks notes other playbooks for the only instance, as it does by itself some
// seconds after a change of its folder. At its next look the daemon corrects that.
func (w *world) changePlaybooks(ctx context.Context) error {
	resp, err := w.raw.Get(ctx, keys+"/v/playbooks/", clientv3.WithPrefix())
	if err != nil {
		return err
	}

	if len(resp.Kvs) != 1 {
		return fmt.Errorf("%d instances have noted their playbooks", len(resp.Kvs))
	}

	record, err := json.Marshal(benchPlaybooks{Digest: "another", Since: time.Now()})
	if err != nil {
		return err
	}

	_, err = w.raw.Put(ctx, string(resp.Kvs[0].Key), string(record))

	return err
}

// allocate puts all nodes into service in the records, as is desired.
func (w *world) allocate(ctx context.Context, count int) error {
	err := w.rewrite(ctx, count, func(record map[string]any) {
		record["status"], record["group"] = inventory.Allocated, inventory.GroupMaster
	})
	if err != nil {
		return err
	}

	n, err := w.Node(ctx, name(0))
	if err != nil {
		return err
	}

	if n.Desired == nil {
		return errors.New("a node in service has no desired configuration")
	}

	return w.rewrite(ctx, count, func(record map[string]any) {
		record["applied"] = "1"
		record["configured"] = map[string]any{
			"time": time.Now(), "group": inventory.GroupMaster,
			"playbooks": n.Desired.Playbooks, "variables": n.Desired.Variables,
		}
	})
}

// rewrite changes the records of all nodes, 100 in a transaction.
func (w *world) rewrite(ctx context.Context, count int, change func(record map[string]any)) error {
	const batch = 100

	for first := 0; first < count; first += batch {
		var ops []clientv3.Op

		for i := first; i < min(first+batch, count); i++ {
			key := keys + "/v/nodes/" + name(i)

			resp, err := w.raw.Get(ctx, key)
			if err != nil || len(resp.Kvs) != 1 {
				return fmt.Errorf("%s: %d records, %w", key, len(resp.Kvs), err)
			}

			var record map[string]any
			if err := json.Unmarshal(resp.Kvs[0].Value, &record); err != nil {
				return err
			}

			change(record)

			text, err := json.Marshal(record)
			if err != nil {
				return err
			}

			ops = append(ops, clientv3.OpPut(key, string(text)))
		}

		if _, err := w.raw.Txn(ctx).Then(ops...).Commit(); err != nil {
			return err
		}
	}

	return nil
}
