// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/contiv/cluster/management/record"
)

const (
	// maxLine bounds the memory for one line of a damaged export, in bytes.
	maxLine = 1 << 20
	// maxProblems bounds the problems of a report.
	maxProblems = 20
)

// Reader reads the sealed entries of a trail.
type Reader struct {
	store Store

	// Of a Snapshot.
	end   *head
	fresh []byte
}

// head is what continues the chain, and what the seal remembers.
type head struct {
	Seq     uint64    `json:"seq"`               // of the last entry
	Hash    string    `json:"hash"`              // its hash
	Segment uint64    `json:"segment,omitempty"` // the number of the first entry of the newest segment; 0: none
	Begun   time.Time `json:"begun,omitzero"`    // when that segment began
	Held    []*flood  `json:"held,omitempty"`    // the refusals, and the changes that share an entry
}

// head returns the head of the trail and its revision. One that cannot be read is made of the newest segment.
func (r Reader) head(ctx context.Context) (h head, revision int64, err error) {
	if r.end != nil {
		return *r.end, 0, nil
	}

	stored, err := r.store.AuditRecords(ctx, Query{Prefix: HeadKey, Limit: 1})
	if err != nil {
		return h, 0, err
	}

	if len(stored) > 0 {
		revision = stored[0].Revision

		text, err := record.Expand(stored[0].Value)
		if err == nil {
			err = json.Unmarshal(text, &h)
		}
		if err == nil {
			return h, revision, nil
		}
	}

	segments, err := r.segments(ctx)
	if err != nil || len(segments) == 0 {
		return head{}, revision, err
	}
	h = head{Segment: segments[len(segments)-1], Begun: time.Now()}
	h.Seq = h.Segment - 1

	text, err := r.segment(ctx, h.Segment)
	h.follow(text)

	return h, revision, err
}

// follow continues the chain after stored lines. A damaged one keeps its place, so that Verify finds it.
func (h *head) follow(text []byte) {
	for line := range bytes.Lines(text) {
		h.Seq++
		if e, hash, err := parseLine(bytes.TrimSuffix(line, []byte("\n"))); err == nil {
			h.Seq, h.Hash = e.Seq, hash
		}
	}
}

// Snapshot returns a reader of the trail with the entries that are not sealed, as they will be. It writes nothing.
func Snapshot(ctx context.Context, s Store) (Reader, error) {
	r := Reader{store: s}

	h, _, err := r.head(ctx)
	if err != nil {
		return r, err
	}

	fresh, err := s.AuditRecords(ctx, Query{Prefix: NewPrefix, Oldest: true})
	if err != nil || len(fresh) == 0 {
		return r, err
	}

	h.Segment = h.Seq + 1

	for _, one := range fresh {
		for _, e := range entriesOf(one.Value) {
			line, err := h.add(e)
			if err != nil {
				return r, err
			}
			r.fresh = append(r.fresh, line...)
		}
	}

	r.end = &h

	return r, nil
}

// Last returns the number of the last entry; 0: there is none.
func (r Reader) Last(ctx context.Context) (uint64, error) {
	h, _, err := r.head(ctx)
	return h.Seq, err
}

// add adds an entry to the chain, and returns its line.
func (h *head) add(e Entry) ([]byte, error) {
	e.Seq, e.Prev = h.Seq+1, h.Hash

	line, sealed, err := e.line()
	if err == nil {
		h.Seq, h.Hash = e.Seq, sealed.Hash()
	}
	return line, err
}

func segmentKey(first uint64) string { return fmt.Sprintf("%s%020d", logPrefix, first) }

// segments returns the numbers of the first entries of all segments, in order.
func (r Reader) segments(ctx context.Context) ([]uint64, error) {
	keys, err := r.store.AuditRecords(ctx, Query{Prefix: logPrefix, Keys: true})
	if err != nil {
		return nil, err
	}

	var firsts []uint64

	for _, k := range keys {
		if first, err := strconv.ParseUint(strings.TrimPrefix(k.Key, logPrefix), 10, 64); err == nil && first > 0 {
			firsts = append(firsts, first)
		}
	}

	if r.end != nil {
		firsts = append(firsts, r.end.Segment)
	}

	return firsts, nil
}

// segment returns the lines of a segment; nil: it is damaged, or the retention removed it.
func (r Reader) segment(ctx context.Context, first uint64) ([]byte, error) {
	if r.end != nil && first == r.end.Segment {
		return r.fresh, nil
	}

	stored, err := r.store.AuditRecords(ctx, Query{Prefix: segmentKey(first), Limit: 1})
	if err != nil || len(stored) == 0 {
		return nil, err
	}
	text, err := record.Expand(stored[0].Value)
	if err != nil {
		return nil, nil //nolint:nilerr // see above
	}
	return text, nil
}

// lastTime returns the time of the last entry of a segment that can be read; zero: none.
func (r Reader) lastTime(ctx context.Context, first uint64) (last time.Time, err error) {
	text, err := r.segment(ctx, first)
	err = cmp.Or(err, emit(ctx, text, Filter{}, func(e Entry) error { last = e.Time; return nil }))
	return last, err
}

// linesOf calls found with each line, without its end, until found returns an error or ctx ends.
func linesOf(ctx context.Context, from io.Reader, found func(line []byte) error) error {
	r := bufio.NewReaderSize(from, 64<<10)

	for {
		if err := ctx.Err(); err != nil {
			return err
		}

		var line []byte

		part, err := r.ReadSlice('\n')
		for errors.Is(err, bufio.ErrBufferFull) && len(line) < maxLine {
			line = append(line, part...)
			part, err = r.ReadSlice('\n')
		}

		line = append(line, part...)
		if len(line) > 0 {
			if err := found(bytes.TrimSuffix(line, []byte("\n"))); err != nil {
				return err
			}
		}

		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}

// Report is the result of Verify.
type Report struct {
	Entries     uint64
	First, Last uint64 // their numbers; 0: there are none
	LastHash    string
	Lost        uint64   // entries of VerbLost
	Dropped     []string // by the retention, the newest entries of VerbDropped in words
	Missing     uint64   // entries between those of an export that leaves some out
	Problems    []string // at most maxProblems and a count
}

// verification checks a chain, entry by entry.
type verification struct {
	Report
	more int // problems beyond maxProblems
}

func (v *verification) problem(format string, args ...any) {
	if len(v.Problems) < maxProblems {
		v.Problems = append(v.Problems, fmt.Sprintf(format, args...))
	} else {
		v.more++
	}
}

func (v *verification) add(e Entry, hash string) {
	if v.Entries == 0 {
		v.First = e.Seq
	}

	if e.Verb == VerbLost {
		v.Lost++
	}

	if e.Verb == VerbDropped {
		v.Dropped = append(v.Dropped[max(0, len(v.Dropped)-maxProblems+1):], e.Time.Format(time.RFC3339)+": "+e.Reason)
	}

	v.Entries, v.Last, v.LastHash = v.Entries+1, e.Seq, hash
}

func (v *verification) report() Report {
	if v.more > 0 {
		v.Problems = append(v.Problems, fmt.Sprintf("and %d more", v.more))
	}
	return v.Report
}

// Verify reads the whole trail and checks its chain. Entries that are sealed meanwhile may count. It ends with ctx.
func (r Reader) Verify(ctx context.Context) (Report, error) {
	var v verification

	h, _, err := r.head(ctx)
	if err != nil {
		return v.Report, err
	}

	segments, err := r.segments(ctx)
	if err != nil {
		return v.Report, err
	}

	for _, first := range segments {
		text, err := r.segment(ctx, first)
		if err != nil {
			return v.Report, err
		}

		if text == nil {
			if left, err := r.segments(ctx); err != nil || len(left) > 0 && left[0] <= first {
				v.problem("the entries from %d on are damaged", first)
			}
		}

		v.segment(first, text)
	}

	if v.Last < h.Seq {
		v.problem("the trail ends with entry %d, and entry %d was there", v.Last, h.Seq)
	}

	return v.report(), ctx.Err()
}

// segment checks the lines of a segment.
func (v *verification) segment(first uint64, text []byte) {
	begins := true

	for line := range bytes.Lines(text) {
		e, hash, err := parseLine(bytes.TrimSuffix(line, []byte("\n")))

		switch {
		case err != nil:
			v.problem("the entry after %d: %v", max(v.Last, first-1), err)
			continue
		case begins && e.Seq != first:
			v.problem("entry %d is where entry %d belongs", e.Seq, first)
		case v.Entries > 0 && e.Seq != v.Last+1:
			v.problem("entry %d follows entry %d", e.Seq, v.Last)
		case v.Entries > 0 && e.Prev != v.LastHash:
			v.problem("entry %d does not follow the entry before it: that one was changed", e.Seq)
		case v.Entries == 0 && e.Seq == 1 && e.Prev != "":
			v.problem("entry 1 follows an entry that is missing")
		}

		v.add(e, hash)

		begins = false
	}
}

// VerifyExport checks lines of Entry.Export, in their order. An export of selected
// entries leaves some out, which it counts; it checks the hash of each entry then, and
// the chain where two of them are neighbours. It ends with ctx.
func VerifyExport(ctx context.Context, from io.Reader) (Report, error) {
	var v verification

	number := 0

	err := linesOf(ctx, from, func(line []byte) error {
		number++

		if len(bytes.TrimSpace(line)) == 0 {
			return nil
		}

		e, hash, err := parseExport(line)

		switch {
		case err != nil:
			v.problem("line %d: %v", number, err)
			return nil
		case v.Entries > 0 && e.Seq <= v.Last:
			v.problem("line %d: entry %d follows entry %d", number, e.Seq, v.Last)
		case v.Entries > 0 && e.Seq == v.Last+1 && e.Prev != v.LastHash:
			v.problem("line %d: entry %d does not follow the entry before it: that one was changed", number, e.Seq)
		case v.Entries > 0:
			v.Missing += e.Seq - v.Last - 1
		}

		v.add(e, hash)

		return nil
	})

	return v.report(), err
}

// Filter selects entries. A zero field selects all.
type Filter struct {
	After  uint64    // the number of an entry: only those after it
	Since  time.Time // not before it
	Until  time.Time // before it
	Who    string
	Verb   string // or a part of it up to a dot: jobs selects jobs.cancel
	Target string // exactly; as a node, job, address or level of variables
	// Result is Done, the kind of an error, or Failed for any of them.
	Result  string
	Job     string
	Request string
}

// Failed as the Result of a Filter selects everything that was not made.
const Failed = "failed"

func (f Filter) selects(e Entry) bool {
	return e.Seq > f.After &&
		!e.Time.Before(f.Since) && (f.Until.IsZero() || e.Time.Before(f.Until)) &&
		(f.Who == "" || e.Who == f.Who) &&
		(f.Verb == "" || e.Verb == f.Verb || strings.HasPrefix(e.Verb, f.Verb+".")) &&
		(f.Target == "" || slices.Contains(e.Targets, f.Target)) &&
		(f.Result == "" || e.Result == f.Result || f.Result == Failed && e.Result != Done) &&
		(f.Job == "" || e.Job == f.Job || slices.Contains(e.Targets, f.Job)) &&
		(f.Request == "" || e.Request == f.Request)
}

// Selects reports whether the filter selects an entry.
func (f Filter) Selects(e Entry) bool { return f.selects(e) }

// slack is by how much an entry can be older than those before it: refusals share one after some time.
const slack = floodTime + 5*time.Minute

// Read calls do with the selected entries, the oldest first, until do returns an
// error or ctx ends. It skips damaged entries, which Verify reports.
func (r Reader) Read(ctx context.Context, filter Filter, do func(Entry) error) error {
	segments, err := r.segments(ctx)
	if err != nil {
		return err
	}

	// The first segment with an entry that can be selected, by number and by time.
	from := sort.Search(len(segments), func(i int) bool {
		if i+1 < len(segments) && segments[i+1] <= filter.After+1 {
			return false
		}
		if err != nil || filter.Since.IsZero() {
			return true
		}

		var last time.Time
		last, err = r.lastTime(ctx, segments[i])

		return !last.Before(filter.Since.Add(-slack))
	})

	for _, first := range segments[from:] {
		text, readErr := r.segment(ctx, first)
		if err = cmp.Or(err, readErr); err != nil {
			return err
		}
		if err := emit(ctx, text, filter, do); err != nil {
			return err
		}
	}

	return err
}

// Newest returns the newest selected entries, at most the number, the oldest first.
// It ends with ctx.
func (r Reader) Newest(ctx context.Context, filter Filter, most int) ([]Entry, error) {
	segments, err := r.segments(ctx)
	if err != nil {
		return nil, err
	}

	var newest []Entry

	for _, first := range slices.Backward(segments) {
		var (
			found []Entry
			last  time.Time
		)

		text, err := r.segment(ctx, first)
		err = cmp.Or(err, emit(ctx, text, Filter{}, func(e Entry) error {
			if last = e.Time; filter.selects(e) {
				found = append(found, e)
			}
			return nil
		}))
		if err != nil {
			return nil, err
		}

		newest = append(found[max(0, len(found)-(most-len(newest))):], newest...)
		if len(newest) == most || last.Before(filter.Since.Add(-slack)) {
			break
		}
	}

	return newest, nil
}

// emit calls do with the selected entries among lines.
func emit(ctx context.Context, text []byte, filter Filter, do func(Entry) error) error {
	for line := range bytes.Lines(text) {
		if err := ctx.Err(); err != nil {
			return err
		}

		e, _, err := parseLine(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil || !filter.selects(e) {
			continue
		}
		if err := do(e); err != nil {
			return err
		}
	}

	return ctx.Err()
}
