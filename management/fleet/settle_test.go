// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/fleet"
)

// changes returns the changes of a plan in words.
func changes(t *testing.T, p *fleet.Plan) string {
	t.Helper()

	var all []string

	for _, c := range p.Changes {
		from, err := json.Marshal([]any{c.Before, c.After})
		errtest.None(t, err)
		all = append(all, c.Action+" "+c.String()+" "+string(from))
	}

	return strings.Join(all, "; ")
}

// TestVariableBecomesSecret: a secret of the file that is a variable so far becomes
// secret, and the plan does not show its value.
func TestVariableBecomesSecret(t *testing.T) {
	t.Parallel()

	s := manager(t)
	s.Vars["global"] = configuration.Vars{"pin": "1234", "other": "x"}

	for _, source := range []string{"keep", "{env: PIN}"} {
		plan := compare(t, "fleet: 1\nsecrets: {pin: "+source+"}\n", s, fleet.Options{})

		want := `change secret pin ["(not secret)","(hidden)"]`
		if got := changes(t, plan); got != want {
			t.Errorf("%s: %s, want %s", source, got, want)
		}

		diff := plan.FleetDiff
		diff.Steps = nil // they have the value as their condition

		wire, err := json.Marshal(diff)
		if err != nil || strings.Contains(string(wire), "1234") || strings.Contains(string(wire), "4321") {
			t.Errorf("%s: %s, %v", source, wire, err)
		}
	}

	s.Vars["global"]["pin"] = configuration.Hidden
	for _, source := range []string{"keep", "{env: PIN}"} {
		plan := compare(t, "fleet: 1\nsecrets: {pin: "+source+"}\n", s, fleet.Options{})
		if plan.Differs {
			t.Errorf("%s again: %s", source, changes(t, plan))
		}
	}
}

// TestSecretEverywhere: a name that is secret somewhere is secret everywhere, so a file
// cannot set it as a variable at another level.
func TestSecretEverywhere(t *testing.T) {
	t.Parallel()

	_, err := fleet.Read(
		api.FleetFile{
			Name: "f.yaml",
			Text: "fleet: 1\nvars: {pin: 1, gone: null}\ngroups:\n  service-worker:\n" +
				"    secrets: {pin: keep, gone: keep}\n",
		},
	)
	if want := "f.yaml:2:8: pin is a secret (f.yaml:5:15), and so it is one everywhere; write it under secrets"; err ==
		nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "and 1 more") {
		t.Errorf("%v, want %s", err, want)
	}

	s := manager(t)
	s.Vars["group/service-worker"] = configuration.Vars{"pin": configuration.Hidden}

	_, err = fleet.Compare(read(t, "fleet: 1\nvars: {pin: 1}\n"), s, fleet.Options{})
	if want := "fleet.yaml:2:8: pin is a secret of group service-worker"; err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}

	// The text for a secret is no value of a variable.
	s.Vars["global"] = configuration.Vars{"plain": "x"}

	_, err = fleet.Compare(read(t, "fleet: 1\nvars: {plain: (hidden)}\n"), s, fleet.Options{})
	if err == nil || !strings.Contains(err.Error(), "keeps a secret that is not set on this manager: plain") {
		t.Errorf("%v", err)
	}
}

// TestPruneKeepsOtherSection: --prune concerns vars or secrets only if the file has them.
func TestPruneKeepsOtherSection(t *testing.T) {
	t.Parallel()

	s := manager(t)
	s.Vars["global"] = configuration.Vars{"proxy": "p", "pin": configuration.Hidden}

	for section, want := range map[string]string{
		"vars: {}":              `remove variable proxy ["p",null]`,
		"secrets: {}":           `remove secret pin ["(hidden)",null]`,
		"vars: {}\nsecrets: {}": `remove variable proxy ["p",null]; remove secret pin ["(hidden)",null]`,
		"settings: {}":          "",
	} {
		plan := compare(t, "fleet: 1\n"+section+"\n", s, fleet.Options{Prune: true})
		if got := changes(t, plan); got != want {
			t.Errorf("%s: %s, want %s", section, got, want)
		}
	}

	// The export names both, so that it is complete.
	plan := compare(t, string(text(t, manager(t), "yaml")), s, fleet.Options{Prune: true})
	if len(plan.Changes) != 2 {
		t.Errorf("the export of another manager: %s", changes(t, plan))
	}
}

// TestPruneOfEveryNode: a section nodes without a node of the manager does not empty the
// fleet.
func TestPruneOfEveryNode(t *testing.T) {
	t.Parallel()

	s := manager(t, "a m Allocated Discovered", "b w Allocated Discovered")

	for _, section := range []string{"nodes:", "nodes: {}", "nodes: {x: {}}"} {
		_, err := fleet.Compare(read(t, "fleet: 1\n"+section+"\n"), s, fleet.Options{Prune: true, IgnoreMissing: true})
		if want := "fleet.yaml:2:1: the section names no node of this manager"; err == nil ||
			!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "group: none") {
			t.Errorf("%s: %v, want %s", section, err, want)
		}

		if plan := compare(t, "fleet: 1\nnodes:\n", s, fleet.Options{}); plan.Differs {
			t.Errorf("%s without --prune: %v", section, jobs(plan))
		}
	}

	if plan := compare(t, "fleet: 1\nnodes: {}\n", manager(t), fleet.Options{Prune: true}); plan.Differs {
		t.Errorf("a manager without nodes: %v", jobs(plan))
	}
}

// TestScopedMoves: the rules of groups depend on nodes that a caller with a scope does not
// see, so only the manager judges by them.
func TestScopedMoves(t *testing.T) {
	t.Parallel()

	const file = "fleet: 1\nnodes: {a: {group: service-worker}, b: {group: service-worker}, c: {group: none}}\n"

	s := manager(t, "a - Unallocated Discovered", "b m Allocated Discovered", "c m Allocated Discovered")
	s.Partial, s.Scope = true, "groups service-worker"
	s.Config.Settings = nil

	plan := compare(t, file, s, fleet.Options{})
	if got := jobs(plan); len(plan.Obstacles) > 0 || len(plan.Jobs) != 3 {
		t.Errorf("%s: %v", got, plan.Obstacles)
	}

	s.Partial = false
	if plan = compare(t, file, s, fleet.Options{}); len(plan.Obstacles) == 0 {
		t.Error("a caller without a scope meets no obstacle")
	}

	// An obstacle of the nodes themselves holds for everybody.
	s.Partial, s.Nodes[0].State = true, "Disappeared"
	if plan = compare(t, file, s, fleet.Options{}); len(plan.Obstacles) != 1 {
		t.Errorf("obstacles %v", plan.Obstacles)
	}
}

// TestScopedPrune: a caller with a scope removes no group, so a file needs not name them.
func TestScopedPrune(t *testing.T) {
	t.Parallel()

	s := manager(t, "b w Allocated Discovered")
	s.Partial, s.Scope, s.Config.Settings = true, "groups service-worker", nil
	s.Vars["group/service-worker"] = configuration.Vars{"tier": "back"}

	for _, file := range []string{"groups: {}", "groups: {service-master: {}}\nnodes: {b: {group: service-worker}}"} {
		plan := compare(t, "fleet: 1\n"+file+"\n", s, fleet.Options{Prune: true})
		if got, want := changes(t, plan), `remove group service-worker: variable tier ["back",null]`; got != want {
			t.Errorf("%s: %s, want %s", file, got, want)
		}
	}

	// A secret by its name could not be compared with the next file.
	_, err := fleet.Compare(read(t, "fleet: 1\nnodes: {b: {vars: {api_token: x}}}\n"), s, fleet.Options{})
	if err == nil || !strings.Contains(err.Error(), "api_token is a secret by its name") {
		t.Errorf("%v", err)
	}
}

// TestConfigurationFileStays: null and --prune remove values that were set at run time, and
// no others: those of the configuration file would be a difference for ever.
func TestConfigurationFileStays(t *testing.T) {
	t.Parallel()

	s := manager(t)
	values := map[string]any{
		"user": "admin", "key_file": "/k", "port": int64(22), "become": true, "become_user": "root", "jump": "h",
		"python": "auto",
	}

	var all []string
	for key, value := range values {
		s.Config.Settings["ssh."+key] = api.Setting{Value: value, Origin: "file", Settable: true}
		all = append(all, key+": null")
	}

	s.Config.Settings["jobs.limit"] = api.Setting{Value: int64(8), Origin: "file", Settable: true}

	file := "fleet: 1\nconnection: {" + strings.Join(all, ", ") + "}\nsettings: {jobs.limit: null}\n"
	if plan := compare(t, file, s, fleet.Options{Prune: true}); plan.Differs {
		t.Errorf("a removal: %s", changes(t, plan))
	}

	// An empty value at run time overrides the file, and null removes that.
	plan := compare(t, "fleet: 1\nconnection: {user: ''}\n", s, fleet.Options{})
	if got, want := changes(t, plan), `remove connection user ["admin",null]`; got != want {
		t.Errorf("%s, want %s", got, want)
	}

	s.Config.Settings["ssh.user"] = api.Setting{Value: "", Origin: "overlay", Settable: true}
	if plan = compare(t, "fleet: 1\nconnection: {user: ''}\n", s, fleet.Options{}); plan.Differs {
		t.Errorf("the same again: %s", changes(t, plan))
	}

	for _, o := range []fleet.Options{{}, {Prune: true}} {
		file := map[bool]string{false: "connection: {user: null}", true: "connection: {}"}[o.Prune]
		plan = compare(t, "fleet: 1\n"+file+"\n", s, o)

		if got, want := changes(t, plan), `remove connection user ["",null]`; got != want {
			t.Errorf("%s: %s, want %s", file, got, want)
		}
	}
}

// TestSpellings: a value of a setting that the manager writes in another way is no
// difference.
func TestSpellings(t *testing.T) {
	t.Parallel()

	s := manager(t)
	s.Config.Settings["jobs.limit"] = api.Setting{Value: int64(8), Origin: "overlay", Settable: true}
	s.Config.Settings["jobs.timeout"] = api.Setting{Value: "1h0m0s", Origin: "overlay", Settable: true}
	s.Config.Settings["policies.brake.release_after"] = api.Setting{Value: "0s", Origin: "overlay", Settable: true}
	s.Config.Settings["ssh.host_ca"] = api.Setting{Value: []any{}, Origin: "overlay", Settable: true}

	plan := compare(t, "fleet: 1\nsettings: {jobs.limit: 8.0, jobs.timeout: 60m, "+
		"policies.brake.release_after: 0, ssh.host_ca: []}\n", s, fleet.Options{})
	if plan.Differs {
		t.Error(changes(t, plan))
	}
	plan = compare(t, "fleet: 1\nsettings: {jobs.limit: 9, jobs.timeout: 61m}\n", s, fleet.Options{})
	if len(plan.Changes) != 2 {
		t.Error(changes(t, plan))
	}
}
