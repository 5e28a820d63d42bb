// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory/localfile"
)

const (
	queueLength = 1024
	batchLength = 256
	maxFile     = 4 << 20
	// waitTime bounds the wait of a mutation for the sync of its entry.
	waitTime = 5 * time.Second
)

// Options configure a Log.
type Options struct {
	Dir      string // made if it is missing
	Instance string
	// Keep and KeepFor bound the number and the age of the entries that are kept. Whole
	// files are removed, so somewhat more are.
	Keep    int
	KeepFor time.Duration
	Logger  logrus.FieldLogger

	fileSize int64 // after which the next file begins, in bytes; 0: maxFile
}

// Log appends to the audit trail. Its methods may be called concurrently.
type Log struct {
	Options

	queue chan item
	lost  atomic.Uint64 // entries dropped since the last one that was written

	mu     sync.RWMutex // guards closed against a send on the closed queue
	closed bool
	ended  chan struct{}

	// Of the writing goroutine.
	file *os.File
	size int64
	seq  uint64 // of the last entry
	prev string // its hash
}

type item struct {
	entry  Entry
	synced chan error // nil: nobody waits
}

// Open continues the trail in a folder, which must belong to one process at a time.
func Open(o Options) (*Log, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}

	l := &Log{Options: o, queue: make(chan item, queueLength), ended: make(chan struct{})}

	removed, err := l.resume()
	if err != nil {
		return nil, fmt.Errorf("cannot continue the audit trail in %s: %w", o.Dir, err)
	}

	go l.run()

	if removed > 0 {
		_ = l.Append(context.Background(), Entry{
			Time: time.Now(), Principal: "clusterm", Action: ActionRecovered,
			Reason: fmt.Sprintf("the last %d bytes were incomplete, and are removed", removed),
		}, false)
	}

	return l, nil
}

// resume opens the last file, and returns the length of an incomplete line that it
// removed from its end.
func (l *Log) resume() (removed int64, err error) {
	files, err := filesIn(l.Dir)
	if err != nil {
		return 0, err
	}

	if len(files) == 0 {
		return 0, l.begin()
	}

	last := files[len(files)-1]

	l.file, err = os.OpenFile(filepath.Join(l.Dir, last.name), os.O_RDWR, 0o600)
	if err != nil {
		return 0, err
	}

	text, err := io.ReadAll(l.file)
	if err != nil {
		return 0, err
	}

	l.seq = last.first - 1
	l.size = int64(bytes.LastIndexByte(text, '\n') + 1)
	removed = int64(len(text)) - l.size

	if removed > 0 {
		if err := l.file.Truncate(l.size); err != nil {
			return 0, err
		}
	}

	if _, err := l.file.Seek(l.size, io.SeekStart); err != nil {
		return 0, err
	}

	// A damaged line keeps its place, so that verify finds it.
	for line := range bytes.Lines(text[:l.size]) {
		l.seq++

		if e, hash, err := parseLine(bytes.TrimSuffix(line, []byte("\n"))); err == nil {
			l.seq, l.prev = e.Seq, hash
		}
	}

	// The first entry of a file names the last one of the file before.
	if l.size == 0 && len(files) > 1 {
		l.prev, err = lastHash(filepath.Join(l.Dir, files[len(files)-2].name))
	}

	return removed, err
}

// begin begins the file of the next entry.
func (l *Log) begin() error {
	path := filepath.Join(l.Dir, fileName(l.seq+1))

	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}

	if l.file != nil {
		l.file.Close()
	}

	l.file, l.size = file, 0

	return localfile.SyncDir(l.Dir)
}

// Append adds an entry, whose number and hashes it sets. With durable it returns once
// the entry is synced, or the error of that; otherwise it does not block, and drops
// the entry if too many wait.
func (l *Log) Append(ctx context.Context, e Entry, durable bool) error {
	it := item{entry: e}
	if durable {
		it.synced = make(chan error, 1)
	}

	// The mutation is made, so the end of its request must not drop its entry.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), waitTime)
	defer cancel()

	if err := l.enqueue(ctx, it); err != nil {
		l.lost.Add(1)
		return err
	}

	if !durable {
		return nil
	}

	select {
	case err := <-it.synced:
		return err
	case <-ctx.Done():
		return errors.New("the audit trail is not written in time")
	}
}

func (l *Log) enqueue(ctx context.Context, it item) error {
	l.mu.RLock()
	defer l.mu.RUnlock()

	if l.closed {
		return errors.New("the audit trail is closed")
	}

	select {
	case l.queue <- it:
		return nil
	default:
	}

	if it.synced == nil {
		return errors.New("too many entries wait")
	}

	select {
	case l.queue <- it:
		return nil
	case <-ctx.Done():
		return errors.New("too many entries wait")
	}
}

// Close writes the entries that wait, and ends.
func (l *Log) Close() error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.queue)
	}

	l.mu.Unlock()

	<-l.ended

	return nil
}

// run writes batches until Close.
func (l *Log) run() {
	defer close(l.ended)
	defer func() { _ = l.file.Close() }()

	l.prune(time.Now())

	for it := range l.queue {
		batch := []item{it}
		for len(batch) < batchLength && len(l.queue) > 0 {
			batch = append(batch, <-l.queue)
		}

		err := l.write(batch)
		if err != nil {
			l.lost.Add(uint64(len(batch)))
			l.Logger.WithError(err).Error("cannot write the audit trail")
		}

		for _, it := range batch {
			if it.synced != nil {
				it.synced <- err
			}
		}
	}
}

// write appends a batch and syncs it. After an error nothing of it is in the file.
func (l *Log) write(batch []item) error {
	if l.size > cmp.Or(l.fileSize, maxFile) {
		if err := l.begin(); err != nil {
			return err
		}

		l.prune(time.Now())
	}

	lost := l.lost.Swap(0)
	if lost > 0 {
		batch = append([]item{{entry: Entry{
			Time: time.Now(), Principal: "clusterm", Action: ActionLost,
			Reason: fmt.Sprintf("%d entries were dropped before this one", lost),
		}}}, batch...)
	}

	var text []byte

	seq, prev := l.seq, l.prev
	for _, it := range batch {
		e := it.entry.clean()
		seq++
		e.Seq, e.Prev, e.Instance = seq, prev, l.Instance

		line, hash, err := e.line()
		if err != nil {
			return err
		}

		text, prev = append(text, line...), hash
	}

	_, err := l.file.Write(text)
	if err == nil {
		err = l.file.Sync()
	}

	if err != nil {
		l.lost.Add(lost)

		// A part of it would break the chain.
		_, seekErr := l.file.Seek(l.size, io.SeekStart)

		return errors.Join(err, l.file.Truncate(l.size), seekErr)
	}

	l.size, l.seq, l.prev = l.size+int64(len(text)), seq, prev
	l.Logger.WithFields(logrus.Fields{"seq": seq, "hash": prev}).Debug("audit trail")

	return nil
}

// prune removes the oldest files with all their entries beyond one of the bounds.
func (l *Log) prune(now time.Time) {
	files, err := filesIn(l.Dir)
	if err != nil {
		l.Logger.WithError(err).Warn("cannot list the audit trail")
		return
	}

	for i := 0; i+1 < len(files); i++ {
		path := filepath.Join(l.Dir, files[i].name)
		kept := l.seq + 1 - files[i+1].first // entries without this file

		st, err := os.Stat(path)
		//nolint:gosec // the configuration bounds it
		if err != nil || kept < uint64(l.Keep) && now.Sub(st.ModTime()) < l.KeepFor {
			return
		}

		if err := os.Remove(path); err != nil {
			l.Logger.WithError(err).Warn("cannot remove the oldest file of the audit trail")
			return
		}
	}
}
