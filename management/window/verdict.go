// SPDX-License-Identifier: Apache-2.0

package window

import (
	"fmt"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

// Verdict says whether something may change now.
type Verdict struct {
	OK bool
	// Until is when a change is allowed that is not now, or when one that is now ceases to
	// be; zero: unknown, or never.
	Until  time.Time
	Reason string // why not, in words that name the time
}

// allowed is the verdict without a window.
var allowed = Verdict{OK: true}

// Allowed reports whether the node may change at that time, and join the groups. A node
// without a window may, except during a freeze.
func (c Calendar) Allowed(v *state.View, n *inventory.Node, now time.Time, groups ...string) Verdict {
	if frozen := Frozen(v, now); !frozen.OK {
		return frozen
	}
	return judge(c.Of(n, groups...), []string{n.Name}, now)
}

// Frozen reports whether a freeze holds changes back at that time. One that cannot be read
// does.
func Frozen(v *state.View, now time.Time) Verdict {
	if v.Damaged(&FreezeKind, "") != nil {
		return Verdict{Reason: "the record of the freeze cannot be read, so it counts as frozen (v/freeze)"}
	}

	f := FreezeOf(v)
	if !f.Active(now) {
		return allowed
	}

	until := "until it is lifted"
	if !f.Until.IsZero() {
		until = "until " + f.Until.UTC().Format("Mon 2006-01-02 15:04 MST")
	}

	return Verdict{
		Until:  f.Until,
		Reason: fmt.Sprintf("%s froze all changes %s: %s", job.OrSomebody(f.Actor), until, f.Reason),
	}
}

// judge returns the verdict of windows on the nodes that they are for.
func judge(windows []*Window, nodes []string, now time.Time) Verdict {
	if len(windows) == 0 {
		return allowed
	}

	var first *Window

	opens := time.Time{}

	for _, w := range windows {
		if closes := w.Open(now); !closes.IsZero() {
			return Verdict{OK: true, Until: latest(windows, now)}
		}

		if next := w.Next(now); !next.IsZero() && (opens.IsZero() || next.Before(opens)) {
			opens, first = next, w
		}
	}

	closed := fmt.Sprintf("%s outside of the maintenance window %s", isOrAre(nodes), names(windows))
	if first == nil {
		return Verdict{Reason: closed + ", which does not open again"}
	}
	return Verdict{Until: opens, Reason: closed + ", which opens on " + first.Format(opens)}
}

// latest returns when the last of the windows that are open now closes.
func latest(windows []*Window, now time.Time) time.Time {
	var last time.Time

	for _, w := range windows {
		if closes := w.Open(now); closes.After(last) {
			last = closes
		}
	}

	return last
}

// isOrAre begins a sentence about nodes.
func isOrAre(nodes []string) string {
	verb := " are"
	if len(nodes) == 1 {
		verb = " is"
	}
	return job.ShortList(nodes) + verb
}

// part is the nodes of a job that are in the same windows.
type part struct {
	windows []*Window
	nodes   []string
}

// parts divides the targets of a job by their windows. Those without a window are left
// out.
func (c Calendar) parts(v *state.View, j job.Job) []part {
	var parts []part

	index := map[string]int{}

	for _, t := range j.Targets {
		n, _ := v.Lookup(t.Name)

		var node *inventory.Node
		if n.Name != "" {
			node = &n
		}

		// Both the group that it leaves and the one that it joins are changed.
		windows := c.Of(node, t.FromGroup, t.Group)
		if len(windows) == 0 {
			continue
		}
		key := names(windows)

		i, known := index[key]
		if !known {
			i = len(parts)
			index[key] = i
			parts = append(parts, part{windows: windows})
		}

		parts[i].nodes = append(parts[i].nodes, t.Name)
	}

	return parts
}

// Judge reports whether the job may begin at that time: all of its nodes have to be in
// their windows. A job that changes no host may always begin.
func (c Calendar) Judge(v *state.View, j job.Job, now time.Time) Verdict {
	if !j.ChangesHosts() || j.OverrideWindow {
		return allowed
	}

	if frozen := Frozen(v, now); !frozen.OK {
		return frozen
	}

	if len(c.windows) == 0 {
		return allowed
	}

	return judgeParts(c.parts(v, j), now)
}

// maxReasons bounds the parts of a job in a reason.
const maxReasons = 3

// judgeParts returns the verdict on nodes with different windows.
func judgeParts(parts []part, now time.Time) Verdict {
	var reasons []string

	verdict := allowed
	for _, p := range parts {
		one := judge(p.windows, p.nodes, now)
		if !one.OK {
			reasons = append(reasons, one.Reason)
		}

		// All parts have to be open at once, so the first one to close ends the time of the job.
		if one.OK && !one.Until.IsZero() && (verdict.Until.IsZero() || one.Until.Before(verdict.Until)) {
			verdict.Until = one.Until
		}
	}

	if len(reasons) == 0 {
		return verdict
	}

	if more := len(reasons) - maxReasons; more > 0 {
		reasons = append(reasons[:maxReasons], fmt.Sprintf("and so are the nodes of %d more", more))
	}

	together, w := common(parts, now)
	if len(parts) > 1 && w != nil {
		reasons = append(reasons, "all of its nodes may change together on "+w.Format(together))
	}
	return Verdict{Until: together, Reason: strings.Join(reasons, "; ")}
}

// The search for a time at which all nodes of a job may change.
const (
	commonYears = 2
	commonSteps = 20_000
)

// common returns the first time from now on at which all parts may change, and the window
// that opens then; zero if there is none within two years.
func common(parts []part, now time.Time) (time.Time, *Window) {
	t, last := now, (*Window)(nil)
	end := now.AddDate(commonYears, 0, 0)

	for range commonSteps {
		next, opener := t, (*Window)(nil)

		for _, p := range parts {
			if opens, w := p.opens(t); w != nil && opens.After(next) {
				next, opener = opens, w
			} else if w == nil && opens.IsZero() {
				return time.Time{}, nil
			}
		}

		if opener == nil {
			return t, last
		}

		if next.After(end) {
			return time.Time{}, nil
		}

		t, last = next, opener
	}

	return time.Time{}, nil
}

// opens returns t itself if a window of the part is open then, else the next opening and
// its window; zero if there is none.
func (p part) opens(t time.Time) (time.Time, *Window) {
	var first *Window

	opens := time.Time{}

	for _, w := range p.windows {
		if !w.Open(t).IsZero() {
			return t, nil
		}

		if next := w.Next(t); !next.IsZero() && (opens.IsZero() || next.Before(opens)) {
			opens, first = next, w
		}
	}

	return opens, first
}

// CheckJob refuses a job that could never begin, because its nodes have no window in
// common.
func (c Calendar) CheckJob(v *state.View, j job.Job, now time.Time) error {
	if !j.ChangesHosts() || j.OverrideWindow || len(c.windows) < 2 {
		return nil
	}

	parts := c.parts(v, j)
	if len(parts) < 2 {
		return nil
	}
	if _, w := common(parts, now); w != nil || judgeParts(parts, now).OK {
		return nil
	}

	return inventory.Errorf(inventory.KindRefused,
		"the job could never begin: %s and %s have no maintenance window in common within %d years",
		job.ShortList(parts[0].nodes), job.ShortList(parts[1].nodes), commonYears).
		Do("ask for one job for each").About(j.Names()...)
}

// Hold returns the hold of the queue at that time. It is for one goroutine, and keeps the
// answer about each job.
func (c Calendar) Hold(v *state.View, now time.Time) job.Hold {
	reasons := map[string]string{}

	return func(j job.Job) string {
		reason, known := reasons[j.ID]
		if !known {
			reason = c.Judge(v, j, now).Reason
			reasons[j.ID] = reason
		}

		return reason
	}
}
