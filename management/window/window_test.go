// SPDX-License-Identifier: Apache-2.0

package window

import (
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/job/jobtest"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

const hour = time.Hour

// nightly is a window from 02:30 on, for an hour, in Berlin.
var nightly = Spec{
	Name: "nightly", Cron: "30 2 * * *", Duration: hour, TimeZone: "Europe/Berlin",
	Groups: []string{inventory.GroupWorker},
}

// with returns the window after a change.
func with(change func(*Spec)) Spec {
	s := nightly
	change(&s)
	return s
}

// calendar returns the calendar of windows that are right.
func calendar(t *testing.T, specs ...Spec) Calendar {
	t.Helper()

	errtest.None(t, Check(specs, inventory.DefaultGroups()))

	c, err := New(specs, inventory.DefaultGroups())
	errtest.None(t, err)
	return c
}

// at parses a time.
func at(t *testing.T, text string) time.Time {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339, text)
	errtest.None(t, err)
	return parsed
}

func TestCheckRefuses(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name  string
		specs []Spec
		want  string
	}{
		{"no name", []Spec{with(func(s *Spec) { s.Name = "" })}, "window 1: the name is empty; give one"},
		{"the same name", []Spec{nightly, nightly}, "window 2: the name nightly is taken"},
		{"no expression", []Spec{with(func(s *Spec) { s.Cron = "" })}, "window 1, nightly: cron: \"\" is not a cron"},
		{"seconds", []Spec{with(func(s *Spec) { s.Cron = "0 0 2 * * *" })}, "write five fields"},
		{"a word", []Spec{with(func(s *Spec) { s.Cron = "@every 1h" })}, "write five fields"},
		{"a zone in the expression", []Spec{with(func(s *Spec) { s.Cron = "TZ=UTC" })}, "write five fields"},
		{
			"32 days", []Spec{nightly, with(func(s *Spec) { s.Name, s.Cron = "b", "0 2 32 * *" })},
			`window 2, b: cron: "0 2 32 * *": field 3, the day of the month, is "32"`,
		},
		{"the 61st minute", []Spec{with(func(s *Spec) { s.Cron = "61 * * * *" })}, "field 1, the minute"},
		{"a step of zero", []Spec{with(func(s *Spec) { s.Cron = "*/0 * * * *" })}, "field 1, the minute"},
		{"30 February", []Spec{with(func(s *Spec) { s.Cron = "0 2 30 2 *" })}, `"0 2 30 2 *" never comes`},
		{"31 June", []Spec{with(func(s *Spec) { s.Cron = "0 2 31 6 *" })}, "never comes"},
		{"no duration", []Spec{with(func(s *Spec) { s.Duration = 0 })}, "duration: 0s is not longer than zero"},
		{"a negative duration", []Spec{with(func(s *Spec) { s.Duration = -hour })}, "is not longer than zero"},
		{"seconds of duration", []Spec{with(func(s *Spec) { s.Duration = time.Second })}, "whole minutes"},
		{
			"a long duration", []Spec{with(func(s *Spec) { s.Cron, s.Duration = "0 0 1 1 *", 60*24*hour })},
			"longer than",
		},
		{
			"longer than the interval", []Spec{with(func(s *Spec) { s.Duration = 25 * hour })},
			"duration: 25h is longer than 24h, the shortest time between two openings",
		},
		{
			"longer than the shortest interval",
			[]Spec{with(func(s *Spec) { s.Cron, s.Duration = "0 0 1,15 * *", 15*24*hour })},
			"longer than 336h",
		},
		{
			"an unknown zone", []Spec{with(func(s *Spec) { s.TimeZone = "Europe/Atlantis" })},
			`time_zone: "Europe/Atlantis"`,
		},
		{"the zone of the host", []Spec{with(func(s *Spec) { s.TimeZone = "Local" })}, `time_zone: "Local"`},
		{"a zone as a path", []Spec{with(func(s *Spec) { s.TimeZone = "../UTC" })}, "time_zone"},
		{"no nodes", []Spec{with(func(s *Spec) { s.Groups = nil })}, "either groups or a selector"},
		{"both", []Spec{with(func(s *Spec) { s.Selector = "rack=r1" })}, "either groups or a selector"},
		{"an unknown group", []Spec{with(func(s *Spec) { s.Groups = []string{"x"} })}, "groups: "},
		{
			"a bad selector", []Spec{with(func(s *Spec) { s.Groups, s.Selector = nil, "rack in (" })},
			"selector: the selector",
		},
		{"outdated", []Spec{with(func(s *Spec) { s.Groups, s.Selector = nil, "outdated=true" })}, "selector: outdated"},
		{"too many", make([]Spec, Max+1), "there are 65 windows; 64 fit"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			err := Check(tt.specs, inventory.DefaultGroups())
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// TestCheckAccepts has windows that are at the edge of a refusal.
func TestCheckAccepts(t *testing.T) {
	t.Parallel()

	for _, change := range []func(*Spec){
		func(s *Spec) { s.Cron = "0 2 29 2 *" },                      // a leap day
		func(s *Spec) { s.Duration = 24 * hour },                     // it is always open
		func(s *Spec) { s.Cron, s.TimeZone = "0 2 * * MON-FRI", "" }, // names, and UTC
		func(s *Spec) { s.Cron, s.Duration = "0 0 13 * 5", 24*hour },
		func(s *Spec) { s.Groups, s.Selector = nil, "rack in (r1,r2),!old" },
	} {
		calendar(t, with(change))
	}
}

// TestDaylightSaving opens a window exactly once in each night, and for its duration.
func TestDaylightSaving(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name         string
		cron         string
		from         string
		opens, close string
		then         string
	}{
		{
			"an ordinary night", "30 2 * * *", "2026-03-27T12:00:00Z",
			"2026-03-28T01:30:00Z", "2026-03-28T02:30:00Z", "2026-03-29T01:00:00Z",
		},
		{
			// At 02:00 the clocks show 03:00: the window opens at that moment.
			"the hour that is left out", "30 2 * * *", "2026-03-28T12:00:00Z",
			"2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z", "2026-03-30T00:30:00Z",
		},
		{
			// At 03:00 the clocks show 02:00: the window opens the first time only.
			"the hour that comes twice", "30 2 * * *", "2026-10-24T12:00:00Z",
			"2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z",
		},
		{
			"every ten minutes of the hour that is left out", "*/10 2 * * *", "2026-03-28T12:00:00Z",
			"2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z", "2026-03-30T00:00:00Z",
		},
		{
			"before the change", "30 1 * * *", "2026-10-24T12:00:00Z",
			"2026-10-24T23:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T00:30:00Z",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			c, err := New([]Spec{with(func(s *Spec) { s.Cron = tt.cron })}, inventory.DefaultGroups())
			errtest.None(t, err)
			w := c.Windows()[0]

			opens := w.Next(at(t, tt.from))
			if !opens.Equal(at(t, tt.opens)) {
				t.Fatalf("opens at %s, want %s", opens.UTC(), tt.opens)
			}
			if then := w.Next(opens.Add(time.Minute)); !then.Equal(at(t, tt.then)) && !strings.HasPrefix(tt.cron, "*") {
				t.Errorf("opens again at %s, want %s", then.UTC(), tt.then)
			}

			closes := at(t, tt.close)
			if !w.Open(opens.Add(-time.Second)).IsZero() || w.Open(opens).IsZero() {
				t.Error("it does not open when it should")
			}
			if got := w.Open(opens); !strings.HasPrefix(tt.cron, "*") && !got.Equal(closes) {
				t.Errorf("closes at %s, want %s", got.UTC(), tt.close)
			}

			if !strings.HasPrefix(tt.cron, "*") && !w.Open(closes).IsZero() {
				t.Error("it does not close when it should")
			}
		})
	}
}

// TestOpenings walks two years minute by minute in several zones: the window is open for
// its duration after each opening, and opens once a day.
func TestOpenings(t *testing.T) {
	t.Parallel()

	for _, zone := range []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"} {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()

			c := calendar(t, with(func(s *Spec) { s.TimeZone = zone }))
			w := c.Windows()[0]
			from := at(t, "2026-01-01T00:00:00Z")

			count := 0
			for opening := w.Next(from); opening.Before(from.AddDate(1, 0, 0)); opening = w.Next(opening) {
				count++

				if closes := w.Open(opening); !closes.Equal(opening.Add(hour)) {
					t.Fatalf("opened at %s, closes at %s", opening, closes)
				}

				if !w.Open(opening.Add(-time.Minute)).IsZero() || !w.Open(opening.Add(hour)).IsZero() {
					t.Fatalf("open around %s", opening)
				}
			}

			if count != 365 {
				t.Errorf("%d openings in a year", count)
			}
		})
	}
}

// A window that begins when it ends is always open.
func TestAlwaysOpen(t *testing.T) {
	t.Parallel()

	c := calendar(t, with(func(s *Spec) { s.TimeZone, s.Duration = "", 24*hour }))
	now := at(t, "2026-03-01T12:00:00Z")

	if closes := c.Windows()[0].Open(now); closes.Before(now.AddDate(1, 0, 0)) {
		t.Errorf("it closes at %s", closes)
	}
}

// TestFollowingStayOpen: openings that follow each other on the clocks are open all the time, in every minute of a
// year, also in the hour that comes twice.
func TestFollowingStayOpen(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		cron     string
		duration time.Duration
		zone     string
	}{
		{"0 * * * *", hour, "Europe/Berlin"},
		{"*/10 * * * *", 10 * time.Minute, "America/New_York"},
		{"0 2 * * *", 24 * hour, "Europe/Berlin"},
		{"30 1,13 * * *", 12 * hour, "Australia/Lord_Howe"},
	} {
		w := calendar(t, with(func(s *Spec) {
			s.Cron, s.Duration, s.TimeZone = tt.cron, tt.duration, tt.zone
		})).Windows()[0]

		from := at(t, "2026-02-03T00:00:00Z")
		for now := from; now.Before(from.AddDate(1, 0, 0)); now = now.Add(10 * time.Minute) {
			if closes := w.Open(now); !closes.After(now) {
				t.Errorf("%s for %s in %s is closed at %s", tt.cron, tt.duration, tt.zone, w.Format(now))
				break
			}
		}
	}
}

// TestFollowsOnce: a window before the hour that comes twice, with a pause after it on the clocks, keeps its duration.
func TestFollowsOnce(t *testing.T) {
	t.Parallel()

	w := calendar(t, with(func(s *Spec) { s.Cron, s.Duration = "*/10 2 * * *", 10*time.Minute })).Windows()[0]

	if closes := w.Open(at(t, "2026-10-25T00:05:00Z")); !closes.Equal(at(t, "2026-10-25T01:00:00Z")) {
		t.Errorf("it closes at %s", closes.UTC())
	}

	if closes := w.Open(at(t, "2026-10-25T01:05:00Z")); !closes.IsZero() {
		t.Errorf("it is open again, until %s", closes.UTC())
	}
}

// TestTimesOfMinute compares the search by days with the parser's own by minutes, both ways.
func TestTimesOfMinute(t *testing.T) {
	t.Parallel()

	for _, text := range []string{
		"30 2 * * *", "*/7 3-5 * * *", "0 0 13 * 5", "0 0 13 * *", "59 23 31 12 *", "15 4 */2 * MON-FRI", "* * * * *",
		"0 12 29 2 *", "5 1 1-7 * *",
	} {
		ours, err := parseCron(text)
		errtest.None(t, err)

		theirs, _ := cronParser.Parse(text)

		for now := at(t, "2026-01-01T00:00:30Z"); now.Year() < 2030; now = now.Add(17 * hour) {
			next := theirs.Next(now)
			if got := ours.next(now); !got.Equal(next) {
				t.Fatalf("%s: after %s comes %s, want %s", text, now, got, next)
			}
			if got := ours.last(now); !got.IsZero() && (got.After(now) || !theirs.Next(got).Equal(next)) {
				t.Fatalf("%s: the last one at %s is %s", text, now, got)
			}

			if got := ours.last(next.Add(time.Second)); !got.Equal(next) {
				t.Fatalf("%s: the last one at %s is %s", text, next, got)
			}
		}
	}
}

// TestOpenIsQuick: a question costs microseconds, whether the answer is known already or not. Walking the openings took
// milliseconds, and the queue asks for each job.
func TestOpenIsQuick(t *testing.T) {
	t.Parallel()

	const questions = 20

	for _, spec := range []Spec{
		with(func(s *Spec) { s.Cron, s.Duration = "0 * * * *", hour }),
		with(func(s *Spec) { s.Cron, s.Duration = "*/10 * * * *", 10*time.Minute }),
		with(func(s *Spec) {}),
	} {
		best := hour

		// The quickest round is the one that no other process disturbed.
		for round := range 20 {
			w := calendar(t, spec).Windows()[0]
			now := at(t, "2026-03-02T01:45:00Z").Add(time.Duration(round) * time.Minute)
			began := time.Now()

			for range questions {
				w.Open(now)
				now = now.Add(time.Minute)
			}

			best = min(best, time.Since(began)/questions)
		}

		if best > 200*time.Microsecond {
			t.Errorf("%s for %s: a question takes %s", spec.Cron, spec.Duration, best)
		}
	}
}

// BenchmarkOpen is the question that the queue asks for each job.
func BenchmarkOpen(b *testing.B) {
	for _, cron := range []string{"30 2 * * *", "0 * * * *", "0 2 * * 6"} {
		b.Run(cron, func(b *testing.B) {
			c, err := New([]Spec{with(func(s *Spec) { s.Cron = cron })}, inventory.DefaultGroups())
			errtest.None(b, err)

			now := time.Date(2026, time.March, 2, 1, 45, 0, 0, time.UTC)
			for b.Loop() {
				c.Windows()[0].Open(now)
			}
		})
	}
}

// testView returns a view with a worker in rack r1, a master and a node without a group.
func testView() *state.View {
	return &state.View{Snapshot: jobtest.With([]*inventory.Node{
		{Name: "free-1", Status: inventory.Unallocated},
		{Name: "master-1", Group: inventory.GroupMaster, Status: inventory.Allocated},
		{
			Name: "worker-1", Group: inventory.GroupWorker, Status: inventory.Allocated,
			Labels: map[string]string{"rack": "r1"},
		},
	}...)}
}

// testJob returns a job on nodes of the view.
func testJob(v *state.View, verb inventory.Verb, names ...string) job.Job {
	j := job.Job{ID: "1", Verb: verb, Status: job.Queued}

	for _, name := range names {
		n, _ := v.Lookup(name)
		j.Targets = append(j.Targets, job.Target{Name: name, FromGroup: n.Group, Group: n.Group})
	}

	return j
}

func TestJudge(t *testing.T) {
	t.Parallel()

	utc := func(s *Spec) { s.TimeZone = "" }
	c := calendar(t, with(utc), Spec{
		Name: "weekend", Cron: "0 0 * * 6", Duration: 48 * hour, Selector: "rack=r1",
	}, Spec{Name: "masters", Cron: "0 3 * * *", Duration: hour, Groups: []string{inventory.GroupMaster}})

	// It is Sunday, 1 March 2026.
	const open, closed = "2026-03-02T02:45:00Z", "2026-03-02T12:00:00Z"

	v := testView()
	worker := testJob(v, inventory.VerbApply, "worker-1")

	check := worker
	check.Check = true

	override := worker
	override.OverrideWindow = true

	entering := testJob(v, inventory.VerbCommission, "free-1")
	entering.Targets[0].Group = inventory.GroupWorker

	for _, tt := range []struct {
		name   string
		job    job.Job
		now    string
		until  string // empty: it may begin
		reason string
	}{
		{"within its window", worker, open, "", ""},
		{
			"outside", worker, closed, "2026-03-03T02:30:00Z",
			"worker-1 is outside of the maintenance window nightly and weekend, which opens on Tue 2026-03-03 02:30",
		},
		{"within another window", worker, "2026-03-01T12:00:00Z", "", ""},
		{"a verification", testJob(v, inventory.VerbVerify, "worker-1"), closed, "", ""},
		{"a check", check, closed, "", ""},
		{"an override", override, closed, "", ""},
		{"a node without a window", testJob(v, inventory.VerbApply, "free-1"), closed, "", ""},
		{"a node that joins a group", entering, closed, "2026-03-03T02:30:00Z", "free-1 is outside of"},
		{
			"nodes of two windows", testJob(v, inventory.VerbApply, "worker-1", "master-1"), closed,
			"2026-03-03T03:00:00Z", "all of its nodes may change together on Tue 2026-03-03 03:00 UTC",
		},
		{
			"one of two windows", testJob(v, inventory.VerbApply, "worker-1", "master-1"), open,
			"2026-03-02T03:00:00Z", "master-1 is outside of the maintenance window masters",
		},
		{
			"nodes of two windows that are open", testJob(v, inventory.VerbApply, "worker-1", "master-1"),
			"2026-03-02T03:15:00Z", "", "",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			got := c.Judge(v, tt.job, at(t, tt.now))
			if got.OK != (tt.until == "") || !strings.Contains(got.Reason, tt.reason) {
				t.Errorf("%+v", got)
			}
			if !got.OK && !got.Until.Equal(at(t, tt.until)) {
				t.Errorf("until %s, want %s", got.Until.UTC(), tt.until)
			}

			if hold := c.Hold(v, at(t, tt.now)); hold(tt.job) != got.Reason {
				t.Errorf("the hold gives %q", hold(tt.job))
			}

			if err := c.CheckJob(v, tt.job, at(t, tt.now)); err != nil {
				t.Errorf("it is refused: %v", err)
			}
		})
	}
}

// TestNoWindowInCommon refuses a job that would wait for ever.
func TestNoWindowInCommon(t *testing.T) {
	t.Parallel()

	c := calendar(t, with(func(s *Spec) {}), Spec{
		Name: "masters", Cron: "0 12 * * *", Duration: hour, Groups: []string{inventory.GroupMaster},
	})
	v, now := testView(), at(t, "2026-03-02T12:00:00Z")

	err := c.CheckJob(v, testJob(v, inventory.VerbApply, "worker-1", "master-1"), now)
	if inventory.KindOf(err) != inventory.KindRefused ||
		!strings.Contains(err.Error(), "worker-1 and master-1 have no") {
		t.Errorf("got %v", err)
	}

	if err := c.CheckJob(v, testJob(v, inventory.VerbVerify, "worker-1", "master-1"), now); err != nil {
		t.Errorf("a verification is refused: %v", err)
	}
}

func TestFrozen(t *testing.T) {
	t.Parallel()

	now := at(t, "2026-03-02T02:45:00Z")
	until := now.Add(hour)

	v := testView()
	v.View = record.WithOne(v.View, &FreezeKind, Freeze{On: true, Until: until, Actor: "ann", Reason: "an audit"})

	var c Calendar

	free, _ := v.Lookup("free-1")

	got := c.Allowed(v, &free, now)
	if got.OK || !got.Until.Equal(until) ||
		got.Reason != "ann froze all changes until Mon 2026-03-02 03:45 UTC: an audit" {
		t.Errorf("%+v", got)
	}

	// A host that is being prepared is no node yet.
	discover := job.Job{Verb: inventory.VerbDiscover, Targets: []job.Target{{Name: "192.0.2.1"}}}
	if got := c.Judge(v, discover, now); got.OK {
		t.Errorf("%+v", got)
	}

	if got := c.Judge(v, testJob(v, inventory.VerbVerify, "free-1"), now); !got.OK {
		t.Errorf("%+v", got)
	}

	if got := c.Allowed(v, &free, until); !got.OK {
		t.Errorf("after its end: %+v", got)
	}

	// A record that cannot be read may be a freeze.
	v.View = record.WithOne(v.View, &FreezeKind, Freeze{})
	v.Unreadable = map[string]string{"v/freeze": "damaged"}

	if got := c.Allowed(v, &free, now); got.OK {
		t.Errorf("%+v", got)
	}
}
