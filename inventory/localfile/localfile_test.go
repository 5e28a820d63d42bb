// SPDX-License-Identifier: Apache-2.0

package localfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	for _, content := range []string{"old and longer", "new"} {
		if err := Replace(path, []byte(content)); err != nil {
			t.Fatal(err)
		}

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

func TestLock(t *testing.T) {
	for _, name := range []string{"", "lock"} {
		dir := filepath.Join(t.TempDir(), "new", "dir")

		unlock, err := Lock(dir, name)
		if err != nil {
			t.Fatal(err)
		}

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
