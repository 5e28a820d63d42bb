// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

// TestFinishDecides: a job whose nodes take several transactions has its outcomes stored
// with the first of them, and a repetition does not store them again. One that takes a
// single transaction is released and ended by it.
func TestFinishDecides(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ nodes, writes int }{{2, 1}, {150, 2}} {
		s := store(t)
		ctx := within(t, patience)
		names := seen(t, s, c.nodes)

		running, writes := held(t, s.View(), accepted(t, s, names))
		j, err := s.Claim(ctx, state.Claim{Job: running, Writes: writes, Revision: s.View().Revision})
		must(t, err)

		resp := must2(s.client.Get(ctx, s.jobKey(j.ID)))
		before := resp.Kvs[0].Version

		ending, writes := released(t, s.View(), j)
		ending.Outcomes = map[string]inventory.Outcome{}

		for _, name := range names {
			ending.Outcomes[name] = inventory.Outcome{Status: inventory.Allocated, Group: j.Group, Applied: j.ID}
		}

		changeAddr(t, s, names[c.nodes-1]) // the last chunk conflicts
		_, err = s.Finish(ctx, ending, writes)
		conflict(t, err)

		stored, err := s.View().Job(j.ID)
		must(t, err)

		some := statuses(s.View())[inventory.Allocated]
		if several := c.writes > 1; stored.Status != job.Running || !stored.Ended.IsZero() ||
			(len(stored.Outcomes) == c.nodes) != several || (some > 0) != several {
			t.Errorf("%d nodes, %d of them released: %+v", c.nodes, some, stored)
		}

		ending.Revision = stored.Revision
		_, writes = released(t, s.View(), j)
		_, err = s.Finish(ctx, ending, writes)
		must(t, err)

		resp = must2(s.client.Get(ctx, s.jobKey(j.ID)))
		if got := int(resp.Kvs[0].Version - before); got != c.writes {
			t.Errorf("%d nodes: the job was written %d times after its claim, want %d", c.nodes, got, c.writes)
		}

		if got := statuses(s.View())[inventory.Allocated]; got != c.nodes {
			t.Errorf("%d of %d nodes are released", got, c.nodes)
		}
	}
}
