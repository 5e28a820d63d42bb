// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"time"

	"github.com/contiv/cluster/inventory"
)

// Case is the event behind the absence of a host, as far as the evidence tells.
type Case string

// The cases.
const (
	CaseRebooted Case = "the host was rebooted"
	CaseNetwork  Case = "the network was cut and the services kept running"
	CaseAgent    Case = "only the agent stopped"
	CaseRunning  Case = "the host kept running"                  // it was not rebooted; more is not known
	CaseUnknown  Case = "what happened to the host is not known" // no evidence
)

// bootSlack is how far the time of a boot may lie before the loss of the node, and
// agentSlack the start of the agent: the gossip takes some seconds to notice.
const (
	bootSlack  = time.Minute
	agentSlack = 10 * time.Second
)

// CaseOf returns the case of the newest absence of a host, with the evidence. It needs
// the answer of the host after its return.
func CaseOf(p inventory.Presence) (Case, []string) {
	returned := p.Returned()

	evidence := []string{fmt.Sprintf("the observers lost it at %s and saw it again at %s (%s)",
		stamp(p.Lost), stamp(returned), short(returned.Sub(p.Lost)))}
	if p.Lost.IsZero() || returned.Before(p.Lost) {
		evidence[0] = "the observers saw it again at " + stamp(returned) +
			"; when they lost it is not known, because the clock jumped"
	}

	if !p.Away.Time.IsZero() {
		evidence = append(evidence, second(p.Away))
	}

	back := p.Back
	if back.Time.Before(returned) || !back.Reached {
		return CaseUnknown, append(evidence, "ssh has not reached it since its return"+because(back.Reason))
	}
	evidence = append(evidence, "ssh reached it at "+stamp(back.Time))

	rebooted, why := isReboot(p)
	evidence = append(evidence, why...)

	if rebooted == yes {
		return CaseRebooted, evidence
	}

	if !back.Agent.IsZero() {
		evidence = append(evidence, "its agent started at "+stamp(back.Agent))
	}

	unreached := p.Away.Silent
	restarted := back.Agent.After(p.Lost.Add(-agentSlack))

	switch {
	case rebooted == unknown:
		return CaseUnknown, evidence
	case p.Lost.IsZero():
		return CaseRunning, evidence
	case unreached: // more than the agent was gone
		return CaseNetwork, evidence
	case restarted:
		return CaseAgent, evidence
	case !back.Agent.IsZero():
		return CaseNetwork, evidence
	case p.Away.Reached:
		return CaseAgent, evidence
	}

	return CaseRunning, evidence
}

// second describes a second opinion over ssh.
func second(c inventory.Contact) string {
	if c.Reached {
		return "ssh reached it at " + stamp(c.Time) + ", while the observers did not see it"
	}

	if !c.Silent {
		return "ssh could not log in at " + stamp(c.Time) + because(c.Reason) + "; that does not prove its host gone"
	}
	return "ssh did not reach it at " + stamp(c.Time) + " either" + because(c.Reason)
}

// answer is yes, no or unknown.
type answer int

const (
	unknown answer = iota
	yes
	no
)

// isReboot tells from the boot ids, or else from the uptime, whether the host was booted
// in its newest absence.
func isReboot(p inventory.Presence) (answer, []string) {
	switch {
	case p.Boot != "" && p.Back.Boot != "" && p.Boot != p.Back.Boot:
		return yes, []string{fmt.Sprintf("its boot id changed from %.8s to %.8s", p.Boot, p.Back.Boot)}
	case p.Boot != "" && p.Back.Boot != "":
		return no, []string{fmt.Sprintf("its boot id is %.8s as before", p.Boot)}
	case p.Lost.IsZero():
		return unknown, []string{"its boot id from before is not known"}
	case p.Back.Booted.IsZero():
		return unknown, []string{"it tells neither its boot id nor its uptime"}
	}

	why := []string{"its boot id from before is not known", "by its uptime, it booted at " + stamp(p.Back.Booted)}
	if p.Back.Booted.After(p.Lost.Add(-bootSlack)) {
		return yes, why
	}
	return no, why
}

// Gone reports whether a silent node may be treated as gone: no observer sees it, and
// its host does not answer either. A failed login is not enough: the host may be up.
func Gone(n inventory.Node) bool {
	away := n.Presence.Away
	return n.State == inventory.Disappeared && !away.Time.IsZero() && !away.Reached && away.Silent
}
