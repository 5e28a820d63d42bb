// SPDX-License-Identifier: Apache-2.0

package job_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	. "github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/job/jobtest"
)

// ended puts an ended job into the view.
func ended(v *Snapshot, verb inventory.Verb, status Status, at time.Time, labels string) {
	jobtest.SetNewest(v, v.Newest()+1)

	j := Job{ID: strconv.FormatUint(v.Newest(), 10), Verb: verb, Status: status, Ended: at}
	for _, name := range jobtest.Names(labels) {
		j.Targets = append(j.Targets, Target{Name: name})
	}

	v.PutJob(&j)
}

func TestTurn(t *testing.T) {
	t.Parallel()
	const (
		commission   = inventory.VerbCommission
		decommission = inventory.VerbDecommission
		maintenance  = inventory.VerbMaintenance
		clearNodes   = inventory.VerbClear
		discover     = inventory.VerbDiscover
	)

	m, w := inventory.GroupMaster, inventory.GroupWorker
	three := []string{"a - Unallocated Discovered", "b - Unallocated Discovered", "c - Unallocated Discovered"}
	fresh := []string{"a - Unallocated Discovered", "b - Unallocated Discovered", "d m Allocated Discovered"}
	masters := []string{
		"a m Allocated Discovered",
		"b m Allocated Discovered",
		"c - Unallocated Discovered",
		"d w Allocated Discovered",
	}

	type want struct {
		claim   bool
		waits   string
		says    string // in Reason or Err
		helpers string
	}
	for _, tt := range []struct {
		name   string
		nodes  []string
		ahead  []Request
		runs   string // ids that run
		req    Request
		change func(v *Snapshot) // after acceptance
		limit  int
		want   want
	}{
		{"an empty queue", three, nil, "", request(commission, "a", m), nil, 4, want{claim: true}},
		{
			"disjoint from what runs", fresh, []Request{request(commission, "a", w)}, "1", request(commission, "b", w),
			nil, 4, want{claim: true},
		},
		{
			"disjoint from what is queued", fresh, []Request{request(commission, "a", w)}, "",
			request(commission, "b", w), nil, 4, want{claim: true},
		},
		{
			"a second founder", three, []Request{request(commission, "a", m)}, "1", request(commission, "b c", m),
			nil, 4, want{waits: "1", says: "brings the first nodes of service-master into service"},
		},
		{
			"a second founder of what is queued", three, []Request{request(commission, "a b", m)}, "",
			request(commission, "c", m), nil, 4, want{waits: "1", says: "brings the first nodes"},
		},
		{
			"after the founders", fresh, []Request{request(commission, "a", m)}, "", request(commission, "b", m),
			nil, 4, want{claim: true, helpers: "d-1"},
		},
		{"overlaps what runs", masters, []Request{request(maintenance, "a b", "")}, "1", request(maintenance, "b", ""),
			nil, 4,
			want{waits: "1", says: "b-1 needed by job 1"}},
		{"overlaps what is queued before it", masters,
			[]Request{request(maintenance, "a", ""), request(maintenance, "a b", "")}, "1",
			request(maintenance, "b", ""), nil, 4,
			want{waits: "2", says: "b-1 needed by job 2"}},
		{"overlaps two", masters, []Request{request(maintenance, "a", ""), request(maintenance, "b", "")}, "1 2",
			request(maintenance, "a b", ""), nil, 4,
			want{waits: "1 2", says: "a-1, b-1 needed by jobs 1, 2"}},
		{"the limit", masters, []Request{request(maintenance, "a", ""), request(maintenance, "b", "")}, "1 2",
			request(commission, "c", w), nil, 2,
			want{waits: "1 2", says: "2 jobs run, which is the limit"}},
		{
			"under the limit", masters, []Request{request(maintenance, "a", ""), request(maintenance, "b", "")}, "1 2",
			request(commission, "c", w), nil, 3, want{claim: true},
		},
		{"a worker waits for its master", three, []Request{request(commission, "a", m)}, "1",
			request(commission, "b", w), nil, 4,
			want{waits: "1", says: "not legal before the end of job 1: b-1 cannot join"}},
		{"its master has failed", three, []Request{request(commission, "a", m)}, "", request(commission, "b", w),
			func(v *Snapshot) {
				v.Jobs()[0].Status, v.Jobs()[0].Ended = Errored, jobtest.Noon.Add(time.Minute)
			}, 4, want{
				says: "b-1 cannot join service-worker: it requires 1 healthy node of service-master " +
					"outside this request, and there is none (since job 1, a commission of a-1, ended Errored)",
			}},
		{"its master has failed, and is about to say so", three, []Request{request(commission, "a", m)}, "1",
			request(commission, "b", w), func(v *Snapshot) {
				v.Jobs()[0].Outcomes = map[string]inventory.Outcome{"a-1": {Status: inventory.Unallocated}}
			}, 4, want{waits: "1", says: "job 1 is about to end"}},
		{"somebody forgot the node", three, nil, "", request(commission, "b", m), func(v *Snapshot) {
			v.SetNodes(slices.Delete(slices.Clone(v.Nodes()), 1, 2)...)
		}, 4, want{says: "b-1 is no longer known"}},
		{"somebody else changed the node", masters, nil, "", request(maintenance, "a", ""), func(v *Snapshot) {
			ended(v, decommission, Complete, jobtest.Noon.Add(time.Minute), "a")
			ended(v, maintenance, Complete, jobtest.Noon.Add(2*time.Minute), "b")
			v.Nodes()[0].Status = inventory.Decommissioned
		}, 4, want{
			says: "a-1 is Decommissioned; maintenance takes nodes that are Allocated (since job 2, a decommission " +
				"of a-1, ended Complete)",
		}},
		{"a later job that changed nothing", masters, nil, "", request(maintenance, "a", ""), func(v *Snapshot) {
			ended(v, decommission, Complete, jobtest.Noon.Add(time.Minute), "a")
			ended(v, maintenance, Errored, jobtest.Noon.Add(2*time.Minute), "a")
			v.Nodes()[0].Status = inventory.Decommissioned
		}, 4, want{says: "(since job 2, a decommission of a-1, ended Complete)"}},
		{"an unrelated failure ahead", masters, []Request{request(maintenance, "b", "")}, "",
			request(maintenance, "a", ""), func(v *Snapshot) {
				v.Jobs()[0].Status, v.Jobs()[0].Ended = Errored, jobtest.Noon.Add(time.Minute)
				v.Nodes()[0].Status = inventory.Unallocated
			}, 4, want{says: "takes nodes that are Allocated; legal now: manage, commission, forget"}},
		{"nobody is to blame", masters, nil, "", request(maintenance, "a", ""), func(v *Snapshot) {
			v.Nodes()[0].State = inventory.Disappeared
		}, 4, want{says: "a-1 is Disappeared, and maintenance needs it Discovered"}},
		{
			"the first other master helps", masters, nil, "", request(decommission, "a", ""), nil, 4,
			want{claim: true, helpers: "b-1"},
		},
		{
			"a new master is helped", masters, nil, "", request(commission, "c", m), nil, 4,
			want{claim: true, helpers: "a-1"},
		},
		{"a worker needs no help", masters, nil, "", request(commission, "c", w), nil, 4, want{claim: true}},
		{"the first master has nobody to help", three, nil, "", request(commission, "a", m), nil, 4, want{claim: true}},
		{"an upgrade needs no help", masters, nil, "", request(maintenance, "a", ""), nil, 4, want{claim: true}},
		{
			"a helper that is free is preferred", masters, []Request{request(maintenance, "a", "")}, "1",
			request(commission, "c", m), nil, 4, want{claim: true, helpers: "b-1"},
		},
		{"all helpers are busy", masters, []Request{request(maintenance, "a", ""), request(maintenance, "b", "")},
			"1 2", request(commission, "c", m), nil, 4,
			want{waits: "1 2", says: "the helper it needs is held by jobs 1, 2"}},
		{"a helper that is away does not help", masters, nil, "", request(commission, "c", m), func(v *Snapshot) {
			v.Nodes()[0].State = inventory.Disappeared
		}, 4, want{claim: true, helpers: "b-1"}},
		{"a helper is held", masters, nil, "", request(maintenance, "a", ""), func(v *Snapshot) {
			v.PutJob(&Job{
				ID: "7", Status: Running, Verb: commission, Targets: []Target{{Name: "c-1"}}, Helpers: []string{"a-1"},
			})
		}, 4, want{waits: "7", says: "a-1 needed by job 7"}},
		{"residue of a master needs help", []string{"a m Allocated Discovered", "b - Decommissioned Discovered"}, nil,
			"", request(commission, "b", w), func(v *Snapshot) {
				v.Nodes()[1].Residue = []string{inventory.GroupMaster}
			}, 4, want{claim: true, helpers: "a-1"}},
		{"clear of a quarantined master needs help", []string{"a m Allocated Discovered", "b m Quarantined Discovered"},
			nil, "", request(clearNodes, "b", ""), nil, 4,
			want{claim: true, helpers: "a-1"}},
		{"the same address twice", nil, []Request{{Verb: discover, Addrs: []string{"10.0.0.9"}}}, "1",
			Request{Verb: discover, Addrs: []string{"10.0.0.8", "10.0.0.9"}}, nil, 4,
			want{waits: "1", says: "10.0.0.9 needed by job 1"}},
		{"an address that has appeared meanwhile", []string{"a - Unallocated Disappeared"}, nil, "",
			Request{Verb: discover, Addrs: []string{"10.0.0.1"}}, func(v *Snapshot) {
				v.Nodes()[0].State = inventory.Discovered
			}, 4, want{says: "10.0.0.1 is node a-1, which is Discovered already"}},
		{"a commission of a node that is being prepared again", []string{
			"a - Unallocated Disappeared", "b - Unallocated Discovered",
		},
			[]Request{
				{Verb: discover, Addrs: []string{"10.0.0.1"}},
			}, "1", request(commission, "b", m), nil, 4, want{claim: true}},
	} {
		v := jobtest.Snapshot(t, tt.nodes...)
		for _, r := range tt.ahead {
			queue(t, v, r)
		}

		for _, id := range strings.Fields(tt.runs) {
			claimed(t, v, id)
		}

		j := queue(t, v, tt.req)
		if tt.change != nil {
			tt.change(v)
		}
		got := TurnOf(*v, inventory.DefaultGroups(), tt.limit, j)

		said := got.Reason
		if got.Err != nil {
			said = got.Err.Error()
		}

		if got.Claim != tt.want.claim || strings.Join(got.WaitsFor, " ") != tt.want.waits ||
			!strings.Contains(said, tt.want.says) ||
			(got.Err != nil) != (tt.want.says != "" && tt.want.waits == "") ||
			strings.Join(got.Job.Helpers, " ") != tt.want.helpers {
			t.Errorf(
				"%s: claim %v, waits for %v, helpers %v: %s",
				tt.name,
				got.Claim,
				got.WaitsFor,
				got.Job.Helpers,
				said,
			)
		}
	}
}

// TestTurnTakesTheNodesAsTheyAre: a claim has the nodes as they are now, not as
// they were when the job was accepted.
func TestTurnTakesTheNodesAsTheyAre(t *testing.T) {
	t.Parallel()
	v := jobtest.Snapshot(t, "a m Allocated Discovered")
	queue(t, v, request(inventory.VerbDecommission, "a", ""))
	j := queue(t, v, request(inventory.VerbCommission, "a", inventory.GroupMaster))
	v.Jobs()[0].Status = Complete
	n := v.Nodes()[0]
	n.Status, n.Group, n.Residue, n.Addr = inventory.Decommissioned, "", []string{inventory.GroupMaster}, "10.0.0.77"

	got := TurnOf(*v, inventory.DefaultGroups(), 4, j)
	if target := got.Job.Targets[0]; !got.Claim || target.From != inventory.Decommissioned || target.FromGroup != "" ||
		target.Addr != "10.0.0.77" ||
		!slices.Equal(target.Residue, []string{inventory.GroupMaster}) ||
		target.Group != inventory.GroupMaster {
		t.Errorf("%+v", got)
	}

	if j.Targets[0].Addr != "10.0.0.1" {
		t.Error("the queued job was changed")
	}
}

func TestExpired(t *testing.T) {
	t.Parallel()
	job := func(id int, status Status, age time.Duration, bytes int64) Job {
		return Job{ID: strconv.Itoa(id), Status: status, Ended: jobtest.Noon.Add(-age), LogBytes: bytes}
	}

	all := jobtest.List(
		job(1, Complete, 5*time.Hour, 10),
		job(2, Queued, 9*time.Hour, 0),
		job(3, Errored, 4*time.Hour, 10),
		job(4, Running, 9*time.Hour, 0),
		job(5, Cancelled, 3*time.Hour, 10),
		job(6, Complete, time.Hour, 10),
	)
	for _, tt := range []struct {
		name string
		s    Retention
		want string
	}{
		{"no bounds", Retention{}, ""},
		{"count", Retention{Count: 2}, "3 1"},
		{"age", Retention{Age: 4 * time.Hour}, "1"},
		{"bytes", Retention{Bytes: 25}, "3 1"},
		{"the newest is kept whatever its size", Retention{Bytes: 5}, "5 3 1"},
		{"all bounds", Retention{Count: 3, Age: 4 * time.Hour, Bytes: 1000}, "1"},
	} {
		if got := strings.Join(tt.s.Expired(all, jobtest.Noon), " "); got != tt.want {
			t.Errorf("%s: %s", tt.name, got)
		}
	}
}

func TestReferences(t *testing.T) {
	t.Parallel()
	at := func(m int) time.Time { return jobtest.Noon.Add(time.Duration(m) * time.Minute) }

	v := &Snapshot{}
	for _, ref := range []string{"active", "last", "1", ""} {
		if _, err := v.Job(ref); inventory.KindOf(err) != inventory.KindNotFound {
			t.Errorf("%q: %v", ref, err)
		}
	}

	v.SetJobs([]*Job{
		{ID: "1", Status: Complete, Ended: at(9)},
		{ID: "2", Status: Running, Started: at(5)},
		{ID: "3", Status: Running, Started: at(4)},
		{ID: "4", Status: Cancelled, Ended: at(3)},
		{ID: "5", Status: Queued},
	}...)
	for ref, want := range map[string]string{"active": "2", "last": "1", "4": "4"} {
		if j, err := v.Job(ref); err != nil || j.ID != want {
			t.Errorf("%s: %s, %v", ref, j.ID, err)
		}
	}
}

// TestHeld: a job that is held waits, and lets those behind it go first that are not.
func TestHeld(t *testing.T) {
	t.Parallel()

	v := jobtest.Snapshot(t, "a m Allocated Discovered", "b m Allocated Discovered")
	held := queue(t, v, request(inventory.VerbApply, "a b", ""))
	behind := queue(t, v, request(inventory.VerbVerify, "a", ""))
	later := queue(t, v, request(inventory.VerbApply, "b", ""))

	hold := func(j Job) string {
		if j.Verb.Verifies() {
			return ""
		}
		return "it is night"
	}
	turn := func(j Job, holds ...Hold) Turn { return TurnOf(*v, inventory.DefaultGroups(), 4, j, holds...) }

	for _, j := range []Job{held, later} {
		got := turn(j, nil, hold)
		if got.Claim || got.Err != nil || got.Reason != "it is night" || got.WaitsFor != nil {
			t.Errorf("%+v", got)
		}
	}

	if got := turn(behind, hold); !got.Claim {
		t.Errorf("a job behind one that is held: %+v", got)
	}

	if got := turn(behind, nil); got.Claim || !slices.Equal(got.WaitsFor, []string{held.ID}) {
		t.Errorf("without a hold: %+v", got)
	}

	// Whether it is legal counts when it may begin: a host may be down for a while.
	v.Nodes()[0].State = inventory.Disappeared

	if got := turn(held, hold); got.Err != nil {
		t.Errorf("%+v", got)
	}

	if got := turn(held); got.Err == nil {
		t.Errorf("%+v", got)
	}
}

// TestHeldOfLegality: a job that is legal only after one that is held waits for it.
func TestHeldOfLegality(t *testing.T) {
	t.Parallel()

	v := jobtest.Snapshot(t, "a - Unallocated Discovered")
	held := queue(t, v, request(inventory.VerbCommission, "a", inventory.GroupMaster))
	verify := queue(t, v, request(inventory.VerbVerify, "a", ""))

	got := TurnOf(*v, inventory.DefaultGroups(), 4, verify, func(j Job) string {
		if j.ID == held.ID {
			return "it is night"
		}
		return ""
	})
	if got.Claim || got.Err != nil || !slices.Equal(got.WaitsFor, []string{held.ID}) {
		t.Errorf("%+v", got)
	}
}
