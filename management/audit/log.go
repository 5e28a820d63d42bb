// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
	// keepLeast is the age below which no number of entries removes one: whoever makes many could push out what they
	// did before.
	keepLeast = 7 * 24 * time.Hour
)

// Options configure a Log.
type Options struct {
	Dir      string // made if it is missing
	Instance string
	// Keep and KeepFor bound the number and the age of the entries that are kept. Whole
	// files are removed, so somewhat more are. Young entries are kept beyond the number.
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
	strangers, known *floods       // refusals
	changes          *floods
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
	// broken: the file has a part of entries at its end that could not be removed.
	broken bool
	stale  bool // the file of held entries is

	syncs atomic.Int64 // for tests
}

// item is an entry to write, or with mark only a place in the queue.
type item struct {
	entry  Entry
	mark   bool
	change bool       // with mark: for a change that shares an entry
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
		changes: &floods{
			sources: changeSources, entries: changeEntries, changes: true, open: map[source]*flood{},
		},
		recent: recent{woken: make(chan struct{})},
	}

	removed, err := l.resume()
	if err != nil {
		return nil, fmt.Errorf("cannot continue the audit trail in %s: %w", o.Dir, err)
	}

	l.recent.last = l.seq

	held, err := l.readHeld()
	if err != nil {
		return nil, err
	}
	go l.run(held)

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

	// The last file has no entry that counts.
	if l.broken && l.file.Name() == path {
		if err := os.Remove(path); err != nil {
			return err
		}
	}

	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if l.file != nil {
		l.file.Close()
	}

	l.file, l.size, l.begun, l.broken = file, 0, time.Now(), false

	return localfile.SyncDir(l.Dir)
}

// Append adds an entry, and sets its number and hashes. It returns once the entry is
// synced, or the error of that. A caller who makes the same change to one thing many times shares an entry for them.
func (l *Log) Append(ctx context.Context, e Entry) error {
	if e.Via != "" && !l.changes.admits(e) {
		return l.await(ctx, item{mark: true, change: true})
	}
	return l.await(ctx, item{entry: e})
}

// Sync returns once every entry is synced that was added before.
func (l *Log) Sync(ctx context.Context) error { return l.await(ctx, item{mark: true}) }

func (l *Log) await(ctx context.Context, it item) error {
	// The mutation is made, so the end of its request must not drop its entry.
	if !it.mark || it.change {
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
// the queue is full, for a bounded time. Repeated entries share one, as in Append.
func (l *Log) Defer(ctx context.Context, e Entry) error {
	if e.Via != "" && !l.changes.admits(e) {
		return nil
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), waitTime)
	defer cancel()

	return l.enqueue(ctx, item{entry: e})
}

// Refuse adds an entry about a refusal, and never blocks. Many refusals of one source
// share an entry, which follows within some minutes.
func (l *Log) Refuse(e Entry) error {
	counted := l.known
	if isStranger(e) {
		counted = l.strangers
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

// run writes batches until Close, first the entries that were held at the end of the last process.
func (l *Log) run(held []Entry) {
	defer close(l.ended)
	defer func() { _ = l.file.Close() }()

	sweep := time.NewTicker(sweepTime)
	defer sweep.Stop()

	hold := time.NewTicker(gatherTime)
	defer hold.Stop()

	gather := time.NewTimer(gatherTime)
	gather.Stop()

	var pending []item

	commit := func() {
		gather.Stop()
		l.commit(pending)
		pending = nil
	}

	pending = itemsOf(append(held, l.prune(time.Now())...))
	commit()

	l.stale = len(held) > 0

	for {
		select {
		case it, more := <-l.queue:
			if !more {
				pending = append(pending, l.endFloods(time.Time{}, time.Now())...)
				commit()
				_ = l.hold()
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
			pending = append(pending, itemsOf(l.prune(now))...)
			commit()
		case <-hold.C:
			_ = l.hold()
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
	return itemsOf(slices.Concat(l.strangers.end(before), l.known.end(before), l.changes.end(before)))
}

func itemsOf(entries []Entry) []item {
	items := make([]item, len(entries))
	for i, e := range entries {
		items[i].entry = e
	}

	return items
}

// heldName is the file with the entries that wait for the end of their counts. After a crash they are entered.
const heldName = "held.json"

// hold keeps the file of held entries up to date.
func (l *Log) hold() error {
	var all []Entry

	changed := l.stale

	for _, f := range []*floods{l.strangers, l.known, l.changes} {
		entries, c := f.held()
		all, changed = append(all, entries...), changed || c
	}

	if !changed {
		return nil
	}

	text, err := json.Marshal(all)
	if err == nil {
		err = localfile.Replace(filepath.Join(l.Dir, heldName), text)
	}

	if l.stale = err != nil; l.stale {
		l.Logger.WithError(err).Error("cannot write the entries of the audit trail that wait")
	}

	return err
}

// readHeld returns the entries that were held at the end of the last process.
func (l *Log) readHeld() (entries []Entry, err error) {
	text, err := os.ReadFile(filepath.Join(l.Dir, heldName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}

	if err != nil {
		return nil, err
	}

	// A damaged file must not stop the manager.
	if err := json.Unmarshal(text, &entries); err != nil {
		l.Logger.WithError(err).Error("cannot read the entries of the audit trail that wait")
	}

	return entries, nil
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

	// A change that shares an entry is on disk as well before its answer.
	if slices.ContainsFunc(batch, func(it item) bool { return it.change }) {
		err = errors.Join(err, l.hold())
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

	if l.size > cmp.Or(l.fileSize, maxFile) || aged || l.broken {
		if err := l.begin(); err != nil {
			return err
		}
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
		truncateErr := l.file.Truncate(l.size)
		l.broken = seekErr != nil || truncateErr != nil

		return errors.Join(err, truncateErr, seekErr)
	}

	l.size, l.seq, l.prev = l.size+int64(len(text)), seq, prev
	l.recent.add(stored)
	l.Logger.WithFields(logrus.Fields{"seq": seq, "hash": prev}).Debug("audit trail")

	return nil
}

// prune removes the oldest files whose entries are all older than KeepFor, or than keepLeast if there are more entries
// than Keep. It returns an entry about those that it removed.
func (l *Log) prune(now time.Time) (dropped []Entry) {
	files, err := filesIn(l.Dir)
	if err != nil {
		l.Logger.WithError(err).Warn("cannot list the audit trail")
		return nil
	}

	removed := 0
	for ; removed+1 < len(files); removed++ {
		path := filepath.Join(l.Dir, files[removed].name)
		kept := l.seq + 1 - files[removed+1].first // entries without this file

		st, err := os.Stat(path)
		if err != nil {
			break
		}
		age := now.Sub(st.ModTime())
		//nolint:gosec // the configuration bounds it
		if age < l.KeepFor && (age < keepLeast || kept < uint64(l.Keep)) {
			break
		}

		if err := os.Remove(path); err != nil {
			l.Logger.WithError(err).Warn("cannot remove the oldest file of the audit trail")
			break
		}
	}

	if removed == 0 {
		return nil
	}

	return []Entry{{
		Time: now, Who: self, Verb: VerbDropped, Result: Done, Count: files[removed].first - files[0].first,
		Reason: fmt.Sprintf("entries %d to %d were removed, as audit.keep and audit.keep_for ask",
			files[0].first, files[removed].first-1),
	}}
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
