// SPDX-License-Identifier: Apache-2.0

package scan

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// Expected compares what is registered with what is seen: by the gossip, by the BMCs that are asked for their power,
// and by the newest scan. BMCs that belong to no node are shown if all is.
func Expected(r record.Reader, nodes []*inventory.Node, all bool) []api.ExpectedMachine {
	var rows []api.ExpectedMachine

	registered := map[string]bool{} // addresses of BMCs

	for _, n := range nodes {
		m := record.Get(r, &state.Machines, n.Name)
		row := api.ExpectedMachine{Node: n.Name, Addr: n.Addr, Listed: m != nil && !m.Registered.IsZero()}

		if n.State == inventory.Discovered {
			row.Seen = append(row.Seen, api.SeenByGossip)
		}

		if m != nil && m.BMC != nil && m.BMC.Address != "" {
			row.BMC = addressOf(*m.BMC)
			registered[row.BMC] = true

			if p := record.Get(r, &state.Powers, n.Name); p != nil && p.Power != "" && p.Problem == "" {
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

	slices.SortStableFunc(rows, func(a, b api.ExpectedMachine) int { return strings.Compare(a.Key(), b.Key()) })

	return rows
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
