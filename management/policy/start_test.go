// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/policy"
)

// TestReplaceAfterStart: what is stored from before a start replaces no node. It has to be lost
// for the whole time since, the observers report in full and settle, and then ssh is asked anew.
func TestReplaceAfterStart(t *testing.T) {
	t.Parallel()

	m := []*inventory.Node{master("m-0", "a"), master("m-1", "b"), master("m-2", "c")}
	site := siteRule()
	site.Roles[0].ReplaceAfter = 10 * time.Minute

	w := siteWorld(site, append(slices.Clone(m), inRack("n-0", "a", noon.Add(-time.Hour)))...)
	rule := policy.Commission{Rule: site}

	lose(w, m[0], time.Hour)

	const long = 10 * time.Minute

	for _, c := range []struct {
		name     string
		began    time.Duration // so long ago
		observed time.Time
		answered time.Time
		want     string
		text     string
		next     time.Time
	}{
		{"just started", 30 * time.Second, w.Now, w.Now, "", "not given away before 2026-03-01 12:19:30 UTC",
			w.Now.Add(9*time.Minute + 30*time.Second)},
		{"no report", long, time.Time{}, w.Now, "", "waits for a full report of every observer", time.Time{}},
		{"just reported", long, w.Now.Add(-20 * time.Second), w.Now, "",
			"until 2026-03-01 12:10:40 UTC (policies.settle)", w.Now.Add(40 * time.Second)},
		{"an answer from before", long, w.Now.Add(-time.Minute), w.Now.Add(-11 * time.Minute), "",
			"ssh is asked", time.Time{}},
		{"a new answer", long, w.Now.Add(-time.Minute), w.Now, "n-0 master", "in the place of m-0", time.Time{}},
	} {
		w.Start.Began = w.Now.Add(-c.began)
		w.Start.Observed, m[0].Presence.Away.Time = c.observed, c.answered
		p := policy.Decide(rule, w)

		if got := joins(p); got != c.want || !p.Next.Equal(c.next) {
			t.Errorf("%s: %q, next %s", c.name, got, p.Next)
		}

		if asks := strings.Contains(c.text, "ssh"); asks != slices.Equal(p.Ask, []string{"m-0"}) {
			t.Errorf("%s: asks %v", c.name, p.Ask)
		}

		f := findings(rule, w, *w.View.Find("n-0"))
		if len(f) != 1 || !strings.Contains(f[0].Message, c.text) {
			t.Errorf("%s: explained %+v, want %q", c.name, f, c.text)
		}

		if notes := strings.Join(rule.Roles(w)[0].Notes, " "); c.want == "" && !strings.Contains(notes, c.text) {
			t.Errorf("%s: %s", c.name, notes)
		}
	}

	// A fenced node is judged by the health of the others as well.
	seen(m[0], true, w.Now)
	m[0].Status, m[0].Updated = inventory.Quarantined, w.Now.Add(-time.Hour)
	w.Start.Observed = time.Time{}

	if got := joins(policy.Decide(rule, w)); got != "" {
		t.Errorf("the place of a fenced node: %s", got)
	}
}

// TestRepairAfterStart: a host is cleaned after the observers agree only.
func TestRepairAfterStart(t *testing.T) {
	t.Parallel()

	n := back("n-1", 2*time.Minute, inventory.Contact{Reached: true, Boot: bootB})
	w := world(n)
	w.Settings.Groups = reacting(inventory.ReactionRepair)

	if got := actions(decide(w)); got != "repair n-1" {
		t.Fatal(got)
	}

	w.Start = policy.Start{Began: w.Now.Add(-time.Minute), Observed: w.Now.Add(-30 * time.Second)}

	p := decide(w)
	if got := actions(p); got != "" || !p.Next.Equal(w.Now.Add(30*time.Second)) {
		t.Errorf("%q, next %s", got, p.Next)
	}

	f := findings(policy.Returns{}, w, *n)
	if len(f) != 1 || !strings.Contains(f[0].Message, "waits for its repair: the manager started at") {
		t.Errorf("%+v", f)
	}
}
