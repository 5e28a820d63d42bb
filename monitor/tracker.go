// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"cmp"
	"maps"
	"slices"
)

// maxGone bounds how many nodes without any member are remembered until a sink
// has heard that they are gone. Beyond it they are dropped, and the complete
// list, in which they are missing, says it instead.
const maxGone = 4096

// tracker is the observer's view: members as the source names them, nodes as
// the members claim them, and what was last told about each node. What it
// holds is bounded by the source's member list, and by maxGone. It has no lock,
// clock or I/O.
type tracker struct {
	members map[string]*record
	nodes   map[string]*node
	clock   uint64 // counts changes of members

	before map[string]bool // nodes that were alive when an earlier run ended

	listing bool                // a complete list is being fetched
	removed map[string]struct{} // members removed meanwhile

	gone     int  // nodes without members
	overflow bool // some of them were dropped: only a full report is true
}

// record is one member.
type record struct {
	Member
	id      Identity
	node    string // "" where it is not a node
	why     error  // why it is not a node
	changed uint64 // clock at the last change
	since   uint64 // clock when it last became alive
}

// node is one identity.
type node struct {
	members map[string]*record
	holder  string   // the member whose address is reported
	view    Sighting // as of now, Joined aside
	rises   uint64   // how often it went from not alive to alive

	told      Sighting // the last recorded sighting; zero before
	toldRises uint64   // rises as of then
	underway  bool     // a sighting is on its way to the sink
}

// stranger is a member that is not a node, and why.
type stranger struct {
	member string
	why    error
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

// put records a member. It returns the member as a stranger when it has become
// one, or one for another reason.
func (t *tracker) put(m Member) *stranger {
	t.clock++
	delete(t.removed, m.Name)
	id, why := IdentityOf(m.Tags)

	name := ""
	if why == nil {
		name = id.Name()
	}

	r := t.members[m.Name]

	fresh := r == nil
	if fresh {
		r = &record{}
		t.members[m.Name] = r
	}

	if r.node != "" && r.node != name {
		t.detach(r)
	}

	var news *stranger
	if why != nil && (fresh || r.why == nil || r.why.Error() != why.Error()) {
		news = &stranger{member: m.Name, why: why}
	}

	if m.Alive && !r.Alive {
		r.since = t.clock
	}

	r.Member, r.id, r.why, r.changed = m, id, why, t.clock
	if name != "" {
		t.attach(r, name)
	}

	return news
}

// remove forgets a member the source no longer has.
func (t *tracker) remove(member string) {
	t.clock++
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

// beginList says that a complete list is about to be fetched; what changes from
// now on is newer than the list. The value goes to endList.
func (t *tracker) beginList() uint64 {
	t.listing = true
	clear(t.removed)

	return t.clock
}

// cancelList says that the list will not come.
func (t *tracker) cancelList() {
	t.listing = false
	clear(t.removed)
}

// endList makes the view equal to a complete list that was fetched since
// beginList, except for members that changed meanwhile.
func (t *tracker) endList(began uint64, list []Member) []stranger {
	var news []stranger

	listed := make(map[string]bool, len(list))
	for _, m := range list {
		listed[m.Name] = true

		r := t.members[m.Name]
		if _, gone := t.removed[m.Name]; gone || r != nil && (r.changed > began || r.equal(m)) {
			continue
		}

		if s := t.put(m); s != nil {
			news = append(news, *s)
		}
	}

	for _, name := range slices.Sorted(maps.Keys(t.members)) {
		if !listed[name] && t.members[name].changed <= began {
			t.remove(name)
		}
	}

	t.cancelList()

	return news
}

func (t *tracker) attach(r *record, name string) {
	r.node = name

	n := t.nodes[name]
	if n == nil {
		n = &node{members: map[string]*record{}}

		t.nodes[name] = n
		if t.before[name] && r.Alive {
			// It is as the earlier run left it: its first rise is no news.
			n.told, n.toldRises = Sighting{Alive: true}, 1
		}
	} else if len(n.members) == 0 {
		t.gone--
	}

	delete(t.before, name)
	n.members[r.Name] = r
	n.look()
}

func (t *tracker) detach(r *record) {
	n := t.nodes[r.node]
	delete(n.members, r.Name)
	n.look()

	if len(n.members) == 0 {
		if n.told.Alive || n.underway {
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

// look works out the view of a node from its members.
func (n *node) look() {
	var live []*record
	for _, r := range n.members {
		if r.Alive {
			live = append(live, r)
		}
	}

	was := n.view.Alive
	if len(live) == 0 {
		// It keeps the address it had when it was last seen alive.
		n.holder = ""

		n.view.Alive, n.view.Duplicate, n.view.Others = false, false, nil
		if n.view.Label == "" && len(n.members) > 0 {
			r := n.members[slices.Min(slices.Collect(maps.Keys(n.members)))]
			n.view.Label, n.view.Serial, n.view.Addr = r.id.Label, r.id.Serial, r.id.Addr
		}

		return
	}

	slices.SortFunc(live, func(a, b *record) int {
		return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.Name, b.Name))
	})

	h := live[0]
	if r := n.members[n.holder]; r != nil && r.Alive {
		h = r
	}

	n.holder = h.Name
	n.view = Sighting{Label: h.id.Label, Serial: h.id.Serial, Addr: h.id.Addr, Alive: true}

	n.view.Duplicate, n.view.Others = claimants(live)
	if !was {
		n.rises++
	}
}

// claimants reports whether live members of one node are in more than one
// place, and the addresses that tell them apart. Two members at one place are
// one host that has changed its name.
func claimants(live []*record) (bool, []string) {
	places := map[string]string{} // place: the address it is managed under
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

	var all []string
	for p, a := range places {
		if a == "" || count[a] > 1 {
			a = p
		}

		all = append(all, a)
	}

	slices.Sort(all)

	return true, all
}

func (n *node) news() bool {
	return !n.view.same(n.told) || n.view.Alive && n.rises != n.toldRises
}

// telling is a report on its way to the sink, with what is needed to note that
// it has arrived. The sink owns the report, so the rest is a copy.
type telling struct {
	report Report
	said   []said
}

type said struct {
	name  string
	what  Sighting
	rises uint64
}

// tell makes the report of what is not yet told or, when full, of everything.
// Every telling ends with heard or unheard; there is one at a time.
func (t *tracker) tell(full bool) telling {
	out := telling{report: Report{Full: full}}
	for _, name := range slices.Sorted(maps.Keys(t.nodes)) {
		n := t.nodes[name]
		if !full && !n.news() {
			continue
		}

		n.underway = true
		out.said = append(out.said, said{name: name, what: n.view, rises: n.rises})
		s := n.view
		s.Others = slices.Clone(s.Others)
		s.Joined = s.Alive && (!n.told.Alive || n.rises != n.toldRises)
		out.report.Sightings = append(out.report.Sightings, s)
	}

	if full {
		t.overflow = false
	}

	return out
}

// heard notes that a report was recorded.
func (t *tracker) heard(what telling) {
	for _, s := range what.said {
		if n := t.nodes[s.name]; n != nil {
			n.told, n.toldRises = s.what, s.rises
		}
	}

	if what.report.Full {
		clear(t.before)
	}

	t.unheard(what)
}

// unheard notes that a report is no longer on its way.
func (t *tracker) unheard(what telling) {
	for _, s := range what.said {
		n := t.nodes[s.name]
		if n == nil {
			continue
		}

		n.underway = false
		if len(n.members) == 0 && !n.told.Alive {
			delete(t.nodes, s.name)
			t.gone--
		}
	}
}

// pending counts the nodes with news.
func (t *tracker) pending() int {
	count := 0
	for _, n := range t.nodes {
		if n.news() {
			count++
		}
	}

	return count
}

// alive names the nodes that are alive by the last recorded word, sorted.
func (t *tracker) alive() []string {
	var all []string
	for name, n := range t.nodes {
		if n.told.Alive {
			all = append(all, name)
		}
	}

	for name := range t.before {
		all = append(all, name)
	}

	slices.Sort(all)

	return all
}
