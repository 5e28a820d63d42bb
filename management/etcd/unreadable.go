// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/audit"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/plan"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
)

// Unreadable is a record that cannot be decoded.
type Unreadable struct {
	Key    string // below the prefix, e.g. v/nodes/NAME
	Reason error
}

// decoders decode the value of a key by the first two parts of the key, and report
// only whether that succeeds. name is the rest of the key.
var decoders = map[string]func(name string, kv *mvccpb.KeyValue) error{
	"x/audit":   func(name string, kv *mvccpb.KeyValue) error { return audit.Check(name, kv.Value) },
	"x/history": decodes[inventory.HistoryEntry],
	"x/vars":    decodes[variablesChangeRecord],
	"x/results": decodes[access.Result],
	"x/inputs":  func(_ string, kv *mvccpb.KeyValue) error { return errorOf(decodeInputs(kv)) },
	"x/secrets": decodes[secretsRecord],
	"x/log":     func(_ string, kv *mvccpb.KeyValue) error { return errorOf(record.Expand(kv.Value)) },
	"x/tail":    func(_ string, kv *mvccpb.KeyValue) error { return errorOf(decodeNumber(kv)) },
}

func errorOf[T any](_ T, err error) error { return err }

func decodes[R any](_ string, kv *mvccpb.KeyValue) error { return errorOf(decode[R](kv.Value)) }

func decodeNumber(kv *mvccpb.KeyValue) (uint64, error) {
	return strconv.ParseUint(string(kv.Value), 10, 64)
}

// decodable decodes a record under a key below the prefix. It accepts unknown keys.
func decodable(kinds []record.Any, key string, kv *mvccpb.KeyValue) error {
	room, rest, _ := strings.Cut(key, "/")
	kind, name, _ := strings.Cut(rest, "/")

	for _, k := range kinds {
		if room == "v" && k.KindName() == kind {
			return k.Check(name, kv.Value)
		}
	}

	decode, known := decoders[room+"/"+kind]
	if !known {
		return nil
	}
	return decode(name, kv)
}

// checkPage is the number of records in one request of CheckRecords.
const checkPage = 500

// CheckRecords reads and decodes all records. It returns their number and the
// unreadable ones.
func CheckRecords(
	ctx context.Context, client *etcd.Client, kinds []record.Any,
) (count int, unreadable []Unreadable, err error) {
	prefix := client.Prefix + "/"
	from, end := prefix, clientv3.GetPrefixRangeEnd(prefix)

	for {
		bounded, cancel := etcd.Bounded(ctx)
		resp, err := client.Get(bounded, from, clientv3.WithRange(end), clientv3.WithLimit(checkPage))

		cancel()

		if err != nil {
			return count, unreadable, etcd.Error(err)
		}

		for _, kv := range resp.Kvs {
			count++

			key := strings.TrimPrefix(string(kv.Key), prefix)
			if err := decodable(kinds, key, kv); err != nil {
				unreadable = append(unreadable, Unreadable{key, err})
			}

			from = string(kv.Key) + "\x00"
		}

		if !resp.More {
			return count, unreadable, nil
		}
	}
}

// RemoveUnreadable removes the record under a key below the prefix, if it cannot be
// decoded. It refuses to remove any other record. The host of a removed node may carry
// configuration, so a tombstone stays; the nodes of a removed job become Quarantined.
func RemoveUnreadable(ctx context.Context, client *etcd.Client, kinds []record.Any, key string) error {
	full := client.Prefix + "/" + key

	resp, err := get(ctx, client, full)
	if err != nil {
		return err
	}

	if len(resp.Kvs) == 0 {
		return inventory.Errorf(inventory.KindNotFound, "there is no record %s", key).
			Do("list the unreadable records: clusterm store check")
	}

	kv := resp.Kvs[0]

	torn, err := isTorn(ctx, client, kinds, key, kv)
	if err != nil {
		return err
	}

	if decodable(kinds, key, kv) == nil && !torn {
		return inventory.Errorf(inventory.KindRefused, "the record %s can be read, so it stays", key).
			Do("list the unreadable records: clusterm store check")
	}

	chunks, err := repairs(ctx, client, key)
	if err != nil {
		return err
	}

	// The last chunk removes the record, so a failure before it can be repeated.
	for _, ops := range chunks {
		ops.Add(etcd.Ops{
			If: []clientv3.Cmp{atRevision(full, kv.ModRevision)},
			Then: []clientv3.Op{
				clientv3.OpPut(allGenerations(client.Prefix), "remove"),
				clientv3.OpPut(headKey(client.Prefix), ""),
			},
		})

		bounded, cancel := etcd.Bounded(ctx)
		txn, err := client.Txn(bounded).If(ops.If...).Then(ops.Then...).Commit()

		cancel()

		if err != nil {
			return etcd.Error(err)
		}

		if !txn.Succeeded {
			return inventory.Errorf(inventory.KindConflict, "the record %s, or a node of it, changed meanwhile", key).
				Do("try again")
		}
	}

	return nil
}

// isTorn reports whether a record in several keys cannot be read because of its other keys.
func isTorn(
	ctx context.Context, client *etcd.Client, kinds []record.Any, key string, kv *mvccpb.KeyValue,
) (bool, error) {
	path, _ := strings.CutPrefix(key, "v/")
	tables := record.NewTables(kinds)

	if _, known := tables.Subject(path); !known {
		return false, nil
	}

	resp, err := get(ctx, client, string(kv.Key)+"/", clientv3.WithPrefix())
	if err != nil {
		return false, err
	}

	for _, kv := range append(resp.Kvs, kv) {
		path := strings.TrimPrefix(string(kv.Key), client.Prefix+"/v/")
		if tables.Apply(path, kv.Value, kv.ModRevision) != nil {
			return true, nil
		}
	}

	tables.View()

	return cmp.Or(slices.Collect(maps.Values(tables.Joined()))...) != nil, nil
}

// get reads one key, or all below a prefix.
func get(
	ctx context.Context, client *etcd.Client, key string, opts ...clientv3.OpOption,
) (*clientv3.GetResponse, error) {
	ctx, cancel := etcd.Bounded(ctx)
	defer cancel()
	resp, err := client.Get(ctx, key, opts...)
	return resp, etcd.Error(err)
}

// repairOps is the number of operations that RemoveUnreadable adds to a chunk, without
// the head key.
const repairOps = 1

// repairs returns the transactions that remove a record with everything that is of no
// use without it.
func repairs(ctx context.Context, client *etcd.Client, key string) ([]etcd.Ops, error) {
	s := &Store{client: client}
	full := client.Prefix + "/" + key

	below, _ := strings.CutPrefix(key, "v/") // the keys below /x have other kinds

	switch kind, name, _ := strings.Cut(below, "/"); {
	case kind == job.Newest.Name:
		restore, err := restoreSeq(ctx, client, full)
		return []etcd.Ops{{Then: []clientv3.Op{restore}}}, err
	case kind == "nodes":
		tombstone, err := s.unknownTombstone(ctx, name)
		forget, history := clientv3.OpDelete(full), clientv3.OpDelete(s.historyPrefix(name), clientv3.WithPrefix())
		return []etcd.Ops{{Then: []clientv3.Op{forget, history, tombstone}}}, err
	case kind == "tombstones":
		tombstone, err := s.unknownTombstone(ctx, name)
		return []etcd.Ops{{Then: []clientv3.Op{tombstone}}}, err
	case kind == "jobs":
		return s.removeJob(ctx, name)
	case kind == plan.Kind.Name, kind == rollout.Kind.Name:
		// A chunk is of no use without the others.
		id, _, _ := strings.Cut(name, "/")
		head := s.key("/v/%s/%s", kind, id)

		return []etcd.Ops{{Then: []clientv3.Op{
			clientv3.OpDelete(s.inputsKey(job.InputsName(kind, id))),
			clientv3.OpDelete(head+"/", clientv3.WithPrefix()),
			clientv3.OpDelete(head),
		}}}, nil
	}

	return []etcd.Ops{{Then: []clientv3.Op{clientv3.OpDelete(full)}}}, nil
}

// remover is the actor of the changes by RemoveUnreadable.
const remover = "clusterm store remove"

// unknownTombstone returns the write of a tombstone for a node with an unknown residue.
// The host can carry no other groups than those of the history.
func (s *Store) unknownTombstone(ctx context.Context, name string) (clientv3.Op, error) {
	resp, err := get(ctx, s.client, s.historyPrefix(name), clientv3.WithPrefix())
	if err != nil {
		return clientv3.Op{}, err
	}

	t := inventory.Tombstone{
		Name: name, Time: time.Now(), Actor: remover, Reason: "unreadable record removed", Uncleaned: true,
	}

	for _, kv := range resp.Kvs {
		e, err := decode[inventory.HistoryEntry](kv.Value)
		if err == nil && e.Group != "" && !slices.Contains(t.Residue, e.Group) {
			t.Residue = append(t.Residue, e.Group)
		}
	}

	return put(s.tombstoneKey(name), t)
}

// removeJob returns the transactions that remove a job with its inputs and logs, and
// quarantine the nodes that it holds.
func (s *Store) removeJob(ctx context.Context, id string) ([]etcd.Ops, error) {
	prefix := s.nodeKey("")

	resp, err := get(ctx, s.client, prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}

	reason := "the unreadable record of job " + id + " was removed, so its effect on the host is unknown"
	trigger := inventory.Trigger{Actor: remover, Job: id, Time: time.Now()}

	var parts []etcd.Ops
	for _, kv := range resp.Kvs {
		n, err := job.Nodes.Decode(strings.TrimPrefix(string(kv.Key), prefix), kv.Value, kv.ModRevision)
		if err != nil || n.Job != id || n.Before == nil {
			continue
		}

		// The host may carry its group before the job as well.
		residue := slices.DeleteFunc(n.Unreserved().Carries(), func(group string) bool { return group == n.Group })
		m, e := n.Release(inventory.Outcome{
			Status: inventory.Quarantined, Group: n.Group, Playbooks: n.Playbooks, Residue: residue,
			Error: reason, Reason: reason, Uncleaned: n.Status == inventory.Cleaning,
		}, trigger)

		ops, err := s.putNodeOps(m, []inventory.HistoryEntry{e})
		if err != nil {
			return nil, err
		}
		parts = append(parts, ops)
	}

	return pack(append(parts, etcd.Ops{Then: s.dropJobOps(id)}), repairOps), nil
}

// restoreSeq returns the write of the number of the newest job that is left. Without
// it, the numbers would begin again.
func restoreSeq(ctx context.Context, client *etcd.Client, key string) (clientv3.Op, error) {
	jobs := client.Prefix + "/v/jobs/"

	resp, err := get(ctx, client, jobs, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return clientv3.Op{}, err
	}

	newest := uint64(0)
	for _, kv := range resp.Kvs {
		newest = max(newest, job.Job{ID: strings.TrimPrefix(string(kv.Key), jobs)}.Seq())
	}

	return clientv3.OpPut(key, strconv.FormatUint(newest, 10)), nil
}
