// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/control"
	"github.com/contiv/cluster/management/state"
)

// Role is a group that a rule fills with new nodes.
type Role struct {
	Group string
	// Count is the number of nodes of the group that are wanted, whoever commissioned
	// them. Rest: as many as there are.
	Count int
	Rest  bool
	// Spread is the key of a label over whose values the nodes are spread; empty: those
	// that were discovered first are taken.
	Spread string
	// ReplaceAfter is how long a node has to be lost before a new one takes its place;
	// 0: it keeps its place.
	ReplaceAfter time.Duration
	// Fence is what a lost node needs before that; empty: nothing.
	Fence Fence

	plain bool // the group of a rule without roles
}

// majority returns the smallest number of nodes that is more than half of the role.
func (r Role) majority() int { return r.Count/2 + 1 }

// String describes the role, such as "3 of service-master, spread over rack".
func (r Role) String() string {
	if r.Rest {
		return "any number of " + r.Group + r.spreads()
	}

	text := fmt.Sprintf("%d of %s", r.Count, r.Group) + r.spreads()
	if r.ReplaceAfter > 0 {
		text += fmt.Sprintf(", each replaced after %s while %d are healthy", short(r.ReplaceAfter), r.majority())
		if r.Fence == FencePower {
			text += " and its BMC has turned it off"
		}
	}

	return text
}

func (r Role) spreads() string {
	if r.Spread == "" {
		return ""
	}
	return ", spread over " + r.Spread
}

// warning returns why the count is unwise for a role whose nodes are replaced, or "".
func (r Role) warning() string {
	switch {
	case r.ReplaceAfter == 0 || r.Count%2 == 1 && r.Count > 1:
		return ""
	case r.Count <= 2:
		return fmt.Sprintf("with a count of %d, every loss leaves less than a majority, so nothing is ever replaced; "+
			"a count of 3 tolerates one loss", r.Count)
	}

	return fmt.Sprintf("a count of %d is even: its majority tolerates no more losses than that of %d",
		r.Count, r.Count-1)
}

// members are the nodes of a group.
type members struct {
	present []*inventory.Node          // in service and not silent
	coming  map[string]*inventory.Node // on their way: a job or a decision makes them members
	silent  []*inventory.Node          // in service, and Disappeared
	fenced  []*inventory.Node          // Quarantined; the host may still act as a member
	healthy int                        // those that are available
	joining []*inventory.Node          // new nodes that are given to it
	kept    int                        // new nodes that are kept for the place of a lost one
}

// groups returns the members of each group by its name. Nodes on their way to a group whose job
// is not in the view yet count by their decision.
func (w World) groups() map[string]*members {
	groups := map[string]*members{}
	of := func(group string) *members {
		c := groups[group]
		if c == nil {
			c = &members{coming: map[string]*inventory.Node{}}
			groups[group] = c
		}

		return c
	}

	for _, n := range w.View.Nodes() {
		switch {
		case n.Status == inventory.Quarantined && n.Group != "":
			of(n.Group).fenced = append(of(n.Group).fenced, n)
		case n.InService():
			of(n.Group).join(n)
		}
	}

	// An update inside of a group makes nobody a new member.
	come := func(group, name string) {
		n := w.View.Find(name)
		if n == nil || n.Group != group || !n.InService() {
			of(group).coming[name] = n
		}
	}

	for _, j := range w.View.Jobs() {
		if j.Status.Ended() || j.Group == "" {
			continue
		}

		for _, name := range j.Names() {
			come(j.Group, name)
		}
	}

	for _, d := range state.AutomationOf(w.View).Decisions {
		if d.Phase == state.PhaseDecided && d.Action == state.ActionCommission {
			come(d.Group, d.Node)
		}
	}

	return groups
}

// join counts a node in service.
func (c *members) join(n *inventory.Node) {
	switch {
	case n.Status == inventory.Provisioning:
		c.coming[n.Name] = n
	case n.State == inventory.Disappeared:
		c.silent = append(c.silent, n)
	default:
		c.present = append(c.present, n)

		if n.Available() {
			c.healthy++
		}
	}
}

// growing reports whether a node is on its way.
func (c *members) growing() bool { return len(c.coming)+len(c.joining) > 0 }

// absence is a node that is out of service, and still has its place in the role, or has
// lost it.
type absence struct {
	node  *inventory.Node
	since time.Time
	lost  bool      // its place may be taken
	until time.Time // when that may become so, or another node is tried, if it is a time
	ask   bool      // reach it over ssh first
	text  string
	// open: whether it is lost is decided soon.
	open bool
	// taken is the node that has its place, failed describes the failed attempts to give it away,
	// and hold is why there is no further one now. Each may be empty.
	taken, failed, hold string
	// fence is how far it is kept from acting as a member before that.
	fence fencing
}

// absences returns the nodes of the role that are out of service, the longest first.
// A Quarantined one keeps its place, except in a rule for one group: there it is none.
func (c *members) absences(w World, by Commission, r Role) []absence {
	nodes := c.silent
	if !r.plain {
		nodes = slices.Concat(c.silent, c.fenced)
	}
	all := make([]absence, len(nodes))
	for i, n := range nodes {
		all[i] = w.absent(r, n)
		by.retry(w, &all[i])
		all[i].fence = by.fencing(w, r, all[i])
	}

	slices.SortStableFunc(all, func(a, b absence) int { return a.since.Compare(b.since) })

	return all
}

// absent judges a silent or Quarantined node of a role. Its place may be given away after ReplaceAfter, but
// not while ssh reaches a silent node. For a Quarantined one only its status counts: a new address of its
// host, for example, delays nothing.
func (w World) absent(r Role, n *inventory.Node) absence {
	a := absence{node: n, since: n.Presence.Since}
	what, fenced := "silent", n.Status == inventory.Quarantined

	if fenced {
		what = string(n.Status)

		if a.since = n.Presence.Fenced; a.since.IsZero() { // not on record
			a.since = n.Updated
		}
	}

	away := n.Presence.Away
	due := w.since(a.since).Add(r.ReplaceAfter)
	early, settled := w.early()
	a.text = fmt.Sprintf("%s is %s since %s", n.Name, what, stamp(a.since))

	switch excluded := exclusion(n); {
	case excluded != "":
		a.text = fmt.Sprintf("%s is %s, and keeps its place: %s", n.Name, what, excluded)
	case r.ReplaceAfter == 0 || a.since.IsZero():
		a.text = fmt.Sprintf("%s is %s, and keeps its place", n.Name, what)
	case w.Now.Before(due):
		a.until, a.open = due, true
		a.text += "; its place is not given away before " + stamp(due)
	case early != "":
		a.until, a.open = settled, true
		a.text += ", and keeps its place: " + early
	case fenced:
		a.lost = true
		a.text = fmt.Sprintf("%s is lost: it is %s since %s", n.Name, what, stamp(a.since))
	case away.Time.Before(a.since), away.Time.Before(w.epoch()), !w.recent(away):
		a.ask, a.open = true, true
		a.text += "; ssh is asked whether its host is up"
	case !Gone(*n):
		a.ask = true
		a.text += ", and keeps its place: " + second(away)
	default:
		a.lost = true
		a.text = fmt.Sprintf("%s is lost since %s; %s", n.Name, stamp(a.since), second(away))
	}

	return a
}

// roleCount is the count of a role at one time.
type roleCount struct {
	Role
	members  *members
	absences []absence
	// present are the nodes in service that are not silent, and those on their way. held is the
	// number of places that absent nodes keep.
	present, held int
	// vacant counts the places that nobody has, lost the places of lost nodes, and missing all nodes up to the
	// count, including kept places.
	vacant, lost, missing int
	surplus               int
	// loads are the nodes of the role by the value of its label, once they are counted. Lost
	// nodes do not count.
	loads map[string]int
}

// count counts a role. The role of the rest has a place for every node.
func (c *members) count(w World, by Commission, r Role) roleCount {
	t := roleCount{
		Role:     r,
		members:  c,
		absences: c.absences(w, by, r),
		present:  len(c.present) + len(c.coming) + len(c.joining),
	}

	for _, a := range t.absences {
		if !a.lost {
			t.held++
		}
	}

	if r.Rest {
		t.vacant = len(w.View.Nodes())
		t.missing = t.vacant
		return t
	}

	t.vacant = max(r.Count-t.present-len(t.absences), 0)
	t.lost = max(r.Count-t.present-t.held-t.vacant, 0)
	t.missing = t.vacant

	// Nothing is kept for a node that keeps its place anyway.
	if r.ReplaceAfter > 0 {
		t.missing = max(r.Count-t.present-c.kept, 0)
	}

	t.surplus = max(t.present-r.Count, 0)

	return t
}

// places returns how many new nodes may join now, and the lost node whose place one of them
// takes, or nil.
func (t roleCount) places() (free int, replaced *absence) {
	if t.vacant > 0 || t.lost == 0 || t.below() != "" || t.members.growing() || t.open() != nil {
		return t.vacant, nil
	}

	for i, a := range t.absences {
		switch {
		case !a.lost || a.taken != "" || a.hold != "":
		case a.fence.busy:
			return 0, nil
		case a.fence.done || a.fence.due:
			return 1, &t.absences[i]
		}
	}

	return 0, nil
}

// open returns the first node that may be lost as well, or nil. A cluster takes no new member
// while another one does not answer, so it has to be known first which ones are lost.
func (t roleCount) open() *absence {
	for i, a := range t.absences {
		if a.open && a.taken == "" {
			return &t.absences[i]
		}
	}

	return nil
}

// keeps returns why a new node is kept for the place of another one, and until when if
// that is a time.
func (t roleCount) keeps() (reason string, until time.Time) {
	if below := t.below(); below != "" {
		return below, time.Time{}
	}

	for _, a := range t.absences {
		if !a.lost {
			return a.text, t.until()
		}
	}

	if !t.members.growing() {
		for _, a := range t.absences {
			if a.hold != "" || a.taken == "" && !a.fence.done {
				return a.describe(), t.until()
			}
		}
	}

	return "one node is replaced at a time", time.Time{}
}

// until returns the next time at which an absence may be judged otherwise; zero: none.
func (t roleCount) until() (next time.Time) {
	for _, a := range t.absences {
		next = control.Earliest(next, control.Earliest(a.until, a.fence.until))
	}

	return next
}

// below returns why no node of the role is replaced although some are out of service, or "".
func (t roleCount) below() string {
	if t.ReplaceAfter == 0 || t.members.healthy >= t.majority() {
		return ""
	}

	return fmt.Sprintf("%d of %d nodes of %s are healthy, fewer than the majority of %d: nothing is replaced, and an "+
		"operator decides", t.members.healthy, t.Count, t.Group, t.majority())
}

// countLabels counts the nodes of the role by its label.
func (t *roleCount) countLabels() {
	if t.Spread == "" {
		return
	}

	t.loads = map[string]int{}

	for _, n := range t.members.present {
		t.place(n)
	}

	for _, n := range t.members.coming {
		t.place(n)
	}

	for _, n := range t.members.joining {
		t.place(n)
	}

	for _, a := range t.absences {
		if !a.lost {
			t.place(a.node)
		}
	}
}

// place counts a node by its label.
func (t *roleCount) place(n *inventory.Node) {
	// A job may be about a node that was forgotten meanwhile.
	if n == nil || t.Spread == "" {
		return
	}

	if value, labelled := n.Labels[t.Spread]; labelled {
		t.loads[value]++
	}
}

// add counts a node that joins.
func (t *roleCount) add(n *inventory.Node) {
	t.members.joining = append(t.members.joining, n)
	t.present++
	t.place(n)
}

// spread returns the new nodes in the order in which the role takes them: from the value
// of the label with the fewest nodes, and those without the label last. Nodes are given
// by their age, the oldest first.
func (t roleCount) spread(nodes []candidate) []candidate {
	if t.Spread == "" {
		return slices.Clone(nodes)
	}

	type ranked struct{ bare, load, index int } // bare 1: without the label

	loads := maps.Clone(t.loads)
	order := make([]ranked, len(nodes))

	// Each node counts as taken for the next one of its value: in the order of these
	// numbers, the value with the fewest nodes always comes first.
	for i, p := range nodes {
		value, labelled := p.Node.Labels[t.Spread]
		if !labelled {
			order[i] = ranked{bare: 1, index: i}
			continue
		}

		order[i] = ranked{load: loads[value], index: i}
		loads[value]++
	}

	slices.SortFunc(order, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.bare, b.bare), cmp.Compare(a.load, b.load), cmp.Compare(a.index, b.index))
	})

	sorted := make([]candidate, len(nodes))
	for i, r := range order {
		sorted[i] = nodes[r.index]
	}

	return sorted
}

// maxShown is the number of values that the evidence names.
const maxShown = 8

// spreadText describes where the nodes of the role are, for the evidence, or "".
func (t roleCount) spreadText(n *inventory.Node) string {
	if t.Spread == "" {
		return ""
	}

	text := "it has no label " + t.Spread
	if value, labelled := n.Labels[t.Spread]; labelled {
		text = fmt.Sprintf("its %s is %s", t.Spread, value)
	}
	if len(t.loads) == 0 {
		return text + ", and no node of the role has one yet"
	}

	values := slices.Sorted(maps.Keys(t.loads))
	places := make([]string, 0, maxShown)

	for _, value := range values[:min(len(values), maxShown)] {
		places = append(places, fmt.Sprintf("%s has %d", value, t.loads[value]))
	}

	if more := len(values) - len(places); more > 0 {
		places = append(places, fmt.Sprintf("and %d more", more))
	}

	return text + "; " + strings.Join(places, ", ")
}

// evidence counts the nodes of the role.
func (t roleCount) evidence() string {
	limit := ""
	if !t.Rest {
		limit = fmt.Sprintf("of at most %d ", t.Count)
	}
	return fmt.Sprintf("%d %snodes of %s are in service, or on their way", t.present+t.held, limit, t.Group)
}
