// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestPath walks the whole grid: each path is legal step by step, and no shorter one is.
func TestPath(t *testing.T) {
	t.Parallel()

	for _, from := range Statuses {
		for _, to := range Statuses {
			got, err := Path(from.Status, to.Status)
			shortest := steps(from.Status, to.Status)

			switch {
			case from.InProgress:
				if KindOf(err) != KindRefused {
					t.Errorf("%s to %s: a job holds the node, got %v, %v", from.Status, to.Status, got, err)
				}
			case shortest < 0:
				if KindOf(err) != KindRefused {
					t.Errorf("%s to %s: got %v, %v, want a refusal", from.Status, to.Status, got, err)
				}
			case err != nil || len(got) != shortest || walk(from.Status, got) != to.Status:
				t.Errorf("%s to %s: got %v, %v, want %d verbs", from.Status, to.Status, got, err, shortest)
			}
		}
	}
}

// walk carries verbs out, each with success. The status is empty if one is not legal.
func walk(s Status, verbs []Verb) Status {
	for _, v := range verbs {
		row, _ := TransitionOf(v)

		held, _, err := Node{Name: "a-1", Status: s, State: Discovered}.Hold(row, "", Trigger{})
		if err != nil {
			return ""
		}

		s = row.After(held.Before.Status)
	}

	return s
}

// steps returns the number of verbs between two statuses, by the growing set of the statuses that are reached, or -1.
func steps(from, to Status) int {
	reached := []Status{from}

	for n := 0; n <= len(Statuses); n++ {
		if slices.Contains(reached, to) {
			return n
		}

		for _, s := range slices.Clone(reached) {
			for _, row := range Lifecycle {
				next := row.After(s)
				if !row.Replaces && slices.Contains(row.From, s) && next != "" && !slices.Contains(reached, next) {
					reached = append(reached, next)
				}
			}
		}
	}

	return -1
}

func TestPathByExample(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		from, to Status
		want     string
	}{
		{Enrolled, Unallocated, "[manage provide]"},
		{Enrolled, Allocated, "[manage provide commission]"},
		{Unallocated, Manageable, "[manage]"},
		{Quarantined, Unallocated, "[clear]"},
		{Allocated, Unallocated, "[decommission manage provide]"},
		{Allocated, Allocated, "[]"},
	} {
		if got, err := Path(tt.from, tt.to); err != nil || fmt.Sprint(got) != tt.want {
			t.Errorf("%s to %s: got %v, %v, want %s", tt.from, tt.to, got, err, tt.want)
		}
	}

	if _, err := Path(Allocated, Enrolled); err == nil || !strings.Contains(err.Error(), "no verbs lead from") {
		t.Errorf("back to Enrolled: %v", err)
	}
}
