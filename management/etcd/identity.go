// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"crypto/rand"
	"encoding/hex"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func (s *Store) identityKey() string { return s.key("/identity") }

// Identity returns the identity of the stored cluster, 16 hexadecimal digits. All
// instances that share the store have the same one, and a restored backup keeps
// it. The first call writes it, the former one or, if that is empty, a new one; later calls write nothing.
func (s *Store) Identity(ctx context.Context, former string) (string, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()

	resp, err := s.client.Get(ctx, s.identityKey())
	if err != nil {
		return "", s.failure(ctx, err)
	}
	if len(resp.Kvs) > 0 {
		return string(resp.Kvs[0].Value), nil
	}

	id := former
	if id == "" {
		var b [8]byte
		rand.Read(b[:])
		id = hex.EncodeToString(b[:])
	}

	// Another instance may have been faster.
	txn, err := s.client.Txn(ctx).If(atRevision(s.identityKey(), 0)).
		Then(clientv3.OpPut(s.identityKey(), id)).Else(clientv3.OpGet(s.identityKey())).Commit()
	if err != nil {
		return "", s.failure(ctx, err)
	}
	if !txn.Succeeded {
		id = string(txn.Responses[0].GetResponseRange().Kvs[0].Value)
	}

	return id, nil
}
