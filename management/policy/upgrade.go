// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
)

// UpgradeMode selects how far a policy goes when the repository moves.
type UpgradeMode string

// The modes.
const (
	UpgradePlan UpgradeMode = "plan"    // the rollout waits until a person approves it
	UpgradeRun  UpgradeMode = "upgrade" // the rollout begins
)

// UpgradeModes lists every mode.
var UpgradeModes = []UpgradeMode{UpgradePlan, UpgradeRun}

// UpgradeActions are the verbs that bring a node in service to other playbooks.
var UpgradeActions = []inventory.Verb{inventory.VerbApply, inventory.VerbUpdate, inventory.VerbReapply}

// UpgradeRule says which nodes in service follow the repository of playbooks. Its name names the policy.
type UpgradeRule struct {
	Name string
	// Match reports whether the rule is for a node; Selector is its text. All: it is for
	// every node.
	Match    func(*inventory.Node) bool
	Selector string
	All      bool
	Mode     UpgradeMode
	Settle   time.Duration // how long a commit has to be in use: several become one
	Spec     rollout.Spec  // of the rollout; a canary larger than it is all of its nodes
}

// Upgrade is the policy that rolls a new commit of the repository out, under one rule. It is
// off until an operator turns it on.
type Upgrade struct{ Rule UpgradeRule }

var _ Policy = Upgrade{}

// Name implements Policy.
func (u Upgrade) Name() string { return u.Rule.Name }

// Selects implements Selecting.
func (u Upgrade) Selects() (kind, selector string, all bool) {
	return "upgrade", u.Rule.Selector, u.Rule.All
}

// About implements Policy.
func (u Upgrade) About(w World) string {
	r := u.Rule

	what := "starts a rollout"
	if r.Mode == UpgradePlan {
		what = "plans a rollout, which a person approves,"
	}
	text := fmt.Sprintf("%s (%s) of the outdated nodes in service (%s), %s after another commit of the repository "+
		"came into use; at a time %s", what, r.Spec.Action, matches(r.Selector, r.All), short(r.Settle),
		cmp.Or(r.Spec.MaxUnavailable, "1"))
	if r.Spec.Canary > 0 {
		text += ", " + inventory.Count(r.Spec.Canary, "node", "nodes") + " first"
	}
	if overlap := u.overlap(w); overlap != "" {
		text += "; " + overlap
	}

	return text
}

// matches describes the nodes of a rule.
func matches(selector string, all bool) string {
	if all {
		return "all"
	}
	return selector
}

// Judge implements Policy.
func (u Upgrade) Judge(w World) []Judgement {
	step, nodes := u.judge(w)

	if step.Stage == StageAct && w.limits().admit(&step) {
		step.Reason = u.stepText(step.Decision, len(nodes))
	}

	step.Action = cmp.Or(step.Action, state.ActionUpgrade)

	all := []Judgement{step}
	if len(nodes) > 0 {
		all = nil
	}

	for _, n := range nodes {
		step.Node = n
		all = append(all, step)
	}

	p := w.playbooks()

	for _, n := range w.View.Nodes() {
		if unready := u.unready(w, n); unready != "" && u.isBehind(w, n, p) {
			step = wait("it is left out for now: " + unready)
			step.Node, step.Action = n, state.ActionUpgrade
			all = append(all, step)
		}
	}

	return all
}

// judge returns the next step of the policy, and the nodes that are to be brought to the commit in use.
func (u Upgrade) judge(w World) (Judgement, []*inventory.Node) {
	p := w.playbooks()
	behind := u.behind(w, p)

	switch {
	case p.Problem != "":
		return wait("the playbooks cannot be read: " + p.Problem), behind
	case p.Commit == "":
		return wait("the playbooks come from no repository, which could move"), nil
	}

	// A decision that was recorded may have its rollout already.
	if d := u.carrying(w); d != nil {
		return wait(fmt.Sprintf("the decision %s is being carried out", d.ID)), behind
	}

	due := w.settled(p.Since).Add(u.Rule.Settle)
	early := Judgement{Stage: StageWait, Until: due, Reason: fmt.Sprintf(
		"commit %s is in use since %s; it is rolled out not before %s (policies.upgrade.%s.settle)",
		shortHash(p.Commit), stamp(p.Since), stamp(due), u.Name())}

	// The open rollout comes before the outdated nodes: a commit that was taken back leaves
	// none outdated, and its rollout must not go on.
	if r := u.open(w); r != nil {
		text, over := u.supersedes(w, r, p)

		switch {
		case !over:
			return wait(text), behind
		case w.Now.Before(due):
			return early, behind
		}

		return act(u.supersede(w, r, p, text)), behind
	}

	left, blocked := u.left(w, p, behind)

	switch {
	case blocked != "":
		return wait(blocked), behind
	case len(left) == 0:
		return Judgement{}, nil
	case w.Now.Before(due):
		return early, behind
	}

	// A start would be refused, and a refusal counts against the commit.
	if busy := w.rolling(left); busy != "" {
		return wait(busy), left
	}

	return act(u.decision(w, p, names(left))), left
}

// playbooks returns the playbooks that would configure a node now.
func (w World) playbooks() state.Playbooks {
	if w.Settings.Playbooks == nil {
		return state.Playbooks{}
	}
	return w.Settings.Playbooks(w.View)
}

// behind returns the nodes of the rule in service that other playbooks have configured, or of
// which that is not known, and that a rollout could begin now.
func (u Upgrade) behind(w World, p state.Playbooks) []*inventory.Node {
	var behind []*inventory.Node

	for _, n := range w.View.Nodes() {
		if u.isBehind(w, n, p) && u.unready(w, n) == "" {
			behind = append(behind, n)
		}
	}

	return behind
}

// unready returns why no rollout could begin the node now, in words, or "". A rollout with no
// node to begin is refused.
func (u Upgrade) unready(w World, n *inventory.Node) string {
	row, _ := inventory.TransitionOf(u.Rule.Spec.Action)
	excluded := exclusion(n)

	switch {
	case excluded != "":
		return excluded
	case n.State != inventory.Discovered:
		return "the observers do not see it"
	case n.Job != "":
		return "job " + n.Job + " holds it"
	case w.undecided(n):
		return undecided
	}

	if err := row.Check(*n); err != nil {
		return job.Message(err)
	}

	return ""
}

// undecided is the reason to leave a node as it is that returned.
const undecided = "it returned, and policy returns has not decided on it yet"

// undecided reports whether a policy that is on has still to decide on the newest return of the
// node. Its host key may not be known yet.
func (w World) undecided(n *inventory.Node) bool {
	return n.Presence.Pending() && IsOn(state.AutomationOf(w.View), Returns{})
}

func (u Upgrade) isBehind(w World, n *inventory.Node, p state.Playbooks) bool {
	if p.Commit == "" || !n.InService() || !u.Rule.Match(n) || u.first(w, n) != "" {
		return false
	}

	// A job that failed half-way leaves the configuration unknown.
	if n.Configured == nil {
		return true
	}

	want := inventory.Configuration{Playbooks: p.Digest, Commit: p.Commit}

	return slices.Contains(want.Differs(n.Configured.Configuration), inventory.PartPlaybooks)
}

// first returns the policy that decides on the node instead of this one, or "": the first by name of the
// policies that are on. A paused policy keeps its nodes.
func (u Upgrade) first(w World, n *inventory.Node) string {
	for _, r := range w.Settings.Upgrade {
		if r.Name < u.Name() && r.Match(n) && IsOn(state.AutomationOf(w.View), Upgrade{r}) {
			return r.Name
		}
	}

	return ""
}

// overlap describes the nodes in service of the rule that another policy decides on, or returns "".
func (u Upgrade) overlap(w World) string {
	counts := map[string]int{}

	for _, n := range w.View.Nodes() {
		if n.InService() && u.Rule.Match(n) {
			if first := u.first(w, n); first != "" {
				counts[first]++
			}
		}
	}

	words := make([]string, 0, len(counts))
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		words = append(words, fmt.Sprintf("%s to %s", inventory.Count(counts[name], "node falls", "nodes fall"), name))
	}

	if len(words) == 0 {
		return ""
	}

	return strings.Join(words, ", ") + ", which comes first by name"
}

func names(nodes []*inventory.Node) []string {
	out := make([]string, len(nodes))
	for i, n := range nodes {
		out[i] = n.Name
	}

	return out
}

// carrying returns the decision of the policy that is not carried out yet, or nil.
func (u Upgrade) carrying(w World) *state.Decision {
	all := state.AutomationOf(w.View).Decisions

	i := slices.IndexFunc(all, func(d state.Decision) bool {
		return d.Policy == u.Name() && d.Phase == state.PhaseDecided && d.Action != state.ActionYield
	})
	if i < 0 {
		return nil
	}
	return &all[i]
}

// open returns the rollout of the policy that has not ended, or nil.
func (u Upgrade) open(w World) *rollout.Record {
	for _, r := range record.All(w.View, &rollout.Kind) {
		if r.Actor == state.PolicyPrincipal(u.Name()) && !r.Status.Ended() {
			return r
		}
	}

	return nil
}

// since is when the policy was turned on: attempts from before count no more.
func (u Upgrade) since(w World) time.Time {
	return w.past(state.AutomationOf(w.View).Switches[u.Name()].Since)
}

// supersedes reports whether a newer commit should replace the open rollout, and why, or why
// not.
func (u Upgrade) supersedes(w World, r *rollout.Record, p state.Playbooks) (text string, over bool) {
	again := r.Status == rollout.Stopped && r.Created.Before(u.since(w))

	switch {
	case r.Status == rollout.Aborting:
		return fmt.Sprintf("rollout %s finishes the nodes in hand", r.ID), false
	case r.Status == rollout.Stopped && r.Playbooks == p.Digest && !again:
		return fmt.Sprintf("rollout %s of commit %s is Stopped (%s): the commit is not tried again until the "+
			"repository moves, an operator retries the rollout, or turns the policy off and on again",
			r.ID, shortHash(r.Commit), r.Reason), false
	case r.Playbooks == p.Digest && !again:
		return fmt.Sprintf("rollout %s (%s) is at commit %s", r.ID, r.Status, shortHash(r.Commit)), false
	case r.Status == rollout.Paused:
		return fmt.Sprintf("rollout %s of commit %s waits until an operator resumes or aborts it (%s)",
			r.ID, shortHash(r.Commit), r.Reason), false
	case again:
		return fmt.Sprintf("the policy was turned on again after rollout %s had stopped", r.ID), true
	}

	return fmt.Sprintf("commit %s came into use, and rollout %s is of commit %s",
		shortHash(p.Commit), r.ID, shortHash(r.Commit)), true
}

// left returns the nodes that are still to be brought to the commit in use, or why that is
// not tried again.
func (u Upgrade) left(w World, p state.Playbooks, behind []*inventory.Node) (left []*inventory.Node, blocked string) {
	if len(behind) == 0 {
		return nil, ""
	}

	const again = "it is not tried again until the repository moves, or an operator turns the policy off and on again"

	if text := u.rejected(w, p); text != "" {
		return nil, text + "; " + again
	}

	last := u.last(w)
	// Other commits may have the same playbooks.
	if last == nil || last.Playbooks != p.Digest {
		return behind, ""
	}

	if last.Phase == state.PhaseRefused {
		return nil, fmt.Sprintf("the rollout of commit %s was refused: %s; %s", shortHash(p.Commit), last.Result, again)
	}

	// A commit that went well is also for nodes that were away, or that joined since.
	r := record.Get(w.View, &rollout.Kind, last.Rollout)
	if r == nil || r.Status != rollout.Done {
		return nil, fmt.Sprintf("rollout %s of commit %s did not reach all nodes; %s",
			last.Rollout, shortHash(p.Commit), again)
	}

	visited := u.visited(w, p)

	left = slices.DeleteFunc(slices.Clone(behind), func(n *inventory.Node) bool { return visited[n.Name] != "" })
	if len(left) == 0 {
		return nil, fmt.Sprintf("rollout %s of commit %s has had %s already; %s",
			visited[behind[0].Name], shortHash(p.Commit), behind[0].Name, again)
	}

	return left, ""
}

// rejected returns the rollout of the playbooks in use, of anybody, that says that they are not
// to be rolled out, in words, or "". One from before they came into use, or before the policy was
// turned on, says nothing.
func (u Upgrade) rejected(w World, p state.Playbooks) string {
	undone := map[string]*rollout.Record{}

	for _, r := range record.All(w.View, &rollout.Kind) {
		if r.UndoOf != "" {
			undone[r.UndoOf] = r
		}
	}

	for _, r := range slices.Backward(record.List(w.View, &rollout.Kind)) {
		if r.Playbooks != p.Digest || r.Created.Before(w.past(p.Since)) || r.Created.Before(u.since(w)) {
			continue
		}

		of := fmt.Sprintf("rollout %s of %s of commit %s", r.ID, job.OrSomebody(r.Actor), shortHash(p.Commit))

		switch undo := undone[r.ID]; {
		case undo != nil:
			return fmt.Sprintf("%s was undone by %s (rollout %s)", of, job.OrSomebody(undo.Actor), undo.ID)
		case r.Status == rollout.Aborted || r.Status == rollout.Fruitless || r.Status == rollout.Stopped:
			return fmt.Sprintf("%s is %s", of, describe(r))
		case r.Excess() != "": // a former version ended it as Done
			return fmt.Sprintf("%s is %s (%s)", of, r.Status, r.Excess())
		}
	}

	return ""
}

// describe returns the status of a rollout with its cause.
func describe(r *rollout.Record) string {
	if r.Reason == "" {
		return string(r.Status)
	}
	return fmt.Sprintf("%s (%s)", r.Status, r.Reason)
}

// last returns the newest decision of the policy on a rollout since it was turned on, or nil.
func (u Upgrade) last(w World) *state.Decision {
	all := state.AutomationOf(w.View).Decisions

	for i := range slices.Backward(all) {
		d := &all[i]
		if d.Policy == u.Name() && d.Action == state.ActionUpgrade && d.Phase != state.PhaseWithdrawn {
			if d.Time.Before(u.since(w)) {
				return nil
			}
			return d
		}
	}

	return nil
}

// visited returns the nodes that rollouts of the policy had with these playbooks, each with
// the newest of those rollouts.
func (u Upgrade) visited(w World, p state.Playbooks) map[string]string {
	visited := map[string]string{}

	for _, r := range record.All(w.View, &rollout.Kind) {
		if r.Actor != state.PolicyPrincipal(u.Name()) || r.Playbooks != p.Digest || r.Created.Before(u.since(w)) {
			continue
		}

		for k := range r.Nodes {
			visited[r.Nodes[k].Name] = r.ID
		}
	}

	return visited
}

// rolling returns why a rollout of the nodes would be refused beside the others, or "".
func (w World) rolling(nodes []*inventory.Node) string {
	open, chosen := 0, map[string]bool{}
	for _, n := range nodes {
		chosen[n.Name] = true
	}

	for _, r := range record.All(w.View, &rollout.Kind) {
		if r.Status.Ended() {
			continue
		}

		open++

		for k := range r.Nodes {
			n := &r.Nodes[k]
			if chosen[n.Name] && (n.State == rollout.Waiting || n.State.InProgress()) {
				return fmt.Sprintf("rollout %s (%s) of %s is to change %s first", r.ID, r.Status,
					job.OrSomebody(r.Actor), n.Name)
			}
		}
	}

	if open >= rollout.MaxOpen {
		return fmt.Sprintf("%d rollouts have not ended, which is the limit", open)
	}

	return ""
}

// decision returns the decision to roll the commit in use out.
func (u Upgrade) decision(w World, p state.Playbooks, nodes []string) state.Decision {
	from := u.commits(w, nodes)

	d := u.draft(w, state.ActionUpgrade, p)
	d.Case = fmt.Sprintf("commit %s is in use, and %s outdated", shortHash(p.Commit),
		inventory.Count(len(nodes), "node is", "nodes are"))
	d.Evidence = []string{
		fmt.Sprintf("commit %s is in use since %s", p.Commit, stamp(p.Since)),
		"outdated are " + job.ShortList(nodes),
	}

	most := 0

	for _, commit := range slices.Sorted(maps.Keys(from)) {
		count := inventory.Count(from[commit], "node has", "nodes have")
		if commit == "" {
			d.Evidence = append(d.Evidence, count+" playbooks of no known commit")
			continue
		}

		d.Evidence = append(d.Evidence, fmt.Sprintf("%s commit %s", count, commit))

		// The difference is shown from the commit of most nodes.
		if from[commit] > most {
			most, d.From = from[commit], commit
		}
	}

	if w.Settings.TakenBack != nil {
		for _, name := range nodes {
			if text := w.Settings.TakenBack(w.View, w.View.Find(name)); text != "" {
				d.Evidence = append(d.Evidence, text)
			}
		}
	}

	var left []string

	for _, n := range w.View.Nodes() {
		if u.isBehind(w, n, p) && u.unready(w, n) != "" {
			left = append(left, n.Name)
		}
	}

	if len(left) > 0 {
		text := "left out, because they are not seen, or cannot be changed now: " + job.ShortList(left)
		d.Evidence = append(d.Evidence, text)
	}

	return d
}

const follows = "another rollout is to follow: "

// supersede returns the decision to end the open rollout: its nodes in hand are finished, and
// no other is begun.
func (u Upgrade) supersede(w World, r *rollout.Record, p state.Playbooks, why string) state.Decision {
	d := u.draft(w, state.ActionSupersede, p)
	d.Case, d.From, d.Rollout = follows+why, r.Commit, r.ID
	d.Evidence = []string{
		fmt.Sprintf("rollout %s of commit %s is %s", r.ID, r.Commit, r.Status),
		fmt.Sprintf("commit %s is in use since %s", p.Commit, stamp(p.Since)),
	}

	return d
}

// draft returns a decision about the commit in use. Its id, the idempotency key, has the count of all
// decisions, because the store takes one decision at each count.
func (u Upgrade) draft(w World, a state.Action, p state.Playbooks) state.Decision {
	return state.Decision{
		ID:   fmt.Sprintf("%s/%s/%s/%d", u.Name(), a, shortHash(p.Commit), state.AutomationOf(w.View).Count),
		Time: w.Now, Policy: u.Name(), Action: a, Commit: p.Commit, Playbooks: p.Digest,
		Prevent: []string{
			"the policy turned off or paused",
			"selector, mode or settle time (policies.upgrade." + u.Name() + ")",
			"a rollout of an operator that had brought the nodes to the commit",
		},
		Phase: state.PhaseDecided,
	}
}

// commits counts the nodes by the commit that configured them; "": unknown.
func (u Upgrade) commits(w World, nodes []string) map[string]int {
	commits := map[string]int{}

	for _, name := range nodes {
		commit := ""
		if n := w.View.Find(name); n != nil && n.Configured != nil {
			commit = n.Configured.Commit
		}
		commits[commit]++
	}

	return commits
}

// Request returns the rollout that carries the decision out.
func (u Upgrade) Request(w World, d state.Decision) rollout.Request {
	w.View = w.without(d.ID)

	_, nodes := u.judge(w)

	r := rollout.Request{Spec: u.Rule.Spec, Nodes: names(nodes)}
	r.Selector, r.Playbooks = u.Rule.Selector, d.Playbooks
	r.RequireApproval = u.Rule.Mode == UpgradePlan
	r.Canary = min(r.Canary, len(r.Nodes))
	r.Promote = r.Promote && r.Canary > 0

	r.Reason = fmt.Sprintf("policy %s: commit %s came into use", u.Name(), shortHash(d.Commit))
	if d.From != "" {
		r.Reason += " after " + shortHash(d.From)
	}

	return r
}

// stepText describes a decision of the policy on that many nodes.
func (u Upgrade) stepText(d *state.Decision, nodes int) string {
	switch {
	case d.Action == state.ActionSupersede:
		return fmt.Sprintf("rollout %s is ended first: %s", d.Rollout, strings.TrimPrefix(d.Case, follows))
	case u.Rule.Mode == UpgradePlan:
		return fmt.Sprintf("a rollout of %s brings it to commit %s once a person approves it",
			inventory.Count(nodes, "node", "nodes"), shortHash(d.Commit))
	}

	return fmt.Sprintf("a rollout of %s brings it to commit %s now", inventory.Count(nodes, "node", "nodes"),
		shortHash(d.Commit))
}

// shortHash returns the hash of a commit as people read it.
func shortHash(hash string) string { return hash[:min(len(hash), 12)] }
