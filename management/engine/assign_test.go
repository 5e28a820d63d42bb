// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"io"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/management/cluster"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/record/recordtest"
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
	r := e.runners(v, v, map[string]job.Turn{"5": {Job: job.Job{Instance: "node-b"}}})

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

// TestReassign: a running job of an instance that is gone goes to a live one, unless somebody owns it, or the instance
// comes back before the commit.
func TestReassign(t *testing.T) {
	t.Parallel()

	on := func(id string) *state.Instance {
		return &state.Instance{Identity: cluster.Identity{ID: id, Node: "node-" + id}}
	}
	own := func(tx *record.Tx) { record.PutAt(tx, &state.Owners, "1", &cluster.Identity{ID: "gone"}) }

	for name, c := range map[string]struct {
		first, meanwhile func(tx *record.Tx)
		job              job.Job
		want             string // the instance, and the former one
	}{
		"nobody owns it":          {job: job.Job{Status: job.Running}, want: "node-b node-gone"},
		"taken over once already": {job: job.Job{Status: job.Running, Former: "node-x"}, want: "node-b node-x"},
		"back where it began":     {job: job.Job{Status: job.Running, Former: "node-b"}, want: "node-b "},
		"it has ended":            {job: job.Job{Status: job.Complete}, want: "node-gone "},
		"it is owned":             {first: own, job: job.Job{Status: job.Running}, want: "node-gone "},
		"it becomes owned":        {meanwhile: own, job: job.Job{Status: job.Running}, want: "node-gone "},
		"the instance lives": {
			first: func(tx *record.Tx) { record.Put(tx, &state.Instances, on("gone")) },
			job:   job.Job{Status: job.Running}, want: "node-gone ",
		},
		"the instance comes back": {
			meanwhile: func(tx *record.Tx) { record.Put(tx, &state.Instances, on("gone")) },
			job:       job.Job{Status: job.Running}, want: "node-gone ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := recordtest.NewStore(&job.Kind, &state.Owners, &state.Instances, &state.InstancePlaybooks)
			s.Base = func(records record.View, revision int64) record.Reader {
				return &state.View{Snapshot: job.Snapshot{View: records}, Revision: revision}
			}
			commit := func(write func(tx *record.Tx)) {
				if write == nil {
					return
				}

				tx := record.NewTx(s)
				write(tx)

				if _, err := s.Commit(t.Context(), tx); err != nil {
					t.Error(err)
				}
			}

			commit(func(tx *record.Tx) {
				j := c.job
				j.ID, j.Instance = "1", "node-gone"
				record.Put(tx, &job.Kind, &j)
				record.Put(tx, &job.Kind, &job.Job{ID: "2", Status: job.Running, Instance: "node-a"})
				record.Put(tx, &state.Instances, on("a"))
				record.Put(tx, &state.Instances, on("b"))
			})
			commit(c.first)

			s.Before = func(*record.Tx) error {
				meanwhile := c.meanwhile
				c.meanwhile = nil
				commit(meanwhile)

				return nil
			}

			log := logrus.New()
			log.SetOutput(io.Discard)

			e := &Engine{self: cluster.Identity{ID: "a", Node: "node-a"}, records: s, log: log}
			if err := e.reassign(t.Context()); err != nil {
				t.Fatal(err)
			}

			r, _ := s.Latest()
			if j := record.Get(r, &job.Kind, "1"); j.Instance+" "+j.Former != c.want {
				t.Errorf("it is on %q, formerly on %q; want %q", j.Instance, j.Former, c.want)
			}
		})
	}
}
