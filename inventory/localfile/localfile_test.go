// SPDX-License-Identifier: Apache-2.0

package localfile

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/contiv/cluster/inventory/errtest"
)

func TestReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	for _, content := range []string{"old and longer", "new"} {
		errtest.None(t, Replace(path, []byte(content)))

		got, err := os.ReadFile(path)
		if err != nil || string(got) != content {
			t.Fatalf("read %q, %v; want %q", got, err, content)
		}
	}

	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode: %v, %v", st, err)
	}

	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("the directory holds %v, %v; want the file only", left, err)
	}

	if err := Replace(filepath.Join(path, "below"), nil); err == nil {
		t.Error("a file below a file was written")
	}
}

func TestRename(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")

	errtest.None(t, os.Mkdir(from, 0o700))

	errtest.None(t, Rename(from, to))

	if err := Rename(from, to); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing source: %v", err)
	}
}

// The tests of locks are not parallel: a test that forks would share the other's
// lock until its child executes its program.

func TestLock(t *testing.T) {
	for _, name := range []string{"", "lock"} {
		dir := filepath.Join(t.TempDir(), "new", "dir")

		unlock, err := Lock(dir, name)
		errtest.None(t, err)

		if _, err := Lock(dir, name); !errors.Is(err, ErrLocked) {
			t.Errorf("second lock: %v, want ErrLocked", err)
		}

		unlock()

		unlock, err = Lock(dir, name)
		if err != nil {
			t.Fatalf("lock after unlock: %v", err)
		}
		unlock()
	}
}

func TestChildKeepsTheLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")

	expectLocked(t, path, false)

	inherit := func() (*FileLock, func()) {
		t.Helper()

		lock, err := TryLock(path)
		errtest.None(t, err)

		// cat runs until its standard input closes.
		child := exec.Command("cat")
		child.ExtraFiles = []*os.File{lock.File()}

		stdin, err := child.StdinPipe()
		errtest.None(t, err)

		errtest.None(t, child.Start())

		return lock, func() {
			if err := errors.Join(stdin.Close(), child.Wait()); err != nil {
				t.Error(err)
			}
		}
	}

	lock, end := inherit()
	if err := lock.Close(); err != nil {
		t.Error(err)
	}

	expectLocked(t, path, true)
	end()
	expectLocked(t, path, false)

	lock, end = inherit()
	if err := lock.Unlock(); err != nil {
		t.Error(err)
	}

	expectLocked(t, path, false)
	end()
}

func expectLocked(t *testing.T, path string, want bool) {
	t.Helper()

	if got, err := Locked(path); got != want || err != nil {
		t.Errorf("%s is locked: %v, %v; want %v", path, got, err, want)
	}
}
