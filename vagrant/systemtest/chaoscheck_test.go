// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// register is the model of a variable: a read returns what was written last.
var register = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		if o := input.(operation); o.Kind == opWrite { //nolint:forcetypeassert // that is what goes in
			return true, o.Value
		}
		return output == state, state
	},
	DescribeOperation: func(input, output any) string {
		o := input.(operation) //nolint:forcetypeassert // that is what goes in
		return fmt.Sprintf("%s %v", o.Kind, output)
	},
}

// notLinearizable returns the variables whose writes and linearizable reads fit no order in time, with them. A write
// with an unknown outcome may take effect at any time from its beginning on, or never.
func notLinearizable(all []operation) []string {
	var (
		problems []string
		byKey    = map[string][]operation{}
		read     = map[[2]string]bool{}
		end      int64
	)

	for _, o := range all {
		if o.Kind == opWrite && o.Outcome != refused || o.Kind == opRead && o.Outcome == acknowledged {
			byKey[o.Key] = append(byKey[o.Key], o)
			read[[2]string{o.Key, o.Value}] = read[[2]string{o.Key, o.Value}] || o.Kind == opRead
			end = max(end, o.End)
		}
	}

	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		var history []porcupine.Operation

		for _, o := range byKey[key] {
			if o.Outcome == unknown {
				// One that nobody saw may be the last of all.
				if !read[[2]string{o.Key, o.Value}] {
					continue
				}

				o.End = end + 1
			}

			// The clients of the checker have one operation at a time, and one without an outcome never ends.
			history = append(history, porcupine.Operation{
				ClientId: len(history), Input: o, Output: o.Value, Call: o.Begin, Return: o.End,
			})
		}

		switch porcupine.CheckOperationsTimeout(register, history, time.Minute) {
		case porcupine.Illegal:
			problems = append(problems, fmt.Sprintf("the variable %s is not linearizable:\n%s", key, tell(byKey[key])))
		case porcupine.Unknown:
			problems = append(
				problems,
				fmt.Sprintf("the check of %d operations on %s took too long", len(history), key),
			)
		}
	}

	return problems
}

// tell prints operations in the order of their beginnings.
func tell(all []operation) string {
	var text strings.Builder

	inTime := func(a, b operation) int { return cmp.Compare(a.Begin, b.Begin) }
	for _, o := range slices.SortedFunc(slices.Values(all), inTime) {
		fmt.Fprintf(
			&text,
			"%s %s client %d: %s %s %s %q %s\n",
			clock(o.Begin),
			clock(o.End),
			o.Client,
			o.Kind,
			o.Outcome,
			o.Key,
			o.Value,
			o.Error,
		)
	}

	return text.String()
}

func clock(nanoseconds int64) string { return time.Unix(0, nanoseconds).Format("15:04:05.000") }

// goingBack returns where the default reads of a client show an older revision than its read before.
func goingBack(all []operation) []string {
	var problems []string

	last := map[int]operation{}

	for _, o := range all {
		if o.Kind != opView || o.Outcome != acknowledged {
			continue
		}

		if before := last[o.Client]; o.Revision < before.Revision {
			problems = append(
				problems,
				fmt.Sprintf("client %d read revision %d at %s, and %d before at %s", o.Client, o.Revision,
					clock(o.End), before.Revision, clock(before.End)),
			)
		}

		last[o.Client] = o
	}

	return problems
}

// step is a change of a node's status by a verb.
type step struct {
	verb     inventory.Verb
	from, to inventory.Status
}

// steps is the table of the lifecycle for the verbs of the chaos, as the design has it.
var steps = []step{
	{inventory.VerbDiscovered, "", inventory.Unallocated},

	{inventory.VerbCommission, inventory.Unallocated, inventory.Provisioning},
	{inventory.VerbCommission, inventory.Decommissioned, inventory.Provisioning},
	{inventory.VerbCommission, inventory.Provisioning, inventory.Allocated},
	{inventory.VerbCommission, inventory.Provisioning, inventory.Unallocated},
	{inventory.VerbCommission, inventory.Provisioning, inventory.Quarantined},

	{inventory.VerbUpdate, inventory.Allocated, inventory.Maintenance},
	{inventory.VerbUpdate, inventory.Maintenance, inventory.Allocated},
	{inventory.VerbUpdate, inventory.Maintenance, inventory.Unallocated},
	{inventory.VerbUpdate, inventory.Maintenance, inventory.Quarantined},

	{inventory.VerbApply, inventory.Allocated, inventory.Maintenance},
	{inventory.VerbApply, inventory.Maintenance, inventory.Allocated},
	{inventory.VerbMaintenance, inventory.Allocated, inventory.Maintenance},
	{inventory.VerbMaintenance, inventory.Maintenance, inventory.Allocated},
	{inventory.VerbVerify, inventory.Allocated, inventory.Maintenance},
	{inventory.VerbVerify, inventory.Maintenance, inventory.Allocated},

	{inventory.VerbDecommission, inventory.Allocated, inventory.Decommissioning},
	{inventory.VerbDecommission, inventory.Quarantined, inventory.Decommissioning},
	// With residue:
	{inventory.VerbDecommission, inventory.Unallocated, inventory.Decommissioning},
	{inventory.VerbDecommission, inventory.Decommissioned, inventory.Decommissioning},
	{inventory.VerbDecommission, inventory.Decommissioning, inventory.Decommissioned},

	{inventory.VerbClear, inventory.Quarantined, inventory.Decommissioning},
	{inventory.VerbClear, inventory.Decommissioning, inventory.Unallocated},
	{inventory.VerbClear, inventory.Decommissioning, inventory.Quarantined},
}

var inProgress = []inventory.Status{inventory.Provisioning, inventory.Maintenance, inventory.Decommissioning}

// offTable returns where a node's history is no path in the table, where a job ended what another one began, and where
// it ends elsewhere than at the node's status.
func offTable(name string, history []inventory.HistoryEntry, now inventory.Status) []string {
	var (
		problems []string
		status   inventory.Status
		job      string
	)

	for _, e := range history {
		if e.From != status {
			problems = append(
				problems,
				fmt.Sprintf("%s: entry %d starts at %q, and the one before ended at %q", name, e.Seq, e.From,
					status),
			)
		}

		if e.From != e.To {
			if !slices.Contains(steps, step{e.Verb, e.From, e.To}) {
				problems = append(
					problems,
					fmt.Sprintf("%s: entry %d: %s may not lead from %q to %q", name, e.Seq, e.Verb, e.From, e.To),
				)
			}

			if slices.Contains(inProgress, e.From) && e.Job != job {
				problems = append(
					problems,
					fmt.Sprintf("%s: entry %d: job %q ended what job %q had begun", name, e.Seq, e.Job, job),
				)
			}

			job = e.Job
		}

		status = e.To
	}

	if status != now {
		problems = append(problems, fmt.Sprintf("%s is %q, and its history ends at %q", name, now, status))
	}

	return problems
}

// tick is a line that a run wrote on a host, ten of which are whole.
type tick struct {
	note    string
	process string
	number  int
}

func parseTicks(text string) ([]tick, error) {
	var all []tick

	for line := range strings.Lines(text) {
		var t tick
		if _, err := fmt.Sscanf(line, "%s %s %d", &t.note, &t.process, &t.number); err != nil {
			return nil, fmt.Errorf("the line %q: %w", line, err)
		}

		all = append(all, t)
	}

	return all, nil
}

const wholeRun = 10

// mixed returns where runs acted on a host at the same time: the lines of a process do not follow each other.
func mixed(ticks []tick) []string {
	var problems []string

	ended := map[string]bool{}

	for i, t := range ticks {
		switch {
		case i > 0 && ticks[i-1].process == t.process && ticks[i-1].number+1 != t.number:
			problems = append(
				problems,
				fmt.Sprintf("the run of %s goes from %d to %d", t.note, ticks[i-1].number, t.number),
			)
		case i > 0 && ticks[i-1].process != t.process:
			ended[ticks[i-1].process] = true
		}

		if ended[t.process] {
			problems = append(
				problems,
				fmt.Sprintf("the run of %s went on at %d after that of %s had begun", t.note, t.number,
					ticks[i-1].note),
			)
		}
	}

	return problems
}

// disagreements returns where the outcome of a job is not what the hosts show. The notes of requests are by job.
func disagreements(jobs []api.Job, notes map[string]string, ticks map[string][]tick) []string {
	var problems []string

	for _, j := range jobs {
		note := notes[j.ID]
		if note == "" {
			continue
		}

		cleans := j.Verb == inventory.VerbDecommission || j.Verb == inventory.VerbClear

		for _, node := range j.Nodes {
			seen := slices.ContainsFunc(ticks[node], func(t tick) bool { return t.note == note })
			whole := slices.ContainsFunc(
				ticks[node],
				func(t tick) bool { return t.note == note && t.number == wholeRun-1 },
			)

			switch {
			case j.Status == api.Complete && !cleans && !whole:
				problems = append(
					problems,
					fmt.Sprintf("job %s (%s) is Complete, and no run of it was whole on %s", j.ID, j.Verb, node),
				)
			case len(j.Runs) == 0 && seen:
				problems = append(problems, fmt.Sprintf("job %s (%s) has no run, and acted on %s", j.ID, j.Verb, node))
			}
		}
	}

	return problems
}

// TestChaosChecks has each check find what it is for.
func TestChaosChecks(t *testing.T) {
	want := func(what string, n int, got []string) {
		t.Helper()

		if len(got) != n {
			t.Errorf("%s: want %d problems, have %q", what, n, got)
		}
	}

	write := func(value, outcome string, begin, end int64) operation {
		return operation{Kind: opWrite, Key: "k", Value: value, Outcome: outcome, Begin: begin, End: end}
	}
	read := func(value string, begin, end int64) operation {
		return operation{Kind: opRead, Key: "k", Value: value, Outcome: acknowledged, Begin: begin, End: end}
	}

	want("in order", 0, notLinearizable([]operation{read("", 1, 2), write("a", acknowledged, 3, 4), read("a", 5, 6)}))
	want("a lost write", 1, notLinearizable([]operation{write("a", acknowledged, 1, 2), read("", 3, 4)}))
	want("a stale read", 1, notLinearizable([]operation{
		write("a", acknowledged, 1, 2), write("b", acknowledged, 3, 4), read("a", 5, 6),
	}))
	want("concurrent", 0, notLinearizable([]operation{
		write("a", acknowledged, 1, 9), write("b", acknowledged, 2, 8), read("b", 10, 11), read("b", 12, 13),
	}))
	want("unknown, and late", 0, notLinearizable([]operation{
		write("a", unknown, 1, 2), read("", 3, 4), read("a", 5, 6), read("a", 7, 8),
	}))
	want("unknown, and twice", 1, notLinearizable([]operation{
		write("a", unknown, 1, 2), read("a", 3, 4), write("b", acknowledged, 5, 6), read("b", 7, 8), read("a", 9, 10),
	}))
	want("acknowledged, and twice", 1, notLinearizable([]operation{
		write("a", acknowledged, 1, 2), read("a", 3, 4), write("b", acknowledged, 5, 6), read("b", 7, 8),
		read("a", 9, 10),
	}))
	want("refused, and done", 1, notLinearizable([]operation{write("a", refused, 1, 2), read("a", 3, 4)}))
	want("a value of nobody", 1, notLinearizable([]operation{read("a", 3, 4)}))

	view := func(client int, revision int64) operation {
		return operation{Kind: opView, Client: client, Revision: revision, Outcome: acknowledged}
	}

	want("forward", 0, goingBack([]operation{view(1, 5), view(2, 3), view(1, 5), view(2, 4)}))
	want("back", 1, goingBack([]operation{view(1, 5), view(1, 4)}))

	entry := func(verb inventory.Verb, from, to inventory.Status, job string) inventory.HistoryEntry {
		return inventory.HistoryEntry{Verb: verb, From: from, To: to, Job: job}
	}
	begun := []inventory.HistoryEntry{
		entry(inventory.VerbDiscovered, "", inventory.Unallocated, ""),
		entry(inventory.VerbCommission, inventory.Unallocated, inventory.Provisioning, "1"),
	}

	want("in the table", 0, offTable("n", append(slices.Clone(begun),
		entry(inventory.VerbCommission, inventory.Provisioning, inventory.Allocated, "1")), inventory.Allocated))
	want("of another job", 1, offTable("n", append(slices.Clone(begun),
		entry(inventory.VerbCommission, inventory.Provisioning, inventory.Allocated, "2")), inventory.Allocated))
	want("not in the table", 1, offTable("n", append(
		slices.Clone(begun),
		entry(
			inventory.VerbCommission,
			inventory.Provisioning,
			inventory.Decommissioned,
			"1",
		),
	), inventory.Decommissioned))
	want("a gap", 1, offTable("n", append(slices.Clone(begun),
		entry(inventory.VerbApply, inventory.Maintenance, inventory.Allocated, "1")), inventory.Allocated))
	want("elsewhere", 1, offTable("n", begun, inventory.Allocated))

	acts := func(note, process string, from, to int) []tick {
		var all []tick
		for i := from; i <= to; i++ {
			all = append(all, tick{note, process, i})
		}

		return all
	}

	want("one by one", 0, mixed(slices.Concat(acts("a", "1", 0, 4), acts("b", "2", 0, 9), acts("a", "3", 0, 9))))
	want("together", 1, mixed(slices.Concat(acts("a", "1", 0, 4), acts("b", "2", 0, 2), acts("a", "1", 5, 5))))
	want("a line lost", 1, mixed(slices.Concat(acts("a", "1", 0, 4), acts("a", "1", 6, 9))))

	job := func(status api.JobStatus, runs int) []api.Job {
		return []api.Job{{
			ID: "1", Verb: inventory.VerbApply, Status: status, Nodes: []string{"n"}, Runs: make([]api.Run, runs),
		}}
	}
	notes := map[string]string{"1": "a"}

	want("Complete", 0, disagreements(job(api.Complete, 1), notes, map[string][]tick{"n": acts("a", "1", 0, 9)}))
	want(
		"Complete, but not done",
		1,
		disagreements(job(api.Complete, 1), notes, map[string][]tick{"n": acts("a", "1", 0, 8)}),
	)
	want("failed half-way", 0, disagreements(job(api.Errored, 1), notes, map[string][]tick{"n": acts("a", "1", 0, 8)}))
	want(
		"never begun, but done",
		1,
		disagreements(job(api.Errored, 0), notes, map[string][]tick{"n": acts("a", "1", 0, 0)}),
	)
}
