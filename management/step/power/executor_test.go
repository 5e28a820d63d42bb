// SPDX-License-Identifier: Apache-2.0

package power_test

import (
	"context"
	"fmt"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/step"
)

// atOnce is how many machines are switched at a time: they share a fuse.
const atOnce = 2

// executor switches machines by their BMCs.
type executor struct {
	step.Plain

	bmcs *bmcs
}

var _ step.Executor = executor{}

// Prepare refuses what is no state of power, and machines without a BMC.
func (x executor) Prepare(_ context.Context, r step.Request) (step.Pin, error) {
	to := r.Extra["to"]
	if to != "on" && to != "off" {
		return nil, inventory.Errorf(inventory.KindInvalid, "a node can be powered on or off, not %v", to).
			Do("set the variable to")
	}

	var without []string

	for _, t := range r.Job.Targets {
		if !x.bmcs.has(t.Name) {
			without = append(without, t.Name)
		}
	}

	if len(without) > 0 {
		return nil, inventory.Errorf(inventory.KindRefused, "no BMC is known of %s", job.ShortList(without)).
			About(without...)
	}

	return func(_ context.Context, _ *state.View, j *job.Job) error {
		j.Note = fmt.Sprintf("power %v by %s", to, x.bmcs.kind)
		return nil
	}, nil
}

// Run switches every machine of the step. To switch one that is switched is no harm.
func (x executor) Run(ctx context.Context, s step.Step, out step.Events) (step.Result, error) {
	in, err := s.Inputs(ctx)
	if err != nil {
		return step.Result{}, err
	}
	to := fmt.Sprint(in.Extra["to"])

	return step.Each(ctx, s, out, atOnce, "power "+to, func(ctx context.Context, host string) error {
		return x.bmcs.set(ctx, host, to)
	})
}

// Describe names the protocol.
func (x executor) Describe(job.Step) string { return x.bmcs.kind }
