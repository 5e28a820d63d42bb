// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/contiv/cluster/management/api"
)

// Facts prints what an inspection has found.
func (p *Printer) Facts(f api.NodeFacts) {
	h := &f.Facts
	words := func(parts ...string) string { return Line(strings.Join(parts, " ")) }

	var inspections []string
	for _, i := range f.Inspections {
		inspections = append(inspections, fmt.Sprintf("%d (%s)", i.Number, Time(i.Time)))
	}

	fields := []Field{
		{"Node", Line(f.Node)},
		{"Inspection", fmt.Sprintf("%d, %s", f.Inspection.Number, Time(f.Inspection.Time))},
		{"By job", Line(f.Inspection.Job)},
		{"Sources", Line(strings.Join(h.Sources, ", "))},
		{"System", words(h.System.Vendor, h.System.Product, h.System.Version)},
		{"Serial", Line(h.System.Serial)},
		{"UUID", Line(h.System.UUID)},
		{"TPM", Line(h.System.TPM)},
		{"Mainboard", words(h.System.BoardVendor, h.System.BoardProduct, h.System.BoardSerial)},
		{"Firmware", words(h.Firmware.Vendor, h.Firmware.Version, h.Firmware.Date)},
		{"Boot mode", Line(h.Firmware.BootMode)},
		{"BMC", words(h.BMC.Address, h.BMC.MAC)},
		{"OS", Line(h.OS.Name)},
		{"Kernel", words(h.OS.Kernel, h.Arch)},
		{"CPU", Line(h.CPU.Model)},
		{"Processors", fmt.Sprintf("%d, with %d cores and %d threads", h.CPU.Sockets, h.CPU.Cores, h.CPU.Threads)},
		{"Memory", h.Memory.Size()},
		{"NUMA nodes", number(len(h.NUMA))},
		{"PCI devices", number(len(h.PCI))},
		{"Root device", Line(f.RootDevice)},
		{"Inspections", strings.Join(inspections, "\n")},
	}
	p.Fields(fields)

	modules := []string{"SLOT", "SIZE", "TYPE", "MT/S", "VENDOR", "PART", "SERIAL"}
	p.section("Memory modules", modules, len(h.Memory.Modules),
		func(i int) []string {
			m := h.Memory.Modules[i]
			return []string{m.Slot, m.Size(), m.Type, number(m.Speed), m.Vendor, m.Part, m.Serial}
		})

	disks := []string{"NAME", "SIZE", "KIND", "MODEL", "SERIAL", "WWN", "PATH", "PLACE"}
	p.section("Disks", disks, len(h.Disks), func(i int) []string {
		d := h.Disks[i]
		kind := "ssd"
		if d.Rotational {
			kind = "hdd"
		}

		model := strings.TrimSpace(d.Vendor + " " + d.Model)

		return []string{d.Name, d.Size(), kind, model, d.Serial, d.WWN, d.Path, d.Place}
	})

	ports := []string{"NAME", "MAC", "LINK", "PCI", "DRIVER", "NEIGHBOUR", "PLACE"}
	p.section("Network ports", ports, len(h.Interfaces),
		func(i int) []string {
			n := h.Interfaces[i]
			link, neighbour := "down", ""
			if n.Carrier {
				link = "up"
			}
			if n.Carrier && n.SpeedMbps > 0 {
				link = strconv.Itoa(n.SpeedMbps) + " Mbit/s"
			}
			if n.Neighbour != nil {
				neighbour = n.Neighbour.String()
			}

			return []string{n.Name, n.MAC, link, n.PCI, n.Driver, neighbour, n.Place}
		})

	for _, c := range f.Classes {
		lines := c.Differences
		if len(lines) == 0 {
			lines = []string{"nothing"}
		}
		p.list("Other than the class "+Line(c.Class), lines)
	}

	p.list("Other than most nodes of the product", f.Peers)
	p.list("Changes since the inspection before", f.Changes)
	p.list("Not found", h.Problems)
}

// ClassColumns are the columns of a table of classes of hardware.
var ClassColumns = ColumnsOf[api.Class](nil, "name", "nodes", "from", "created", "by=actor,wide")

// Class prints a class of hardware.
func (p *Printer) Class(c api.Class) {
	s := &c.Shape

	p.Fields([]Field{
		{"Class", Line(c.Name)},
		{"Nodes", Line(c.Nodes)},
		{"From", fmt.Sprintf("%s, inspection %d", Line(c.From), c.Inspection)},
		{"Created", Time(c.Created)},
		{"By", Line(c.Actor)},
		{"System", Line(strings.TrimSpace(s.Vendor + " " + s.Product))},
		{"BIOS", Line(s.Firmware)},
		{"Boot mode", Line(s.BootMode)},
		{"CPU", Line(s.CPU.Model)},
		{"Processors", fmt.Sprintf("%d, with %d cores and %d threads", s.CPU.Sockets, s.CPU.Cores, s.CPU.Threads)},
		{"Memory", s.Memory()},
	})

	p.section("Memory modules", []string{"SLOT", "SIZE"}, len(s.Modules), func(i int) []string {
		return []string{s.Modules[i].Slot, s.Modules[i].Size()}
	})
	p.section("Disks", []string{"COUNT", "SIZE", "MODEL"}, len(s.Disks), func(i int) []string {
		return []string{number(s.Disks[i].Count), s.Disks[i].Size(), s.Disks[i].Model}
	})
	p.section("Network ports", []string{"COUNT", "DRIVER"}, len(s.Ports), func(i int) []string {
		return []string{number(s.Ports[i].Count), s.Ports[i].Driver}
	})
	p.section("PCI devices", []string{"COUNT", "ID"}, len(s.PCI), func(i int) []string {
		return []string{number(s.PCI[i].Count), s.PCI[i].ID}
	})
}

// ClassComparison prints what nodes have otherwise than a class.
func (p *Printer) ClassComparison(c api.ClassComparison) {
	var rows [][]string

	differ, failed := 0, 0

	for _, n := range c.Nodes {
		if n.Error != "" {
			failed++

			rows = append(rows, []string{Line(n.Node), "not read: " + Line(n.Error), "", "", ""})

			continue
		}

		if n.Inspection == nil {
			rows = append(rows, []string{Line(n.Node), "not inspected", "", "", ""})
			continue
		}

		differ++

		for _, d := range n.Differences {
			rows = append(rows, []string{
				Line(n.Node), Line(d.Part), Line(d.Class), Line(d.Node), Time(n.Inspection.Time),
			})
		}
	}

	if len(rows) > 0 {
		p.Rows([]string{"NODE", "PART", "CLASS HAS", "NODE HAS", "INSPECTED"}, rows)
		p.gap()
	}

	p.Printf("%s: %d same, %d other, %d not inspected", Line(c.Class), c.Same, differ, len(c.Nodes)-differ-failed)

	if failed > 0 {
		p.Printf(", %d not read", failed)
	}

	p.Printf("\n")
}

// FactsChanges prints what differs between two inspections.
func (p *Printer) FactsChanges(c api.FactsChanges) {
	for _, change := range c.Changes {
		p.Printf("%s\n", Line(change))
	}
}

// section prints a table with a title, unless it is empty.
func (p *Printer) section(title string, header []string, rows int, row func(int) []string) {
	if rows == 0 {
		return
	}

	p.gap()
	p.Printf("%s:\n", title)

	table := make([][]string, rows)
	for i := range table {
		for _, cell := range row(i) {
			table[i] = append(table[i], Line(cell))
		}
	}

	p.Rows(header, table)
}

// list prints lines with a title, unless there are none.
func (p *Printer) list(title string, lines []string) {
	if len(lines) == 0 {
		return
	}

	p.gap()
	p.Printf("%s:\n", title)

	for _, line := range lines {
		p.Printf("  %s\n", p.fold(Line(line), len("  ")))
	}
}

// number writes a number; 0: nothing.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}
