// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/step"
)

// executeStep takes the job's last run to its end, from wherever its executor has got, and records the end.
func (e *Engine) executeStep(ctx context.Context, j job.Job) error {
	s := step.New(e.state, e.store, j, len(j.Runs)-1).Counting(&e.outages)

	executor, err := e.executors.Get(s.Run().Kind)
	if err != nil {
		return fmt.Errorf("job %s cannot go on: %w", j.ID, err)
	}

	out := e.newEvents(ctx, s)

	result, err := executor.Adopt(ctx, s, out)
	elsewhere := errors.Is(err, step.ErrNotHere)

	switch {
	case elsewhere && j.Former != "":
		return e.loseStep(ctx, s)
	case elsewhere, errors.Is(err, step.ErrNotBegun):
		if s, err = e.takeOver(ctx, s); err == nil {
			out.step = s
			result, err = executor.Run(ctx, s, out)
		}
	}

	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return err
	}

	if err := e.recordKeys(ctx, result.Keys); err != nil {
		return err
	}

	_, err = e.update(ctx, j.ID, func(j *job.Job) {
		run := &j.Runs[s.Index]
		run.Ended, run.Code, run.Message = time.Now(), result.Code, result.Message
		run.NotBegun, run.Lost = result.NotBegun, result.Lost
		run.Exit, run.Results = cmp.Or(string(result.Cause), job.ExitDone), result.Hosts
		run.Troubles = e.troublesOf(*run)
	})

	return err
}

// troublesOf returns those of the manager during a run that did not succeed.
func (e *Engine) troublesOf(run job.Run) []string {
	if run.Exit == job.ExitDone {
		return nil
	}

	texts := e.troubles.During(run.Started, run.Ended)
	if away := e.outages.Between(run.Started, run.Ended); away >= time.Second {
		texts = append(texts, "its store was away for "+inventory.ShortDuration(away.Round(time.Second)))
	}

	return texts
}

// takeOver makes a step of which another instance has begun nothing this one's.
func (e *Engine) takeOver(ctx context.Context, s step.Step) (step.Step, error) {
	j := s.Job
	if j.Former == "" {
		return s, nil
	}

	// What the former instance has shipped is not the beginning of the output here.
	text, events, err := e.logSizes(ctx, j.ID)
	if err != nil {
		return s, err
	}

	taken, err := e.recordTakeOver(ctx, j, func(j *job.Job) {
		run := &j.Runs[s.Index]
		run.TakenOver, run.Text, run.Events = true, text, events
	})

	return step.New(e.state, e.store, taken, s.Index).Counting(&e.outages), err
}

// loseStep ends the run that another instance may have begun on its host, so that its step is begun again here. A run
// that is not bound to the ownership may go on: it ends with its lease, and nothing has renewed the lease since this
// instance owns the job.
func (e *Engine) loseStep(ctx context.Context, s step.Step) error {
	j := s.Job

	e.mu.Lock()
	over := e.running[j.ID].Add(e.settings().Lease)
	e.mu.Unlock()

	if wait := time.Until(over); wait > 0 && !s.Run().Bound {
		line := fmt.Sprintf("# job %s was run by %s; it goes on here at %s, when what was started there has ended "+
			"for sure",
			j.ID, j.Former, over.UTC().Format(time.RFC3339))
		if _, err := e.logLine(ctx, j, line); err != nil {
			return err
		}

		e.log.WithFields(logrus.Fields{"job": j.ID, "instance": j.Former, "until": over}).
			Warn("waiting for the runner of another instance to end")

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}

	_, err := e.recordTakeOver(ctx, j, func(j *job.Job) {
		run := &j.Runs[s.Index]
		run.Ended, run.Lost, run.Exit = time.Now(), true, string(job.CauseInterrupted)
		run.Message = "its instance " + s.Job.Former + " is gone"
		run.Results = lostResults(*run)
	})

	return err
}

// recordTakeOver changes the record of a job of another instance, and that it is this one's.
func (e *Engine) recordTakeOver(ctx context.Context, j job.Job, change func(*job.Job)) (taken job.Job, err error) {
	record := access.Record{Action: "jobs.takeover", Targets: j.Names(), Job: j.ID, Reason: "run by " + j.Former}
	err = e.decideItself(ctx, record, func(ctx context.Context) (err error) {
		taken, err = e.update(ctx, j.ID, func(j *job.Job) {
			if j.Former != "" {
				change(j)
			}

			j.Former = ""
		})
		return err
	})

	return taken, err
}

// lostResults are the results of a run of which nobody knows how far it came.
func lostResults(run job.Run) map[string]job.HostResult {
	results := maps.Clone(run.Results)
	if results == nil {
		results = map[string]job.HostResult{}
	}

	for _, host := range run.Hosts {
		r := results[host]
		r.Begun, r.Done = true, false
		results[host] = r
	}

	return results
}

// events implements step.Events: it writes into the logs of the job.
type events struct {
	engine *Engine
	step   step.Step

	text, events *collector
}

// newEvents returns the events of a step. They are written until ctx ends.
func (e *Engine) newEvents(ctx context.Context, s step.Step) *events {
	o := &events{engine: e, step: s}

	o.text = newCollector(func(data []byte) error {
		_, err := e.logText(ctx, s.Job.ID, data)
		return err
	})
	o.events = newCollector(func(data []byte) error { return o.append(ctx, data) })

	return o
}

// Line adds a line to the text of the job.
func (o *events) Line(ctx context.Context, text string) error {
	return o.text.add(ctx, []byte(oneLine(text)+"\n"))
}

// Event adds an event to the events of the job, up to their limit.
func (o *events) Event(ctx context.Context, e step.Event) error {
	// A struct of texts and numbers always has a JSON form.
	line, _ := json.Marshal(configuration.Event{
		Time: time.Now().UTC(), Event: e.Kind, Task: e.Task, Host: e.Target, Message: e.Message,
		Seconds: e.Took.Seconds(),
	})

	return o.events.add(ctx, append(line, '\n'))
}

// append adds whole events to those of the job, up to their limit.
func (o *events) append(ctx context.Context, data []byte) error {
	limit := o.engine.settings().EventLimit

	offset, full, err := o.engine.shipped(ctx, o.step.Job.ID, job.StreamEvents, o.step.Run().Events, limit)
	if err != nil || full {
		return err
	}

	if limit > 0 && offset+int64(len(data)) > limit {
		data = append(wholeLines(data, max(limit-offset, 0)), truncated...)
	}

	return o.engine.append(ctx, o.step.Job.ID, job.StreamEvents, offset, data)
}

// wholeLines returns a copy of the lines of data that fit into size bytes as a whole.
func wholeLines(data []byte, size int64) []byte {
	fit := data[:size]

	return bytes.Clone(fit[:bytes.LastIndexByte(fit, '\n')+1])
}

// Results adds results of hosts to the record of the run.
func (o *events) Results(ctx context.Context, hosts map[string]job.HostResult) error {
	_, err := o.engine.update(ctx, o.step.Job.ID, func(j *job.Job) {
		run := &j.Runs[o.step.Index]

		// The view has the old ones.
		all := make(map[string]job.HostResult, len(run.Hosts))
		maps.Copy(all, run.Results)
		maps.Copy(all, hosts)
		run.Results = all
	})

	return err
}

// Copy copies a stream into that of the job, from the end of the job's log on.
func (o *events) Copy(ctx context.Context, s job.Stream, tail step.Tail) error {
	run, id := o.step.Run(), o.step.Job.ID

	base, limit := run.Text, int64(0)
	if s == job.StreamEvents {
		base, limit = run.Events, o.engine.settings().EventLimit
	}
	offset, full, err := o.engine.shipped(ctx, id, s, base, limit)
	if err != nil {
		return err
	}

	return tail(ctx, s, max(offset-base, 0), func(data []byte) error {
		if full {
			return nil
		}

		if limit > 0 && offset+int64(len(data)) > limit {
			full = true
			data = []byte(truncated)
		}

		if err := o.engine.append(ctx, id, s, offset, data); err != nil {
			return err
		}

		offset += int64(len(data))

		return nil
	})
}

// truncated is the last event of a job after its events have reached the limit.
const truncated = "\n{\"event\":\"truncated\",\"message\":\"further events of this job are not kept\"}\n"

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
