// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// CheckOwned refuses a folder of playbooks that another account than root and
// that of this process may change: the folder, anything in it, and the folders
// above it. Its playbooks run with the rights of the manager. A folder above with
// the sticky bit, such as /tmp, is accepted: others cannot replace entries of it.
func CheckOwned(dir string) error {
	folder, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return refusef("%w", err)
	}

	// A link to the folder can be replaced where the link is.
	for _, path := range []string{filepath.Clean(dir), folder} {
		for at := filepath.Dir(path); ; at = filepath.Dir(at) {
			if problem := writable(at, true); problem != "" {
				return refusef("%s", problem).
					Do("move the playbooks below folders that only root can write, such as /etc/clusterm/playbooks")
			}

			if at == filepath.Dir(at) {
				break
			}
		}
	}

	problem := ""

	err = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		if omitted(d) && d.IsDir() {
			return fs.SkipDir
		}

		if problem = writable(path, false); problem != "" {
			return fs.SkipAll
		}

		return nil
	})
	if err != nil {
		return refusef("%w", err)
	}

	if problem != "" {
		return refusef("%s", problem).
			Do("let only root write it: chown -R root: %[1]s && chmod -R go-w %[1]s", folder)
	}

	return nil
}

// writable describes how another account can change the file, or is empty.
func writable(path string, above bool) string {
	info, err := os.Lstat(path)
	if err != nil {
		return err.Error()
	}

	// Playbooks run as root, so root and the own account can change them anyway.
	owner, ok := info.Sys().(*syscall.Stat_t)
	if ok && owner.Uid != 0 && int(owner.Uid) != os.Geteuid() {
		return fmt.Sprintf("%s belongs to %s, not to root", path, account(owner.Uid))
	}

	const others = 0o022

	switch {
	case info.Mode().Type() == fs.ModeSymlink, info.Mode().Perm()&others == 0:
		return ""
	case above && info.Mode()&fs.ModeSticky != 0:
		return ""
	}

	return fmt.Sprintf("others than its owner can write %s (mode %04o)", path, info.Mode().Perm())
}

func account(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}

	return "uid " + id
}
