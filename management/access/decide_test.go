// SPDX-License-Identifier: Apache-2.0

package access

import (
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/record/recordtest"
	"github.com/contiv/cluster/management/state"
)

// TestDepends: a change that depends on a kind of record is decided again if one of the kind was written meanwhile, and
// one that does not is made as it was decided.
func TestDepends(t *testing.T) {
	t.Parallel()

	for want, depends := range map[int][]record.Any{1: nil, 2: {&state.Powers}} {
		s := recordtest.NewStore(&state.Powers, &RevocationKind)
		decided := 0

		_, _, err := Decide(t.Context(), s, Caller{Depends: depends}, nil, func(tx *record.Tx) (none any, err error) {
			if decided++; decided == 1 {
				power := &inventory.Power{Node: "a-1", Power: "on"}
				_, err = record.Replace(t.Context(), s, &state.Powers, "a-1", 0, power)
			}

			record.Put(tx, &RevocationKind, &Revocation{Serial: "1"})

			return none, err
		})
		if err != nil || decided != want {
			t.Errorf("with %d kinds it was decided %d times, want %d: %v", len(depends), decided, want, err)
		}
	}
}
