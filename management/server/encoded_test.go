// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/variable"
)

// TestListsAreTheSame: a list that is joined of kept texts has, byte for byte,
// what encoding it as a whole gives: whatever has changed since it was last
// read, be it the nodes, what is set for them, or the settings.
func TestListsAreTheSame(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	s := &Server{}
	v := &state.View{}

	settings := variable.Settings{Vars: configuration.Vars{"a": "<&>"}}
	for round := range 100 {
		next := *v
		next.Revision++

		next.Nodes = slices.Clone(v.Nodes)
		for range r.IntN(3) {
			name := fmt.Sprintf("n-%03d", r.IntN(400))
			n := &inventory.Node{
				Name:      name,
				LastError: fmt.Sprintf("<%d> & \"quoted\" \u2028 é", round),
				Group:     []string{"", "x", "y"}[r.IntN(3)],
				Revision:  int64(round),
			}

			i, found := slices.BinarySearchFunc(next.Nodes, name, func(n *inventory.Node, name string) int {
				if n.Name == name {
					return 0
				}

				if n.Name < name {
					return -1
				}

				return 1
			})
			switch {
			case !found:
				next.Nodes = slices.Insert(next.Nodes, i, n)
			case r.IntN(3) == 0:
				next.Nodes = slices.Delete(next.Nodes, i, i+1)
			default:
				next.Nodes[i] = n
			}
		}

		if round == 0 {
			for i := range 300 { // more than one share
				next.Nodes = append(next.Nodes, &inventory.Node{Name: fmt.Sprintf("n-%03d", i)})
			}

			slices.SortFunc(next.Nodes, func(a, b *inventory.Node) int {
				if a.Name < b.Name {
					return -1
				}

				return 1
			})
			next.Nodes = slices.CompactFunc(next.Nodes, func(a, b *inventory.Node) bool { return a.Name == b.Name })
		}

		some := next.Nodes[r.IntN(len(next.Nodes))].Name
		switch r.IntN(8) {
		case 0:
			next.Connections = maps.Clone(v.Connections)
			if next.Connections == nil {
				next.Connections = map[string]configuration.Connection{}
			}

			next.Connections[some] = configuration.Connection{Port: round + 1}
		case 1:
			next.Connections = nil
		case 2, 3:
			next.Variables = maps.Clone(v.Variables)
			if next.Variables == nil {
				next.Variables = map[state.Scope]configuration.Vars{}
			}

			scope := []state.Scope{state.ScopeGlobal, state.ScopeGroup("x"), state.ScopeNode(some)}[r.IntN(3)]
			next.Variables[scope] = configuration.Vars{"v": fmt.Sprint(round), "my_token": "t"}
		case 4:
			settings.Vars = configuration.Vars{"a": fmt.Sprint(round)}
		case 5:
			settings.Secrets = [][]string{nil, {"*token"}}[r.IntN(2)]
		}

		old := v

		v = &next
		if r.IntN(10) == 0 {
			v, old = old, v // a slow reader
		}

		nodes := v.Nodes
		switch r.IntN(4) {
		case 0:
			nodes = slices.DeleteFunc(slices.Clone(nodes), func(*inventory.Node) bool { return r.IntN(3) == 0 })
		case 1:
			nodes = slices.Clone(nodes)
			r.Shuffle(len(nodes), func(i, k int) { nodes[i], nodes[k] = nodes[k], nodes[i] })
		case 2:
			nodes = nodes[:min(1, len(nodes))]
		}

		var items []api.Node
		infos := map[string]api.LegacyNodeInfo{}

		for _, n := range nodes {
			items = append(items, nodeOf(v, *n))
		}

		merger := variable.NewMerger(v, settings)
		for _, n := range v.Nodes {
			infos[n.Name] = legacyInfo(merger, n)
		}

		got, want := httptest.NewRecorder(), httptest.NewRecorder()
		head := listOf[api.Node](v, nil)

		head.Total = len(nodes)
		if err := s.writeNodes(got, v, nodes, head); err != nil {
			t.Fatal(err)
		}

		if err := writeJSON(want, http.StatusOK, listOf(v, items)); err != nil {
			t.Fatal(err)
		}

		if got.Body.String() != want.Body.String() ||
			got.Header().Get("Content-Length") != want.Header().Get("Content-Length") {
			t.Fatalf("round %d: joined\n%s\nwhole\n%s", round, got.Body, want.Body)
		}

		got, want = httptest.NewRecorder(), httptest.NewRecorder()

		texts, err := s.infos.of(v, v.Nodes, infoEncoder{merger})
		if err != nil {
			t.Fatal(err)
		}

		writeTexts(got, []byte("{"), texts, []byte("}\n"))

		if err := writeJSON(want, http.StatusOK, infos); err != nil {
			t.Fatal(err)
		}

		if got.Body.String() != want.Body.String() {
			t.Fatalf("round %d: joined\n%s\nwhole\n%s", round, got.Body, want.Body)
		}

		if v.Revision < next.Revision {
			v = &next
		}
	}
}

func BenchmarkLists(b *testing.B) {
	s := &Server{}

	v := &state.View{}
	for i := range 10_000 {
		n := inventory.Node{
			Name: fmt.Sprintf(
				"host%05d-0123456789ab",
				i,
			),
			Label:     fmt.Sprintf("host%05d", i),
			Serial:    "0123456789ab",
			Addr:      "10.1.2.3",
			Status:    inventory.Unallocated,
			State:     inventory.Discovered,
			PrevState: inventory.Unknown,
			Seen:      map[string]bool{"post": true},
			Revision:  77,
		}
		v.Nodes = append(v.Nodes, &n)
	}

	for b.Loop() {
		next := *v
		next.Revision++
		next.Nodes = slices.Clone(v.Nodes)
		changed := *next.Nodes[500]
		next.Nodes[500] = &changed
		v = &next
		w := httptest.NewRecorder()

		w.Body = nil
		if err := s.writeNodes(w, v, v.Nodes, listOf[api.Node](v, nil)); err != nil {
			b.Fatal(err)
		}
	}
}
