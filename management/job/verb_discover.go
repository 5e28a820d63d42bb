// SPDX-License-Identifier: Apache-2.0

package job

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/contiv/cluster/inventory"
)

func init() {
	// Discover prepares hosts by address and waits until they appear as nodes. It
	// restores the hosts that it has changed and that do not appear.
	register(Verb{
		Name:          inventory.VerbDiscover,
		Playbooks:     []string{PlaybookSite, PlaybookCleanup},
		InstallsAgent: true,
		plan:          (*planner).discover,
		Next:          "ends when every address has appeared as a Discovered node, or when its time is over",
	})
}

func (p *planner) discover() Step {
	configured, appeared := p.last(PhaseConfigure), p.last(PhaseAppear)

	switch {
	case configured == nil && p.stop == "":
		return p.run(PhaseConfigure, PlaybookSite, newGroup, everyTarget)
	case configured == nil:
		return p.end(p.stop, p.stopMessage, nil)
	}

	// Waiting is pointless if nothing has installed the agent.
	if idle := idleHosts(configured); len(idle) > 0 {
		return p.endDiscover(CauseFailed, fmt.Sprintf(
			"%s ran no task on %s; it needs a play for the group %s that installs the agent (the bundled role agent)",
			PlaybookSite, join(idle), inventory.GroupPrepare))
	}

	// After a stop or a broken run no host can be trusted to appear.
	cause, message := p.failure(configured)
	partly := cause == "" || failedOn(configured)

	if appeared == nil && p.stop == "" && partly {
		// Wait for the hosts that were prepared, even if others failed.
		step := p.run(PhaseAppear, "", newGroup, func(t Target) bool { return configured.succeeded(t.Name) })
		step.Kind = StepAppear

		if len(step.Hosts) > 0 {
			return step
		}
	}

	if appeared != nil && !done(appeared) {
		late, why := p.failure(appeared)
		if message != "" {
			why = message + "; " + why
		}

		return p.endDiscover(late, why)
	}

	if cause == "" || appeared != nil && done(configured) {
		return p.end("", "", nil)
	}

	return p.endDiscover(cause, message)
}

// endDiscover is the failure path: it restores the hosts that the job has changed
// and that have not appeared. cleanup.yml restores only what the same job has
// recorded there, so a second run, or one on an unchanged host, does nothing.
func (p *planner) endDiscover(cause Cause, message string) Step {
	step := p.run(PhaseUndo, PlaybookCleanup, prepareGroup, p.leftPrepared)
	restored := p.last(PhaseUndo)

	switch {
	case len(step.Hosts) == 0 || p.Cancel > 1:
	case restored == nil:
		return step
	case restored.Exit == string(CauseInterrupted) && p.count(PhaseUndo) < undoAttempts:
		return step
	}

	var left []string
	for _, h := range step.Hosts {
		switch {
		case restored == nil || p.Cancel > 1 && !restored.succeeded(h):
			left = append(left, h+": the second cancel skipped it")
		case done(restored) && !restored.Results[h].Begun:
			left = append(left, h+": "+PlaybookCleanup+" has no play for the group "+inventory.GroupPrepare)
		case !restored.succeeded(h):
			left = append(left, h+": "+hostFailure(restored, h, cmp.Or(restored.Message, "it did not reach the end")))
		}
	}

	if len(left) > 0 {
		message = strings.TrimPrefix(message+"; not restored to the state before: "+strings.Join(left, "; "), "; ")
	}

	return p.end(cause, message, nil)
}

// leftPrepared reports whether the job may have changed the target, and the target
// has not appeared.
func (p *planner) leftPrepared(t Target) bool {
	configured, appeared := p.last(PhaseConfigure), p.last(PhaseAppear)
	if configured.NotBegun || appeared != nil && appeared.succeeded(t.Name) {
		return false
	}

	// The results of a broken run may lack its last task.
	r := configured.Results[t.Name]
	broken := !done(configured) && !failedOn(configured)

	return r.Changed > 0 || broken && !r.Unreachable
}

// idleHosts returns the hosts on which a successful run did nothing at all.
func idleHosts(r *Run) []string {
	var idle []string
	for _, h := range r.Hosts {
		if done(r) && !r.Results[h].Begun {
			idle = append(idle, h)
		}
	}

	return idle
}
