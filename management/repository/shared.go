// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"bytes"
	"context"
	"fmt"

	"github.com/contiv/cluster/inventory"
)

// Bounds of what is shared. Together they bound the space in the store, 128 MiB.
const (
	maxShared      = 8        // sets of playbooks
	maxSharedBytes = 16 << 20 // of an archive
)

// Shared keeps the archives of playbooks where all instances read them. Its methods block
// while the store is slow.
type Shared interface {
	// SharePlaybooks stores the archive of the playbooks with a digest, unless it is there.
	SharePlaybooks(ctx context.Context, digest string, archive []byte) error
	// SharedPlaybooks returns the archive, or KindNotFound.
	SharedPlaybooks(ctx context.Context, digest string) ([]byte, error)
	// KeepShared removes the archives of all other digests.
	KeepShared(ctx context.Context, digests []string) error
}

// share gives the playbooks in use to the other instances, and removes those that no
// instance needs any more. Without them an instance fetches for itself, so a failure is
// logged, and the next sync tries again.
func (k *Keeper) share(ctx context.Context) {
	if k.Shared() == nil {
		return
	}

	k.mu.Lock()
	record, done := k.record, k.shared
	k.mu.Unlock()

	if record.InUse == nil || record.InUse.Digest == done {
		return
	}

	if err := k.shareRecord(ctx, record); err != nil {
		k.Logger.WithError(err).Warn("the playbooks of the commit in use are not shared with other instances")

		// An archive that is too large now stays so.
		if inventory.KindOf(err) != inventory.KindTooLarge {
			return
		}
	}

	k.mu.Lock()
	k.shared = record.InUse.Digest
	k.mu.Unlock()
}

func (k *Keeper) shareRecord(ctx context.Context, record Record) error {
	// Room first: the others may be those of another repository.
	wanted := record.wanted(k.carried())
	shared := k.Shared()
	if err := shared.KeepShared(ctx, wanted); err != nil {
		return err
	}

	archive := limited{left: maxSharedBytes}
	if err := k.Playbooks.Pack(ctx, record.InUse.Digest, &archive); err != nil {
		return err
	}
	return shared.SharePlaybooks(ctx, record.InUse.Digest, archive.content.Bytes())
}

// wanted returns the digests of the playbooks to share: those in use, and the newest of
// those that nodes and jobs carry.
func (r Record) wanted(carried func(digest string) bool) []string {
	out := []string{r.InUse.Digest}

	for _, past := range r.Past {
		if len(out) < maxShared && carried(past.Digest) {
			out = append(out, past.Digest)
		}
	}

	return out
}

// unshare brings playbooks here that another instance has shared, and reports whether it
// did, or why it is not known whether they are shared.
func (k *Keeper) unshare(ctx context.Context, digest string) (bool, error) {
	shared := k.Shared()
	if shared == nil {
		return false, nil
	}

	// The digest is that of the content, so the store cannot put other playbooks in its place.
	archive, unread := shared.SharedPlaybooks(ctx, digest)
	if inventory.KindOf(unread) == inventory.KindNotFound {
		return false, nil
	}
	err := unread
	if err == nil {
		err = k.Playbooks.Unpack(ctx, digest, bytes.NewReader(archive))
	}

	if err != nil {
		k.Logger.WithError(err).Warnf("the shared playbooks %.12s cannot be used; they are fetched", digest)
	}

	return err == nil, unread
}

// limited is a buffer that refuses more bytes than are left.
type limited struct {
	content bytes.Buffer
	left    int
}

// Write returns KindTooLarge once the bound is exceeded.
func (l *limited) Write(p []byte) (int, error) {
	if l.left -= len(p); l.left < 0 {
		return 0, fmt.Errorf("packing: %w", inventory.Errorf(inventory.KindTooLarge,
			"the compressed playbooks are larger than %d MiB", maxSharedBytes>>20))
	}

	return l.content.Write(p)
}
