// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory/errtest"
)

// alertOf returns an alert with the effects.
func alertOf(t *testing.T, reason string, until time.Time, effects ...Effect) Alert {
	t.Helper()

	a, err := NewAlert(reason, "ann", effects, until, "ann", noon)
	errtest.None(t, err)

	return a
}

func TestNewAlert(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		reason, source string
		effects        []Effect
		until          time.Time
		kind           Kind
		want           string
	}{
		{"", "ann", nil, time.Time{}, KindInvalid, "needs a reason"},
		{"two\nlines", "ann", nil, time.Time{}, KindInvalid, "control characters"},
		{"x", "a\x1b[2J", nil, time.Time{}, KindInvalid, "control characters"},
		{strings.Repeat("x", 301), "ann", nil, time.Time{}, KindTooLarge, "301 bytes, the limit is 300"},
		{"x", strings.Repeat("x", 65), nil, time.Time{}, KindTooLarge, "65 bytes, the limit is 64"},
		{"x", "ann", []Effect{"blocks-everything"}, time.Time{}, KindInvalid, `"blocks-everything" is no effect`},
		{"x", "ann", nil, noon, KindInvalid, "which is over"},
	} {
		_, err := NewAlert(c.reason, c.source, c.effects, c.until, "bob", noon)
		if KindOf(err) != c.kind || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q of %q: %v, want %q", c.reason, c.source, err, c.want)
		}
	}

	a, err := NewAlert("x", "", []Effect{Silenced, BlocksPower, Silenced}, time.Time{}, "bob", noon)
	if err != nil || a.Source != "bob" || a.Until != nil || fmt.Sprint(a.Effects) != "[blocks-power silenced]" {
		t.Errorf("%+v, %v", a, err)
	}

	// The id names the source and the reason, and nothing else.
	ids := map[string]bool{a.ID: true}
	for _, b := range [][2]string{{"x", "ann"}, {"y", "bob"}} {
		other, err := NewAlert(b[0], b[1], nil, time.Time{}, "bob", noon)
		errtest.None(t, err)

		ids[other.ID] = true
	}

	later, err := NewAlert("x", "bob", nil, noon.Add(time.Hour), "carl", noon.Add(time.Minute))
	if err != nil || later.ID != a.ID || len(ids) != 3 {
		t.Errorf("%s, %s, %d ids, %v", a.ID, later.ID, len(ids), err)
	}
}

// TestAlertOnNode adds, repeats, changes and ends alerts, and counts the entries.
func TestAlertOnNode(t *testing.T) {
	t.Parallel()

	n := Node{Name: "a-1", Status: Allocated, State: Discovered}
	first := alertOf(t, "a disk fails", time.Time{}, BlocksCommission)

	m, entry, changed, err := n.Alert(first, Trigger{Actor: "ann", Time: noon})
	errtest.None(t, err)

	if !changed || len(m.Alerts) != 1 || len(n.Alerts) != 0 || m.Entries != 1 || entry.Verb != VerbAlert ||
		entry.From != Allocated || entry.To != Allocated || !strings.Contains(entry.Reason, "a disk fails") {
		t.Errorf("%+v, %+v, %t", m, entry, changed)
	}

	// A repetition, later and by somebody else.
	again := first
	again.Since, again.Actor = noon.Add(time.Hour), "bob"

	if same, _, changed, err := m.Alert(again, Trigger{Time: noon}); err != nil || changed || same.Entries != 1 {
		t.Errorf("a repetition: %+v, %t, %v", same, changed, err)
	}

	again.Effects = nil
	m, _, changed, err = m.Alert(again, Trigger{Time: noon})

	if err != nil || !changed || len(m.Alerts) != 1 || m.Alerts[0].Effects != nil || !m.Alerts[0].Since.Equal(noon) {
		t.Errorf("other effects: %+v, %t, %v", m.Alerts, changed, err)
	}

	for i := 1; i < MaxAlerts; i++ {
		m, _, _, err = m.Alert(alertOf(t, fmt.Sprint(i), noon.Add(time.Duration(i)*time.Hour)), Trigger{})
		errtest.None(t, err)
	}

	if _, _, _, err := m.Alert(alertOf(t, "one more", time.Time{}), Trigger{}); KindOf(err) != KindRefused {
		t.Errorf("one more than the limit: %v", err)
	}

	ids, next := m.EndedAlerts(noon.Add(2 * time.Hour))
	if len(ids) != 2 || !next.Equal(noon.Add(3*time.Hour)) {
		t.Errorf("ended are %v, the next at %s", ids, next)
	}

	before := len(m.Alerts)
	e, entry, changed := m.EndAlert(first.ID, Trigger{Reason: "replaced"})

	if !changed || len(e.Alerts) != before-1 || len(m.Alerts) != before ||
		!strings.HasSuffix(entry.Reason, ": replaced") {
		t.Errorf("%d of %d alerts, %+v", len(e.Alerts), before, entry)
	}

	if _, _, changed := e.EndAlert(first.ID, Trigger{}); changed {
		t.Error("it ended twice")
	}
}

// TestAlertRefuses: each verb is refused by the effect of its row and by no other, from every status.
func TestAlertRefuses(t *testing.T) {
	t.Parallel()

	refused := map[string]bool{}

	for _, row := range Lifecycle {
		for _, effect := range Effects {
			for _, s := range Statuses {
				n := Node{Name: "a-1", Status: s.Status, State: Discovered}
				if s.InProgress || !row.Takes(n) {
					continue
				}

				if err := row.Check(n); err != nil {
					t.Errorf("%s of %s: %v", row.Verb, s.Status, err)
				}

				n.Alerts = []Alert{alertOf(t, "why", time.Time{}, effect.Effect)}

				err := row.Check(n)
				if err == nil {
					continue
				}

				refused[fmt.Sprintf("%s %s", row.Verb, effect.Effect)] = true

				if KindOf(err) != KindRefused ||
					!strings.Contains(err.Error(), "why (alert "+n.Alerts[0].ID+" of ann)") {
					t.Errorf("%s of %s: %v", row.Verb, s.Status, err)
				}
			}
		}
	}

	if len(refused) != 3 || !refused["provide blocks-provide"] || !refused["commission blocks-commission"] ||
		!refused["power blocks-power"] {
		t.Errorf("refused are %v", refused)
	}
}

// TestExcludedFromBudget: an excluded node is none of its group, whatever is wrong with it.
func TestExcludedFromBudget(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		excluded string // "": none
		state    State  // of c
		budget   Budget
		take     string
		allowed  bool
	}{
		{"", Disappeared, Budget{MaxUnavailable: "1"}, "a", false},
		{"c", Disappeared, Budget{MaxUnavailable: "1"}, "a", true},
		{"", Discovered, Budget{MinAvailable: 2}, "a", true},
		{"c", Discovered, Budget{MinAvailable: 2}, "a", false},
		{"c", Discovered, Budget{MaxUnavailable: "1"}, "a c", true},
		{"", Discovered, Budget{MaxUnavailable: "1"}, "a c", false},
		{"", Discovered, Budget{MaxUnavailable: "67%"}, "a b", true},
		{"c", Discovered, Budget{MaxUnavailable: "67%"}, "a b", false},
	} {
		all := parseNodes(t, "a m Allocated Discovered", "b m Allocated Discovered", "c m Allocated "+string(c.state))
		for _, n := range all {
			if n.Name == c.excluded {
				n.Alerts = []Alert{alertOf(t, "why", time.Time{}, Excluded)}
			}
		}

		err := Groups{{Name: GroupMaster, Budget: c.budget}}.CheckBudgets(all, strings.Fields(c.take))
		if (err == nil) != c.allowed {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
