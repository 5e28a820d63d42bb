// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/explain"
	"github.com/contiv/cluster/management/state"
)

// Explain implements Policy.
func (r Returns) Explain(w World, n inventory.Node) []explain.Finding {
	var findings []explain.Finding

	about := func(format string, args ...any) {
		findings = append(findings, explain.Finding{
			About: explain.AboutReturn, Nodes: []string{n.Name}, Message: fmt.Sprintf(format, args...),
		})
	}

	away := n.Presence.Away
	if n.State == inventory.Disappeared && !away.Time.IsZero() {
		if away.Reached {
			about("%s: its agent has stopped or the gossip is cut, and the host is up", second(away))
		} else {
			about("%s", second(away))
		}
	}

	if n.State == inventory.Discovered {
		if text := r.waiting(w, &n); text != "" {
			about("policy %s: %s", r.Name(), text)
		}
	}

	if last := state.AutomationOf(w.View).Of(n.Name); len(last) > 0 {
		d := last[len(last)-1]
		findings = append(findings, explain.Finding{
			About: explain.AboutReturn, Nodes: []string{n.Name}, Job: d.Job, Since: d.Time, Message: Sentence(d),
		})
	}

	return findings
}

// waiting returns the condition for the next step on a node that returned.
func (r Returns) waiting(w World, n *inventory.Node) string {
	o := r.judge(w, n, w.served()[n.Name])
	if o.stage == stageNone || o.stage == stageNote {
		return o.text
	}

	why := "it returned"
	if o.decision.Case == CaseMasters {
		why = CaseMasters
	}

	if halted := Halted(state.AutomationOf(w.View), r); halted != "" {
		return why + ", and nothing is done: " + halted
	}

	if o.stage != stageAct {
		return o.text
	}

	if held := w.hold()(o, n); !held.OK {
		return why + ", and waits for its repair: " + held.Reason
	}

	if ok, why, _ := w.limits().take(o.decision.Action); !ok {
		return why + ", and waits for its turn: " + why
	}

	return why + ", and the next step is " + string(o.decision.Action)
}

// Sentence returns a decision in one sentence.
func Sentence(d state.Decision) string {
	text := fmt.Sprintf("policy %s decided on %s: %s (%s)", d.Policy, stamp(d.Time), d.Action, d.Case)
	if d.Job != "" {
		text += ", job " + d.Job
	}

	if d.Rollout != "" {
		text += ", rollout " + d.Rollout
	}

	if len(d.Evidence) > 0 {
		text += "; evidence: " + strings.Join(d.Evidence, ", ")
	}

	switch d.Phase {
	case state.PhaseRefused:
		text += "; it was refused: " + d.Result
	case state.PhaseWithdrawn:
		text += "; it was withdrawn: " + d.Result
	}

	return text
}
