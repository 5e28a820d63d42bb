// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/contiv/cluster/management/api"
)

// AddressColumns are the columns of a table of addresses.
var AddressColumns = ColumnsOf(Cells[api.Address]{
	"state": func(_ Paint, a *api.Address) string { return addressState(a) },
}, "address=addr", "node", "mac=mac", "state", "since", "until,wide", "conflict,wide")

func addressState(a *api.Address) string {
	switch {
	case a.Conflict != "":
		return "conflict"
	case a.Unprobed:
		return "unprobed"
	case a.Reserved:
		return "reserved"
	case a.Node == "":
		return "held"
	default:
		return "given"
	}
}

// Address prints an address.
func (p *Printer) Address(a api.Address) {
	p.Fields([]Field{
		{"Address", Line(a.Addr)},
		{"Node", Line(a.Node)},
		{"MAC", Line(a.MAC)},
		{"State", addressState(&a)},
		{"Since", Time(a.Since)},
		{"Until", Time(a.Until)},
		{"Conflict", Line(a.Conflict)},
	})
}

// NodeBoots prints the boots of a node, the newest last.
func (p *Printer) NodeBoots(n api.NodeBoots) {
	for _, b := range n.Boots {
		fields := []Field{
			{"Job", Line(b.Job)},
			{"Purpose", Line(b.Purpose)},
			{"Image", Line(b.Image)},
			{"Begun", Time(b.Begun)},
		}
		if b.Started != nil {
			fields = append(fields, Field{"Started", Time(*b.Started)})
		}
		if b.Ended != nil {
			fields = append(fields, Field{"Ended", Time(*b.Ended)})
		}
		p.Fields(append(fields, Field{"Result", Line(b.Result)}))

		p.section("Events", []string{"AT", "FROM", "COUNT", "TEXT"}, len(b.Events), func(i int) []string {
			e := b.Events[i]
			return []string{Time(e.At), e.From, strconv.Itoa(max(e.Count, 1)), Line(e.Text)}
		})
	}
}

// Boot prints how an instance serves the machines that boot.
func (p *Printer) Boot(s api.BootStatus) {
	serves := "nobody: boot.interfaces is empty in its configuration file"
	if len(s.Interfaces) > 0 {
		serves = "the interfaces below"
	}

	p.Fields([]Field{
		{"Instance", Line(s.Instance)},
		{"Serves", serves},
		{"Pool", fmt.Sprintf("%d of %d addresses are free", s.Free, s.Pool)},
		{"Conflicts", strconv.Itoa(s.Conflicts)},
		{"Held", strconv.Itoa(s.Held)},
		{"Without an address", Line(strings.Join(s.Waiting, ", "))},
		{"Dropped queries", strconv.FormatUint(s.Dropped, 10)},
	})

	p.section("Interfaces", []string{"NAME", "ADDRESS", "PROBLEM"}, len(s.Interfaces), func(i int) []string {
		is := s.Interfaces[i]
		return []string{is.Name, is.Addr, is.Problem}
	})

	header := []string{"MAC", "NODE", "ON", "QUERY", "ANSWER", "ADDRESS", "COUNT", "LAST", "WHY"}
	p.section("Newest queries", header, len(s.Queries), func(i int) []string {
		q := s.Queries[i]
		return []string{
			q.MAC, q.Node, q.Interface, q.Query, q.Answer, q.Addr, strconv.Itoa(q.Count), Time(q.Last), q.Why,
		}
	})
}
