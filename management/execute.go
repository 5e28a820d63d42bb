// SPDX-License-Identifier: Apache-2.0

package management

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
)

// update changes a job's record, taking the change again where something else
// was written first.
func (s *Service) update(ctx context.Context, id string, change func(*Job)) (Job, error) {
	var out Job
	err := s.persist(ctx, func() error {
		return s.again(ctx, func(v *View) error {
			j, err := v.Job(id)
			if err != nil {
				return err
			}

			j.Runs = slices.Clone(j.Runs)
			change(&j)
			out, err = s.Store.PutJob(ctx, j)

			return err
		})
	})

	return out, err
}

// execute takes a Running job to its end, from wherever it stands.
func (s *Service) execute(ctx context.Context, id string) error {
	for {
		v := s.View()

		j, err := v.Job(id)
		if err != nil || j.Status != Running {
			return err
		}

		if j.Outcomes != nil || len(j.Runs) == 0 && len(j.Targets) == 0 {
			return s.finish(ctx, id)
		}

		if n := len(j.Runs); n > 0 && j.Runs[n-1].Exit == "" {
			if err := s.attend(ctx, j, n-1); err != nil {
				return err
			}

			continue
		}

		step := plan(j, s.now(), func(names []string) error { return s.Groups().CheckLeave(v.Nodes, names) })
		if step.Phase == "" {
			if err := s.decide(ctx, j, step); err != nil {
				return err
			}

			return s.finish(ctx, id)
		}

		if err := s.begin(ctx, j, step); err != nil {
			return err
		}
	}
}

// begin records that a run is about to start.
func (s *Service) begin(ctx context.Context, j Job, step Step) error {
	head := fmt.Sprintf("# job %s, %s of %s: %s", j.ID, j.Verb, short(step.Hosts), step.Phase)
	if step.Playbook != "" {
		head += " (" + step.Playbook + ")"
	}

	if step.Phase == PhaseUndo {
		what := "failed"
		if j.Cancel > 0 {
			what = "was cancelled"
		}

		head = fmt.Sprintf("# job %s %s; cleaning up %s (%s)", j.ID, what, short(step.Hosts), step.Playbook)
	}

	if err := s.say(ctx, j.ID, head); err != nil {
		return err
	}

	run := Run{Phase: step.Phase, Playbook: step.Playbook, Hosts: step.Hosts, Groups: step.Groups, Started: s.now()}

	err := s.persist(ctx, func() (err error) {
		if run.Text, err = s.Store.LogSize(ctx, j.ID, StreamText); err == nil {
			run.Events, err = s.Store.LogSize(ctx, j.ID, StreamEvents)
		}

		return err
	})
	if err != nil {
		return err
	}

	before := len(j.Runs)
	_, err = s.update(ctx, j.ID, func(j *Job) {
		if len(j.Runs) == before { // else this is a repetition whose first answer was lost
			j.Runs = append(j.Runs, run)
		}
	})

	return err
}

// attend is there for a run until it has ended, and records how: it starts the
// run, or adopts it where an earlier process has started it.
func (s *Service) attend(ctx context.Context, j Job, index int) error {
	run := j.Runs[index]
	if run.Phase == PhaseAppear {
		return s.appear(ctx, j, index)
	}

	id := runID(j, index)

	active, err := s.Playbooks.Attach(id)
	if errors.Is(err, ErrNeverStarted) {
		elsewhere := j.Instance != s.Instance
		if elsewhere {
			if j, err = s.takeOver(ctx, j); err != nil {
				return err
			}
		}

		if s.cancelled(j, run) {
			return s.ended(
				ctx,
				j,
				index,
				RunExit{Cause: CauseCancelled, Message: "cancelled before it began here", NotBegun: !elsewhere},
				nil,
			)
		}

		spec, missing := s.spec(ctx, j, run, id)
		switch {
		case missing == nil:
			// A stop of the daemon does not break a start off: the runner is to
			// outlive it, and the start has a bound of its own.
			active, err = s.Playbooks.Start(context.WithoutCancel(ctx), spec)
		case inventory.KindOf(missing) == inventory.KindUnavailable && s.now().Before(j.Deadline):
			return missing // what it needs is away at the moment: this is tried again
		default:
			err = missing
		}
	}

	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}

		return s.ended(
			ctx,
			j,
			index,
			RunExit{Cause: CauseInternal, Message: "the runner did not start: " + err.Error(), NotBegun: true},
			nil,
		)
	}

	// Everything below lives as long as this call: the lease keeper and the
	// shippers are gone when it returns.
	within, release := context.WithCancel(ctx)

	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer release()
	tasks.Go(func() { s.keep(within, j.ID, run, active) })

	shipped := make(chan error, 2)
	for _, stream := range []Stream{StreamText, StreamEvents} {
		tasks.Go(func() { shipped <- s.ship(within, j, run, stream, active) })
	}

	exit, err := active.Wait(ctx)
	if err != nil {
		return err
	}

	for range 2 {
		if err := <-shipped; err != nil {
			return err
		}
	}

	return s.ended(ctx, j, index, exit, active)
}

// takeOver makes a job of another instance this one's. What was started there
// is on that host and may still go on: it is over when its lease is, which
// nobody has renewed since this instance has the right to run jobs.
func (s *Service) takeOver(ctx context.Context, j Job) (Job, error) {
	over := s.started.Add(s.Settings().Lease)
	if wait := over.Sub(s.now()); wait > 0 {
		words := fmt.Sprintf(
			"# job %s was run by %s; it goes on here at %s, when what was started there has ended for sure",
			j.ID,
			j.Instance,
			over.UTC().Format(time.RFC3339),
		)
		if err := s.say(ctx, j.ID, words); err != nil {
			return j, err
		}

		s.Logger.WithFields(logrus.Fields{"job": j.ID, "instance": j.Instance, "until": over}).
			Warn("waiting for what another instance started")

		select {
		case <-ctx.Done():
			return j, ctx.Err()
		case <-time.After(wait):
		}
	}

	return s.update(ctx, j.ID, func(j *Job) { j.Instance = s.Instance })
}

// cancelled tells whether the job's cancel is meant for this run: the first
// ends the verb's own phases, the second its failure path as well.
func (s *Service) cancelled(j Job, run Run) bool {
	if run.Phase == PhaseUndo {
		return j.Cancel > 1
	}

	return j.Cancel > 0
}

// keep renews the runner's lease as long as the store answers and this instance
// has the right to run jobs, and passes a cancel on.
func (s *Service) keep(ctx context.Context, id string, run Run, active ActiveRun) {
	lease := s.Settings().Lease

	renew := time.NewTicker(max(lease/4, time.Second))
	defer renew.Stop()
	log := s.Logger.WithField("job", id)

	passed := 0
	for {
		changed := s.Store.Changed()
		v := s.View()
		// Another instance waits for the end of this lease, if it has the right by now.
		if !v.Stale && (s.Authority == nil || s.Authority()) {
			if err := active.Renew(s.now().Add(lease)); err != nil {
				log.WithError(err).Warn("the runner's lease could not be renewed")
			}
		}

		if j, err := v.Job(id); err == nil && s.cancelled(j, run) && passed < j.Cancel {
			if err := active.Cancel(ctx); err != nil {
				log.WithError(err).Warn("the runner could not be told to end")
			} else {
				passed = j.Cancel
			}
		}

		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return
			case <-renew.C:
				waiting = false
			case <-changed:
				changed = s.Store.Changed()
				j, err := s.View().Job(id)
				waiting = err == nil && !(s.cancelled(j, run) && passed < j.Cancel)
			}
		}
	}
}

// truncated is the last event of a job that has come to the limit.
const truncated = "\n{\"event\":\"truncated\",\"message\":\"further events of this job are not kept\"}\n"

// ship copies a stream of the run into the job's log, from where the log ends.
func (s *Service) ship(ctx context.Context, j Job, run Run, stream Stream, active ActiveRun) error {
	base := run.Text

	limit := int64(0)
	if stream == StreamEvents {
		base, limit = run.Events, s.Settings().EventLimit
	}

	var offset int64

	err := s.persist(ctx, func() (err error) {
		offset, err = s.Store.LogSize(ctx, j.ID, stream)
		return err
	})
	if err != nil {
		return err
	}

	full := false
	if n := int64(len(truncated)); limit > 0 && offset >= base+n {
		// An earlier process may have come to the limit already.
		end, err := s.Store.ReadLog(ctx, j.ID, stream, offset-n)
		if err != nil {
			return err
		}

		full = string(end) == truncated
	}

	return active.Tail(ctx, stream, max(offset-base, 0), func(data []byte) error {
		if full {
			return nil
		}

		if limit > 0 && offset+int64(len(data)) > limit {
			full = true
			data = []byte(truncated)
		}

		if err := s.append(ctx, j.ID, stream, offset, data); err != nil {
			return err
		}

		offset += int64(len(data))

		return nil
	})
}

// ended records how a run ended, and the host keys it met for the first time.
func (s *Service) ended(ctx context.Context, j Job, index int, exit RunExit, active ActiveRun) error {
	var results map[string]HostResult
	if active != nil {
		var err error
		if results, err = active.Results(); err != nil {
			s.Logger.WithError(err).WithField("job", j.ID).Warn("the results of the run could not be read")
		}

		keys, err := active.HostKeys()
		if err != nil {
			s.Logger.WithError(err).WithField("job", j.ID).Warn("the host keys of the run could not be read")
		}

		if err := s.recordKeys(ctx, keys); err != nil {
			return err
		}
	}

	_, err := s.update(ctx, j.ID, func(j *Job) {
		run := &j.Runs[index]

		exit := exit
		if exit.Cause == CauseCancelled && !s.cancelled(*j, *run) {
			// A machine that shuts down tells every process to end, the runner
			// too. Nobody asked for it, so what was broken off is done again.
			exit.Cause, exit.Message = CauseInterrupted, "its runner was told to end, and by no cancel: the machine was shut down, or somebody sent it a signal"
		}

		run.Ended, run.Code, run.Message = s.now(), exit.Code, exit.Message
		run.NotBegun = exit.NotBegun
		run.Results = map[string]HostResult{}

		good := exit.Cause == "" && exit.Code == 0
		for _, h := range run.Hosts {
			r := results[h]
			r.Message = shorten(
				configuration.ExplainFailure(r.Message, nodeOf(*j, h)),
				max(messageBytes/len(run.Hosts), messageLeast),
			)
			// ansible-playbook's own word counts: the summary of a host may have
			// been cut off, or no play have been for it.
			if good && r.Failed == 0 && !r.Unreachable {
				r.Done = true
			}

			if exit.Cause != "" && exit.Cause != CauseFailed {
				r.Done = false
			}

			run.Results[h] = r
		}

		for _, r := range run.Results {
			good = good && r.Done
		}

		switch {
		case exit.Cause != "":
			run.Exit = string(exit.Cause)
		case good:
			run.Exit = ExitDone
		default:
			run.Exit = string(CauseFailed)
		}
	})

	return err
}

// nodeOf is the name of the node that a host of the job's runs is; empty where
// only its address is known.
func nodeOf(j Job, host string) string {
	if j.Verb != inventory.VerbDiscover {
		return host
	}

	t, _ := j.Target(host)
	if t.Label == "" {
		return ""
	}

	return inventory.NodeName(t.Label, t.Serial)
}

// recordKeys keeps the host keys of a first contact with the nodes.
func (s *Service) recordKeys(ctx context.Context, keys map[string][]string) error {
	if len(keys) == 0 {
		return nil
	}

	return s.persist(ctx, func() error {
		return s.again(ctx, func(v *View) error {
			var writes []NodeWrite
			for name, k := range keys {
				n, ok := v.node(name)
				if !ok || len(n.HostKeys) > 0 {
					continue // an address of a discover: its node takes the key when it appears
				}

				n = n.Clone()
				n.HostKeys, n.Updated = k, s.now()
				writes = append(writes, NodeWrite{Node: n})
			}

			return s.putNodes(ctx, writes)
		})
	})
}

// spec collects what a run needs, from the job's pinned inputs and from what
// the nodes' addresses and keys are now.
func (s *Service) spec(ctx context.Context, j Job, run Run, id string) (RunSpec, error) {
	var in Inputs

	err := s.persist(ctx, func() (err error) {
		in, err = s.Store.Inputs(ctx, j.ID)
		return err
	})
	if err != nil {
		return RunSpec{}, err
	}

	v, settings := s.View(), s.Settings()
	spec := RunSpec{ID: id, PlaybookDigest: j.PlaybookDigest, Playbook: run.Playbook, Extra: in.Extra, Lease: s.now().Add(settings.Lease)}

	spec.Deadline = j.Deadline
	if run.Phase == PhaseUndo {
		spec.Deadline = s.now().Add(j.Timeout)
	}

	discover := j.Verb == inventory.VerbDiscover

	extra := maps.Clone(settings.AgentVars)
	if discover {
		if extra == nil {
			return RunSpec{}, settings.NoAgents
		}

		extra["clusterm_taken"] = inUse(v)
	}

	for i, name := range run.Hosts {
		t, _ := j.Target(name)
		h := configuration.Host{
			Name:         t.Name,
			Addr:         t.Addr,
			Label:        t.Label,
			Serial:       t.Serial,
			Group:        run.Groups[i],
			Role:         configuration.RoleTarget,
			Vars:         in.Vars[name],
			Connection:   in.Connections[name],
			Commissioned: t.From == inventory.Allocated && run.Phase != PhaseConfigure,
		}

		known := name
		if discover {
			known = inventory.NodeName(t.Label, t.Serial)
			h.Extra = extra
		}

		if n, ok := v.node(known); ok {
			h.Addr, h.HostKeys = n.Addr, n.HostKeys
		}

		if discover {
			h.Addr = t.Addr
		}

		spec.Hosts = append(spec.Hosts, h)
	}

	if discover {
		return spec, nil
	}

	// The commissioned nodes of the groups that others need are named as well,
	// so that templates can refer to them; of these only helpers are acted on.
	for _, n := range v.Nodes {
		helper := slices.Contains(j.Helpers, n.Name)
		if _, target := j.Target(n.Name); target || !helper && !(n.Commissioned() && settings.Groups.Needed(n.Group)) {
			continue
		}

		h := configuration.Host{
			Name:         n.Name,
			Addr:         n.Addr,
			Label:        n.Label,
			Serial:       n.Serial,
			Group:        n.Group,
			Role:         configuration.RolePeer,
			Commissioned: true,
			Vars: merged(
				v,
				settings,
				n.Group,
				n.Name,
			),
			Connection: connection(v, settings, n.Group, n.Name),
			HostKeys:   n.HostKeys,
		}
		if helper {
			h.Role = configuration.RoleHelper
		}

		spec.Hosts = append(spec.Hosts, h)
	}

	return spec, nil
}

// inUse are the nodes that a host being prepared must not turn out to be: those
// that are seen, or held by a job, with their addresses.
func inUse(v *View) map[string]any {
	out := map[string]any{}
	for _, n := range v.Nodes {
		if n.State == inventory.Discovered || n.Job != "" {
			out[n.Name] = n.Addr
		}
	}

	return out
}

// appear waits until every address of a discover belongs to a Discovered node.
func (s *Service) appear(ctx context.Context, j Job, index int) error {
	until := j.Runs[index].Started.Add(s.Settings().Appear)
	if j.Deadline.Before(until) {
		until = j.Deadline
	}

	timer := time.NewTimer(until.Sub(s.now()))
	defer timer.Stop()

	keys := map[string][]string{}
	if active, err := s.Playbooks.Attach(runID(j, index-1)); err == nil {
		if keys, err = active.HostKeys(); err != nil {
			return err
		}
	}

	for {
		changed := s.Store.Changed()
		v := s.View()

		current, err := v.Job(j.ID)
		if err != nil {
			return err
		}

		seen, absent := map[string]string{}, []string{}
		for _, name := range j.Runs[index].Hosts {
			t, _ := j.Target(name)

			i := slices.IndexFunc(
				v.Nodes,
				func(n *inventory.Node) bool { return n.Addr == t.Addr && n.State == inventory.Discovered },
			)
			if i < 0 {
				absent = append(absent, t.Addr)
				continue
			}

			seen[t.Addr] = v.Nodes[i].Name
		}

		exit := RunExit{}
		switch {
		case current.Cancel > 0:
			exit = RunExit{Cause: CauseCancelled}
		case len(absent) == 0:
		case !s.now().Before(until):
			exit = RunExit{Cause: CauseAbsent, Message: fmt.Sprintf("configured, but not seen within %s: %s; "+
				"see 'journalctl -u clusterm-agent' there, and whether it can reach the gossip port of this host", s.Settings().Appear, join(absent))}
		default:
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-changed:
			case <-timer.C:
			}

			continue
		}

		named := map[string][]string{}
		for _, addr := range slices.Sorted(maps.Keys(seen)) {
			name := seen[addr]
			if len(keys[addr]) > 0 {
				named[name] = keys[addr]
			}

			if err := s.say(ctx, j.ID, fmt.Sprintf("# %s is node %s", addr, name)); err != nil {
				return err
			}
		}

		if err := s.recordKeys(ctx, named); err != nil {
			return err
		}

		_, err = s.update(ctx, j.ID, func(j *Job) {
			run := &j.Runs[index]

			run.Ended, run.Message, run.Exit = s.now(), exit.Message, string(exit.Cause)
			if exit.Cause == "" {
				run.Exit = ExitDone
			}

			run.Results = map[string]HostResult{}
			for _, name := range run.Hosts {
				t, _ := j.Target(name)

				r := HostResult{Done: seen[t.Addr] != "", Begun: true}
				if !r.Done {
					r.Message = "not seen"
				}

				run.Results[t.Name] = r
			}
		})

		return err
	}
}

// decide makes the job's end durable before any node is released.
func (s *Service) decide(ctx context.Context, j Job, step Step) error {
	outcomes := step.Outcomes
	if outcomes == nil {
		outcomes = map[string]inventory.Outcome{}
	}

	line := fmt.Sprintf("# job %s ended %s", j.ID, step.Status)
	if step.Reason != "" {
		line += ": " + step.Reason
	}

	if err := s.say(ctx, j.ID, line); err != nil {
		return err
	}

	_, err := s.update(ctx, j.ID, func(j *Job) {
		j.Outcomes, j.Cause, j.Message = outcomes, step.Cause, step.Reason
	})

	return err
}

// finish releases the nodes of a job whose outcomes are decided, and ends it.
func (s *Service) finish(ctx context.Context, id string) error {
	var ended Job

	err := s.persist(ctx, func() error {
		return s.again(ctx, func(v *View) error {
			j, err := v.Job(id)
			if err != nil {
				return err
			}

			now := s.now()

			var writes []NodeWrite
			for _, t := range j.Targets {
				o, ok := j.Outcomes[t.Name]

				n, known := v.node(t.Name)
				if !ok || !known || n.Job != j.ID {
					continue
				}

				if o.Status == "" {
					writes = append(writes, s.bury(n, j.Actor, j.Reason))
					continue
				}

				free, entry := n.Release(o, inventory.Trigger{Actor: j.Actor, Job: j.ID, Time: now})
				writes = append(writes, NodeWrite{Node: free, Entries: []inventory.HistoryEntry{entry}})
			}

			j.LogBytes = 0
			for _, stream := range []Stream{StreamText, StreamEvents} {
				size, err := s.Store.LogSize(ctx, id, stream)
				if err != nil {
					return err
				}

				j.LogBytes += size
			}

			j.Status, j.Ended = Complete, now
			switch j.Cause {
			case "":
			case CauseCancelled:
				j.Status = Cancelled
			default:
				j.Status = Errored
			}

			ended, err = s.Store.Finish(ctx, j, writes)

			return err
		})
	})
	if err == nil {
		s.Logger.WithFields(logrus.Fields{"job": id, "status": ended.Status, "reason": ended.Message}).Info("job ended")
	}

	return err
}

// The messages of all hosts of a run together are kept below messageBytes, so
// that the record of a job with many hosts is one that the store takes; each may
// have messageLeast bytes. The whole of them is in the events.
const (
	messageBytes = 512 << 10
	messageLeast = 200
)

// shorten cuts text to a number of bytes, with a mark where something is missing.
func shorten(text string, limit int) string {
	const mark = " …"

	if len(text) <= limit {
		return text
	}

	return strings.ToValidUTF8(text[:limit-len(mark)], "") + mark
}

func short(names []string) string {
	if len(names) > 8 {
		return strings.Join(names[:8], ", ") + fmt.Sprintf(" and %d more", len(names)-8)
	}

	return join(names)
}
