// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"strings"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// withAll begins the reason for which pause --all pauses a rollout. resume --all leaves other paused rollouts alone.
const withAll = "with everything (pause --all)"

func pauseRows() rows {
	return rows{
		"pause":  {formats: []string{}, run: pauseAll},
		"resume": {formats: []string{}, run: resumeAll},
	}
}

// needsAll refuses a command that names nothing.
func (c *call) needsAll() error {
	if c.Bool("all") {
		return nil
	}

	return exit.Usagef("%s needs --all", c.Name).
		Try("for one policy or rollout: %[1]s policy %[2]s NAME, %[1]s rollout %[2]s ID", c.self(), c.Name)
}

// because is the request to pause or resume policies.
func (c *call) because() api.PolicyControl { return api.PolicyControl{Reason: c.String("reason")} }

func pauseAll(ctx context.Context, c *call) error {
	if err := c.needsAll(); err != nil {
		return err
	}

	if _, err := c.manager.ControlPolicy(ctx, api.PathPausePolicy, c.because(), api.AllPolicies); err != nil {
		return err
	}

	reason := withAll
	if r := c.String("reason"); r != "" {
		reason += ": " + r
	}

	going := func(r api.Rollout) bool { return r.Status == "Running" || r.Status == "AwaitingPromotion" }

	err := c.eachRollout(ctx, going, "paused", func(id string) error {
		_, err := c.manager.ControlRollout(ctx, api.PathPauseRollout, api.RolloutControl{Reason: reason}, id)
		return err
	})
	if err != nil {
		return err
	}

	c.say("all policies are paused; to go on: %s resume --all", c.self())

	return nil
}

func resumeAll(ctx context.Context, c *call) error {
	if err := c.needsAll(); err != nil {
		return err
	}

	paused := func(r api.Rollout) bool { return r.Status == "Paused" && strings.Contains(r.Reason, ": "+withAll) }

	err := c.eachRollout(ctx, paused, "resumed", func(id string) error {
		body := api.RolloutResume{Reason: c.String("reason")}
		_, err := c.manager.ControlRollout(ctx, api.PathResumeRollout, body, id)
		return err
	})
	if err != nil {
		return err
	}

	if _, err := c.manager.ControlPolicy(ctx, api.PathResumePolicy, c.because(), api.AllPolicies); err != nil {
		return err
	}

	c.say("the pause of all policies has ended")

	return nil
}

// eachRollout changes the selected rollouts. One that the manager refuses to change has gone on or ended meanwhile.
func (c *call) eachRollout(
	ctx context.Context, selected func(api.Rollout) bool, done string, change func(id string) error,
) error {
	rollouts, err := c.manager.ListRollouts(ctx)
	if err != nil {
		return err
	}

	for _, r := range rollouts.Items {
		if !selected(r) {
			continue
		}

		switch err := change(r.ID); {
		case err == nil:
			c.say("rollout %s is %s", r.ID, done)
		case inventory.KindOf(err) != inventory.KindRefused:
			return err
		default:
			c.say("rollout %s is not %s: %v", r.ID, done, err)
		}
	}

	return nil
}
