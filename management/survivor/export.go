// SPDX-License-Identifier: Apache-2.0

package survivor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/inventory/localfile"
	"github.com/contiv/cluster/management/audit"
	store "github.com/contiv/cluster/management/etcd"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// splitFile is in the directory of the etcd of an instance without which the manager went on.
const splitFile = "split.json"

// The files of an export.
const (
	acceptedFile = "accepted.jsonl"
	backupFile   = "store.backup"
)

// Stopped is an instance that does not start again before an operator has decided.
type Stopped struct {
	Split

	Folder  string `json:"folder,omitempty"`  // of the export; empty: there is none yet
	Entries int    `json:"entries,omitempty"` // of the audit trail that only this side has
}

// Gossip is the part of a host in the gossip.
type Gossip interface {
	Join(ctx context.Context) error
	Alive(ctx context.Context) (map[netip.Addr]bool, error)
	Close() error
}

// Host describes the stopped instance.
type Host struct {
	DataDir string
	Server  etcd.ServerOptions // of its etcd
	Kinds   []record.Any
	Secrets *store.Secrets
	Version string // of clusterm
	Logger  logrus.FieldLogger
	// After is how long all others have to be gone until the instance goes on alone by itself, see Watch; 0: it never
	// does.
	After   time.Duration
	Recover func(context.Context) error // does that
	// Gossip is the gossip of the host, for as long as no daemon runs.
	Gossip func() (Gossip, error)
	// Status tells the supervisor of the process what it does, and that this takes a while; nil: nobody.
	Status func(string)
}

// Stop exports what the instance had accepted, and keeps it from starting again. It returns the error of each start
// from now on. The daemon has ended. After an error it is repeated by Refuse.
func (h Host) Stop(ctx context.Context, s Split) error {
	stopped := Stopped{Split: s}
	if err := h.note(stopped); err != nil {
		return errors.Join(&s, err)
	}

	return h.export(ctx, stopped)
}

// Refuse returns the error of an instance that Stop keeps from starting, or nil.
func (h Host) Refuse(ctx context.Context) error {
	text, err := os.ReadFile(h.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err != nil {
		return inventory.Errorf(inventory.KindUnavailable, "%s cannot be read: %w", h.path(), err).
			Do("run as root")
	}

	var stopped Stopped

	switch err = json.Unmarshal(text, &stopped); {
	case err != nil:
		return inventory.Errorf(inventory.KindRefused,
			"the manager went on without this instance: %s: %w", h.path(), err).
			Do("move %s away, and join again", h.DataDir)
	case stopped.Folder == "":
		return h.export(ctx, stopped)
	}

	return h.refusal(stopped)
}

func (h Host) path() string { return filepath.Join(h.Server.Dir, splitFile) }

func (h Host) note(s Stopped) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return localfile.Replace(h.path(), append(text, '\n'))
}

// export writes the files, and returns the error of the instance.
func (h Host) export(ctx context.Context, s Stopped) error {
	defer h.working("exporting what this side of a split accepted")()

	partial := filepath.Join(h.DataDir, "split.partial") // of an interrupted attempt, too
	folder := filepath.Join(h.DataDir, "split-"+time.Now().UTC().Format("20060102T150405Z"))

	err := errors.Join(os.RemoveAll(partial), os.MkdirAll(partial, 0o700))
	if err == nil {
		err = h.Server.WithCopy(ctx, func(c *etcd.Client) (err error) {
			s.Entries, err = h.write(ctx, c, partial, s.Split)
			return err
		})
	}
	if err == nil {
		err = localfile.Rename(partial, folder)
	}
	if err == nil {
		s.Folder = folder
		err = h.note(s)
	}

	if err != nil {
		return inventory.Errorf(inventory.KindUnavailable, "%w; what this side had accepted was not exported: %w",
			&s.Split, errors.Join(err, os.RemoveAll(partial))).
			Do("free some space in %s: it is tried again by itself", h.DataDir)
	}

	return h.refusal(s)
}

func (h Host) refusal(s Stopped) error {
	return inventory.Errorf(inventory.KindRefused,
		"%w. What this side accepted since is in %s: %s in %s, and all records in %s", &s.Split, s.Folder,
		inventory.Count(int64(s.Entries), "entry", "entries"), acceptedFile, backupFile).
		Do("repeat there what is wanted; then move %s away, and let this host join again (clusterctl instance invite)",
			h.DataDir)
}

// write writes a backup, and the entries of the audit trail after the last one that both sides have. It returns their
// number.
func (h Host) write(ctx context.Context, c *etcd.Client, folder string, from Split) (entries int, err error) {
	s, err := store.Open(ctx, c, h.Kinds, h.Secrets, h.Logger, store.StaleAfter)
	if err != nil {
		return 0, err
	}
	defer s.Close()

	err = writeFile(filepath.Join(folder, backupFile), func(w *bufio.Writer) error {
		_, err := s.Backup(ctx, h.Version, w)
		return err
	})
	if err != nil {
		return 0, err
	}

	last := common(from, record.One(s.View(), &state.Epochs))

	trail, err := audit.Snapshot(ctx, s)
	if err != nil {
		return 0, err
	}

	return entries, writeFile(filepath.Join(folder, acceptedFile), func(w *bufio.Writer) error {
		return trail.Read(ctx, audit.Filter{}, func(e audit.Entry) error {
			if e.Seq <= last {
				return nil
			}
			entries++
			_, err := fmt.Fprintf(w, "%s\n", e.Export())
			return err
		})
	})
}

// common is the number of the last entry that both sides have. Both may have gone on alone, from different ones.
func common(other Split, own state.Epoch) uint64 {
	var all []uint64

	if entry, is := other.Since.Lost[other.Self]; is {
		all = append(all, entry)
	}
	if own.Recovered != nil {
		if entry, is := other.Since.Lost[own.Recovered.By]; is {
			all = append(all, entry)
		}
		all = append(all, slices.Collect(maps.Values(own.Recovered.Lost))...)
	}

	if len(all) == 0 {
		return 0
	}
	return slices.Min(all)
}

// writeFile writes a new file with mode 0600.
func writeFile(path string, write func(*bufio.Writer) error) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}

	w := bufio.NewWriter(f)

	if err = write(w); err == nil {
		err = w.Flush()
	}

	return errors.Join(err, f.Sync(), f.Close(), localfile.SyncDir(filepath.Dir(path)))
}
