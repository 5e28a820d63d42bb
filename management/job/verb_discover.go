// SPDX-License-Identifier: Apache-2.0

package job

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/contiv/cluster/inventory"
)

func init() {
	// Discover tries to reach hosts by address, prepares those that accept a login,
	// and waits until they appear as nodes. It restores the hosts that it has changed
	// and that do not appear.
	Register(Verb{
		Name:          inventory.VerbDiscover,
		Steps:         []StepKind{StepProbe, StepPlaybook, StepAppear},
		Playbooks:     []string{PlaybookSite},
		InstallsAgent: true,
		result:        discovered,
		Plan:          (*Planner).discover,
		Next:          "ends when every address has appeared as a Discovered node, or when its time is over",
	})
}

func (p *Planner) discover() Step {
	probed, configured, appeared := p.last(PhaseProbe), p.last(PhaseConfigure), p.last(PhaseAppear)

	// A record of an earlier version may have no probe.
	switch {
	case probed == nil && configured == nil && p.stop == "":
		step := p.run(PhaseProbe, "", newGroup, everyTarget)
		step.Kind = StepProbe
		return step
	case probed == nil && configured == nil:
		return p.end(p.stop, p.stopMessage, nil)
	case probed != nil && !done(probed) && !failedOn(probed):
		cause, message := p.failure(probed)
		return p.end(cause, message, nil)
	}

	if configured == nil {
		return p.configureReachable(probed)
	}

	// Waiting is pointless if nothing has installed the agent.
	if idle := idleHosts(configured); len(idle) > 0 {
		return p.endDiscover(CauseFailed, fmt.Sprintf(
			"%s ran no task on %s; it needs a play for the group %s that installs the agent (the bundled role agent)",
			PlaybookSite, join(idle), inventory.GroupPrepare))
	}

	if appeared == nil {
		// Wait for the hosts that were prepared, even if others failed. After a stop or
		// a broken run the step does not wait: it records the hosts that are nodes by
		// now, which the undo must not touch.
		prepared := func(t Target) bool {
			return configured.succeeded(t.Name) || brokeOff(configured) && p.leftPrepared(t)
		}
		step := p.run(PhaseAppear, "", newGroup, prepared)
		step.Kind = StepAppear

		if len(step.Hosts) > 0 {
			return step
		}
	}

	cause, message := p.failure(configured)

	switch {
	case appeared == nil || brokeOff(configured):
		return p.endDiscover(cause, message)
	case done(configured):
		cause, message = "", "" // a stop since then is the failure of the wait
	}

	if !done(appeared) {
		late, why := p.failure(appeared)
		return p.endDiscover(late, also(message, why))
	}

	return p.endDiscover(cause, message)
}

// configureReachable returns the step that configures the hosts that accept a
// login, or the end of the job if there is none.
func (p *Planner) configureReachable(probed *Run) Step {
	if p.stop != "" {
		return p.end(p.stop, p.stopMessage, nil)
	}

	step := p.run(PhaseConfigure, PlaybookSite, newGroup, func(t Target) bool { return probed.succeeded(t.Name) })
	if len(step.Hosts) > 0 {
		return step
	}

	if message := p.unreachable(probed); message != "" {
		return p.end(CauseFailed, message, nil)
	}

	return p.end(CauseAbsent, "no address of the range accepts ssh connections", nil)
}

// unreachable names the hosts that the probe could not log in to, with the
// reasons, or returns "". Silent addresses of a range do not count.
func (p *Planner) unreachable(probed *Run) string {
	const most = 5 // hosts in one message

	var parts []string
	for _, t := range p.Targets {
		if probed == nil || probed.succeeded(t.Name) || t.Skips(probed.Results[t.Name]) {
			continue
		}

		parts = append(parts, t.Name+": "+cmp.Or(firstLine(probed.Results[t.Name].Message), "not probed"))
	}

	if len(parts) == 0 {
		return ""
	}

	if more := len(parts) - most; more > 0 {
		parts = append(parts[:most], "and "+inventory.Count(more, "more host", "more hosts"))
	}

	return "not reachable by ssh: " + strings.Join(parts, "; ")
}

// discovered returns the result for an address. A host that appeared is fine even if the job failed on others, and a
// silent address of a range is no host.
func discovered(j Job, t Target, result TargetResult) TargetResult {
	for _, r := range j.Runs {
		switch res := r.Results[t.Name]; {
		case r.Phase == PhaseProbe && t.Skips(res):
			return TargetResult{Error: "skipped: " + res.Message}
		case r.Phase == PhaseAppear && res.Done:
			result.OK, result.Error = true, ""
		}
	}

	return result
}

// Skips reports whether a discover goes on without the target after that result
// of the probe: it is a silent address of a range.
func (t Target) Skips(probed HostResult) bool { return t.Ranged && probed.Unreachable }

// firstLine returns the first line of a message.
func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// also joins two messages, of which either may be empty.
func also(first, second string) string {
	if first == "" || second == "" {
		return first + second
	}
	return first + "; " + second
}

// brokeOff reports whether the run ended before its playbook did, so that its
// results may be incomplete.
func brokeOff(r *Run) bool { return !done(r) && !failedOn(r) }

// endDiscover ends the job. After a failure it restores the hosts that the job has
// changed and that have not appeared. The playbook is always the bundled one: a
// cleanup.yml of the site may act on services of a node that is in the range. It
// restores what the same job has recorded there, and nothing else.
func (p *Planner) endDiscover(cause Cause, message string) Step {
	if unreachable := p.unreachable(p.last(PhaseProbe)); unreachable != "" {
		cause, message = cmp.Or(cause, CauseFailed), also(unreachable, message)
	}

	step := p.runOf(bundled, PhaseUndo, PlaybookDiscoverUndo, prepareGroup, p.leftPrepared)
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
		case !restored.succeeded(h):
			left = append(left, h+": "+hostFailure(restored, h, cmp.Or(restored.Message, "it did not reach the end")))
		}
	}

	if len(left) > 0 {
		message = also(message, "not restored to the state before: "+strings.Join(left, "; "))
	}

	return p.end(cause, message, nil)
}

// leftPrepared reports whether the job may have changed the target, and the target
// has not appeared.
func (p *Planner) leftPrepared(t Target) bool {
	configured, appeared := p.last(PhaseConfigure), p.last(PhaseAppear)
	if configured.NotBegun || appeared != nil && appeared.succeeded(t.Name) {
		return false
	}

	// The results of a broken run may lack its last task.
	r := configured.Results[t.Name]

	return r.Changed > 0 || brokeOff(configured) && !r.Unreachable
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
