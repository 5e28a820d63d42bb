// SPDX-License-Identifier: Apache-2.0

package job_test

import (
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	. "github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/job/jobtest"
)

// tagged are groups with tags, and one without.
func tagged() inventory.Groups {
	return inventory.Groups{
		{Name: "web", Tags: []string{"base", "app"}, SkipTags: []string{"slow"}},
		{Name: "edge", Tags: []string{"app", "base"}, SkipTags: []string{"slow"}},
		{Name: "db", Tags: []string{"base", "disk"}},
		{Name: "plain"},
	}
}

// servers are a node of each of those groups, and one that is free.
func servers(t *testing.T) *Snapshot {
	t.Helper()

	v := jobtest.Snapshot(t,
		"db - Allocated Discovered", "edge - Allocated Discovered", "free - Unallocated Discovered",
		"plain - Allocated Discovered", "web - Allocated Discovered")
	for _, n := range v.Nodes() {
		if n.Status == inventory.Allocated {
			n.Group = n.Label
		}
	}

	return v
}

// TestGroupTagsOfJob: a job has the tags of the groups that its targets are in or enter, as
// they were at its acceptance, for the runs that configure or verify, and never for a cleanup.
func TestGroupTagsOfJob(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		request Request
		phase   Phase
		group   string
		pinned  string // groups
		options string
	}{
		{request(inventory.VerbCommission, "free", "web"), PhaseConfigure, "web", "web",
			"tags app, base; skip_tags slow"},
		{request(inventory.VerbCommission, "free", "web"), PhaseUndo, "web", "web", ""},
		{request(inventory.VerbCommission, "free", "plain"), PhaseConfigure, "plain", "", ""},
		{request(inventory.VerbUpdate, "web", "db"), PhaseConfigure, "db", "db web", "tags base, disk"},
		{request(inventory.VerbUpdate, "web", "db"), PhaseCleanup, "web", "db web", ""},
		{request(inventory.VerbReapply, "db", ""), PhaseConfigure, "db", "db", "tags base, disk"},
		{request(inventory.VerbReapply, "db", ""), PhaseCleanup, "db", "db", ""},
		{request(inventory.VerbApply, "web edge", ""), PhaseApply, "edge", "edge web",
			"tags app, base; skip_tags slow"},
		{request(inventory.VerbMaintenance, "db", ""), PhaseUpgrade, "db", "db", "tags base, disk"},
		{request(inventory.VerbVerify, "db plain web", ""), PhaseDrift, "db", "db web", "check; diff; tags base, disk"},
		{request(inventory.VerbVerify, "db plain web", ""), PhaseVerify, "web", "db web",
			"tags app, base; skip_tags slow"},
		{request(inventory.VerbVerify, "db plain web", ""), PhaseVerify, "plain", "db web", ""},
		{request(inventory.VerbDecommission, "db", ""), PhaseCleanup, "db", "", ""},
	} {
		j, err := Accept(*servers(t), tagged(), tt.request)
		if err != nil {
			t.Errorf("%s of %v: %v", tt.request.Verb, tt.request.Nodes, err)
			continue
		}

		var pinned []string
		for group := range j.GroupTags {
			pinned = append(pinned, group)
		}

		slices.Sort(pinned)

		if got := j.AnsibleOf(tt.phase, []string{tt.group}).String(); got != tt.options ||
			strings.Join(pinned, " ") != tt.pinned {
			t.Errorf("%s, %s: got %q with %v, want %q with %q", tt.request.Verb, tt.phase, got, pinned, tt.options,
				tt.pinned)
		}

		if j.Partial() {
			t.Errorf("%s: the tags of a group are no part of the request: %+v", tt.request.Verb, j.JobOptions)
		}
	}
}

// TestMixedTags refuses a run with two choices of tasks, and names a job for each.
func TestMixedTags(t *testing.T) {
	t.Parallel()

	r := request(inventory.VerbApply, "web db plain edge", "")
	r.Extra, r.Reason = configuration.Vars{"size": int64(3)}, "growth"

	_, err := Accept(*servers(t), tagged(), r)
	const want = "the groups of its nodes have different tags, and a job has one choice of tasks: " +
		"db (tags base, disk), edge, web (tags app, base; skip_tags slow), plain (all tasks); " +
		"submit one job for each, with the values of its variables size, which are not shown"

	refused, ok := errors.AsType[*inventory.Error](err)
	if !ok || refused.Kind != inventory.KindRefused || refused.Error() != want {
		t.Fatalf("got  %v\nwant %s", err, want)
	}

	var nodes []string
	for _, a := range refused.Actions {
		nodes = append(nodes, strings.Join(a.Nodes, " "))

		// Each of these jobs is accepted.
		again := Request{Verb: a.Verb, Nodes: a.Nodes, Group: a.Group, Timeout: r.Timeout}
		if _, err := Accept(*servers(t), tagged(), again); err != nil || a.Reason != "growth" {
			t.Errorf("%+v: %v", a, err)
		}
	}

	if got := strings.Join(nodes, ", "); got != "db-1, edge-1 web-1, plain-1" {
		t.Error(got)
	}

	// They may be cleaned, verified and moved to one group together.
	for _, r := range []Request{
		request(inventory.VerbDecommission, "web db plain", ""),
		request(inventory.VerbVerify, "web db plain", ""),
		request(inventory.VerbUpdate, "web db plain", "edge"),
	} {
		if _, err := Accept(*servers(t), tagged(), r); err != nil {
			t.Errorf("%s: %v", r.Verb, err)
		}
	}
}

// TestTagsOfRequest: a request chooses among the tags of the group.
func TestTagsOfRequest(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		labels, tags, skip string
		want               string // the options of the run, or the refusal
	}{
		{"web", "app", "", "tags app; skip_tags slow"},
		{"web", "", "app", "tags app, base; skip_tags slow, app"},
		{"plain", "app", "", "tags app"},
		{"web", "disk", "", `tags: "disk" is not among the tags of group web: app, base`},
		{"web", "slow", "", `tags: group web skips the tag "slow"`},
		{"web db", "base", "", "the groups of its nodes have different tags"},
	} {
		r := request(inventory.VerbApply, tt.labels, "")
		r.Tags, r.SkipTags = strings.Fields(tt.tags), strings.Fields(tt.skip)

		j, err := Accept(*servers(t), tagged(), r)

		got := j.AnsibleOf(PhaseApply, []string{tt.labels}).String()
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, tt.want) || err == nil && got != tt.want {
			t.Errorf("%+v: got %q", tt, got)
		}
	}
}

// TestVerifyByTags: nodes of groups with different tags are verified in runs of their own,
// each with a verdict.
func TestVerifyByTags(t *testing.T) {
	t.Parallel()

	j := jobtest.Planned(inventory.VerbVerify, "", "a Allocated web", "b Allocated db", "c Allocated edge")
	j.GroupTags = tagged().Selections()
	j.Targets[0].Configured, j.Targets[0].ConfiguredTags = "k-v", "tags app, base; skip_tags slow"
	j.Targets[0].Variables = "k-v"
	j.Targets[1].Configured, j.Targets[1].ConfiguredTags, j.Targets[1].Variables = "k-v", "", "k-v"

	tell(t, j, nobodyMinds, `
		verify verify.yml a:web c:edge
		> done
		verify verify.yml b:db
		> done
		drift site.yml a:web c:edge
		> done a=differs
		drift site.yml b:db
		> done b=differs
		Errored drifted
		a: Allocated web 3 | drifted: 2 tasks would change
		b: Allocated db 3 | drifted: 2 tasks would change; compared with a configuration that was not applied yet
		c: Allocated edge 3`)
}

// TestVerifyByMasters: a node that is compared with other masters than those that configured it is
// outdated, and one without a record of them is not.
func TestVerifyByMasters(t *testing.T) {
	t.Parallel()

	j := jobtest.Planned(inventory.VerbVerify, "", "a Allocated web", "b Allocated web")
	j.Targets[0].Configured, j.Targets[0].Variables, j.Targets[0].ConfiguredMasters = "k-v", "k-v", "k-old"
	j.Targets[1].Configured, j.Targets[1].Variables = "k-v", "k-v"

	for _, phase := range []Phase{PhaseVerify, PhaseDrift} {
		j.Runs = append(j.Runs, Run{
			Phase: phase, Playbook: PlaybookSite, Hosts: []string{"a", "b"}, Groups: []string{"web", "web"},
			Exit: ExitDone, Masters: "k-new", Ended: jobtest.Noon,
			Results: map[string]HostResult{"a": {Done: true, Judged: 1}, "b": {Done: true, Judged: 1}},
		})
	}

	step := Plan(j, jobtest.Noon, nobodyMinds)
	if a, b := step.Outcomes["a"].Verdict, step.Outcomes["b"].Verdict; a == nil || b == nil || !a.Outdated ||
		b.Outdated {
		t.Errorf("%+v, %+v", a, b)
	}
}

// TestTagsAreConfigured: the tags of the group are a part of what a node carries.
func TestTagsAreConfigured(t *testing.T) {
	t.Parallel()

	for _, verb := range []inventory.Verb{inventory.VerbApply, inventory.VerbReapply, inventory.VerbMaintenance} {
		j := jobtest.Planned(verb, "", "a Allocated web")
		j.GroupTags = tagged().Selections()

		step := finishAll(t, j, func(Step) string { return "done" })
		if c := step.Outcomes["a"].Configured; c == nil || c.Tags != "tags app, base; skip_tags slow" {
			t.Errorf("%s: %+v", verb, c)
		}
	}
}

// TestWaitingJobKeepsTags: a change of the configuration does not change a job that waits.
func TestWaitingJobKeepsTags(t *testing.T) {
	t.Parallel()

	v, groups := servers(t), tagged()

	j, err := Accept(*v, groups, request(inventory.VerbApply, "web edge", ""))
	if err != nil {
		t.Fatal(err)
	}

	jobtest.SetNewest(v, v.Newest()+1)
	j.ID, j.Accepted = strconv.FormatUint(v.Newest(), 10), jobtest.Noon
	v.PutJob(&j)
	groups[0].Tags, groups[1].SkipTags = []string{"other"}, nil

	claims := 0

	for turn := range Turns(*v, groups, 4, nil) {
		claims++

		if turn.Err != nil || !reflect.DeepEqual(turn.Job.GroupTags, j.GroupTags) {
			t.Errorf("%v, %+v", turn.Err, turn.Job.GroupTags)
		}
	}

	if claims != 1 {
		t.Errorf("%d jobs can be claimed", claims)
	}
}

// TestTagsBetweenJobs: a node that the jobs ahead leave in a group between its own and the last
// one has the tags of that group.
func TestTagsBetweenJobs(t *testing.T) {
	t.Parallel()

	v, groups := servers(t), tagged()

	for i, r := range []Request{
		request(inventory.VerbUpdate, "plain", "db"), request(inventory.VerbUpdate, "plain", "web"),
		request(inventory.VerbApply, "plain", ""),
	} {
		j, err := Accept(*v, groups, r)
		if err != nil {
			t.Fatal(err)
		}

		jobtest.SetNewest(v, v.Newest()+1)
		j.ID, j.Accepted = strconv.Itoa(i+1), jobtest.Noon
		v.PutJob(&j)
	}

	// The first succeeds, and the second is cancelled while it waits.
	v.SetJobs(jobtest.Copies(v.Jobs())...)
	v.Jobs()[0].Status, v.Jobs()[1].Status = Complete, Cancelled

	for _, n := range v.Nodes() {
		if n.Name == "plain-1" {
			m := n.Clone()
			m.Group = "db"
			v.PutNode(&m)
		}
	}

	turn := TurnOf(*v, groups, 4, *v.Jobs()[2])
	if !turn.Claim || turn.Err != nil || turn.Job.Targets[0].Group != "db" {
		t.Fatalf("%t, %v, %+v", turn.Claim, turn.Err, turn.Job.Targets)
	}
	if o := turn.Job.AnsibleOf(PhaseApply, []string{"db"}); !slices.Equal(o.Tags, []string{"base", "disk"}) {
		t.Errorf("group db runs %s", o)
	}
}

// TestRetryTags: a retry has the tags of today and lists what differs; a pinned one has
// those of then.
func TestRetryTags(t *testing.T) {
	t.Parallel()

	v, groups := servers(t), tagged()

	r := request(inventory.VerbApply, "web", "")
	r.Tags = []string{"app"}

	old, err := Accept(*v, groups, r)
	if err != nil {
		t.Fatal(err)
	}
	old.ID, old.Status, old.Cause = "1", Errored, CauseFailed
	old.Outcomes = map[string]inventory.Outcome{"web-1": {Status: inventory.Allocated, Group: "web", Error: "no"}}
	jobtest.SetNewest(v, 1)
	v.SetJobs(&old)
	groups[0].Tags = []string{"app", "new"}

	for pinned, want := range map[bool]string{
		false: "tags of group web: tags app, new; skip_tags slow now, tags app, base; skip_tags slow then",
		true:  "",
	} {
		again, _, err := v.Retry(old, RetryRequest{Pinned: pinned})
		if err != nil {
			t.Fatal(err)
		}
		j, err := Accept(*v, groups, again)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(DifferentInputs(old, j, Inputs{}, Inputs{}), "; "); got != want {
			t.Errorf("pinned %t: got %q", pinned, got)
		}
	}

	// A tag that the group had then is refused today, unless the retry is pinned.
	groups[0].Tags = []string{"new"}

	for pinned, refused := range map[bool]bool{false: true, true: false} {
		again, _, err := v.Retry(old, RetryRequest{Pinned: pinned})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Accept(*v, groups, again); err != nil != refused {
			t.Errorf("pinned %t: %v", pinned, err)
		}
	}
}
