// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/cmd/clusterm/processtest"
)

// TestMain serves as the helper processes of the rows.
func TestMain(m *testing.M) {
	if status, ok := helper(os.Args[1:]); ok {
		os.Exit(status)
	}

	os.Exit(m.Run())
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
		b := &bench{out: &report{}}
		next := 0

		err := b.compare(t.Context(), comparison{
			name: tt.name, against: "a hundred", rounds: 3, floor: atLeast(0.5),
			product:  func(context.Context) (float64, error) { next++; return tt.product[next-1], nil },
			baseline: func(context.Context) (float64, error) { return 100, nil },
		})
		if err != nil {
			t.Fatal(err)
		}

		var got []string
		for _, r := range b.out.Rows {
			got = append(got, fmt.Sprintf("%g %s %t %t", r.Product, r.Floor, r.OK, r.Again))
		}

		if text := strings.Join(got, ", "); text != tt.want || next != len(tt.product) {
			t.Errorf("%s: %s, want %s", tt.name, text, tt.want)
		}
	}

	broken := errors.New("broken")
	b := &bench{out: &report{}}

	failing := comparison{rounds: 1, product: func(context.Context) (float64, error) { return 0, broken }}

	err := b.compare(t.Context(), failing)
	if !errors.Is(err, broken) || len(b.out.Rows) != 0 {
		t.Errorf("%v, %+v", err, b.out.Rows)
	}
}

// TestStaleAnswersAreFound: an answer without a report that was acknowledged in time is
// stale in both forms; an answer without a report of this moment is not.
func TestStaleAnswersAreFound(t *testing.T) {
	t.Parallel()
	b := &bench{nodes: changing}
	info := func(addr, state string) map[string]seen {
		var text bytes.Buffer
		text.WriteByte('{')

		for i := range b.nodes {
			fmt.Fprintf(
				&text,
				`%q: {"monitoring_state": {"management_address": %q}, "inventory_state": {"state": %q}},`,
				name(i),
				addr,
				state,
			)
		}

		text.Truncate(text.Len() - 1)
		text.WriteByte('}')

		nodes, err := parseInfo([]*bytes.Buffer{&text})
		if err != nil {
			t.Fatal(err)
		}

		return nodes
	}

	pages, err := parsePages([]*bytes.Buffer{
		bytes.NewBufferString(`{"items": [{"name": "` + name(0) + `", "addr": "10.200.1.1", "state": "Disappeared"}]}`),
		bytes.NewBufferString(`{"items": [{"name": "` + name(1) + `", "addr": "10.0.0.1", "state": "Discovered"}]}`),
	})
	if err != nil || len(pages) != 2 || pages[name(0)].report() != 258 || pages[name(1)].report() != 1 {
		t.Errorf("%+v, %v", pages, err)
	}

	var c churn
	long, now := time.Now().Add(-time.Second), time.Now().Add(time.Minute)
	c.acked[3] = []time.Time{long, long, now}

	required := c.required()
	if required[3] != 3 || required[4] != 1 {
		t.Errorf("%v", required)
	}

	if err := b.check(info("10.200.0.3", "Discovered"), required); err != nil {
		t.Error(err)
	}

	if err := b.check(info("10.200.0.3", "Disappeared"), required); err != nil {
		t.Error(err)
	}

	if err := b.check(
		info("10.0.0.1", "Disappeared"),
		required,
	); err == nil ||
		!strings.Contains(err.Error(), name(3)) {
		t.Errorf("%v", err)
	}

	if err := b.check(nil, required); err == nil {
		t.Error("an empty answer passed")
	}
}

// TestRowsWithJobs measures the rows with jobs in miniature: those that run a playbook on a
// stand-in for ansible-playbook, which fails in a plain run with anything of the manager's
// plugins.
func TestRowsWithJobs(t *testing.T) {
	t.Parallel()

	dir, err := os.MkdirTemp("", "bench") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { os.RemoveAll(dir) })

	program, err := processtest.Build(dir)
	if err != nil {
		t.Fatal(err)
	}

	b := &bench{dir: dir, bin: filepath.Dir(program), nodes: 10, lines: 500, rounds: 2, out: &report{}}
	if err := logs(t.Context(), b); err != nil {
		t.Error(err)
	}

	// A job of 64 nodes needs as many.
	fleet := &bench{dir: dir, bin: b.bin, nodes: 100, rounds: 2, out: &report{}}
	if err := accessed(t.Context(), fleet); err != nil || len(fleet.out.Rows) != 3 {
		t.Errorf("%+v, %v", fleet.out.Rows, err)
	}

	const check = `if [ -z "$CLUSTERM_EVENTS" ] && grep clusterm_ "$ANSIBLE_CONFIG"; then exit 250; fi`

	script, err := b.playbookScript(check, 1, filepath.Join(dir, "times"), name(0), name(1))
	if err != nil {
		t.Fatal(err)
	}

	if err := b.jobOn(t.Context(), "ansible_playbook: "+script+"\n", 2, 4); err != nil {
		t.Error(err)
	}

	if err := b.verifyOn(t.Context(), "ansible_playbook: "+script+"\n", 2); err != nil {
		t.Error(err)
	}

	var measured []string
	for _, r := range b.out.Rows {
		measured = append(measured, r.Name)

		if r.Product <= 0 || r.Baseline <= 0 || r.Rounds != 2 {
			t.Errorf("%+v", r)
		}
	}

	want := []string{"log read, 4 followers and a stalled one", "job, 2 hosts, 4 lines", "job, 2 hosts, 4 lines",
		"verification, 2 hosts",
	}
	if !slices.Equal(measured, want) {
		t.Errorf("the rows are %q, want %q", measured, want)
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
