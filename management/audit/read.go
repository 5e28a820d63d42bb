// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	suffix = ".log"
	// maxLine bounds the memory for one line of a damaged file, in bytes.
	maxLine = 1 << 20
	// maxProblems bounds the problems of a report.
	maxProblems = 20
)

// named is a file of the trail.
type named struct {
	name  string
	first uint64 // number of its first entry
}

func fileName(first uint64) string { return fmt.Sprintf("%020d%s", first, suffix) }

// filesIn lists the files of the trail, the oldest first.
func filesIn(dir string) ([]named, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}

	var files []named

	for _, e := range entries {
		number, ok := strings.CutSuffix(e.Name(), suffix)

		first, err := strconv.ParseUint(number, 10, 64)
		if ok && err == nil && e.Name() == fileName(first) && first > 0 {
			files = append(files, named{e.Name(), first})
		}
	}

	return files, nil
}

// lines calls found with each line of a file, without its end, until found returns an
// error or ctx ends.
func lines(ctx context.Context, path string, found func(line []byte, complete bool) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return linesOf(ctx, f, found)
}

func linesOf(ctx context.Context, from io.Reader, found func(line []byte, complete bool) error) error {
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
			if err := found(bytes.TrimSuffix(line, []byte("\n")), bytes.HasSuffix(line, []byte("\n"))); err != nil {
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

func lastHash(ctx context.Context, path string) (hash string, err error) {
	err = lines(ctx, path, func(line []byte, _ bool) error {
		if _, h, err := parseLine(line); err == nil {
			hash = h
		}
		return nil
	})

	return hash, err
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

// Verify reads the whole trail and checks its chain. Entries that are appended meanwhile
// may count. It reports an incomplete last line, which a running manager may just write.
// It ends with ctx.
func Verify(ctx context.Context, dir string) (Report, error) {
	var v verification

	files, err := filesIn(dir)
	if err != nil {
		return v.Report, err
	}

	for i, f := range files {
		first := true

		err := lines(ctx, filepath.Join(dir, f.name), func(line []byte, complete bool) error {
			e, hash, err := parseLine(line)

			switch {
			case !complete:
				v.problem("%s: the last line is incomplete", f.name)
				return nil
			case err != nil:
				v.problem("%s: the entry after %d: %v", f.name, v.Last, err)
				return nil
			case first && e.Seq != f.first:
				v.problem("%s: it begins with entry %d", f.name, e.Seq)
			case (i > 0 || !first) && e.Seq != v.Last+1:
				v.problem("%s: entry %d follows entry %d", f.name, e.Seq, v.Last)
			case (i > 0 || !first) && e.Prev != v.LastHash:
				v.problem("%s: entry %d does not follow the entry before it: that one was changed", f.name, e.Seq)
			case i == 0 && first && e.Seq == 1 && e.Prev != "":
				v.problem("%s: entry 1 follows an entry that is missing", f.name)
			}

			v.add(e, hash)

			first = false

			return nil
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return v.Report, err
		}
	}

	return v.report(), nil
}

// VerifyExport checks lines of Entry.Export, in their order. An export of selected
// entries leaves some out, which it counts; it checks the hash of each entry then, and
// the chain where two of them are neighbours. It ends with ctx.
func VerifyExport(ctx context.Context, from io.Reader) (Report, error) {
	var v verification

	number := 0

	err := linesOf(ctx, from, func(line []byte, _ bool) error {
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

// Read calls emit with the selected entries, the oldest first, until emit returns an
// error or ctx ends. It skips damaged entries, which Verify reports.
func Read(ctx context.Context, dir string, filter Filter, emit func(Entry) error) error {
	files, err := filesIn(dir)
	if err != nil {
		return err
	}

	for i, f := range files {
		// All its entries come before the selected ones.
		if i+1 < len(files) && files[i+1].first <= filter.After+1 || isOlder(dir, f, filter.Since) {
			continue
		}

		if err := readFile(ctx, dir, f, filter, emit); err != nil {
			return err
		}
	}

	return nil
}

// Newest returns the newest selected entries, at most the number, the oldest first.
// It ends with ctx.
func Newest(ctx context.Context, dir string, filter Filter, most int) ([]Entry, error) {
	files, err := filesIn(dir)
	if err != nil {
		return nil, err
	}

	var newest []Entry

	for i := len(files) - 1; i >= 0 && len(newest) < most; i-- {
		if isOlder(dir, files[i], filter.Since) {
			break
		}

		var found []Entry

		err := readFile(ctx, dir, files[i], filter, func(e Entry) error {
			if found = append(found, e); len(found) > 2*most {
				found = slices.Clone(found[len(found)-most:])
			}
			return nil
		})
		if err != nil {
			return nil, err
		}

		newest = append(found[max(0, len(found)-(most-len(newest))):], newest...)
	}

	return newest, nil
}

// isOlder reports whether a file has not changed since a time.
func isOlder(dir string, f named, since time.Time) bool {
	if since.IsZero() {
		return false
	}

	st, err := os.Stat(filepath.Join(dir, f.name))

	// The clock of a file system may be a little behind.
	return err == nil && st.ModTime().Before(since.Add(-time.Minute))
}

func readFile(ctx context.Context, dir string, f named, filter Filter, emit func(Entry) error) error {
	err := lines(ctx, filepath.Join(dir, f.name), func(line []byte, complete bool) error {
		e, _, err := parseLine(line)
		if err != nil || !complete || !filter.selects(e) {
			return nil
		}
		return emit(e)
	})
	// Retention may remove the file meanwhile.
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	return err
}
