// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/contiv/cluster/inventory"
)

// Stamp returns a text that differs after any change of a file in the directory, without
// reading the files: it covers the metadata of each. Equal stamps mean an equal
// DigestDir.
func (s *Store) Stamp(ctx context.Context, dir string) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", inventory.Errorf(inventory.KindInvalid, "the playbook folder cannot be read: %w", err)
	}
	defer root.Close()

	limit := s.MaxFiles
	if limit == 0 {
		limit = DefaultMaxFiles
	}

	hash, count := sha256.New(), 0

	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return refusef("%w", err)
		case ctx.Err() != nil:
			return ctx.Err()
		case name != "." && omitted(d) && d.IsDir():
			return fs.SkipDir
		case omitted(d):
			return nil
		}

		if count++; count > limit+1 {
			return refusef("it holds more than %d files", limit)
		}

		info, err := d.Info()
		if err != nil {
			return refusef("%w", err)
		}
		fmt.Fprintf(hash, "%q %s %d %d", name, info.Mode(), info.Size(), info.ModTime().UnixNano())

		// Unlike the time of modification, nobody can set this one back.
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			fmt.Fprintf(hash, " %d %d.%d", stat.Ino, stat.Ctim.Sec, stat.Ctim.Nsec)
		}

		fmt.Fprintln(hash)

		return nil
	})
	if err != nil {
		return "", err
	}

	return hex.EncodeToString(hash.Sum(nil)), nil
}
