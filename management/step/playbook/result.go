// SPDX-License-Identifier: Apache-2.0

package playbook

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/step"
)

// result returns the result of a run that has ended.
func (x *Executor) result(ctx context.Context, s step.Step, exit RunExit, output Output) step.Result {
	log := x.o.Logger.WithField("job", s.Job.ID)

	results, err := output.Results()
	if err != nil {
		log.WithError(err).Warn("the results of the run could not be read")
	}
	if err := x.explainFailures(ctx, s, results); err != nil {
		log.WithError(err).Warn("the connections of the hosts could not be read; failures may name a wrong host")
	}

	keys, err := output.HostKeys()
	if err != nil {
		log.WithError(err).Warn("the host keys of the run could not be read")
	}

	// Cancels may have come since the step began.
	j := s.Job
	if now, err := x.o.State.View().Job(j.ID); err == nil {
		j = now
	}

	// At a shutdown every process gets a signal, the runner too. Nobody
	// cancelled the job, so the phase is run again.
	if exit.Cause == job.CauseCancelled && !j.Cancels(s.Run()) {
		exit.Cause = job.CauseInterrupted
		exit.Message = "its runner got a signal to end, without a cancel: " +
			"the machine was shut down, or somebody sent it a signal"
	}

	// It was not begun here, but another instance may have begun it.
	if exit.NotBegun && s.Run().TakenOver {
		exit.NotBegun, exit.Incomplete = false, true
		exit.Lost = exit.Cause == job.CauseInterrupted
	}

	r := resultOf(s, exit, results)
	r.Keys, r.Lost = keys, exit.Lost && s.Run().Bound

	return r
}

// resultOf returns the result of a step with the exit of its run and the results of hosts, if there are any.
func resultOf(s step.Step, exit RunExit, results map[string]job.HostResult) step.Result {
	hosts := hostResults(s.Job, s.Run(), exit, results)
	r := step.Result{
		Cause: causeOf(exit, hosts), Message: exit.Message, Code: exit.Code, NotBegun: exit.NotBegun, Hosts: hosts,
	}
	maps.Copy(r.Hosts, helperResults(s.Job, s.Run(), results))
	return r
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
func (x *Executor) explainFailures(ctx context.Context, s step.Step, results map[string]job.HostResult) error {
	j, run := s.Job, s.Run()

	failed := func(r job.HostResult) bool { return r.Message != "" }
	if !slices.ContainsFunc(slices.Collect(maps.Values(results)), failed) {
		return nil
	}

	in, err := x.o.Inputs.Inputs(ctx, j.ID)
	view, settings := x.o.State.View(), x.o.Settings()
	taken := takenKeys(view, j)

	for name, r := range results {
		h := configuration.Host{Name: name, Connection: in.Connections[name], Taken: taken}
		if i := slices.Index(run.Hosts, name); i >= 0 {
			t, _ := j.Target(name)
			h.Label = t.Label
			_, h.Connection = settings.InputsOf(view, j, run, i, in)
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
			case run.Phase == job.PhaseClean:
				remedy = "; add a play with the hosts job_targets"
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

// causeOf returns the cause of the results.
func causeOf(exit RunExit, results map[string]job.HostResult) job.Cause {
	if exit.Cause != "" {
		return exit.Cause
	}

	for _, r := range results {
		if !r.Done {
			return job.CauseFailed
		}
	}

	if exit.Code != 0 {
		return job.CauseFailed
	}

	return ""
}
