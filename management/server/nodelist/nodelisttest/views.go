// SPDX-License-Identifier: Apache-2.0

// Package nodelisttest generates sequences of views for tests of encoded lists.
package nodelisttest

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/merge"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// rounds is the number of views in a sequence.
const rounds = 100

// Round is one view of a sequence, and a list to encode.
type Round struct {
	Number   int
	View     *state.View // sometimes older than that of an earlier round
	Nodes    []*inventory.Node
	Settings merge.Settings
}

// Rounds calls test with a sequence of views. Between two views nodes, connections,
// variables or settings change; Nodes are all nodes, a part, or another order.
func Rounds(test func(Round)) {
	r := rand.New(rand.NewPCG(3, 4))
	newest := &state.View{}
	settings := merge.Settings{Vars: configuration.Vars{"a": "<&>"}}

	for round := range rounds {
		previous := newest
		newest = nextView(r, previous, round)
		settings = nextSettings(r, settings, round)

		v := newest
		if r.IntN(10) == 0 {
			v = previous // of a slow request
		}
		if len(v.Nodes()) == 0 {
			v = newest
		}

		test(Round{Number: round, View: v, Nodes: someNodes(r, v.Nodes()), Settings: settings})
	}
}

// nextView returns a view with up to two nodes and one other record changed.
func nextView(r *rand.Rand, v *state.View, round int) *state.View {
	next := *v
	next.Revision++

	for range r.IntN(3) {
		name := fmt.Sprintf("n-%03d", r.IntN(400))
		n := &inventory.Node{
			Name:      name,
			LastError: fmt.Sprintf("<%d> & \"quoted\" \u2028 é", round),
			Group:     []string{"", "x", "y"}[r.IntN(3)],
			Revision:  int64(round),
		}

		if next.Find(name) != nil && r.IntN(3) == 0 {
			n = nil
		}
		next.View = record.Set(next.View, &job.Nodes, name, n)
	}

	if round == 0 {
		// More nodes than one goroutine encodes.
		for i := range 300 {
			next.PutNode(&inventory.Node{Name: fmt.Sprintf("n-%03d", i)})
		}
	}

	some := next.Nodes()[r.IntN(len(next.Nodes()))].Name

	switch r.IntN(6) {
	case 0:
		next.View = record.Set(next.View, &state.Connections, some, &configuration.Connection{Port: round + 1})
	case 1:
		next.View = record.With(next.View, &state.Connections, nil)
	case 2, 3:
		scope := []state.Scope{state.ScopeGlobal, state.ScopeGroup("x"), state.ScopeNode(some)}[r.IntN(3)]
		next.View = record.Set(next.View, &state.Variables, string(scope), &state.ScopeVars{
			Scope: scope, Vars: configuration.Vars{"v": fmt.Sprint(round), "my_token": "t"},
		})
	}

	return &next
}

func nextSettings(r *rand.Rand, settings merge.Settings, round int) merge.Settings {
	switch r.IntN(8) {
	case 0:
		settings.Vars = configuration.Vars{"a": fmt.Sprint(round)}
	case 1:
		settings.Secrets = [][]string{nil, {"*token"}}[r.IntN(2)]
	}

	return settings
}

// someNodes returns all nodes, a part of them, another order of them, or one.
func someNodes(r *rand.Rand, all []*inventory.Node) []*inventory.Node {
	switch r.IntN(4) {
	case 0:
		return slices.DeleteFunc(slices.Clone(all), func(*inventory.Node) bool { return r.IntN(3) == 0 })
	case 1:
		shuffled := slices.Clone(all)
		r.Shuffle(len(shuffled), func(i, k int) { shuffled[i], shuffled[k] = shuffled[k], shuffled[i] })
		return shuffled
	case 2:
		return all[:1]
	}

	return all
}
