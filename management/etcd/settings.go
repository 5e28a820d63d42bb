// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"cmp"
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory/etcd"
)

// overlayRecord holds the configuration keys set at run time. configuration.Vars
// has the codec of their values, which keeps every digit of a number.
type overlayRecord struct {
	Keys configuration.Vars `json:"keys"`
}

func newOverlayRecord(overlay map[string]any) overlayRecord { return overlayRecord{overlay} }
func (r overlayRecord) overlay() map[string]any             { return r.Keys }

// fileRecord identifies the content of an instance's configuration file.
type fileRecord struct {
	Digest string `json:"digest"`
}

func newFileRecord(digest string) fileRecord { return fileRecord{digest} }
func (r fileRecord) digest() string          { return r.Digest }

func (s *Store) overlayKey() string             { return s.key("/v/overlay") }
func (s *Store) fileKey(instance string) string { return s.key("/v/files/%s", instance) }

// PutOverlay replaces the configuration keys set at run time. It is KindConflict if
// they, or the marks of secret variables, changed after the revision; 0 skips that check.
func (s *Store) PutOverlay(ctx context.Context, revision int64, overlay map[string]any) (int64, error) {
	// An empty overlay is stored as well: its revision dates the removal of the
	// last key, which is a change of the configuration.
	if overlay == nil {
		overlay = map[string]any{}
	}

	defer s.secrets.hold()()

	v := s.View()
	marks := s.sameMarks(cmp.Or(revision, v.Revision))

	stored, err := s.secrets.sealOverlay(markedOverlay(overlay, v.Marked()))
	if err != nil {
		return 0, err
	}

	op, err := put(s.overlayKey(), newOverlayRecord(stored))
	if err != nil {
		return 0, err
	}

	ops := etcd.Ops{If: []clientv3.Cmp{marks}, Then: []clientv3.Op{op}}
	if revision > 0 {
		ops.If = append(ops.If, unchanged(s.overlayKey(), revision))
	}

	return s.commit(ctx, ops)
}

// NoteFile stores the digest of an instance's configuration file. A new digest is a
// change of the configuration, like a change of the overlay.
func (s *Store) NoteFile(ctx context.Context, instance, digest string) error {
	// A restart with the same file is no change of the configuration.
	s.view.mu.Lock()
	unchanged := s.view.files[instance] == digest
	s.view.mu.Unlock()

	if unchanged {
		return nil
	}

	op, err := put(s.fileKey(instance), newFileRecord(digest))
	if err != nil {
		return err
	}

	_, err = s.commit(ctx, etcd.Ops{Then: []clientv3.Op{op}})

	return err
}
