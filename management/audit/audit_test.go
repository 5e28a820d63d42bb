// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func must(t *testing.T, err error) {
	t.Helper()

	if err != nil {
		t.Fatal(err)
	}
}

// open opens a trail in a folder; small files hold about two entries.
func open(t *testing.T, dir string, adjust ...func(*Options)) *Log {
	t.Helper()

	logger, _ := logtest.NewNullLogger()

	o := Options{Dir: dir, Instance: "one", Keep: 1000, KeepFor: time.Hour, Logger: logger, fileSize: 400}
	for _, f := range adjust {
		f(&o)
	}

	l, err := Open(o)
	must(t, err)

	return l
}

// fill appends a number of entries.
func fill(t *testing.T, l *Log, n int) {
	t.Helper()

	for i := range n {
		must(t, l.Append(t.Context(), Entry{
			Time: noon.Add(time.Duration(i) * time.Minute), Principal: "root", Action: "jobs.submit.commission",
			Targets: []string{fmt.Sprint("node", i)}, Job: fmt.Sprint(i),
		}, true))
	}
}

func verified(t *testing.T, dir string) Report {
	t.Helper()

	r, err := Verify(dir)
	must(t, err)

	return r
}

// TestChain continues a trail over several files and opens.
func TestChain(t *testing.T) {
	t.Parallel()

	dir := filepath.Join(t.TempDir(), "audit")
	for range 3 {
		l := open(t, dir)
		fill(t, l, 7)
		must(t, l.Close())
	}

	if r := verified(t, dir); r.Entries != 21 || r.First != 1 || r.Last != 21 || len(r.Problems) > 0 || r.Lost > 0 {
		t.Errorf("%+v", r)
	}

	files, err := filesIn(dir)
	if must(t, err); len(files) < 4 {
		t.Errorf("the trail has the files %v", files)
	}

	for _, f := range files {
		if st, err := os.Stat(filepath.Join(dir, f.name)); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", st, err)
		}
	}

	if err := open(t, dir).Close(); err != nil {
		t.Error(err)
	}
}

// TestConcurrentEntries appends from many goroutines; each entry is there once.
func TestConcurrentEntries(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	l := open(t, dir)

	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			if err := l.Append(t.Context(), Entry{Time: noon, Action: "x", Job: fmt.Sprint(i)}, i%2 == 0); err != nil {
				t.Error(err)
			}
		})
	}

	all.Wait()
	must(t, l.Close())

	seen := map[string]bool{}
	must(t, Read(dir, Filter{}, func(e Entry) error { seen[e.Job] = true; return nil }))

	if r := verified(t, dir); r.Entries != 50 || len(r.Problems) > 0 || len(seen) != 50 {
		t.Errorf("%+v, %d seen", r, len(seen))
	}

	if err := l.Append(t.Context(), Entry{}, true); err == nil {
		t.Error("a closed trail takes an entry")
	}
}

// TestTampering changes the trail in each way that the chain shows.
func TestTampering(t *testing.T) {
	t.Parallel()

	edit := func(change func(lines [][]byte) [][]byte) func(t *testing.T, dir string, files []named) {
		return func(t *testing.T, dir string, files []named) {
			path := filepath.Join(dir, files[1].name)

			text, err := os.ReadFile(path)
			must(t, err)
			must(t, os.WriteFile(path, bytes.Join(change(slices.Collect(bytes.Lines(text))), nil), 0o600))
		}
	}

	for name, c := range map[string]struct {
		change  func(t *testing.T, dir string, files []named)
		problem string
	}{
		"changed": {edit(func(lines [][]byte) [][]byte {
			lines[0] = bytes.Replace(lines[0], []byte(`"root"`), []byte(`"toor"`), 1)
			return lines
		}), "damaged"},
		"changed with its hash": {edit(func(lines [][]byte) [][]byte {
			e, _, _ := parseLine(bytes.TrimSpace(lines[0]))
			e.Principal = "toor"
			lines[0], _, _ = e.line()

			return lines
		}), "that one was changed"},
		"removed":  {edit(func(lines [][]byte) [][]byte { return lines[1:] }), "begins with entry"},
		"repeated": {edit(func(lines [][]byte) [][]byte { return append(lines[:1:1], lines...) }), "follows entry"},
		"swapped": {edit(func(lines [][]byte) [][]byte {
			lines[0], lines[1] = lines[1], lines[0]
			return lines
		}), "follows entry"},
		"cut off": {edit(func(lines [][]byte) [][]byte {
			last := len(lines) - 1
			lines[last] = lines[last][:20]

			return lines
		}), "incomplete"},
		"file removed": {func(t *testing.T, dir string, files []named) {
			must(t, os.Remove(filepath.Join(dir, files[1].name)))
		}, "follows entry"},
		"file renamed": {func(t *testing.T, dir string, files []named) {
			must(t, os.Rename(filepath.Join(dir, files[0].name), filepath.Join(dir, fileName(2))))
		}, "begins with entry 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			dir := t.TempDir()
			l := open(t, dir)
			fill(t, l, 12)
			must(t, l.Close())

			files, err := filesIn(dir)
			must(t, err)
			c.change(t, dir, files)

			if r := verified(t, dir); !strings.Contains(strings.Join(r.Problems, "\n"), c.problem) {
				t.Errorf("%+v, want %q", r, c.problem)
			}

			// The manager goes on with a damaged trail: the damage stays visible.
			l = open(t, dir)
			fill(t, l, 3)
			must(t, l.Close())

			if name != "cut off" && len(verified(t, dir).Problems) == 0 {
				t.Error("new entries hide the damage")
			}
		})
	}
}

// TestCrash cuts the last line at each byte: what was complete stays, and an entry
// names the rest.
func TestCrash(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	l := open(t, dir, func(o *Options) { o.fileSize = 1 << 20 })
	fill(t, l, 2)
	must(t, l.Close())

	path := filepath.Join(dir, fileName(1))

	text, err := os.ReadFile(path)
	must(t, err)

	end := bytes.IndexByte(text, '\n') + 1
	for cut := end; cut < len(text); cut += 13 {
		must(t, os.WriteFile(path, text[:cut], 0o600))

		l := open(t, dir, func(o *Options) { o.fileSize = 1 << 20 })
		fill(t, l, 1)
		must(t, l.Close())

		want := uint64(3)
		if cut == end {
			want = 2
		}

		if r := verified(t, dir); r.Entries != want || len(r.Problems) > 0 {
			t.Fatalf("cut at %d: %+v", cut, r)
		}
	}
}

// TestFailedWrite: an entry that cannot be written is an error, and the next one
// follows an entry with the number of lost ones.
func TestFailedWrite(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	l := open(t, dir)
	fill(t, l, 1)

	// Nothing else runs between two entries.
	writable := l.file
	readOnly, err := os.Open(writable.Name())
	must(t, err)

	l.file = readOnly

	if err := l.Append(t.Context(), Entry{Action: "x"}, true); err == nil {
		t.Error("an entry that was not written is no error")
	}

	l.file = writable
	fill(t, l, 1)
	must(t, l.Close())

	var actions []string

	must(t, Read(dir, Filter{}, func(e Entry) error { actions = append(actions, e.Action+e.Reason); return nil }))

	want := []string{
		"jobs.submit.commission", ActionLost + "1 entries were dropped before this one", "jobs.submit.commission",
	}
	if r := verified(t, dir); !slices.Equal(actions, want) || len(r.Problems) > 0 || r.Lost != 1 {
		t.Errorf("%q, %+v", actions, r)
	}
}

// TestRetention removes whole files beyond the number or the age.
func TestRetention(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	l := open(t, dir, func(o *Options) { o.Keep = 5 })
	fill(t, l, 30)
	must(t, l.Close())

	r := verified(t, dir)
	if r.Last != 30 || r.Entries < 5 || r.Entries > 12 || len(r.Problems) > 0 {
		t.Errorf("%+v", r)
	}

	files, err := filesIn(dir)
	must(t, err)
	must(t, os.Chtimes(filepath.Join(dir, files[0].name), noon, noon.AddDate(-10, 0, 0)))
	must(t, open(t, dir).Close())

	if after := verified(t, dir); after.First != files[1].first || after.Last != 30 || len(after.Problems) > 0 {
		t.Errorf("%+v, want it to begin at %d", after, files[1].first)
	}
}

// TestRead selects entries, and cleans hostile text.
func TestRead(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	l := open(t, dir)
	fill(t, l, 5)
	must(t, l.Append(t.Context(), Entry{
		Time: noon, Principal: "eve\n\x1b[2J\u202e", Action: "nodes.forget", Targets: []string{"node1", "\xff"},
		Kind: "refused",
	}, true))
	must(t, l.Close())

	for want, f := range map[int]Filter{
		6: {},
		2: {Target: "node1"},
		1: {Target: "node1", Action: "jobs"},
		3: {Since: noon.Add(2 * time.Minute)},
		5: {Principal: "root"},
		0: {Action: "job"},
	} {
		got := 0
		must(t, Read(dir, f, func(e Entry) error {
			got++

			if e.Principal != "root" && e.Principal != "eve\ufffd\ufffd[2J\ufffd" {
				t.Errorf("the principal %q", e.Principal)
			}

			return nil
		}))

		if got != want {
			t.Errorf("%+v selects %d, want %d", f, got, want)
		}
	}
}
