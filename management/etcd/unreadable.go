// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/job"
)

// Unreadable is a record that cannot be decoded.
type Unreadable struct {
	Key    string // below the prefix, e.g. v/nodes/NAME
	Reason error
}

// decoders decode the value of a key by the first two parts of the key, and report
// only whether that succeeds. name is the rest of the key.
var decoders = map[string]func(name string, kv *mvccpb.KeyValue) error{
	"v/nodes":       func(name string, kv *mvccpb.KeyValue) error { return errorOf(decodeNode(name, kv)) },
	"v/jobs":        func(name string, kv *mvccpb.KeyValue) error { return errorOf(decodeJob(name, kv)) },
	"v/vars":        decodes[variablesRecord],
	"v/connections": decodes[connectionRecord],
	"v/tombstones":  decodes[tombstoneRecord],
	"v/overlay":     decodes[overlayRecord],
	"v/files":       decodes[fileRecord],
	"v/instances":   decodes[instanceRecord],
	"v/holder":      decodes[instanceRecord],
	"v/owners":      decodes[ownerRecord],
	"v/seq":         func(_ string, kv *mvccpb.KeyValue) error { return errorOf(decodeNumber(kv)) },
	"x/history":     decodes[historyRecord],
	"x/vars":        decodes[variablesChangeRecord],
	"x/results":     decodes[resultRecord],
	"x/inputs":      func(_ string, kv *mvccpb.KeyValue) error { return errorOf(decodeInputs(kv)) },
	"x/log":         func(_ string, kv *mvccpb.KeyValue) error { return errorOf(expand(kv.Value)) },
	"x/tail":        func(_ string, kv *mvccpb.KeyValue) error { return errorOf(decodeNumber(kv)) },
}

func errorOf[T any](_ T, err error) error { return err }

func decodes[R any](_ string, kv *mvccpb.KeyValue) error { return errorOf(decode[R](kv.Value)) }

func decodeNumber(kv *mvccpb.KeyValue) (uint64, error) {
	return strconv.ParseUint(string(kv.Value), 10, 64)
}

// decodable decodes a record under a key below the prefix. It accepts unknown keys.
func decodable(key string, kv *mvccpb.KeyValue) error {
	room, rest, _ := strings.Cut(key, "/")
	kind, name, _ := strings.Cut(rest, "/")

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
func CheckRecords(ctx context.Context, client *etcd.Client) (count int, unreadable []Unreadable, err error) {
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
			if err := decodable(key, kv); err != nil {
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
// decoded. It refuses to remove any other record.
func RemoveUnreadable(ctx context.Context, client *etcd.Client, key string) error {
	ctx, cancel := etcd.Bounded(ctx)
	defer cancel()

	full := client.Prefix + "/" + key

	resp, err := client.Get(ctx, full)
	if err != nil {
		return etcd.Error(err)
	}

	if len(resp.Kvs) == 0 {
		return inventory.Errorf(inventory.KindNotFound, "there is no record %s", key).
			Do("list the unreadable records: clusterm store check")
	}

	kv := resp.Kvs[0]
	if decodable(key, kv) == nil {
		return inventory.Errorf(inventory.KindRefused, "the record %s can be read, so it stays", key).
			Do("list the unreadable records: clusterm store check")
	}

	repair := clientv3.OpDelete(full)
	if key == "v/seq" {
		if repair, err = restoreSeq(ctx, client, full); err != nil {
			return err
		}
	}

	txn, err := client.Txn(ctx).If(atRevision(full, kv.ModRevision)).
		Then(repair, clientv3.OpPut(headKey(client.Prefix), "")).Commit()
	if err == nil && !txn.Succeeded {
		return inventory.Errorf(inventory.KindConflict, "the record %s changed meanwhile", key).Do("try again")
	}

	return etcd.Error(err)
}

// restoreSeq returns the write of the number of the newest job that is left. Without
// it, the numbers would begin again.
func restoreSeq(ctx context.Context, client *etcd.Client, key string) (clientv3.Op, error) {
	jobs := client.Prefix + "/v/jobs/"

	resp, err := client.Get(ctx, jobs, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return clientv3.Op{}, etcd.Error(err)
	}

	newest := uint64(0)
	for _, kv := range resp.Kvs {
		newest = max(newest, job.Job{ID: strings.TrimPrefix(string(kv.Key), jobs)}.Seq())
	}

	return clientv3.OpPut(key, strconv.FormatUint(newest, 10)), nil
}
