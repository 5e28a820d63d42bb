// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/clusterctl/fleet"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// fleets is a manager with the fleets that the test brings it to.
type fleets struct {
	*testing.T
	ctx     context.Context
	manager *client.Client
}

// TestFleetSettles brings a real manager to random fleets: with secrets, nulls, empty
// sections, and values of every kind. A fleet that is applied twice is no difference the
// second time; nor is the export, for a caller with a scope as well.
func TestFleetSettles(t *testing.T) {
	t.Parallel()

	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()

	d, err := startDaemon(ctx)
	errtest.None(t, err)

	t.Cleanup(func() {
		if err := d.stop(); err != nil {
			t.Error(err)
		}
	})

	manager, err := client.New(client.Options{Socket: d.socket()})
	errtest.None(t, err)
	f := &fleets{t, ctx, manager}
	p := newProxy(d)

	for i := range nodeCount {
		f.must(p.report("discovered", nodeName(i), i+1))
	}

	token, err := manager.CreateToken(ctx, api.TokenRequest{
		Role: "operator", Scope: &api.Scope{Selector: "label=n,serial in (0,1,2)"},
	})
	f.must(err)

	scoped, err := client.New(client.Options{Socket: d.socket(), Token: token.Token})
	f.must(err)

	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 7))
		prune, file := r.IntN(2) == 0, randomFile(r)

		// A variable that the file may make secret.
		for _, value := range []any{nil, "5678"} {
			_, err := manager.PatchVars(ctx, client.ScopeGlobal, api.Vars{"code": value})
			f.must(err)
		}

		f.apply(manager, file, prune)

		if plan := f.compare(manager, file, prune); plan.Differs {
			t.Fatalf("seed %d, applied twice: %s\n%s", seed, wire(t, plan), file)
		}

		for name, m := range map[string]*client.Client{"admin": manager, "scope": scoped} {
			export := f.export(m)
			if plan := f.compare(m, export, true); plan.Differs {
				t.Fatalf("seed %d, export of %s: %s\n%s", seed, name, wire(t, plan), export)
			}
		}

		// Within the scope, the same holds for a caller with a partial view.
		file = randomPart(r)
		f.apply(scoped, file, false)

		if plan := f.compare(scoped, file, false); plan.Differs {
			t.Fatalf("seed %d, scope, applied twice: %s\n%s", seed, wire(t, plan), file)
		}
	}
}

func (f *fleets) must(err error) {
	f.Helper()
	errtest.None(f, err)
}

func wire(t *testing.T, v any) string {
	t.Helper()
	out, err := json.MarshalIndent(v, "", "  ")
	errtest.None(t, err)
	return string(out)
}

func (f *fleets) compare(m *client.Client, file string, prune bool) api.FleetDiff {
	f.Helper()

	diff, err := m.FleetDiff(f.ctx, api.FleetRequest{
		Files: []api.FleetFile{{Name: "fleet.yaml", Text: file}}, Prune: prune,
	})
	if err != nil {
		f.Fatalf("%v\n%s", err, file)
	}
	return diff
}

func (f *fleets) apply(m *client.Client, file string, prune bool) {
	f.Helper()

	steps := f.compare(m, file, prune).Steps
	for _, s := range steps {
		if s.Apply == nil {
			continue
		}

		for i, w := range s.Apply.Changes {
			if w.Secret != nil {
				s.Apply.Changes[i].Secret, s.Apply.Changes[i].To = nil, json.RawMessage(`"4321"`)
			}
		}
	}

	_, err := fleet.Run(f.ctx, steps, fleet.Options{
		Manager: m, Reason: "test", Note: func(string) {}, Done: func(fleet.Result) {},
		Follow: func(ctx context.Context, j api.Job) (api.Job, error) { return m.WaitJob(ctx, j.ID) },
	})
	if err != nil {
		f.Fatalf("%v\n%s", err, file)
	}
}

func (f *fleets) export(m *client.Client) string {
	f.Helper()

	file, err := m.Newest().Fleet(f.ctx)
	f.must(err)

	out, err := print.Answer{Wire: file}.Render(print.FormatYAML, print.Style{})
	f.must(err)

	return string(out)
}

const nodeCount = 6

func nodeName(i int) string { return fmt.Sprintf("n-%d", i) }

// groupRules are values of the rules of a group that stop no job of the test.
var groupRules = map[string][]string{
	"budget": {
		"{max_unavailable: 100%}",
		"{max_unavailable: 100%, per: rack}",
		"{max_unavailable: \"99\"}",
		"{max_unavailable: 98}",
		"null",
		"{}",
	},
	"on_return": {"record", "verify-and-repair", "null", "''"},
	"strategy": {
		"{max_unavailable: 10%}", "{max_failures: 0, soak: 5m}", "{max_failures: 2}", "{soak: 1h}", "null", "{}",
	},
}

// writeRules writes some rules of a group.
func writeRules(b *bytes.Buffer, r *rand.Rand) {
	for _, key := range slices.Sorted(maps.Keys(groupRules)) {
		if r.IntN(2) == 0 {
			fmt.Fprintf(b, "    %s: %s\n", key, pick(r, groupRules[key]...))
		}
	}
}

// randomFile returns a fleet file that any fleet of the test can be brought to: node n-5 is
// always a master.
func randomFile(r *rand.Rand) string {
	var b bytes.Buffer

	b.WriteString("fleet: 1\n")
	writeMap(&b, r, "", "settings", map[string][]string{
		"jobs.limit":                   {"8", "null", "16.0"},
		"jobs.timeout":                 {"90m", "5400s", "null", `"1h"`},
		"policies.brake.release_after": {"0", "2h", "null"},
		"max_streams":                  {"20", "null"},
		"ssh.host_ca":                  {"[]", "null"},
		"vars":                         {"{}", "null", "{site: a}", "{n: [1, 1.50, null]}"},
		"secret_vars":                  {"null", `["*token*"]`},
		"log_level":                    {"info", "warning", "null"},
		"policies.brake.share":         {"null", "40"},
		"policies.brake.within":        {"null", "600s"},
		"monitor_timeout":              {"null", "0h7m"},
		"jobs.keep_bytes":              {"null", "1048576", "0x200000"},
		"policies.settle":              {"null", "61s"},
		"playbooks":                    {"null"},
		"jobs.output_limit":            {"null", "65_536"},
		"policies.jobs":                {"null", "3"},
		"policies.rate":                {"null", "7"},
		"jobs.plans":                   {"null", "9"},
		"jobs.plan_for":                {"null", "0h90m"},
	})
	writeMap(&b, r, "", "connection", connections)
	writeVars(&b, r, "")

	if r.IntN(4) > 0 {
		b.WriteString("groups:\n")

		for _, name := range []string{"service-master", "service-worker", "db", "cluster-node"} {
			if name == "cluster-node" && r.IntN(2) == 0 {
				continue
			}

			fmt.Fprintf(&b, "  %s:\n", name)
			writeMap(&b, r, "    ", "connection", connections)
			writeVars(&b, r, "    ")

			if name != "cluster-node" {
				writeRules(&b, r)
			}

			// A file without the rule leaves it, and --prune removes it.
			if name == "service-worker" {
				b.WriteString("    requires: {service-master: 1}\n")
			}

			if name == "db" {
				fmt.Fprintf(
					&b,
					"    requires: %s\n",
					pick(r, "{service-master: 1}", "{service-worker: 2, service-master: 1}", "null", "{}"),
				)
			}
		}
	}

	if r.IntN(4) > 0 {
		b.WriteString("nodes:\n  n-5: {group: service-master}\n")

		for i := range nodeCount - 1 {
			fmt.Fprintf(&b, "  %s:\n    group: %s\n", nodeName(i), pick(r, "service-master", "service-worker", "none"))
			writeNode(&b, r)
		}
	}

	return b.String()
}

// randomPart returns a fleet file for a caller with the nodes n-0 to n-2 in its scope.
func randomPart(r *rand.Rand) string {
	var b bytes.Buffer

	b.WriteString("fleet: 1\nnodes:\n")

	for i := range 3 {
		fmt.Fprintf(&b, "  %s:\n", nodeName(i))
		writeLabels(&b, r)
		writeVars(&b, r, "    ")
	}

	return b.String()
}

func writeNode(b *bytes.Buffer, r *rand.Rand) {
	writeLabels(b, r)
	writeMap(b, r, "    ", "connection", connections)
	writeVars(b, r, "    ")
}

func writeLabels(b *bytes.Buffer, r *rand.Rand) {
	writeMap(b, r, "    ", "labels", map[string][]string{
		"rack": {"r1", "''", "null", `"12"`}, "example.com/on": {`"yes"`, "null"},
	})
}

// connections are values of every setting of a connection.
var connections = map[string][]string{
	"user":        {"admin", "null", "''"},
	"key_file":    {"null", "''"},
	"port":        {"2222", "null", "0"},
	"become":      {"true", "false", "null"},
	"become_user": {"root", "null", "''"},
	"jump":        {"null", "''", "a@jump.example.com:22"},
	"python":      {"auto", "null", "''"},
}

// writeVars writes variables and secrets. A name that is secret is one at every level.
func writeVars(b *bytes.Buffer, r *rand.Rand, indent string) {
	writeMap(b, r, indent, "vars", map[string][]string{
		"a": {"1", "null", "''", `"yes"`, "1.50", "1e5", "-0.0", "123456789012345678901234567890"},
		"b": {"{c: null, d: [1, {e: ''}]}", "[]", "{}", "true", "2026-01-02", `"(text)"`},
		"c": {`"{{ x }}"`, `"\tü\u202e"`, "null", "~", "0x1f", "0o17", "1:30", "12e"},
	})

	secrets := map[string][]string{"pin": {"{env: PIN}", "null"}, "api_token": {"{file: t}", "null"}}
	if indent == "" {
		secrets["code"] = []string{"keep", "{env: CODE}", "null"}
	}
	writeMap(b, r, indent, "secrets", secrets)
}

// writeMap writes a section with some of the keys, each with one of its values; perhaps
// an empty one, null, or none at all.
func writeMap(b *bytes.Buffer, r *rand.Rand, indent, name string, values map[string][]string) {
	var lines []string

	for _, key := range slices.Sorted(maps.Keys(values)) {
		if len(values[key]) > 0 && r.IntN(2) == 0 {
			lines = append(lines, fmt.Sprintf("%s  %s: %s\n", indent, key, pick(r, values[key]...)))
		}
	}

	switch r.IntN(6) {
	case 0:
	case 1:
		fmt.Fprintf(b, "%s%s:\n", indent, name)
	case 2:
		fmt.Fprintf(b, "%s%s: {}\n", indent, name)
	default:
		fmt.Fprintf(b, "%s%s:\n%s", indent, name, strings.Join(lines, ""))
	}
}

func pick(r *rand.Rand, of ...string) string { return of[r.IntN(len(of))] }
