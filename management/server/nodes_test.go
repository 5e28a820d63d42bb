// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/desired"
	"github.com/contiv/cluster/management/merge"
	"github.com/contiv/cluster/management/server/nodelist/nodelisttest"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
)

// noDesired has configurations of the default groups only.
func noDesired() *desired.Source {
	return desired.New("i", func() merge.Settings { return merge.Settings{Groups: inventory.DefaultGroups()} })
}

// TestWriteNodes expects a list that is joined from cached nodes to be the same,
// byte for byte, as the list encoded as a whole.
func TestWriteNodes(t *testing.T) {
	t.Parallel()

	s := &Server{Options: Options{Desired: noDesired()}}

	nodelisttest.Rounds(func(round nodelisttest.Round) {
		v := round.View
		list := api.List[api.Node]{Items: []api.Node{}, Total: len(round.Nodes), Revision: v.Revision}

		got := httptest.NewRecorder()
		if err := s.writeNodes(got, v.In(nil), round.Nodes, list); err != nil {
			t.Fatal(err)
		}

		for _, n := range round.Nodes {
			list.Items = append(list.Items, s.forms(v.In(nil)).of(*n))
		}

		want := httptest.NewRecorder()
		if err := rest.WriteJSON(want, http.StatusOK, list); err != nil {
			t.Fatal(err)
		}
		sameLength := got.Header().Get("Content-Length") == want.Header().Get("Content-Length")
		if got.Body.String() != want.Body.String() || !sameLength {
			t.Fatalf("round %d: joined\n%s\nwhole\n%s", round.Number, got.Body, want.Body)
		}
	})
}

// BenchmarkWriteNodes lists 10 000 nodes, of which one has changed.
func BenchmarkWriteNodes(b *testing.B) {
	s := &Server{Options: Options{Desired: noDesired()}}
	v := &state.View{}

	for i := range 10_000 {
		v.PutNode(&inventory.Node{
			Name:  fmt.Sprintf("host%05d-0123456789ab", i),
			Label: fmt.Sprintf("host%05d", i), Serial: "0123456789ab", Addr: "10.1.2.3",
			Status: inventory.Unallocated, State: inventory.Discovered, PrevState: inventory.Unknown,
			Seen: map[string]bool{"post": true}, Revision: 77,
		})
	}

	for b.Loop() {
		next := *v
		next.Revision++
		changed := *next.Nodes()[500]
		next.PutNode(&changed)
		v = &next

		w := httptest.NewRecorder()
		w.Body = nil

		if err := s.writeNodes(w, v.In(nil), v.Nodes(), api.List[api.Node]{Items: []api.Node{}}); err != nil {
			b.Fatal(err)
		}
	}
}
