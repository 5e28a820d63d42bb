// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"

	"github.com/contiv/cluster/inventory"
)

// ErrNoData reports a directory in which no etcd has stored data yet.
var ErrNoData = errors.New("it contains no data")

// Files of the embedded etcd below the directory of its data.
const (
	logFolder    = "member/wal"
	databaseFile = "member/snap/db"
)

// checkData refuses damaged data, and a directory without data if MustExist is set.
// It waits for a server that is still ending.
func (o ServerOptions) checkData(ctx context.Context) error {
	if err := awaitUnlocked(ctx, filepath.Join(o.dataDir(), logFolder)); err != nil {
		return err
	}

	err := Inspect(o.Dir)
	if errors.Is(err, ErrNoData) && !o.MustExist {
		return nil
	}

	return err
}

// Inspect checks the files of an embedded etcd that does not run. It changes nothing.
// The error names the missing or damaged file; it wraps ErrNoData if there are no data
// at all. etcd itself would serve an empty store in place of some damaged ones, and
// end with a stack trace for others.
func Inspect(dir string) error {
	dir = ServerOptions{Dir: dir}.dataDir()

	logs, err := filepath.Glob(filepath.Join(dir, logFolder, "*.wal"))
	if err != nil {
		return err
	}

	database := filepath.Join(dir, databaseFile)
	_, err = os.Stat(database)
	hasDatabase := err == nil

	if len(logs) == 0 {
		// etcd makes its database before its log. A first start that was interrupted in
		// between has committed nothing.
		if hasDatabase {
			if applied, err := inspectDatabase(database, false); err != nil || applied > 0 {
				return damaged(dir, logFolder, errors.New("it is missing, and the database is of no use alone"))
			}
		}

		return inventory.Errorf(inventory.KindRefused, "the store in %s is missing: %w", dir, ErrNoData)
	}

	for _, path := range logs {
		if err := checkNotEmpty(path); err != nil {
			return damaged(dir, filepath.Join(logFolder, filepath.Base(path)), err)
		}
	}

	ends, err := inspectLog(filepath.Join(dir, logFolder))
	if err != nil {
		return damaged(dir, logFolder, err)
	}

	if !hasDatabase {
		// From its first entry on, the log contains all records.
		if ends.first == 0 {
			return nil
		}
		return damaged(dir, databaseFile, errors.New("it is missing"))
	}

	applied, err := inspectDatabase(database, ends.first > 0)
	if err != nil {
		return damaged(dir, databaseFile, err)
	}

	switch {
	case applied > ends.last:
		return damaged(dir, logFolder,
			fmt.Errorf("it ends at entry %d, but the database contains entry %d: its end is lost", ends.last, applied))
	case applied < ends.first:
		return damaged(dir, databaseFile,
			fmt.Errorf("it contains entries up to %d, but the log begins after entry %d", applied, ends.first))
	}

	return nil
}

// damaged reports a file of the store with the only remedy.
func damaged(dir, file string, err error) error {
	return inventory.Errorf(inventory.KindUnavailable, "the store is damaged: %s: %w", filepath.Join(dir, file), err).
		Do("stop clusterm, put a backup in its place (clusterm restore FILE), and start it again")
}

func checkNotEmpty(path string) error {
	info, err := os.Stat(path)
	if err == nil && info.Size() == 0 {
		return errors.New("the file is empty")
	}
	return err
}

// logEnds are the indexes of the entries before the first and of the last one that a
// log contains, and of the last one that was committed.
type logEnds struct{ first, last, committed uint64 }

// inspectLog reads the log from its last snapshot on.
func inspectLog(dir string) (logEnds, error) {
	snapshots, err := wal.ValidSnapshotEntries(nil, dir)
	if err != nil {
		return logEnds{}, err
	}
	if len(snapshots) == 0 {
		return logEnds{}, errors.New("it does not begin like a log of etcd")
	}

	newest := snapshots[len(snapshots)-1]

	log, err := wal.OpenForRead(nil, dir, &walpb.Snapshot{Index: newest.Index, Term: newest.Term})
	if err != nil {
		return logEnds{}, err
	}
	defer log.Close()

	// Without an error, the end may be torn: etcd repairs that, as no client has got an
	// answer for such an entry.
	_, state, entries, err := log.ReadAll()
	if err != nil {
		return logEnds{}, err
	}

	ends := logEnds{first: newest.GetIndex(), last: newest.GetIndex(), committed: state.GetCommit()}
	if len(entries) > 0 {
		ends.last = entries[len(entries)-1].GetIndex()
	}

	if state.GetCommit() > ends.last {
		return logEnds{}, fmt.Errorf("it ends at entry %d, but entry %d was committed: its end is lost",
			ends.last, state.GetCommit())
	}

	return ends, nil
}

// databaseTimeout is how long to wait for a process that has the database open.
const databaseTimeout = 5 * time.Second

// inspectDatabase returns the index of the last entry that the database contains.
// An empty file contains none; it is an error if the database is needed.
func inspectDatabase(path string, needed bool) (applied uint64, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}

	if info.Size() == 0 {
		if needed {
			return 0, errors.New("the file is empty")
		}
		return 0, nil
	}

	// A page beyond the end of a truncated file is a fault of the memory map.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			applied, err = 0, fmt.Errorf("it cannot be read: %v", r)
		}
	}()

	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: databaseTimeout})
	if err != nil {
		return 0, err
	}
	defer db.Close()

	err = db.View(func(tx *bolt.Tx) error {
		if tx.Size() > info.Size() {
			return fmt.Errorf("the file has %d bytes instead of %d", info.Size(), tx.Size())
		}

		// The names are those of etcd's package schema, which does not export them.
		if meta := tx.Bucket([]byte("meta")); meta != nil {
			if index := meta.Get([]byte("consistent_index")); len(index) == 8 {
				applied = binary.BigEndian.Uint64(index)
			}
		}

		return nil
	})

	return applied, err
}
