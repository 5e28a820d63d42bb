// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/state"
)

// playbooksRecord names the playbooks that an instance would run now.
type playbooksRecord struct {
	Digest  string    `json:"digest,omitempty"`
	Commit  string    `json:"commit,omitempty"`
	Since   time.Time `json:"since"`
	Problem string    `json:"problem,omitempty"`
}

func newPlaybooksRecord(p state.Playbooks) playbooksRecord { return playbooksRecord(p) }
func (r playbooksRecord) playbooks() state.Playbooks       { return state.Playbooks(r) }

func (s *Store) playbooksKey(instance string) string { return s.key("/v/playbooks/%s", instance) }

// NotePlaybooks stores which playbooks an instance would run now. It writes nothing if
// they are those that are stored.
func (s *Store) NotePlaybooks(ctx context.Context, instance string, p state.Playbooks) error {
	stored, known := s.View().Playbooks[instance]

	stored.Since = p.Since
	if known && stored == p {
		return nil
	}

	op, err := put(s.playbooksKey(instance), newPlaybooksRecord(p))
	if err != nil {
		return err
	}

	_, err = s.commit(ctx, etcd.Ops{Then: []clientv3.Op{op}})

	return err
}
