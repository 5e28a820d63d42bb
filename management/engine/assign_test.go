// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"strings"
	"testing"

	"github.com/contiv/cluster/management/cluster"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// TestChoose: a job goes to the live instance with the fewest, which has its playbooks.
func TestChoose(t *testing.T) {
	t.Parallel()

	v := &state.View{}
	for _, id := range []string{"a", "b", "c"} {
		instance := &state.Instance{Identity: cluster.Identity{ID: id, Node: "node-" + id}}
		v.View = record.Set(v.View, &state.Instances, id, instance)
		v.View = record.Set(v.View, &state.InstancePlaybooks, id, &state.Playbooks{Digest: strings.TrimPrefix(id, "c")})
	}

	v.SetJobs([]*job.Job{
		{ID: "1", Status: job.Running, Instance: "node-a"},
		{ID: "2", Status: job.Complete, Instance: "node-b"},
		{ID: "3", Status: job.Running, Instance: "node-gone"},
		{ID: "4", Status: job.Queued},
		{ID: "5", Status: job.Running, Instance: "node-b"}, // its claim is not over
	}...)

	e := &Engine{self: cluster.Identity{ID: "a", Node: "node-a"}}
	r := e.runners(v, map[string]job.Turn{"5": {Job: job.Job{Instance: "node-b"}}})

	for i, c := range []struct{ playbooks, want string }{
		{"a", "node-a"}, // which alone has them, and two jobs then
		{"", "node-c"},
		{"", "node-b"}, // as many as node-c
		{"", "node-c"},
		{"", "node-a"}, // all have two
		{"b", "node-b"},
		{"c", "node-a"}, // nobody has them
	} {
		if got := r.choose(job.Job{PlaybookDigest: c.playbooks}); got != c.want {
			t.Errorf("%d: a job with the playbooks %q goes to %s, want %s", i, c.playbooks, got, c.want)
		}
	}
}
