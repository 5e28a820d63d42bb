// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/localfile"
	"github.com/contiv/cluster/management/backup"
)

func backupRows() rows {
	return rows{"backup": {formats: []string{}, complete: fileNames, run: backUp}}
}

// toStdout is the name of the file that stands for stdout.
const toStdout = "-"

func backUp(ctx context.Context, c *call) error {
	name := c.args[0]

	if name == toStdout {
		if c.outTTY {
			return exit.Usagef("a backup is no text for a terminal").Try("name a file, or redirect stdout")
		}

		received, err := c.receiveBackup(ctx, writerFunc(c.write))
		if err != nil {
			return err
		}

		c.sayBackup(received)

		return nil
	}

	if _, err := os.Lstat(name); err == nil && !c.Bool("force") {
		return errExists(name)
	}

	received, err := c.writeBackup(ctx, name)
	if err != nil {
		return err
	}

	c.sayBackup(received)

	return c.write([]byte(name + "\n"))
}

func errExists(name string) error {
	return exit.Usagef("%s already exists", name).Try("choose another name, or replace it with --force")
}

// writeBackup writes a backup to a file, which only its owner may read. The name appears with the complete file only.
func (c *call) writeBackup(ctx context.Context, name string) (received received, err error) {
	part, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*") // mode 0600
	if err != nil {
		return received, notWritten(err)
	}

	// Both fail, without harm, after a success: the file is closed and renamed.
	defer func() {
		_ = part.Close()
		_ = os.Remove(part.Name())
	}()

	if received, err = c.receiveBackup(ctx, part); err != nil {
		return received, err
	}

	if err := errors.Join(part.Sync(), part.Close()); err != nil {
		return received, notWritten(err)
	}

	if c.Bool("force") {
		if err := localfile.Rename(part.Name(), name); err != nil {
			return received, notWritten(err)
		}
		return received, nil
	}

	// Unlike a renaming, a link replaces no file that somebody else wrote meanwhile.
	switch err := os.Link(part.Name(), name); {
	case errors.Is(err, fs.ErrExist):
		return received, errExists(name)
	case err != nil:
		return received, notWritten(err)
	}

	return received, localfile.SyncDir(filepath.Dir(name))
}

func notWritten(err error) error { return exit.Errorf(exit.Failed, "cannot write the backup: %v", err) }

// received describes a backup that came whole.
type received struct {
	backup.Header
	backup.Trailer
}

// receiveBackup copies a backup from the manager to out, and checks it on the way.
func (c *call) receiveBackup(ctx context.Context, out io.Writer) (received, error) {
	var r received

	reader, writer := io.Pipe()
	checked := make(chan error, 1)

	go func() {
		var err error
		r.Trailer, err = backup.Scan(reader, func(h backup.Header) error { r.Header = h; return nil }, nil)
		_ = reader.CloseWithError(err)
		checked <- err
	}()

	copied := c.manager.Backup(ctx, io.MultiWriter(&backupFile{to: out, say: c.say}, writer))

	// What is wrong with the backup ends the copy, and then both have the same error.
	var end error
	if copied != nil {
		end = errCopy
	}

	_ = writer.CloseWithError(end)
	wrong := <-checked

	switch e, ok := errors.AsType[*inventory.Error](wrong); {
	case errors.Is(wrong, errCopy):
		return r, copied
	case ok:
		return r, exit.Errorf(exit.Failed, "%s", e.Message).Try("begin the backup again")
	default:
		return r, wrong
	}
}

// errCopy ends the check of a backup that could not be copied.
var errCopy = errors.New("the backup was not copied")

// backupFile writes a backup, and shows how far it is.
type backupFile struct {
	to       io.Writer
	say      func(format string, args ...any)
	has, due int64
}

// shownEvery is how many bytes of a backup are written between two lines about its progress.
const shownEvery = 64 << 20

func (f *backupFile) Write(p []byte) (int, error) {
	n, err := f.to.Write(p)
	f.has += int64(n)

	if f.has-f.due >= shownEvery {
		f.due = f.has
		f.say("%d MiB so far", f.has>>20)
	}

	if _, own := errors.AsType[*exit.Error](err); err != nil && !own {
		err = notWritten(err)
	}

	return n, err
}

// sayBackup describes a backup, and what has to be kept beside it.
func (c *call) sayBackup(r received) {
	c.say("%s of manager %s at revision %d", inventory.Count(r.Records, "record", "records"), r.Manager, r.Revision)

	if r.SecretsKey != "" {
		c.say("the secrets in it need the key %s of secrets.key in the data directory of the manager", r.SecretsKey)
	}

	c.say("not in it, so keep copies apart: secrets.key, gossip.key, ssh/ and pki/ of the data directory; " +
		"/etc/clusterm; the playbooks")
}
