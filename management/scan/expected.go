// SPDX-License-Identifier: Apache-2.0

package scan

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// fresh is the age up to which a look at a machine shows that it is there.
const fresh = 24 * time.Hour

// Expected compares what is registered with what is seen: by the gossip, by the BMCs that are asked for their power, by
// the newest scan, by inspections and checks of credentials, and by LLDP on other nodes. BMCs and neighbours that
// belong to no node are shown if all is.
func Expected(r record.Reader, nodes []*inventory.Node, all bool, now time.Time) []api.ExpectedMachine {
	var rows []api.ExpectedMachine

	registered := map[string]bool{} // addresses of BMCs
	checked := checkedSince(r, now.Add(-fresh))
	beside := neighboursOf(r, nodes, now.Add(-fresh))

	for _, n := range nodes {
		m := record.Get(r, &state.Machines, n.Name)
		row := api.ExpectedMachine{Node: n.Name, Addr: n.Addr, Listed: m != nil && !m.Registered.IsZero()}

		if n.State == inventory.Discovered {
			row.Seen = append(row.Seen, api.SeenByGossip)
		}
		if n.Hardware != nil && n.Hardware.Time.After(now.Add(-fresh)) {
			row.Seen = append(row.Seen, api.SeenByInspection)
		}
		if checked[n.Name] {
			row.Seen = append(row.Seen, api.SeenByCredentials)
		}
		if beside.nodes[n.Name] {
			row.Seen = append(row.Seen, api.SeenByLLDP)
		}

		if m != nil && m.BMC != nil && m.BMC.Address != "" {
			row.BMC = addressOf(*m.BMC)
			registered[row.BMC] = true

			switch p := record.Get(r, &state.Powers, n.Name); {
			case p == nil:
			case p.LoginRefused:
				row.Seen = append(row.Seen, api.SeenByRefusal)
			case p.Power != "" && p.Problem == "":
				row.Seen = append(row.Seen, api.SeenByBMC)
			}
			if record.Get(r, &FoundKind, row.BMC) != nil {
				row.Seen = append(row.Seen, api.SeenByScan)
			}
		}

		// A node that nobody registered, and that is not seen, is neither missing nor there.
		if row.Listed || len(row.Seen) > 0 {
			rows = append(rows, row.Judged())
		}
	}

	if !all {
		return rows
	}

	// A BMC that speaks both protocols is one that nobody registered, or not, by its address.
	hosts := map[string]bool{}
	for address := range registered {
		host, _, _ := net.SplitHostPort(address)
		hosts[host] = true
	}

	for _, f := range record.All(r, &FoundKind) {
		host, _, _ := net.SplitHostPort(f.Address)
		if registered[f.Address] || hosts[host] && !unusual(*f) {
			continue
		}

		rows = append(rows, api.ExpectedMachine{
			BMC: f.Address, Product: f.Product, Seen: []api.SeenBy{api.SeenByScan},
		}.Judged())
	}

	for _, row := range beside.others {
		rows = append(rows, row.Judged())
	}

	slices.SortStableFunc(rows, func(a, b api.ExpectedMachine) int { return strings.Compare(a.Key(), b.Key()) })

	return rows
}

// checkedSince returns the nodes whose credentials were checked with success since then.
func checkedSince(r record.Reader, since time.Time) map[string]bool {
	checked := map[string]bool{}

	for _, j := range record.All(r, &job.Kind) {
		row, _ := inventory.TransitionOf(j.Verb)
		if row.Through != inventory.Verifying || !j.Ended.After(since) {
			continue
		}

		for name, o := range j.Outcomes {
			if o.Status == row.Success {
				checked[name] = true
			}
		}
	}

	return checked
}

// maxPorts is how many ports are shown at which LLDP sees a neighbour.
const maxPorts = 8

// beside is what LLDP sees at the network ports of nodes: nodes, and others by what they say.
type beside struct {
	nodes  map[string]bool
	others map[string]*api.ExpectedMachine
}

// neighboursOf returns what nodes that were inspected since then have as neighbours. One that has the MAC or the name
// of a node is that node.
func neighboursOf(r record.Reader, nodes []*inventory.Node, since time.Time) beside {
	b := beside{nodes: map[string]bool{}, others: map[string]*api.ExpectedMachine{}}
	owners := map[string]string{} // nodes by MAC, and by host name

	for _, n := range nodes {
		owners[strings.ToLower(n.Name)] = n.Name
		if n.Label != "" {
			owners[strings.ToLower(n.Label)] = n.Name
		}
		for _, mac := range state.EvidenceOf(r, n).MACs {
			owners[mac] = n.Name
		}
	}

	for _, n := range nodes {
		if n.Hardware == nil || !n.Hardware.Time.After(since) {
			continue
		}

		for _, at := range n.Hardware.Neighbours {
			host, _, _ := strings.Cut(strings.ToLower(at.Name), ".")

			if owner := cmp.Or(owners[at.Chassis], owners[host]); owner != "" {
				b.nodes[owner] = true
				continue
			}

			b.add(n.Name, at)
		}
	}

	return b
}

// add counts a neighbour that is no node.
func (b beside) add(node string, at inventory.Neighbour) {
	text := strings.TrimSpace(at.Name + " " + at.Chassis)

	row := b.others[text]
	if row == nil {
		row = &api.ExpectedMachine{LLDP: text, Kind: "host", Seen: []api.SeenBy{api.SeenByLLDP}}
		b.others[text] = row
	}

	if at.Forwards {
		row.Kind = "switch"
	}
	if len(row.Ports) < maxPorts {
		row.Ports = append(row.Ports, node+" "+at.Port)
	}
}

// unusual reports whether the port is none of the protocol: several machines may share the address then.
func unusual(f Found) bool {
	_, port, _ := net.SplitHostPort(f.Address)
	return port != strconv.Itoa(machine.BMC{Driver: f.Driver}.DefaultPort())
}

// addressOf returns the address and port of a BMC, as a scan writes them.
func addressOf(b machine.BMC) string {
	port, host := b.Port, b.Address
	if port == 0 {
		port = b.DefaultPort()
	}

	if addr, err := netip.ParseAddr(host); err == nil {
		host = addr.String()
	}

	return net.JoinHostPort(host, strconv.Itoa(port))
}
