// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/cmd/clusterm/processtest"
	"github.com/contiv/cluster/inventory/errtest"
)

// TestMain serves as the helper processes of the rows.
func TestMain(m *testing.M) {
	if status, ok := helper(os.Args[1:]); ok {
		os.Exit(status)
	}

	os.Exit(m.Run())
}

// small are sizes with which a row takes a moment.
var small = sizes{
	nodes:   200,
	lines:   500,
	waiting: 100,
	rollout: 10,
	reports: 10,
	events:  10,
	files:   20,
	hosts:   2,
	bmcs:    20,
	rounds:  1,
}

// TestRows measures every row in miniature, without a judgement of its figures. The rows of
// jobs run in the lab, and on a stand-in for ansible-playbook as well.
func TestRows(t *testing.T) {
	if os.Getenv("CLUSTERM_LAB") != "1" {
		t.Skip("starts a daemon for each row, and needs the lab: CLUSTERM_LAB=1, see make system")
	}

	program := build(t)

	for _, g := range slices.Concat(groups, []group{{name: "stand-in", rows: standIn}}) {
		t.Run(g.name, func(t *testing.T) {
			// Two tests cannot share the lab.
			if !slices.Contains([]string{"job", "verify", "inspect"}, g.name) {
				t.Parallel()
			}

			smoke(t, program, g)
		})
	}
}

// standIn is the rows of jobs on a stand-in for ansible-playbook, which fails in a plain run with
// anything of the manager's plugins.
func standIn(ctx context.Context, b *bench) []row {
	const before = `if [ -z "$CLUSTERM_EVENTS" ] && grep clusterm_ "$ANSIBLE_CONFIG"; then exit 250; fi`
	p := place{playbook: b.playbookScript(before, 1, firstNodes(b.hosts)...)}
	return slices.Concat(b.jobOn(ctx, p, b.hosts, 4), b.verifyOn(ctx, p, b.hosts))
}

// build builds the programs and returns their folder.
func build(t *testing.T) string {
	t.Helper()

	dir := t.TempDir()
	if _, err := processtest.Build(dir); err != nil {
		t.Fatal(err)
	}

	// go caches a linked program for go run, but not for go build.
	ctl := exec.Command("go", "run", "-exec", "cp", "../../cmd/clusterctl", filepath.Join(dir, "clusterctl"))
	if out, err := ctl.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	return dir
}

// smoke measures the rows of a group in miniature.
func smoke(t *testing.T, program string, g group) {
	t.Helper()

	dir, err := os.MkdirTemp("", "bench") // a socket's path must be short
	errtest.None(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })

	b := &bench{sizes: small, top: "../..", dir: dir, bin: program}
	errtest.None(t, b.run(t.Context(), g))
	if len(b.out.Rows) == 0 {
		t.Error("no row was measured")
	}

	for _, r := range b.out.Rows {
		if r.Product <= 0 || (r.baseline != nil && r.Baseline <= 0) || r.Rounds != 1 {
			t.Errorf("%+v", r)
		}
	}
}

// TestMissesAreMeasuredAgain: the table has both results, and the second one counts.
func TestMissesAreMeasuredAgain(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name    string
		product []float64 // of the rounds, in order
		want    string
	}{
		{"reached at once", []float64{50, 49, 60}, "50 >= 0.5 true false"},
		{"reached the second time", []float64{49, 50, 40, 70, 80, 60}, "49  false false, 70 >= 0.5 true true"},
		{"missed twice", []float64{49, 50, 40, 20, 80, 10}, "49  false false, 20 >= 0.5 false true"},
	} {
		b, next := &bench{}, 0

		b.measure(row{
			Name: tt.name, Against: "a hundred", Rounds: 3, floor: atLeast(0.5),
			product:  func() float64 { next++; return tt.product[next-1] },
			baseline: func() float64 { return 100 },
		})

		var got []string
		for _, r := range b.out.Rows {
			got = append(got, fmt.Sprintf("%g %s %t %t", r.Product, r.Floor, r.OK, r.Again))
		}

		if text := strings.Join(got, ", "); text != tt.want || next != len(tt.product) {
			t.Errorf("%s: %s, want %s", tt.name, text, tt.want)
		}
	}
}

// TestFailures: a row that fails ends its group with the error, after the cleanups.
func TestFailures(t *testing.T) {
	t.Parallel()

	broken, cleaned := errors.New("broken"), false
	b := &bench{}

	err := b.run(t.Context(), group{rows: func(_ context.Context, b *bench) []row {
		b.cleanup(func() { cleaned = true })

		return []row{{Rounds: 1, product: func() float64 {
			together(2, func(i int) {
				if i == 1 {
					check(broken)
				}
			})

			return 1
		}}}
	}})
	if !errors.Is(err, broken) || !cleaned || len(b.out.Rows) != 0 {
		t.Errorf("%v, %t, %+v", err, cleaned, b.out.Rows)
	}
}

// TestStaleAnswersAreFound: an answer without a report that was acknowledged in time is
// stale in both forms; an answer without a report of this moment is not.
func TestStaleAnswersAreFound(t *testing.T) {
	t.Parallel()

	b := &bench{sizes: sizes{nodes: changing}}
	info := func(addr, state string) map[string]seen {
		var nodes []string
		for i := range b.nodes {
			nodes = append(nodes, fmt.Sprintf(
				`%q: {"monitoring_state": {"management_address": %q}, "inventory_state": {"state": %q}}`,
				name(i), addr, state,
			))
		}

		return parseInfo([]bytes.Buffer{*bytes.NewBufferString("{" + strings.Join(nodes, ",") + "}")})
	}

	page := func(i int, addr, state string) bytes.Buffer {
		const text = `{"items": [{"name": %q, "addr": %q, "state": %q}]}`
		return *bytes.NewBufferString(fmt.Sprintf(text, name(i), addr, state))
	}

	pages := parsePages([]bytes.Buffer{page(0, "10.200.1.1", "Disappeared"), page(1, "10.0.0.1", "Discovered")})
	if len(pages) != 2 || pages[name(0)].report() != 258 || pages[name(1)].report() != 1 {
		t.Errorf("%+v", pages)
	}

	var c churn
	long, now := time.Now().Add(-time.Second), time.Now().Add(time.Minute)
	c.acked[3] = []time.Time{long, long, now}

	required := c.required()
	if required[3] != 3 || required[4] != 1 {
		t.Errorf("%v", required)
	}

	for _, tt := range []struct {
		nodes map[string]seen
		want  string // in the error
	}{
		{info("10.200.0.3", "Discovered"), ""},
		{info("10.200.0.3", "Disappeared"), ""},
		{info("10.0.0.1", "Disappeared"), name(3)},
		{nil, "0 nodes"},
	} {
		err := try(func() { b.complete(tt.nodes, required) })
		if (err == nil) != (tt.want == "") || !strings.Contains(fmt.Sprint(err), tt.want) {
			t.Errorf("%v, want %q", err, tt.want)
		}
	}
}

func TestFigures(t *testing.T) {
	t.Parallel()

	if median([]float64{3, 1, 2}) != 2 || median([]float64{4, 1, 2, 3}) != 2.5 {
		t.Error("median")
	}

	var many []float64
	for i := range 200 {
		many = append(many, float64(200-i))
	}

	if p99(many) != 199 || p99([]float64{7}) != 7 {
		t.Errorf("p99 %g", p99(many))
	}

	if f := atMost(3, 5, ""); !f.ok(35, 10) || f.ok(35.1, 10) {
		t.Error("floor")
	}

	if continuation([]byte(`{"items":[],"continue":"abc","revision":1}`)) != "abc" ||
		continuation([]byte(`{"items":[]}`)) != "" {
		t.Error("continuation")
	}
}
