// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

// BrakeSettings say when automation stops.
type BrakeSettings struct {
	Share   int // of the visible nodes, in percent
	Minimum int // nodes
	Within  time.Duration
	// ReleaseAfter is when the brake is released by itself; 0: never.
	ReleaseAfter time.Duration
}

// BrakeName stands for the brake among the policies.
const BrakeName = "brake"

// Brake returns the brake as it is to be now, and the decision that turns it, or nil. Without one,
// its times may still have changed.
func Brake(w World) (state.Brake, *state.Decision) {
	b, s := state.AutomationOf(w.View).Brake, w.Settings.Brake

	if b.On {
		b = w.counted(b)
		if b.Until.IsZero() || w.Now.Before(b.Until) {
			return b, nil
		}

		reason := "the configured time is over (policies.brake.release_after)"

		return Release(b, w.Now, state.PolicyPrincipal(BrakeName), reason)
	}

	lost, visible := w.vanished()
	if len(lost) < s.Minimum || len(lost)*100 < s.Share*visible {
		return b, nil
	}

	b = state.Brake{
		On: true, Since: w.Now, Lost: lost[:min(len(lost), state.MaxBraked)], Vanish: len(lost), Visible: visible,
		Released: b.Released, ReleasedBy: b.ReleasedBy, Reason: b.Reason,
	}
	if s.ReleaseAfter > 0 {
		b.Until = w.Now.Add(s.ReleaseAfter)
	}

	return b, &state.Decision{
		ID: fmt.Sprintf("brake/%d", w.Now.UnixNano()), Time: w.Now, Policy: BrakeName, Action: state.ActionBrake,
		Case: "many nodes vanished at once, which is a fault of the network: automation stops",
		Evidence: []string{
			fmt.Sprintf("%d of %d nodes vanished within %s", len(lost), visible, short(s.Within)),
			"among them " + strings.Join(lost[:min(len(lost), 10)], ", "),
		},
		Prevent: []string{
			fmt.Sprintf("fewer than %d nodes, or less than %d %% of them (policies.brake)", s.Minimum, s.Share),
		},
		Phase: state.PhaseDone,
	}
}

// counted returns the brake with the times that hold after a start or a jump of the clock: the
// time to its release begins anew.
func (w World) counted(b state.Brake) state.Brake {
	from := b.WaitFrom
	if from.IsZero() {
		from = b.Since
	}

	b.Since = w.past(b.Since)

	if anew := w.since(from); !b.Until.IsZero() && !anew.Equal(from) {
		b.Until, b.WaitFrom = anew.Add(b.Until.Sub(from)), anew
	}

	return b
}

// Release returns the brake after its release, and the decision.
func Release(b state.Brake, now time.Time, by, reason string) (state.Brake, *state.Decision) {
	since := b.Since
	b.On, b.Until, b.WaitFrom = false, time.Time{}, time.Time{}
	b.Released, b.ReleasedBy, b.Reason = now, by, reason

	return b, &state.Decision{
		ID: fmt.Sprintf("release/%d", now.UnixNano()), Time: now, Policy: BrakeName, Action: state.ActionRelease,
		Case:     "automation goes on" + because(reason),
		Evidence: []string{"the brake held since " + stamp(since), "released by " + by},
		Phase:    state.PhaseDone,
	}
}

// vanished returns the nodes that were lost within the time of the brake, and how many nodes were visible
// during it. A jump of the clock within that time hides no loss. It does not count losses before the last
// release, losses by the job of a person, and nodes that were back within the settling time.
func (w World) vanished() (lost []string, visible int) {
	released, known := w.Age(state.AutomationOf(w.View).Brake.Released)
	if !known {
		released, _ = w.Age(w.past(state.AutomationOf(w.View).Brake.Released))
	}
	within := min(w.Settings.Brake.Within, released)
	working := w.workOfPeople(within)

	for _, n := range w.View.Nodes() {
		age, known := w.Age(n.Presence.Lost)

		gone := known && age < within && !w.short(n) && !w.excused(n, working[n.Name])
		if gone {
			lost = append(lost, n.Name)
		}
		if gone || n.State == inventory.Discovered {
			visible++
		}
	}

	slices.Sort(lost)

	return lost, visible
}

// short reports whether the node was back from its newest absence within the settling time.
func (w World) short(n *inventory.Node) bool {
	lost, _ := w.Age(n.Presence.Lost)
	back, known := w.Age(n.Presence.Returned())
	return n.State == inventory.Discovered && known && back <= lost && lost-back <= w.Settings.Settle
}

// workOfPeople returns the jobs of people that may have rebooted hosts within the time, by
// node.
func (w World) workOfPeople(within time.Duration) map[string][]*job.Job {
	working := map[string][]*job.Job{}

	for _, j := range w.View.Jobs() {
		ended, known := w.Age(j.Ended)
		over := j.Status.Ended() && known && ended-noticed > within
		// A verification changes no host, so it explains no absence.
		if j.Started.IsZero() || over || state.IsPolicy(j.Actor) || j.Verb.Verifies() {
			continue
		}

		for _, name := range slices.Concat(j.Names(), j.Helpers) {
			working[name] = append(working[name], j)
		}
	}

	return working
}

// noticed is how long the observers may take to lose a node after a reboot of its host.
const noticed = 30 * time.Second

// excused reports whether one of the jobs explains the newest absence of the node. A job
// that has ended does so only for a node that is back.
func (w World) excused(n *inventory.Node, jobs []*job.Job) bool {
	lost, _ := w.Age(n.Presence.Lost)

	return slices.ContainsFunc(jobs, func(j *job.Job) bool {
		if started, known := w.Age(j.Started); !known || lost > started {
			return false
		}

		ended, known := w.Age(j.Ended)
		return !j.Status.Ended() || known && n.State == inventory.Discovered && lost > ended-noticed
	})
}

// Describe returns the state of the brake in words: its nodes, its time and its
// release. It is empty while the brake is off.
func Describe(b state.Brake) string {
	if !b.On {
		return ""
	}

	names := b.Lost[:min(len(b.Lost), 5)]

	more := ""
	if left := b.Vanish - len(names); left > 0 {
		more = fmt.Sprintf(" and %d more", left)
	}

	until := "an operator releases it"
	if !b.Until.IsZero() {
		until = "it releases itself at " + stamp(b.Until) + ", or an operator does"
	}
	return fmt.Sprintf("automation is stopped since %s, because %d of %d nodes vanished at once (%s%s); %s",
		stamp(b.Since), b.Vanish, b.Visible, strings.Join(names, ", "), more, until)
}
