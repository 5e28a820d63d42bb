// SPDX-License-Identifier: Apache-2.0

package repository_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/cluster/configuration/repository"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

// TestPack: playbooks that one host packs are kept by another one with the same digest,
// without what runs have added.
func TestPack(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()
	for name, mode := range map[string]os.FileMode{
		"site.yml": 0o644, "a b/ü.yml": 0o600, "a b/run.sh": 0o755, "z\nz": 0o644,
	} {
		errtest.None(t, os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o755))
		errtest.None(t, os.WriteFile(filepath.Join(folder, name), []byte("content of "+name), mode))
	}

	errtest.None(t, os.Symlink("a b/run.sh", filepath.Join(folder, "0 link")))

	from := &repository.Store{Dir: filepath.Join(t.TempDir(), "kept"), Roles: os.DirFS(folder)}

	digest, err := from.KeepDir(t.Context(), folder)
	errtest.None(t, err)
	errtest.None(t, os.WriteFile(filepath.Join(from.Path(digest), "added.log"), nil, 0o644))

	var archive, again bytes.Buffer
	for _, to := range []*bytes.Buffer{&archive, &again} {
		errtest.None(t, from.Pack(t.Context(), digest, to))
	}

	if !bytes.Equal(archive.Bytes(), again.Bytes()) {
		t.Error("two archives of the same playbooks differ")
	}

	to := &repository.Store{Dir: filepath.Join(t.TempDir(), "kept")}
	for range 2 {
		errtest.None(t, to.Unpack(t.Context(), digest, bytes.NewReader(archive.Bytes())))
	}

	if !to.Intact(t.Context(), digest) || to.RolesPath(digest) == "" {
		t.Error("the playbooks are not kept whole")
	}

	if _, err := os.Lstat(filepath.Join(to.Path(digest), "added.log")); err == nil {
		t.Error("the archive has a file that a run added")
	}

	missing := strings.Repeat("0", 64)
	if err := from.Pack(t.Context(), missing, io.Discard); inventory.KindOf(err) != inventory.KindNotFound {
		t.Errorf("packing nothing: %v", err)
	}
	err = to.Unpack(t.Context(), missing, bytes.NewReader(archive.Bytes()))
	if inventory.KindOf(err) != inventory.KindInvalid {
		t.Errorf("another digest: %v", err)
	}

	kept(t, to, digest)
}

// kept compares the entries of a store with digests.
func kept(t *testing.T, s *repository.Store, digests ...string) {
	t.Helper()

	entries, err := os.ReadDir(s.Dir)
	errtest.None(t, err)

	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}

	if strings.Join(names, " ") != strings.Join(digests, " ") {
		t.Errorf("the store has %q, not %q", names, digests)
	}
}

// archived returns an archive with the entries; a file has its name as content.
func archived(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()

	var out bytes.Buffer

	zipped := gzip.NewWriter(&out)
	w := tar.NewWriter(zipped)

	for _, e := range entries {
		errtest.None(t, w.WriteHeader(&e))

		if _, err := w.Write(make([]byte, e.Size)); err != nil {
			t.Fatal(err)
		}
	}

	errtest.None(t, w.Close())

	errtest.None(t, zipped.Close())

	return out.Bytes()
}

// TestUnpackRefuses: a hostile archive writes nothing outside, and leaves nothing.
func TestUnpackRefuses(t *testing.T) {
	t.Parallel()

	outside := t.TempDir()
	file := tar.Header{Name: "site.yml", Typeflag: tar.TypeReg, Mode: 0o644, Size: 4}
	named := func(name string) tar.Header {
		h := file
		h.Name = name
		return h
	}
	large := file
	large.Size = 2000
	device := tar.Header{Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}
	link := func(target string) tar.Header {
		return tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: target}
	}

	for name, archive := range map[string][]byte{
		"empty":                  {},
		"text":                   []byte("site.yml"),
		"cut":                    archived(t, file)[:40],
		"other playbooks":        archived(t, file),
		"above the folder":       archived(t, named("../site.yml")),
		"an absolute name":       archived(t, named(outside+"/site.yml")),
		"twice":                  archived(t, file, file),
		"a file without folder":  archived(t, named("a/site.yml")),
		"too large":              archived(t, large),
		"too many":               archived(t, file, named("1"), named("2"), named("3")),
		"a device":               archived(t, device),
		"a hard link":            archived(t, tar.Header{Name: "l", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}),
		"through a link":         archived(t, link(outside), named("l/site.yml")),
		"a link that leads away": archived(t, link("/etc/passwd")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := &repository.Store{Dir: filepath.Join(t.TempDir(), "kept"), MaxBytes: 1000, MaxFiles: 3}

			err := s.Unpack(t.Context(), strings.Repeat("0", 64), bytes.NewReader(archive))
			if inventory.KindOf(err) != inventory.KindInvalid {
				t.Errorf("got %v", err)
			}

			kept(t, s)

			if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
				t.Errorf("%v was written outside: %v", entries, err)
			}
		})
	}
}

// FuzzUnpack: an archive leaves nothing that is not the playbooks of its digest.
func FuzzUnpack(f *testing.F) {
	f.Add([]byte("site.yml"))

	f.Fuzz(func(t *testing.T, archive []byte) {
		s := &repository.Store{Dir: filepath.Join(t.TempDir(), "kept"), MaxBytes: 1000, MaxFiles: 10}

		var zipped bytes.Buffer

		w := gzip.NewWriter(&zipped)
		if _, err := w.Write(archive); err != nil {
			t.Fatal(err)
		}
		errtest.None(t, w.Close())

		if err := s.Unpack(t.Context(), strings.Repeat("0", 64), &zipped); err == nil {
			t.Error("an archive has a digest that it cannot have")
		}

		kept(t, s)
	})
}
