// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/state"
)

func (s *Store) identityKey() string { return s.key("/identity") }

// Identity returns the identity of the stored cluster, 16 hexadecimal digits. All
// instances that share the store have the same one, and a restored backup keeps
// it. The first call writes it, the former one or, if that is empty, a new one; later calls write nothing.
// With a former identity, a later life of the manager begins, so it begins an epoch as well.
func (s *Store) Identity(ctx context.Context, former string) (string, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()

	id, err := s.storedIdentity(ctx)
	if id != "" || err != nil {
		return id, err
	}

	ops := etcd.Ops{If: []clientv3.Cmp{atRevision(s.identityKey(), 0)}}

	if id = former; former == "" {
		var b [8]byte
		rand.Read(b[:])
		id = hex.EncodeToString(b[:])
	} else {
		epoch := state.Epoch{Number: state.NextEpoch(time.Now(), state.EpochOf(s.View()))}

		begin, err := put(s.epochKey(), epoch)
		if err != nil {
			return "", err
		}

		ops.Then = append(ops.Then, begin)
	}

	ops.Then = append(ops.Then, clientv3.OpPut(s.identityKey(), id))

	// Another instance may have been faster.
	switch _, err = s.commit(ctx, ops); {
	case inventory.KindOf(err) == inventory.KindConflict:
		return s.storedIdentity(ctx)
	case err != nil:
		return "", err
	}

	return id, nil
}

// storedIdentity returns the identity, or "" if there is none.
func (s *Store) storedIdentity(ctx context.Context) (string, error) {
	resp, err := s.client.Get(ctx, s.identityKey())
	if err != nil || len(resp.Kvs) == 0 {
		return "", s.failure(ctx, err)
	}
	return string(resp.Kvs[0].Value), nil
}
