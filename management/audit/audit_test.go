// SPDX-License-Identifier: Apache-2.0

package audit_test

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

	"github.com/contiv/cluster/management/audit"
	"github.com/contiv/cluster/management/audit/audittest"
	"github.com/contiv/cluster/management/record"
)

// noon is the time of the first entry of a test.
var noon = time.Now().UTC().Truncate(time.Second).Add(-time.Hour)

func must(t *testing.T, err error) {
	t.Helper()

	if err != nil {
		t.Fatal(err)
	}
}

// open makes the trail of an instance. Its loop does not run.
func open(s audit.Store, adjust ...func(*audit.Options)) *audit.Trail {
	logger, _ := logtest.NewNullLogger()

	o := audit.Options{
		Store: s, Instance: "one", Keep: 1000, KeepFor: 100 * time.Hour, Leads: func() bool { return true },
		Logger: logger,
	}
	for _, f := range adjust {
		f(&o)
	}

	return audit.New(o)
}

// fill appends a number of entries, and seals them.
func fill(t *testing.T, l *audit.Trail, n int) {
	t.Helper()

	for i := range n {
		must(t, l.Append(t.Context(), audit.Entry{
			Time: noon.Add(time.Duration(i) * time.Minute), Who: "root", Verb: "jobs.submit.commission",
			Result: audit.Done, Targets: []string{fmt.Sprint("node", i)}, Job: fmt.Sprint(i),
		}))
	}

	must(t, l.Sync(t.Context()))
}

// fillSegments makes segments of about 90 entries.
func fillSegments(t *testing.T, l *audit.Trail, n int) {
	t.Helper()

	for range n {
		for i := range 90 {
			must(t, l.Defer(audit.Entry{
				Time: noon.Add(time.Duration(i) * time.Second), Who: "root", Verb: "nodes.patch", Result: audit.Done,
				Reason: strings.Repeat("r", 600),
			}))
		}

		must(t, l.Sync(t.Context()))
	}
}

func snapshot(t *testing.T, s audit.Store) audit.Reader {
	t.Helper()
	r, err := audit.Snapshot(t.Context(), s)
	must(t, err)
	return r
}

func verified(t *testing.T, s audit.Store) audit.Report {
	t.Helper()
	r, err := snapshot(t, s).Verify(t.Context())
	must(t, err)
	return r
}

func read(t *testing.T, s audit.Store, f audit.Filter) (all []audit.Entry) {
	t.Helper()
	must(t, snapshot(t, s).Read(t.Context(), f, func(e audit.Entry) error { all = append(all, e); return nil }))
	return all
}

// copied returns the records as a kill leaves them.
func copied(s *audittest.Store) *audittest.Store {
	return &audittest.Store{Records: maps.Clone(s.Records), Revision: s.Revision}
}

// TestChain continues a chain over several segments, instances and restarts, also without its head.
func TestChain(t *testing.T) {
	t.Parallel()

	s := &audittest.Store{}
	for i := range 3 {
		fillSegments(t, open(s, func(o *audit.Options) { o.Instance = fmt.Sprint(i) }), 2)
	}

	s.Change(audit.HeadKey, func([]byte) []byte { return []byte("damaged") })
	fill(t, open(s), 7)
	s.Change(audit.HeadKey, func([]byte) []byte { return nil })
	fill(t, open(s), 7)

	if r := verified(t, s); r.Entries != 554 || r.First != 1 || r.Last != 554 || len(r.Problems) > 0 || r.Lost > 0 {
		t.Errorf("%+v", r)
	}

	if keys := s.Keys(audit.LogPrefix); len(keys) < 4 || len(s.Keys(audit.NewPrefix)) > 0 {
		t.Errorf("the trail has the records %v", s.Keys(""))
	}

	// What is not sealed shows as it will be.
	must(t, open(s).Append(t.Context(), audit.Entry{Time: noon, Verb: "x"}))

	before := verified(t, s)
	fill(t, open(s), 0)

	if after := verified(t, s); before.Last != 555 || before.LastHash != after.LastHash {
		t.Errorf("%+v, then %+v", before, after)
	}
}

// TestConcurrentEntries appends from many goroutines and instances; each entry is there once.
func TestConcurrentEntries(t *testing.T) {
	t.Parallel()

	s := &audittest.Store{}
	instances := []*audit.Trail{open(s), open(s)}

	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			l := instances[i%2]

			add := func(e audit.Entry) error { return l.Append(t.Context(), e) }
			if i%3 == 0 {
				add = l.Defer
			}
			if err := errors.Join(
				add(audit.Entry{Time: noon, Verb: "x", Job: fmt.Sprint(i)}), l.Sync(t.Context()),
			); err != nil {
				t.Error(err)
			}
		})
	}

	all.Wait()

	seen := map[string]bool{}
	for _, e := range read(t, s, audit.Filter{}) {
		seen[e.Job] = true
	}

	if r := verified(t, s); r.Entries != 50 || len(r.Problems) > 0 || len(seen) != 50 {
		t.Errorf("%+v, %d seen", r, len(seen))
	}
}

// TestTampering changes the trail in each way that the chain shows.
func TestTampering(t *testing.T) {
	t.Parallel()

	edit := func(change func(lines [][]byte) [][]byte) func(*audittest.Store, string) {
		return func(s *audittest.Store, key string) {
			s.Change(key, func(value []byte) []byte {
				text, _ := record.Expand(value)
				return record.Compress(bytes.Join(change(slices.Collect(bytes.Lines(text))), nil))
			})
		}
	}

	for name, c := range map[string]struct {
		change  func(s *audittest.Store, second string)
		problem string
	}{
		"changed": {edit(func(lines [][]byte) [][]byte {
			lines[0] = bytes.Replace(lines[0], []byte(`"root"`), []byte(`"toor"`), 1)
			return lines
		}), "damaged"},
		"changed with its hash": {edit(func(lines [][]byte) [][]byte {
			e, _, _ := audit.ParseLine(bytes.TrimSpace(lines[0]))
			e.Who = "toor"
			lines[0], _, _ = audit.LineOf(e)
			return lines
		}), "that one was changed"},
		"removed":  {edit(func(lines [][]byte) [][]byte { return lines[1:] }), "is where entry"},
		"repeated": {edit(func(lines [][]byte) [][]byte { return append(lines[:1:1], lines...) }), "follows entry"},
		"swapped": {edit(func(lines [][]byte) [][]byte {
			lines[1], lines[2] = lines[2], lines[1]
			return lines
		}), "follows entry"},
		"segment damaged": {func(s *audittest.Store, second string) {
			s.Change(second, func([]byte) []byte { return []byte("damaged") })
		}, "are damaged"},
		"segment removed": {func(s *audittest.Store, second string) {
			s.Change(second, func([]byte) []byte { return nil })
		}, "follows entry"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := &audittest.Store{}
			fillSegments(t, open(s), 4)
			c.change(s, s.Keys(audit.LogPrefix)[1])

			if r := verified(t, s); !strings.Contains(strings.Join(r.Problems, "\n"), c.problem) {
				t.Errorf("%+v, want %q", r, c.problem)
			}

			// The manager goes on with a damaged trail: the damage stays visible.
			fill(t, open(s), 3)

			if len(verified(t, s).Problems) == 0 {
				t.Error("new entries hide the damage")
			}
		})
	}

	// An end that was cut off shows as long as the head is there.
	s := &audittest.Store{}
	fillSegments(t, open(s), 4)
	s.Change(s.Keys(audit.LogPrefix)[3], func([]byte) []byte { return nil })

	if r := verified(t, s); !strings.Contains(strings.Join(r.Problems, "\n"), "the trail ends with entry") {
		t.Errorf("cut off: %+v", r)
	}
}

// TestAway: while the store takes no entries they wait in memory. Those that found no room are counted.
func TestAway(t *testing.T) {
	t.Parallel()

	s := &audittest.Store{}
	l := open(s)
	fill(t, l, 1)

	s.Refuse(errors.New("away"))

	must(t, l.Append(t.Context(), audit.Entry{Time: noon, Verb: "x"}))

	if err := l.Sync(t.Context()); err == nil {
		t.Error("entries that are not stored are in sync")
	}

	for range audit.QueueLength + 1 {
		_ = l.Refuse(audit.Entry{Time: noon, Verb: "y", Result: "unavailable"})
	}

	s.Refuse(nil)
	fill(t, l, 1)

	verbs := map[string]int{}
	for _, e := range read(t, s, audit.Filter{}) {
		verbs[e.Verb+e.Reason]++
	}

	want := map[string]int{
		"jobs.submit.commission": 2, "x": 1, "y": audit.QueueLength - 1,
		audit.VerbLost + "2 entries were dropped before this one": 1,
	}
	if r := verified(t, s); !maps.Equal(verbs, want) || len(r.Problems) > 0 || r.Lost != 1 {
		t.Errorf("%v, %+v", verbs, r)
	}
}

// bubble runs the loop of a trail in the time of a synctest bubble.
func bubble(t *testing.T, s audit.Store, adjust ...func(*audit.Options)) *audit.Trail {
	t.Helper()

	l := open(s, adjust...)
	l.Loop.Start(t.Context())
	t.Cleanup(l.Loop.Stop)
	synctest.Wait()

	return l
}

// TestRetention removes whole segments beyond the age, and beyond the number those that are not young. An entry tells.
func TestRetention(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &audittest.Store{}
		few := func(o *audit.Options) { o.Keep, o.KeepFor = 100, 1000*time.Hour }

		old := func(age time.Duration, segments int) {
			t.Helper()

			l := open(s, few)
			for range segments {
				for range 90 {
					must(t, l.Defer(audit.Entry{
						Time: time.Now().Add(-age), Who: "root", Verb: "x", Reason: strings.Repeat("r", 700),
					}))
				}

				must(t, l.Sync(t.Context()))
			}
		}

		sweep := func(adjust ...func(*audit.Options)) audit.Report {
			t.Helper()

			l := bubble(t, s, adjust...)
			time.Sleep(2 * audit.RoundTime)
			l.Loop.Stop()
			return verified(t, s)
		}

		old(24*time.Hour, 4)

		if r := sweep(few); r.First != 1 || r.Last != 360 || len(r.Problems) > 0 {
			t.Errorf("many young entries pushed out others: %+v", r)
		}

		s = &audittest.Store{}
		old(8*24*time.Hour, 4)

		r := sweep(few)
		if r.Last != 361 || r.Entries < 100 || r.Entries > 300 || len(r.Problems) > 0 || len(r.Dropped) != 1 ||
			!strings.Contains(r.Dropped[0], fmt.Sprintf("entries 1 to %d were removed", r.First-1)) {
			t.Errorf("%+v", r)
		}

		if after := sweep(); after.First <= r.First || after.Last != 362 || len(after.Problems) > 0 {
			t.Errorf("%+v, then %+v", r, after)
		}

		// A segment begins after a part of the age, so that the age bounds what is kept.
		before := len(s.Keys(audit.LogPrefix))

		time.Sleep(1000*time.Hour/audit.SegmentsPerAge + time.Minute)
		fill(t, open(s, few), 1)

		if now := len(s.Keys(audit.LogPrefix)); now != before+1 {
			t.Errorf("%d segments, and then %d", before, now)
		}
	})
}

// TestRepeatedChanges: a caller who makes a change to one thing again and again shares an entry, and nobody else does,
// also over the end of a process.
func TestRepeatedChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &audittest.Store{}
		l := bubble(t, s)
		began := time.Now()

		change := func(who, target string, n int, add func(audit.Entry) error) {
			t.Helper()

			for i := range n {
				must(t, add(audit.Entry{
					Time: began.Add(time.Duration(i) * time.Millisecond), Who: who, Credential: "token:" + who,
					Via: "https", From: "192.0.2.1:99", Verb: "nodes.patch", Targets: []string{target},
					Result: audit.Done, Request: fmt.Sprint(i),
				}))
			}
		}
		add := func(e audit.Entry) error { return l.Append(t.Context(), e) }

		change("eve", "web-1", 500, add)
		change("eve", "web-2", 3, add)
		change("ann", "web-1", 3, add)
		change("monitor:post", "web-3", 500, l.Defer) // an observation is a change as well
		must(t, l.Sync(t.Context()))

		killed := copied(s)
		after := bubble(t, killed)

		time.Sleep(audit.FloodTime + 2*audit.RoundTime)
		l.Loop.Stop()
		after.Loop.Stop()

		for _, s := range []*audittest.Store{s, killed} {
			changes := map[string]uint64{}
			entries := read(t, s, audit.Filter{Verb: "nodes.patch"})

			for _, e := range entries {
				changes[e.Who+" "+e.Targets[0]] += max(1, e.Count)

				if e.Count > 1 && (e.Request != "499" || !e.Time.Equal(began.Add(499*time.Millisecond)) ||
					e.Count != 500-audit.ChangeEntries) {
					t.Errorf("%+v", e)
				}
			}

			want := map[string]uint64{"eve web-1": 500, "eve web-2": 3, "ann web-1": 3, "monitor:post web-3": 500}
			if !maps.Equal(changes, want) || len(entries) != 2*(audit.ChangeEntries+1)+6 {
				t.Errorf("%d entries: %v", len(entries), changes)
			}

			if r := verified(t, s); len(r.Problems) > 0 || r.Lost > 0 {
				t.Errorf("%+v", r)
			}
		}
	})
}

// TestHeldRefusals: a refusal that shares an entry keeps its own time, and a kill does not lose it. Root on the socket
// is a caller with a credential.
func TestHeldRefusals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &audittest.Store{}
		l := bubble(t, s)

		for i := range 10 {
			for _, via := range []string{"socket", "plain_http"} {
				must(t, l.Refuse(audit.Entry{
					Time: time.Now(), Who: "root", Credential: via, Via: via, Verb: "jobs.submit", Result: "refused",
					Request: fmt.Sprint(i),
				}))
			}

			time.Sleep(time.Minute / 10)
		}

		last := time.Now().Add(-time.Minute / 10)

		time.Sleep(audit.RoundTime)
		synctest.Wait()

		if n := len(read(t, s, audit.Filter{Result: audit.Failed})); n != 10+audit.StrangerEntries {
			t.Errorf("%d entries", n)
		}

		killed := copied(s)
		bubble(t, killed)

		time.Sleep(2 * audit.FloodTime)

		for _, s := range []*audittest.Store{s, killed} {
			all := read(t, s, audit.Filter{Result: audit.Failed})
			e := all[len(all)-1]

			if len(all) != 10+audit.StrangerEntries+1 || e.Count != 10-audit.StrangerEntries || !e.Time.Equal(last) ||
				e.Request != "9" {
				t.Errorf("%d entries, the last %+v", len(all), e)
			}
		}
	})
}

// TestReadEnds reads a trail under a context that has ended: every way to read it ends.
func TestReadEnds(t *testing.T) {
	t.Parallel()

	l := open(&audittest.Store{})
	fill(t, l, 5)

	ctx, cancel := context.WithCancel(t.Context())
	seen := 0

	err := l.Read(ctx, audit.Filter{}, func(audit.Entry) error {
		seen++
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) || seen != 1 {
		t.Errorf("a read under way: %v after %d entries", err, seen)
	}

	export := strings.NewReader(strings.Repeat("{}\n", 10))

	for what, read := range map[string]func() error{
		"no entry is selected": func() error { return l.Read(ctx, audit.Filter{Who: "nobody"}, nil) },
		"the newest":           func() error { _, err := l.Newest(ctx, audit.Filter{Who: "nobody"}, 3); return err },
		"a check":              func() error { _, err := l.Verify(ctx); return err },
		"a check of an export": func() error { _, err := audit.VerifyExport(ctx, export); return err },
		"a follower":           func() error { _, _, err := l.After(ctx, 0); return err },
	} {
		if err := read(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestRead selects entries, and cleans hostile text.
func TestRead(t *testing.T) {
	t.Parallel()

	s := &audittest.Store{}
	l := open(s)
	fill(t, l, 5)
	must(t, l.Append(t.Context(), audit.Entry{
		Time: noon, Who: "eve\n\x1b[2J\u202e", Verb: "nodes.forget", Targets: []string{"node1", "\xff"},
		Result: "refused", From: "192.0.2.1:5", Via: "https", Request: "f00d",
	}))

	for want, f := range map[int]audit.Filter{
		6: {},
		2: {Target: "node1"},
		1: {Target: "node1", Verb: "jobs"},
		3: {Since: noon.Add(2 * time.Minute)},
		5: {Who: "root"},
		0: {Verb: "job"},
	} {
		got := read(t, s, f)
		if len(got) != want {
			t.Errorf("%+v selects %d, want %d", f, len(got), want)
		}

		for _, e := range got {
			if e.Who != "root" && e.Who != "eve\ufffd\ufffd[2J\ufffd" {
				t.Errorf("the principal %q", e.Who)
			}
		}
	}
}

// TestLongRead: of a trail of many segments, those that cannot have a selected entry are not read.
func TestLongRead(t *testing.T) {
	t.Parallel()

	s := &audittest.Store{}
	l := open(s)

	for day := range 20 {
		for range 90 {
			must(t, l.Defer(audit.Entry{
				Time: noon.Add(time.Duration(day-20) * 24 * time.Hour), Verb: "x", Reason: strings.Repeat("r", 800),
			}))
		}

		must(t, l.Sync(t.Context()))
	}

	since := audit.Filter{Since: noon.Add(-2*24*time.Hour - time.Minute)}
	if n := len(read(t, s, since)); n != 180 {
		t.Errorf("%d entries", n)
	}
	newest, err := l.Newest(t.Context(), since, 100)
	if must(t, err); len(newest) != 100 || newest[99].Seq != 1800 || newest[0].Seq != 1701 {
		t.Errorf("%d newest", len(newest))
	}
	if newest, err = l.Newest(t.Context(), since, 1000); err != nil || len(newest) != 180 {
		t.Errorf("%d newest, %v", len(newest), err)
	}
}

// TestDeferredEntries: entries that nobody waits for share one write, which follows within a bounded time.
func TestDeferredEntries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &audittest.Store{}
		l := bubble(t, s)

		for range 20 {
			must(t, l.Defer(audit.Entry{Time: time.Now(), Who: "monitor:rack", Verb: "nodes.observe"}))
		}

		synctest.Wait()

		if got := len(read(t, s, audit.Filter{})); got != 0 || s.Writes() != 0 {
			t.Errorf("at once: %d entries, %d writes", got, s.Writes())
		}

		time.Sleep(audit.RoundTime)
		synctest.Wait()

		// The second write seals them.
		if got := len(read(t, s, audit.Filter{})); got != 20 || s.Writes() != 2 {
			t.Errorf("after a round: %d entries, %d writes", got, s.Writes())
		}

		time.Sleep(10 * audit.RoundTime)

		if s.Writes() != 2 {
			t.Errorf("an idle trail makes %d writes", s.Writes()-2)
		}

		must(t, l.Defer(audit.Entry{Time: time.Now(), Verb: "nodes.observe"}))
		l.Loop.Stop()
		l.Close(t.Context())

		if got := len(read(t, s, audit.Filter{})); got != 21 {
			t.Errorf("at the end: %d entries", got)
		}
	})
}

// TestFloods: the refusals of one source share an entry after the first ones, and
// those of strangers make a bounded number of entries, however many they are.
func TestFloods(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &audittest.Store{}
		l := bubble(t, s)

		refuse := func(who, credential, from, request string) {
			t.Helper()
			must(t, l.Refuse(audit.Entry{
				Time: time.Now(), Who: who, Credential: credential, From: from, Via: "https", Request: request,
				Verb: "requests.refuse", Result: "unauthenticated", Error: "no",
			}))
		}

		for i := range 1000 {
			refuse("anonymous", "", fmt.Sprintf("192.0.2.1:%d", i), fmt.Sprint("s", i))
			refuse("token:ci", "token:1", "192.0.2.9:5", fmt.Sprint("t", i))
		}

		time.Sleep(audit.FloodTime + 2*audit.RoundTime)

		count := func(who string) (entries, refusals uint64, last audit.Entry) {
			for _, e := range read(t, s, audit.Filter{Who: who, Result: audit.Failed}) {
				entries, refusals, last = entries+1, refusals+max(1, e.Count), e
			}

			return entries, refusals, last
		}

		entries, refusals, last := count("anonymous")
		if entries != audit.StrangerEntries+1 || refusals != 1000 || last.Request != "s999" ||
			!strings.HasPrefix(last.Reason, "the last of 997 refusals since ") {
			t.Errorf("%d entries for %d refusals, the last %+v", entries, refusals, last)
		}

		if entries, refusals, _ := count("token:ci"); entries != audit.KnownEntries+1 || refusals != 1000 {
			t.Errorf("%d entries for %d refusals of a token", entries, refusals)
		}

		// From very many addresses, and with the window of before ended.
		for i := range 5000 {
			refuse("anonymous", "", fmt.Sprintf("[2001:db8::%x]:1", i), "")
		}

		l.Loop.Stop()
		l.Close(t.Context())

		now, total, _ := count("anonymous")
		if now-entries > audit.StrangerSources*(audit.StrangerEntries+1)+1 || total != 6000 {
			t.Errorf("%d entries for 5000 refusals of strangers, %d in total", now-entries, total)
		}

		if r := verified(t, s); len(r.Problems) > 0 || r.Lost > 0 {
			t.Errorf("%+v", r)
		}
	})
}

// TestFloodsOverInstances: refusals of one source share an entry over seconds and instances, also if each of them
// seals.
func TestFloodsOverInstances(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &audittest.Store{}
		instances := []*audit.Trail{bubble(t, s), bubble(t, s)}

		const seconds, each = 100, 20

		for range seconds {
			for i := range each {
				must(t, instances[i%2].Refuse(audit.Entry{
					Time: time.Now(), Who: "token:ci", Credential: "token:1", From: "192.0.2.9:5", Via: "https",
					Verb: "jobs.submit", Result: "refused", Targets: make([]string, 50),
					Error: strings.Repeat("e", 4096),
				}))
			}

			time.Sleep(time.Second)
		}

		synctest.Wait()

		head, err := record.Expand(s.Records[audit.HeadKey].Value)
		if must(t, err); len(head) > 4096 {
			t.Errorf("the head has %d bytes", len(head))
		}

		time.Sleep(2 * audit.FloodTime)
		synctest.Wait()

		entries, refusals := 0, uint64(0)
		for _, e := range read(t, s, audit.Filter{Result: audit.Failed}) {
			entries, refusals = entries+1, refusals+max(1, e.Count)
		}

		if refusals != seconds*each || entries > 2*audit.KnownEntries {
			t.Errorf("%d entries for %d refusals", entries, refusals)
		}
	})
}

// TestUnwritable: an entry that cannot be encoded is counted as lost, and the others are written.
func TestUnwritable(t *testing.T) {
	t.Parallel()

	s := &audittest.Store{}
	l := open(s)

	for _, at := range []time.Time{noon, time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC), noon} {
		must(t, l.Defer(audit.Entry{Time: at, Verb: "nodes.observe"}))
	}

	must(t, l.Sync(t.Context()))

	if all := read(t, s, audit.Filter{}); len(all) != 3 || all[0].Verb != "nodes.observe" ||
		all[1].Verb != audit.VerbLost || all[2].Verb != "nodes.observe" {
		t.Errorf("%+v", all)
	}
}

// TestFormerHeld: the refusals that instances of an earlier version held back become entries.
func TestFormerHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		held := func(who string) audit.Stored {
			line := fmt.Sprintf(`{"time":"2026-01-01T00:00:00Z","who":%q,"verb":"y","result":"refused"}`, who)
			return audit.Stored{Key: "held/" + who, Value: record.Compress([]byte(line))}
		}
		s := &audittest.Store{Records: map[string]audit.Stored{"held/a": held("a"), "held/b": held("b")}}

		bubble(t, s)

		if all := read(t, s, audit.Filter{Verb: "y"}); len(all) != 2 || len(s.Keys("held/")) > 0 {
			t.Errorf("%+v, %v", all, s.Keys("held/"))
		}
	})
}

// TestFollow returns the entries after each number once.
func TestFollow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &audittest.Store{}
		l, other := open(s), open(s)
		fill(t, l, 5)

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
			t.Errorf("got %v", got)
		}

		fill(t, other, 2)
		<-woken

		if got, _ := follow(3); !slices.Equal(got, []uint64{4, 5, 6, 7}) {
			t.Errorf("got %v", got)
		}

		// More than one call returns.
		for range 3000 {
			must(t, l.Defer(audit.Entry{Time: noon, Verb: "x"}))
		}

		got, _ = follow(0)
		for i, seq := range got {
			if seq != uint64(i+1) {
				t.Fatalf("entry %d is number %d", i, seq)
			}
		}

		if len(got) != 3007 {
			t.Errorf("%d entries", len(got))
		}
	})
}

// TestExport verifies an export, and each way to change it.
func TestExport(t *testing.T) {
	t.Parallel()

	s := &audittest.Store{}
	l := open(s)
	fill(t, l, 6)
	must(t, l.Append(t.Context(), audit.Entry{Time: noon, Who: "<a&b>", Verb: "x", Error: "q\"uote"}))
	must(t, l.Sync(t.Context()))

	var export []string
	for _, e := range read(t, s, audit.Filter{}) {
		export = append(export, string(e.Export()))
	}

	check := func(lines ...string) audit.Report {
		t.Helper()
		r, err := audit.VerifyExport(t.Context(), strings.NewReader(strings.Join(lines, "\n")))
		must(t, err)
		return r
	}

	whole := check(export...)
	if r := verified(t, s); whole.LastHash != r.LastHash || whole.Entries != 7 || len(whole.Problems) > 0 {
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

	e, _, err := audit.ParseExport([]byte(export[1]))
	must(t, err)

	e.Who = "toor"
	_, e, err = audit.LineOf(e)
	must(t, err)

	if r := check(export[0], string(e.Export()), export[2]); len(r.Problems) != 1 {
		t.Errorf("computed anew: %+v", r)
	}
}

// TestTakeOver continues the chain of the files of an earlier version: with its damage, without an incomplete line, and
// with what waited for a shared entry.
func TestTakeOver(t *testing.T) {
	t.Parallel()

	former := filepath.Join(t.TempDir(), "audit")
	must(t, os.Mkdir(former, 0o700))

	var (
		prev  string
		lines [][]byte
	)

	for i := range 9 {
		line, e, err := audit.LineOf(
			audit.Entry{Seq: uint64(i + 4), Time: noon, Instance: "old", Verb: "x", Prev: prev},
		)
		must(t, err)

		lines, prev = append(lines, line), e.Hash()
	}

	write := func(name string, text ...[]byte) {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(former, name), bytes.Join(text, nil), 0o600))
	}
	write("00000000000000000004.log", lines[:5]...)
	write("00000000000000000009.log", append(lines[5:8:8], lines[8][:30])...)
	write("held.json", []byte(`[{"time":"2026-01-01T00:00:00Z","who":"eve","verb":"y","result":"refused","count":7}]`))

	s := &audittest.Store{}
	follower := open(s, func(o *audit.Options) { o.Former, o.Leads = former, func() bool { return false } })
	fill(t, follower, 1)

	if s.Records[audit.HeadKey].Revision != 0 {
		t.Error("an instance that does not lead takes over its files")
	}

	for range 2 {
		fill(t, open(s, func(o *audit.Options) { o.Former = former }), 1)
	}

	if r := verified(t, s); r.First != 4 || r.Entries != 12 || len(r.Problems) > 0 {
		t.Errorf("%+v", r)
	}

	if e := read(t, s, audit.Filter{Verb: "y"}); len(e) != 1 || e[0].Count != 7 || e[0].Seq < 12 {
		t.Errorf("%+v", e)
	}

	if _, err := os.Stat(former + ".former"); err != nil {
		t.Error(err)
	}
}
