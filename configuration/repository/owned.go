// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/contiv/cluster/inventory"
)

// CheckOwned returns the path of a folder of playbooks without links, which the
// caller must use in place of dir. It refuses a folder that another account than
// root and that of this process may change: the folder, anything in it, and every
// folder and link on the way to it. Its playbooks run with the rights of the manager.
// A folder on the way with the sticky bit, such as /tmp, is accepted: others cannot
// replace entries of it.
func CheckOwned(dir string) (resolved string, err error) {
	return checkFolder(dir, refusef, "move the playbooks below folders that only root can write, such as "+
		"/etc/clusterm/playbooks")
}

// CheckOwnedFolder is CheckOwned for a folder that is not one of playbooks.
func CheckOwnedFolder(dir string) (resolved string, err error) {
	return checkFolder(dir, refuser("the folder "+dir), "move the folder below folders that only root can write, "+
		"such as /etc/clusterm")
}

// refusal returns the error about a folder or a file.
type refusal func(format string, args ...any) *inventory.Error

// refuser returns the refusal of a folder or a file.
func refuser(what string) refusal {
	return func(format string, args ...any) *inventory.Error {
		return inventory.Errorf(inventory.KindInvalid, "%s cannot be used: %w", what, fmt.Errorf(format, args...))
	}
}

// checkFolder refuses a folder that another account may change, and returns its path without links.
func checkFolder(dir string, refuse refusal, move string) (resolved string, err error) {
	folder, err := withoutLinks(dir, refuse, move)
	if err != nil {
		return "", err
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
		return "", refuse("%w", err)
	}

	if problem != "" {
		return "", refuse("%s", problem).
			Do("let only root write it: chown -R root: %[1]s && chmod -R go-w %[1]s", folder)
	}

	return folder, nil
}

// CheckOwnedFile returns the path of a file without links, which the caller must use in
// place of path. It refuses a file that another account than root and that of this
// process may change: the file, and every folder and link on the way to it.
func CheckOwnedFile(path string) (resolved string, err error) {
	refuse := refuser("the file " + path)

	file, err := withoutLinks(
		path, refuse, "move the file below folders that only root can write, such as /etc/clusterm")
	if err != nil {
		return "", err
	}
	if problem := writable(file, false); problem != "" {
		return "", refuse("%s", problem).Do("let only root write it: chown root: %[1]s && chmod go-w %[1]s", file)
	}

	return file, nil
}

// withoutLinks returns the path of a folder or a file without links. move is the remedy
// for a way to it that others can change, and refuse makes the errors. It refuses a path through a
// folder or a link that another account can change. Each folder is checked before
// an entry of it is read, so that nobody can replace one in between.
func withoutLinks(dir string, refuse refusal, move string) (string, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return "", refuse("%w", err)
	}

	// As many links as Linux follows.
	const maxLinks = 40

	at, rest, links := "/", strings.Split(path, "/"), 0

	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]

		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}

		next := filepath.Join(at, name)

		info, err := os.Lstat(next)
		if err != nil {
			return "", refuse("%w", err)
		}
		isLink := info.Mode().Type() == fs.ModeSymlink

		problem := writable(at, true)
		if problem == "" && isLink {
			problem = writable(next, true)
		}
		if problem != "" {
			return "", refuse("%s", problem).Do("%s", move)
		}

		if !isLink {
			at = next
			continue
		}

		if links++; links > maxLinks {
			return "", refuse("%s leads through too many links", dir).Do("give the path without links")
		}

		target, err := os.Readlink(next)
		if err != nil {
			return "", refuse("%w", err)
		}
		if filepath.IsAbs(target) {
			at = "/"
		}

		rest = append(strings.Split(target, "/"), rest...)
	}

	return at, nil
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
