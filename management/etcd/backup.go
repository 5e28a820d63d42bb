// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"io"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/backup"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// The bounds of a page of a backup: its records, and the bytes that it aims at.
const (
	backupPage  = 128
	backupBytes = 4 << 20
)

// Backup writes all records as they are at one revision, also while others change them. It leaves out what belongs to
// processes that are alive: everything under a lease, which is the presence and the lead of instances, and the
// ownership of jobs. version is that of clusterm. Before its first byte, an error left nothing in w.
func (s *Store) Backup(ctx context.Context, version string, w io.Writer) (backup.Trailer, error) {
	h, err := s.backupHeader(ctx)
	if err != nil {
		return backup.Trailer{}, err
	}

	h.Version = version

	out, err := backup.NewWriter(w, h, record.Compress)
	if err != nil {
		return backup.Trailer{}, err
	}

	prefix := s.client.Prefix + "/"
	from, end, limit := prefix, clientv3.GetPrefixRangeEnd(prefix), int64(1)

	for {
		page, cancel := etcd.Bounded(ctx)
		resp, err := s.client.Get(page, from, clientv3.WithRange(end), clientv3.WithRev(h.Revision),
			clientv3.WithLimit(limit))

		cancel()

		if err != nil {
			return backup.Trailer{}, backupError(err, h.Revision)
		}

		bytes := 0

		for _, kv := range resp.Kvs {
			from = string(kv.Key) + "\x00"
			bytes += len(kv.Key) + len(kv.Value)

			key := strings.TrimPrefix(string(kv.Key), prefix)
			if kv.Lease != 0 || string(kv.Key) == s.client.SchemaKey() {
				continue
			}

			if err := out.Add(key, kv.Value); err != nil {
				return backup.Trailer{}, err
			}
		}

		if !resp.More {
			return out.Close()
		}

		// The records that follow are about as large.
		limit = min(backupPage, 2*limit, max(1, limit*backupBytes/int64(max(bytes, 1))))
	}
}

// backupHeader returns the header of a backup of the newest revision.
func (s *Store) backupHeader(ctx context.Context) (h backup.Header, err error) {
	bounded, cancel := s.bounded(ctx)
	defer cancel()

	resp, err := s.client.Txn(bounded).Then(
		clientv3.OpGet(s.client.SchemaKey()), clientv3.OpGet(s.identityKey()), clientv3.OpGet(s.secretsKey()),
		clientv3.OpGet(s.epochKey()),
	).Commit()
	if err != nil {
		return h, s.failure(bounded, err)
	}

	h.Time, h.Revision = time.Now().UTC(), resp.Header.Revision

	for i, read := range []func(value []byte) error{
		func(value []byte) error { h.Schema = string(value); return nil },
		func(value []byte) error { h.Manager = string(value); return nil },
		func(value []byte) error {
			r, err := decode[secretsRecord](value)
			h.SecretsKey = r.Key
			return err
		},
		func(value []byte) error {
			e, err := state.Epochs.Decode("", value, 0)
			if err == nil {
				h.Epoch = e.Number
			}
			return err
		},
	} {
		for _, kv := range resp.Responses[i].GetResponseRange().Kvs {
			if err := read(kv.Value); err != nil {
				key := s.below(string(kv.Key))
				return h, inventory.Errorf(inventory.KindInternal, "the record %s cannot be read: %w", key, err).
					Do("see the check \"records\" of the health").With(inventory.ShowHealth())
			}
		}
	}

	return h, nil
}

// backupError explains why a page could not be read.
func backupError(err error, revision int64) error {
	wrapped := etcd.Error(err)
	if inventory.KindOf(wrapped) != inventory.KindConflict {
		return wrapped
	}
	return inventory.Errorf(inventory.KindUnavailable,
		"etcd has discarded revision %d while it was backed up: %w", revision, err).Do("begin the backup again")
}
