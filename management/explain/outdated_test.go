// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/desired"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/job/jobtest"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/variable"
)

// TestExplainOutdated: an explanation names the changes since a node was configured, with
// their time and the remedy. An unknown configuration is no reason to call it outdated.
func TestExplainOutdated(t *testing.T) {
	t.Parallel()

	applied := jobtest.Noon
	later := applied.Add(2 * time.Minute)
	changed := func(at time.Time, names ...string) variable.Change {
		vars := configuration.Vars{}
		for _, name := range names {
			vars[name] = "x"
		}

		return variable.Change{Time: at, After: vars}
	}
	outdated := func(parts ...inventory.Part) desired.Judgement {
		return desired.Judgement{
			InService: true, Known: true, Outdated: true, Differs: parts,
			Desired: inventory.Configuration{Playbooks: "p", Variables: "k-v"},
		}
	}
	configured := &inventory.Configured{Time: applied}

	const summary = "it is in service; "

	for name, c := range map[string]struct {
		facts          func(*Facts)
		node           func(*inventory.Node)
		summary, found string // found: the finding, with its actions; empty: none
		remedy         string // empty: any
		since          time.Time
	}{
		"up to date": {
			facts:   func(f *Facts) { f.Judgement = desired.Judgement{InService: true, Known: true} },
			summary: summary + "up to date; not verified",
		},
		"playbooks": {
			facts: func(f *Facts) {
				f.Judgement, f.Playbooks = outdated(inventory.PartPlaybooks), state.Playbooks{Since: later}
			},
			summary: summary + "outdated (playbooks); not verified",
			found: "outdated: it is outdated: the playbooks are others than those that configured it, " +
				"since 2026-01-02T12:02:00Z [submit verb=apply nodes=a-1]",
			since: later,
		},
		"playbooks that are older than the node": {
			facts: func(f *Facts) {
				f.Judgement = outdated(inventory.PartPlaybooks)
				f.Playbooks = state.Playbooks{Since: applied.Add(-time.Hour)}
			},
			summary: summary + "outdated (playbooks)",
			found: "outdated: it is outdated: the playbooks are others than those that configured it " +
				"[submit verb=apply nodes=a-1]",
		},
		"variables": {
			facts: func(f *Facts) {
				f.Judgement = outdated(inventory.PartVariables)
				f.Changes = map[state.Scope][]variable.Change{
					state.ScopeGlobal: {
						changed(applied.Add(-time.Hour), "old"), changed(later.Add(time.Second), "b", "a"),
					},
					state.ScopeGroup(inventory.GroupMaster): {changed(later, "g")},
				}
			},
			summary: summary + "outdated (variables)",
			found: "outdated: it is outdated: variables have changed: a, b (global), g (group/service-master), " +
				"since 2026-01-02T12:02:00Z [submit verb=apply nodes=a-1]",
			since: later,
		},
		"a change while the job ran": {
			facts: func(f *Facts) {
				put(f.View, job.Job{Accepted: applied.Add(-10 * time.Minute)}, "3", job.Complete)
				f.Judgement = outdated(inventory.PartVariables)
				f.Changes = map[state.Scope][]variable.Change{
					state.ScopeNode("a-1"): {changed(applied.Add(-time.Minute), "n")},
				}
			},
			summary: summary + "outdated (variables)",
			found: "outdated: it is outdated: variables have changed: n (node/a-1), since 2026-01-02T11:59:00Z " +
				"[submit verb=apply nodes=a-1]",
			since: applied.Add(-time.Minute),
		},
		"tags of the group": {
			facts: func(f *Facts) {
				f.Judgement = outdated(inventory.PartTags)
				f.Judgement.Desired.Tags = "tags web"
			},
			summary: summary + "outdated (tags)",
			found: "outdated: it is outdated: the tags of group service-master have changed: tags web now, " +
				"all tasks then [submit verb=apply nodes=a-1]",
		},
		"other masters": {
			facts: func(f *Facts) {
				f.Judgement, f.Masters = outdated(inventory.PartMasters), []string{"a-1", "c-1"}
				f.Judgement.Desired.Masters = "k-two-v"
			},
			node: func(n *inventory.Node) {
				n.Configured.Masters, n.Configured.MasterNames = "k-one-v", []string{"a-1", "b-1"}
			},
			summary: summary + "outdated (masters)",
			found: "outdated: it is outdated: the masters have changed: with c-1, without b-1 " +
				"[submit verb=apply nodes=a-1]",
		},
		"variables of the masters": {
			facts: func(f *Facts) {
				f.Judgement = outdated(inventory.PartMasters)
				f.Judgement.Desired.Masters = "k-one-w"
			},
			node: func(n *inventory.Node) {
				n.Configured.Masters, n.Configured.MasterNames = "k-one-v", []string{"a-1"}
			},
			summary: summary + "outdated (masters)",
			found: "outdated: it is outdated: variables of the masters have changed " +
				"[submit verb=apply nodes=a-1]",
		},
		"a master with another address and variables": {
			facts: func(f *Facts) {
				f.Judgement, f.Masters = outdated(inventory.PartMasters), []string{"a-1"}
				f.Judgement.Desired.Masters = "k-two-w"
			},
			node: func(n *inventory.Node) {
				n.Configured.Masters, n.Configured.MasterNames = "k-one-v", []string{"a-1"}
			},
			summary: summary + "outdated (masters)",
			found: "outdated: it is outdated: the address or the group of a master has changed; " +
				"variables of the masters have changed [submit verb=apply nodes=a-1]",
		},
		"variables of the file": {
			facts:   func(f *Facts) { f.Judgement = outdated(inventory.PartVariables) },
			summary: summary + "outdated (variables)",
			found: "outdated: it is outdated: its variables are others than those that configured it, " +
				"and no change of them is recorded since 2026-01-02T12:00:00Z [submit verb=apply nodes=a-1]",
		},
		"variables of the request": {
			facts: func(f *Facts) {
				f.Judgement = outdated(inventory.PartVariables)
				f.Judgement.Undone, f.Request = []string{"x", "y"}, configuration.Vars{"x": "2.0", "y": 5}
			},
			summary: summary + "outdated (variables)",
			found: "outdated: it is outdated: its variables are others than those that configured it; " +
				`only the request of job 3 had set x, y [set-variable nodes=a-1 key=x value="2.0" ` +
				"set-variable nodes=a-1 key=y value=5]",
		},
		"variables of the request, and playbooks": {
			facts: func(f *Facts) {
				f.Judgement = outdated(inventory.PartPlaybooks, inventory.PartVariables)
				f.Judgement.Undone, f.Request = []string{"x"}, configuration.Vars{"x": "2.0"}
			},
			summary: summary + "outdated (playbooks, variables)",
			found: "outdated: it is outdated: the playbooks are others than those that configured it; " +
				"its variables are others than those that configured it; only the request of job 3 had set x " +
				`[set-variable nodes=a-1 key=x value="2.0" submit verb=apply nodes=a-1]`,
		},
		"a variable of the request that the folder sets": {
			facts: func(f *Facts) {
				f.Judgement = outdated(inventory.PartVariables)
				f.Judgement.Undone = []string{"color", "x"}
				f.Request = configuration.Vars{"color": "green", "x": "2.0"}
				f.HostVars = map[string]configuration.FileVar{"color": {File: "host_vars/a-1.yml", Value: "blue"}}
			},
			summary: summary + "outdated (variables)",
			found: "outdated: it is outdated: its variables are others than those that configured it; " +
				`only the request of job 3 had set color, x [set-variable nodes=a-1 key=x value="2.0"]`,
			remedy: "keep color by setting it in host_vars/a-1.yml of the playbooks: host_vars wins over a variable " +
				"of the node; keep x by setting it for the node: an apply alone takes it back; then configure it again",
		},
		"a secret of the request": {
			facts: func(f *Facts) {
				f.Judgement = outdated(inventory.PartVariables)
				f.Judgement.Undone = []string{"x"}
			},
			summary: summary + "outdated (variables)",
			found: "outdated: it is outdated: its variables are others than those that configured it; " +
				"only the request of job 3 had set x [show-job job=3]",
		},
		"both": {
			facts: func(f *Facts) {
				f.Judgement = outdated(inventory.PartPlaybooks, inventory.PartVariables)
			},
			summary: summary + "outdated (playbooks, variables)",
			found: "outdated: it is outdated: the playbooks are others than those that configured it; " +
				"its variables are others than those that configured it, and no change of them is recorded since " +
				"2026-01-02T12:00:00Z [submit verb=apply nodes=a-1]",
		},
		"a record of an earlier version": {
			facts:   func(f *Facts) { f.Judgement = desired.Judgement{InService: true} },
			node:    func(n *inventory.Node) { n.Configured = nil },
			summary: summary + "not verified",
			found: "applied: what job 3 applied to it was not recorded, so it is not known whether it is outdated " +
				"[submit verb=apply nodes=a-1]",
		},
		"playbooks that cannot be read": {
			facts:   func(f *Facts) { f.Judgement = desired.Judgement{InService: true} },
			summary: summary + "not verified",
			found: "applied: the playbooks of the manager cannot be read, so it is not known whether it is outdated " +
				"[show-health]",
		},
		"locked secrets": {
			facts: func(f *Facts) {
				f.Judgement = desired.Judgement{InService: true, Desired: inventory.Configuration{Playbooks: "p"}}
			},
			summary: summary + "not verified",
			found: "applied: its variables cannot be compared, because secrets are locked, " +
				"so it is not known whether it is outdated [show-health]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			v := &state.View{Snapshot: *jobtest.Snapshot(t, "a m Allocated Discovered")}
			n := v.Nodes()[0]
			n.Applied, n.Configured = "3", configured.Clone()

			if c.node != nil {
				c.node(n)
			}

			f := facts(v)
			c.facts(&f)

			e := ExplainNode(f, *n, nil)
			if !strings.HasPrefix(e.Summary, c.summary) || !e.Ready {
				t.Errorf("summary %q, ready %t, want %q", e.Summary, e.Ready, c.summary)
			}

			found, since := "", time.Time{}
			for _, one := range e.Findings {
				found, since = fmt.Sprintf("%s: %s %s", one.About, one.Message, one.Actions), one.Since

				if c.remedy != "" && one.Remedy != c.remedy {
					t.Errorf("remedy %q, want %q", one.Remedy, c.remedy)
				}
			}

			if found != c.found || !since.Equal(c.since) || len(e.Findings) > 1 {
				t.Errorf("found\n%s, since %s\nwant\n%s, since %s", found, since, c.found, c.since)
			}
		})
	}
}

// TestExplainUnknownConfiguration: the reason is the job that left it unknown,
// regardless of anything after it.
func TestExplainUnknownConfiguration(t *testing.T) {
	t.Parallel()

	ended := func(id string, verb inventory.Verb, o inventory.Outcome) job.Job {
		return job.Job{
			ID: id, Verb: verb, Status: job.Errored, Targets: []job.Target{{Name: "a-1"}},
			Outcomes: map[string]inventory.Outcome{"a-1": o},
		}
	}

	check := ended("7", inventory.VerbApply, inventory.Outcome{})
	check.Check = true

	part := ended("7", inventory.VerbApply, inventory.Outcome{})
	part.Tags = []string{"web"}

	for _, c := range []struct {
		job  job.Job
		want string
		verb inventory.Verb
	}{
		{ended("7", inventory.VerbVerify, inventory.Outcome{}), "job 7 executed tasks on it in spite of check mode",
			inventory.VerbApply},
		{check, "job 7 executed tasks on it in spite of check mode", inventory.VerbApply},
		{part, "job 7 ran only a part of the tasks on it (tags web)", inventory.VerbApply},
		{ended("7", inventory.VerbReapply, inventory.Outcome{Error: "x"}), "a job broke off on it",
			inventory.VerbReapply},
	} {
		v := &state.View{Snapshot: *jobtest.Snapshot(t, "a m Allocated Discovered")}
		v.SetJobs(jobtest.List(
			c.job, ended("8", inventory.VerbVerify, inventory.Outcome{AsBefore: true}),
			ended("9", inventory.VerbUpdate, inventory.Outcome{Untouched: true}),
		)...)

		found := ExplainNode(facts(v), *v.Nodes()[0], nil).Findings

		at := slices.IndexFunc(found, func(f Finding) bool { return f.About == AboutApplied })
		if at < 0 || found[at].Message != c.want+": its configuration is unknown" ||
			fmt.Sprint(found[at].Actions) != fmt.Sprintf("[submit verb=%s nodes=a-1]", c.verb) {
			t.Errorf("%s: %+v", c.want, found)
		}
	}
}

// TestExplainWithinBudget: an explanation offers no command that the budget refuses.
func TestExplainWithinBudget(t *testing.T) {
	t.Parallel()

	for minimum, want := range map[int]string{
		1: "configure it again [submit verb=apply nodes=a-1]",
		2: "configure it again, once the rules of its group allow it: " +
			"with 2 nodes, min_available 2 never allows it: " +
			"add a node to the group, or lower min_available " +
			"[set-group group=service-master key=budget.min_available value=1]",
	} {
		v := &state.View{Snapshot: *jobtest.Snapshot(t, "a m Allocated Discovered", "b m Allocated Discovered")}
		f := facts(v)
		f.Groups[0].Budget.MinAvailable = minimum

		found := ExplainNode(f, *v.Nodes()[0], nil).Findings

		at := slices.IndexFunc(found, func(f Finding) bool { return f.About == AboutApplied })
		if at < 0 || fmt.Sprint(found[at].Remedy, " ", found[at].Actions) != want {
			t.Errorf("min_available %d: %+v, want %s", minimum, found, want)
		}
	}
}

// TestExplainFailedGate: what a gate found is no verification, so there are no findings of one to look at. Only a
// verification, or a job that configures it, makes the node healthy again.
func TestExplainFailedGate(t *testing.T) {
	t.Parallel()

	v := &state.View{Snapshot: *jobtest.Snapshot(t, "a m Allocated Discovered", "b m Allocated Discovered")}
	n := v.Nodes()[0].FailGate("the gate of rollout r1 failed: no answer", jobtest.Noon)

	found := ExplainNode(facts(v), n, nil).Findings

	at := slices.IndexFunc(found, func(f Finding) bool { return f.About == AboutDrift })
	if at < 0 || found[at].Message != "it does not serve as it should: the gate of rollout r1 failed: no answer" ||
		fmt.Sprint(found[at].Actions) != "[submit verb=verify nodes=a-1]" {
		t.Errorf("%+v", found)
	}
}

// TestExplainStoppedRollout: the explanations of a node and of a job name the retry of their stopped rollout, with
// the corrected playbooks first if they have changed.
func TestExplainStoppedRollout(t *testing.T) {
	t.Parallel()

	v := &state.View{Snapshot: *jobtest.Snapshot(t, "a m Allocated Discovered", "b m Allocated Discovered")}
	v.View = record.WithList(v.View, &rollout.Kind, &rollout.Record{
		ID: "r1", Status: rollout.Stopped, Playbooks: "broken",
		Nodes: []rollout.Node{{Name: "a-1", State: rollout.Failed}},
	})

	j := jobtest.Planned(inventory.VerbApply, "", "a-1 Allocated service-master")
	j.Rollout = "r1"
	put(v, j, "5", job.Errored)

	f := facts(v)
	f.Playbooks.Digest = "corrected"

	const want = "[show-rollout rollout=r1 retry-rollout rollout=r1 playbooks=current retry-rollout rollout=r1]"

	for what, findings := range map[string][]Finding{
		"node": ExplainNode(f, *v.Nodes()[0], nil).Findings, "job": ExplainJob(f, *v.Jobs()[0]).Findings,
	} {
		at := slices.IndexFunc(findings, func(f Finding) bool { return f.About == AboutRollout })
		if at < 0 || fmt.Sprint(findings[at].Actions) != want ||
			!strings.HasPrefix(findings[at].Remedy, "the playbooks have changed since: ") {
			t.Errorf("%s: %+v, want %s", what, findings, want)
		}
	}
}
