// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/step"
)

// execute takes a Running job to its end, from wherever its record stands.
func (e *Engine) execute(ctx context.Context, id string) error {
	for {
		v := e.state.View()

		j, err := v.Job(id)
		if err != nil || j.Status != job.Running {
			return err
		}

		e.outages.Note(v.Stale, time.Now())

		if put, err := e.putOff(ctx, j); err != nil {
			return err
		} else if put {
			continue
		}

		// The end is decided, perhaps by an earlier process.
		if j.Outcomes != nil || len(j.Runs) == 0 && len(j.Targets) == 0 {
			return e.finish(ctx, id, nil)
		}

		// A run without an exit was begun, and may still be alive.
		if run := j.LastRun(); run != nil && run.Exit == "" {
			if err := e.executeStep(ctx, j); err != nil {
				return err
			}

			continue
		}

		step := job.Plan(j, time.Now(), job.RulesOf(j, v.Nodes(), e.settings().Groups))
		if step.Kind == "" {
			return e.conclude(ctx, j, step)
		}
		if err := e.begin(ctx, j, step); err != nil {
			return err
		}
	}
}

// putOff puts off the deadline of the job by the outages of the store that are not in it yet, and reports whether there
// were any.
func (e *Engine) putOff(ctx context.Context, j job.Job) (put bool, err error) {
	if j.Outcomes != nil || j.Phase() == job.PhaseUndo || e.outages.Between(j.Counted(), time.Now()) < time.Second {
		return false, nil
	}

	updated, err := e.update(ctx, j.ID, func(j *job.Job) {
		now := time.Now()
		*j = j.PutOff(e.outages.Between(j.Counted(), now), now)
	})
	if err == nil {
		e.log.WithFields(logrus.Fields{"job": j.ID, "deadline": updated.Deadline, "outage": updated.Outage}).
			Warn("the store was away, which the deadline of the job does not count")
	}

	return err == nil, err
}

// update changes the record of a job as its owner.
func (e *Engine) update(ctx context.Context, id string, change func(*job.Job)) (updated job.Job, err error) {
	err = e.retryUnavailable(ctx, func() error {
		j, revision, err := record.Decide(ctx, e.records, func(tx *record.Tx) (job.Job, error) {
			v := state.ViewOf(tx)

			// In place of a record that cannot be read, the view has an older one.
			j, err := v.Job(id)
			if err := cmp.Or(err, v.Damaged(&job.Kind, id)); err != nil {
				return j, err
			}
			j.Runs = slices.Clone(j.Runs)
			change(&j)
			record.Put(tx, &job.Kind, &j)

			return j, nil
		})
		j.Revision, updated = revision, j

		return err
	})

	return updated, err
}

// begin records that a step is about to start.
func (e *Engine) begin(ctx context.Context, j job.Job, next job.Step) error {
	executor, err := e.executors.Get(next.Kind)
	if err != nil {
		return err
	}

	// The headline belongs to the output before the run, so write it first.
	if _, err := e.logLine(ctx, j, headline(j, next, executor.Describe(next))); err != nil {
		return err
	}

	run := job.Run{
		Kind: next.Kind, Phase: next.Phase, Playbook: next.Playbook, PlaybookDigest: next.PlaybookDigest,
		Hosts: next.Hosts, Groups: next.Groups, Started: time.Now(),
		TakenOver: j.MayHaveBegun(next), Bound: e.hasOthers(),
	}

	if run.Text, run.Events, err = e.logSizes(ctx, j.ID); err != nil {
		return err
	}

	if r, ok := executor.(step.Recorder); ok {
		if err := r.Record(ctx, e.state.View(), j, &run); err != nil {
			return err
		}
	}

	before := len(j.Runs)
	_, err = e.update(ctx, j.ID, func(j *job.Job) {
		// A longer list means that the answer to an earlier write was lost.
		if len(j.Runs) == before {
			j.Runs = append(j.Runs, run)
		}
	})

	return err
}

// headline returns the line in the job's output that announces a step, and what it does.
func headline(j job.Job, next job.Step, does string) string {
	if next.Phase == job.PhaseUndo {
		event := "failed"
		if j.Cancel > 0 {
			event = "was cancelled"
		}
		line := fmt.Sprintf("# job %s %s; cleaning up %s (%s)", j.ID, event, job.ShortList(next.Hosts), does)
		return line + attempt(j, next)
	}

	line := fmt.Sprintf("# job %s, %s of %s: %s", j.ID, j.Verb, job.ShortList(next.Hosts), next.Phase)
	if does != "" {
		line += " (" + does + ")"
	}
	if options := j.AnsibleOf(next.Phase, next.Groups).String(); options != "" {
		line += ", " + options
	}

	if number, of := j.BatchOf(next.Hosts[0]); number > 0 {
		line += fmt.Sprintf(", batch %d of %d", number, of)
	}

	return line + attempt(j, next)
}

// attempt returns the part of a headline about a step that was lost before it began, or "".
func attempt(j job.Job, step job.Step) string {
	number, of := j.Attempt(step)
	if number == 1 {
		return ""
	}
	return fmt.Sprintf(", attempt %d of %d", number, of)
}

// conclude ends the job as the step says.
func (e *Engine) conclude(ctx context.Context, j job.Job, step job.Step) error {
	// Outcomes that are not nil mark the job as decided.
	outcomes := step.Outcomes
	if outcomes == nil {
		outcomes = map[string]inventory.Outcome{}
	}

	line := fmt.Sprintf("# job %s ended %s", j.ID, step.Status)
	if step.Message != "" {
		line += ": " + step.Message
	}
	bytes, err := e.logLine(ctx, j, line)
	if err != nil {
		return err
	}

	// The retention counts the bytes of both logs. Only runs write events.
	if len(j.Runs) > 0 {
		err := e.retryUnavailable(ctx, func() error {
			events, err := e.store.LogSize(ctx, j.ID, job.StreamEvents)
			bytes += events
			return err
		})
		if err != nil {
			return err
		}
	}

	return e.finish(ctx, j.ID, func(j *job.Job) {
		j.Outcomes, j.Cause, j.Message, j.LogBytes = outcomes, step.Cause, step.Message, bytes
		j.Note = cmp.Or(step.Note, j.Note)
	})
}

// finish releases the nodes of a job with their outcomes, and ends it. decide sets the
// outcomes of a job that has none yet.
func (e *Engine) finish(ctx context.Context, id string, decide func(*job.Job)) error {
	var ended job.Job

	err := e.retryUnavailable(ctx, func() error {
		return e.retryConflict(ctx, func(v *state.View) error {
			j, err := v.Job(id)
			if err != nil {
				return err
			}

			// The answer to an earlier attempt was lost.
			if j.Status.Ended() {
				ended = j
				return nil
			}

			if j.Outcomes == nil && decide != nil {
				decide(&j)
			}

			now := time.Now()
			j.Status, j.Ended = endStatus(j.Cause), now
			ended, err = e.storeEnd(ctx, j, release(v, j, now))

			return err
		})
	})
	if err == nil {
		e.log.WithFields(logrus.Fields{"job": id, "status": ended.Status, "message": ended.Message}).Info("job ended")
	}

	return err
}

func endStatus(cause job.Cause) job.Status {
	switch cause {
	case "":
		return job.Complete
	case job.CauseCancelled:
		return job.Cancelled
	}

	return job.Errored
}

// release returns the writes that give the job's nodes their outcomes. A node
// that the job no longer holds was released by an earlier attempt.
func release(v *state.View, j job.Job, now time.Time) []state.NodeWrite {
	var writes []state.NodeWrite
	for _, t := range j.Targets {
		o, decided := j.Outcomes[t.Name]

		n, known := v.Lookup(t.Name)
		if !decided || !known || n.Job != j.ID {
			continue
		}

		// No status: the verb removes the record.
		if o.Status == "" {
			writes = append(writes, node.Tombstone(n, j.Actor, j.Reason, now))
			continue
		}

		free, entry := n.Release(o, inventory.Trigger{Actor: j.Actor, Job: j.ID, Time: now})
		writes = append(writes, state.NodeWrite{Node: free, Entries: []inventory.HistoryEntry{entry}})
	}

	return writes
}

// recordKeys stores the host keys of a first contact with the nodes. The nodes
// of a discover get their keys when they appear.
func (e *Engine) recordKeys(ctx context.Context, keys map[string][]string) error {
	if len(keys) == 0 {
		return nil
	}

	return e.retryUnavailable(ctx, func() error {
		return e.retryConflict(ctx, func(v *state.View) error {
			var writes []state.NodeWrite

			taken := v.HostKeys()

			for _, name := range slices.Sorted(maps.Keys(keys)) {
				k := keys[name]
				n, ok := v.Lookup(name)
				// Never replace a recorded key: a change of it is an alarm.
				if !ok || len(n.HostKeys) > 0 {
					continue
				}

				// Two nodes with one key could not be told from each other. Each further contact is refused.
				i := slices.IndexFunc(k, func(key string) bool { return taken[key] != "" })
				if i >= 0 {
					e.log.WithError(configuration.ErrTaken(name, configuration.Fingerprint(k[i]), taken)).
						Warn("the ssh host key of a node is not recorded")

					continue
				}

				n = n.Clone()
				n.HostKeys, n.Updated = k, time.Now()

				for _, key := range k {
					taken[key] = name
				}

				writes = append(writes, state.NodeWrite{Node: n})
			}

			return node.PutNodes(ctx, e.store, writes)
		})
	})
}
