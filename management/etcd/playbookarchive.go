// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
)

// archiveChunk is the size of a part of an archive: several fit into a request of etcd.
const archiveChunk = 512 << 10

// The parts of an archive are written first, and its size last: an archive without a size
// is not whole.
func (s *Store) archivesPrefix() string { return s.key("/x/playbooks/") }

func (s *Store) archiveKey(digest string, part int) string {
	return s.key("/x/playbooks/%s/%08d", digest, part)
}

func (s *Store) archiveSizeKey(digest string) string { return s.key("/x/playbooks/%s/size", digest) }

// SharePlaybooks stores the archive of the playbooks with a digest, unless it is there.
func (s *Store) SharePlaybooks(ctx context.Context, digest string, archive []byte) error {
	whole, err := s.archiveSize(ctx, digest)
	if err != nil || whole >= 0 {
		return err
	}

	// Parts of an attempt that died half-way are overwritten: they have the same bytes.
	part := 0
	for chunk := range slices.Chunk(archive, archiveChunk) {
		if err := s.putArchive(ctx, digest, s.archiveKey(digest, part), string(chunk)); err != nil {
			return err
		}

		part++
	}

	// Another instance may have removed parts meanwhile.
	var parts []clientv3.Cmp
	for i := range part {
		parts = append(parts, clientv3.Compare(clientv3.CreateRevision(s.archiveKey(digest, i)), ">", 0))
	}

	return s.putArchive(ctx, digest, s.archiveSizeKey(digest), strconv.Itoa(len(archive)), parts...)
}

// putArchive writes a key of an archive if the conditions hold, unless that is whole already:
// another instance has then written it.
func (s *Store) putArchive(ctx context.Context, digest, key, value string, conditions ...clientv3.Cmp) error {
	bounded, cancel := s.bounded(ctx)
	defer cancel()

	resp, err := s.client.Txn(bounded).
		If(append(conditions, atRevision(s.archiveSizeKey(digest), 0))...).
		Then(clientv3.OpPut(key, value)).
		Commit()
	if err != nil {
		return s.failure(bounded, err)
	}
	if resp.Succeeded {
		return nil
	}

	size, err := s.archiveSize(ctx, digest)
	if err == nil && size < 0 {
		err = inventory.Errorf(inventory.KindConflict, "another instance has removed the playbooks %.12s", digest)
	}

	return err
}

// archiveSize returns the size of an archive in bytes, or -1 if there is none.
func (s *Store) archiveSize(ctx context.Context, digest string) (int, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()

	resp, err := s.client.Get(ctx, s.archiveSizeKey(digest))
	if err != nil || len(resp.Kvs) == 0 {
		return -1, s.failure(ctx, err)
	}
	size, err := strconv.Atoi(string(resp.Kvs[0].Value))
	if err != nil {
		return 0, fmt.Errorf("the size of the playbooks %.12s in the store cannot be read: %w", digest, err)
	}
	return size, nil
}

// SharedPlaybooks returns the archive of the playbooks with a digest, or KindNotFound.
func (s *Store) SharedPlaybooks(ctx context.Context, digest string) ([]byte, error) {
	size, err := s.archiveSize(ctx, digest)
	if err != nil {
		return nil, err
	}

	missing := inventory.Errorf(inventory.KindNotFound, "no instance shares the playbooks %.12s", digest)
	if size < 0 {
		return nil, missing
	}

	// A reader can meet a removal, but never an archive that is being written.
	var archive []byte
	for part := 0; len(archive) < size; part++ {
		chunk, err := s.archivePart(ctx, s.archiveKey(digest, part))
		if err != nil {
			return nil, err
		}
		if len(chunk) == 0 {
			return nil, missing // removed while it was read
		}

		archive = append(archive, chunk...)
	}

	return archive, nil
}

func (s *Store) archivePart(ctx context.Context, key string) ([]byte, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()

	resp, err := s.client.Get(ctx, key)
	if err != nil || len(resp.Kvs) == 0 {
		return nil, s.failure(ctx, err)
	}
	return resp.Kvs[0].Value, nil
}

// KeepShared removes the archives of all other playbooks, and what is left of archives that
// never became whole.
func (s *Store) KeepShared(ctx context.Context, digests []string) error {
	stored, err := s.archives(ctx)
	if err != nil {
		return err
	}

	for _, digest := range stored {
		if slices.Contains(digests, digest) {
			continue
		}

		if err := s.dropArchive(ctx, digest); err != nil {
			return err
		}
	}

	return nil
}

// archives returns the digests with a key of an archive.
func (s *Store) archives(ctx context.Context) ([]string, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()

	resp, err := s.client.Get(ctx, s.archivesPrefix(), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, s.failure(ctx, err)
	}

	// The keys are sorted, so those of one archive follow each other.
	var out []string
	for _, kv := range resp.Kvs {
		digest, _, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), s.archivesPrefix()), "/")
		out = append(out, digest)
	}

	return slices.Compact(out), nil
}

// dropArchive removes an archive at once.
func (s *Store) dropArchive(ctx context.Context, digest string) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()

	_, err := s.client.Delete(ctx, s.archivesPrefix()+digest+"/", clientv3.WithPrefix())
	return s.failure(ctx, err)
}
