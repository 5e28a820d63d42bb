// SPDX-License-Identifier: Apache-2.0

package job

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv/cluster/inventory"
)

// batchSize returns the number of targets in a batch. A share is rounded down,
// but a batch has at least one target. Without serial all targets are one batch.
func batchSize(serial string, targets int) (int, error) {
	if serial == "" {
		return max(targets, 1), nil
	}
	return inventory.Amount(serial).Of(targets)
}

// Batches returns the targets in the batches in which the job takes them, in
// order.
func (j Job) Batches() [][]Target {
	// Acceptance has checked the size.
	size, err := batchSize(j.Serial, len(j.Targets))
	if err != nil {
		size = max(len(j.Targets), 1)
	}
	return slices.Collect(slices.Chunk(j.Targets, size))
}

// BatchOf returns the number of the batch with the target, from 1, and the number
// of batches. Both are 0 for a job that takes all targets at once.
func (j Job) BatchOf(name string) (number, of int) {
	if j.Serial == "" {
		return 0, 0
	}

	batches := j.Batches()
	for i, batch := range batches {
		if slices.ContainsFunc(batch, func(t Target) bool { return t.Name == name }) {
			return i + 1, len(batches)
		}
	}

	return 0, len(batches)
}

// inBatches plans the verb for one batch after the other. A batch begins only if
// nothing stops the job, the failures so far are within the limit, and the rules
// of the groups allow it. The targets of the other batches stay as they are.
func (p *Planner) inBatches(v Verb) Step {
	var (
		batches  = p.Batches()
		outcomes = map[string]inventory.Outcome{}
		failed   []Step
		failures int
	)

	for i, batch := range batches {
		part := p.batch(batch, p.begun(batches[i+1:]))

		if len(part.Runs) == 0 {
			if cause, why := p.obstacle(batch, failures); why != "" {
				return p.endEarly(failed, slices.Concat(batches[i:]...), cause, why, outcomes)
			}
		}

		step := v.Plan(part)
		if step.Kind != "" {
			return step
		}

		for name, o := range step.Outcomes {
			outcomes[name] = o
			if o.Error != "" && !drifted(o) {
				failures++
			}
		}

		// A batch may be complete with a warning, as of configuration that is left on its nodes. Other messages
		// describe the result, and end makes them for the whole job.
		warned := step.Message != "" && !p.Check && !p.Partial() && !v.Row.Verifies
		if step.Cause != "" || warned {
			failed = append(failed, step)
		}
	}

	cause, message := summarize(failed)

	return p.end(cause, message, outcomes)
}

// begun reports whether a run of the job was on a target of the batches.
func (p *Planner) begun(batches [][]Target) bool {
	return slices.ContainsFunc(batches, func(batch []Target) bool { return len(runsOn(p.Runs, batch)) > 0 })
}

// runsOn returns the runs on the batch. A run never spans two batches.
func runsOn(runs []Run, batch []Target) []Run {
	var on []Run
	for _, r := range runs {
		ofBatch := func(t Target) bool { return len(r.Hosts) > 0 && t.Name == r.Hosts[0] }
		if slices.ContainsFunc(batch, ofBatch) {
			on = append(on, r)
		}
	}

	return on
}

// batch returns a planner for the batch alone. Once a later batch has begun, the
// batch is over: neither a stop nor the rules of today change its end.
func (p *Planner) batch(targets []Target, over bool) *Planner {
	part := *p
	part.Targets = targets
	part.Runs = runsOn(p.Runs, targets)

	if over {
		part.stop, part.stopMessage, part.Cancel = "", "", 0
		part.rules = pastRules{}
	}

	return &part
}

// pastRules stand for the rules at the end of a batch that is over: a cleanup
// that was not run then does not run later.
type pastRules struct{}

func (pastRules) MayLeave([]string) error {
	return errors.New("a rule of the groups did not allow it then")
}
func (pastRules) MayBegin([]Target) error { return nil }

// obstacle returns why the next batch does not begin, or "".
func (p *Planner) obstacle(batch []Target, failures int) (Cause, string) {
	switch {
	case p.stop != "":
		return p.stop, p.stopMessage
	case failures > p.MaxFailures:
		return CauseFailed, fmt.Sprintf("%s failed and max_failures is %d",
			inventory.Count(failures, "node", "nodes"), p.MaxFailures)
	}

	if err := p.rules.MayBegin(batch); err != nil {
		return CausePrecondition, Message(err)
	}

	return "", ""
}

// endEarly ends the job with targets that were not begun.
func (p *Planner) endEarly(
	failed []Step, rest []Target, cause Cause, why string, outcomes map[string]inventory.Outcome,
) Step {
	names := make([]string, len(rest))
	for i, t := range rest {
		names[i] = t.Name
		outcomes[t.Name] = inventory.Outcome{
			Status: t.From, Group: t.FromGroup, Applied: t.Applied, Residue: t.Residue,
			Error: prefixNotBegun + why, Reason: prefixNotBegun + why,
		}
	}

	// The failure of a batch comes first: it is the cause of the rest.
	first, message := summarize(failed)

	switch {
	case message == "" || message == why:
		message = fmt.Sprintf("%s; not begun: %s", why, ShortList(names))
	default:
		message = fmt.Sprintf("%s; not begun, because %s: %s", message, why, ShortList(names))
	}

	// A cancel or a deadline ends the job as such, whatever failed before.
	if first != "" && cause != p.stop {
		cause = first
	}

	return p.end(cause, message, outcomes)
}

// summarize returns the cause of the first failed batch, and the messages of all.
func summarize(failed []Step) (cause Cause, message string) {
	const most = 3 // messages

	var messages []string
	for _, s := range failed {
		cause = cmp.Or(cause, s.Cause)

		if !slices.Contains(messages, s.Message) {
			messages = append(messages, s.Message)
		}
	}

	if len(messages) == 0 {
		return "", ""
	}

	if more := len(messages) - most; more > 0 {
		messages = append(messages[:most], "and "+inventory.Count(more, "more batch", "more batches"))
	}

	return cause, strings.Join(messages, "; ")
}

// checkBatches checks the rules of the groups for one batch after the other, each
// on the nodes after the success of those before it.
func (v Verb) checkBatches(nodes []*inventory.Node, groups inventory.Groups, j Job) error {
	if j.Serial == "" || !v.Leaves && !v.Joins && !groups.Budgeted() {
		return v.checkGroups(nodes, groups, j)
	}

	after := slices.Clone(nodes)
	batches := j.Batches()

	for i, batch := range batches {
		part := j
		part.Targets = batch

		err := v.checkGroups(after, groups, part)
		if e, ok := errors.AsType[*inventory.Error](err); ok && len(batches) > 1 {
			in := *e
			in.Message = fmt.Sprintf("in batch %d of %d: %s", i+1, len(batches), e.Message)
			return &in
		}

		if err != nil {
			return err
		}

		for _, t := range batch {
			replace(after, t.Name, j.success(t))
		}
	}

	return nil
}

// order sorts the targets of a job in batches that takes nodes out of service for good: nodes leave before those that
// they require.
func (s Snapshot) order(groups inventory.Groups, j *Job) {
	if v := j.verb(); !v.Leaves || v.Joins || j.Serial == "" {
		return
	}

	depth := func(t Target) int {
		n, _ := s.Lookup(t.Name)
		return groups.Depth(n.Group)
	}

	slices.SortStableFunc(j.Targets, func(a, b Target) int { return depth(a) - depth(b) })
}

// InBatches returns the refusal of a job, which Accept returned with it. If a budget refuses it, and
// batches would help, the remedy is what again returns for the job with their size: the actions, and
// what the operator has to add to them.
func (s Snapshot) InBatches(
	groups inventory.Groups, j Job, refusal error, again func(Job) ([]inventory.Action, string),
) error {
	e, ok := errors.AsType[*inventory.Error](refusal)
	if !ok || len(j.Targets) < 2 || j.verb().Row.Verifies || j.Check {
		return refusal
	}

	nodes := s.project(0)
	if groups.CheckBudgets(nodes, j.Names()) == nil {
		return refusal
	}

	smaller := *e

	for _, size := range []int{groups.AtATime(nodes, j.Names()), 1} {
		if size == 0 || !j.verb().Row.Accepts(inventory.FieldSerial) {
			continue
		}

		part := j
		part.Targets, part.Serial = slices.Clone(j.Targets), strconv.Itoa(size)
		s.order(groups, &part)

		if legal(nodes, groups, &part) == nil {
			actions, with := again(part)
			smaller.Actions = actions
			return smaller.Do("take %s at a time (serial)%s", inventory.Count(size, "node", "nodes"), with)
		}
	}

	// Another budget would not help against a broken requirement.
	bare := j
	bare.Targets = slices.Clone(j.Targets)

	if broken := legal(nodes, groups.Unbudgeted(), &bare); broken != nil {
		if strings.HasPrefix(e.Message, Message(broken)) {
			return refusal
		}
		return broken
	}

	stay := j.verb().Row.Success == inventory.Allocated
	lower := groups.Lowering(nodes, j.Names(), stay)
	smaller.Actions = lower

	switch never := slices.ContainsFunc(e.Actions, lowers); {
	case len(lower) == 0:
		return refusal
	case never:
		return &smaller
	case groups.AtATime(nodes, j.Names()) > 0, len(e.Actions) == 0:
		return smaller.Do("take fewer nodes, add a node to the group, or lower min_available")
	}

	return refusal
}

func lowers(a inventory.Action) bool { return a.Name == inventory.ActionSetGroup }

// success returns the outcome of a target if the job succeeds, as far as the rules of the
// groups depend on it.
func (j Job) success(t Target) inventory.Outcome {
	row := j.verb().Row
	if row.Success == inventory.AsBefore {
		return inventory.Outcome{Status: t.From, Group: t.FromGroup, AsBefore: true}
	}
	o := inventory.Outcome{Status: row.Success, Group: t.Group, Trusted: row.CleansHost, AsBefore: j.Check}

	if row.Verifies {
		o.Verdict = &inventory.Verdict{Result: inventory.Clean}
	}

	// A new job has no id yet.
	if !row.Verifies && !j.Check && !j.Partial() {
		o.Applied = cmp.Or(j.ID, "new")
	}

	return o
}

// replace puts a copy of the node with the outcome into nodes, which are sorted by
// name.
func replace(nodes []*inventory.Node, name string, o inventory.Outcome) {
	i, ok := slices.BinarySearchFunc(nodes, name, func(n *inventory.Node, name string) int {
		return strings.Compare(n.Name, name)
	})
	if !ok {
		return
	}
	n := *nodes[i]
	n.Cleaned, n.Verification = n.CleanedAfter(o), n.VerificationAfter(o, o.Status)
	n.Uncleaned = n.UncleanedAfter(o)
	n.Status, n.Group = o.Status, o.Group
	n.Job, n.Verb, n.Before = "", "", nil
	nodes[i] = &n
}

// Serving returns the nodes with the targets of a Running job as they serve. The
// job holds all its targets, but those of a batch that has not begun serve as
// before, and those of a batch that is over are as it left them.
func (j Job) Serving(nodes []*inventory.Node) []*inventory.Node {
	if j.Serial == "" || j.Status != Running {
		return nodes
	}

	v := j.verb()
	p := Planner{Job: j, row: v.Row, rules: pastRules{}}
	p.Runs, _ = begun(j.Runs, true)
	serving := slices.Clone(nodes)

	for _, batch := range j.Batches() {
		part := p.batch(batch, true)
		before := func(t Target) inventory.Outcome {
			return inventory.Outcome{Status: t.From, Group: t.FromGroup, AsBefore: true}
		}
		outcomes := p.each(before)

		if run := part.LastRun(); run != nil {
			if run.Exit == "" {
				continue
			}

			if outcomes = v.Plan(part).Outcomes; outcomes == nil {
				continue
			}
		}

		for _, t := range batch {
			replace(serving, t.Name, outcomes[t.Name])
		}
	}

	return serving
}

// MayHelp reports whether the node may be a helper of the run: it is one of the
// job, or a target of another batch.
func (j Job) MayHelp(run Run, name string) bool {
	if slices.Contains(run.Hosts, name) {
		return false
	}

	_, target := j.Target(name)
	return slices.Contains(j.Helpers, name) || j.Serial != "" && target
}

// Occupies reports whether the node is no peer of the run: it is a target of the
// job, or of the run's batch.
func (j Job) Occupies(run Run, name string) bool {
	if j.Serial != "" {
		return slices.Contains(run.Hosts, name)
	}

	_, ok := j.Target(name)
	return ok
}

// RulesOf returns the rules of the groups for a Running job.
func RulesOf(j Job, nodes []*inventory.Node, groups inventory.Groups) Rules {
	return liveRules{job: j, nodes: nodes, groups: groups}
}

type liveRules struct {
	job    Job
	nodes  []*inventory.Node
	groups inventory.Groups
}

func (r liveRules) MayLeave(names []string) error {
	if r.job.Serial == "" {
		return r.groups.CheckLeave(r.nodes, names)
	}

	// The cleanup is still to come, whatever Serving takes for the end of its batch.
	serving := slices.Clone(r.job.Serving(r.nodes))
	for i, n := range serving {
		if slices.Contains(names, n.Name) {
			serving[i] = Find(r.nodes, n.Name)
		}
	}

	return r.groups.CheckLeave(serving, names)
}

func (r liveRules) MayBegin(batch []Target) error {
	part := r.job
	part.Targets = batch
	return part.verb().checkGroups(r.job.Serving(r.nodes), r.groups, part)
}

// HelpersOf returns the helpers of a run: those of the job, and for each group that
// has none a target of another batch that serves. nodes are those of Serving.
func (j Job) HelpersOf(run Run, nodes []*inventory.Node, groups inventory.Groups) []string {
	helpers := slices.Clone(j.Helpers)
	if j.Serial == "" || !j.verb().Helps || j.WithoutHelpers {
		return helpers
	}

	for _, g := range groups {
		touched := slices.ContainsFunc(run.Hosts, func(name string) bool {
			t, _ := j.Target(name)
			return t.Group == g.Name || t.FromGroup == g.Name
		})
		if !touched || groups.Required(g.Name) == 0 {
			continue
		}

		serves := func(n *inventory.Node) bool {
			return n.Group == g.Name && n.Healthy() && !slices.Contains(run.Hosts, n.Name)
		}
		helps := func(n *inventory.Node) bool { return serves(n) && slices.Contains(j.Helpers, n.Name) }
		target := func(n *inventory.Node) bool {
			_, ok := j.Target(n.Name)
			return ok && serves(n)
		}

		if i := slices.IndexFunc(nodes, target); i >= 0 && !slices.ContainsFunc(nodes, helps) {
			helpers = append(helpers, nodes[i].Name)
		}
	}

	return helpers
}
