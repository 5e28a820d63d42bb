// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func member(name, serial, place string, alive bool) Member {
	return Member{
		Name: name, Addr: place, Alive: alive,
		Tags: Identity{Label: "n", Serial: serial, Addr: "10.0.0.1"}.Tags(),
	}
}

func tagged(m Member, tag, value string) Member {
	m.Tags = map[string]string{
		TagLabel:  m.Tags[TagLabel],
		TagSerial: m.Tags[TagSerial],
		TagAddr:   m.Tags[TagAddr],
		tag:       value,
	}

	return m
}

// deliver makes a report and acknowledges it.
func deliver(t *tracker, full bool) []Sighting {
	d := t.report(full)
	t.acknowledged(d)
	return d.report.Sightings
}

// TestTrackerGrid walks every sequence of up to six events of one node and its
// reports, and compares the state of the sink with the state of the node.
func TestTrackerGrid(t *testing.T) {
	const depth = 6
	ops := []string{"up", "up elsewhere", "down", "reap", "report", "full report", "acknowledged", "abandoned"}
	var path []string
	type state struct {
		known, alive bool
		addr         string
	}
	count := 0

	// Sequences are replayed from the start: a tracker cannot be copied.
	run := func(seq []string) {
		count++
		tr := newTracker(nil)
		var truth, sink state
		rose := false         // it became alive since the last acknowledged report
		roseInFlight := false // the same, at the time of the report in flight
		var inFlight *delivery

		report := func(full bool) {
			d := tr.report(full)
			inFlight = &d
			roseInFlight, rose = rose, false

			want := 0
			if full && (truth.known || sink.alive) ||
				!full && (truth.known || sink.alive) && (truth != sink || truth.alive && roseInFlight) {
				want = 1
			}

			if !truth.alive && !sink.alive {
				want = len(d.report.Sightings) // another report of its absence does no harm
			}

			if len(d.report.Sightings) != want {
				t.Fatalf("%s: %d sightings, want %d", strings.Join(seq, ", "), len(d.report.Sightings), want)
			}

			if want == 0 {
				return
			}

			s := d.report.Sightings[0]
			if s.Alive != truth.alive || truth.alive && s.Addr != truth.addr {
				t.Fatalf("%s: sighting %+v, want %+v", strings.Join(seq, ", "), s, truth)
			}
			if joined := truth.alive && (!sink.alive || roseInFlight); s.Joined != joined {
				t.Fatalf("%s: Joined is %v", strings.Join(seq, ", "), s.Joined)
			}
		}
		for _, op := range seq {
			switch op {
			case "up", "up elsewhere":
				m := member("m", "1", "p:1", true)

				addr := "10.0.0.1"
				if op != "up" {
					addr = "10.0.0.2"
					m = tagged(m, TagAddr, addr)
				}

				tr.put(m)

				if !truth.alive {
					rose = true
				}

				truth = state{true, true, addr}
			case "down":
				tr.put(tagged(member("m", "1", "p:1", false), TagAddr, addrOr(truth.addr)))
				truth = state{true, false, addrOr(truth.addr)}
			case "reap":
				tr.remove("m")
				truth = state{addr: truth.addr}
			case "report", "full report":
				report(op == "full report")
			case "acknowledged":
				for _, e := range inFlight.entries {
					sink = state{true, e.sighting.Alive, e.sighting.Addr}
				}

				tr.acknowledged(*inFlight)
				inFlight = nil
			case "abandoned":
				tr.abandoned(*inFlight)
				inFlight = nil
				rose = rose || roseInFlight
			}
		}

		if inFlight != nil {
			tr.abandoned(*inFlight)
			rose = rose || roseInFlight
		}

		report(false)
		tr.acknowledged(*inFlight)

		if n := tr.pending(); n != 0 {
			t.Fatalf("%s: %d nodes are pending after everything was acknowledged", strings.Join(seq, ", "), n)
		}

		if len(tr.members) == 0 && (len(tr.nodes) != 0 || tr.gone != 0) {
			t.Fatalf("%s: %d nodes without members remain", strings.Join(seq, ", "), len(tr.nodes))
		}
	}
	var walk func(inFlight bool)
	walk = func(inFlight bool) {
		run(path)

		if len(path) == depth {
			return
		}

		for _, op := range ops {
			next := inFlight
			switch op {
			case "report", "full report":
				if inFlight {
					continue
				}

				next = true
			case "acknowledged", "abandoned":
				if !inFlight {
					continue
				}

				next = false
			}

			path = append(path, op)
			walk(next)
			path = path[:len(path)-1]
		}
	}
	walk(false)
	t.Logf("%d sequences", count)
}

func addrOr(a string) string {
	if a == "" {
		return "10.0.0.1"
	}
	return a
}

func TestTrackerDuplicates(t *testing.T) {
	tr := newTracker(nil)
	expect := func(what string, want ...string) {
		t.Helper()

		var got []string
		for _, s := range deliver(tr, false) {
			g := s.Name()
			if s.Alive {
				g += " at " + s.Addr
			} else {
				g += " gone"
			}

			if s.Joined {
				g += " joined"
			}

			if s.Duplicate {
				g += " duplicate " + strings.Join(s.Others, ",")
			}

			got = append(got, g)
		}

		if !slices.Equal(got, want) {
			t.Fatalf("%s: %q, want %q", what, got, want)
		}
	}
	a := member("n-1-a", "1", "10.0.0.1:7946", true)
	b := tagged(member("n-1-b", "1", "10.0.0.9:7946", true), TagAddr, "10.0.0.9")
	tr.put(b)
	expect("the first", "n-1 at 10.0.0.9 joined")
	tr.put(a)
	expect("a second, with a smaller name", "n-1 at 10.0.0.9 duplicate 10.0.0.1,10.0.0.9")
	tr.put(b)
	expect("no change")
	b.Alive = false
	tr.put(b)
	expect("the first is gone", "n-1 at 10.0.0.1")
	b.Alive = true
	tr.put(b)
	expect("it is back", "n-1 at 10.0.0.1 duplicate 10.0.0.1,10.0.0.9")
	tr.remove("n-1-a")
	expect("the other is reaped", "n-1 at 10.0.0.9")
	a.Tags = b.Tags
	tr.put(a)
	expect("a clone with everything equal", "n-1 at 10.0.0.9 duplicate 10.0.0.1:7946,10.0.0.9:7946")
	a.Addr = b.Addr
	tr.put(a)
	expect("one host under a new name", "n-1 at 10.0.0.9")
	b.Rivals = []string{"10.0.0.5:7946"}
	tr.put(b)
	expect("a rival for its name", "n-1 at 10.0.0.9 duplicate 10.0.0.5:7946,10.0.0.9")
	b.Rivals = nil
	tr.put(b)
	expect("the rival is gone", "n-1 at 10.0.0.9")

	// Different labels and serials may compose one name.
	tr.put(Member{Name: "x", Addr: "p:1", Alive: true, Tags: Identity{"a-b", "c", "10.1.0.1"}.Tags()})
	tr.put(Member{Name: "y", Addr: "p:2", Alive: true, Tags: Identity{"a", "b-c", "10.1.0.2"}.Tags()})
	expect("one name, two splits", "a-b-c at 10.1.0.1 joined duplicate 10.1.0.1,10.1.0.2")

	// A member becomes another node.
	tr.put(tagged(tagged(a, TagSerial, "2"), TagAddr, "10.0.0.2"))
	tr.remove("n-1-b")
	expect("another node", "n-1 gone", "n-2 at 10.0.0.2 joined")
	tr.put(tagged(tagged(a, TagSerial, "-"), TagAddr, "10.0.0.2"))
	expect("no node", "n-2 gone")
}

func TestTrackerStrangers(t *testing.T) {
	tr := newTracker(nil)
	m := Member{Name: "m", Addr: "p:1", Alive: true}
	step := func(want string) {
		t.Helper()

		got := ""
		if s := tr.put(m); s != nil {
			got = s.err.Error()
		}
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Fatalf("%q, want %q", got, want)
		}
	}
	step("none of the tags")
	step("")
	m.Tags = map[string]string{TagLabel: "-"}
	step("NodeSerial is missing")
	m.Alive = false
	step("")
	m.Tags = Identity{"n", "1", "10.0.0.1"}.Tags()
	step("")
	m.Tags = nil
	step("none of the tags")
	tr.remove("m")
	step("none of the tags")

	if got := deliver(tr, true); len(got) != 0 {
		t.Fatalf("a stranger is reported as a node: %+v", got)
	}
}

func TestTrackerList(t *testing.T) {
	a, b, c := member("a", "a", "p:1", true), member("b", "b", "p:2", true), member("c", "c", "p:3", true)
	down := func(m Member) Member { m.Alive = false; return m }

	names := func(tr *tracker) string {
		var all []string
		for _, s := range deliver(tr, true) {
			if s.Alive {
				all = append(all, s.Serial)
			}
		}

		return strings.Join(all, "")
	}
	for _, tc := range []struct {
		name  string
		have  []Member
		while func(*tracker) // called between the request of the list and its arrival
		list  []Member
		want  string
	}{
		{"missed events", []Member{a, b}, nil, []Member{down(a), c}, "c"},
		{"nothing", []Member{a, b}, nil, nil, ""},
		{"down meanwhile", []Member{a}, func(tr *tracker) { tr.put(down(a)) }, []Member{a}, ""},
		{"up meanwhile", []Member{down(a)}, func(tr *tracker) { tr.put(a) }, []Member{down(a)}, "a"},
		{"new meanwhile", nil, func(tr *tracker) { tr.put(a) }, nil, "a"},
		{"reaped meanwhile", []Member{a}, func(tr *tracker) { tr.remove("a") }, []Member{a, b}, "b"},
		{"reaped, then new", []Member{a}, func(tr *tracker) { tr.remove("a"); tr.put(a) }, []Member{down(a)}, "a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tr := newTracker(nil)
			for _, m := range tc.have {
				tr.put(m)
			}

			deliver(tr, false)

			began := tr.beginList()
			if tc.while != nil {
				tc.while(tr)
			}
			tr.endList(began, tc.list)

			if got := names(tr); got != tc.want {
				t.Fatalf("alive: %q, want %q", got, tc.want)
			}

			if len(tr.removed) != 0 || tr.listing {
				t.Fatal("the tracker still waits for the list")
			}
		})
	}
}

func TestTrackerRestart(t *testing.T) {
	tr := newTracker([]string{"n-1", "n-2", "n-3"})
	tr.put(member("a", "1", "p:1", true))  // still alive
	tr.put(member("b", "2", "p:2", false)) // failed since
	tr.put(member("d", "4", "p:4", true))  // new

	if got := fmt.Sprint(tr.alive()); got != "[n-1 n-3]" {
		t.Fatalf("alive before the first report: %s", got)
	}

	joined := map[string]bool{}
	for _, s := range deliver(tr, true) {
		joined[s.Name()] = s.Joined
	}

	if fmt.Sprint(joined) != "map[n-1:false n-2:false n-4:true]" {
		t.Fatalf("%v", joined)
	}

	tr.put(member("b", "2", "p:2", true))
	tr.put(member("c", "3", "p:3", true))

	for _, s := range deliver(tr, false) {
		if !s.Joined {
			t.Fatalf("%s came back without Joined", s.Name())
		}
	}

	if got := fmt.Sprint(tr.alive()); got != "[n-1 n-2 n-3 n-4]" {
		t.Fatalf("alive: %s", got)
	}
}

func TestTrackerIsBounded(t *testing.T) {
	tr := newTracker(nil)
	for i := range 3 * maxGone {
		tr.put(member(fmt.Sprint(i), fmt.Sprint(i), "p:1", true))
	}

	deliver(tr, true)

	for i := range 3 * maxGone {
		tr.remove(fmt.Sprint(i)) // without a report
	}

	if len(tr.nodes) > maxGone+1 {
		t.Fatalf("%d nodes are left, want at most maxGone", len(tr.nodes))
	}

	if !tr.overflow {
		t.Fatal("no full report is due after nodes were dropped")
	}

	deliver(tr, true)

	if len(tr.nodes) != 0 || tr.gone != 0 || tr.overflow {
		t.Fatalf("%d nodes, gone %d", len(tr.nodes), tr.gone)
	}
}
