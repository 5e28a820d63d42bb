// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/evidence"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// names finds the nodes that agents announce. Most have the announced name. A registered machine keeps its own
// name: the agent is told by the evidence of its first report, and from then on by the label and serial number of that
// report.
type names struct {
	view      record.View         // of which they are
	announced map[string]string   // nodes with another name than the announced one, by that
	waiting   map[string][]string // registered machines whose agent has not spoken, by each of their marks
}

func (ns *Nodes) newReport(v *state.View) report {
	return report{view: v, names: ns.namesIn(v), accepted: map[string]inventory.Observation{}}
}

// namesIn returns the names of a view. Most reports change nothing, so that those of the last view mostly serve.
func (ns *Nodes) namesIn(v *state.View) names {
	last := ns.names.Load()
	if last != nil && record.Same(last.view, v.View, &job.Nodes) && record.Same(last.view, v.View, &state.Machines) {
		return *last
	}

	in := names{view: v.View, announced: map[string]string{}, waiting: map[string][]string{}}

	for _, n := range v.Nodes() {
		switch {
		case n.OwnName() != "":
			in.announced[n.Announced()] = n.Name
		case n.Label == "":
			for _, mark := range marks(state.EvidenceOf(v, n)) {
				in.waiting[mark] = append(in.waiting[mark], n.Name)
			}
		}
	}

	ns.names.Store(&in)

	return in
}

// marks returns what an agent may have in common with a registered machine.
func marks(e evidence.Set) []string {
	all := make([]string, 0, 2+len(e.MACs))
	if e.Addr != "" {
		all = append(all, "address "+e.Addr)
	}

	if !evidence.MadeUp(e.UUID) {
		all = append(all, "UUID "+e.UUID)
	}

	for _, mac := range e.MACs {
		all = append(all, "MAC "+mac)
	}

	return all
}

// maxMACs bounds the MACs of an observation that are looked at.
const maxMACs = 16

// uuidForm is the form of a UUID.
var uuidForm = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// saysOf returns the evidence of an observation.
func saysOf(o inventory.Observation) evidence.Set {
	e := evidence.Set{Addr: o.Addr}
	if uuid := strings.ToLower(o.UUID); uuidForm.MatchString(uuid) {
		e.UUID = uuid
	}

	for _, word := range o.MACs[:min(len(o.MACs), maxMACs)] {
		if mac, err := net.ParseMAC(word); err == nil && len(mac) == 6 {
			e.MACs = append(e.MACs, mac.String())
		}
	}

	return e
}

// of returns the name of the node that an observation is about, which may be new. It is an error if the
// observation fits several registered machines: none of them is taken for the host.
func (ns names) of(v *state.View, o inventory.Observation) (string, error) {
	announced := inventory.NodeName(o.Label, o.Serial)
	if name := ns.announced[announced]; name != "" {
		return name, nil
	}

	if n, known := v.Lookup(announced); known && n.Label != "" {
		return announced, nil
	}

	found := ns.judge(v, saysOf(o))

	switch {
	case len(found) > 1:
		return "", inventory.Errorf(inventory.KindRefused,
			"the agent of %s, which speaks at %s, fits several registered machines alike: %s",
			announced, o.Addr, strings.Join(found, ", ")).
			Do("correct their addresses and MACs, by another import").About(found...)
	case len(found) == 1:
		return found[0], nil
	}

	// The machine of that name is another one, unless nothing is known of its address and nothing speaks against it.
	if n, known := v.Lookup(announced); known {
		verdict := evidence.Compare(saysOf(o), state.EvidenceOf(v, &n))
		if n.Addr != "" || verdict.Score < 0 {
			return "", inventory.Errorf(inventory.KindRefused,
				"%s is the name of a registered machine at %s, and an agent announces it at %s: they have %s",
				announced, cmp.Or(n.Addr, "an unknown address"), o.Addr, verdict).
				Do("correct the machine, by another import, or give the host another label or serial").About(announced)
		}
	}

	return announced, nil
}

// judge returns the registered machines that fit the evidence of an agent best, in their order. A machine that shares a
// mark with it, and differs in more, is another one.
func (ns names) judge(v *state.View, says evidence.Set) []string {
	var (
		found []string
		best  = 1 // the least score that is for it
		seen  = map[string]bool{}
	)

	for _, mark := range marks(says) {
		for _, name := range ns.waiting[mark] {
			n, known := v.Lookup(name)
			if !known || seen[name] {
				continue
			}

			seen[name] = true

			verdict := evidence.Compare(says, state.EvidenceOf(v, &n))

			// Some vendors give a port the same MAC on all machines, and a card is moved: against another UUID, one
			// thing in common is too little.
			if slices.Contains(verdict.Differs, string(evidence.UUID)) && len(verdict.Same) < 2 {
				continue
			}

			switch score := verdict.Score; {
			case score > best:
				best, found = score, []string{name}
			case score == best:
				found = append(found, name)
			}
		}
	}

	slices.Sort(found)

	return found
}
