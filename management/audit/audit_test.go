// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
)

// noon is the time of the first entry of a test.
var noon = time.Now().UTC().Truncate(time.Second).Add(-time.Hour)

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

	o := Options{Dir: dir, Instance: "one", Keep: 1000, KeepFor: 100 * time.Hour, Logger: logger, fileSize: 400}
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
			Time: noon.Add(time.Duration(i) * time.Minute), Who: "root", Verb: "jobs.submit.commission", Result: Done,
			Targets: []string{fmt.Sprint("node", i)}, Job: fmt.Sprint(i),
		}))
	}
}

func verified(t *testing.T, dir string) Report {
	t.Helper()

	r, err := Verify(t.Context(), dir)
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
			add := l.Append
			if i%2 == 0 {
				add = l.Defer
			}
			if err := add(t.Context(), Entry{Time: noon, Verb: "x", Job: fmt.Sprint(i)}); err != nil {
				t.Error(err)
			}
		})
	}

	all.Wait()
	must(t, l.Close())

	seen := map[string]bool{}
	must(t, Read(t.Context(), dir, Filter{}, func(e Entry) error { seen[e.Job] = true; return nil }))

	if r := verified(t, dir); r.Entries != 50 || len(r.Problems) > 0 || len(seen) != 50 {
		t.Errorf("%+v, %d seen", r, len(seen))
	}

	if err := l.Append(t.Context(), Entry{}); err == nil {
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
			e.Who = "toor"
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

	if err := l.Append(t.Context(), Entry{Verb: "x"}); err == nil {
		t.Error("an entry that was not written is no error")
	}

	l.file = writable
	fill(t, l, 1)
	must(t, l.Close())

	var actions []string

	must(t, Read(t.Context(), dir, Filter{}, func(e Entry) error {
		actions = append(actions, e.Verb+e.Reason)
		return nil
	}))

	want := []string{
		"jobs.submit.commission", VerbLost + "1 entries were dropped before this one", "jobs.submit.commission",
	}
	if r := verified(t, dir); !slices.Equal(actions, want) || len(r.Problems) > 0 || r.Lost != 1 {
		t.Errorf("%q, %+v", actions, r)
	}
}

// age makes the files of a trail older.
func age(t *testing.T, dir string, files []named, by time.Duration) {
	t.Helper()

	for _, f := range files {
		must(t, os.Chtimes(filepath.Join(dir, f.name), noon, time.Now().Add(-by)))
	}
}

// TestRetention removes whole files beyond the age, and beyond the number those that are not young. An entry tells.
func TestRetention(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	few := func(o *Options) { o.Keep, o.KeepFor = 5, 1000*time.Hour }

	l := open(t, dir, few)
	fill(t, l, 30)
	must(t, l.Close())
	must(t, open(t, dir, few).Close())

	if r := verified(t, dir); r.First != 1 || r.Last != 30 || len(r.Problems) > 0 {
		t.Errorf("many young entries pushed out others: %+v", r)
	}

	files, err := filesIn(dir)
	must(t, err)
	age(t, dir, files, 8*24*time.Hour)
	must(t, open(t, dir, few).Close())

	r := verified(t, dir)
	if r.Last != 31 || r.Entries < 5 || r.Entries > 12 || len(r.Problems) > 0 || len(r.Dropped) != 1 ||
		!strings.Contains(r.Dropped[0], fmt.Sprintf("entries 1 to %d were removed", r.First-1)) {
		t.Errorf("%+v", r)
	}

	files, err = filesIn(dir)
	must(t, err)
	age(t, dir, files, time.Hour)
	age(t, dir, files[:1], 10*365*24*time.Hour)
	must(t, open(t, dir).Close())

	if after := verified(t, dir); after.First != files[1].first || after.Last != 32 || len(after.Problems) > 0 {
		t.Errorf("%+v, want it to begin at %d", after, files[1].first)
	}
}

// TestRepeatedChanges: a caller who makes a change to one thing again and again shares an entry, and nobody else does.
func TestRepeatedChanges(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	l := open(t, dir, func(o *Options) { o.fileSize = 0 })

	change := func(who, target string, n int) {
		t.Helper()

		for i := range n {
			must(t, l.Append(t.Context(), Entry{
				Time: noon.Add(time.Duration(i) * time.Second), Who: who, Credential: "token:" + who, Via: "https",
				From: "192.0.2.1:99", Verb: "nodes.patch", Targets: []string{target}, Result: Done,
				Request: fmt.Sprint(i),
			}))
		}
	}

	change("eve", "web-1", 500)
	change("eve", "web-2", 3)
	change("ann", "web-1", 3)

	// A kill leaves the files as they are; the copy is continued by another process.
	killed := t.TempDir()
	must(t, os.CopyFS(killed, os.DirFS(dir)))

	after := open(t, killed)
	must(t, after.Sync(t.Context()))
	must(t, l.Close())
	must(t, after.Close())

	for _, dir := range []string{dir, killed} {
		changes := map[string]uint64{}
		entries := read(t, dir, Filter{Verb: "nodes.patch"})

		for _, e := range entries {
			changes[e.Who+" "+e.Targets[0]] += max(1, e.Count)

			if e.Count > 1 && (e.Request != "499" || !e.Time.Equal(noon.Add(499*time.Second))) {
				t.Errorf("%+v", e)
			}
		}

		want := map[string]uint64{"eve web-1": 500, "eve web-2": 3, "ann web-1": 3}
		if !maps.Equal(changes, want) || len(entries) > 40 {
			t.Errorf("%d entries: %v", len(entries), changes)
		}

		if r := verified(t, dir); len(r.Problems) > 0 || r.Lost > 0 {
			t.Errorf("%+v", r)
		}
	}
}

// TestRepeatedObservations: whoever posts one event of a node again and again shares an entry, as for any other change.
func TestRepeatedObservations(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	l := open(t, dir, func(o *Options) { o.fileSize = 0 })

	const events = 500
	for i := range events {
		must(t, l.Defer(t.Context(), Entry{
			Time: noon.Add(time.Duration(i) * time.Second), Who: "monitor:post", Credential: "token:eve", Via: "https",
			From: "192.0.2.1:99", Verb: "nodes.observe", Targets: []string{"web-1"}, Result: Done,
		}))
	}

	must(t, l.Close())

	all := read(t, dir, Filter{Verb: "nodes.observe"})
	if last := all[len(all)-1]; len(all) != changeEntries+1 || last.Count != events-changeEntries {
		t.Errorf("%d entries, the last %+v", len(all), last)
	}
}

// TestHeldRefusals: a refusal that shares an entry keeps its own time, and a kill does not lose it. Root on the socket
// is a caller with a credential.
func TestHeldRefusals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, dir := bubble(t)

		for i := range 10 {
			for _, via := range []string{"socket", "plain_http"} {
				must(t, l.Refuse(Entry{
					Time: time.Now(), Who: "root", Credential: via, Via: via, Verb: "jobs.submit", Result: "refused",
					Request: fmt.Sprint(i),
				}))
			}

			time.Sleep(time.Minute / 10)
		}

		last := time.Now().Add(-time.Minute / 10)

		time.Sleep(gatherTime)
		synctest.Wait()

		if n := len(read(t, dir, Filter{Result: Failed})); n != 10+strangerEntries {
			t.Errorf("%d entries", n)
		}

		killed := t.TempDir()
		must(t, os.CopyFS(killed, os.DirFS(dir)))

		after := open(t, killed)
		must(t, after.Sync(t.Context()))
		must(t, after.Close())
		must(t, open(t, killed).Close())

		time.Sleep(2 * floodTime)
		must(t, l.Close())

		for _, dir := range []string{dir, killed} {
			all := read(t, dir, Filter{Result: Failed})
			e := all[len(all)-1]

			if len(all) != 10+strangerEntries+1 || e.Count != 10-strangerEntries || !e.Time.Equal(last) ||
				e.Request != "9" {
				t.Errorf("%d entries, the last %+v", len(all), e)
			}
		}
	})
}

// TestFailedTruncate: what cannot be removed from the end of a file stays there, and the trail goes on in the next one.
func TestFailedTruncate(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	l := open(t, dir)
	fill(t, l, 1)

	// A pipe without a reader takes nothing and cannot be truncated.
	r, w, err := os.Pipe()
	must(t, err)
	must(t, r.Close())

	whole := l.file
	l.file = w

	if err := l.Append(t.Context(), Entry{Verb: "x"}); err == nil {
		t.Error("an entry that was not written is no error")
	}

	must(t, whole.Close())
	fill(t, l, 1)
	must(t, l.Close())

	files, err := filesIn(dir)
	if must(t, err); len(files) != 2 {
		t.Errorf("the trail has the files %v", files)
	}

	if r := verified(t, dir); r.Entries != 3 || r.Lost != 1 || len(r.Problems) > 0 {
		t.Errorf("%+v", r)
	}
}

// TestReadEnds reads a trail under a context that has ended: every way to read it ends.
func TestReadEnds(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	l := open(t, dir)
	fill(t, l, 5)
	must(t, l.Close())

	l = open(t, dir) // it reads the entries from its files

	ctx, cancel := context.WithCancel(t.Context())
	seen := 0

	err := Read(ctx, dir, Filter{}, func(Entry) error {
		seen++
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) || seen != 1 {
		t.Errorf("a read under way: %v after %d entries", err, seen)
	}

	export := strings.NewReader(strings.Repeat("{}\n", 10))

	for what, read := range map[string]func() error{
		"no entry is selected": func() error { return Read(ctx, dir, Filter{Who: "nobody"}, nil) },
		"the newest":           func() error { _, err := Newest(ctx, dir, Filter{Who: "nobody"}, 3); return err },
		"a check":              func() error { _, err := Verify(ctx, dir); return err },
		"a check of an export": func() error { _, err := VerifyExport(ctx, export); return err },
		"a follower":           func() error { _, _, err := l.After(ctx, 0); return err },
	} {
		if err := read(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", what, err)
		}
	}

	must(t, l.Close())
}

// TestRead selects entries, and cleans hostile text.
func TestRead(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	l := open(t, dir)
	fill(t, l, 5)
	must(t, l.Append(t.Context(), Entry{
		Time: noon, Who: "eve\n\x1b[2J\u202e", Verb: "nodes.forget", Targets: []string{"node1", "\xff"},
		Result: "refused", From: "192.0.2.1:5", Via: "https", Request: "f00d",
	}))
	must(t, l.Close())

	for want, f := range map[int]Filter{
		6: {},
		2: {Target: "node1"},
		1: {Target: "node1", Verb: "jobs"},
		3: {Since: noon.Add(2 * time.Minute)},
		5: {Who: "root"},
		0: {Verb: "job"},
	} {
		got := 0
		must(t, Read(t.Context(), dir, f, func(e Entry) error {
			got++

			if e.Who != "root" && e.Who != "eve\ufffd\ufffd[2J\ufffd" {
				t.Errorf("the principal %q", e.Who)
			}
			return nil
		}))

		if got != want {
			t.Errorf("%+v selects %d, want %d", f, got, want)
		}
	}
}

// bubble opens a trail whose time is that of a synctest bubble.
func bubble(t *testing.T) (*Log, string) {
	t.Helper()
	dir := t.TempDir()
	return open(t, dir, func(o *Options) { o.fileSize = 1 << 20 }), dir
}

func read(t *testing.T, dir string, f Filter) (all []Entry) {
	t.Helper()
	must(t, Read(t.Context(), dir, f, func(e Entry) error { all = append(all, e); return nil }))
	return all
}

// TestDeferredEntries: entries that nobody waits for share one sync, which follows
// within a bounded time, with the next awaited entry, or at the end.
func TestDeferredEntries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, dir := bubble(t)

		observe := func(n int) {
			t.Helper()

			began := time.Now()
			for range n {
				must(t, l.Defer(t.Context(), Entry{Time: time.Now(), Who: "monitor:rack", Verb: "nodes.observe"}))
			}

			synctest.Wait()

			if waited := time.Since(began); waited > 0 {
				t.Errorf("%d observations waited for %s", n, waited)
			}
		}

		expect := func(when string, entries, syncs int) {
			t.Helper()

			if got := len(read(t, dir, Filter{})); got != entries || int(l.syncs.Load()) != syncs {
				t.Errorf("%s: %d entries with %d syncs, want %d with %d", when, got, l.syncs.Load(), entries, syncs)
			}
		}

		observe(20)
		expect("at once", 0, 0)
		time.Sleep(gatherTime)
		synctest.Wait()
		expect("at the deadline", 20, 1)

		observe(20)
		must(t, l.Append(t.Context(), Entry{Time: time.Now(), Who: "root", Verb: "nodes.patch"}))
		expect("with a mutation", 41, 2)

		observe(5)
		must(t, l.Sync(t.Context()))
		expect("after Sync", 46, 3)
		must(t, l.Sync(t.Context()))
		expect("after an idle Sync", 46, 3)

		observe(batchLength + 1)
		expect("with a full batch", 46+batchLength, 4)
		must(t, l.Close())
		expect("at the end", 46+batchLength+1, 5)

		if r := verified(t, dir); len(r.Problems) > 0 || r.Lost > 0 {
			t.Errorf("%+v", r)
		}
	})
}

// TestFloods: the refusals of one source share an entry after the first ones, and
// those of strangers make a bounded number of entries, however many they are.
func TestFloods(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, dir := bubble(t)

		refuse := func(who, credential, from, request string) {
			t.Helper()
			must(t, l.Refuse(Entry{
				Time: time.Now(), Who: who, Credential: credential, From: from, Via: "https", Request: request,
				Verb: "requests.refuse", Result: "unauthenticated", Error: "no",
			}))
		}

		for i := range 1000 {
			refuse("anonymous", "", fmt.Sprintf("192.0.2.1:%d", i), fmt.Sprint("s", i))
			refuse("token:ci", "token:1", "192.0.2.9:5", fmt.Sprint("t", i))
			synctest.Wait()
		}

		time.Sleep(floodTime + 2*sweepTime)
		synctest.Wait()

		count := func(who string) (entries, refusals uint64, last Entry) {
			for _, e := range read(t, dir, Filter{Who: who, Result: Failed}) {
				entries, refusals, last = entries+1, refusals+max(1, e.Count), e
			}

			return entries, refusals, last
		}

		entries, refusals, last := count("anonymous")
		if entries != strangerEntries+1 || refusals != 1000 || last.Request != "s999" ||
			!strings.HasPrefix(last.Reason, "the last of 997 refusals since ") {
			t.Errorf("%d entries for %d refusals, the last %+v", entries, refusals, last)
		}

		if entries, refusals, _ := count("token:ci"); entries != knownEntries+1 || refusals != 1000 {
			t.Errorf("%d entries for %d refusals of a token", entries, refusals)
		}

		// From very many addresses, and with the window of before ended.
		for i := range 5000 {
			refuse("anonymous", "", fmt.Sprintf("[2001:db8::%x]:1", i), "")

			if i%100 == 0 {
				synctest.Wait()
			}
		}

		must(t, l.Close())

		now, total, _ := count("anonymous")
		if now-entries > strangerSources*(strangerEntries+1)+1 || total != 6000 {
			t.Errorf("%d entries for 5000 refusals of strangers, %d in total", now-entries, total)
		}

		if r := verified(t, dir); len(r.Problems) > 0 || r.Lost > 0 {
			t.Errorf("%+v", r)
		}
	})
}

// TestFollow returns the entries after each number once, from memory and from files.
func TestFollow(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	l := open(t, dir)
	fill(t, l, 5)
	must(t, l.Close())

	l = open(t, dir, func(o *Options) { o.Keep = 100_000 })
	defer l.Close()

	follow := func(from uint64) (seqs []uint64, woken <-chan struct{}) {
		t.Helper()

		for {
			list, more, err := l.After(t.Context(), from)
			must(t, err)

			if len(list) == 0 {
				return seqs, more
			}

			for _, e := range list {
				seqs, from = append(seqs, e.Seq), e.Seq
			}
		}
	}

	got, woken := follow(2)
	if !slices.Equal(got, []uint64{3, 4, 5}) {
		t.Errorf("from files: %v", got)
	}

	fill(t, l, 2)
	<-woken

	if got, _ := follow(3); !slices.Equal(got, []uint64{4, 5, 6, 7}) {
		t.Errorf("from both: %v", got)
	}

	if got, _ := follow(5); !slices.Equal(got, []uint64{6, 7}) {
		t.Errorf("from memory: %v", got)
	}

	// More than there is room for in memory.
	for range 3 * recentLength {
		must(t, l.Defer(t.Context(), Entry{Time: noon, Verb: "x"}))
	}

	must(t, l.Sync(t.Context()))

	got, _ = follow(0)
	for i, seq := range got {
		if seq != uint64(i+1) {
			t.Fatalf("entry %d is number %d", i, seq)
		}
	}

	if len(got) != 7+3*recentLength {
		t.Errorf("%d entries", len(got))
	}

	newest, err := l.Newest(t.Context(), Filter{Who: "root"}, 3)
	if must(t, err); len(newest) != 3 || newest[0].Seq != 5 || newest[2].Seq != 7 {
		t.Errorf("the newest ones are %+v", newest)
	}
}

// TestExport verifies an export, and each way to change it.
func TestExport(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	l := open(t, dir)
	fill(t, l, 6)
	must(t, l.Append(t.Context(), Entry{Time: noon, Who: "<a&b>", Verb: "x", Error: "q\"uote"}))
	must(t, l.Close())

	var export []string
	for _, e := range read(t, dir, Filter{}) {
		export = append(export, string(e.Export()))
	}

	check := func(lines ...string) Report {
		t.Helper()

		r, err := VerifyExport(t.Context(), strings.NewReader(strings.Join(lines, "\n")))
		must(t, err)
		return r
	}

	whole := check(export...)
	if r := verified(t, dir); whole.LastHash != r.LastHash || whole.Entries != 7 || len(whole.Problems) > 0 {
		t.Errorf("%+v, want %+v", whole, r)
	}

	if r := check(export[1], export[4], export[5]); r.Missing != 2 || len(r.Problems) > 0 {
		t.Errorf("a part: %+v", r)
	}

	for what, lines := range map[string][]string{
		"changed":  {export[0], strings.Replace(export[1], `"root"`, `"toor"`, 1)},
		"swapped":  {export[1], export[0]},
		"repeated": {export[0], export[0]},
		"no hash":  {strings.Replace(export[0], "hash", "cash", 1)},
		"cut off":  {export[0][:100]},
	} {
		if r := check(lines...); len(r.Problems) == 0 {
			t.Errorf("%s: %+v", what, r)
		}
	}

	e, _, err := parseExport([]byte(export[1]))
	must(t, err)

	e.Who = "toor"
	_, e, err = e.line()
	must(t, err)

	if r := check(export[0], string(e.Export()), export[2]); len(r.Problems) != 1 {
		t.Errorf("computed anew: %+v", r)
	}
}

// TestAge begins a file after a part of the age, so that the age bounds what is kept.
func TestAge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, dir := bubble(t)
		fill(t, l, 1)
		time.Sleep(100*time.Hour/filesPerAge + time.Minute)
		fill(t, l, 1)
		must(t, l.Close())

		files, err := filesIn(dir)
		if must(t, err); len(files) != 2 {
			t.Errorf("the trail has the files %v", files)
		}
	})
}

// BenchmarkEntry compares what the caller of a mutation and a reporting monitor wait for.
func BenchmarkEntry(b *testing.B) {
	logger, _ := logtest.NewNullLogger()

	for name, add := range map[string]func(*Log, context.Context, Entry) error{
		"mutation": (*Log).Append, "observation": (*Log).Defer,
	} {
		b.Run(name, func(b *testing.B) {
			l, err := Open(Options{Dir: b.TempDir(), Instance: "one", Keep: 1000, KeepFor: time.Hour, Logger: logger})
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()

			for b.Loop() {
				if err := add(
					l,
					b.Context(),
					Entry{Time: noon, Who: "monitor:rack", Verb: "nodes.observe"},
				); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
