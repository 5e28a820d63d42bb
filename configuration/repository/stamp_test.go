// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory/errtest"
)

// TestStamp changes a folder in every way: the stamp differs wherever the digest does,
// also if a file keeps its size and its time.
func TestStamp(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	s := &Store{Dir: t.TempDir()}
	site := filepath.Join(dir, "site.yml")
	old := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

	write := func(text string) func() error {
		return func() error {
			if err := os.WriteFile(site, []byte(text), 0o600); err != nil {
				return err
			}
			return os.Chtimes(site, old, old)
		}
	}

	stamp, digest := "", ""

	for _, step := range []struct {
		name string
		do   func() error
		same bool
	}{
		{"a file", write("one"), false},
		{"nothing", func() error { return nil }, true},
		{"another content of the same size and time", write("two"), false},
		{"permissions", func() error { return os.Chmod(site, 0o700) }, false},
		{"another name", func() error { return os.Rename(site, filepath.Join(dir, "a.yml")) }, false},
		{"a folder", func() error { return os.Mkdir(filepath.Join(dir, "roles"), 0o700) }, false},
		{"a link", func() error { return os.Symlink("a.yml", filepath.Join(dir, "b.yml")) }, false},
	} {
		errtest.None(t, step.do())

		gotStamp, err := s.Stamp(t.Context(), dir)
		errtest.None(t, err)

		gotDigest, err := s.DigestDir(t.Context(), dir)
		errtest.None(t, err)

		if (gotStamp == stamp) != step.same || (gotDigest == digest) != step.same {
			t.Errorf("%s: stamp %t, digest %t, want the same: %t",
				step.name, gotStamp == stamp, gotDigest == digest, step.same)
		}

		stamp, digest = gotStamp, gotDigest
	}

	kept, err := s.KeepDir(t.Context(), dir)
	if err != nil || kept != digest {
		t.Errorf("kept as %q, %v, want %q", kept, err, digest)
	}

	if _, err := s.Stamp(t.Context(), filepath.Join(dir, "nowhere")); err == nil {
		t.Error("a folder that does not exist has a stamp")
	}

	s.MaxFiles = 1
	if _, err := s.Stamp(t.Context(), dir); err == nil {
		t.Error("a folder over the limit has a stamp")
	}
}
