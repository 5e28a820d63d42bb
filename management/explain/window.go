// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"errors"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/window"
)

// hold returns the hold of the queue.
func (f Facts) hold() job.Hold { return f.Windows.Hold(f.View, f.Now).Unless(f.Incomplete) }

// held reports the settings, the window or the freeze that keeps a Queued job from its turn, if
// any.
func (e *jobExplainer) held() {
	if e.Incomplete != nil {
		f := finding(AboutQueue, "no job begins: %s", job.Message(e.Incomplete)).of(e.Job)
		if why, ok := errors.AsType[*inventory.Error](e.Incomplete); ok {
			f = f.do("%s", why.Remedy).with(why.Actions...)
		}
		e.add(f)

		return
	}

	verdict := e.Windows.Judge(e.View, e.Job, e.Now)
	if verdict.OK {
		return
	}
	f := finding(AboutWindow, "%s", verdict.Reason).of(e.Job).on(e.Job.Names()...)
	override, with := e.overridden()
	rest := "cancel the job, and ask again with an override of the window and a reason" + with

	if frozen := window.Frozen(e.View, e.Now); !frozen.OK && window.FreezeOf(e.View).Active(e.Now) {
		f = f.do("wait for its end, or end it; or %s", rest).with(inventory.LiftFreeze())
	} else {
		f = f.do("wait for it; or %s", rest).with(inventory.ListWindows())
	}

	e.add(f.with(inventory.CancelJob(e.Job.ID)).with(override...))
}

// overridden returns the action that submits the job again with an override of the window, and in words
// which values the operator has to enter.
func (e *jobExplainer) overridden() (a []inventory.Action, with string) {
	j := e.Job
	j.OverrideWindow = true
	j.Reason = cmp.Or(j.Reason, "job "+j.ID+" cannot wait")
	return job.AnewWithout(j, j.Names(), 0)
}

// windows reports when the node may change, unless it always may.
func (e *nodeExplainer) windows() {
	n := e.Node

	if frozen := window.Frozen(e.View, e.Now); !frozen.OK {
		e.add(
			finding(
				AboutWindow,
				"%s",
				frozen.Reason,
			).since(window.FreezeOf(e.View).Since).
				with(inventory.ListWindows()),
		)
	}

	for _, w := range e.Windows.Of(&n) {
		about := func(format string, args ...any) {
			e.add(finding(AboutWindow, format, args...).on(n.Name).with(inventory.ListWindows()))
		}

		if closes := w.Open(e.Now); !closes.IsZero() {
			about("its maintenance window %s is open until %s", w.Name, w.Format(closes))
			continue
		}

		if opens := w.Next(e.Now); !opens.IsZero() {
			about("its maintenance window %s is closed, and opens on %s; what would change it waits",
				w.Name, w.Format(opens))
		}
	}
}
