// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"slices"
	"strings"
	"time"
)

// outdatedNodes returns the names of the outdated nodes, sorted.
func (w *world) outdatedNodes() []string {
	w.t.Helper()

	var names []string
	for name, n := range w.nodes() {
		if n.Outdated != nil && *n.Outdated {
			names = append(names, name)
		}
	}

	slices.Sort(names)

	return names
}

// wantOutdated requires exactly the nodes of these hosts to be outdated.
func (w *world) wantOutdated(when string, hosts ...string) {
	w.t.Helper()

	want := slices.Sorted(slices.Values(w.nodeNames(hosts...)))
	if got := w.outdatedNodes(); !slices.Equal(got, want) {
		w.t.Errorf("%s: outdated are %v, want %v", when, got, want)
	}
}

// awaitOutdated waits until exactly the nodes of these hosts are outdated: the folder of
// playbooks is looked at every few seconds.
func (w *world) awaitOutdated(hosts ...string) {
	w.t.Helper()

	want := slices.Sorted(slices.Values(w.nodeNames(hosts...)))

	await(w.t, time.Minute, strings.Join(want, " ")+" are outdated", func() (bool, string) {
		got := w.outdatedNodes()
		return slices.Equal(got, want), strings.Join(got, " ")
	})
}
