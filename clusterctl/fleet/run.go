// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/follow"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// The results of a step.
const (
	StepDone        = "done"
	StepFailed      = "failed"
	StepInterrupted = "interrupted" // its job, if it has one, continues
	StepPending     = "not done"
)

// Result is the result of one step.
type Result struct {
	Title  string `json:"title"`
	Result string `json:"result"`
	Job    string `json:"job,omitempty"`
	Error  string `json:"error,omitempty"`
}

// Options are the parameters of Run.
type Options struct {
	Manager *client.Client
	// Follow waits for the end of a job, and returns its last record.
	Follow func(ctx context.Context, j api.Job) (api.Job, error)
	// Done is called after each step that succeeded.
	Done func(Result)
	// Reason is the reason for the histories of the nodes.
	Reason string
	// Note reports an outage of the manager.
	Note func(string)
}

// Run carries out the steps of a difference in order, until one fails. It returns the
// results of all steps, also with an error: that of the failed step.
func Run(ctx context.Context, steps []api.FleetStep, o Options) ([]Result, error) {
	results := make([]Result, len(steps))
	for i, s := range steps {
		results[i] = Result{Title: s.Title, Result: StepPending}
	}

	for i, s := range steps {
		if err := o.carryOut(ctx, s, &results[i].Job); err != nil {
			results[i].Result, results[i].Error = StepFailed, exit.Message(err)
			if ctx.Err() != nil {
				results[i].Result = StepInterrupted
			}
			return results, err
		}

		results[i].Result = StepDone
		o.Done(results[i])
	}

	return results, nil
}

// carryOut carries out one step. It stores the id of its job, if it has one.
func (o Options) carryOut(ctx context.Context, s api.FleetStep, id *string) error {
	if s.Job == nil {
		return follow.Retry(ctx, o.Note, func(again bool) error {
			apply := *s.Apply
			apply.Again = again
			_, err := o.Manager.FleetApply(ctx, apply)
			return err
		})
	}

	request := *s.Job
	request.Reason = o.Reason

	// One key for all attempts: a manager that accepted the job answers with it.
	keyed := o.Manager.IdempotencyKey(api.NewRequestID() + api.NewRequestID())

	var j api.Job

	err := follow.Retry(ctx, o.Note, func(bool) (err error) {
		j, err = keyed.Submit(ctx, request)
		return err
	})
	if err != nil {
		return err
	}

	*id = j.ID

	end, err := o.Follow(ctx, j)
	if err != nil {
		return err
	}
	if end.Status != api.Complete {
		return exit.Errorf(exit.JobFailed, "job %s (%s) is %s: %s", end.ID, end.Verb, end.Status, end.Message)
	}

	return nil
}
