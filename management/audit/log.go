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
	"slices"
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
	// gatherTime bounds the time until the sync of an entry that nobody waits for.
	gatherTime = time.Second
	// sweepTime is how often ended floods and retention are looked after.
	sweepTime = 30 * time.Second
	// recentLength is the number of entries in memory, for followers.
	recentLength = 1024
	// filesPerAge is the least number of files for the entries of KeepFor.
	filesPerAge = 12
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

	queue            chan item
	lost             atomic.Uint64 // entries dropped since the last one that was written
	strangers, known *floods
	recent           recent

	mu     sync.RWMutex // guards closed against a send on the closed queue
	closed bool
	ended  chan struct{}

	// Of the writing goroutine.
	file  *os.File
	size  int64
	begun time.Time // when the first entry of the file was made
	seq   uint64    // of the last entry
	prev  string    // its hash

	syncs atomic.Int64 // for tests
}

// item is an entry to write, or with mark only a place in the queue.
type item struct {
	entry  Entry
	mark   bool
	synced chan error // nil: nobody waits
}

// Open continues the trail in a folder, which must belong to one process at a time.
func Open(o Options) (*Log, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}

	l := &Log{
		Options: o, queue: make(chan item, queueLength), ended: make(chan struct{}),
		strangers: &floods{sources: strangerSources, entries: strangerEntries, open: map[source]*flood{}},
		known:     &floods{sources: knownSources, entries: knownEntries, open: map[source]*flood{}},
		recent:    recent{woken: make(chan struct{})},
	}

	removed, err := l.resume()
	if err != nil {
		return nil, fmt.Errorf("cannot continue the audit trail in %s: %w", o.Dir, err)
	}

	l.recent.last = l.seq

	go l.run()

	if removed > 0 {
		_ = l.Defer(context.Background(), Entry{
			Time: time.Now(), Who: self, Verb: VerbRecovered, Result: Done,
			Reason: fmt.Sprintf("the last %d bytes were incomplete, and are removed", removed),
		})
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

	l.seq, l.begun = last.first-1, time.Now()
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

			if e.Time.Before(l.begun) {
				l.begun = e.Time
			}
		}
	}

	// The first entry of a file names the last one of the file before.
	if l.size == 0 && len(files) > 1 {
		l.prev, err = lastHash(context.Background(), filepath.Join(l.Dir, files[len(files)-2].name))
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

	l.file, l.size, l.begun = file, 0, time.Now()

	return localfile.SyncDir(l.Dir)
}

// Append adds an entry, and sets its number and hashes. It returns once the entry is
// synced, or the error of that.
func (l *Log) Append(ctx context.Context, e Entry) error { return l.await(ctx, item{entry: e}) }

// Sync returns once every entry is synced that was added before.
func (l *Log) Sync(ctx context.Context) error { return l.await(ctx, item{mark: true}) }

func (l *Log) await(ctx context.Context, it item) error {
	// The mutation is made, so the end of its request must not drop its entry.
	if !it.mark {
		ctx = context.WithoutCancel(ctx)
	}

	ctx, cancel := context.WithTimeout(ctx, waitTime)
	defer cancel()

	it.synced = make(chan error, 1)
	if err := l.enqueue(ctx, it); err != nil {
		return err
	}

	select {
	case err := <-it.synced:
		return err
	case <-ctx.Done():
		return errors.New("the audit trail is not written in time")
	}
}

// Defer adds an entry that is synced soon, together with others. It blocks only while
// the queue is full, for a bounded time.
func (l *Log) Defer(ctx context.Context, e Entry) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), waitTime)
	defer cancel()

	return l.enqueue(ctx, item{entry: e})
}

// Refuse adds an entry about a refusal, and never blocks. Many refusals of one source
// share an entry, which follows within some minutes.
func (l *Log) Refuse(e Entry) error {
	counted := l.known
	if e.Credential == "" || e.Credential == e.Via {
		counted = l.strangers // a listener is a credential of everybody that reaches it
	}

	// The manager's own failures cannot be forced by anybody.
	if e.Via != "" && !counted.admits(e) {
		return nil
	}

	full, cancel := context.WithCancel(context.Background())
	cancel()

	return l.enqueue(full, item{entry: e})
}

// enqueue waits for room in the queue until ctx ends.
func (l *Log) enqueue(ctx context.Context, it item) (err error) {
	l.mu.RLock()
	defer l.mu.RUnlock()

	defer func() {
		if err != nil && !it.mark {
			l.lost.Add(1)
		}
	}()

	if l.closed {
		return errors.New("the audit trail is closed")
	}

	select {
	case l.queue <- it:
		return nil
	default:
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

	sweep := time.NewTicker(sweepTime)
	defer sweep.Stop()

	gather := time.NewTimer(gatherTime)
	gather.Stop()

	var pending []item

	commit := func() {
		gather.Stop()
		l.commit(pending)

		pending = nil
	}

	for {
		select {
		case it, more := <-l.queue:
			if !more {
				pending = append(pending, l.endFloods(time.Time{}, time.Now())...)
				commit()

				return
			}

			if len(pending) == 0 {
				gather.Reset(gatherTime)
			}

			pending = l.fill(append(pending, it))
			if len(pending) >= batchLength || slices.ContainsFunc(pending, isAwaited) {
				commit()
			}
		case <-gather.C:
			commit()
		case now := <-sweep.C:
			pending = append(pending, l.endFloods(now.Add(-floodTime), now)...)
			commit()
			l.prune(now)
		}
	}
}

func isAwaited(it item) bool { return it.synced != nil }

// fill adds what waits in the queue to a batch.
func (l *Log) fill(batch []item) []item {
	for len(batch) < batchLength {
		select {
		case it, more := <-l.queue:
			if !more {
				return batch // run meets the end again
			}

			batch = append(batch, it)
		default:
			return batch
		}
	}

	return batch
}

// endFloods returns the entries of the floods that began before a time; zero: of all.
func (l *Log) endFloods(before, now time.Time) []item {
	if before.IsZero() {
		before = now.Add(floodTime)
	}

	var items []item
	for _, e := range append(l.strangers.end(before, now), l.known.end(before, now)...) {
		items = append(items, item{entry: e})
	}

	return items
}

// commit writes a batch, and gives the result to the callers that wait for it.
func (l *Log) commit(batch []item) {
	entries := make([]Entry, 0, len(batch))
	for _, it := range batch {
		if !it.mark {
			entries = append(entries, it.entry)
		}
	}

	var err error
	if len(entries) > 0 {
		err = l.write(entries)
	}

	if err != nil {
		l.lost.Add(uint64(len(entries)))
		l.Logger.WithError(err).Error("cannot write the audit trail")
	}

	for _, it := range batch {
		if it.synced != nil {
			it.synced <- err
		}
	}
}

// write appends entries and syncs them. After an error nothing of them is in the file.
func (l *Log) write(entries []Entry) error {
	now := time.Now()
	aged := l.size > 0 && now.Sub(l.begun) > l.KeepFor/filesPerAge

	if l.size > cmp.Or(l.fileSize, maxFile) || aged {
		if err := l.begin(); err != nil {
			return err
		}

		l.prune(now)
	}

	lost := l.lost.Swap(0)
	if lost > 0 {
		entries = append([]Entry{{
			Time: now, Who: self, Verb: VerbLost, Result: Done,
			Reason: fmt.Sprintf("%d entries were dropped before this one", lost),
		}}, entries...)
	}

	var text []byte

	stored := make([]Entry, len(entries))
	seq, prev := l.seq, l.prev

	for i, e := range entries {
		e = e.clean()
		seq++
		e.Seq, e.Prev, e.Instance = seq, prev, l.Instance

		line, complete, err := e.line()
		if err != nil {
			return err
		}

		text, prev, stored[i] = append(text, line...), complete.Hash(), complete
	}

	_, err := l.file.Write(text)
	if err == nil {
		l.syncs.Add(1)
		err = l.file.Sync()
	}

	if err != nil {
		l.lost.Add(lost)

		// A part of it would break the chain.
		_, seekErr := l.file.Seek(l.size, io.SeekStart)

		return errors.Join(err, l.file.Truncate(l.size), seekErr)
	}

	l.size, l.seq, l.prev = l.size+int64(len(text)), seq, prev
	l.recent.add(stored)
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

// recent holds the newest entries in memory.
type recent struct {
	mu      sync.Mutex
	entries []Entry
	last    uint64        // the number of the last entry of the trail
	woken   chan struct{} // closed by the next entry
}

func (r *recent) add(entries []Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.entries = append(r.entries, entries...)
	// Readers hold the old ones, so what remains is copied, but not each time.
	if len(r.entries) > 2*recentLength {
		r.entries = slices.Clone(r.entries[len(r.entries)-recentLength:])
	}

	r.last = entries[len(entries)-1].Seq
	close(r.woken)
	r.woken = make(chan struct{})
}

// After returns the entries after the one with the number, up to the last one that is
// synced, and a channel that the next one closes. It does not wait for entries; it reads
// files, until ctx ends, if the entries are not recent.
func (l *Log) After(ctx context.Context, seq uint64) ([]Entry, <-chan struct{}, error) {
	l.recent.mu.Lock()
	kept, last, woken := l.recent.entries, l.recent.last, l.recent.woken
	l.recent.mu.Unlock()

	if seq >= last {
		return nil, woken, nil
	}

	if len(kept) > 0 && kept[0].Seq <= seq+1 {
		return kept[seq+1-kept[0].Seq:], woken, nil
	}

	var entries []Entry

	err := l.Read(ctx, Filter{After: seq}, func(e Entry) error {
		// One call must not hold the whole trail.
		if entries = append(entries, e); len(entries) >= recentLength {
			return errEnough
		}

		return nil
	})
	if errors.Is(err, errEnough) {
		return entries, closed, nil
	}

	// Damaged or removed files leave a gap, which no later call can fill.
	if err == nil && len(entries) == 0 {
		return kept, woken, nil
	}

	return entries, woken, err
}

var errEnough = errors.New("enough")

// closed is the channel of an answer that is not complete.
var closed = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)

	return c
}()

// Read calls emit with the selected entries, the oldest first; see the function Read.
func (l *Log) Read(ctx context.Context, f Filter, emit func(Entry) error) error {
	return Read(ctx, l.Dir, f, emit)
}

// Newest returns the newest selected entries, the oldest first; see the function Newest.
func (l *Log) Newest(ctx context.Context, f Filter, most int) ([]Entry, error) {
	return Newest(ctx, l.Dir, f, most)
}

// Verify checks the trail; see the function Verify.
func (l *Log) Verify(ctx context.Context) (Report, error) { return Verify(ctx, l.Dir) }
