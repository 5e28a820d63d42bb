// SPDX-License-Identifier: Apache-2.0

package state

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/facts"
	"github.com/contiv/cluster/management/record"
)

const (
	// keptInspections is the number of inspections that are kept of a node.
	keptInspections = 10
	// maxInspections bounds them, compressed, in bytes.
	maxInspections = 512 << 10
)

// Inspections are the newest inspections of a node. The facts are compressed together, because they hardly differ, and
// because few are ever looked at.
type Inspections struct {
	Node string             `json:"node"`
	All  []facts.Inspection `json:"all"`  // the oldest first
	Data []byte             `json:"data"` // what each has found, as a compressed list
}

// Facts are the inspections of nodes, by name.
var Facts = record.Kind[Inspections]{
	Name: "facts", ByNode: true,
	Key: func(i *Inspections) string { return i.Node },
}

// Facts returns the facts of each inspection, those of all sources as one.
func (i *Inspections) Facts() ([]facts.Facts, error) {
	all, err := i.found()
	merged := make([]facts.Facts, len(all))
	for at := range all {
		merged[at] = all[at].Merged()
	}

	return merged, err
}

// Changes returns what differs between the inspection at an index and the one before; nil if there is none before.
func (i *Inspections) Changes(at int) ([]string, error) {
	all, err := i.found()
	if err != nil || at < 1 {
		return nil, err
	}
	return all[at].Since(all[at-1]), nil
}

// Newest returns the facts of the newest inspection of a node; false: it was not inspected.
func Newest(r record.Reader, node string) (facts.Facts, bool, error) {
	i := record.Get(r, &Facts, node)
	if i == nil || len(i.All) == 0 {
		return facts.Facts{}, false, nil
	}

	all, err := i.Facts()
	if err != nil {
		return facts.Facts{}, false, fmt.Errorf("its facts cannot be read: %w", err)
	}

	return all[len(all)-1], true, nil
}

// RootDevice says in words which disk an installation of a node would take, by the hints of its registration and the
// disks that an inspection found; "" for a node without hints that has no disk for it.
func RootDevice(r record.Reader, node string, disks []facts.Disk) string {
	m := record.Get(r, &Machines, node)
	if m == nil {
		m = &Machine{}
	}

	if _, err := facts.RootDevice(nil, disks); err != nil && len(m.RootDevice) == 0 {
		return ""
	}

	return facts.DescribeRoot(m.RootDevice, disks)
}

func (i *Inspections) found() ([]facts.Found, error) {
	b, err := record.Expand(i.Data)
	if err != nil {
		return nil, err
	}

	var all []facts.Found
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, err
	}

	if len(all) != len(i.All) {
		return nil, fmt.Errorf("the record has %d inspections, and facts of %d", len(i.All), len(all))
	}

	return all, nil
}

// At returns the index of the inspection of a node with the number; 0: the newest.
func (i *Inspections) At(n inventory.Node, number int) (int, error) {
	if i == nil || len(i.All) == 0 {
		remedy, actions := inventory.Toward(inventory.VerbInspect, n)

		return 0, inventory.Errorf(inventory.KindNotFound, "%s was not inspected yet", n.Name).
			Do("%s", remedy).With(actions...)
	}
	if number == 0 {
		return len(i.All) - 1, nil
	}

	for at, one := range i.All {
		if one.Number == number {
			return at, nil
		}
	}

	return 0, inventory.Errorf(inventory.KindNotFound, "there is no inspection %d of %s", number, n.Name).
		Do("those from %d to %d are kept", i.All[0].Number, i.All[len(i.All)-1].Number)
}

// With returns the inspections with a newer one, without the oldest beyond the bounds. A job that looks again, after a
// restart of the manager, replaces what it has found before. Inspections that cannot be read are dropped.
func (i *Inspections) With(node, job string, found facts.Found, now time.Time) (*Inspections, error) {
	next := &Inspections{Node: node}

	var all []facts.Found

	number := 1

	if i != nil && len(i.All) > 0 {
		number = i.All[len(i.All)-1].Number + 1
		if known, err := i.found(); err == nil {
			all, next.All = known, append(next.All, i.All...)
		}
	}

	if last := len(next.All) - 1; last >= 0 && job != "" && next.All[last].Job == job {
		all, next.All, number = all[:last], next.All[:last], next.All[last].Number
	}

	all = append(all, found)
	next.All = append(next.All, facts.Inspection{Number: number, Time: now, Job: job})

	for {
		surplus := max(len(all)-keptInspections, 0)
		all, next.All = all[surplus:], next.All[surplus:]

		b, err := json.Marshal(all)
		if err != nil {
			return nil, err
		}

		next.Data = record.Compress(b)
		if len(next.Data) <= maxInspections || len(all) == 1 {
			return next, nil
		}

		all, next.All = all[1:], next.All[1:]
	}
}

// maxNeighbour bounds the words that are kept of a neighbour, in bytes.
const maxNeighbour = 64

// HardwareOf returns facts in short, as an inspection found them.
func HardwareOf(f facts.Facts, i facts.Inspection) *inventory.Hardware {
	h := &inventory.Hardware{
		Inspection: i.Number, Time: i.Time, Arch: f.Arch,
		Vendor: f.System.Vendor, Product: f.System.Product, Serial: f.System.Serial, UUID: f.System.UUID,
		TPM: f.System.TPM, BootMode: f.Firmware.BootMode, Firmware: f.Firmware.Version, Kernel: f.OS.Kernel,
		BMC: f.BMC.Address, Sockets: f.CPU.Sockets, Cores: f.CPU.Cores, Threads: f.CPU.Threads,
		MemoryMB: f.Memory.TotalMB, DIMMs: len(f.Memory.Modules),
		Disks: len(f.Disks), Interfaces: len(f.Interfaces), PCI: len(f.PCI),
	}

	for _, port := range f.Interfaces {
		mac, err := net.ParseMAC(port.MAC)
		if err == nil && len(mac) == 6 && len(h.MACs) < inventory.MaxMACs && !slices.Contains(h.MACs, port.MAC) {
			h.MACs = append(h.MACs, port.MAC)
		}
	}

	// What a neighbour says comes from the network.
	word := func(text string) string { return inventory.Shorten(inventory.Printable(text), maxNeighbour) }

	for _, port := range f.Interfaces {
		n := port.Neighbour
		if n == nil || n.Name == "" && n.Chassis == "" || len(h.Neighbours) == inventory.MaxMACs {
			continue
		}
		h.Neighbours = append(h.Neighbours, inventory.Neighbour{
			Port: word(port.Name), Name: word(n.Name), Chassis: strings.ToLower(word(n.Chassis)), Forwards: n.Forwards,
		})
	}

	const giga = 1_000_000_000
	for _, d := range f.Disks {
		h.DiskGB += d.SizeBytes / giga
	}

	return h
}
