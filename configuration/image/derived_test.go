// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contiv/cluster/configuration/image"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

const version, former = "00112233aabbccdd", "ffffffffffffffff"

var derivedNames = []string{"kernel", "initrd"}

// withContent has complete content in the store.
func withContent(t *testing.T, s *image.Store) (digest string) {
	t.Helper()

	content := []byte("a package")
	digest = digestOf(content)
	errtest.None(t, s.Write(digest, int64(len(content)), 0, bytes.NewReader(content)))

	return digest
}

type writeFunc = func(ctx context.Context, deb *os.File, size int64, to []io.Writer) error

// texts writes these as the files, and counts its calls.
func texts(calls *int, all ...string) writeFunc {
	return func(_ context.Context, _ *os.File, _ int64, to []io.Writer) error {
		*calls++

		for i, text := range all {
			if _, err := io.WriteString(to[i], text); err != nil {
				return err
			}
		}

		return nil
	}
}

// derived returns what can be opened of a version.
func derived(t *testing.T, s *image.Store, digest, version string) string {
	t.Helper()

	var all []string

	for _, name := range derivedNames {
		f, err := s.OpenDerived(digest, version, name)
		if err != nil {
			kind(t, err, inventory.KindNotFound)
			continue
		}

		text, err := io.ReadAll(f)
		errtest.None(t, err)
		errtest.None(t, f.Close())

		all = append(all, string(text))
	}

	return strings.Join(all, ", ")
}

// inDir returns the names in the folder of a store, without those of content.
func inDir(t *testing.T, s *image.Store) (names []string) {
	t.Helper()

	files, err := os.ReadDir(s.Dir)
	errtest.None(t, err)

	for _, f := range files {
		if f.IsDir() {
			names = append(names, f.Name())
		}
	}

	return names
}

// TestDerive makes files once for each version, and takes none of them for content.
func TestDerive(t *testing.T) {
	t.Parallel()

	s := room(t, 1<<30)
	digest := withContent(t, s)
	calls := 0

	for range 2 {
		errtest.None(t, s.Derive(t.Context(), digest, former, derivedNames, texts(&calls, "k", "i")))
	}

	if got := derived(t, s, digest, former); got != "k, i" || calls != 1 {
		t.Errorf("%q after %d calls", got, calls)
	}
	if got := derived(t, s, digest, version); got != "" {
		t.Errorf("%q are of another version", got)
	}

	errtest.None(t, s.Derive(t.Context(), digest, version, derivedNames, func(
		_ context.Context, deb *os.File, size int64, to []io.Writer,
	) error {
		content, err := io.ReadAll(io.NewSectionReader(deb, 0, size))
		errtest.None(t, err)
		_, err = to[0].Write(content)

		return err
	}))

	if got := derived(t, s, digest, version); got != "a package, " || derived(t, s, digest, former) != "k, i" {
		t.Errorf("%q", got)
	}

	if only(t, s).Digest != digest {
		t.Error("a derived file is taken for content")
	}

	// Somebody takes a file out.
	errtest.None(t, os.Remove(filepath.Join(s.Dir, strings.TrimPrefix(digest, "sha256:")+"."+version, "kernel")))
	errtest.None(t, s.Derive(t.Context(), digest, version, derivedNames, texts(&calls, "k", "i")))

	if got := derived(t, s, digest, version); got != "k, i" || len(inDir(t, s)) != 2 {
		t.Errorf("%q: %q", got, inDir(t, s))
	}
}

// TestDeriveAllOrNothing: nothing can be opened before all is whole and on the disk, and nothing is left after an
// error.
func TestDeriveAllOrNothing(t *testing.T) {
	t.Parallel()

	errFailed := errors.New("failed")
	calls, flushed, free := 0, 0, int64(1<<30)
	s := image.NewStore(image.Options{
		Dir: filepath.Join(t.TempDir(), "images"), Free: func(string) (int64, error) { return free, nil },
		Flush: func(f *os.File) error {
			if strings.HasSuffix(f.Name(), "initrd") {
				flushed++
				return errFailed
			}
			return f.Sync()
		},
	})
	digest := withContent(t, s)
	derive := func(write writeFunc) error {
		t.Helper()

		err := s.Derive(t.Context(), digest, version, derivedNames, write)
		if got := derived(t, s, digest, version); got != "" || len(inDir(t, s)) != 0 {
			t.Errorf("%q can be opened: %q", got, inDir(t, s))
		}

		return err
	}

	// The disk does not take the second one.
	kind(t, derive(texts(&calls, "k", "i")), inventory.KindUnavailable)

	if flushed != 1 {
		t.Errorf("%d calls", flushed)
	}

	// It is interrupted between the two.
	err := derive(func(_ context.Context, _ *os.File, _ int64, to []io.Writer) error {
		_, err := io.WriteString(to[0], "k")
		errtest.None(t, err)

		if got := derived(t, s, digest, version); got != "" {
			t.Errorf("%q is served while it is written", got)
		}

		return errFailed
	})
	if !errors.Is(err, errFailed) {
		t.Error(err)
	}

	// The room ends before it begins, and while it is written.
	free = image.Reserve
	kind(t, derive(texts(&calls, "k", "i")), inventory.KindRefused)

	free = 1 << 30
	kind(t, derive(func(_ context.Context, _ *os.File, _ int64, to []io.Writer) error {
		free = image.Reserve - 1
		_, err := io.Copy(to[0], io.LimitReader(zeros{}, 17<<20))

		return err
	}), inventory.KindRefused)

	free = 1 << 30

	// A crash left half of it.
	left := filepath.Join(s.Dir, strings.TrimPrefix(digest, "sha256:")+"."+version+".part-1")
	errtest.None(t, os.Mkdir(left, 0o700))
	errtest.None(t, os.WriteFile(filepath.Join(left, "kernel"), []byte("k"), 0o600))

	if got := derived(t, s, digest, version); got != "" {
		t.Errorf("%q is served after a crash", got)
	}

	// Neither a name nor a version leads out of its folder.
	errtest.None(t, os.WriteFile(filepath.Join(s.Dir, "secret"), nil, 0o600))

	for _, name := range []string{"../secret", "", ".", "x/../../secret"} {
		if f, err := s.OpenDerived(digest, version, name); err == nil {
			t.Errorf("%q opens %s", name, f.Name())
		}
		if s.Derive(t.Context(), digest, version, []string{name}, texts(&calls, "x")) == nil {
			t.Errorf("%q is written", name)
		}
	}

	_, err = s.OpenDerived(digest, "../secret", "kernel")
	kind(t, err, inventory.KindInvalid)
	kind(t, s.Derive(t.Context(), digest, "../secret", derivedNames, texts(&calls)), inventory.KindInvalid)
}

// zeros never end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestDeriveRemoved: with the content go its files, also while they are made, and of damaged content none are made.
func TestDeriveRemoved(t *testing.T) {
	t.Parallel()

	s := room(t, 1<<30)
	digest := withContent(t, s)
	calls := 0

	errtest.None(t, s.Derive(t.Context(), digest, former, derivedNames, texts(&calls, "k", "i")))

	err := s.Derive(t.Context(), digest, version, derivedNames, func(
		ctx context.Context, deb *os.File, size int64, to []io.Writer,
	) error {
		errtest.None(t, s.Remove(only(t, s)))
		return texts(&calls, "k", "i")(ctx, deb, size, to)
	})
	kind(t, err, inventory.KindConflict)

	if left := inDir(t, s); len(left) != 0 {
		t.Errorf("%q are left", left)
	}

	kind(t, s.Derive(t.Context(), digest, version, derivedNames, texts(&calls)), inventory.KindNotFound)

	withContent(t, s)
	errtest.None(
		t,
		os.WriteFile(filepath.Join(s.Dir, strings.TrimPrefix(digest, "sha256:")), []byte("b package"), 0o600),
	)

	calls = 0
	kind(t, s.Derive(t.Context(), digest, version, derivedNames, texts(&calls, "k", "i")), inventory.KindUnavailable)

	if calls != 0 || len(inDir(t, s)) != 0 {
		t.Errorf("%d calls, %q", calls, inDir(t, s))
	}
}

// TestDeriveAtOnce: of two that make the same files, each succeeds, and one set stays.
func TestDeriveAtOnce(t *testing.T) {
	t.Parallel()

	s := room(t, 1<<30)
	digest := withContent(t, s)

	var both, done sync.WaitGroup

	both.Add(2)

	for range 2 {
		done.Go(func() {
			err := s.Derive(t.Context(), digest, version, derivedNames, func(
				ctx context.Context, deb *os.File, size int64, to []io.Writer,
			) error {
				both.Done()
				both.Wait()

				calls := 0

				return texts(&calls, "k", "i")(ctx, deb, size, to)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}

	done.Wait()

	if got := derived(t, s, digest, version); got != "k, i" || len(inDir(t, s)) != 1 {
		t.Errorf("%q, %q", got, inDir(t, s))
	}
}

// TestTidyDerived removes other versions, what has no content, and what a crash has left an hour ago; and nothing
// else.
func TestTidyDerived(t *testing.T) {
	t.Parallel()

	s := room(t, 1<<30)
	digest := withContent(t, s)
	calls := 0

	for _, v := range []string{version, former} {
		errtest.None(t, s.Derive(t.Context(), digest, v, derivedNames, texts(&calls, "k", "i")))
	}

	hex := strings.TrimPrefix(digest, "sha256:")
	keep := []string{hex + "." + version, hex + "." + version + ".part-2", hex + ".kept", "lost+found"}

	for _, name := range append([]string{hex + "." + version + ".part-1", strings.Repeat("a", 64) + "." + version},
		keep[1:]...) {
		errtest.None(t, os.Mkdir(filepath.Join(s.Dir, name), 0o700))
	}

	before := time.Now().Add(-2 * time.Hour)
	errtest.None(t, os.Chtimes(filepath.Join(s.Dir, hex+"."+version+".part-1"), before, before))

	errtest.None(t, s.TidyDerived([]string{"0011223344", version}))

	if got := strings.Join(inDir(t, s), " "); got != strings.Join(keep, " ") {
		t.Errorf("left: %q", got)
	}
	if got := derived(t, s, digest, version); got != "k, i" || only(t, s).Digest != digest {
		t.Errorf("%q", got)
	}

	other := image.NewStore(image.Options{Dir: s.Dir, Owner: func() string { return "another manager" }})
	kind(t, other.TidyDerived(nil), inventory.KindRefused)

	errtest.None(t, image.NewStore(image.Options{Dir: filepath.Join(t.TempDir(), "none")}).TidyDerived(nil))
}
