// SPDX-License-Identifier: Apache-2.0

package variable

import (
	"reflect"
	"testing"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
)

// TestStateAt walks a history back to each revision.
func TestStateAt(t *testing.T) {
	t.Parallel()

	type vars = configuration.Vars

	// The variables after each revision; the first is older than the history.
	states := []vars{
		{"kept": "k", "old": "1"},
		{"kept": "k", "old": "1", "new": int64(1)},
		{"kept": "k", "new": []any{"list"}},
		{},
		{"other": map[string]any{"deep": true}},
	}

	revisions := []int64{5, 7, 8, 20, 31}

	var history []Change
	for i := 1; i < len(states); i++ {
		c := newChange(states[i-1], states[i])
		c.Seq, c.Revision = uint64(i), revisions[i]
		history = append(history, c)
	}

	now := states[len(states)-1]
	for revision, want := range map[int64]vars{
		0: states[0], 5: states[0], 6: states[0], 7: states[1], 8: states[2], 19: states[2], 20: states[3],
		30: states[3], 31: states[4], 99: states[4],
	} {
		if got, err := stateAt(now, history, revision); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("revision %d: %v, %v, want %v", revision, got, err, want)
		}
	}

	// Without its first changes, the history reaches back to just before the rest.
	for revision, kind := range map[int64]inventory.Kind{19: "", 18: inventory.KindExpired, 0: inventory.KindExpired} {
		if _, err := stateAt(now, history[2:], revision); inventory.KindOf(err) != kind {
			t.Errorf("revision %d: %v, want %q", revision, err, kind)
		}
	}

	if got, err := stateAt(now, nil, 3); err != nil || !reflect.DeepEqual(got, now) {
		t.Errorf("without a history: %v, %v", got, err)
	}

	if c := newChange(states[1], states[1]); !c.Empty() {
		t.Errorf("no change is %+v", c)
	}
}
