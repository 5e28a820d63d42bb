// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/job"
)

// ExplainJob explains a job from the facts.
func ExplainJob(f Facts, j job.Job) JobExplanation {
	e := jobExplainer{Facts: f, JobExplanation: JobExplanation{
		Job: j, Failures: failuresOf(j, ""), Steps: stepsOf(j),
	}}

	e.partOf()
	e.Wait = f.waitOf(j)

	switch {
	case j.Status == job.Queued:
		e.queued()
	case j.Status == job.Running:
		e.running()
	default:
		e.ended()
	}

	f.obey(e.Findings)

	return e.within(f.Sees)
}

// jobExplainer collects the findings about one job.
type jobExplainer struct {
	Facts
	JobExplanation
}

func (e *jobExplainer) add(f Finding) { e.Findings = append(e.Findings, f) }

func (e *jobExplainer) queued() {
	e.Summary, e.Next = "it is queued: "+e.waiting(e.Job), e.nextOfJob(e.Job)
	e.held()

	for _, id := range e.turn(e.Job).WaitsFor {
		other, err := e.View.Job(id)

		switch {
		case err != nil: // no longer kept
		case other.Status == job.Running:
			e.add(finding(AboutJob, "job %s runs: %s", id, e.progress(other)).of(other).
				do("follow it").with(inventory.WaitForJob(id)))
		default:
			e.add(finding(AboutQueue, "job %s (%s of %s) is queued itself",
				id, other.Verb, job.ShortList(other.Names())).of(other).
				with(inventory.ExplainJob(id)))
		}
	}
}

func (e *jobExplainer) running() {
	j := e.Job
	e.Summary, e.Next = "it runs: "+e.progress(j), e.nextOfJob(j)

	if run := j.LastRun(); j.Former != "" && (run == nil || !run.Bound) {
		e.add(finding(AboutJob, "the instance %s, which ran it, is gone: it goes on at %s when what was started there "+
			"has ended for sure, at most jobs.runner_lease after the loss", j.Former, j.Instance).of(j).
			do("wait; its output has the time").with(inventory.FollowLog(j.ID)))
	}

	if hosts := hostsOf(e.Failures); len(hosts) > 0 {
		e.add(finding(AboutFailure, "it has failed on %s", join(hosts)).of(j).on(hosts...).
			do("read its output").with(inventory.FollowLog(j.ID)))
	}

	// The failure path has a deadline of its own.
	if j.Phase() != job.PhaseUndo {
		e.add(finding(AboutJob, "its deadline is %s", e.deadlineOf(j)).of(j))
	}
}

func (e *jobExplainer) ended() {
	j := e.Job
	e.Next = "nothing: it has ended"

	switch {
	case j.Status == job.Complete && j.Message == "":
		e.Summary = "it succeeded"
		return
	case j.Status == job.Complete && (j.Check || j.Verb.Verifies()):
		e.Summary = "it is complete: " + strings.Join(nonEmpty(j.Message, j.Note), "; ")
		return
	case j.Status == job.Complete:
		e.Summary = "it is complete, but " + j.For(e.Reader.Name, j.Message)
	default:
		e.Summary = fmt.Sprintf("it ended %s: %s", j.Status, cmp.Or(j.For(e.Reader.Name, j.Message), string(j.Cause)))
	}

	// Nothing else is worth a look: no step was begun.
	if j.Cause == job.CausePrecondition && len(j.Runs) == 0 {
		e.add(finding(AboutRefusal, "when its turn came it was no longer legal; it touched nothing").of(j).
			do("correct the cause that it names, then retry it").
			with(inventory.RetryJob(j.ID, false)))

		return
	}

	if j.Cause == job.CauseDrifted {
		e.drifted()
		return
	}

	e.troubled()
	e.cause()
	e.connection()
	e.fenced()
	e.unfinished()
}

// troubled reports what troubled the manager itself during the runs that failed, before any host is blamed.
func (e *jobExplainer) troubled() {
	for _, r := range e.Job.Runs {
		if len(r.Troubles) > 0 {
			e.add(finding(AboutManager, "while %s failed, the manager itself was in trouble: %s",
				r.Phase, strings.Join(r.Troubles, "; ")).of(e.Job).since(r.Started).
				do("look at the health of the manager before the hosts, and then retry the job").
				with(inventory.ShowHealth(), inventory.RetryJob(e.Job.ID, false)))
		}
	}
}

// cause reports a cause outside the playbook.
func (e *jobExplainer) cause() {
	j := e.Job

	switch j.Cause {
	case job.CauseDeadline:
		e.add(finding(AboutFailure, "its deadline was %s", e.deadlineOf(j)).of(j).
			do("if it needs longer, retry it with more time, or raise the default for all jobs").
			with(inventory.ShowSettings("jobs.timeout")))
	case job.CauseInterrupted:
		e.add(finding(AboutFailure, "its runner went away before it had ended").of(j).
			do("see the daemon's log for a restart or a kill: journalctl -u clusterm"))
	case job.CauseInternal:
		e.add(finding(AboutFailure, "the manager itself could not go on").of(j).
			do("see the daemon's log: journalctl -u clusterm"))
	}
}

// connection reports the hosts that ssh cannot connect to. An address has no
// record whose key or parameters could be corrected.
func (e *jobExplainer) connection() {
	if e.Job.TakesAddrs() {
		return
	}

	// A host may have failed in several runs for the same reason.
	type reason struct{ host, about string }

	seen := map[reason]bool{}

	for _, f := range e.Failures {
		for _, found := range e.connectionFindings(f.Host, f.Host, "the host key of "+f.Host, f.Message) {
			if about := (reason{f.Host, found.Message}); !seen[about] {
				seen[about] = true
				e.add(found)
			}
		}
	}
}

// connectionFindings returns why ssh cannot connect to the node, as far as the messages
// show it. who and key are the node and its host key in a sentence.
func (f Facts) connectionFindings(node, who, key string, messages ...string) []Finding {
	has := func(subject func(string) bool) bool { return slices.ContainsFunc(messages, subject) }

	var found []Finding

	switch {
	case has(configuration.AboutJumpKey):
		found = append(found, finding(AboutHostKey, "ssh does not accept the host key of %s, by which it reaches %s",
			f.jumpHost(node), who).
			do("if that key was changed on purpose, remove the old one from the known_hosts file of the account that "+
				"clusterm runs as; it is recorded with no node").
			with(inventory.SetConnection(node)))
	case has(configuration.AboutRecordedKey):
		found = append(found, finding(AboutHostKey, "ssh does not accept %s", key).
			do("if its host key was changed on purpose, trust the new one").
			with(inventory.TrustHostKey(node)))
	case has(configuration.AboutHostKey):
		found = append(found, finding(AboutHostKey, "ssh could not verify a host key on the way to %s", who).
			do("if it is reached by a jump host, the key of that must be in the known_hosts file of the account that "+
				"clusterm runs as").
			with(inventory.SetConnection(node)))
	}

	switch {
	case has(configuration.AboutJumpAccess):
		found = append(found, finding(AboutAccess, "%s, by which ssh reaches %s, does not accept the credentials",
			f.jumpHost(node), who).
			do("correct the user in its jump and its key_file, or authorize the public key on the jump host").
			with(inventory.SetConnection(node)))
	case has(configuration.AboutAccess):
		found = append(found, finding(AboutAccess, "%s does not accept the credentials for ssh", who).
			do("correct its user and key_file, or authorize the public key on the host").
			with(inventory.SetConnection(node)))
	}

	for i := range found {
		found[i] = found[i].on(node)
	}

	return found
}

// jumpHost names the jump host of a node. What a host says of it does not count.
func (f Facts) jumpHost(node string) string {
	n, ok := f.View.Lookup(node)
	if !ok || f.Connect == nil {
		return "the jump host"
	}
	j, err := configuration.ParseJump(f.Connect(f.View, n.Group, node).Jump)
	if err != nil {
		return "the jump host"
	}
	return "the jump host " + j.Host
}

// fenced reports the targets that are Quarantined.
func (e *jobExplainer) fenced() {
	var fenced []string
	for _, name := range e.Job.Names() {
		if n, ok := e.View.Lookup(name); ok && n.Status == inventory.Quarantined {
			fenced = append(fenced, name)
		}
	}

	if len(fenced) > 0 {
		e.add(finding(AboutQuarantine, "%s: Quarantined until an operator clears it", job.ShortList(fenced)).
			on(fenced...).
			do("look at the hosts, then clear them").
			with(e.View.ClearActions(fenced...)...).
			oncePlayed(e.Facts, fenced...).
			orToday(e.Facts, fenced...))
	}
}

// unfinished reports the targets that are not as the verb wants them.
func (e *jobExplainer) unfinished() {
	j := e.Job

	left := j.Unfinished()
	if j.TakesAddrs() {
		left = e.addresses(left)
	}
	if len(left) == 0 {
		return
	}

	// Without a run there is no output to read.
	if len(j.Runs) == 0 {
		e.add(finding(AboutFailure, "no playbook was run, and no host touched").of(j).
			do("retry it").with(inventory.RetryJob(j.ID, false)))

		return
	}

	failed := finding(AboutFailure, "not as the verb wants it: %s", job.ShortList(left)).of(j).on(left...).
		do("read its output").with(inventory.ReadLog(j.ID))
	if actions := e.retryActions(j, left...); len(actions) > 0 {
		retry := "once the cause is corrected, retry it"
		if j.Cause == job.CauseCancelled {
			retry = "retry it if it is to be done after all"
		}

		if away := e.away(left); len(away) > 0 {
			retry = fmt.Sprintf("see that %s is powered on, that the address is right, and that ssh listens there; %s",
				join(away), retry)
		}

		if j.TakesAddrs() && len(left) < len(j.Unfinished()) {
			actions = []inventory.Action{inventory.RetryJob(j.ID, false).On(left...)}
		}

		failed = failed.do("read its output; %s", retry).with(actions...).orToday(e.Facts, left...)
	}

	e.add(failed)
	e.notBegun()
	e.residue()
}

// addresses reports the addresses of a discover that a retry does not help, and returns the others.
func (e *jobExplainer) addresses(left []string) (rest []string) {
	var foreign []string

	for _, addr := range left {
		isForeign := func(f api.Failure) bool { return f.Host == addr && configuration.AboutOwner(f.Message) }

		n, here := e.View.DiscoveredAt(addr)

		switch {
		case here:
			e.add(finding(AboutState, "%s is node %s by now, which is Discovered", addr, n.Name).on(n.Name).
				do("nothing is to be done for it"))
		case slices.ContainsFunc(e.Failures, isForeign):
			foreign = append(foreign, addr)
		default:
			rest = append(rest, addr)
		}
	}

	if len(foreign) > 0 {
		take := inventory.Discover(foreign...)
		take.TakeOver, take.Reason = true, "its manager is gone"

		e.add(finding(AboutFailure, "%s: belongs to another manager", job.ShortList(foreign)).of(e.Job).on(foreign...).
			do("forget it there, and remove its agent; if that manager is gone, take it over").with(take))
	}

	return rest
}

// away returns the addresses of a discover at which nothing accepted a connection.
func (e *jobExplainer) away(addrs []string) []string {
	return slices.DeleteFunc(slices.Clone(addrs), func(addr string) bool {
		return !slices.ContainsFunc(e.Failures, func(f api.Failure) bool {
			return f.Host == addr && f.Phase == string(job.PhaseProbe) && f.Unreachable
		})
	})
}

// notBegun reports the targets whose batch did not begin, beside others: a retry of all begins with those that
// failed, and may end in the same way.
func (e *jobExplainer) notBegun() {
	rest := slices.DeleteFunc(e.Job.NotBegun(), func(name string) bool {
		return !slices.Contains(e.View.Left(e.Job), name)
	})
	if len(rest) == 0 || len(rest) == len(e.Job.Unfinished()) || len(e.retryActions(e.Job, rest...)) == 0 {
		return
	}
	e.add(finding(AboutFailure, "not begun: %s", job.ShortList(rest)).of(e.Job).on(rest...).
		do("to go on without the nodes that failed, repeat it for these").
		with(inventory.RetryJob(e.Job.ID, false).On(rest...)))
}

// residue reports the targets that are out of service with configuration left on
// them. The retry of the job cleans them.
func (e *jobExplainer) residue() {
	names := map[string][]string{} // by the group of the residue
	for _, t := range e.Job.Targets {
		n, ok := e.View.Lookup(t.Name)
		if ok && n.Status == inventory.Decommissioned && len(n.Residue) > 0 {
			group := n.Residue[len(n.Residue)-1]
			names[group] = append(names[group], n.Name)
		}
	}

	for _, group := range slices.Sorted(maps.Keys(names)) {
		e.add(finding(AboutResidue, "%s: may still carry the configuration of %s", job.ShortList(names[group]), group).
			on(names[group]...).
			do("it stays there until they are cleaned: retry the job, or decommission them again").
			with(e.View.CleaningActions(inventory.VerbDecommission, names[group]...)...).
			oncePlayed(e.Facts, names[group]...).
			orToday(e.Facts, names[group]...))
	}
}

// oncePlayed puts before the remedy what it needs for the nodes of which no play of cleanup.yml takes care.
func (f Finding) oncePlayed(facts Facts, nodes ...string) Finding {
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(name string) bool { return !facts.View.LacksCleanup(name) })
	if len(nodes) == 0 {
		return f
	}

	add := "add one to the folder"
	if facts.Playbooks.Commit != "" {
		add = "commit one, fetch it"
		f.Actions = append([]inventory.Action{inventory.SyncRepository()}, f.Actions...)
	}

	return f.do("no play of cleanup.yml is for %s: %s, then %s", job.ShortList(nodes), add, f.Remedy)
}

// orToday adds the actions with today's playbooks for the nodes of which a task of the
// last cleanup failed: the other actions run the same cleanup again, as it was kept.
func (f Finding) orToday(facts Facts, nodes ...string) Finding {
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(name string) bool { return !facts.View.CleanupFailed(name) })

	var today []inventory.Action
	for _, a := range f.Actions {
		verb := a.Verb
		if a.Name == inventory.ActionRetryJob {
			old, _ := facts.View.Job(a.Job)
			verb = old.Verb
		}

		row, _ := inventory.TransitionOf(verb)
		cleans := row.Accepts(inventory.FieldPlaybooks)

		isOther := func(name string) bool { return !slices.Contains(nodes, name) }
		of := slices.DeleteFunc(slices.Clone(a.Nodes), isOther)

		// An action without nodes is for all that the job left.
		if cleans && a.Playbooks == "" && len(nodes) > 0 && (len(of) > 0 || len(a.Nodes) == 0) {
			today = append(today, a.On(of...).Cleaning(inventory.PlaybooksCurrent))
		}
	}

	if len(today) == 0 {
		return f
	}

	correct := "correct that in the folder"
	if facts.Playbooks.Commit != "" {
		correct = "commit a correction, fetch it"
		today = append([]inventory.Action{inventory.SyncRepository()}, today...)
	}

	return f.do("%s; if its cleanup.yml is at fault, %s, and clean with the playbooks of today", f.Remedy, correct).
		with(today...)
}

// failuresOf returns the failures in the runs of a job, on one host or, for "", on all.
func failuresOf(j job.Job, host string) []api.Failure {
	var failures []api.Failure
	for _, r := range j.Runs {
		for _, h := range slices.Concat(r.Hosts, r.Helped()) {
			res, ok := r.Results[h]

			if !ok || !res.Bad() || host != "" && h != host {
				continue
			}

			failures = append(failures, api.Failure{
				Job: j.ID, Phase: string(r.Phase), Playbook: r.Playbook, Host: h, Task: res.Task, Message: res.Message,
				Unreachable: res.Unreachable,
			})
		}
	}

	return failures
}

// progress describes the progress of a Running job.
func (f Facts) progress(j job.Job) string {
	text := fmt.Sprintf("%s of %s", j.Verb, job.ShortList(j.Names()))
	switch run := j.LastRun(); {
	case j.Outcomes != nil:
		text += ", about to end"
	case run == nil:
		text += ", about to begin"
	default:
		text += ", " + string(run.Phase)
		if run.Playbook != "" {
			text += " (" + run.Playbook + ")"
		}

		if len(run.Hosts) > 0 {
			if number, of := j.BatchOf(run.Hosts[0]); number > 0 {
				text += fmt.Sprintf(", batch %d of %d", number, of)
			}
		}

		if run.Exit == "" {
			text += since(run.Started)
		}
	}

	switch {
	case j.CancelledBy(f.Reader.Name):
		text += ", being cancelled by you"
	case j.Cancel > 0:
		text += ", being cancelled by " + job.OrSomebody(j.CancelBy)
	}

	if due := j.Due(); !due.IsZero() {
		text += "; its deadline is " + stamp(due)
		if left := due.Sub(f.Now); left > 0 {
			text += ", in " + inventory.ShortDuration(left.Round(time.Second))
		} else {
			text += ", which has passed"
		}
		if j.Outage > 0 {
			text += fmt.Sprintf(" (put off by %s, for which the manager was without its store)",
				inventory.ShortDuration(j.Outage.Round(time.Second)))
		}
	}

	return text
}

// waiting describes the place of a Queued job in the queue, and the jobs ahead.
func (f Facts) waiting(j job.Job) string {
	v := f.View
	if f.Sees != nil {
		v = f.Sees.View
	}
	text := fmt.Sprintf("place %d of %d in the queue", v.Position(j), v.Queued())

	switch t := f.turn(j); {
	case t.Err != nil:
		text += ", and it will not be begun: " + job.Message(t.Err)
	case t.Claim:
		text += ", and its turn has come"
	case t.Reason != "":
		text += ", " + t.Reason
	}

	return text
}

// nextOfJob returns the next event of a job that has not ended.
func (f Facts) nextOfJob(j job.Job) string {
	if j.Status == job.Queued {
		switch t := f.turn(j); {
		case t.Err != nil:
			return fmt.Sprintf("job %s ends Errored without touching a node", j.ID)
		case len(t.WaitsFor) > 0:
			return fmt.Sprintf("job %s begins when it need not wait for %s any more, and is checked again then",
				j.ID, job.Jobs(t.WaitsFor))
		case !t.Claim:
			return fmt.Sprintf("job %s begins when it is allowed, and is checked again then", j.ID)
		}

		return fmt.Sprintf("job %s begins", j.ID)
	}

	// A record of another version may name a verb that this one does not have.
	verb, err := job.VerbOf(j.Verb)
	if err != nil {
		return fmt.Sprintf("job %s cannot go on: %s", j.ID, job.Message(err))
	}

	run := j.LastRun()

	switch {
	case j.Outcomes != nil:
		return fmt.Sprintf("job %s releases its nodes and ends", j.ID)
	case run != nil && run.Phase == job.PhaseUndo && !verb.Row.ChangesStatus():
		return fmt.Sprintf("job %s restores the hosts that did not become nodes, and ends", j.ID)
	case run != nil && run.Phase == job.PhaseUndo:
		return fmt.Sprintf("when the cleanup ends, its nodes become %s, or %s where it fails",
			verb.Row.Failed, verb.Row.Dirty)
	case j.Cancel > 0:
		return fmt.Sprintf("job %s stops its playbook and takes its failure path", j.ID)
	case !verb.Row.ChangesStatus():
		return fmt.Sprintf("job %s %s", j.ID, verb.Next)
	}

	if j.Check {
		return fmt.Sprintf("when job %s ends, its nodes are as they were: it is a check, which changes nothing", j.ID)
	}

	success := fmt.Sprintf("its nodes become %s", verb.Row.Success)

	switch verb.Row.Success {
	case "":
		success = "its nodes are forgotten"
	case inventory.AsBefore:
		success = "its nodes have the status before"
	}

	// The row is written for the documentation, in markdown.
	failure := strings.ReplaceAll(verb.Row.Failure, "`", "")

	return fmt.Sprintf("when job %s succeeds, %s; when it fails, is cancelled or runs into its deadline: %s",
		j.ID, success, failure)
}

// retryActions returns the actions that repeat the job if they concern one of the
// names and are legal now.
func (f Facts) retryActions(j job.Job, names ...string) []inventory.Action {
	left := f.View.Left(j)
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !slices.Contains(left, name) })

	retries, _ := f.View.Retries(j, names)
	for _, r := range retries {
		row, _ := inventory.TransitionOf(r.Verb)

		illegal := func(name string) bool {
			n, ok := f.View.Lookup(name)
			return row.ChangesStatus() && (!ok || row.Check(n) != nil)
		}
		if slices.ContainsFunc(r.Names, illegal) {
			return nil
		}
	}

	if len(retries) == 0 {
		return nil
	}

	return f.View.RetryActions(j)
}

// retryRemedy adds the remedy for a job that failed on the node.
func (f Facts) retryRemedy(failed Finding, j job.Job, n inventory.Node) Finding {
	failed = failed.do("see the explanation of job %s", j.ID).with(inventory.ExplainJob(j.ID))

	actions := f.retryActions(j, n.Name)
	if len(actions) == 0 {
		return failed
	}
	return failed.do("see the explanation of job %s; once the cause is corrected, retry it", j.ID).with(actions...).
		orToday(f, n.Name)
}

func nonEmpty(parts ...string) []string {
	return slices.DeleteFunc(parts, func(part string) bool { return part == "" })
}

// stepsOf describes each run of a job, and the statuses it left its targets in.
func stepsOf(j job.Job) []string {
	var steps []string
	for _, r := range j.Runs {
		steps = append(steps, describeRun(j, r))
	}

	if !j.Status.Ended() {
		return steps
	}

	for _, row := range inventory.Statuses {
		var names []string
		for _, t := range j.Targets {
			if o, ok := j.Outcomes[t.Name]; ok && o.Status == row.Status {
				names = append(names, t.Name)
			}
		}

		if len(names) > 0 {
			steps = append(steps, fmt.Sprintf("ended as %s: %s", row.Status, job.ShortList(names)))
		}
	}

	return steps
}

// hostsOf returns the hosts of failures, each once.
func hostsOf(failures []api.Failure) []string {
	var out []string
	for _, f := range failures {
		if !slices.Contains(out, f.Host) {
			out = append(out, f.Host)
		}
	}

	return out
}

// describeRun returns a run with its result in one line. Of a run that failed on
// some hosts, it names those.
func describeRun(j job.Job, r job.Run) string {
	step := string(r.Phase)
	if r.Playbook != "" {
		step += " (" + strings.Join(nonEmpty(r.Playbook, j.AnsibleOf(r.Phase, r.Groups).String()), ", ") + ")"
	}

	hosts, result := r.Hosts, "runs on"

	switch {
	case r.Exit == job.ExitDone:
		result = "succeeded on"
	case r.NotBegun:
		result = "was not begun on"
	case r.Exit == string(job.CauseFailed):
		result = "failed on"

		if failed := hostsOf(failuresOf(job.Job{Runs: []job.Run{r}}, "")); len(failed) > 0 {
			hosts = failed
		}
	case r.Exit != "":
		result = "ended (" + r.Exit + ") on"
	}

	return fmt.Sprintf("%s %s %s", step, result, job.ShortList(hosts))
}
