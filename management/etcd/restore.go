// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"encoding/json"
	"io"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/backup"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// A restore takes three steps. Its first transaction writes etcd.Restoring in the place of the version of the data: no
// instance, of whatever version, works with the store from then on. Then it removes what is there, and writes the
// records of the backup, in bounded transactions. Only the last one writes the version. A restore that was interrupted
// is repeated as a whole.

// Present is what a store has.
type Present struct {
	Records   int64 // without the version of the data
	Manager   string
	Epoch     int64
	Instances []string // the nodes of live instances
	Restoring bool     // a restore was interrupted
}

// Survey returns what the store has. It changes nothing.
func Survey(ctx context.Context, client *etcd.Client) (p Present, err error) {
	ctx, cancel := etcd.Bounded(ctx)
	defer cancel()

	s := &Store{client: client}

	resp, err := client.Txn(ctx).Then(
		clientv3.OpGet(client.SchemaKey()), clientv3.OpGet(client.Prefix+"/", clientv3.WithPrefix(),
			clientv3.WithCountOnly()), clientv3.OpGet(s.identityKey()),
		clientv3.OpGet(s.epochKey()), clientv3.OpGet(s.instancesPrefix(), clientv3.WithPrefix()),
	).Commit()
	if err != nil {
		return p, etcd.Error(err)
	}

	found := func(i int) *clientv3.GetResponse {
		return (*clientv3.GetResponse)(resp.Responses[i].GetResponseRange())
	}

	p.Records = found(1).Count

	for _, kv := range found(0).Kvs {
		p.Records--
		p.Restoring = string(kv.Value) == etcd.Restoring
	}

	for _, kv := range found(2).Kvs {
		p.Manager = string(kv.Value)
	}

	for _, kv := range found(3).Kvs {
		// One that cannot be read is outnumbered by the time.
		if e, err := state.Epochs.Decode("", kv.Value, 0); err == nil {
			p.Epoch = e.Number
		}
	}

	for _, kv := range found(4).Kvs {
		i, _ := decode[state.Instance](kv.Value)
		p.Instances = append(p.Instances, i.Node)
	}

	return p, nil
}

func (s *Store) epochKey() string { return EpochKey(s.client.Prefix) }

// EpochKey is the key of the epoch below a prefix.
func EpochKey(prefix string) string { return prefix + "/v/" + state.Epochs.Path("") }

// BeginRestore marks the store as one that is being restored, and begins the epoch. It is KindRefused if an instance is
// alive.
func BeginRestore(ctx context.Context, client *etcd.Client, epoch state.Epoch) error {
	ctx, cancel := etcd.Bounded(ctx)
	defer cancel()

	s := &Store{client: client}

	put, err := put(s.epochKey(), epoch)
	if err != nil {
		return err
	}

	alone := clientv3.Compare(clientv3.CreateRevision(s.instancesPrefix()), "=", 0).WithPrefix()

	resp, err := client.Txn(ctx).If(alone).
		Then(clientv3.OpPut(client.SchemaKey(), etcd.Restoring), put).Commit()

	switch {
	case err != nil:
		return etcd.Error(err)
	case !resp.Succeeded:
		return inventory.Errorf(inventory.KindRefused, "an instance of clusterm is alive below %s", client.Prefix).
			Do("stop clusterm on every host")
	}

	return nil
}

// EndSessions ends the sessions of all instances, as their leases would do by themselves after a while. None of them is
// alive.
func EndSessions(ctx context.Context, client *etcd.Client) error {
	ctx, cancel := etcd.Bounded(ctx)
	defer cancel()

	s := &Store{client: client}

	_, err := client.Txn(ctx).Then(
		clientv3.OpDelete(s.instancesPrefix(), clientv3.WithPrefix()), clientv3.OpDelete(s.holderKey()),
	).Commit()

	return etcd.Error(err)
}

// RestoreRecords replaces all records by those of a backup, except for what BeginRestore wrote. It may be repeated.
func RestoreRecords(ctx context.Context, client *etcd.Client, file io.Reader) error {
	if err := wipe(ctx, client); err != nil {
		return err
	}

	w := &restorer{ctx: ctx, client: client}

	_, err := backup.Scan(file, nil, func(part []byte) error {
		plain, err := record.Expand(part)
		if err != nil {
			return err
		}
		return backup.Records(plain, w.put)
	})
	if err != nil {
		return err
	}

	return w.flush()
}

// FinishRestore makes the restored store one that instances work with. schema is the version of the data.
func FinishRestore(ctx context.Context, client *etcd.Client, schema string) error {
	ctx, cancel := etcd.Bounded(ctx)
	defer cancel()

	_, err := client.Put(ctx, client.SchemaKey(), schema)

	return etcd.Error(err)
}

// wipe removes all records but the version of the data and the epoch.
func wipe(ctx context.Context, client *etcd.Client) error {
	kept := map[string]bool{client.SchemaKey(): true, (&Store{client: client}).epochKey(): true}
	prefix := client.Prefix + "/"
	from, end := prefix, clientv3.GetPrefixRangeEnd(prefix)

	for {
		bounded, cancel := etcd.Bounded(ctx)
		resp, err := client.Get(bounded, from, clientv3.WithRange(end), clientv3.WithKeysOnly(),
			clientv3.WithLimit(etcd.MaxOps))

		var ops []clientv3.Op

		if err == nil {
			for _, kv := range resp.Kvs {
				from = string(kv.Key) + "\x00"
				if !kept[string(kv.Key)] {
					ops = append(ops, clientv3.OpDelete(string(kv.Key)))
				}
			}

			_, err = client.Txn(bounded).Then(ops...).Commit()
		}

		cancel()

		if err != nil {
			return etcd.Error(err)
		}
		if !resp.More {
			return nil
		}
	}
}

// restorer writes records in bounded transactions.
type restorer struct {
	ctx    context.Context //nolint:containedctx // of one call of RestoreRecords
	client *etcd.Client
	ops    etcd.Ops
	bytes  int
}

// put writes a record of a backup.
func (w *restorer) put(key string, value []byte) error {
	value, err := restored(key, value)
	if err != nil || value == nil {
		return err
	}

	op := clientv3.OpPut(w.client.Prefix+"/"+key, string(value))
	size := len(key) + len(value)

	if len(w.ops.Then) >= etcd.MaxOps || w.bytes+size > etcd.MaxBytes {
		if err := w.flush(); err != nil {
			return err
		}
	}

	w.ops.Then = append(w.ops.Then, op)
	w.bytes += size

	return nil
}

func (w *restorer) flush() error {
	if len(w.ops.Then) == 0 {
		return nil
	}

	ctx, cancel := etcd.Bounded(w.ctx)
	defer cancel()

	_, err := w.client.Txn(ctx).Then(w.ops.Then...).Commit()
	w.ops, w.bytes = etcd.Ops{}, 0

	return etcd.Error(err)
}

// isInvitation reports whether a record is a token with which an instance may join.
func isInvitation(key string, value []byte) bool {
	id, is := strings.CutPrefix(key, "v/"+access.TokenKind.Path(""))
	if !is {
		return false
	}

	t, err := access.TokenKind.Decode(id, value, 0)

	return err == nil && t.Role == access.RoleInstance // the check of the records reports an error
}

// restored returns the value to write for a record of a backup; nil: none. What a record says about revisions of the
// store that was backed up is not true of another one.
func restored(key string, value []byte) ([]byte, error) {
	s := &Store{client: &etcd.Client{}}

	switch full := "/" + key; {
	case full == s.epochKey(), full == s.client.SchemaKey():
		return nil, nil
	case full == "/v/notified": // without it, notifications begin with what happens from now on
		return nil, nil
	case strings.HasPrefix(full, "/v/members/"): // their etcds are no members of this one; they join anew
		return nil, nil
	case strings.HasPrefix(full, s.instancesPrefix()), full == s.holderKey(), strings.HasPrefix(full, s.ownerKey("")):
		return nil, nil
	case isInvitation(key, value): // it may have been spent or revoked since
		return nil, nil
	case full == s.secretsKey():
		r, err := decode[secretsRecord](value)
		if err != nil {
			return value, nil //nolint:nilerr // the check of the records reports it
		}

		r.Marks = 0 // whatever was marked is looked for anew

		return json.Marshal(r)
	}

	return append([]byte{}, value...), nil
}
