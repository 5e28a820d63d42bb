// SPDX-License-Identifier: Apache-2.0

package state_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/inventory/facts"
	"github.com/contiv/cluster/management/state"
)

// TestInspectionsAreBounded: large facts leave room for fewer inspections, and the newest is always there.
func TestInspectionsAreBounded(t *testing.T) {
	t.Parallel()

	r := rand.New(rand.NewPCG(1, 2))

	var kept *state.Inspections

	for number := range 12 {
		f := facts.Facts{Schema: facts.Schema}
		for range 3000 {
			f.Disks = append(f.Disks, facts.Disk{Serial: fmt.Sprintf("%x%x", r.Uint64(), r.Uint64())})
		}

		var err error
		kept, err = kept.With("a", fmt.Sprint(number), facts.Found{Facts: f}, time.Now())
		errtest.None(t, err)

		all, err := kept.Facts()
		errtest.None(t, err)

		newest := len(all) - 1
		if len(kept.Data) > 512<<10 || kept.All[newest].Number != number+1 || all[newest].Disks[0] != f.Disks[0] {
			t.Fatalf("%d bytes, %+v", len(kept.Data), kept.All)
		}
	}

	if len(kept.All) < 2 || len(kept.All) >= 10 {
		t.Errorf("%d inspections are kept", len(kept.All))
	}
}

// TestDamagedInspections: what cannot be read does not keep a node from being inspected.
func TestDamagedInspections(t *testing.T) {
	t.Parallel()

	damaged := &state.Inspections{Node: "a", All: []facts.Inspection{{Number: 7}}, Data: []byte("damaged")}

	next, err := damaged.With("a", "", facts.Found{}, time.Now())
	errtest.None(t, err)

	if len(next.All) != 1 || next.All[0].Number != 8 {
		t.Errorf("%+v", next.All)
	}
}
