// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

// Roles returns the state of the roles of the rule, and none for a rule for one group.
func (c Commission) Roles(w World) []api.PolicyRole {
	if len(c.Rule.Roles) == 0 {
		return nil
	}

	groups := w.groups()
	states := make([]api.PolicyRole, len(c.Rule.Roles))

	for i, r := range c.Rule.Roles {
		group := groups[r.Group]
		if group == nil {
			group = &members{}
		}
		t := group.count(w, c, r)
		t.countLabels()

		states[i] = w.roleState(t)
	}

	return states
}

// maxAbsences is the number of absent nodes that the state of a role describes.
const maxAbsences = 10

func (w World) roleState(t roleCount) api.PolicyRole {
	s := api.PolicyRole{
		Group: t.Group, Count: t.Count, Spread: t.Spread,
		InService: len(t.members.present) + len(t.members.silent), Healthy: t.members.healthy,
		Coming: len(t.members.coming), Surplus: t.surplus, Places: t.loads,
	}

	for _, n := range t.members.silent {
		s.Silent = append(s.Silent, n.Name)
	}

	if text := t.warning(); text != "" {
		s.Warnings = append(s.Warnings, text)
	}

	if t.ReplaceAfter > 0 {
		s.ReplaceAfter, s.Fence = t.ReplaceAfter.String(), string(t.Fence)

		for _, a := range t.absences[:min(len(t.absences), maxAbsences)] {
			s.Notes = append(s.Notes, a.describe())
		}
	}

	for _, a := range t.absences {
		if (a.failed != "" || a.fence.failed) && a.taken == "" {
			s.Warnings = append(s.Warnings, a.describe())
		}
	}

	// Until its nodes were commissioned, a role has no majority to lose.
	if text := t.below(); text != "" && len(t.absences) > 0 {
		s.Warnings = append(s.Warnings, text+": bring a lost node back; or forget or decommission it, "+
			"and a new node takes its place at once")
	}

	if t.surplus > 0 {
		s.Warnings = append(s.Warnings, w.surplus(t))
	}

	return s
}

// surplus describes the nodes beyond the count.
func (w World) surplus(t roleCount) string {
	var back []string

	for _, n := range t.members.present {
		if d := w.replacement(n.Name); d != nil {
			back = append(back, fmt.Sprintf("%s returned after %s took its place", n.Name, d.Node))
		}
	}

	text := fmt.Sprintf("%d more than the %d wanted of %s are in service, or on their way", t.surplus, t.Count, t.Group)
	if len(back) > 0 {
		text += " (" + job.ShortList(back) + ")"
	}
	return text + ": none is removed automatically; decommission what is too much, or raise the count"
}

// Warnings returns the warnings about the roles of the policies that are on, and about policies that turned
// themselves off, for the health of the manager.
func Warnings(w World) []string {
	var warnings []string

	for _, r := range w.Settings.Commission {
		c := Commission{r}

		switch text := c.stopped(w); {
		case text != "":
			warnings = append(warnings, text)
		case c.isOff(w):
			continue
		}

		for _, s := range c.Roles(w) {
			for _, text := range s.Warnings {
				warnings = append(warnings, fmt.Sprintf("policy %s, %s: %s", c.Name(), s.Group, text))
			}
		}
	}

	return warnings
}

// stopped returns that the policy has turned itself off, or "".
func (c Commission) stopped(w World) string {
	s, turned := state.AutomationOf(w.View).Switches[c.Name()]
	if !turned || s.On || s.Actor != state.PolicyPrincipal(c.Name()) {
		return ""
	}
	return fmt.Sprintf("policy %s turned itself off on %s%s; remove the cause, then enable it",
		c.Name(), stamp(s.Since), because(s.Reason))
}

// explainMember describes a node of one of the roles of the policy, or returns "".
func (c Commission) explainMember(w World, n inventory.Node) string {
	for i, s := range c.Roles(w) {
		if s.Group != n.Group || n.Status == inventory.Unallocated {
			continue
		}

		// Whether a member that returned is one too many is known by the decision only.
		d := w.replacement(n.Name)
		if s.Surplus > 0 && d != nil && n.InService() && n.State == inventory.Discovered {
			return fmt.Sprintf("it returned after %s took its place in %s: %s", d.Node, s.Group,
				strings.Join(s.Warnings, "; "))
		}

		if absent := c.absent(w, c.Rule.Roles[i], n); absent != "" {
			return strings.Join(append([]string{absent}, s.Warnings...), "; ")
		}
	}

	return ""
}

// absent describes a node of a role that is out of service, or returns "".
func (c Commission) absent(w World, r Role, n inventory.Node) string {
	silent := n.InService() && n.Status != inventory.Provisioning && n.State == inventory.Disappeared
	if r.ReplaceAfter == 0 || !silent && n.Status != inventory.Quarantined {
		return ""
	}

	a := w.absent(r, &n)
	c.retry(w, &a)
	a.fence = c.fencing(w, r, a)

	return a.describe()
}
