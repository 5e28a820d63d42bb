// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"fmt"
	"testing"
	"time"

	"github.com/contiv/cluster/management/api"
)

// TestNewEvents: each event is printed once, also after the manager dropped the oldest ones.
func TestNewEvents(t *testing.T) {
	t.Parallel()

	var all []api.RolloutEvent
	for i := range 9 {
		all = append(all, api.RolloutEvent{Time: time.Unix(int64(i/2), 0), Kind: "failed", Node: fmt.Sprint("web-", i)})
	}

	for name, tt := range map[string]struct{ shown, now, want []api.RolloutEvent }{
		"none before":      {nil, all[:3], all[:3]},
		"none new":         {all[:3], all[:3], nil},
		"at the same time": {all[:3], all[:5], all[3:5]},
		"dropped":          {all[:5], all[4:], all[5:]},
		"all dropped":      {all[:3], all[5:], all[5:]},
		"nothing":          {nil, nil, nil},
	} {
		if got := newEvents(tt.shown, tt.now); fmt.Sprint(got) != fmt.Sprint(tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
