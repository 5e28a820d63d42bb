// SPDX-License-Identifier: Apache-2.0

// Package localfile keeps the state of a process in files of its host: it
// replaces them atomically and locks their directory.
package localfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// ErrLocked is the error of Lock for a directory that another process has locked.
var ErrLocked = errors.New("it is in use by another process")

// Replace writes a file with mode 0600, durably: after a crash it holds either
// the old or the new content.
func Replace(path string, content []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())

	_, err = tmp.Write(content)
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}

	if err := os.Rename(tmp.Name(), path); err != nil {
		return err
	}

	// The new name is durable only with the directory.
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}

	return errors.Join(dir.Sync(), dir.Close())
}

// Lock makes a directory, with mode 0700, and locks the file in it for this
// process until unlock is called. An empty name locks the directory itself. It
// does not wait: a lock of another process is ErrLocked.
func Lock(dir, name string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}

	var f *os.File
	if name == "" {
		f, err = os.Open(dir)
	} else {
		f, err = os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR, 0o600)
	}

	if err != nil {
		return nil, err
	}

	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()

		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrLocked
		}

		return nil, fmt.Errorf("cannot lock %s: %w", dir, err)
	}

	return func() {
		// Closing is not enough: a child between fork and exec may still share
		// the file, and with it the lock.
		_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
		f.Close()
	}, nil
}
