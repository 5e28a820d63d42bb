// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// maxSocketDir is the longest path of a directory for ssh's control sockets. The
// path of a socket is limited to 107 bytes. Its name has 49, and ssh appends 17
// more while it creates a socket.
const maxSocketDir = 107 - len("/") - 49 - 17

// socketDir returns the directory for ssh's control sockets of the run in dir. It
// is below dir, unless that path is too long.
func socketDir(dir string) string {
	dir = resolved(dir)

	sockets := filepath.Join(dir, dirSockets)
	if len(sockets) <= maxSocketDir {
		return sockets
	}

	base := socketBases[0]
	if unix.Access(base, unix.W_OK) != nil {
		base = socketBases[1]
	}

	sum := sha256.Sum256([]byte(dir))

	return filepath.Join(base, socketPrefix+hex.EncodeToString(sum[:8]))
}

// socketBases are the folders of directories for sockets outside of the run's.
var socketBases = [...]string{"/run", "/tmp"}

const socketPrefix = "clusterm-"

// fileOwner is in a directory for sockets outside of the run's, with the path of the
// run's directory.
const fileOwner = "run"

// makeSockets makes the directory for the sockets of the run in dir.
func makeSockets(dir, sockets string) error {
	if err := makePrivate(sockets); err != nil || filepath.Base(sockets) == dirSockets {
		return err
	}
	return os.WriteFile(filepath.Join(sockets, fileOwner), []byte(resolved(dir)), 0o600)
}

// SweepSockets removes the directories for sockets that dead runs have left outside of
// the folder of runs. It leaves those of active runs, and of runs in other folders.
func SweepSockets(runs string) error {
	runs = resolved(runs)

	var errs []error
	for _, base := range socketBases {
		found, err := filepath.Glob(filepath.Join(base, socketPrefix+"*"))
		errs = append(errs, err)

		for _, sockets := range found {
			if checkPrivate(sockets) != nil {
				continue // of another account, or no such directory
			}

			owner, err := os.ReadFile(filepath.Join(sockets, fileOwner))
			if err != nil || filepath.Dir(string(owner)) != runs || (&Run{string(owner)}).Alive() {
				continue
			}

			errs = append(errs, os.RemoveAll(sockets))
		}
	}

	return errors.Join(errs...)
}

// resolved returns the path without links, as Ansible uses it.
func resolved(dir string) string {
	if path, err := filepath.EvalSymlinks(dir); err == nil {
		return path
	}
	return dir
}

// makePrivate creates a directory that only this account can use. It refuses one
// of another account, because the path may be predictable.
func makePrivate(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	return checkPrivate(dir)
}

// checkPrivate refuses anything but a directory that only this account can use.
func checkPrivate(dir string) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return err
	}

	if st.Mode != unix.S_IFDIR|0o700 || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s exists and is not a private directory of this account; remove it", dir)
	}

	return nil
}
