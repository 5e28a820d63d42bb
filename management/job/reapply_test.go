// SPDX-License-Identifier: Apache-2.0

package job_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	. "github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/job/jobtest"
)

// TestReapply tells the stories of reapply: see TestPlan.
func TestReapply(t *testing.T) {
	t.Parallel()

	const w = inventory.GroupWorker
	two := []string{"a Allocated " + w, "b Allocated " + w}
	of := func(targets ...string) Job { return jobtest.Planned(inventory.VerbReapply, "", targets...) }

	for _, tt := range []struct {
		name  string
		job   Job
		rules Rules
		story string
	}{
		{"success", of(two...), nobodyMinds, `
			cleanup cleanup.yml a:service-worker b:service-worker
			> done
			configure site.yml a:service-worker b:service-worker
			> done
			Complete
			a: Allocated service-worker 5
			b: Allocated service-worker 5`},
		{"the cleanup of one host fails, and the other is configured again", of(two...), nobodyMinds, `
			cleanup cleanup.yml a:service-worker b:service-worker
			> failed a=done b=half-way
			configure site.yml a:service-worker
			> done
			Errored failed
			reason: cleanup.yml failed on b: task "Install": no such package
			a: Allocated service-worker 5
			b: Allocated service-worker ! | the cleanup broke off: task "Install": no such package`},
		{"a host that cannot be reached keeps what it has", of(two...), nobodyMinds, `
			cleanup cleanup.yml a:service-worker b:service-worker
			> failed a=done b=closed
			configure site.yml a:service-worker
			> done
			Errored failed
			a: Allocated service-worker 5
			b: Allocated service-worker 3 | unreachable: no ssh connection to a, port 22: connection refused`},
		{"no host is cleaned", of(two...), nobodyMinds, `
			cleanup cleanup.yml a:service-worker b:service-worker
			> failed a=failed b=failed
			Errored failed
			a: Allocated service-worker ! | the cleanup broke off: task "Install": no such package
			b: Allocated service-worker ! | the cleanup broke off: task "Install": no such package`},
		{"the configuration of one host fails", of(two...), nobodyMinds, `
			cleanup cleanup.yml a:service-worker b:service-worker
			> done
			configure site.yml a:service-worker b:service-worker
			> failed a=done b=failed
			Errored failed
			reason: site.yml failed on b: task "Install": no such package
			a: Allocated service-worker 5
			b: Allocated service-worker ! | cleaned, and not configured to the end: task "Install": no such package`},
		{"cancelled before it begins", of(two...), nobodyMinds, `
			cancel
			Cancelled cancelled
			a: Allocated service-worker 3 | not configured again: cancelled by anna
			b: Allocated service-worker 3 | not configured again: cancelled by anna`},
		{"cancelled during the cleanup", of(two...), nobodyMinds, `
			cleanup cleanup.yml a:service-worker b:service-worker
			cancel
			> cancelled a=begun b=none
			Cancelled cancelled
			a: Allocated service-worker ! | the cleanup broke off: cancelled by anna
			b: Allocated service-worker 3 | not configured again: cancelled by anna`},
		{"cancelled after the cleanup", of(two...), nobodyMinds, `
			cleanup cleanup.yml a:service-worker b:service-worker
			cancel
			> done
			Cancelled cancelled
			a: Allocated service-worker ! | cleaned, and not configured again: cancelled by anna
			b: Allocated service-worker ! | cleaned, and not configured again: cancelled by anna`},
		{"cancelled after the end", of(two...), nobodyMinds, `
			cleanup cleanup.yml a:service-worker b:service-worker
			> done
			configure site.yml a:service-worker b:service-worker
			cancel
			> done
			Complete
			a: Allocated service-worker 5
			b: Allocated service-worker 5`},
		{"it runs too long", of(two...), nobodyMinds, `
			cleanup cleanup.yml a:service-worker b:service-worker
			> done
			late
			Errored deadline
			a: Allocated service-worker ! | cleaned, and not configured again: it ran longer than 1h
			b: Allocated service-worker ! | cleaned, and not configured again: it ran longer than 1h`},
		{"the runner is killed", of(two[0]), nobodyMinds, `
			cleanup cleanup.yml a:service-worker
			> done
			configure site.yml a:service-worker
			> interrupted a=begun
			Errored interrupted
			a: Allocated service-worker ! | cleaned, and not configured to the end: site.yml ended with status 0`},
		{"the cleanup is interrupted, and repeated", of(two...), nobodyMinds, `
			cleanup cleanup.yml a:service-worker b:service-worker
			> interrupted a=begun
			cleanup cleanup.yml a:service-worker b:service-worker
			> done
			configure site.yml a:service-worker b:service-worker
			> done
			Complete
			a: Allocated service-worker 5
			b: Allocated service-worker 5`},
		{"the cleanup is interrupted twice", of(two...), nobodyMinds, `
			cleanup cleanup.yml a:service-worker b:service-worker
			> interrupted a=begun
			cleanup cleanup.yml a:service-worker b:service-worker
			> interrupted a=begun
			Errored interrupted
			a: Allocated service-worker ! | the cleanup broke off: cleanup.yml ended with status 0
			b: Allocated service-worker 3 | not configured again: cleanup.yml ended with status 0`},
		{"ansible-playbook does not start", of(two[0]), nobodyMinds, `
			cleanup cleanup.yml a:service-worker
			> never
			Errored internal
			a: Allocated service-worker 3 | not configured again: the runner did not start`},
		{"batches", serial(of(append(two, "c Allocated "+w)...), "1", 1), nobodyMinds, `
			cleanup cleanup.yml a:service-worker
			> done
			configure site.yml a:service-worker
			> failed a=failed
			cleanup cleanup.yml b:service-worker
			> failed b=failed
			Errored failed
			a: Allocated service-worker ! | cleaned, and not configured to the end: task "Install": no such package
			b: Allocated service-worker ! | the cleanup broke off: task "Install": no such package
			c: Allocated service-worker 3 | not begun: 2 nodes failed and max_failures is 1`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tell(t, tt.job, tt.rules, tt.story)
		})
	}
}

// TestReapplyBrokenCleanup: a cleanup that breaks off leaves no node clean that others
// than its playbooks have cleaned, and begins none.
func TestReapplyBrokenCleanup(t *testing.T) {
	t.Parallel()

	for _, exit := range []string{"interrupted", "internal"} {
		j := configuredBy(inventory.VerbReapply, "",
			"a Allocated service-worker v1", "b Allocated service-worker v2", "c Allocated service-worker v3")

		var got []string

		step := finishAll(t, j, func(s Step) string {
			got = append(got, s.PlaybookDigest+" "+s.Playbook+" "+strings.Join(s.Hosts, " "))

			if s.PlaybookDigest == "v2" {
				return exit + " b=begun"
			}
			return "done"
		})

		want := []string{"v1 cleanup.yml a", "v2 cleanup.yml b", j.PlaybookDigest + " site.yml a"}
		if exit == "interrupted" {
			want = slices.Insert(want, 2, want[1])
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", exit, got, want)
		}

		a, b, c := step.Outcomes["a"], step.Outcomes["b"], step.Outcomes["c"]
		if step.Status != Errored || string(step.Cause) != exit || a.Applied != j.ID || a.Error != "" ||
			b.Applied != "" || !strings.HasPrefix(b.Error, "the cleanup broke off: ") ||
			c.Applied != "3" || !strings.HasPrefix(c.Error, "not configured again: ") {
			t.Errorf("%s: %+v", exit, step)
		}
	}
}

// TestReapplyCleansWithItsOwn: each node is cleaned with the playbooks that configured
// it, and configured with those of now.
func TestReapplyCleansWithItsOwn(t *testing.T) {
	t.Parallel()

	j := configuredBy(inventory.VerbReapply, "", "a Allocated service-worker v1", "b Allocated service-worker v2")

	var got []string

	step := finishAll(t, j, func(s Step) string {
		for _, host := range s.Hosts {
			got = append(got, s.PlaybookDigest+" "+s.Playbook+" "+host)
		}

		return "done"
	})

	want := []string{
		"v1 cleanup.yml a", "v2 cleanup.yml b", j.PlaybookDigest + " site.yml a", j.PlaybookDigest + " site.yml b",
	}
	if len(got) != len(want) {
		t.Fatalf("%q", got)
	}

	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%q, want %q", got[i], want[i])
		}
	}

	for name, o := range step.Outcomes {
		if o.Playbooks[inventory.GroupWorker] != j.PlaybookDigest {
			t.Errorf("%s carries %v", name, o.Playbooks)
		}
	}
}
