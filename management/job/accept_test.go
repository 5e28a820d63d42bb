// SPDX-License-Identifier: Apache-2.0

package job_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	. "github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/job/jobtest"
)

func request(verb inventory.Verb, labels, group string) Request {
	return Request{Verb: verb, Nodes: jobtest.Names(labels), Group: group, Timeout: time.Hour}
}

func with(r Request, o inventory.JobOptions) Request {
	r.JobOptions = o
	return r
}

// queue accepts the request and puts the job into the view.
func queue(t *testing.T, v *Snapshot, r Request) Job {
	t.Helper()

	j, err := Accept(*v, inventory.DefaultGroups(), r)
	if err != nil {
		t.Fatalf("%s of %v: %v", r.Verb, r.Nodes, err)
	}

	jobtest.SetNewest(v, v.Newest()+1)
	j.ID, j.Accepted = strconv.FormatUint(v.Newest(), 10), jobtest.Noon
	v.PutJob(&j)

	return j
}

// claimed marks a job of the view as Running and holds its nodes.
func claimed(t *testing.T, v *Snapshot, id string) {
	t.Helper()

	for _, j := range v.Jobs() {
		if j.ID != id {
			continue
		}

		j.Status, j.Started = Running, jobtest.Noon

		row, _ := inventory.TransitionOf(j.Verb)
		for _, target := range j.Targets {
			for _, n := range v.Nodes() {
				if n.Name != target.Name {
					continue
				}

				group := ""
				if j.Verb == inventory.VerbCommission {
					group = target.Group
				}
				held, _, err := n.Hold(row, group, inventory.Trigger{Job: j.ID, Time: jobtest.Noon})
				if err != nil {
					t.Fatal(err)
				}
				v.PutNode(&held)
			}
		}
	}
}

func TestAcceptRefuses(t *testing.T) {
	t.Parallel()
	usual := []string{
		"free - Unallocated Discovered",
		"gone - Unallocated Disappeared",
		"master m Allocated Discovered",
		"worker w Allocated Discovered",
		"old - Decommissioned Discovered",
		"bad w Quarantined Discovered",
		"busy w Provisioning Discovered",
		"fresh - Unallocated Unknown",
	}

	const (
		commission   = inventory.VerbCommission
		update       = inventory.VerbUpdate
		maintenance  = inventory.VerbMaintenance
		decommission = inventory.VerbDecommission
		clearNodes   = inventory.VerbClear
		discover     = inventory.VerbDiscover
	)

	for _, tt := range []struct {
		name  string
		nodes []string
		req   Request
		kind  inventory.Kind
		says  []string
	}{
		{
			"unknown nodes, all of them named", usual, request(commission, "free nope other", "m"),
			inventory.KindNotFound, []string{"nope-1, other-1"},
		},
		{"an empty list", usual, request(decommission, "", ""), inventory.KindInvalid, []string{"no node is named"}},
		{
			"duplicate names, each once", usual, request(commission, "free old free old free", ""),
			inventory.KindInvalid, []string{"named more than once: free-1, old-1"},
		},
		{
			"not Discovered", usual, request(commission, "gone", ""), inventory.KindRefused,
			[]string{"gone-1 is Disappeared", "submit verb=discover addrs=10.0.0.2"},
		},
		{"never seen", usual, request(commission, "fresh", ""), inventory.KindRefused, []string{"fresh-1 is Unknown"}},
		{"several refusals together", usual, request(commission, "gone worker busy free", ""), inventory.KindRefused,
			[]string{
				"gone-1 is Disappeared", "worker-1 is Allocated", "busy-1 is Provisioning: job 99 holds it",
				"correct or leave out the nodes named",
			}},
		{
			"a group that does not exist", usual, request(commission, "free", "nope"), inventory.KindNotFound,
			[]string{`no group "nope"`, "service-master, service-worker"},
		},
		{
			"an update into a group that does not exist", usual, request(update, "worker", "nope"),
			inventory.KindNotFound, []string{`no group "nope"`},
		},
		{
			"the group of hosts being prepared", usual, request(commission, "free", inventory.GroupPrepare),
			inventory.KindNotFound, []string{"cluster-node"},
		},
		{"a worker before any master", []string{"a - Unallocated Discovered"},
			request(commission, "a", inventory.GroupWorker), inventory.KindRefused,
			[]string{"a-1 cannot join service-worker", "service-master"}},
		{"a worker while the master is away", []string{"a - Unallocated Discovered", "m m Allocated Disappeared"},
			request(commission, "a", inventory.GroupWorker),
			inventory.KindRefused, []string{"1 healthy node of service-master", "not healthy: m-1 (Disappeared)"}},
		{
			"the last master with workers left", usual, request(decommission, "master", ""), inventory.KindRefused,
			[]string{"without master-1", "worker-1", "decommission busy-1, worker-1 with it"},
		},
		{
			"an update of the last master", usual, request(update, "master", ""), inventory.KindRefused,
			[]string{"without master-1"},
		},
		{
			"a master made a worker with nobody left to serve it", []string{"m m Allocated Discovered"},
			request(update, "m", inventory.GroupWorker), inventory.KindRefused, []string{"m-1 cannot join"},
		},
		{
			"update of what is not commissioned", usual, request(update, "free", ""), inventory.KindRefused,
			[]string{
				"free-1 is Unallocated; update takes nodes that are Allocated", "legal now: manage, commission, forget",
			},
		},
		{
			"maintenance of a node that is away", []string{"m m Allocated Disappeared"}, request(maintenance, "m", ""),
			inventory.KindRefused, []string{"m-1 is Disappeared"},
		},
		{
			"clear of what is not quarantined", usual, request(clearNodes, "free", ""), inventory.KindRefused,
			[]string{"clear takes nodes that are Quarantined"},
		},
		{
			"a name outside the grammar", usual, Request{Verb: decommission, Nodes: []string{"free-1", "../etc"}},
			inventory.KindInvalid, []string{`"../etc" is not a node name`},
		},
		{
			"a name that is empty", usual, Request{Verb: decommission, Nodes: []string{""}}, inventory.KindInvalid,
			[]string{"the node name is empty"},
		},
		{
			"addresses where nodes belong", usual, Request{Verb: decommission, Addrs: []string{"10.0.0.1"}},
			inventory.KindInvalid, []string{"takes nodes, not addresses"},
		},
		{"no such verb", usual, request("explode", "free", ""), inventory.KindInvalid, []string{`no verb "explode"`}},
		{
			"a verb of the monitor", usual, request(inventory.VerbDiscovered, "free", ""), inventory.KindInvalid,
			[]string{"no verb"},
		},
		{
			"a group where none belongs", usual, request(decommission, "worker", inventory.GroupWorker),
			inventory.KindInvalid, []string{"decommission does not accept group"},
		},
		{
			"on_failure where it does not belong", usual,
			with(request(update, "worker", ""), inventory.JobOptions{OnFailure: inventory.OnFailureBatch}),
			inventory.KindInvalid, []string{"does not accept on_failure"},
		},
		{
			"on_failure of another word", usual,
			with(request(commission, "free", ""), inventory.JobOptions{OnFailure: "all"}),
			inventory.KindInvalid, []string{`"batch" or "failed"`},
		},
		{
			"force where it does not belong", usual,
			with(request(decommission, "worker", ""), inventory.JobOptions{Force: true}),
			inventory.KindInvalid, []string{"does not accept force"},
		},
		{
			"clear by force without a reason", usual,
			with(request(clearNodes, "bad", ""), inventory.JobOptions{Force: true}),
			inventory.KindInvalid, []string{"give a reason"},
		},
		{
			"an endless reason", usual,
			with(request(clearNodes, "bad", ""), inventory.JobOptions{
				SharedOptions: inventory.SharedOptions{Reason: strings.Repeat("x", 1025)},
			}),
			inventory.KindTooLarge, []string{"1024"},
		},
		{
			"a negative timeout", usual, Request{Verb: clearNodes, Nodes: jobtest.Names("bad"), Timeout: -1},
			inventory.KindInvalid, []string{"negative"},
		},
		{
			"a take-over without a reason", usual,
			with(Request{Verb: discover, Addrs: []string{"10.0.0.9"}}, inventory.JobOptions{TakeOver: true}),
			inventory.KindInvalid, []string{"a reason is needed"},
		},
		{
			"a take-over by another verb", usual,
			with(request(commission, "free", ""), inventory.JobOptions{TakeOver: true}),
			inventory.KindInvalid, []string{"commission does not accept take_over", "it belongs to discover"},
		},
		{"discover of nothing", usual, Request{Verb: discover}, inventory.KindInvalid, []string{"no address is named"}},
		{
			"discover of nodes", usual, Request{Verb: discover, Nodes: jobtest.Names("free")}, inventory.KindInvalid,
			[]string{"discover takes addresses"},
		},
		{
			"discover of what is no address", usual,
			Request{Verb: discover, Addrs: []string{"10.0.0.9", "10.0.0.9 ansible_user=x"}}, inventory.KindInvalid,
			[]string{"is not the address of a host"},
		},
		{
			"discover twice", usual, Request{Verb: discover, Addrs: []string{"fd00::9", "FD00:0::9"}},
			inventory.KindInvalid, []string{"named more than once: fd00::9"},
		},
		{
			"discover of a node that is seen", usual, Request{Verb: discover, Addrs: []string{"10.0.0.9", "10.0.0.1"}},
			inventory.KindRefused, []string{"10.0.0.1 is node free-1, which is Discovered already"},
		},
		{
			"discover of a node that is held", usual, Request{Verb: discover, Addrs: []string{"10.0.0.7"}},
			inventory.KindRefused, []string{"10.0.0.7 is node busy-1, which job 99 holds"},
		},
	} {
		v := jobtest.Snapshot(t, tt.nodes...)
		if tt.req.Group == "m" {
			tt.req.Group = inventory.GroupMaster
		}
		j, err := Accept(*v, inventory.DefaultGroups(), tt.req)
		if inventory.KindOf(err) != tt.kind {
			t.Errorf("%s: %+v, %v", tt.name, j, err)
			continue
		}

		if strings.Contains(err.Error(), "as it will be") {
			t.Errorf("%s: no job is ahead: %v", tt.name, err)
		}

		text := err.Error()
		if e, ok := errors.AsType[*inventory.Error](err); ok {
			text += fmt.Sprint(e.Actions)
		}

		for _, s := range tt.says {
			if !strings.Contains(text, s) {
				t.Errorf("%s: %q is not in: %s", tt.name, s, text)
			}
		}
	}
}

func TestAccept(t *testing.T) {
	t.Parallel()
	v := jobtest.Snapshot(
		t,
		"free - Unallocated Discovered",
		"master m Allocated Discovered",
		"worker w Allocated Discovered",
		"gone - Unallocated Disappeared",
	)
	v.Nodes()[1].Residue, v.Nodes()[1].Applied = []string{"x"}, "7" // gone-1

	j := queue(t, v, request(inventory.VerbCommission, "free", ""))
	if j.Group != inventory.GroupWorker || !strings.Contains(j.Note, "service-worker is taken") ||
		j.OnFailure != inventory.OnFailureBatch || j.Status != Queued ||
		j.Targets[0].Group != inventory.GroupWorker ||
		j.Targets[0].From != inventory.Unallocated ||
		j.Targets[0].Addr != "10.0.0.1" {
		t.Errorf("%+v", j)
	}

	j = queue(t, v, request(inventory.VerbUpdate, "worker", ""))
	if got := j.Targets[0]; got.Group != inventory.GroupWorker || got.FromGroup != inventory.GroupWorker ||
		j.Group != "" ||
		j.Note != "" {
		t.Errorf("an update keeps the group: %+v", got)
	}

	// A dead host can be decommissioned, with those that depend on it; order is kept.
	v = jobtest.Snapshot(t, "a m Allocated Disappeared", "b w Allocated Disappeared")
	if j = queue(t, v, request(inventory.VerbDecommission, "b a", "")); !slices.Equal(j.Names(), jobtest.Names("b a")) {
		t.Errorf("%v", j.Names())
	}

	// A discover of a node that has disappeared keeps its identity.
	v = jobtest.Snapshot(t, "a m Allocated Disappeared")

	j = queue(t, v, Request{Verb: inventory.VerbDiscover, Addrs: []string{"10.0.0.9", "10.0.0.1", "FD00:0::9"}})
	if j.Targets[0].Label != "" || j.Targets[1].Label != "a" || j.Targets[1].Serial != "1" ||
		j.Targets[2].Addr != "fd00::9" ||
		j.Targets[0].Group != inventory.GroupPrepare {
		t.Errorf("%+v", j.Targets)
	}
}

// TestDefaultGroupFollowsTheQueue: with a master queued, the next one is a worker.
func TestDefaultGroupFollowsTheQueue(t *testing.T) {
	t.Parallel()

	v := jobtest.Snapshot(t, "a - Unallocated Discovered", "b - Unallocated Discovered")
	if j := queue(t, v, request(inventory.VerbCommission, "a", "")); j.Group != inventory.GroupMaster {
		t.Errorf("the first is a %s", j.Group)
	}
	if j := queue(t, v, request(inventory.VerbCommission, "b", "")); j.Group != inventory.GroupWorker {
		t.Errorf("the second is a %s", j.Group)
	}
}

// TestAcceptProjects checks requests against the nodes as they will be.
func TestAcceptProjects(t *testing.T) {
	t.Parallel()
	const (
		commission   = inventory.VerbCommission
		decommission = inventory.VerbDecommission
		update       = inventory.VerbUpdate
		forget       = inventory.VerbForget
	)

	m, w := inventory.GroupMaster, inventory.GroupWorker
	for _, tt := range []struct {
		name  string
		nodes []string
		ahead []Request
		req   Request
		says  string // "": accepted
	}{
		{"a worker behind its master", []string{"a - Unallocated Discovered", "b - Unallocated Discovered"},
			[]Request{request(commission, "a", m)}, request(commission, "b", w), ""},
		{"decommission behind commission", []string{"a - Unallocated Discovered"},
			[]Request{request(commission, "a", m)}, request(decommission, "a", ""), ""},
		{"commission again behind decommission", []string{"a m Allocated Discovered"},
			[]Request{request(decommission, "a", "")}, request(commission, "a", m), ""},
		{"twice the same", []string{"a - Unallocated Discovered"},
			[]Request{
				request(commission, "a", m),
			}, request(commission, "a", m),
			"a-1 is Allocated; commission takes nodes that are Unallocated or Decommissioned (as it will be after " +
				"job 1); "},
		{"the last master while a worker is queued", []string{"a m Allocated Discovered", "b - Unallocated Discovered"},
			[]Request{
				request(commission, "b", w),
			}, request(decommission, "a", ""), "and there is none (as it will be after job 1); "},
		{"a worker behind the end of the last master", []string{
			"a m Allocated Discovered", "b - Unallocated Discovered",
		},
			[]Request{
				request(decommission, "a", ""),
			}, request(commission, "b", w),
			"outside this request, and there is none (as it will be after the jobs that have not ended); "},
		{"the first master once the second is queued", []string{
			"a m Allocated Discovered", "b - Unallocated Discovered", "c w Allocated Discovered",
		},
			[]Request{request(commission, "b", m)}, request(decommission, "a", ""), ""},
		{"the last master behind its workers", []string{"a m Allocated Discovered", "b w Allocated Discovered"},
			[]Request{request(decommission, "b", "")}, request(decommission, "a", ""), ""},
		{"a worker that will be the master", []string{"a m Allocated Discovered", "b w Allocated Discovered"},
			[]Request{request(update, "b", m)}, request(decommission, "a", ""), ""},
		{"what will be forgotten", []string{"a - Unallocated Discovered"},
			[]Request{
				request(forget, "a", ""),
			}, request(commission, "a", m), "a-1 is no longer known, or will be forgotten by then"},
	} {
		v := jobtest.Snapshot(t, tt.nodes...)
		for _, r := range tt.ahead {
			queue(t, v, r)
		}

		_, err := Accept(*v, inventory.DefaultGroups(), tt.req)
		if tt.says == "" && err != nil ||
			tt.says != "" &&
				(inventory.KindOf(err) != inventory.KindRefused || !strings.Contains(err.Error(), tt.says)) {
			t.Errorf("%s: %v", tt.name, err)
		}

		// It is the same when the job ahead runs already.
		for _, j := range v.Jobs() {
			if j.Verb != forget {
				claimed(t, v, j.ID)
			}
		}

		if _, err := Accept(*v, inventory.DefaultGroups(), tt.req); (err == nil) != (tt.says == "") {
			t.Errorf("%s, with the first job running: %v", tt.name, err)
		}
	}
}

// TestProjectionKnowsOutcomes: a job that has failed, and only has to say so,
// no longer counts as a success to come.
func TestProjectionKnowsOutcomes(t *testing.T) {
	t.Parallel()
	v := jobtest.Snapshot(t, "a - Unallocated Discovered", "b - Unallocated Discovered")
	queue(t, v, request(inventory.VerbCommission, "a", inventory.GroupMaster))
	claimed(t, v, "1")

	v.Jobs()[0].Outcomes = map[string]inventory.Outcome{"a-1": {Status: inventory.Unallocated}}
	if _, err := Accept(
		*v,
		inventory.DefaultGroups(),
		request(inventory.VerbCommission, "b", inventory.GroupWorker),
	); err == nil {
		t.Error("a worker is accepted behind a master that has failed")
	}
}

func TestQueueIsBounded(t *testing.T) {
	t.Parallel()

	v := jobtest.Snapshot(t, "a m Allocated Discovered")
	for i := range MaxQueued {
		v.PutJob(&Job{ID: strconv.Itoa(i + 1), Status: Queued, Verb: inventory.VerbMaintenance})
	}

	if _, err := Accept(
		*v,
		inventory.DefaultGroups(),
		request(inventory.VerbMaintenance, "a", ""),
	); inventory.KindOf(
		err,
	) != inventory.KindRefused {
		t.Errorf("%v", err)
	}
}

// TestFirstGenerationHalfRefused: a request refused half-way left nodes in a
// wrong status or group, and commissioning a decommissioned node together with
// an allocated one corrupted the first. accept decides for all nodes, on a
// snapshot that it cannot change.
func TestFirstGenerationHalfRefused(t *testing.T) {
	t.Parallel()
	v := jobtest.Snapshot(t, "a - Decommissioned Discovered", "b m Allocated Discovered", "c - Unallocated Discovered")
	before := fmt.Sprintf("%+v", jobtest.Records(v))

	_, err := Accept(*v, inventory.DefaultGroups(), request(inventory.VerbCommission, "a b c", inventory.GroupWorker))
	if e, ok := errors.AsType[*inventory.Error](err); !ok || e.Kind != inventory.KindRefused ||
		!slices.Equal(e.Nodes, []string{"b-1"}) {
		t.Errorf("%v", err)
	}

	if after := fmt.Sprintf("%+v", jobtest.Records(v)); after != before {
		t.Errorf("nodes were changed:\n%s\n%s", before, after)
	}
}

// TestTogether: a refusal about many nodes says why of some, and names all.
func TestTogether(t *testing.T) {
	t.Parallel()

	var refusals []*inventory.Error
	for i := range 1000 {
		name := fmt.Sprintf("n-%d", i)
		refusals = append(
			refusals,
			inventory.Errorf(inventory.KindRefused, "%s is still Discovered", name).
				Do("repeat by force").
				With(inventory.ForgetNodes(name).Forced()).
				About(name),
		)
	}

	err, _ := errors.AsType[*inventory.Error](Combine(refusals))
	if want := "; n-7 is still Discovered; and 992 more"; !strings.HasSuffix(err.Message, want) ||
		len(err.Nodes) != 1000 ||
		err.Remedy != "repeat by force" {
		t.Errorf("%s\n%d nodes\n%s", err.Message, len(err.Nodes), err.Remedy)
	}

	// The explained refusals have the same action, on eight nodes.
	if got := fmt.Sprint(err.Actions); got != "[forget-nodes nodes=n-0,n-1,n-2,n-3,n-4,n-5,n-6,n-7 force=true]" {
		t.Errorf("the actions are %s", got)
	}

	if refusals[0].Message != "n-0 is still Discovered" || len(refusals[0].Nodes) != 1 {
		t.Errorf("%+v", refusals[0])
	}
}
