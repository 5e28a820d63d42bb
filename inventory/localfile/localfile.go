// SPDX-License-Identifier: Apache-2.0

// Package localfile keeps the state of a process in files of its host: it
// replaces them atomically and locks files and directories. It works on Linux
// and uses the standard library only, so that every package may use it.
package localfile

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// Replace writes a file with mode 0600, durably: after a crash it holds either
// the old or the new content.
func Replace(path string, content []byte) error {
	return ReplaceAll(filepath.Dir(path), map[string][]byte{filepath.Base(path): content})
}

// ReplaceAll replaces several files of a directory, by name. It replaces each
// file atomically, but not all of them: after an error or a crash some may be
// new and others old.
func ReplaceAll(dir string, files map[string][]byte) error {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := replace(filepath.Join(dir, name), files[name]); err != nil {
			return err
		}
	}

	return SyncDir(dir)
}

// replace replaces a file, but does not sync the directory.
func replace(path string, content []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())

	// Without the sync, a crash could leave the new name without content.
	_, err = tmp.Write(content)
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}

	return os.Rename(tmp.Name(), path)
}

// Rename renames a file or a directory within its directory, durably. The
// caller has synced the content.
func Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(to))
}

// SyncDir makes the names in a directory durable: files that were created,
// renamed or removed.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}

	return nil
}
