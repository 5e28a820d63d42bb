// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// The bounds of a bundle, in bytes before compression and in numbers.
const (
	maxBytes   = 64 << 20
	maxLog     = 1 << 20 // of one log: its end
	maxJobs    = 20      // the newest that failed or run
	maxNodes   = 100     // with a problem
	maxHistory = 200     // entries of one node
)

// Options describe a bundle.
type Options struct {
	Manager *client.Client
	Where   string      // the URL of the manager
	Version api.Version // of clusterctl
	Journal bool        // include the journal of clusterm on this host
	Say     func(format string, args ...any)
}

// Result describes a bundle that was written.
type Result struct {
	Files      int
	LeftOut    []string // a file and the reason, one per line
	Incomplete error    // the manager became unreachable; nil: it did not
}

// Write writes a bundle to a new file, which only its owner may read. The file
// appears under its name once it is complete. If the manager does not answer at
// all, Write returns the error and leaves no file.
func Write(ctx context.Context, name string, o Options) (Result, error) {
	if _, err := os.Lstat(name); err == nil {
		return Result{}, exit.Usagef("%s already exists", name).Try("choose another name, or remove the file")
	}

	// The name appears with the complete bundle only.
	part := name + ".part"

	f, err := os.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return Result{}, exit.Usagef("%s already exists, perhaps from an interrupted run", part).Try("remove the file")
	}

	if err != nil {
		return Result{}, writeError(err)
	}

	// Both fail, without harm, after a success: the file is closed and renamed.
	defer func() {
		_ = f.Close()
		_ = os.Remove(part)
	}()

	zip := gzip.NewWriter(f)

	asking, stop := context.WithCancel(ctx)
	defer stop()

	b := &archive{options: o, tar: tar.NewWriter(zip), flush: zip.Flush, now: time.Now(), stop: stop}
	err = b.collect(asking)

	switch {
	case ctx.Err() != nil:
		return Result{}, context.Cause(ctx)
	case err != nil:
		return Result{}, err
	}

	if err := errors.Join(b.tar.Close(), zip.Close(), f.Sync(), f.Close()); err != nil {
		return Result{}, writeError(err)
	}

	if err := os.Rename(part, name); err != nil {
		return Result{}, writeError(err)
	}

	return Result{Files: len(b.contents), LeftOut: b.leftOut, Incomplete: b.unreachable}, nil
}

func writeError(err error) error {
	return exit.Errorf(exit.Failed, "cannot write the bundle: %v", err)
}

// archive is one bundle being written.
type archive struct {
	options     Options
	tar         *tar.Writer
	flush       func() error // writes what tar has written to the disk, which may be full
	stop        func()       // ends the requests to the manager: nothing more can be stored
	now         time.Time
	size        int64
	contents    []string // one line per file
	leftOut     []string // a file and the reason, one per line
	unreachable error    // the first answer that did not arrive
	failed      error    // the archive cannot be written, or the operator interrupted: all that follows is skipped
}

// add stores the result of a step, redacted, or lists it as left out.
func (b *archive) add(name, description string, v any, err error) {
	switch {
	case b.failed != nil:
		return
	case errors.Is(err, context.Canceled):
		b.failed = err
		return
	case err != nil:
		// Only the first outage is reported; the rest likely has the same cause.
		if inventory.KindOf(err) == inventory.KindUnavailable && b.unreachable == nil {
			b.unreachable = err
		}

		b.leftOut = append(b.leftOut, name+": "+print.Line(exit.Message(err)))
		return
	}

	// Text is redacted by its patterns, and JSON by its keys as well.
	if text, ok := v.(string); ok {
		b.addFile(name, description, []byte(redactText(text)))
		return
	}

	doc, err := json.Marshal(v)
	if err == nil {
		doc, err = redactJSON(doc, "  ")
	}
	if b.failed = err; err == nil {
		b.addFile(name, description, doc)
	}
}

// addFile stores a file as it is, unless the bundle is full.
func (b *archive) addFile(name, description string, data []byte) {
	size := int64(len(data))

	switch {
	case b.failed != nil:
		return
	case b.size+size > maxBytes:
		b.leftOut = append(b.leftOut, fmt.Sprintf("%s: the bundle would exceed %d MiB", name, maxBytes>>20))
		return
	}

	b.size += size
	b.contents = append(b.contents, fmt.Sprintf("%-32s %s", name, description))
	b.options.Say("%-32s %s", name, inventory.Count(size, "byte", "bytes"))

	err := b.tar.WriteHeader(&tar.Header{
		Name: "clusterm-support/" + name, Mode: 0o600, Size: size, ModTime: b.now, Typeflag: tar.TypeReg,
	})
	if err == nil {
		_, err = b.tar.Write(data)
	}

	if err == nil {
		err = b.flush()
	}

	if err != nil {
		b.failed = writeError(err)
		b.stop()
	}
}

// readme returns the list of files, the rules of redaction, and the omissions.
func (b *archive) readme() string {
	text := "A support bundle of clusterm, created by clusterctl support-bundle on " +
		b.now.UTC().Format(time.RFC3339) + ".\n\nContents:\n" + indented(b.contents) + "\nNever included:\n" +
		"  the values of variables; variables of requests; everything that looks like a password, a token or a " +
		"private key\n" +
		fmt.Sprintf("  all but the last %d KiB of each log\n", maxLog>>10) +
		fmt.Sprintf("  the output of jobs, except the newest %d that failed or run\n", maxJobs) +
		fmt.Sprintf("  the history of nodes without a problem, and of more than %d nodes\n", maxNodes)

	if len(b.leftOut) > 0 {
		text += "\nMissing from this bundle:\n" + indented(b.leftOut)
	}

	return text + "\n" + redactionRules
}

func indented(lines []string) string { return "  " + strings.Join(lines, "\n  ") + "\n" }
