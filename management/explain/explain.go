// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

// maxTimeout is the largest value that the configuration accepts for jobs.timeout.
const maxTimeout = 7 * 24 * time.Hour

// About is what a Finding is about, one word that clients can act on.
type About string

// What findings are about.
const (
	AboutJob        About = "job"        // a job holds the node, or is what was asked about
	AboutQueue      About = "queue"      // a job waits in the queue
	AboutQuarantine About = "quarantine" // the node is fenced
	AboutTombstone  About = "tombstone"  // the node was forgotten before
	AboutState      About = "state"      // no observer sees the node
	AboutDuplicates About = "duplicates" // several live hosts claim to be the node
	AboutHostKey    About = "host-key"   // ssh does not accept the host
	AboutAccess     About = "access"     // the host does not accept the manager's credentials
	AboutFailure    About = "failure"    // a task, or the whole job, failed
	AboutRefusal    About = "refusal"    // a job was not begun, because it was no longer legal
	AboutResidue    About = "residue"    // configuration that could not be removed
	AboutRule       About = "rule"       // what the node's group needs is missing
	AboutApplied    About = "applied"    // which configuration the node carries is unknown
	AboutIdle       About = "idle"       // nobody has asked for the node to be commissioned
)

// Finding is one reason for the current situation: its subject and facts, the
// same in words, and a remedy.
type Finding struct {
	About   About
	Job     string    // the id of the job concerned; may be empty
	Nodes   []string  // the nodes and addresses concerned; may be empty
	Group   string    // the group that is missing a node; may be empty
	Since   time.Time // the start of the situation; zero if unknown
	Message string
	Remedy  string             // the next step for the operator, in words; may be empty
	Actions []inventory.Action // that carry the remedy out; may be empty
}

// finding returns a finding about a subject, with its message.
func finding(about About, format string, args ...any) Finding {
	return Finding{About: about, Message: fmt.Sprintf(format, args...)}
}

// of sets the job that the finding concerns.
func (f Finding) of(j job.Job) Finding {
	f.Job = j.ID
	return f
}

// on sets the nodes that the finding concerns.
func (f Finding) on(nodes ...string) Finding {
	f.Nodes = nodes
	return f
}

// since sets the start of the situation.
func (f Finding) since(t time.Time) Finding {
	f.Since = t
	return f
}

// do sets the remedy in words.
func (f Finding) do(format string, args ...any) Finding {
	f.Remedy = fmt.Sprintf(format, args...)
	return f
}

// with adds actions that carry the remedy out.
func (f Finding) with(actions ...inventory.Action) Finding {
	f.Actions = append(f.Actions, actions...)
	return f
}

// Failure is how one run of a job failed on one host.
type Failure struct {
	Job         string
	Phase       job.Phase
	Playbook    string
	Host        string
	Task        string
	Message     string // with the end of what the task printed
	Unreachable bool
}

// Facts are what explanations are made of, besides what they are about.
type Facts struct {
	View     *state.View
	Groups   inventory.Groups
	JobLimit int
	Now      time.Time
}

// NodeExplanation answers why a node is, or is not, in service.
type NodeExplanation struct {
	Node    inventory.Node
	Ready   bool   // it is commissioned, seen, and nothing is done to it
	Summary string // the answer in one sentence
	// StatusSince is when the node came into its status, and StatusBy who brought
	// it there; zero where its history does not reach back so far.
	StatusSince time.Time
	StatusBy    string
	StateSince  time.Time // likewise of its state
	Rule        string    // what its group needs, in words; empty: nothing
	Jobs        []job.Job // that hold it or wait for it, in the order of the queue
	Failures    []Failure // of the job that holds it, or that set its last error, oldest first
	Findings    []Finding // what keeps it from service first
	Next        string    // what happens without anybody's doing
}

// JobExplanation answers why a job is as it is.
type JobExplanation struct {
	Job      job.Job
	Summary  string
	Failures []Failure // oldest first
	Steps    []string  // what the manager did, and how that ended, in order
	Findings []Finding
	Next     string // what happens without anybody's doing
}

// History reads the history of nodes.
type History interface {
	// History returns the newest entries of a node, oldest first.
	History(ctx context.Context, node string, limit int) ([]inventory.HistoryEntry, error)
}

// Settings is the part of the configuration that explanations depend on.
type Settings struct {
	Groups   inventory.Groups
	JobLimit int // jobs that run at a time
}

// Explainer answers why a node or a job is as it is.
type Explainer struct {
	history  History
	settings func() Settings
}

// New returns an explainer.
func New(h History, settings func() Settings) *Explainer { return &Explainer{h, settings} }

// Node answers why a node is, or is not, in service.
func (e *Explainer) Node(ctx context.Context, v *state.View, name string) (NodeExplanation, error) {
	n, err := v.Node(name)
	if t, forgotten := v.Tombstones[name]; err != nil && forgotten {
		return NodeExplanation{}, inventory.Errorf(inventory.KindNotFound, "%s was forgotten on %s by %s%s",
			name, stamp(t.Time), job.OrSomebody(t.Actor), because(t.Reason)).
			Do("when it is seen again it is Quarantined until it is cleared").About(name)
	}

	if err != nil {
		return NodeExplanation{}, err
	}

	history, err := e.history.History(ctx, name, inventory.HistoryLimit)
	if err != nil {
		return NodeExplanation{}, err
	}

	return ExplainNode(e.facts(v), n, history), nil
}

// Job answers why a job is as it is.
func (e *Explainer) Job(v *state.View, j job.Job) JobExplanation { return ExplainJob(e.facts(v), j) }

func (e *Explainer) facts(v *state.View) Facts {
	settings := e.settings()
	return Facts{View: v, Groups: settings.Groups, JobLimit: settings.JobLimit, Now: time.Now()}
}

func (f Facts) turn(j job.Job) job.Turn {
	return job.TurnOf(f.View.Snapshot, f.Groups, f.JobLimit, j)
}

// ExplainNode answers why the node is, or is not, in service, from the facts
// and the newest entries of its history, oldest first.
func ExplainNode(f Facts, n inventory.Node, history []inventory.HistoryEntry) NodeExplanation {
	e := NodeExplanation{
		Node: n, Ready: n.Status == inventory.Allocated && n.State == inventory.Discovered && len(n.Duplicates) == 0,
		Jobs: f.about(n),
	}
	e.since(history)
	add := func(f Finding) { e.Findings = append(e.Findings, f) }

	culprit := f.culprit(n)
	if culprit != nil {
		e.Failures = failuresOf(*culprit, n.Name)
	}

	for _, j := range e.Jobs {
		if j.ID == n.Job {
			add(finding(AboutJob, "job %s holds it: %s", j.ID, f.doing(j)).of(j).
				do("follow it, or cancel it").
				with(inventory.WaitForJob(j.ID), inventory.CancelJob(j.ID)))
		}
	}

	if n.Status == inventory.Quarantined {
		reason := cmp.Or(n.LastError, "the reason is not recorded")
		add(finding(AboutQuarantine, "it is fenced until an operator clears it: %s", reason).
			on(n.Name).since(e.StatusSince).
			do("inspect the host, then clear it").
			with(inventory.Submit(inventory.VerbClear, n.Name)))

		if t, ok := f.View.Tombstones[n.Name]; ok {
			add(finding(AboutTombstone, "it was forgotten on %s by %s%s",
				stamp(t.Time), job.OrSomebody(t.Actor), because(t.Reason)).
				on(n.Name).since(t.Time))
		}
	}

	if len(n.Duplicates) > 0 {
		hosts := append([]string{n.Addr}, n.Duplicates...)
		add(finding(AboutDuplicates, "several live hosts claim to be it: %s", join(hosts)).on(hosts...).
			do("give each host a serial number of its own, and restart its agent"))
	}

	if n.State != inventory.Discovered {
		seen := "no observer has said anything of it yet"
		if len(n.Seen) > 0 {
			seen = join(slices.Sorted(maps.Keys(n.Seen))) + " lost it"
		}

		add(finding(AboutState, "it is %s: %s%s", n.State, seen, since(e.StateSince)).
			on(n.Name).since(e.StateSince).
			do("see 'systemctl status clusterm-agent' on %s, or prepare the host again", n.Addr).
			with(inventory.Discover(n.Addr)))
	}

	for _, j := range e.Jobs {
		switch {
		case j.Status == job.Queued:
			add(finding(AboutQueue, "job %s (%s) waits for it: %s", j.ID, j.Verb, f.waiting(j)).of(j).
				with(inventory.ExplainJob(j.ID)))
		case helps(j, n):
			add(finding(AboutJob, "job %s needs its help, and others wait as long: %s", j.ID, f.doing(j)).of(j).
				do("follow it").with(inventory.WaitForJob(j.ID)))
		case j.ID != n.Job:
			add(finding(AboutJob, "job %s prepares its host: %s", j.ID, f.doing(j)).of(j).
				do("follow it").with(inventory.WaitForJob(j.ID)))
		}
	}

	if g, err := f.Groups.Get(n.Group); err == nil && g.Needs != "" && n.InService() {
		e.Rule = fmt.Sprintf("a %s needs a commissioned, Discovered %s", g.Name, g.Needs)
		if f.Groups.CheckJoin(f.View.Nodes, []string{n.Name}, g.Name) != nil {
			missing := finding(AboutRule, "its group %s needs a commissioned, Discovered %s, and there is none",
				g.Name, g.Needs).
				do("bring one back, or commission one").
				with(inventory.Submit(inventory.VerbCommission).Joining(g.Needs))
			missing.Group = g.Needs
			add(missing)
			e.Ready = false
		}
	}

	if n.Status == inventory.Decommissioned && len(e.Jobs) == 0 {
		add(finding(AboutIdle, "it was taken out of service%s%s", by(e.StatusBy), on(e.StatusSince)).
			on(n.Name).since(e.StatusSince).
			do("commission it again").
			with(inventory.Submit(inventory.VerbCommission, n.Name)))
	}

	if n.LastError != "" && n.Status != inventory.Quarantined {
		failed := finding(AboutFailure, "the last verb failed: %s", n.LastError).on(n.Name)
		if culprit != nil {
			failed = retryRemedy(failed.of(*culprit), *culprit, n)
		}

		add(failed)
	}

	if e.failedAbout(configuration.AboutHostKey) {
		add(finding(AboutHostKey, "ssh does not accept its host key").on(n.Name).
			do("if its host key was changed on purpose, forget the recorded one").
			with(inventory.ForgetHostKey(n.Name)))
	}

	if e.failedAbout(configuration.AboutAccess) {
		add(finding(AboutAccess, "it does not accept the credentials for ssh").on(n.Name).
			do("correct its user and key_file, or authorize the public key on the host").
			with(inventory.SetConnection(n.Name)))
	}

	if j := f.newest(n); j != nil && j.Cause == job.CausePrecondition && !e.Ready {
		add(finding(AboutRefusal, "job %s (%s) was not begun: %s", j.ID, j.Verb, j.Message).of(*j).
			with(inventory.ExplainJob(j.ID)))
	}

	if len(n.Residue) > 0 {
		remedy := "the next commission cleans it first"
		if n.Status == inventory.Quarantined {
			remedy = "clearing it cleans it"
		}

		add(finding(AboutResidue, "it may still carry the configuration of %s", join(n.Residue)).on(n.Name).
			do("%s", remedy))
	}

	if n.Status == inventory.Allocated && n.Applied == "" {
		add(finding(AboutApplied, "an upgrade broke off on it: which configuration it carries is not known").
			on(n.Name).
			do("upgrade it again").
			with(inventory.Submit(inventory.VerbMaintenance, n.Name)))
	}

	if n.Status == inventory.Unallocated && len(e.Jobs) == 0 {
		add(finding(AboutIdle, "it is not commissioned").on(n.Name).
			with(inventory.Submit(inventory.VerbCommission, n.Name)))
	}

	e.Summary = "it is in service"
	if !e.Ready && len(e.Findings) > 0 {
		e.Summary = e.Findings[0].Message
	}

	e.Next = f.nextOf(n, e.Jobs)

	return e
}

// failedAbout reports whether a failure or the last error of the node is about
// the given subject.
func (e *NodeExplanation) failedAbout(subject func(message string) bool) bool {
	return subject(e.Node.LastError) ||
		slices.ContainsFunc(e.Failures, func(f Failure) bool { return subject(f.Message) })
}

// since finds out when the status and the state began.
func (e *NodeExplanation) since(history []inventory.HistoryEntry) {
	for _, entry := range slices.Backward(history) {
		observed := entry.Verb == inventory.VerbDiscovered || entry.Verb == inventory.VerbDisappeared
		if e.StateSince.IsZero() && observed {
			e.StateSince = entry.Time
		}

		if e.StatusSince.IsZero() && entry.From != entry.To && entry.To == e.Node.Status {
			e.StatusSince, e.StatusBy = entry.Time, entry.Actor
		}
	}
}

// about are the jobs that have not ended and hold, want, prepare or are helped by the node.
func (f Facts) about(n inventory.Node) []job.Job {
	var out []job.Job
	for _, j := range f.View.Jobs {
		if j.Status.Ended() {
			continue
		}

		if helps(j, n) || slices.ContainsFunc(j.Targets, func(t job.Target) bool {
			return t.Name == n.Name || j.TakesAddrs() && t.Addr == n.Addr
		}) {
			out = append(out, j)
		}
	}

	return out
}

// helps tells whether a Running job holds the node as a helper.
func helps(j job.Job, n inventory.Node) bool {
	return j.Status == job.Running && slices.Contains(j.Helpers, n.Name)
}

// newest is the job about the node that was accepted last; nil where none is kept.
func (f Facts) newest(n inventory.Node) *job.Job {
	for _, j := range slices.Backward(f.View.Jobs) {
		if _, ok := j.Target(n.Name); ok {
			return &j
		}
	}

	return nil
}

// culprit is the job whose failures matter for the node: the one that holds
// it, else the one that set its last error; nil where there is none.
func (f Facts) culprit(n inventory.Node) *job.Job {
	var found *job.Job
	for _, j := range f.View.Jobs {
		switch {
		case n.Job != "":
			if j.ID == n.Job {
				return &j
			}
		case n.LastError != "" && j.Status.Ended() && j.Outcomes[n.Name].Error == n.LastError && (found == nil ||
			!j.Ended.Before(found.Ended)):
			found = &j
		}
	}

	return found
}

// failuresOf are the failures in the runs of a job, on one host or (empty) on all.
func failuresOf(j job.Job, host string) []Failure {
	var out []Failure
	for _, r := range j.Runs {
		for _, h := range r.Hosts {
			res, ok := r.Results[h]

			bad := res.Failed > 0 || res.Unreachable || r.Phase == job.PhaseAppear && !res.Done
			if !ok || !bad || host != "" && h != host {
				continue
			}

			out = append(out, Failure{j.ID, r.Phase, r.Playbook, h, res.Task, res.Message, res.Unreachable})
		}
	}

	return out
}

// doing says what a Running job does.
func (f Facts) doing(j job.Job) string {
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

		if run.Exit == "" {
			text += since(run.Started)
		}
	}

	if j.Cancel > 0 {
		text += ", being cancelled by " + job.OrSomebody(j.CancelBy)
	}

	if due := j.Due(); !due.IsZero() {
		text += "; its deadline is " + stamp(due)
		if left := due.Sub(f.Now); left > 0 {
			text += ", in " + left.Round(time.Second).String()
		} else {
			text += ", which has passed"
		}
	}

	return text
}

// waiting says where a Queued job is in the queue, and what it waits for.
func (f Facts) waiting(j job.Job) string {
	text := fmt.Sprintf("place %d of %d in the queue", f.View.Position(j), f.View.Queued())
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

// nextOf says what will become of the node without anybody's doing.
func (f Facts) nextOf(n inventory.Node, jobs []job.Job) string {
	for _, j := range jobs {
		if j.ID == n.Job {
			return f.nextIn(j)
		}
	}

	for _, j := range jobs {
		if !helps(j, n) {
			return f.nextIn(j)
		}
	}

	if n.State != inventory.Discovered {
		return "it is Discovered again as soon as an observer sees it; its status stays until an operator asks for " +
			"something"
	}

	return "nothing, until an operator asks for something"
}

// nextIn says what a job that has not ended does next.
func (f Facts) nextIn(j job.Job) string {
	if j.Status == job.Queued {
		switch t := f.turn(j); {
		case t.Err != nil:
			return fmt.Sprintf("job %s ends Errored without touching a node", j.ID)
		case len(t.WaitsFor) > 0:
			return fmt.Sprintf(
				"job %s begins when it need not wait for %s any more, and is checked again then",
				j.ID,
				job.Jobs(t.WaitsFor),
			)
		}

		return fmt.Sprintf("job %s begins", j.ID)
	}

	verb, err := job.VerbOf(j.Verb)
	if err != nil {
		return fmt.Sprintf("job %s cannot go on: %s", j.ID, job.Message(err))
	}

	run := j.LastRun()

	switch {
	case j.Outcomes != nil:
		return fmt.Sprintf("job %s releases its nodes and ends", j.ID)
	case run != nil && run.Phase == job.PhaseUndo:
		return fmt.Sprintf("when the cleanup ends, its nodes become %s, or %s where it fails",
			verb.Row.Failed, verb.Row.Dirty)
	case j.Cancel > 0:
		return fmt.Sprintf("job %s stops its playbook and takes its failure path", j.ID)
	case !verb.Row.ChangesStatus():
		return fmt.Sprintf("job %s %s", j.ID, verb.Next)
	}

	success := fmt.Sprintf("its nodes become %s", verb.Row.Success)
	if verb.Row.Success == "" {
		success = "its nodes are forgotten"
	}

	return fmt.Sprintf(
		"when job %s succeeds, %s; when it fails, is cancelled or runs into its deadline: %s",
		j.ID,
		success,
		strings.ReplaceAll(verb.Row.Failure, "`", ""),
	)
}

// ExplainJob answers why the job is as it is.
func ExplainJob(f Facts, j job.Job) JobExplanation {
	e := JobExplanation{Job: j, Failures: failuresOf(j, ""), Steps: stepsOf(j)}

	add := func(f Finding) { e.Findings = append(e.Findings, f) }
	switch j.Status {
	case job.Queued:
		e.Summary, e.Next = "it is queued: "+f.waiting(j), f.nextIn(j)
		for _, id := range f.turn(j).WaitsFor {
			if other, err := f.View.Job(id); err == nil && other.Status == job.Running {
				add(finding(AboutJob, "job %s runs: %s", id, f.doing(other)).of(other).
					do("follow it").with(inventory.WaitForJob(id)))
			} else if err == nil {
				add(finding(AboutQueue, "job %s (%s of %s) is queued itself",
					id, other.Verb, job.ShortList(other.Names())).of(other).
					with(inventory.ExplainJob(id)))
			}
		}

		return e
	case job.Running:
		e.Summary, e.Next = "it runs: "+f.doing(j), f.nextIn(j)
		if len(e.Failures) > 0 {
			hosts := hostsOf(e.Failures)
			add(finding(AboutFailure, "it has failed on %s", join(hosts)).of(j).on(hosts...).
				do("read its output").with(inventory.FollowLog(j.ID)))
		}

		return e
	}

	e.Next = "nothing: it has ended"

	left := j.Unfinished()
	switch {
	case j.Status == job.Complete && j.Message == "":
		e.Summary = "it did what it was asked for"
		return e
	case j.Status == job.Complete:
		e.Summary = "it is complete, but " + j.Message
	default:
		e.Summary = fmt.Sprintf("it ended %s: %s", j.Status, cmp.Or(j.Message, string(j.Cause)))
	}

	switch j.Cause {
	case job.CausePrecondition:
		add(finding(AboutRefusal, "when its turn came it was no longer legal; it touched nothing").of(j).
			do("correct the cause that it names, then retry it").
			with(inventory.RetryJob(j.ID, false)))

		return e
	case job.CauseDeadline:
		add(finding(AboutFailure, "its deadline was %s after its start", j.Timeout).of(j).
			do("if it needs longer, submit it with a longer timeout, or raise the default").
			with(inventory.SetSetting("jobs.timeout", min(2*j.Timeout, maxTimeout).String())))
	case job.CauseInterrupted:
		add(finding(AboutFailure, "its runner went away before it had ended").of(j).
			do("see the daemon's log for a restart or a kill: journalctl -u clusterm"))
	case job.CauseInternal:
		add(finding(AboutFailure, "the manager itself could not go on").of(j).
			do("see the daemon's log: journalctl -u clusterm"))
	}

	for _, failure := range e.Failures {
		if j.TakesAddrs() {
			continue
		}

		if configuration.AboutHostKey(failure.Message) {
			add(finding(AboutHostKey, "ssh does not accept the host key of %s", failure.Host).on(failure.Host).
				do("if its host key was changed on purpose, forget the recorded one").
				with(inventory.ForgetHostKey(failure.Host)))
		}

		if configuration.AboutAccess(failure.Message) {
			add(finding(AboutAccess, "%s does not accept the credentials for ssh", failure.Host).on(failure.Host).
				do("correct its user and key_file, or authorize the public key on the host").
				with(inventory.SetConnection(failure.Host)))
		}
	}

	var fenced []string
	for _, name := range j.Names() {
		if n, ok := f.View.Lookup(name); ok && n.Status == inventory.Quarantined {
			fenced = append(fenced, name)
		}
	}

	if len(fenced) > 0 {
		add(finding(AboutQuarantine, "%s: Quarantined until an operator clears it", job.ShortList(fenced)).
			on(fenced...).
			do("inspect the hosts, then clear them").
			with(inventory.Submit(inventory.VerbClear, fenced...)))
	}

	if len(left) > 0 && len(j.Runs) > 0 {
		failed := finding(AboutFailure, "not as the verb wants it: %s", job.ShortList(left)).of(j).on(left...).
			do("read its output").with(inventory.ReadLog(j.ID))
		if f.retriable(j, left) {
			failed = failed.do("read its output; once the cause is corrected, retry it").
				with(inventory.RetryJob(j.ID, len(left) < len(j.Targets)))
		}

		add(failed)
	} else if len(left) > 0 {
		add(finding(AboutFailure, "no playbook was run, and no host touched").of(j).
			do("retry it").with(inventory.RetryJob(j.ID, false)))
	}

	return e
}

// retriable tells whether the lifecycle allows the job's verb on all these targets now.
func (f Facts) retriable(j job.Job, names []string) bool {
	t, _ := inventory.TransitionOf(j.Verb)

	return !slices.ContainsFunc(names, func(name string) bool {
		n, ok := f.View.Lookup(name)
		return t.ChangesStatus() && (!ok || t.Check(n) != nil)
	})
}

// retryRemedy adds the remedy for a job that failed on the node.
func retryRemedy(failed Finding, j job.Job, n inventory.Node) Finding {
	failed = failed.do("see the explanation of job %s", j.ID).with(inventory.ExplainJob(j.ID))

	t, ok := inventory.TransitionOf(j.Verb)
	if !ok || !slices.Contains(t.From, n.Status) {
		return failed
	}

	return failed.do("see the explanation of job %s; once the cause is corrected, retry it", j.ID).
		with(inventory.RetryJob(j.ID, len(j.Unfinished()) < len(j.Targets)))
}

// stepsOf says what was done in a job, run by run, and what became of its targets.
func stepsOf(j job.Job) []string {
	var steps []string
	for _, r := range j.Runs {
		what := string(r.Phase)
		if r.Playbook != "" {
			what += " (" + r.Playbook + ")"
		}

		how := "runs on"
		switch {
		case r.Exit == job.ExitDone:
			how = "succeeded on"
		case r.NotBegun:
			how = "was not begun on"
		case r.Exit == string(job.CauseFailed):
			how = "failed on"
		case r.Exit != "":
			how = "ended (" + r.Exit + ") on"
		}

		hosts := r.Hosts
		if bad := hostsOf(failuresOf(job.Job{Runs: []job.Run{r}}, "")); r.Exit == string(job.CauseFailed) &&
			len(bad) > 0 {
			hosts = bad
		}

		steps = append(steps, fmt.Sprintf("%s %s %s", what, how, job.ShortList(hosts)))
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

// hostsOf are the hosts of failures, each once.
func hostsOf(failures []Failure) []string {
	var out []string
	for _, f := range failures {
		if !slices.Contains(out, f.Host) {
			out = append(out, f.Host)
		}
	}

	return out
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func since(t time.Time) string {
	if t.IsZero() {
		return ""
	}

	return " since " + stamp(t)
}

func on(t time.Time) string {
	if t.IsZero() {
		return ""
	}

	return " on " + stamp(t)
}

func by(actor string) string {
	if actor == "" {
		return ""
	}

	return " by " + actor
}

func because(reason string) string {
	if reason == "" {
		return ""
	}

	return ": " + reason
}

func join(names []string) string { return strings.Join(names, ", ") }
