// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/job/jobtest"
	"github.com/contiv/cluster/management/state"
)

// sharedMap is the store of the instances of a test.
type sharedMap struct {
	mu       sync.Mutex
	archives map[string]string
	err      error
}

func (m *sharedMap) SharePlaybooks(_ context.Context, digest string, archive []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()

	if m.err == nil {
		m.archives[digest] = string(archive)
	}
	return m.err
}

func (m *sharedMap) SharedPlaybooks(_ context.Context, digest string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()

	archive, ok := m.archives[digest]
	if !ok {
		return nil, inventory.Errorf(inventory.KindNotFound, "not shared")
	}
	return []byte(archive), m.err
}

func (m *sharedMap) KeepShared(_ context.Context, digests []string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.archives, func(digest, _ string) bool { return !slices.Contains(digests, digest) })
	return m.err
}

// Pack writes a text that names the digest.
func (s *scripted) Pack(_ context.Context, digest string, w io.Writer) error {
	text := "archive of " + digest
	if strings.HasSuffix(digest, "9") {
		text = strings.Repeat("x", maxSharedBytes+1)
	}
	_, err := io.WriteString(w, text)
	return err
}

// Unpack accepts what Pack has written.
func (s *scripted) Unpack(_ context.Context, digest string, r io.Reader) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	archive, err := io.ReadAll(r)
	if err == nil && string(archive) != "archive of "+digest {
		err = inventory.Errorf(inventory.KindInvalid, "other playbooks")
	}

	s.gone = s.gone && err != nil

	return err
}

// TestShare: the playbooks in use and those that nodes carry are shared, and no others.
func TestShare(t *testing.T) {
	t.Parallel()

	shared := &sharedMap{archives: map[string]string{"of another repository": ""}}
	k := newKeeper(t)
	k.Shared = func() Shared { return shared }
	k.State = fixedState{view: &state.View{Snapshot: jobtest.With([]*inventory.Node{{
		Name: "node1", Playbooks: map[string]string{"site": "digest of 1"},
	}}...)}}

	digests := func(want ...string) {
		t.Helper()

		if got := slices.Sorted(maps.Keys(shared.archives)); !slices.Equal(got, want) {
			t.Errorf("shared: %q, not %q", got, want)
		}
	}

	sync := func(n int) {
		t.Helper()
		k.script.newest = hash(n)
		errtest.None(t, k.Sync(t.Context(), operator))
	}

	sync(1)
	digests("digest of 1")
	sync(2)
	digests("digest of 1", "digest of 2")
	sync(3)
	digests("digest of 1", "digest of 3")

	// A failure of the store is no failure of the sync, and the next one repeats it.
	shared.err = errors.New("the store is away")

	sync(4)

	shared.err = nil

	sync(4)
	digests("digest of 1", "digest of 4")

	// Too large an archive leaves the instances to fetch.
	sync(9)
	digests("digest of 1")
}

// TestUnshare: an instance has the playbooks of another one while the repository is away.
// It does not trust the store.
func TestUnshare(t *testing.T) {
	t.Parallel()

	away := inventory.Errorf(inventory.KindUnavailable, "the repository is away")
	shared := &sharedMap{archives: map[string]string{
		"digest of 4": "archive of digest of 4", "digest of 3": "archive of digest of 3",
	}}
	use := func(n int) Use {
		return Use{Commit: configuration.Commit{Hash: hash(n)}, Digest: "digest of " + hash(n)[:1]}
	}
	inUse := use(4)

	k := newKeeper(t)
	k.Shared = func() Shared { return shared }
	k.script.err = away
	k.script.gone = true
	k.script.record = Record{Source: "here main", InUse: &inUse, Past: []Use{use(3)}}

	if digest, err := k.Pin(t.Context()); err != nil || digest != "digest of 4" || k.script.kept != 0 {
		t.Errorf("pinned %q, %v, %d judgements", digest, err, k.script.kept)
	}

	k.script.gone = true

	if restored, err := k.Restore(t.Context(), "digest of 3"); !restored || err != nil || len(k.script.fetches) > 0 {
		t.Errorf("restored %v, %v, %d fetches", restored, err, len(k.script.fetches))
	}

	// Another archive than that of the digest.
	shared.archives["digest of 4"] = "archive of digest of 3"
	k.script.gone = true

	if digest, err := k.Pin(t.Context()); err != nil || digest != "digest of 4" || k.script.kept != 1 {
		t.Errorf("pinned %q, %v, %d judgements", digest, err, k.script.kept)
	}
}

// TestRestoreNeedsTheStore: playbooks that only another instance may have are not known to be
// gone while the store is away.
func TestRestoreNeedsTheStore(t *testing.T) {
	t.Parallel()

	past := Use{Commit: configuration.Commit{Hash: hash(3)}, Digest: "playbooks of a former version"}
	shared := &sharedMap{
		archives: map[string]string{past.Digest: ""}, err: inventory.Errorf(inventory.KindUnavailable, "no quorum"),
	}

	k := newKeeper(t)
	k.Shared = func() Shared { return shared }
	k.script.record = Record{Source: "here main", InUse: &past, Past: []Use{past}}

	if _, err := k.Pin(t.Context()); err != nil {
		t.Fatal(err)
	}

	k.script.gone = true
	k.script.err = inventory.Errorf(inventory.KindNotFound, "the repository has no such commit")

	for range 2 {
		if restored, err := k.Restore(t.Context(), past.Digest); restored ||
			inventory.KindOf(err) != inventory.KindOf(shared.err) {
			t.Errorf("restored %t, %v, the store: %v", restored, err, shared.err)
		}

		clear(shared.archives)
		shared.err = nil
	}
}
