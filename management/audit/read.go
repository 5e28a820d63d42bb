// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
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

// lines calls found with each line of a file, without its end.
func lines(path string, found func(line []byte, complete bool)) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()

	r := bufio.NewReaderSize(f, 64<<10)

	for {
		var line []byte

		part, err := r.ReadSlice('\n')
		for errors.Is(err, bufio.ErrBufferFull) && len(line) < maxLine {
			line = append(line, part...)
			part, err = r.ReadSlice('\n')
		}

		line = append(line, part...)
		if len(line) > 0 {
			found(bytes.TrimSuffix(line, []byte("\n")), bytes.HasSuffix(line, []byte("\n")))
		}

		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return nil // the end of the file
		}
	}
}

func lastHash(path string) (hash string, err error) {
	err = lines(path, func(line []byte, _ bool) {
		if _, h, err := parseLine(line); err == nil {
			hash = h
		}
	})

	return hash, err
}

// Report is the result of Verify.
type Report struct {
	Entries     uint64
	First, Last uint64 // their numbers; 0: there are none
	LastHash    string
	Lost        uint64   // entries of audit.lost
	Problems    []string // at most maxProblems and a count
}

// Verify reads the whole trail and checks its chain. Entries that are appended meanwhile
// may count. It reports an incomplete last line, which a running manager may just write.
func Verify(dir string) (Report, error) {
	var r Report

	more := 0
	problem := func(format string, args ...any) {
		if len(r.Problems) < maxProblems {
			r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
		} else {
			more++
		}
	}

	files, err := filesIn(dir)
	if err != nil {
		return r, err
	}

	for i, f := range files {
		first := true

		err := lines(filepath.Join(dir, f.name), func(line []byte, complete bool) {
			e, hash, err := parseLine(line)

			switch {
			case !complete:
				problem("%s: the last line is incomplete", f.name)
				return
			case err != nil:
				problem("%s: the entry after %d: %v", f.name, r.Last, err)
				return
			case first && e.Seq != f.first:
				problem("%s: it begins with entry %d", f.name, e.Seq)
			case (i > 0 || !first) && e.Seq != r.Last+1:
				problem("%s: entry %d follows entry %d", f.name, e.Seq, r.Last)
			case (i > 0 || !first) && e.Prev != r.LastHash:
				problem("%s: entry %d does not follow the entry before it: that one was changed", f.name, e.Seq)
			case i == 0 && first && e.Seq == 1 && e.Prev != "":
				problem("%s: entry 1 follows an entry that is missing", f.name)
			}

			if r.Entries == 0 {
				r.First = e.Seq
			}

			if e.Action == ActionLost {
				r.Lost++
			}

			r.Entries, r.Last, r.LastHash, first = r.Entries+1, e.Seq, hash, false
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return r, err
		}
	}

	if more > 0 {
		r.Problems = append(r.Problems, fmt.Sprintf("and %d more", more))
	}

	return r, nil
}

// Filter selects entries. A zero field selects all.
type Filter struct {
	Since     time.Time
	Principal string
	Action    string // or a part of it up to a dot: jobs selects jobs.cancel
	Target    string
	Job       string
}

func (f Filter) selects(e Entry) bool {
	return !e.Time.Before(f.Since) &&
		(f.Principal == "" || e.Principal == f.Principal) &&
		(f.Action == "" || e.Action == f.Action || strings.HasPrefix(e.Action, f.Action+".")) &&
		(f.Target == "" || slices.Contains(e.Targets, f.Target)) &&
		(f.Job == "" || e.Job == f.Job || slices.Contains(e.Targets, f.Job))
}

// Read calls emit with the selected entries, the oldest first. It skips damaged entries,
// which Verify reports.
func Read(dir string, filter Filter, emit func(Entry) error) error {
	files, err := filesIn(dir)
	if err != nil {
		return err
	}

	for _, f := range files {
		var failed error

		err := lines(filepath.Join(dir, f.name), func(line []byte, complete bool) {
			e, _, err := parseLine(line)
			if err == nil && complete && failed == nil && filter.selects(e) {
				failed = emit(e)
			}
		})
		// Retention may remove the file meanwhile.
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}

		if failed != nil {
			return failed
		}
	}

	return nil
}
