// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

// writtenKeys is the number of keys of a store with several snapshots.
const writtenKeys = 300

// written returns the directory of a server that has stored writtenKeys and has ended.
// snapshotEntries 0 leaves everything in one log.
func written(t *testing.T, snapshotEntries uint64) string {
	t.Helper()

	o := ServerOptions{Dir: shortDir(t), NoSync: true, SnapshotEntries: snapshotEntries}
	s := start(t, o)
	c := dial(t, s, "/t")

	for i := range writtenKeys {
		if _, err := c.Put(within(t, testTimeout), fmt.Sprintf("/t/%d", i), strings.Repeat("x", 1000)); err != nil {
			t.Fatal(err)
		}
	}

	errtest.None(t, errors.Join(c.Close(), s.Close()))

	return o.Dir
}

// TestDamage damages each file of a store in each way. The server serves all records
// after that, or refuses to start with a line that names the file and the remedy.
func TestDamage(t *testing.T) {
	t.Parallel()

	truncate := func(share float64) func(string) error {
		return func(path string) error {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			return os.Truncate(path, int64(share*float64(info.Size())))
		}
	}
	garbage := func(offset int64) func(string) error {
		return func(path string) error {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()

			_, err = f.WriteAt([]byte(strings.Repeat("damage", 1000)), offset)

			return err
		}
	}
	damages := map[string]func(string) error{
		"removed":                 os.RemoveAll,
		"emptied":                 truncate(0),
		"cut to a tenth":          truncate(0.1),
		"cut to a half":           truncate(0.5),
		"cut a little":            truncate(0.999),
		"garbage at the start":    garbage(0),
		"garbage after the start": garbage(20_000),
	}

	for log, entries := range map[string]uint64{"one log": 0, "several snapshots": 50} {
		template := written(t, entries)

		for _, file := range []string{"member", "member/wal", "member/snap", "member/snap/db", "member/wal/*.wal"} {
			for damage, do := range damages {
				folder := filepath.Ext(file) == "" && filepath.Base(file) != "db"
				if folder && damage != "removed" {
					continue
				}

				t.Run(fmt.Sprintf("%s of %s %s", file, log, damage), func(t *testing.T) {
					t.Parallel()

					// A child process: the damage of a page ends it.
					o := ServerOptions{Dir: shortDir(t), Command: []string{os.Args[0], "etcd"}, MustExist: true}
					data := filepath.Join(o.Dir, "data")

					errtest.None(t, os.CopyFS(data, os.DirFS(filepath.Join(template, "data"))))

					paths, err := filepath.Glob(filepath.Join(o.Dir, "data", file))
					if err != nil || len(paths) == 0 {
						t.Fatal(paths, err)
					}
					errtest.None(t, do(paths[len(paths)-1]))

					checkDamaged(t, o, paths[0])
				})
			}
		}
	}
}

// TestInterruptedFirstStart starts a server on the database of a first start that ended
// before etcd made its log. Only a directory that must have data is refused.
func TestInterruptedFirstStart(t *testing.T) {
	t.Parallel()

	for name, make := range map[string]func(path string) error{
		"a database": func(path string) error {
			db, err := bolt.Open(path, 0o600, nil)
			if err != nil {
				return err
			}
			return db.Close()
		},
		"an empty file": func(path string) error { return os.WriteFile(path, nil, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			o := ServerOptions{Dir: shortDir(t), NoSync: true, MustExist: true, Log: discardLog()}
			path := filepath.Join(o.Dir, "data", databaseFile)

			errtest.None(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), make(path)))

			if _, err := StartServer(within(t, testTimeout), o); !errors.Is(err, ErrNoData) {
				t.Errorf("got %v, want ErrNoData", err)
			}

			o.MustExist = false
			c := dial(t, start(t, o), "/t")

			if _, err := c.Put(within(t, testTimeout), "/t/one", "1"); err != nil {
				t.Error(err)
			}
		})
	}
}

// checkDamaged starts a server on damaged data.
func checkDamaged(t *testing.T, o ServerOptions, path string) {
	t.Helper()

	o.Log = discardLog()

	ctx := within(t, testTimeout)

	var c *Client

	s, err := StartServer(ctx, o)
	if err == nil {
		defer s.Close()
		c, err = s.Dial(ctx, "/t")
	}

	if err != nil {
		e, ok := errors.AsType[*inventory.Error](err)
		named := strings.Contains(err.Error(), filepath.Join(o.Dir, "data", "member"))
		missing := errors.Is(err, ErrNoData) && strings.Contains(err.Error(), o.Dir)

		if !ok || strings.Contains(err.Error(), "\n") || !missing && (!named || !strings.Contains(e.Remedy, "backup")) {
			t.Errorf("got %v, want one line with the file and a remedy", err)
		}
		return
	}

	defer c.Close()

	got, err := c.Get(ctx, fmt.Sprintf("/t/%d", writtenKeys-1))
	if err != nil || len(got.Kvs) != 1 {
		t.Errorf("with the damage to %s, the last record is %v, %v", path, got, err)
	}

	if _, err := c.Put(ctx, "/t/more", "y"); err != nil {
		t.Fatal(err)
	}

	if got, err := c.Get(ctx, "/t/more"); err != nil || len(got.Kvs) != 1 {
		t.Errorf("a new record is %v, %v", got, err)
	}
}
