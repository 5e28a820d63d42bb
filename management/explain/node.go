// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/evidence"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// ExplainNode explains a node from the facts and the newest entries of its
// history, oldest first.
func ExplainNode(f Facts, n inventory.Node, history []inventory.HistoryEntry) NodeExplanation {
	e := nodeExplainer{Facts: f, NodeExplanation: NodeExplanation{
		Node:  n,
		Ready: n.Status == inventory.Allocated && n.Healthy() && len(n.Duplicates) == 0,
		Jobs:  f.jobsOf(n),
	}}

	e.readHistory(history)

	if e.culprit = f.culpritOf(n); e.culprit != nil {
		e.Failures = failuresOf(*e.culprit, n.Name)
	}

	// The order is the order of importance: the first finding is the summary of
	// a node that is not in service.
	for _, find := range []func(){
		e.holder, e.quarantine, e.duplicates, e.foreignAddr, e.sharedAddr, e.registered, e.unseen, e.otherJobs, e.rule,
		e.alerts, e.peers, e.decommissioned, e.lastError, e.connection, e.refusal, e.residue, e.unknownConfiguration,
		e.identity, e.verification, e.outdated, e.notRecorded, e.idle, e.keyLaggard,
		e.contradiction, e.silentBMC, e.knownBy, e.root,
	} {
		find()
	}

	f.obey(e.Findings)

	e.policies()
	e.windows()
	e.rollouts()

	e.Summary = e.inService()
	if !e.Ready && len(e.Findings) > 0 {
		e.Summary = e.Findings[0].Message
	}

	if j := nextJob(n, e.Jobs); j != nil {
		e.Wait = f.waitOf(*j)
	}
	e.Next = f.nextOfNode(n, e.Jobs)

	return e.within(f.Sees)
}

// nodeExplainer collects the findings about one node.
type nodeExplainer struct {
	Facts
	NodeExplanation

	culprit   *job.Job // the job of the failures, or nil
	lastGroup string   // the newest group in the history
}

func (e *nodeExplainer) add(f Finding) { e.Findings = append(e.Findings, f) }

// policies reports the reasons of the policies.
func (e *nodeExplainer) policies() {
	for _, reason := range e.Automation {
		f := Finding{
			About: AboutPolicy, Nodes: []string{e.Node.Name}, Job: reason.Job, Since: reason.Since,
			Message: reason.Message,
		}
		if reason.Return {
			f.About = AboutReturn
		}

		e.add(f)
	}
}

// readHistory finds the start of the current status and state.
func (e *nodeExplainer) readHistory(history []inventory.HistoryEntry) {
	for _, entry := range slices.Backward(history) {
		observed := entry.Verb == inventory.VerbDiscovered || entry.Verb == inventory.VerbDisappeared
		if e.StateSince.IsZero() && observed {
			e.StateSince, e.StateReason = entry.Time, entry.Reason
		}

		e.lastGroup = cmp.Or(e.lastGroup, entry.Group)

		if e.StatusSince.IsZero() && entry.From != entry.To && entry.To == e.Node.Status {
			e.StatusSince, e.StatusBy = entry.Time, entry.Actor
		}
	}
}

// holder reports the job that holds the node.
func (e *nodeExplainer) holder() {
	for _, j := range e.Jobs {
		if j.ID == e.Node.Job {
			e.add(finding(AboutJob, "job %s holds it: %s", j.ID, e.progress(j)).of(j).
				do("follow it, or cancel it").
				with(inventory.WaitForJob(j.ID), inventory.CancelJob(j.ID)))

			return
		}
	}

	if err := e.View.Damaged(&job.Kind, e.Node.Job); err != nil {
		e.add(finding(AboutJob, "job %s holds it: %s", e.Node.Job, err.Error()))
	}
}

func (e *nodeExplainer) quarantine() {
	n := e.Node
	if n.Status != inventory.Quarantined {
		return
	}

	reason := cmp.Or(e.lastErrorText(), "the reason is not recorded")
	e.add(finding(AboutQuarantine, "it is fenced until an operator clears it: %s", reason).
		on(n.Name).since(e.StatusSince).
		do("look at the host, then clear it").
		with(e.View.ClearActions(n.Name)...).
		oncePlayed(e.Facts, n.Name).
		orToday(e.Facts, n.Name))

	// A forgotten node that appears again is fenced because of its tombstone.
	if t := record.Get(e.View, &state.Tombstones, n.Name); t != nil {
		e.add(finding(AboutTombstone, "it was forgotten on %s by %s%s",
			stamp(t.Time), job.OrSomebody(t.Actor), because(t.Reason)).
			on(n.Name).since(t.Time))
	}
}

func (e *nodeExplainer) duplicates() {
	if len(e.Node.Duplicates) == 0 {
		return
	}

	// The current address is as suspect as the others.
	hosts := append([]string{e.Node.Addr}, e.Node.Duplicates...)

	// The newest report began or renewed the conflict.
	since := time.Time{}
	for _, s := range e.Node.Sightings {
		if s.Since.After(since) {
			since = s.Since
		}
	}

	e.add(finding(AboutDuplicates, "several live hosts claim to be it: %s%s", join(hosts), e.Node.Conflict()).
		on(hosts...).since(since).
		do("give each host a serial number of its own, and restart its agent; or, if the host at %s is this node, "+
			"trust its ssh host key and set the other claims aside, with a reason", e.Node.Addr))
}

// foreignAddr reports an address that is not that of the node's member in the gossip.
func (e *nodeExplainer) foreignAddr() {
	n := e.Node
	if n.AnnouncedFrom == "" || len(n.HostKeys) > 0 {
		return
	}

	e.add(
		finding(
			AboutAddress,
			"a member of the gossip at %s announces it at %s, and no ssh host key shows that it is there",
			n.AnnouncedFrom,
			n.Addr,
		).on(n.Name).
			do("make sure that the host at %s is this node, then trust its key", n.Addr).
			with(inventory.TrustHostKey(n.Name)),
	)
}

// sharedAddr reports other nodes with the address of this one.
func (e *nodeExplainer) sharedAddr() {
	others := e.View.AddrRivals(e.Node.Name)[e.Node.Name]
	if len(others) == 0 {
		return
	}
	e.add(finding(AboutAddress, "its address %s is also that of %s, so the playbooks may reach the wrong host",
		e.Node.Addr, join(others)).on(append(others, e.Node.Name)...).
		do("give each host an address of its own; if one of the nodes is gone, decommission and forget it"))
}

// mayBeLost reports whether it means something that no observer sees the node.
func (e *nodeExplainer) mayBeLost() bool {
	n := e.Node
	return n.State != inventory.Discovered && (n.State != inventory.Unknown || n.Status != inventory.Manageable)
}

// unseen reports that no observer sees the node.
func (e *nodeExplainer) unseen() {
	n := e.Node
	if !e.mayBeLost() {
		return
	}

	seen := "no observer has reported it yet"
	if len(n.Seen) > 0 {
		seen = join(slices.Sorted(maps.Keys(n.Seen))) + " lost it"
	}
	if n.State == inventory.Disappeared && e.StateReason != "" {
		seen = e.StateReason
	}

	f := finding(AboutState, "it is %s: %s%s", n.State, seen, since(e.StateSince)).
		on(n.Name).since(e.StateSince).
		do("see that it has power, then 'systemctl status clusterm-agent' on %s, or prepare the host again", n.Addr).
		with(inventory.Discover(n.Addr))

	if n.Addr == "" {
		f = f.do("no address of it is known: register the one at which ssh reaches it, then prepare the host there")
		f.Actions = nil
	}

	// The BMC is a second opinion.
	switch p := record.Get(e.View, &state.Powers, n.Name); {
	case p == nil:
	case p.Problem != "":
		f.Message += "; its BMC does not say whether it is on" + sinceTime(p.ProblemSince) + ": " + p.Problem
		if p.Power != "" {
			f.Message += "; before, it said " + p.Power
		}
		if p.LoginRefused {
			f = f.do(giveLogin, n.Name, n.Name)
			f.Actions = nil
		}
	case p.Power == "off":
		f.Message += "; it is powered off, as its BMC says" + sinceTime(p.Since)
		f = f.do("turn it on: clusterctl power on %s", n.Name)
		f.Actions = nil
	case p.Power != "on":
		f.Message += "; it is being turned on or off, as its BMC says" + sinceTime(p.Since)
	default:
		f.Message += "; it is powered on, as its BMC says" + sinceTime(p.Since) + ", but its agent is silent"

		if n.Addr == "" {
			break
		}

		f = f.do(
			"look at 'systemctl status clusterm-agent' on %s and at its network, or prepare the host again",
			n.Addr,
		)
	}

	e.add(f)
}

// giveLogin is the remedy for a BMC that refused the login, with the name of the node twice.
const giveLogin = "give the login that it takes: clusterctl power login %s --user USER; " +
	"if it was corrected at the BMC: clusterctl power login %s --again"

// silentBMC reports that the BMC of a node that is seen, or need not be, does not say whether it is on. See unseen.
func (e *nodeExplainer) silentBMC() {
	p := record.Get(e.View, &state.Powers, e.Node.Name)
	if p == nil || p.Problem == "" || e.mayBeLost() {
		return
	}

	f := finding(AboutHardware, "its BMC cannot switch it%s: %s", sinceTime(p.ProblemSince), p.Problem).on(e.Node.Name)
	if p.LoginRefused {
		f = f.do(giveLogin, e.Node.Name, e.Node.Name)
	}

	e.add(f)
}

// sinceTime is since for a time that may not be known.
func sinceTime(t *time.Time) string {
	if t == nil {
		return ""
	}
	return since(*t)
}

// keyLaggard reports that a rotation of the manager's ssh key waits for the node.
func (e *nodeExplainer) keyLaggard() {
	if e.KeyLaggard == nil {
		return
	}

	reason, since, waits := e.KeyLaggard(e.Node.Name)
	if !waits {
		return
	}

	f := finding(AboutSSHKey, "the rotation of the manager's ssh key waits for it: %s", reason).
		on(e.Node.Name).since(since).
		do("until then the old key stays valid; see the rotation").
		with(inventory.ShowSSHKey())

	// Without the host key, no login is possible, however long the rotation waits.
	if len(e.Node.HostKeys) == 0 && strings.Contains(reason, "host key is not recorded") {
		f = f.with(inventory.TrustHostKey(e.Node.Name))
	}

	e.add(f)
}

// contradiction reports that observers do not agree on whether the node is alive.
func (e *nodeExplainer) contradiction() {
	var seen, lost []string

	for _, observer := range slices.Sorted(maps.Keys(e.Node.Seen)) {
		if e.Node.Seen[observer] {
			seen = append(seen, observer)
		} else {
			lost = append(lost, observer)
		}
	}

	if len(seen) == 0 || len(lost) == 0 {
		return
	}

	e.add(finding(
		AboutObservers,
		"%s lost it, and %s still sees it: it counts as Discovered while any observer sees it",
		join(lost),
		join(seen),
	).
		on(e.Node.Name).
		do("if %s should see it, check the network between both, and the agent on %s", join(lost), e.Node.Addr))
}

// otherJobs reports the jobs that want the node, its help, or its host.
func (e *nodeExplainer) otherJobs() {
	for _, j := range e.Jobs {
		switch {
		case j.Status == job.Queued:
			e.add(finding(AboutQueue, "job %s (%s) waits for it: %s", j.ID, j.Verb, e.waiting(j)).of(j).
				with(inventory.ExplainJob(j.ID)))
		case helps(j, e.Node):
			e.add(finding(AboutJob, "job %s needs its help, and others wait as long: %s", j.ID, e.progress(j)).of(j).
				do("follow it").with(inventory.WaitForJob(j.ID)))
		case j.ID != e.Node.Job:
			e.add(finding(AboutJob, "job %s prepares its host: %s", j.ID, e.progress(j)).of(j).
				do("follow it").with(inventory.WaitForJob(j.ID)))
		}
	}
}

// rule reports the rules of the node's group, and what it lacks.
func (e *nodeExplainer) rule() {
	n := e.Node

	g, err := e.Groups.Get(n.Group)
	if err != nil || !n.InService() {
		return
	}

	// The rules are shown even if they are met.
	var rules []string
	for _, required := range g.Requires.Groups() {
		rules = append(rules, fmt.Sprintf("%s requires %s of %s", g.Name,
			inventory.Count(g.Requires[required], "healthy node", "healthy nodes"), required))
	}

	if use := g.BudgetUse(e.View.Nodes()); use != "" {
		rules = append(rules, fmt.Sprintf("the budget of %s is %s", g.Name, use))
	}

	e.Rule = strings.Join(rules, "; ")

	for _, u := range e.Groups.Unmet(e.View.Nodes(), []string{n.Name}, g.Name) {
		missing := finding(AboutRule, "its group %s requires %s", g.Name, u).
			do("bring one back, or commission one").
			with(inventory.Submit(inventory.VerbCommission).Joining(u.Group))
		missing.Group = u.Group
		e.add(missing)

		e.Ready = false
	}
}

// identity reports other nodes that seem to be the same machine, with the evidence.
func (e *nodeExplainer) identity() {
	own := state.EvidenceOf(e.View, &e.Node)

	// Only short records are compared: no inspection is read.
	for _, n := range e.View.Nodes() {
		if n.Name == e.Node.Name {
			continue
		}

		v, seems := evidence.Compare(own, state.EvidenceOf(e.View, n)), "seems to be"

		switch {
		case v.Score < evidence.Possible:
			continue
		case v.Score < evidence.Certain:
			seems = "may be"
		}

		e.add(finding(AboutIdentity, "%s %s the same machine: it has %s", n.Name, seems, v).
			on(e.Node.Name, n.Name).
			do("if they are one machine, merge both: clusterctl nodes merge MACHINE NODE; else correct what is " +
				"registered, by another import: clusterctl nodes import FILE"))
	}
}

// knownBy reports the evidence on a machine that was registered or inspected, with its weights.
func (e *nodeExplainer) knownBy() {
	if record.Get(e.View, &state.Machines, e.Node.Name) == nil && e.Node.Hardware == nil {
		return
	}

	var known []string
	for _, fact := range state.EvidenceOf(e.View, &e.Node).Facts() {
		known = append(known, fact.String())
	}

	e.add(finding(AboutIdentity, "it is known by its %s", strings.Join(known, ", ")).on(e.Node.Name))
}

// root reports the disk that an installation would take, or why there is none.
func (e *nodeExplainer) root() {
	found, inspected, err := state.Newest(e.View, e.Node.Name)
	if err != nil || !inspected {
		return
	}

	if root := state.RootDevice(e.View, e.Node.Name, found.Disks); root != "" {
		e.add(finding(AboutHardware, "root device: %s", root).on(e.Node.Name))
	}
}

// alerts reports the alerts on the node, with what they prevent.
func (e *nodeExplainer) alerts() {
	for _, a := range e.Node.Alerts {
		var prevents []string
		for _, row := range inventory.Effects {
			if slices.Contains(a.Effects, row.Effect) {
				prevents = append(prevents, row.Meaning)
			}
		}

		text := a.String()
		if len(prevents) > 0 {
			text += ": " + strings.Join(prevents, "; ")
		}

		e.add(finding(AboutAlert, "%s", text).on(e.Node.Name).since(a.Since).
			do("end it when its reason is gone").
			with(inventory.EndAlert(a.ID)))
	}
}

// peers reports what the node has otherwise than most nodes of its product, of those that the reader sees.
func (e *nodeExplainer) peers() {
	nodes := e.View.Nodes()
	if e.Sees != nil {
		nodes = e.Sees.Nodes()
	}

	differs := inventory.Peers(e.Node, nodes)
	if len(differs) == 0 {
		return
	}

	e.add(
		finding(
			AboutHardware,
			"its hardware is not that of most nodes of its product: %s",
			strings.Join(differs, "; "),
		).
			on(e.Node.Name).
			since(e.Node.Hardware.Time).
			do("mend it and inspect it again"),
	)
}

func (e *nodeExplainer) decommissioned() {
	if e.Node.Status != inventory.Decommissioned || len(e.Jobs) > 0 {
		return
	}

	e.add(finding(AboutIdle, "it was taken out of service%s%s", by(e.StatusBy), on(e.StatusSince)).
		on(e.Node.Name).since(e.StatusSince).
		do("commission it again").
		with(e.commission()...).
		oncePlayed(e.Facts, e.Node.Name))
}

// commission returns the action that brings the node into service: into the group
// for which it was meant last, if there is one.
func (e *nodeExplainer) commission() []inventory.Action {
	if row, _ := inventory.TransitionOf(inventory.VerbCommission); e.Node.Alerted(row.RefusedBy) != nil {
		return nil
	}

	group := e.lastGroup
	if j := e.newestJob(e.Node); j != nil {
		t, _ := j.Target(e.Node.Name)
		group = cmp.Or(t.Group, t.FromGroup, group)
	}

	if _, err := e.Groups.Get(group); err != nil {
		group = ""
	}

	return e.View.CommissionActions(group, e.Node.Name)
}

// lastErrorText returns the last error of the node for the reader.
func (e *nodeExplainer) lastErrorText() string {
	if e.culprit == nil {
		return e.Node.LastError
	}
	return e.culprit.For(e.Reader.Name, e.Node.LastError)
}

func (e *nodeExplainer) lastError() {
	n := e.Node
	if n.LastError == "" || n.Status == inventory.Quarantined || n.Status == inventory.Enrolled {
		return
	}
	failed := finding(AboutFailure, "the last verb failed: %s", e.lastErrorText()).on(n.Name)
	if e.culprit != nil {
		failed = e.retryRemedy(failed.of(*e.culprit), *e.culprit, n)
	}
	e.add(failed)
}

// registered reports how far a registered machine is. Nobody expects its agent yet.
func (e *nodeExplainer) registered() {
	n := e.Node

	switch {
	case len(e.Jobs) > 0:
	case n.Status == inventory.Enrolled && n.LastError != "":
		failed := finding(AboutFailure, "the last verb failed: %s", e.lastErrorText()).on(n.Name)
		if e.culprit != nil {
			failed = failed.of(*e.culprit)
		}
		e.add(failed.do("correct the cause, then check the credentials again").
			with(inventory.Submit(inventory.VerbManage, n.Name)))
	case n.Status == inventory.Enrolled:
		e.add(finding(AboutIdle, "it is registered, and its credentials are not verified yet").on(n.Name).
			do("check the credentials").with(inventory.Submit(inventory.VerbManage, n.Name)))
	case n.Status == inventory.Manageable && n.Hardware == nil && n.LastError == "" && e.inspectable():
		e.add(finding(AboutIdle, "its credentials work, and its hardware was not inspected yet").on(n.Name).
			do("inspect it").with(inventory.Submit(inventory.VerbInspect, n.Name)))
	case n.Status == inventory.Manageable:
		e.add(finding(AboutIdle, "its credentials work, and it is not offered for use yet").on(n.Name).
			do("clean it, and offer it for use").with(inventory.Submit(inventory.VerbProvide, n.Name)))
	}
}

// inspectable reports whether anything tells the facts of the node: ssh, or a BMC with Redfish.
func (e *nodeExplainer) inspectable() bool {
	m := record.Get(e.View, &state.Machines, e.Node.Name)
	return e.Node.Addr != "" || m.HasBMC() && m.BMC.Driver.SpeaksRedfish()
}

// connection reports the reasons for which ssh cannot connect.
func (e *nodeExplainer) connection() {
	messages := []string{e.Node.LastError}
	for _, f := range e.Failures {
		messages = append(messages, f.Message)
	}

	for _, found := range e.connectionFindings(e.Node.Name, "it", "its host key", messages...) {
		e.add(found)
	}
}

// refusal reports that the newest job on the node was not begun.
func (e *nodeExplainer) refusal() {
	j := e.newestJob(e.Node)
	if j == nil || j.Cause != job.CausePrecondition || len(j.Runs) > 0 || e.Ready {
		return
	}
	e.add(finding(AboutRefusal, "job %s (%s) was not begun: %s", j.ID, j.Verb, j.For(e.Reader.Name, j.Message)).of(*j).
		with(inventory.ExplainJob(j.ID)))
}

func (e *nodeExplainer) residue() {
	n := e.Node
	if n.Uncleaned {
		e.add(finding(AboutResidue, "a cleaning failed on it and none succeeded since, so it is not offered before "+
			"clean.yml succeeds").on(n.Name))
	}

	if len(n.Residue) == 0 {
		return
	}

	remedy := "decommission it again to clean it; a commission cleans it first, too"
	clean := e.View.CleaningActions(inventory.VerbDecommission, n.Name)

	if n.Status == inventory.Quarantined {
		remedy, clean = "clearing it cleans it", e.View.ClearActions(n.Name)
	}

	e.add(finding(AboutResidue, "it may still carry the configuration of %s", join(n.Residue)).on(n.Name).
		do("%s", remedy).with(clean...).
		oncePlayed(e.Facts, n.Name).
		orToday(e.Facts, n.Name))
}

func (e *nodeExplainer) unknownConfiguration() {
	n := e.Node
	if n.Status != inventory.Allocated || n.Applied != "" {
		return
	}

	// Only a verb that leaves a node in service leaves that unknown. Its job may have
	// expired.
	verb, why := inventory.VerbApply, "a job broke off on it"

	if j := e.lastToChange(n); j != nil {
		row, ok := inventory.TransitionOf(j.Verb)
		if ok && row.Success == inventory.Allocated && row.Dirty == inventory.Allocated && !row.Verifies {
			verb = j.Verb
		}

		switch {
		case j.Check || j.Verb.Verifies():
			why = fmt.Sprintf("job %s executed tasks on it in spite of check mode", j.ID)
		case j.Partial() && j.Outcomes[n.Name].Error == "":
			why = fmt.Sprintf("job %s ran only a part of the tasks on it (%s)", j.ID, j.Selection())
		}
	}

	text := why + ": its configuration is unknown"
	if n.Cleaned {
		text = "it does not serve: its configuration was removed, and none was applied whole since"
	}
	e.add(finding(AboutApplied, "%s", text).on(n.Name).
		do("configure it again").
		with(inventory.Submit(verb, n.Name)))
}

func (e *nodeExplainer) idle() {
	if e.Node.Status != inventory.Unallocated || len(e.Jobs) > 0 {
		return
	}

	e.add(finding(AboutIdle, "it is not commissioned").on(e.Node.Name).with(e.commission()...))
}

// jobsOf returns the jobs that have not ended and hold the node, want it,
// prepare its host, or get its help, as far as the reader may know of them. The record of the
// node names the job that holds it to everybody.
func (f Facts) jobsOf(n inventory.Node) []job.Job {
	var jobs []job.Job
	for _, j := range f.View.Jobs() {
		targeted := slices.ContainsFunc(j.Targets, func(t job.Target) bool {
			return t.Name == n.Name || j.TakesAddrs() && t.Addr == n.Addr
		})

		concerned := !j.Status.Ended() && (helps(*j, n) || targeted)
		if concerned && (j.ID == n.Job || f.sees(j.ID)) {
			jobs = append(jobs, *j)
		}
	}

	return jobs
}

// helps reports whether a Running job holds the node as a helper.
func helps(j job.Job, n inventory.Node) bool {
	return j.Status == job.Running && slices.Contains(j.Helpers, n.Name)
}

// newestJob returns the newest job with the node as a target, or nil.
func (f Facts) newestJob(n inventory.Node) *job.Job {
	for _, j := range slices.Backward(f.View.Jobs()) {
		if _, ok := j.Target(n.Name); ok {
			return j
		}
	}

	return nil
}

// lastToChange returns the newest job that may have changed the node's host, or nil.
func (f Facts) lastToChange(n inventory.Node) *job.Job {
	for _, j := range slices.Backward(f.View.Jobs()) {
		if o, ended := j.Outcomes[n.Name]; ended && !o.AsBefore && !o.Untouched {
			return j
		}
	}

	return nil
}

// culpritOf returns the job that holds the node, else the job that set its last
// error, or nil.
func (f Facts) culpritOf(n inventory.Node) *job.Job {
	var culprit *job.Job
	for _, j := range f.View.Jobs() {
		if n.Job != "" {
			if j.ID == n.Job {
				return j
			}

			continue
		}

		o := j.Outcomes[n.Name]
		setError := n.LastError != "" && j.Status.Ended() && o.Error == n.LastError && !o.AsBefore
		newer := culprit == nil || !j.Ended.Before(culprit.Ended)

		if setError && newer {
			culprit = j
		}
	}

	return culprit
}

// nextJob returns that of its jobs which holds the node, or which is to change it next.
func nextJob(n inventory.Node, jobs []job.Job) *job.Job {
	i := slices.IndexFunc(jobs, func(j job.Job) bool { return j.ID == n.Job })
	if i < 0 {
		// A job that only holds the node as a helper does not change it.
		i = slices.IndexFunc(jobs, func(j job.Job) bool { return !helps(j, n) })
	}

	if i < 0 {
		return nil
	}

	return &jobs[i]
}

// nextOfNode returns the next event for the node without an operator.
func (f Facts) nextOfNode(n inventory.Node, jobs []job.Job) string {
	if j := nextJob(n, jobs); j != nil {
		return f.nextOfJob(*j)
	}

	const stays = "its status stays until an operator asks for something"

	switch n.State {
	case inventory.Disappeared:
		return "it is Discovered again as soon as an observer sees it; " + stays
	case inventory.Unknown:
		return "it is Discovered as soon as an observer sees it; " + stays
	}

	return "nothing, until an operator asks for something"
}
