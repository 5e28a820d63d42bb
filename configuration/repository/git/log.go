// SPDX-License-Identifier: Apache-2.0

package git

import (
	"context"
	"errors"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/contiv/cluster/configuration"
)

// maxWalk bounds the commits that are looked at for one answer.
const maxWalk = 20_000

// Log returns the commits that lead to the commit to and not to one of since, the newest
// first. Commits of since that the mirror lacks count for nothing. more reports that the
// list is cut at limit.
func (m *Mirror) Log(
	ctx context.Context, to string, since []string, limit int,
) (commits []configuration.Commit, more bool, err error) {
	err = m.within(ctx, func(store *mirrored) error {
		commits, more = nil, false

		known := map[plumbing.Hash]bool{}
		for _, hash := range since {
			if err := ancestors(ctx, store, plumbing.NewHash(hash), known); err != nil {
				return err
			}
		}

		from, err := object.GetCommit(store.Storage, plumbing.NewHash(to))
		if errors.Is(err, plumbing.ErrObjectNotFound) {
			return nil
		}

		if err != nil {
			return damaged(err)
		}

		err = object.NewCommitIterCTime(from, known, nil).ForEach(func(c *object.Commit) error {
			if len(commits) == limit {
				more = true
				return storer.ErrStop
			}

			commits = append(commits, commitOf(c))

			return ctx.Err()
		})

		return damaged(err)
	})

	return commits, more, err
}

// ancestors adds a commit with those that lead to it, as far as the bound allows.
func ancestors(ctx context.Context, store *mirrored, of plumbing.Hash, known map[plumbing.Hash]bool) error {
	queue := []plumbing.Hash{of}

	for len(queue) > 0 && len(known) < maxWalk {
		hash := queue[0]
		queue = queue[1:]

		if known[hash] {
			continue
		}

		c, err := object.GetCommit(store.Storage, hash)
		if errors.Is(err, plumbing.ErrObjectNotFound) {
			continue
		}

		if err != nil {
			return damaged(err)
		}

		known[hash], queue = true, append(queue, c.ParentHashes...)
	}

	return ctx.Err()
}

// Descends reports whether the commit old leads to the commit. It is false for a commit
// that the mirror lacks.
func (m *Mirror) Descends(ctx context.Context, commit, old string) (bool, error) {
	found := false

	err := m.within(ctx, func(store *mirrored) error {
		known := map[plumbing.Hash]bool{}
		if err := ancestors(ctx, store, plumbing.NewHash(commit), known); err != nil {
			return err
		}

		found = known[plumbing.NewHash(old)]

		return nil
	})

	return found, err
}

// Lookup returns the commit of the mirror with a hash that begins so, if there is
// exactly one among the newest.
func (m *Mirror) Lookup(ctx context.Context, prefix string) (configuration.Commit, bool, error) {
	var found []configuration.Commit

	err := m.within(ctx, func(store *mirrored) error {
		found = nil

		if c, err := object.GetCommit(store.Storage, plumbing.NewHash(prefix)); IsCommit(prefix) && err == nil {
			found = append(found, commitOf(c))
			return nil
		}

		all := map[plumbing.Hash]bool{}

		ref, err := store.Reference(seenRef)
		if err != nil {
			return nil //nolint:nilerr // nothing was fetched yet
		}

		if err := ancestors(ctx, store, ref.Hash(), all); err != nil {
			return err
		}

		for hash := range all {
			if len(prefix) < minPrefix || hash.String()[:min(len(prefix), 40)] != prefix {
				continue
			}

			c, err := object.GetCommit(store.Storage, hash)
			if err != nil {
				return damaged(err)
			}

			found = append(found, commitOf(c))
		}

		return nil
	})
	if err != nil || len(found) != 1 {
		return configuration.Commit{}, false, err
	}

	return found[0], true, nil
}

// minPrefix is the length of the shortest abbreviation of a commit.
const minPrefix = 7

// DefaultLimits bound a repository of playbooks.
var DefaultLimits = Limits{Fetch: 256 << 20, Size: 64 << 20, Files: 10_000, Time: 5 * time.Minute}
