// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// TestRows shows the progress of a job in rows, from a stream of events.
func TestRows(t *testing.T) {
	tr := newTracker(api.Job{
		ID:     "7",
		Verb:   inventory.VerbUpdate,
		Status: api.Running,
		Phase:  "configure",
		Nodes:  []string{"a-1", "longer-2"},
	})
	for _, e := range []api.Event{
		{Event: "playbook"},
		{Event: "play", Play: "p"},
		{Event: "task", Task: "one"},
		{Event: "ok", Host: "a-1", Task: "one", Item: "x"},
		{Event: "ok", Host: "a-1", Task: "one", Changed: true},
		{Event: "failed", Host: "longer-2", Task: "one", Ignored: true, Message: "never mind"},
		{Event: "task", Task: "two", Role: "r"},
		{Event: "unreachable", Host: "a-1", Task: "two", Role: "r", Message: "no route"},
		{Event: "skipped", Host: "longer-2", Task: "two", Role: "r"},
		{Event: "unreachable", Host: "helper-3", Task: "two", Role: "r", Ignored: true, Message: "gone"},
		{Event: "task", Task: "three"},
		{Event: "ok", Host: "helper-3", Task: "three"},
		{Event: "unknown", Host: "a-1"},
		{Event: "stats"},
	} {
		tr.add(e)
	}

	r := &rows{tracker: tr}

	var got []string
	for i := range 4 {
		got = append(got, strings.TrimRight(r.row(i, 3, 80), " "))
	}

	want := []string{
		"/ job 7 is running: configure  [##########----------] 1/2 hosts",
		"  a-1       ok 1   changed 1   unreachable: no route",
		"  longer-2  ok 1   changed 0   three",
		"  helper-3  ok 2   changed 0   three",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	for width := range 100 {
		for i := range 4 {
			if row := r.row(i, 3, width); len([]rune(row)) > width {
				t.Errorf("row %d is wider than %d: %q", i, width, row)
			}
		}
	}

	// More hosts than rows: failed hosts come first, and the last row counts the rest.
	if row := r.row(1, 2, 80); !strings.Contains(row, "unreachable") {
		t.Errorf("the first row of hosts is %q", row)
	}

	if row := r.row(2, 2, 80); row != "  and 2 more hosts" {
		t.Errorf("the last row of hosts is %q", row)
	}

	// A new run clears the failures of the previous one.
	tr.add(api.Event{Event: "playbook"})

	if row := r.row(1, 3, 80); strings.Contains(row, "unreachable") {
		t.Errorf("the first row of hosts is %q", row)
	}
}

// TestIgnoredFailure shows a failure that the playbook ignores as such.
func TestIgnoredFailure(t *testing.T) {
	for _, kind := range []string{"failed", "unreachable"} {
		e := api.Event{Event: kind, Host: "a-1", Task: "two", Ignored: true}
		if line := eventLine(e, 3, false); line != "a-1  ignored  two" {
			t.Errorf("eventLine(%s) = %q", kind, line)
		}
	}
}
