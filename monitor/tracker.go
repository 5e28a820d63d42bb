// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
)

// maxGone bounds the nodes without any member that are kept until a sink has
// acknowledged their disappearance. Beyond it they are dropped, and the next
// report is a full one, which omits them.
const maxGone = 4096

// tracker is the observer's view: the members of the source, the nodes that they
// claim to be, and the last acknowledged sighting of each node. Its size is
// bounded by the source's member list and maxGone. It has no lock, clock or I/O.
type tracker struct {
	members map[string]*record
	nodes   map[string]*node
	clock   uint64 // counts changes of members

	before map[string]bool // nodes that were alive when an earlier run ended

	listing bool                // a complete list is being fetched
	removed map[string]struct{} // members removed meanwhile

	gone     int  // nodes without members
	overflow bool // some of them were dropped: a full report is due
}

// record is one member.
type record struct {
	Member
	id      Identity
	node    string // "" if it is not a node
	err     error  // the reason why it is not a node
	changed uint64 // clock at the last change
	since   uint64 // clock when it last became alive
}

// node is one identity.
type node struct {
	members map[string]*record
	holder  string   // the member that gives the address
	view    Sighting // the current state, Joined aside
	rises   uint64   // number of changes from not alive to alive

	acked      Sighting // the last acknowledged sighting; zero before the first
	ackedRises uint64   // rises in that sighting
	inFlight   bool     // a report with this node awaits its acknowledgement
}

// stranger is a member that is not a node.
type stranger struct {
	member string
	err    error
}

func newTracker(before []string) *tracker {
	t := &tracker{
		members: map[string]*record{},
		nodes:   map[string]*node{},
		before:  map[string]bool{},
		removed: map[string]struct{}{},
	}
	for _, n := range before {
		t.before[n] = true
	}

	return t
}

// put records a member. It returns a stranger if the member has just become one,
// or is one for a new reason.
func (t *tracker) put(m Member) *stranger {
	t.clock++
	delete(t.removed, m.Name)

	id, err := IdentityOf(m.Tags)

	name := ""
	if err == nil {
		name = id.Name()
	}

	r := t.members[m.Name]

	isNew := r == nil
	if isNew {
		r = &record{}
		t.members[m.Name] = r
	}

	// The tags have changed to those of another node, or of none.
	if r.node != "" && r.node != name {
		t.detach(r)
	}

	var found *stranger
	if err != nil && (isNew || r.err == nil || r.err.Error() != err.Error()) {
		found = &stranger{member: m.Name, err: err}
	}

	// The oldest claim to an identity wins.
	if m.Alive && !r.Alive {
		r.since = t.clock
	}

	r.Member, r.id, r.err, r.changed = m, id, err, t.clock
	if name != "" {
		t.attach(r, name)
	}

	return found
}

// remove drops a member that the source no longer has.
func (t *tracker) remove(member string) {
	t.clock++
	// The list on its way may still contain the member.
	if t.listing {
		t.removed[member] = struct{}{}
	}

	r := t.members[member]
	if r == nil {
		return
	}

	delete(t.members, member)

	if r.node != "" {
		t.detach(r)
	}
}

// beginList marks the start of fetching a complete list: changes from now on are
// newer than the list. It returns the clock for endList.
func (t *tracker) beginList() uint64 {
	t.listing = true
	clear(t.removed)
	return t.clock
}

// cancelList ends fetching without a list.
func (t *tracker) cancelList() {
	t.listing = false
	clear(t.removed)
}

// endList makes the view equal to a complete list, except for members that
// changed since beginList. It returns new strangers.
func (t *tracker) endList(began uint64, list []Member) []stranger {
	var found []stranger

	listed := make(map[string]bool, len(list))
	for _, m := range list {
		listed[m.Name] = true

		// An event that came while the list was fetched is newer than the list.
		r := t.members[m.Name]
		_, removed := t.removed[m.Name]

		if removed || r != nil && (r.changed > began || r.equal(m)) {
			continue
		}

		if s := t.put(m); s != nil {
			found = append(found, *s)
		}
	}

	for _, name := range slices.Sorted(maps.Keys(t.members)) {
		if !listed[name] && t.members[name].changed <= began {
			t.remove(name)
		}
	}

	t.cancelList()

	return found
}

// attach adds a member to the node that it claims to be.
func (t *tracker) attach(r *record, name string) {
	r.node = name

	n := t.nodes[name]
	if n == nil {
		n = &node{members: map[string]*record{}}

		t.nodes[name] = n
		if t.before[name] && r.Alive {
			// The earlier run reported this node as alive: it has not joined anew.
			n.acked, n.ackedRises = Sighting{Alive: true}, 1
		}
	} else if len(n.members) == 0 {
		t.gone--
	}

	// Only the first sighting after a restart continues the earlier run.
	delete(t.before, name)
	n.members[r.Name] = r
	n.update()
}

// detach removes a member from its node. A node without members stays until a
// sink has acknowledged that it is gone.
func (t *tracker) detach(r *record) {
	n := t.nodes[r.node]
	delete(n.members, r.Name)
	n.update()

	if len(n.members) == 0 {
		if n.acked.Alive || n.inFlight {
			t.gone++
		} else {
			delete(t.nodes, r.node)
		}
	}

	r.node = ""

	if t.gone > maxGone {
		maps.DeleteFunc(t.nodes, func(_ string, n *node) bool { return len(n.members) == 0 })
		t.gone, t.overflow = 0, true
	}
}

// update derives the view of a node from its members.
func (n *node) update() {
	var live []*record
	for _, r := range n.members {
		if r.Alive {
			live = append(live, r)
		}
	}

	wasAlive := n.view.Alive
	if len(live) == 0 {
		n.holder = ""
		n.view.Alive, n.view.Duplicate, n.view.Others = false, false, nil

		// A node keeps the last address at which it was alive. One that was never
		// alive takes that of any of its members, always the same.
		if n.view.Label == "" && len(n.members) > 0 {
			r := n.members[slices.Min(slices.Collect(maps.Keys(n.members)))]
			n.view.Label, n.view.Serial, n.view.Addr = r.id.Label, r.id.Serial, r.id.Addr
		}

		return
	}

	slices.SortFunc(live, func(a, b *record) int {
		return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.Name, b.Name))
	})

	// The first claimant keeps the address, so that a late one redirects nothing.
	holder := live[0]
	if r := n.members[n.holder]; r != nil && r.Alive {
		holder = r
	}
	n.holder = holder.Name
	n.view = Sighting{
		Label: holder.id.Label, Serial: holder.id.Serial, Addr: holder.id.Addr, From: foreign(holder), Alive: true,
		Hardware: HardwareOf(holder.Tags),
	}

	n.view.Duplicate, n.view.Others = claimants(live)
	if !wasAlive {
		n.rises++
	}
}

// foreign returns the IP address of a member that announces another address, or "".
func foreign(r *record) string {
	place, err := netip.ParseAddrPort(r.Addr)
	if err != nil {
		return ""
	}
	from := place.Addr().Unmap()
	if own, err := netip.ParseAddr(r.id.Addr); err == nil && own.Unmap() == from {
		return ""
	}
	return from.String()
}

// claimants reports whether live members of one node are at more than one place,
// and the addresses that distinguish them. Two members at one place are one host
// that has changed its name.
func claimants(live []*record) (duplicate bool, addrs []string) {
	places := map[string]string{} // management address by place; "" for a rival's
	for _, r := range live {
		places[r.Addr] = r.id.Addr
		for _, p := range r.Rivals {
			if _, ok := places[p]; !ok {
				places[p] = ""
			}
		}
	}

	if len(places) < 2 {
		return false, nil
	}

	count := map[string]int{}
	for _, a := range places {
		count[a]++
	}

	for place, addr := range places {
		// Equal management addresses distinguish nothing: use the place.
		if addr == "" || count[addr] > 1 {
			addr = place
		}

		addrs = append(addrs, addr)
	}

	slices.Sort(addrs)

	return true, addrs
}

// changed reports whether the view differs from the last acknowledged sighting.
// A node that went away and came back has changed, too.
func (n *node) changed() bool {
	return !n.view.same(n.acked) || n.view.Alive && n.rises != n.ackedRises
}

// delivery is a report in flight. The sink owns the report, so the entries hold
// a copy of everything that an acknowledgement needs.
type delivery struct {
	report  Report
	entries []entry
}

type entry struct {
	name     string
	sighting Sighting
	rises    uint64
}

// report starts a delivery of the changed nodes or, if full, of all. Each
// delivery ends with acknowledged or abandoned, before the next starts.
func (t *tracker) report(full bool) delivery {
	d := delivery{report: Report{Full: full}}
	for _, name := range slices.Sorted(maps.Keys(t.nodes)) {
		n := t.nodes[name]
		if !full && !n.changed() {
			continue
		}
		n.inFlight = true
		d.entries = append(d.entries, entry{name: name, sighting: n.view, rises: n.rises})

		s := n.view
		s.Others = slices.Clone(s.Others)
		s.Joined = s.Alive && (!n.acked.Alive || n.rises != n.ackedRises)
		d.report.Sightings = append(d.report.Sightings, s)
	}

	if full {
		t.overflow = false
	}

	return d
}

// acknowledged ends a delivery that the sink has recorded.
func (t *tracker) acknowledged(d delivery) {
	for _, e := range d.entries {
		if n := t.nodes[e.name]; n != nil {
			n.acked, n.ackedRises = e.sighting, e.rises
		}
	}

	// The source has listed its members: a node of the earlier run that is not
	// among them is gone.
	if d.report.Full {
		clear(t.before)
	}

	t.abandoned(d)
}

// abandoned ends a delivery; its nodes stay changed unless it was acknowledged.
func (t *tracker) abandoned(d delivery) {
	for _, e := range d.entries {
		n := t.nodes[e.name]
		if n == nil {
			continue
		}
		n.inFlight = false
		if len(n.members) == 0 && !n.acked.Alive {
			delete(t.nodes, e.name)
			t.gone--
		}
	}
}

// pending counts the changed nodes.
func (t *tracker) pending() int {
	count := 0
	for _, n := range t.nodes {
		if n.changed() {
			count++
		}
	}

	return count
}

// alive lists the nodes that are alive by the last acknowledged report, sorted.
func (t *tracker) alive() []string {
	var all []string
	for name, n := range t.nodes {
		if n.acked.Alive {
			all = append(all, name)
		}
	}

	for name := range t.before {
		all = append(all, name)
	}

	slices.Sort(all)

	return all
}
