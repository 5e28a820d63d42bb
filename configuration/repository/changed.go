// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv/cluster/inventory"
)

// Changed returns the names of the files, folders and links that differ between two
// kept copies, or are in one of them only, sorted. Those of the bundled roles begin
// with the name of their folder. It is KindNotFound if a copy is not kept.
func (s *Store) Changed(ctx context.Context, then, now string) ([]string, error) {
	before, err := s.entries(ctx, then)
	if err != nil {
		return nil, err
	}

	after, err := s.entries(ctx, now)
	if err != nil {
		return nil, err
	}

	changed := map[string]bool{}

	for name, line := range before {
		if after[name] != line {
			changed[name] = true
		}
	}

	for name := range after {
		if _, existed := before[name]; !existed {
			changed[name] = true
		}
	}

	return slices.Sorted(maps.Keys(changed)), nil
}

// entries returns the lines that describe a copy, by the name of the entry.
func (s *Store) entries(ctx context.Context, digest string) (map[string]string, error) {
	if !digestPattern.MatchString(digest) || !s.Intact(ctx, digest) {
		return nil, inventory.Errorf(inventory.KindNotFound, "the playbooks with the digest %s are not kept", digest)
	}

	lines, err := s.describe(ctx, digest)
	if err != nil {
		return nil, err
	}
	found := make(map[string]string, len(lines))

	for _, line := range lines {
		_, rest, _ := strings.Cut(line, " ")

		// The names are quoted as Go does it.
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			continue
		}
		if name, err := strconv.Unquote(quoted); err == nil {
			found[name] = line
		}
	}

	return found, nil
}

// describe returns the lines that the digest of a copy covers. A copy has them in a
// file, beside which a run may have added others.
func (s *Store) describe(ctx context.Context, digest string) ([]string, error) {
	manifest, err := os.ReadFile(filepath.Join(s.Path(digest), manifestName))
	if err == nil {
		return strings.Split(string(manifest), "\n"), nil
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	return s.walk(ctx, whole(os.DirFS(s.Path(digest))), nil)
}
