// SPDX-License-Identifier: Apache-2.0

package state

import (
	"testing"
	"time"
)

// TestNextEpoch counts what an order of lives needs: more than each former one, whatever the clock says.
func TestNextEpoch(t *testing.T) {
	noon := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

	for name, c := range map[string]struct {
		now    time.Time
		former []int64
		want   int64
	}{
		"first":                   {noon, nil, noon.Unix()},
		"never restored":          {noon, []int64{0, 0}, noon.Unix()},
		"restored before":         {noon, []int64{noon.Unix() - 60}, noon.Unix()},
		"twice in a second":       {noon, []int64{noon.Unix()}, noon.Unix() + 1},
		"clock went back":         {noon, []int64{0, noon.Unix() + 3600}, noon.Unix() + 3601},
		"clock before 1970":       {time.Unix(-5, 0), nil, 1},
		"the highest one counts":  {noon, []int64{noon.Unix() + 7, noon.Unix() + 9, 3}, noon.Unix() + 10},
		"a number below the time": {time.Unix(100, 0), []int64{41}, 100},
	} {
		t.Run(name, func(t *testing.T) {
			if got := NextEpoch(c.now, c.former...); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
}
