// SPDX-License-Identifier: Apache-2.0

package job_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	. "github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/job/jobtest"
)

// TestEveryRowHasAVerb compares the registered verbs with the lifecycle table.
func TestEveryRowHasAVerb(t *testing.T) {
	t.Parallel()

	verbs := Verbs()
	if len(verbs) != len(inventory.Lifecycle) {
		t.Errorf("%d verbs are registered, the lifecycle has %d rows", len(verbs), len(inventory.Lifecycle))
	}

	for _, row := range inventory.Lifecycle {
		v, err := VerbOf(row.Verb)
		if err != nil || v.Row.Verb != row.Verb {
			t.Errorf("%s has no verb: %+v, %v", row.Verb, v, err)
			continue
		}

		if !row.ChangesStatus() && v.Next == "" {
			t.Errorf("%s changes no status and does not describe how it ends", row.Verb)
		}

		if slices.Contains(v.Steps, StepPlaybook) != (len(v.Playbooks) > 0) {
			t.Errorf("%s has the steps %v and the playbooks %v", row.Verb, v.Steps, v.Playbooks)
		}
	}
}

// TestOutcomesFollowTheLifecycle walks every verb from every legal status
// through every end of every run, with and without cancels, and compares the
// outcomes with the verb's row.
func TestOutcomesFollowTheLifecycle(t *testing.T) {
	t.Parallel()

	exits := []string{
		ExitDone, "failed n=failed", "interrupted n=begun", "internal n=none", "deadline n=begun", "never",
	}

	for _, row := range inventory.Lifecycle {
		for _, from := range row.From {
			for cancel := range 3 {
				name := fmt.Sprintf("%s from %s, %d cancels", row.Verb, from, cancel)
				j := jobtest.Planned(row.Verb, inventory.GroupWorker, targetIn(from))
				walkOutcomes(t, name, j, cancel, exits)
			}
		}
	}
}

// targetIn returns a target for jobtest.Planned that a node of the status can be.
func targetIn(from inventory.Status) string {
	switch from {
	case inventory.Allocated:
		return "n Allocated service-worker"
	case inventory.Unallocated:
		return "n Unallocated -"
	}

	return fmt.Sprintf("n %s - service-master", from)
}

// walkOutcomes plans the job to its end once for every combination of exits.
// The cancels arrive after the first run.
func walkOutcomes(t *testing.T, name string, j Job, cancel int, exits []string) {
	t.Helper()

	if len(j.Runs) == 1 {
		j.Cancel = cancel
	}

	step := Plan(j, jobtest.Noon, nobodyMinds)
	if step.Kind == "" {
		if err := checkEnd(j, step); err != nil {
			t.Errorf("%s: %v, after %+v", name, err, j.Runs)
		}
		return
	}

	for _, exit := range exits {
		next := j
		next.Runs = slices.Clone(j.Runs)
		jobtest.Record(&next, step, exit)
		walkOutcomes(t, name, next, cancel, exits)
	}
}

// singleVerb lists the files that may compare with a single verb, with the
// reason. Any other code takes the verb as a value, so that a new verb needs no
// change there.
var singleVerb = map[string]string{
	"management/server/legacy/*.go": "the fixed contract of the first generation",
	"clusterctl/verbs.go":           "the commands apply and forget, which may take no job of their verb",
	"management/api/command.go":     "the words of clusterctl for a verb",
	"vagrant/bench/*.go":            "benchmarks of particular verbs",
}

// TestNoCodeComparesVerbs finds comparisons with a single verb, switch cases and
// the keys of tables included. To name a verb elsewhere is legal, e.g. in a remedy.
func TestNoCodeComparesVerbs(t *testing.T) {
	t.Parallel()

	const root = "../.."

	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}

		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}

		for pattern := range singleVerb {
			if ok, err := path.Match(pattern, filepath.ToSlash(rel)); ok || err != nil {
				return err
			}
		}

		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, name := range comparedVerbs(f) {
			t.Errorf("%s compares with %s: put the difference into the verb's row or value", rel, name)
		}

		return nil
	})
	errtest.None(t, err)
}

// TestComparedVerbs keeps TestNoCodeComparesVerbs from passing blindly.
func TestComparedVerbs(t *testing.T) {
	t.Parallel()

	const source = `package p
var table = map[inventory.Verb]int{inventory.VerbClear: 1}
func f(v inventory.Verb) bool {
	switch v {
	case inventory.VerbForget:
		return submit(inventory.VerbUpdate)
	}
	return v == inventory.VerbDiscover || VerbCommission != v
}`

	f, err := parser.ParseFile(token.NewFileSet(), "", source, 0)
	errtest.None(t, err)

	want := []string{"VerbClear", "VerbForget", "VerbDiscover", "VerbCommission"}
	if got := comparedVerbs(f); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// comparedVerbs returns the constants of verbs that the file compares with.
func comparedVerbs(f *ast.File) []string {
	verbs := map[string]bool{} // e.g. VerbCommission
	for _, row := range inventory.Lifecycle {
		name := string(row.Verb)
		verbs["Verb"+strings.ToUpper(name[:1])+name[1:]] = true
	}

	var found []string

	check := func(operands ...ast.Expr) {
		for _, x := range operands {
			if selector, ok := x.(*ast.SelectorExpr); ok {
				x = selector.Sel
			}

			if id, ok := x.(*ast.Ident); ok && verbs[id.Name] {
				found = append(found, id.Name)
			}
		}
	}

	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			check(n.X, n.Y)
		case *ast.CaseClause:
			check(n.List...)
		case *ast.KeyValueExpr:
			check(n.Key)
		}

		return true
	})

	return found
}
