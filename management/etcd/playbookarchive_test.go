// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"math/rand/v2"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

// TestSharedPlaybooks: another instance reads the archives that one has stored, whole or
// not at all.
func TestSharedPlaybooks(t *testing.T) {
	t.Parallel()

	s := store(t)
	other := open(t, s.client)

	missing := func(digest string) {
		t.Helper()

		if _, err := other.SharedPlaybooks(t.Context(), digest); inventory.KindOf(err) != inventory.KindNotFound {
			t.Errorf("playbooks %s: %v", digest, err)
		}
	}

	missing("a")

	large := make([]byte, 2*archiveChunk+1)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(large)

	for digest, archive := range map[string][]byte{"a": large, "b": []byte("small")} {
		// The second one changes nothing.
		for _, one := range [][]byte{archive, []byte("other bytes of the same playbooks")} {
			errtest.None(t, s.SharePlaybooks(t.Context(), digest, one))
		}

		if got, err := other.SharedPlaybooks(t.Context(), digest); err != nil || !bytes.Equal(got, archive) {
			t.Errorf("playbooks %s: %d bytes, %v", digest, len(got), err)
		}
	}

	// The writer of c died half-way.
	errtest.None(t, s.putArchive(t.Context(), "c", s.archiveKey("c", 0), "half"))

	missing("c")

	// Another instance has removed the parts of a slow writer: its archive is not whole.
	part := clientv3.Compare(clientv3.CreateRevision(s.archiveKey("e", 0)), ">", 0)

	err := s.putArchive(t.Context(), "e", s.archiveSizeKey("e"), "4", part)
	if inventory.KindOf(err) != inventory.KindConflict {
		t.Errorf("the size of nothing: %v", err)
	}

	missing("e")

	errtest.None(t, other.KeepShared(t.Context(), []string{"b", "d"}))

	missing("a")

	if left, err := s.archives(t.Context()); err != nil || len(left) != 1 || left[0] != "b" {
		t.Errorf("left: %q, %v", left, err)
	}
}
