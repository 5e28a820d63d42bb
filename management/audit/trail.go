// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/control"
	"github.com/contiv/cluster/management/record"
)

const (
	// queueLength bounds the entries that wait in memory, and flushLength those that wait for a round.
	queueLength, flushLength = 8192, 256
	// roundTime is how often new entries are sealed, and those in memory are written.
	roundTime = time.Second
	// sweepTime is how often the retention is looked after.
	sweepTime = 10 * time.Minute
	// sealLength bounds the records of one seal, because a transaction has a limited number of operations.
	sealLength = 100
	// segmentSize is the size in bytes after which the next segment begins, and writeSize that of a write.
	segmentSize, writeSize = 64 << 10, 512 << 10
	// segmentsPerAge is the least number of segments for the entries of KeepFor.
	segmentsPerAge = 12
	// keepLeast is the age below which no number of entries removes one: whoever makes many could push out what they
	// did before.
	keepLeast = 7 * 24 * time.Hour
)

// Options configure a Trail.
type Options struct {
	Store    Store
	Instance string // the name of this instance
	// Keep and KeepFor bound the number and the age of the entries that are kept. Whole
	// segments are removed, so somewhat more are. Young entries are kept beyond the number.
	Keep    int
	KeepFor time.Duration
	// Leads reports whether this instance seals entries and looks after the retention.
	Leads func() bool
	// Former is the folder of an earlier version, which kept the trail in files. The first start takes them over.
	Former string
	Logger logrus.FieldLogger
}

// Trail writes entries, and seals them: it takes them in the order of their revisions into the chain. Its methods may
// be called concurrently.
type Trail struct {
	Reader
	Options
	Loop *control.Loop

	mu    sync.Mutex
	queue []Entry
	fresh *folds // of the refusals since the last flush
	lost  uint64 // entries dropped since the last one that was written

	writing sync.Mutex // a flush or a seal is under way
	away    bool       // the last flush failed
	sealed  *folds     // of the head
	at      int64      // the revision of the head that they belong to
	swept   time.Time
}

// New returns a trail. Start begins it.
func New(o Options) *Trail {
	t := &Trail{Reader: Reader{store: o.Store}, Options: o, fresh: newFolds(nil)}
	t.Loop = control.New(control.Options{
		Name: "audit trail", Begin: t.takeOverHeld, Round: t.round, Every: roundTime, Backoff: roundTime,
		Trouble: "entries of the audit trail wait in memory, or are not sealed yet; retrying", Logger: o.Logger,
	})

	return t
}

func newKey() string { return NewPrefix + rand.Text() }

func (t *Trail) round(ctx context.Context) (control.Next, error) {
	now := time.Now()

	err := t.flush(ctx)
	if err != nil || !t.Leads() {
		return control.Next{}, err
	}

	if err := t.seal(ctx, now.Add(-floodTime)); err != nil || now.Sub(t.swept) < sweepTime {
		return control.Next{}, err
	}

	t.swept = now

	return control.Next{}, t.prune(ctx, now)
}

// Encode returns the stored form of an entry of this instance, before it is sealed.
func (t *Trail) Encode(e Entry) ([]byte, error) {
	e.Instance = t.Instance
	return json.Marshal(e.clean())
}

// Append adds an entry, and returns once it is stored. While the store takes none it waits in memory.
func (t *Trail) Append(ctx context.Context, e Entry) error {
	line, err := t.Encode(e)
	if err != nil {
		return err
	}

	// The mutation is made, so the end of its request must not drop its entry.
	w := Write{Put: map[string][]byte{newKey(): line}}
	if _, err := t.Store.WriteAudit(context.WithoutCancel(ctx), w); err != nil {
		return t.Defer(e)
	}

	return nil
}

// Defer adds an entry that is stored soon, together with others. It does not block.
func (t *Trail) Defer(e Entry) error {
	t.mu.Lock()
	defer t.mu.Unlock()

	if len(t.queue) >= queueLength {
		t.lost++
		return errors.New("too many entries wait")
	}

	if t.queue = append(t.queue, e); len(t.queue) == flushLength {
		t.Loop.Kick()
	}

	return nil
}

// Refuse adds an entry about a refusal, and does not block. Many refusals of one source
// share an entry, which follows within some minutes.
func (t *Trail) Refuse(e Entry) error {
	t.mu.Lock()
	admitted := t.fresh.admits(e)
	t.mu.Unlock()

	if !admitted {
		return nil
	}
	return t.Defer(e)
}

// flush writes what waits in memory, with the refusals that share an entry since the last flush. After an error it
// waits still, and refusals share their entries on.
func (t *Trail) flush(ctx context.Context) error {
	t.writing.Lock()
	defer t.writing.Unlock()

	t.mu.Lock()
	entries := t.queue

	if !t.away {
		for _, one := range t.fresh.end(time.Now().Add(floodTime)) {
			entries = append(entries, one.folded())
		}

		t.fresh = newFolds(nil)
	}

	if t.lost > 0 {
		entries = append(entries, lostEntry(fmt.Sprintf("%d entries were dropped before this one", t.lost)))
	}

	t.queue, t.lost = nil, 0
	t.mu.Unlock()

	t.away = false

	for len(entries) > 0 {
		text, n := t.lines(entries)

		if _, err := t.Store.WriteAudit(ctx, Write{Put: map[string][]byte{newKey(): text}}); err != nil {
			t.away = true

			t.mu.Lock()
			t.queue = append(entries, t.queue...)
			t.mu.Unlock()
			return err
		}

		entries = entries[n:]
	}

	return nil
}

// lostEntry returns an entry about others that the trail does not have.
func lostEntry(reason string) Entry {
	return Entry{Time: time.Now(), Who: self, Verb: VerbLost, Result: Done, Reason: reason}
}

// lines returns the lines of as many entries as fit into a write, and their number.
func (t *Trail) lines(entries []Entry) (text []byte, n int) {
	for n < len(entries) && len(text) < writeSize {
		line, err := t.Encode(entries[n])
		if err != nil {
			lost := fmt.Sprintf("an entry about %s could not be written: %v", entries[n].Verb, err)
			line, _ = t.Encode(lostEntry(lost))
		}

		if n++; n > 1 {
			text = append(text, '\n')
		}
		text = append(text, line...)
	}

	return text, n
}

// Sync returns once every entry is sealed that was added before.
func (t *Trail) Sync(ctx context.Context) error {
	if err := t.flush(ctx); err != nil {
		return err
	}
	return t.seal(ctx, time.Now().Add(-floodTime))
}

// Close writes and seals the entries that wait, if the store takes them, those of the leader without a wait for
// others to share them. Loop has ended before.
func (t *Trail) Close(ctx context.Context) {
	began := time.Now().Add(-floodTime)
	if t.Leads() {
		began = time.Now().Add(floodTime)
	}

	err := t.flush(ctx)
	if err == nil {
		err = t.seal(ctx, began)
	}
	if err != nil {
		t.Logger.WithError(err).
			Warnf("%d entries of the audit trail are lost, or others are not sealed yet", len(t.queue))
	}
}

// seal takes new entries into the chain until there are none. It ends the shared entries that began before a time.
func (t *Trail) seal(ctx context.Context, began time.Time) error {
	t.writing.Lock()
	defer t.writing.Unlock()

	if err := t.takeOver(ctx); err != nil {
		return fmt.Errorf("cannot take over the audit trail in %s: %w", t.Former, err)
	}

	// Another instance may seal as well, for a reader.
	for conflicts := 0; ; {
		more, err := t.sealSome(ctx, began)

		switch {
		case inventory.KindOf(err) == inventory.KindConflict && conflicts < sealLength:
			conflicts++
		case err != nil || !more:
			return err
		}
	}
}

// sealSome takes the oldest new entries into the chain, and reports whether there may be more.
func (t *Trail) sealSome(ctx context.Context, began time.Time) (more bool, err error) {
	h, at, err := t.head(ctx)
	if err != nil || at == 0 && !t.Leads() { // the first one takes over the former trail
		return false, err
	}

	fresh, err := t.Store.AuditRecords(ctx, Query{Prefix: NewPrefix, Limit: sealLength, Oldest: true})
	if err != nil {
		return false, err
	}

	if t.sealed == nil || t.at != at {
		t.sealed = newFolds(h.Held)
	}

	w := Write{Guarded: true, Head: at}

	var entries []Entry

	for size := 0; len(w.Drop) < len(fresh) && size < writeSize; {
		one := fresh[len(w.Drop)]
		w.Drop, size = append(w.Drop, one.Key), size+len(one.Value)

		for _, e := range entriesOf(one.Value) {
			if t.sealed.admits(e) {
				entries = append(entries, e)
			}
		}
	}

	for _, one := range t.sealed.end(began) {
		entries = append(entries, one.entry())
	}

	if len(w.Drop)+len(entries) == 0 {
		return false, nil
	}

	h.Held = t.sealed.kept()

	if w.Put, err = t.extend(ctx, &h, entries); err == nil {
		t.at, err = t.Store.WriteAudit(ctx, w)
	}

	if err != nil {
		t.sealed = nil // they count entries that were not sealed
		return false, err
	}

	t.Logger.WithFields(logrus.Fields{"seq": h.Seq, "hash": h.Hash}).Debug("audit trail")

	return len(w.Drop) < len(fresh) || len(fresh) == sealLength, nil
}

// entriesOf returns the entries of a record that is not sealed.
func entriesOf(text []byte) (entries []Entry) {
	for _, line := range bytes.Split(text, []byte("\n")) {
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			e = lostEntry(fmt.Sprintf("an entry could not be read: %v", err))
		}

		entries = append(entries, e)
	}

	return entries
}

// extend adds entries to the chain, and returns the records to write: the head, and the newest segment.
func (t *Trail) extend(ctx context.Context, h *head, entries []Entry) (map[string][]byte, error) {
	var text []byte

	if len(entries) > 0 && h.Segment > 0 && time.Since(h.Begun) < t.KeepFor/segmentsPerAge {
		newest, err := t.segment(ctx, h.Segment)
		if err != nil {
			return nil, err
		}
		if len(newest) < segmentSize {
			text = newest
		}
	}

	if len(entries) > 0 && text == nil {
		h.Segment, h.Begun = h.Seq+1, time.Now()
	}

	for _, e := range entries {
		line, err := h.add(e)
		if err != nil {
			return nil, err
		}
		text = append(text, line...)
	}

	put := map[string][]byte{}
	if len(entries) > 0 {
		put[segmentKey(h.Segment)] = record.Compress(text)
	}

	value, err := json.Marshal(h)
	put[HeadKey] = record.Compress(value)

	return put, err
}

// prune removes the oldest segments whose entries are all older than KeepFor, or than keepLeast if there are more
// entries than Keep. It adds an entry about those that it removed.
func (t *Trail) prune(ctx context.Context, now time.Time) error {
	h, at, err := t.head(ctx)
	if err != nil {
		return err
	}

	segments, err := t.segments(ctx)
	if err != nil {
		return err
	}

	w := Write{Guarded: true, Head: at}

	for len(w.Drop)+1 < min(len(segments), sealLength) {
		i := len(w.Drop)

		last, err := t.lastTime(ctx, segments[i])
		if err != nil {
			return err
		}

		kept := h.Seq + 1 - segments[i+1] // entries without this segment
		age := now.Sub(last)
		//nolint:gosec // the configuration bounds it
		if age < t.KeepFor && (age < keepLeast || kept < uint64(t.Keep)) {
			break
		}

		w.Drop = append(w.Drop, segmentKey(segments[i]))
	}

	if len(w.Drop) == 0 {
		return nil
	}

	first, next := segments[0], segments[len(w.Drop)]

	line, err := t.Encode(Entry{
		Time: now, Who: self, Verb: VerbDropped, Result: Done, Count: next - first,
		Reason: fmt.Sprintf("entries %d to %d were removed, as audit.keep and audit.keep_for ask", first, next-1),
	})
	if err != nil {
		return err
	}
	w.Put = map[string][]byte{newKey(): line}
	_, err = t.Store.WriteAudit(ctx, w)

	return err
}

// followLength bounds the entries of one call of After.
const followLength = 1024

// After returns the entries after the one with the number, and a channel that is closed when there may be more.
func (t *Trail) After(ctx context.Context, seq uint64) ([]Entry, <-chan struct{}, error) {
	woken := make(chan struct{})

	if err := t.Sync(ctx); err != nil {
		return nil, nil, err
	}

	h, _, err := t.head(ctx)
	if err != nil {
		return nil, nil, err
	}

	var entries []Entry
	if h.Seq > seq {
		err = t.Read(ctx, Filter{After: seq}, func(e Entry) error {
			// One call must not hold the whole trail.
			if entries = append(entries, e); len(entries) >= followLength {
				return errEnough
			}
			return nil
		})
	}

	if err != nil && !errors.Is(err, errEnough) {
		return nil, nil, err
	}

	time.AfterFunc(roundTime, func() { close(woken) })

	return entries, woken, nil
}

var errEnough = errors.New("enough")
