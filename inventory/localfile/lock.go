// SPDX-License-Identifier: Apache-2.0

package localfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// ErrLocked is the error for a lock that another process, or another FileLock of
// this process, holds.
var ErrLocked = errors.New("it is in use by another process")

// Lock makes a directory, with mode 0700, and locks the file in it for this
// process until unlock is called. An empty name locks the directory itself. It
// does not wait: a lock of another process is ErrLocked.
func Lock(dir, name string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}

	l, err := TryLock(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	return func() { _ = l.Unlock() }, nil
}

// FileLock is an exclusive lock on a file or a directory. The kernel releases it
// when the last process with the open file ends, so a crash leaves no lock.
type FileLock struct{ file *os.File }

// TryLock locks an existing directory, or a file, which it creates with mode
// 0600. It does not wait: a lock of another process is ErrLocked.
func TryLock(path string) (*FileLock, error) {
	// A directory cannot be opened for writing.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if errors.Is(err, syscall.EISDIR) {
		f, err = os.Open(path)
	}

	if err != nil {
		return nil, err
	}

	if err := flock(f, syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}

	return &FileLock{f}, nil
}

// Locked reports whether a process holds a lock on path. It does not wait. A
// missing file is not locked.
func Locked(path string) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}

	if err != nil {
		return false, err
	}

	// A shared lock does not disturb other probes, only a TryLock at this moment.
	probe := &FileLock{f}

	err = flock(f, syscall.LOCK_SH)
	if errors.Is(err, ErrLocked) {
		return true, probe.Close()
	}

	return false, errors.Join(err, probe.Unlock())
}

// File is the open file with the lock. A child process that inherits it shares
// the lock and keeps it after Close.
func (l *FileLock) File() *os.File { return l.file }

// Unlock releases the lock. Closing is not enough for that: a child between
// fork and exec may still share the file.
func (l *FileLock) Unlock() error {
	return errors.Join(syscall.Flock(int(l.file.Fd()), syscall.LOCK_UN), l.file.Close())
}

// Close closes the file of this process. The lock is released when no process
// shares the file any more.
func (l *FileLock) Close() error { return l.file.Close() }

func flock(f *os.File, how int) error {
	err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = ErrLocked
	}

	if err != nil {
		return fmt.Errorf("cannot lock %s: %w", f.Name(), err)
	}

	return nil
}
