// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/fleet"
	"github.com/contiv/cluster/management/job"
)

// text returns the export of a snapshot as clusterctl prints it.
func text(t *testing.T, s *fleet.Snapshot, format string) []byte {
	t.Helper()
	out, err := print.Answer{Wire: fleet.Export(s)}.Render(format, print.Style{})
	errtest.None(t, err)
	return out
}

// read reads a fleet file that is right.
func read(t *testing.T, data string) *fleet.Document {
	t.Helper()

	d, err := fleet.Read(api.FleetFile{Name: "fleet.yaml", Text: data})
	if err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	return d
}

// compare compares a fleet file that is right with a snapshot.
func compare(t *testing.T, data string, s *fleet.Snapshot, o fleet.Options) *fleet.Plan {
	t.Helper()

	plan, err := fleet.Compare(read(t, data), s, o)
	if err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	return plan
}

// manager returns a snapshot of a manager with the default groups. Each node is
// "name group status state".
func manager(t testing.TB, nodes ...string) *fleet.Snapshot {
	t.Helper()

	s := &fleet.Snapshot{
		Vars: map[string]configuration.Vars{},
		Config: fleet.Config{
			Settings: api.Config{
				"jobs.limit":  {Value: int64(4), Origin: "default", Settable: true},
				"secret_vars": {Value: []any{"*token*"}, Origin: "default", Settable: true},
			},
			Groups: []map[string]any{
				{"name": "service-master"},
				{"name": "service-worker", "requires": map[string]any{"service-master": int64(1)}},
			},
		},
	}

	for _, line := range nodes {
		f := strings.Fields(line)
		n := &inventory.Node{Name: f[0], Status: inventory.Status(f[2]), State: inventory.State(f[3])}
		n.Group = map[string]string{"m": inventory.GroupMaster, "w": inventory.GroupWorker}[f[1]]
		s.Nodes = append(s.Nodes, n)
	}

	slices.SortFunc(s.Nodes, func(a, b *inventory.Node) int { return strings.Compare(a.Name, b.Name) })

	return s
}

// jobs returns the jobs of a plan in words.
func jobs(p *fleet.Plan) string {
	var all []string
	for _, m := range p.Jobs {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s %s", m.Verb, m.Group, strings.Join(m.Nodes, ","))))
	}

	return strings.Join(all, "; ")
}

func TestMoves(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name, file, jobs string
		nodes            []string
		obstacle         string
	}{
		{
			"masters enter first, workers together",
			"nodes: {a: {group: service-worker}, b: {group: service-worker}, z: {group: service-master}}",
			"commission service-master z; commission service-worker a,b",
			[]string{"a - Unallocated Discovered", "b - Decommissioned Discovered", "z - Unallocated Discovered"}, "",
		},
		{
			"workers leave first", "nodes: {a: {group: none}, z: {group: none}}",
			"decommission  z; decommission  a", []string{"a m Allocated Discovered", "z w Allocated Discovered"}, "",
		},
		{
			"the only master changes places with a worker: the new one is a master first",
			"nodes: {a: {group: service-worker}, z: {group: service-master}}",
			"update service-master z; update service-worker a",
			[]string{"a m Allocated Discovered", "z w Allocated Discovered"}, "",
		},
		{
			"a master becomes a worker after its workers have left",
			"nodes: {a: {group: service-worker}, b: {group: none}, z: {group: none}}",
			"", []string{"a m Allocated Discovered", "b w Allocated Discovered", "z w Allocated Discovered"},
			"a cannot join service-worker",
		},
		{
			"nodes that are where they belong",
			"nodes: {a: {group: service-master}, b: {group: none}, c: {group: none}, d: {}}", "",
			[]string{
				"a m Allocated Discovered", "b - Unallocated Disappeared", "c w Quarantined Discovered",
				"d w Allocated Disappeared",
			}, "",
		},
		{
			"a quarantined node", "nodes: {a: {group: service-master}}", "",
			[]string{"a - Quarantined Discovered"}, "a is Quarantined; commission takes nodes that are",
		},
		{
			"a selector, with the labels of the file", "groups: {service-master: {selector: 'rack=r1,name!=b'}}\n" +
				"nodes: {a: {labels: {rack: r1}}, b: {labels: {rack: r1}}, c: {labels: {rack: r1}, group: none}}",
			"commission service-master a",
			[]string{"a - Unallocated Discovered", "b - Unallocated Discovered", "c - Unallocated Discovered"}, "",
		},
		{
			"a new group", "groups: {db: {requires: {service-worker: 1}}}\n" +
				"nodes: {a: {group: db}, b: {group: service-worker}}",
			"commission service-worker b; commission db a",
			[]string{"a - Unallocated Discovered", "b - Unallocated Discovered", "m m Allocated Discovered"}, "",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			plan := compare(t, "fleet: 1\n"+tt.file+"\n", manager(t, tt.nodes...), fleet.Options{})
			if got := strings.ReplaceAll(jobs(plan), "  ", " "); got != strings.ReplaceAll(tt.jobs, "  ", " ") &&
				tt.obstacle == "" {
				t.Errorf("jobs %q, want %q", got, tt.jobs)
			}

			if got := strings.Join(plan.Obstacles, "\n"); !strings.Contains(got, tt.obstacle) ||
				tt.obstacle == "" && got != "" {
				t.Errorf("obstacles %q, want %q", got, tt.obstacle)
			}
		})
	}
}

// TestWaits checks that the next job of a node is decided once the present one has ended.
func TestWaits(t *testing.T) {
	t.Parallel()

	s := manager(t, "a m Allocated Discovered", "b w Provisioning Discovered", "c w Maintenance Discovered",
		"d w Allocated Discovered")
	s.Nodes[1].Job, s.Nodes[1].Verb = "7", inventory.VerbCommission
	s.Nodes[2].Job, s.Nodes[2].Verb = "8", inventory.VerbApply
	s.Jobs = []*job.Job{
		{ID: "7", Verb: inventory.VerbCommission, Status: job.Running, Targets: []job.Target{{Name: "b"}}},
		{ID: "8", Verb: inventory.VerbApply, Status: job.Running, Targets: []job.Target{{Name: "c"}}},
		{ID: "9", Verb: inventory.VerbUpdate, Status: job.Queued, Targets: []job.Target{{Name: "d"}, {Name: "x"}}},
	}

	plan := compare(t, "fleet: 1\nnodes: {b: {group: service-worker}, c: {group: service-worker}, "+
		"d: {group: service-worker}}\n", s, fleet.Options{})

	var waits []string
	for _, w := range plan.Waits {
		waits = append(waits, fmt.Sprint(w.Job, w.Nodes))
	}

	if got := strings.Join(waits, " "); got != "7[b] 9[d]" || len(plan.Jobs) != 0 || !plan.Differs {
		t.Errorf("waits for %s, jobs %v", got, plan.Jobs)
	}

	// A job in place ends where it began, so that only a move waits for it.
	plan = compare(t, "fleet: 1\nnodes: {c: {group: none}}\n", s, fleet.Options{})
	if len(plan.Waits) != 1 || plan.Waits[0].Job != "8" {
		t.Errorf("waits for %v, want job 8", plan.Waits)
	}
}

// TestPruneNamesSections checks that --prune concerns the sections of the file only,
// and that no group in use is removed.
func TestPruneNamesSections(t *testing.T) {
	t.Parallel()

	s := manager(t, "a m Allocated Discovered", "b w Allocated Discovered", "c - Unallocated Discovered")
	s.Vars["global"] = configuration.Vars{"proxy": "p"}
	s.Vars["node/b"] = configuration.Vars{"weight": int64(1)}
	s.Config.Settings["jobs.limit"] = api.Setting{Value: int64(8), Origin: "overlay", Settable: true}
	s.Config.Settings["max_body"] = api.Setting{Value: int64(1), Origin: "file", Settable: true}

	plan := compare(t, "fleet: 1\nvars: {}\n", s, fleet.Options{Prune: true})
	if len(plan.Changes) != 1 || plan.Changes[0].String() != "variable proxy" || len(plan.Jobs) != 0 {
		t.Errorf("%v, jobs %v", plan.Changes, plan.Jobs)
	}
	plan = compare(t, "fleet: 1\nsettings: {}\n", s, fleet.Options{Prune: true})
	if len(plan.Changes) != 1 || plan.Changes[0].String() != "setting jobs.limit" {
		t.Errorf("%v", plan.Changes)
	}

	// The variables of a node that leaves are removed when its cleanup has used them.
	plan = compare(t, "fleet: 1\nnodes: {a: {group: service-master}}\n", s, fleet.Options{Prune: true})
	if jobs(plan) != "decommission  b" || len(plan.Changes) != 1 || !plan.Changes[0].Late {
		t.Errorf("%v, jobs %v", plan.Changes, jobs(plan))
	}
	steps := plan.Steps
	if len(steps) != 2 || steps[1].Title != "the variables of node b" {
		t.Errorf("%v", steps)
	}

	_, err := fleet.Compare(read(t, "fleet: 1\ngroups: {service-master: {}}\n"), s, fleet.Options{Prune: true})
	if err == nil ||
		!strings.Contains(
			err.Error(),
			"fleet.yaml:2:1: the group service-worker is not in the file, and is in use by b",
		) {
		t.Errorf("a group in use: %v", err)
	}

	plan = compare(t, "fleet: 1\ngroups: {service-master: {}}\nnodes: {a: {}, b: {group: service-master}}\n", s,
		fleet.Options{Prune: true})
	if last := plan.Steps; last[len(last)-1].Title != "the configuration of the manager" {
		t.Errorf("the group is removed before the job that empties it: %v", last)
	}
}

// TestExportIsNoDifference checks over random fleets that the export of a manager
// is no difference to it, with and without --prune. fleet-again.txtar applies an export
// to a manager without any of it.
func TestExportIsNoDifference(t *testing.T) {
	t.Parallel()

	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := randomSnapshot(r)

		for _, format := range []string{print.FormatYAML, print.FormatJSON} {
			data := text(t, s, format)

			plan := compare(t, string(data), s, fleet.Options{Prune: true})
			if plan.Differs {
				t.Fatalf("seed %d: %+v %v %v\n%s", seed, plan.Changes, jobs(plan), plan.Obstacles, data)
			}

			// Without --prune as well.
			if plan := compare(t, string(data), s, fleet.Options{}); plan.Differs {
				t.Fatalf("seed %d without prune: %+v\n%s", seed, plan.Changes, data)
			}
		}
	}
}

// words are texts that YAML reads as something else if they are not quoted, and others.
var words = []string{
	"",
	"yes",
	"no",
	"on",
	"off",
	"null",
	"~",
	"012",
	"0x1f",
	"1:30",
	"1e3",
	"1_000",
	"08",
	"-",
	"- a",
	"a: b",
	"#a",
	" a",
	"a ",
	"{a}",
	"[a]",
	"a\nb",
	"a\tb\x1b",
	"2026-01-02",
	"<<",
	"=",
	"!x",
	"&a",
	"*a",
	"%a",
	"@a",
	"`a",
	"|",
	">",
	"ü\u202e",
	"true",
	"12",
	"1.5",
	"(hidden) ",
	"{{ x }}",
	"\u0085",
	"\ufeffx",
	strings.Repeat("long ", 50),
}

func randomValue(r *rand.Rand, depth int) any {
	switch n := r.IntN(9); {
	case n == 0:
		return r.IntN(2) == 0
	case n == 1:
		return r.Int64() - r.Int64()
	case n == 2:
		return json.Number([]string{"1.50", "0.1", "1e5", "123456789012345678901234567890", "-0.0"}[r.IntN(5)])
	case n == 3 && depth < 3:
		list := []any{}
		for range r.IntN(3) {
			list = append(list, randomValue(r, depth+1))
		}

		return list
	case n == 4 && depth < 3:
		m := map[string]any{}
		for range r.IntN(3) {
			m[words[r.IntN(len(words))]] = randomValue(r, depth+1)
		}

		return m
	case n == 5:
		return nil
	}

	return words[r.IntN(len(words))]
}

func randomVars(r *rand.Rand) configuration.Vars {
	vars := configuration.Vars{}
	for i := range r.IntN(4) {
		vars[fmt.Sprintf("v%d", i)] = randomValue(r, 0)
	}

	if r.IntN(3) == 0 {
		vars["api_token"] = configuration.Hidden
	}

	if r.IntN(3) == 0 {
		vars["db"] = map[string]any{"token": configuration.Hidden, "user": "u"}
	}

	return vars
}

func randomConnection(r *rand.Rand) map[string]any {
	c := map[string]any{}
	if r.IntN(2) == 0 {
		c["user"] = "admin"
	}
	if r.IntN(2) == 0 {
		c["become"] = r.IntN(2) == 0
	}

	if r.IntN(2) == 0 {
		c["port"] = int64(1 + r.IntN(65535))
	}

	return c
}

func randomSnapshot(r *rand.Rand) *fleet.Snapshot {
	settings := api.Config{
		"jobs.limit":   {Value: int64(r.IntN(9)), Origin: "overlay", Settable: true},
		"jobs.timeout": {Value: "1h0m0s", Origin: "file", Settable: true},
		"secret_vars":  {Value: []any{"*token*"}, Origin: "default", Settable: true},
		"vars":         {Value: map[string]any(randomVars(r)), Origin: "file", Settable: true},
		"ssh.host_ca":  {Value: []any{}, Origin: "overlay", Settable: true},
		"data_dir":     {Value: "/var", Origin: "file"},
	}

	for key, value := range randomConnection(r) {
		settings["ssh."+key] = api.Setting{Value: value, Origin: "overlay", Settable: true}
	}

	s := &fleet.Snapshot{
		Connections: map[string]*configuration.Connection{},

		Vars:   map[string]configuration.Vars{"global": randomVars(r), "group/cluster-node": randomVars(r)},
		Config: fleet.Config{Settings: settings, GroupSSH: map[string]map[string]any{}},
	}

	names := []string{"yes", "service-master", "0x1", "db"}
	r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })

	for i, name := range names[:1+r.IntN(len(names))] {
		g := map[string]any{"name": name}
		if i > 0 && r.IntN(2) == 0 {
			g["requires"] = map[string]any{names[i-1]: int64(1 + r.IntN(3))}
		}
		s.Config.Groups = append(s.Config.Groups, g)
		s.Config.GroupSSH[name] = randomConnection(r)
		s.Vars["group/"+name] = randomVars(r)
	}

	for i := range r.IntN(6) {
		n := &inventory.Node{
			Name:   fmt.Sprintf("%dn-%d", i, i),
			Status: inventory.Statuses[r.IntN(7)].Status,
			State:  inventory.Discovered,
		}
		if n.Status != inventory.Unallocated && n.Status != inventory.Decommissioned {
			n.Group = fmt.Sprint(s.Config.Groups[r.IntN(len(s.Config.Groups))]["name"])
		}
		if r.IntN(2) == 0 {
			n.Labels = map[string]string{"rack": []string{"r1", "12", "yes", ""}[r.IntN(4)], "example.com/on": "0x1"}
		}

		if r.IntN(2) == 0 {
			become := false
			s.Connections[n.Name] = &configuration.Connection{User: "u", Become: &become, Port: r.IntN(3)}
		}

		s.Nodes = append(s.Nodes, n)
		s.Vars["node/"+n.Name] = randomVars(r)
	}

	return s
}
