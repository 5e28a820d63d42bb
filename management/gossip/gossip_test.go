// SPDX-License-Identifier: Apache-2.0

package gossip

import (
	"slices"
	"testing"

	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// TestInstances: the agent of an instance joins those of the others, at its own port.
func TestInstances(t *testing.T) {
	t.Parallel()

	alive := map[string]*state.Instance{
		"a": {Addr: "192.0.2.1"}, "b": {Addr: "2001:db8::2"}, "c": {Addr: "192.0.2.3"}, "d": {},
	}
	v := &state.View{Snapshot: job.Snapshot{View: record.With(record.View{}, &state.Instances, alive)}}

	for bind, want := range map[string][]string{
		"0.0.0.0:7946":   {"[2001:db8::2]:7946", "192.0.2.3:7946"},
		"192.0.2.1:9000": {"[2001:db8::2]:9000", "192.0.2.3:9000"},
		"127.0.0.1:0":    nil, // a port that nobody knows
	} {
		if got := instances(v, "192.0.2.1", bind); !slices.Equal(got, want) {
			t.Errorf("with %s, the agent joins %q, want %q", bind, got, want)
		}
	}
}
