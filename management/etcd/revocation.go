// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/access"
)

var _ access.RevocationStore = (*Store)(nil)

// revocationRecord is a revoked client certificate.
type revocationRecord struct {
	Serial  string    `json:"serial"`
	Name    string    `json:"name,omitempty"`
	Expires time.Time `json:"expires,omitzero"`
	Time    time.Time `json:"time"`
	By      string    `json:"by,omitempty"`
}

func newRevocationRecord(r access.Revocation) revocationRecord {
	return revocationRecord{Serial: r.Serial, Name: r.Name, Expires: r.Expires, Time: r.Time, By: r.By}
}

func (r revocationRecord) revocation() access.Revocation {
	return access.Revocation{Serial: r.Serial, Name: r.Name, Expires: r.Expires, Time: r.Time, By: r.By}
}

func (s *Store) revocationKey(serial string) string { return s.key("/v/revocations/%s", serial) }

// Revocations returns the revoked certificates of the newest view by serial number.
func (s *Store) Revocations() map[string]access.Revocation {
	s.view.mu.Lock()
	defer s.view.mu.Unlock()

	return s.view.revocations.share()
}

// AddRevocation stores a revocation, and removes those with the other serial numbers.
func (s *Store) AddRevocation(ctx context.Context, r access.Revocation, remove []string) (int64, error) {
	write, err := put(s.revocationKey(r.Serial), newRevocationRecord(r))
	if err != nil {
		return 0, err
	}

	ops := etcd.Ops{Then: []clientv3.Op{write}}
	for _, serial := range remove {
		ops.Then = append(ops.Then, clientv3.OpDelete(s.revocationKey(serial)))
	}

	return s.commit(ctx, ops)
}
