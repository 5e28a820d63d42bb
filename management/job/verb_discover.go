// SPDX-License-Identifier: Apache-2.0

package job

import (
	"fmt"

	"github.com/contiv/cluster/inventory"
)

func init() {
	// Discover prepares hosts by address and waits until they appear as nodes.
	register(Verb{
		Name:          inventory.VerbDiscover,
		Playbooks:     []string{PlaybookSite},
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
		return p.end(CauseFailed, fmt.Sprintf(
			"%s ran no task on %s; it needs a play for the group %s that installs the agent (the bundled role agent)",
			PlaybookSite, join(idle), inventory.GroupPrepare), nil)
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

		return p.end(late, why, nil)
	}

	if cause == "" || appeared != nil && done(configured) {
		return p.end("", "", nil)
	}

	return p.end(cause, message, nil)
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
