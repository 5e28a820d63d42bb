// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/variable"
)

// runPlaybook is the executor of StepPlaybook. It starts the run, or adopts one
// that an earlier process has started, and supervises it until its end.
func (e *Engine) runPlaybook(ctx context.Context, j job.Job, index int) error {
	active, exit, err := e.startOrAttach(ctx, &j, index)

	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return err
	case exit != nil:
		return e.recordExit(ctx, j, index, *exit, nil)
	}

	return e.supervise(ctx, j, index, active)
}

// startOrAttach returns the run at that index of the job, or the exit to record
// because there is none. The step is retried after an error. It updates j if it
// takes the job over.
func (e *Engine) startOrAttach(ctx context.Context, j *job.Job, index int) (Run, *RunExit, error) {
	run, id := j.Runs[index], runID(*j, index)

	active, err := e.runner.Attach(id)
	if err == nil {
		return active, nil, nil
	}

	// The run may go on, so a failure to read its files is no end of it.
	if !errors.Is(err, ErrNeverStarted) {
		if time.Now().Before(j.Due()) {
			return nil, nil, err
		}

		return nil, interrupted("its files cannot be read: " + err.Error()), nil
	}

	// A runner on another host may have touched hosts before its lease ended.
	if j.Instance != e.self.Node {
		if *j, err = e.takeOver(ctx, *j, index); err != nil {
			return nil, nil, err
		}

		run = j.Runs[index]
	}

	if j.Cancels(run) {
		exit := &RunExit{Cause: job.CauseCancelled, Message: "cancelled before it began here"}
		return nil, exit.notBegun(run), nil
	}

	// An outage of the store is no fault of the job, within its deadline.
	spec, err := e.spec(ctx, *j, run, id)
	if err != nil {
		if inventory.KindOf(err) == inventory.KindUnavailable && time.Now().Before(j.Deadline) {
			return nil, nil, err
		}

		return nil, startFailed(&NotBegunError{job.CauseInternal, err}, run), nil
	}

	// Another instance may own the job by now.
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}

	// A stop of the daemon must not interrupt a start: the runner outlives the
	// daemon, and the start has a deadline of its own.
	active, err = e.runner.Start(context.WithoutCancel(ctx), spec)
	if err != nil {
		return nil, startFailed(err, run), nil
	}

	return active, nil, nil
}

// startFailed returns the exit to record for a failed start. Unless it is known
// that the playbook was not executed, the run was interrupted.
func startFailed(err error, run job.Run) *RunExit {
	message := "the runner did not start: " + err.Error()

	e, known := errors.AsType[*NotBegunError](err)
	if !known {
		return interrupted(message)
	}

	return (&RunExit{Cause: e.Cause, Message: message}).notBegun(run)
}

func interrupted(message string) *RunExit {
	return &RunExit{Cause: job.CauseInterrupted, Message: message, Incomplete: true}
}

// notBegun marks the exit of a run that did not begin here. It may have begun
// before another instance lost the job.
func (x *RunExit) notBegun(run job.Run) *RunExit {
	x.NotBegun, x.Incomplete = !run.TakenOver, run.TakenOver
	return x
}

// takeOver makes a job of another instance this one's. Its runner on the other
// host may still be alive. It ends with its lease, and nothing has renewed the
// lease since this instance owns the job.
func (e *Engine) takeOver(ctx context.Context, j job.Job, index int) (job.Job, error) {
	e.mu.Lock()
	over := e.running[j.ID].Add(e.settings().Lease)
	e.mu.Unlock()

	if wait := time.Until(over); wait > 0 {
		line := fmt.Sprintf("# job %s was run by %s; it goes on here at %s, when what was started there has ended "+
			"for sure",
			j.ID, j.Instance, over.UTC().Format(time.RFC3339))
		if _, err := e.logLine(ctx, j, line); err != nil {
			return j, err
		}

		e.log.WithFields(logrus.Fields{"job": j.ID, "instance": j.Instance, "until": over}).
			Warn("waiting for the runner of another instance to end")

		select {
		case <-ctx.Done():
			return j, ctx.Err()
		case <-time.After(wait):
		}
	}

	var taken job.Job

	record := access.Record{Action: "jobs.takeover", Targets: j.Names(), Job: j.ID, Reason: "run by " + j.Instance}
	err := e.decideItself(ctx, record, func() (err error) {
		taken, err = e.update(ctx, j.ID, func(j *job.Job) { j.Instance, j.Runs[index].TakenOver = e.self.Node, true })
		return err
	})

	return taken, err
}

// supervise renews the lease of a run, ships its output and records its end.
// Both tasks end with this call.
func (e *Engine) supervise(ctx context.Context, j job.Job, index int, active Run) error {
	run := j.Runs[index]
	within, release := context.WithCancel(ctx)

	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer release()

	tasks.Go(func() { e.renew(within, j.ID, run, active) })

	streams := []job.Stream{job.StreamText, job.StreamEvents}
	shipped := make(chan error, len(streams))

	for _, stream := range streams {
		tasks.Go(func() { shipped <- e.ship(within, j, run, stream, active) })
	}

	// Ship everything before the exit is recorded: a follower stops at the end of the job.
	exit, err := active.Wait(ctx)
	if err != nil {
		return err
	}

	for range streams {
		if err := <-shipped; err != nil {
			return err
		}
	}

	return e.recordExit(ctx, j, index, exit, active)
}

// renew extends the runner's lease as long as the store answers, and passes a
// cancel on, until ctx ends. ctx ends with the ownership of the job.
func (e *Engine) renew(ctx context.Context, id string, run job.Run, active Run) {
	lease := e.settings().Lease

	tick := time.NewTicker(max(lease/4, time.Second))
	defer tick.Stop()

	log := e.log.WithField("job", id)
	passed := 0 // cancel requests that were passed on

	pending := func(j job.Job) bool { return j.Cancels(run) && passed < j.Cancel }

	for {
		changed, v := e.state.Changed(), e.state.View()

		// While the store does not answer, the job may get another owner, which
		// waits for the lease to expire. Leads is asked as well, because after a
		// pause of this process it notices the lost right before ctx ends.
		if !v.Stale && e.members.Leads() && ctx.Err() == nil {
			if err := active.Renew(time.Now().Add(lease)); err != nil {
				log.WithError(err).Warn("the runner's lease could not be renewed")
			}
		}

		if j, err := v.Job(id); err == nil && pending(j) {
			if err := active.Cancel(ctx); err != nil {
				log.WithError(err).Warn("the cancel could not be passed to the runner")
			} else {
				passed = j.Cancel
			}
		}

		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				waiting = false
			case <-changed:
				changed = e.state.Changed()
				j, err := e.state.View().Job(id)
				waiting = err == nil && !pending(j)
			}
		}
	}
}

// truncated is the last event of a job after its events have reached the limit.
const truncated = "\n{\"event\":\"truncated\",\"message\":\"further events of this job are not kept\"}\n"

// ship copies a stream of the run into the job's log, from the end of the log on.
func (e *Engine) ship(ctx context.Context, j job.Job, run job.Run, s job.Stream, active Run) error {
	base, limit := run.Text, int64(0)
	if s == job.StreamEvents {
		base, limit = run.Events, e.settings().EventLimit
	}

	offset, full, err := e.shipped(ctx, j.ID, s, base, limit)
	if err != nil {
		return err
	}

	return active.Tail(ctx, s, max(offset-base, 0), func(data []byte) error {
		if full {
			return nil
		}

		if limit > 0 && offset+int64(len(data)) > limit {
			full = true
			data = []byte(truncated)
		}

		if err := e.append(ctx, j.ID, s, offset, data); err != nil {
			return err
		}

		offset += int64(len(data))

		return nil
	})
}

// shipped returns how far a stream was shipped before, perhaps by an earlier
// process, and whether it ended at the limit.
func (e *Engine) shipped(
	ctx context.Context, id string, s job.Stream, base, limit int64,
) (offset int64, full bool, err error) {
	err = e.retryUnavailable(ctx, func() (err error) {
		offset, err = e.store.LogSize(ctx, id, s)
		return err
	})
	if err != nil {
		return 0, false, err
	}

	// After a restart the mark in the log shows that the limit was reached.
	if n := int64(len(truncated)); limit > 0 && offset >= base+n {
		end, err := e.store.ReadLog(ctx, id, s, offset-n)
		if err != nil {
			return 0, false, err
		}

		full = string(end) == truncated
	}

	return offset, full, nil
}

// recordExit records the end of a run and the host keys of first contacts.
// output is nil if there is none.
func (e *Engine) recordExit(ctx context.Context, j job.Job, index int, exit RunExit, output Output) error {
	var results map[string]job.HostResult

	if output != nil {
		log := e.log.WithField("job", j.ID)

		var err error
		if results, err = output.Results(); err != nil {
			log.WithError(err).Warn("the results of the run could not be read")
		}

		if err := e.explainFailures(ctx, j, j.Runs[index], results); err != nil {
			log.WithError(err).Warn("the connections of the hosts could not be read; failures may name a wrong host")
		}

		keys, err := output.HostKeys()
		if err != nil {
			log.WithError(err).Warn("the host keys of the run could not be read")
		}

		if err := e.recordKeys(ctx, keys); err != nil {
			return err
		}
	}

	_, err := e.update(ctx, j.ID, func(j *job.Job) {
		run, exit := &j.Runs[index], exit

		// At a shutdown every process gets a signal, the runner too. Nobody
		// cancelled the job, so the phase is run again.
		if exit.Cause == job.CauseCancelled && !j.Cancels(*run) {
			exit.Cause = job.CauseInterrupted
			exit.Message = "its runner got a signal to end, without a cancel: " +
				"the machine was shut down, or somebody sent it a signal"
		}

		// It was not begun here, but another instance may have begun it.
		if exit.NotBegun && run.TakenOver {
			exit.NotBegun, exit.Incomplete = false, true
		}

		run.Ended, run.Code, run.Message, run.NotBegun = time.Now(), exit.Code, exit.Message, exit.NotBegun
		run.Results = hostResults(*j, *run, exit, results)
		run.Exit = exitOf(exit, run.Results)
		maps.Copy(run.Results, helperResults(*j, *run, results))
	})

	return err
}

// Messages of all hosts of a run together are kept below messageBytes, so that
// the store takes the record of a job with many hosts. Each host gets at least
// messageLeast bytes. The whole messages are in the events.
const (
	messageBytes = 512 << 10
	messageLeast = 200
)

// explainFailures turns the messages of failures into ones that an operator can act on.
// An error is about the connections of the job: the messages are explained without them.
func (e *Engine) explainFailures(
	ctx context.Context, j job.Job, run job.Run, results map[string]job.HostResult,
) error {
	failed := func(r job.HostResult) bool { return r.Message != "" }
	if !slices.ContainsFunc(slices.Collect(maps.Values(results)), failed) {
		return nil
	}

	in, err := e.store.Inputs(ctx, j.ID)
	view, settings := e.state.View(), e.settings()
	taken := takenKeys(view, j)

	for name, r := range results {
		h := configuration.Host{Name: name, Connection: in.Connections[name], Taken: taken}
		if i := slices.Index(run.Hosts, name); i >= 0 {
			t, _ := j.Target(name)
			h.Label = t.Label
			_, h.Connection = inputsOf(view, settings, j, run, i, in)
		} else if t, ok := j.Target(name); ok {
			h.Label = t.Label
		} else if n, ok := view.Lookup(name); ok { // a helper
			h.Label, h.Connection = n.Label, settings.Connect(view, n.Group, name)
		}

		r.Message = configuration.ExplainFailure(r.Message, h)
		results[name] = r
	}

	return err
}

// hostResults returns the result of each host of a run.
func hostResults(
	j job.Job, run job.Run, exit RunExit, results map[string]job.HostResult,
) map[string]job.HostResult {
	limit := max(messageBytes/max(len(run.Hosts), 1), messageLeast)
	options := j.AnsibleOf(run.Phase, run.Groups)
	succeeded := exit.Cause == "" && exit.Code == 0
	brokeOff := exit.Cause != "" && exit.Cause != job.CauseFailed

	out := map[string]job.HostResult{}
	for i, h := range run.Hosts {
		r, touched := results[h]
		r.Message = inventory.Shorten(r.Message, limit)

		// The exit status of ansible-playbook decides, because the summary of a host
		// may be cut off.
		if succeeded && r.Failed == 0 && !r.Unreachable {
			if !r.Done && touched {
				r.Doubt = cmp.Or(r.Doubt, "the events of the run lack its result")
			}

			r.Done = true
		}

		// A host without a play is neither configured nor cleaned, whatever the exit
		// status.
		// verify.yml need not check every group.
		if r.Done && !touched && !j.TakesAddrs() && run.Phase != job.PhaseVerify {
			aim, remedy := "cleaned", "; add a play for that, and clean with the playbooks of today"

			switch {
			case run.Phase.Configures():
				aim, remedy = "configured", ""
			case run.Phase.Verifies():
				aim, remedy = "verified", ""
			}

			r.Done = false
			r.Message = fmt.Sprintf("no play of %s acted on it, so it is not %s; its group in this run is %s%s",
				run.Playbook, aim, run.Groups[i], remedy)
		}

		// Plays begin on their hosts even if the tags select no task.
		if r.Done && touched && options.Partial() && !r.Selected {
			r.Done = false
			r.Begun = r.Changed > 0
			r.Message = fmt.Sprintf("no task of %s for it is selected (%s), so nothing was done", run.Playbook,
				options.Selection())
		}

		// The end of a broken run may be missing from the results.
		if brokeOff {
			r.Done = false
		}

		r.Begun = r.Begun || exit.Incomplete && !r.Done

		out[h] = r
	}

	return out
}

// helperResults returns the results of the helpers on which a play of the run
// has acted. The hosts of the run decide its exit, not the helpers.
func helperResults(
	j job.Job, run job.Run, results map[string]job.HostResult,
) map[string]job.HostResult {
	out := map[string]job.HostResult{}
	for h, r := range results {
		if !j.MayHelp(run, h) {
			continue
		}

		r.Message = inventory.Shorten(r.Message, messageLeast)
		r.Done = r.Failed == 0 && !r.Unreachable
		out[h] = r
	}

	return out
}

// exitOf returns the Run.Exit for the results.
func exitOf(exit RunExit, results map[string]job.HostResult) string {
	if exit.Cause != "" {
		return string(exit.Cause)
	}

	for _, r := range results {
		if !r.Done {
			return string(job.CauseFailed)
		}
	}

	if exit.Code != 0 {
		return string(job.CauseFailed)
	}

	return job.ExitDone
}

// spec collects the parameters of a run: the job's pinned inputs, and the
// addresses and host keys of the nodes as they are now.
func (e *Engine) spec(ctx context.Context, j job.Job, run job.Run, id string) (RunSpec, error) {
	var in job.Inputs

	err := e.retryUnavailable(ctx, func() (err error) {
		in, err = e.store.Inputs(ctx, j.ID)
		return err
	})
	if err != nil {
		return RunSpec{}, err
	}

	v, settings := e.state.View(), e.settings()
	now := time.Now()

	spec := RunSpec{
		ID: id, PlaybookDigest: cmp.Or(run.PlaybookDigest, j.PlaybookDigest), Playbook: run.Playbook,
		Extra: in.Extra, Ansible: j.AnsibleOf(run.Phase, run.Groups),
		Deadline: j.Deadline, Lease: now.Add(settings.Lease),
	}

	// Those that configured a node may have been removed from this host since.
	if spec.PlaybookDigest != job.PlaybooksBundled {
		if kept, err := e.keepPlaybooks(ctx, spec.PlaybookDigest); !kept {
			return RunSpec{}, errPlaybooksGone(j, spec.PlaybookDigest, run.Hosts, err)
		}
	}

	if run.Phase == job.PhaseUndo {
		spec.Deadline = now.Add(j.Timeout)
	}

	verb, err := job.VerbOf(j.Verb)
	if err != nil {
		return RunSpec{}, err
	}

	var agent map[string]any
	if verb.InstallsAgent {
		// The undo needs no gossip.
		if settings.AgentVars == nil && run.Phase != job.PhaseUndo {
			return RunSpec{}, settings.NoAgents
		}

		// The job keys the record on the host, and other managers have the same numbers.
		if settings.Manager == "" {
			return RunSpec{}, inventory.Errorf(inventory.KindUnavailable, "this manager has no identity").
				Do("restart clusterm when the store accepts writes")
		}

		agent = map[string]any{}
		maps.Copy(agent, settings.AgentVars)
		agent["clusterm_taken"] = namesInUse(v)
		agent["clusterm_take_over"] = j.TakeOver
		agent["clusterm_job"] = settings.Manager + "-" + j.ID
	}

	for i, name := range run.Hosts {
		spec.Hosts = append(spec.Hosts, target(v, settings, j, run, i, in, agent, name))
	}

	// Hosts that are being prepared belong to no group, so they need no peers.
	if !verb.Row.TakesAddrs {
		spec.Hosts = append(spec.Hosts, peers(v, settings, j, run)...)
	}

	taken := takenKeys(v, j)
	for i := range spec.Hosts {
		spec.Hosts[i].Taken = taken
	}

	if err := e.resolveSecrets(ctx, &spec); err != nil {
		return RunSpec{}, err
	}

	spec.Secrets = secretsOf(settings.Secrets, spec)

	if spec.Ansible.Diff {
		spec.Secrets = append(spec.Secrets, e.formerSecrets(ctx, j, run, settings.Secrets)...)
		slices.Sort(spec.Secrets)
		spec.Secrets = slices.Compact(spec.Secrets)
	}

	return spec, nil
}

// secretsOf returns the texts of the secrets among the variables of the run.
func secretsOf(secrets configuration.Secrets, spec RunSpec) []string {
	texts := secrets.Values(spec.Extra)

	for _, h := range spec.Hosts {
		texts = append(texts, secrets.Values(h.Extra)...)

		vars := make(map[string]any, len(h.Vars))
		for name, v := range h.Vars {
			vars[name] = v.Value
		}

		texts = append(texts, secrets.Values(vars)...)
	}

	slices.Sort(texts)

	return slices.Compact(texts)
}

// takenKeys returns the ssh host keys that no host without a recorded one may show.
func takenKeys(v *state.View, j job.Job) map[string]string {
	if j.TakesAddrs() {
		return v.HostKeysInUse()
	}

	return v.HostKeys()
}

// inputGroup returns the group of the variables of a host of the run. Hosts that are being prepared have none.
func inputGroup(j job.Job, run job.Run, i int) string {
	if j.TakesAddrs() {
		return ""
	}

	return run.Groups[i]
}

// inputsOf returns the variables and the ssh parameters of a host of the run: those of the group that the run
// configures or cleans. A node that was not expected to carry the group when the job was accepted gets those of now.
func inputsOf(
	v *state.View, settings Settings, j job.Job, run job.Run, i int, in job.Inputs,
) (map[string]configuration.Var, configuration.Connection) {
	t, _ := j.Target(run.Hosts[i])
	group := inputGroup(j, run, i)

	vars, connection, known := in.Of(t, group)
	if !known {
		return settings.Merge(v, group, t.Node()), settings.Connect(v, group, t.Node())
	}

	return vars, connection
}

// target returns a host that the run acts on.
func target(
	v *state.View, settings Settings, j job.Job, run job.Run, i int, in job.Inputs, agent map[string]any, name string,
) configuration.Host {
	t, _ := j.Target(name)
	vars, connection := inputsOf(v, settings, j, run, i, in)
	h := configuration.Host{
		Name: t.Name, Addr: t.Addr, Label: t.Label, Serial: t.Serial, Group: run.Groups[i],
		Role: configuration.RoleTarget, Vars: vars, Connection: connection, Extra: agent,
		Commissioned: t.From == inventory.Allocated && run.Phase != job.PhaseConfigure,
		HostKeys:     t.HostKeys, HostCAs: settings.HostCAs,
	}

	// The key is that of today: nodes no longer accept one that was rotated meanwhile.
	now := settings.Connect(v, inputGroup(j, run, i), t.Node())
	h.Connection.KeyFile, h.Connection.FormerKeyFile = now.KeyFile, now.FormerKeyFile

	n, known := v.Lookup(t.Node())
	if !known {
		return h
	}

	// The address of a node may have changed since the job was accepted.
	h.Labels = n.Labels
	if len(n.HostKeys) > 0 {
		h.HostKeys = n.HostKeys
	}

	if !j.TakesAddrs() {
		h.Addr = n.Addr
	}

	if lost := lostNodes(v, j); len(lost) > 0 {
		h.Extra = map[string]any{"clusterm_lost": lost}
	}

	return h
}

// lostNodes returns the lost nodes of the group of a job by which a policy replaces one of them, or of
// somebody's retry of such a job. The decision may not have the number of the job yet.
func lostNodes(v *state.View, j job.Job) []any {
	actor := originOf(v, j).Actor

	for _, d := range slices.Backward(state.AutomationOf(v).Decisions) {
		if d.Action != state.ActionCommission || d.Node != j.Targets[0].Name ||
			actor != state.PolicyPrincipal(d.Policy) {
			continue
		}

		var lost []any

		for _, name := range d.Lost {
			// One that is back in service must not lose its membership, e.g. by a late retry.
			if n, known := v.Lookup(name); !known || n.State != inventory.Discovered || !n.Commissioned() {
				lost = append(lost, name)
			}
		}

		return lost
	}

	return nil
}

// originOf returns the job that was retried first, as far as it is kept.
func originOf(v *state.View, j job.Job) job.Job {
	for j.RetryOf != "" {
		former, err := v.Job(j.RetryOf)
		if err != nil {
			break
		}

		j = former
	}

	return j
}

// peers returns the hosts that are named in the inventory but are no targets:
// the commissioned nodes of groups that others require, so that templates can refer
// to them, and the helpers. Only helpers are acted on, by plays that name them.
func peers(v *state.View, settings Settings, j job.Job, run job.Run) []configuration.Host {
	serving := j.Serving(v.Nodes)
	helpers := j.HelpersOf(run, serving, settings.Groups)

	var hosts []configuration.Host
	for _, n := range serving {
		helper := slices.Contains(helpers, n.Name)
		if j.Occupies(run, n.Name) || !helper && !settings.provides(n) {
			continue
		}

		h := settings.Host(v, n)
		h.Commissioned = true
		h.HostCAs = settings.HostCAs

		if helper {
			h.Role = configuration.RoleHelper
		}

		hosts = append(hosts, h)
	}

	return hosts
}

// provides reports whether every inventory has the node, so that templates can refer to it.
func (s Settings) provides(n *inventory.Node) bool {
	return n.Commissioned() && s.Groups.Required(n.Group) > 0
}

// masters returns the checksum and the names of the nodes of groups that others require, as the
// inventory of the run has them. They are those of now: a change until the inventory is written makes
// the hosts of the run outdated, although they are not, and the next apply mends that.
func masters(v *state.View, settings Settings, j job.Job, run job.Run) (sum string, names []string) {
	var all []variable.Master
	for _, n := range j.Serving(v.Nodes) {
		if settings.provides(n) && !j.Occupies(run, n.Name) {
			all = append(all, variable.Master{Name: n.Name, Addr: n.Addr, Group: n.Group})
		}
	}

	for i, name := range run.Hosts {
		if n, known := v.Lookup(name); known && settings.Groups.Required(run.Groups[i]) > 0 {
			all = append(all, variable.Master{Name: name, Addr: n.Addr, Group: run.Groups[i]})
		}
	}

	for _, m := range all {
		names = append(names, m.Name)
	}

	slices.Sort(names)

	if len(names) > inventory.MaxMasterNames {
		names = nil
	}

	return variable.MastersSum(v.ChecksumKey, all), names
}

// namesInUse returns the nodes that a host being prepared must not claim to be:
// those that are Discovered or held by a job, with their addresses.
func namesInUse(v *state.View) map[string]any {
	used := map[string]any{}
	for _, n := range v.Nodes {
		if n.State == inventory.Discovered || n.Job != "" {
			used[n.Name] = n.Addr
		}
	}

	return used
}
