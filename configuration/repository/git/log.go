// SPDX-License-Identifier: Apache-2.0

package git

import (
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
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
			if err := ancestors(ctx, store, hash, known); err != nil {
				return err
			}
		}

		from, err := object.GetCommit(store, plumbing.NewHash(to))
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
func ancestors(ctx context.Context, store *mirrored, of string, known map[plumbing.Hash]bool) error {
	c, err := object.GetCommit(store, plumbing.NewHash(of))
	if errors.Is(err, plumbing.ErrObjectNotFound) {
		return nil
	}

	if err != nil {
		return damaged(err)
	}

	err = object.NewCommitIterBSF(c, known, nil).ForEach(func(c *object.Commit) error {
		if len(known) == maxWalk {
			return storer.ErrStop
		}

		known[c.Hash] = true
		return ctx.Err()
	})

	return damaged(err)
}

// Descends reports whether the commit old leads to the commit. It is false for a commit
// that the mirror lacks.
func (m *Mirror) Descends(ctx context.Context, commit, old string) (bool, error) {
	found := false

	err := m.within(ctx, func(store *mirrored) error {
		known := map[plumbing.Hash]bool{}
		err := ancestors(ctx, store, commit, known)
		found = known[plumbing.NewHash(old)]
		return err
	})

	return found, err
}

// Lookup returns the commit of the mirror with a hash that begins so, if there is
// exactly one.
func (m *Mirror) Lookup(ctx context.Context, prefix string) (configuration.Commit, bool, error) {
	var found []configuration.Commit

	err := m.within(ctx, func(store *mirrored) error {
		found = nil

		// Two digits are a byte.
		begin, err := hex.DecodeString(prefix[:len(prefix)&^1])
		if err != nil {
			return inventory.Errorf(inventory.KindInvalid, "%q is not the beginning of a hash", prefix).
				Do("give hexadecimal digits")
		}

		hashes, err := store.HashesWithPrefix(begin)
		if err != nil {
			return damaged(err)
		}

		for _, hash := range hashes {
			c, err := object.GetCommit(store, hash)

			switch {
			case errors.Is(err, plumbing.ErrObjectNotFound): // it is not a commit
			case err != nil:
				return damaged(err)
			case strings.HasPrefix(hash.String(), prefix) && !slices.Contains(found, commitOf(c)):
				found = append(found, commitOf(c))
			}
		}

		return nil
	})
	if err != nil || len(found) != 1 {
		return configuration.Commit{}, false, err
	}

	return found[0], true, nil
}

// DefaultLimits bound a repository of playbooks.
var DefaultLimits = Limits{Fetch: 256 << 20, Size: 64 << 20, Files: 10_000, Time: 5 * time.Minute}
