// SPDX-License-Identifier: Apache-2.0

package legacy

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/merge"
	"github.com/contiv/cluster/management/server/nodelist"
	"github.com/contiv/cluster/management/server/nodelist/nodelisttest"
	"github.com/contiv/cluster/management/server/rest"
)

// TestNodesAreJoined expects the object that is joined from cached nodes to be
// the same, byte for byte, as the object encoded as a whole.
func TestNodesAreJoined(t *testing.T) {
	t.Parallel()

	var cache nodelist.Cache[infoEncoder]

	nodelisttest.Rounds(func(round nodelisttest.Round) {
		v := round.View
		merger := merge.NewMerger(v, round.Settings)

		texts, err := cache.Of(v, v.Nodes(), infoEncoder{merger})
		if err != nil {
			t.Fatal(err)
		}

		got := httptest.NewRecorder()
		nodelist.Write(got, []byte("{"), texts, []byte("}\n"))

		infos := map[string]api.LegacyNodeInfo{}
		for _, n := range v.Nodes() {
			infos[n.Name] = infoOf(merger, n)
		}

		want := httptest.NewRecorder()
		if err := rest.WriteJSON(want, http.StatusOK, infos); err != nil {
			t.Fatal(err)
		}
		if got.Body.String() != want.Body.String() {
			t.Fatalf("round %d: joined\n%s\nwhole\n%s", round.Number, got.Body, want.Body)
		}
	})
}
