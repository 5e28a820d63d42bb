// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/policy"
)

// TestLossThatAnObserverDenies: no policy acts on the loss of a node that any observer
// sees alive.
func TestLossThatAnObserverDenies(t *testing.T) {
	t.Parallel()

	const long = 2 * time.Hour

	for _, c := range []struct {
		name  string
		sees  map[string]bool // what the observers besides the gossip say, which has lost the node
		joins string
	}{
		{"the gossip alone", nil, "n-0 master"},
		{"a monitor lost it, too", map[string]bool{"m2": false}, "n-0 master"},
		{"a monitor sees it", map[string]bool{"m2": true}, "n-0 worker"},
		{"one of two monitors sees it", map[string]bool{"m2": false, "m3": true}, "n-0 worker"},
		{"an event said that it is there", map[string]bool{inventory.ObserverPost: true}, "n-0 worker"},
	} {
		lost := master("m-0", "a")
		w := siteWorld(siteRule(), lost, master("m-1", "b"), master("m-2", "c"), inRack("n-0", "a", noon.Add(-long)))
		at := w.Now.Add(-long)

		for observer, alive := range c.sees {
			o := inventory.Observation{Observer: observer, Label: lost.Label, Serial: lost.Serial, Addr: lost.Addr}
			o.Alive = alive
			*lost, _, _ = lost.Observe(o, at)
		}

		lose(w, lost, long)

		if got := joins(policy.Decide(policy.Commission{Rule: siteRule()}, w)); got != c.joins {
			t.Errorf("%s: the site decides %q, want %q", c.name, got, c.joins)
		}

		// A node that was never lost has not returned either.
		seen(lost, true, w.Now)

		if got := actions(decide(w)); c.joins == "n-0 worker" && got != "" {
			t.Errorf("%s: the return decides %q", c.name, got)
		}
	}
}
