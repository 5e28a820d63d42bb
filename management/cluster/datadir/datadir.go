// SPDX-License-Identifier: Apache-2.0

// Package datadir has the files by which the data directory of an instance is known again: the identity of the
// instance, and the place at which it was written.
package datadir

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/localfile"
)

// instanceFile contains the identity, in the data directory.
const instanceFile = "instance.id"

// ids matches a valid identity.
var ids = regexp.MustCompile(`^[0-9a-f]{16}$`)

// IsID reports whether an identity, of an instance or of a store, is valid.
func IsID(id string) bool { return ids.MatchString(id) }

// InstanceID returns the identity of the daemon with this data directory, which
// the first start generates. It survives restarts, so that a daemon recognizes
// its own records.
func InstanceID(dataDir string) (string, error) {
	path := filepath.Join(dataDir, instanceFile)

	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		var b [8]byte
		rand.Read(b[:])

		id := hex.EncodeToString(b[:])

		return id, SetInstanceID(dataDir, id)
	}

	if err != nil {
		return "", inventory.Errorf(inventory.KindUnavailable, "the identity of this instance cannot be read: %w", err).
			Do("run as root")
	}

	id := strings.TrimSpace(string(data))
	if !IsID(id) {
		return "", inventory.Errorf(inventory.KindInvalid, "%s holds no valid identity", path).
			Do("remove it; the next start generates a new one")
	}

	return id, nil
}

// SetInstanceID gives the data directory of an instance that joins the identity under which it was admitted.
func SetInstanceID(dataDir, id string) error {
	if err := localfile.Replace(filepath.Join(dataDir, instanceFile), []byte(id+"\n")); err != nil {
		return inventory.Errorf(inventory.KindUnavailable, "the identity of this instance cannot be written: %w", err).
			Do("check owner, mode and free space of %s", dataDir)
	}
	return nil
}

// Traces names the traces of a former store in the data directory: the identity of
// the instance, which follows the first write to a new store, and the playbooks of
// its jobs.
func Traces(dataDir string) []string {
	if _, err := os.Stat(filepath.Join(dataDir, instanceFile)); err != nil {
		return nil
	}

	traces := []string{instanceFile}

	pinned, err := os.ReadDir(filepath.Join(dataDir, "playbooks"))
	if err == nil && len(pinned) > 0 {
		traces = append(traces, fmt.Sprintf("the playbooks of its jobs (%d in playbooks)", len(pinned)))
	}

	return traces
}

// placeFile contains the time at which the file with the identity came to its place. That is the
// time of its inode, which no archive and no copy brings along.
const placeFile = "instance.place"

// place returns the time for placeFile.
func place(dataDir string) (string, error) {
	info, err := os.Stat(filepath.Join(dataDir, instanceFile))
	if err != nil {
		return "", err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", fmt.Errorf("%s has no inode", instanceFile)
	}
	return fmt.Sprintf("%d.%09d", stat.Ctim.Sec, stat.Ctim.Nsec), nil
}

// Moved reports whether the data directory was restored from a backup, or copied, since the last call of settle.
func Moved(dataDir string) (moved bool, settle func() error, err error) {
	now, err := place(dataDir)
	if err != nil {
		return false, nil, err
	}

	path := filepath.Join(dataDir, placeFile)

	// Without the file, an earlier version has made the directory.
	before, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return false, nil, err
	}
	former := strings.TrimSpace(string(before))
	settle = func() error {
		if former == now {
			return nil
		}
		return localfile.Replace(path, []byte(now+"\n"))
	}

	return former != "" && former != now, settle, nil
}
