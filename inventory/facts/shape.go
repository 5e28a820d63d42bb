// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Class is a class of hardware: the shape of a good node, and the nodes that should have it.
type Class struct {
	Name  string `json:"name"`  // such as r640
	Nodes string `json:"nodes"` // a selector of the nodes that are compared with the class at each inspection

	From       string    `json:"from"`            // the node whose shape it is
	Inspection int       `json:"inspection"`      // the number of its inspection
	Created    time.Time `json:"created"`         // when it was made
	Actor      string    `json:"actor,omitempty"` // the principal that made it

	Shape Shape `json:"shape"` // what the machines have
}

// Comparison is what a node has otherwise than a class of which it is.
type Comparison struct {
	Class       string   `json:"class"`                 // the name of the class
	Differences []string `json:"differences,omitempty"` // absent: the node fits
}

// Shape is what machines of one kind have in common. Serial numbers and addresses are no part of it.
type Shape struct {
	Sources []string `json:"sources,omitempty"` // where it comes from: ssh, redfish

	Vendor   string `json:"vendor,omitempty"`                     // who made the machine
	Product  string `json:"product,omitempty"`                    // the model
	Firmware string `json:"firmware,omitempty"`                   // the version of the BIOS or UEFI
	BootMode string `json:"boot_mode,omitempty" enum:"bios,uefi"` // how the machine was booted

	CPU      CPU        `json:"cpu,omitzero"`        // the processors
	MemoryMB int        `json:"memory_mb,omitempty"` // MiB
	Modules  []DIMM     `json:"modules,omitempty"`   // by slot
	Disks    []DiskKind `json:"disks,omitempty"`     // by model and size
	Ports    []PortKind `json:"ports,omitempty"`     // network ports, by driver
	PCI      []PCIKind  `json:"pci,omitempty"`       // other devices on PCI, by their ids
}

// DIMM is a memory module in its slot.
type DIMM struct {
	Slot   string `json:"slot"`              // as the vendor names it
	SizeMB int    `json:"size_mb,omitempty"` // MiB
}

// Size returns the size as a person would write it.
func (m DIMM) Size() string { return mebibytes(m.SizeMB) }

// Size returns the size in the units of vendors.
func (k DiskKind) Size() string { return bytes(k.SizeBytes) }

// Memory returns the memory as a person would write it.
func (s Shape) Memory() string { return mebibytes(s.MemoryMB) }

// DiskKind is a number of disks of one model and size.
type DiskKind struct {
	Count     int    `json:"count"`                // how many
	SizeBytes int    `json:"size_bytes,omitempty"` // the size, in bytes
	Model     string `json:"model,omitempty"`      // the model
}

// PortKind is a number of network ports with one driver.
type PortKind struct {
	Count  int    `json:"count"`            // how many
	Driver string `json:"driver,omitempty"` // of the kernel
}

// PCIKind is a number of devices of one kind.
type PCIKind struct {
	Count int    `json:"count"` // how many
	ID    string `json:"id"`    // vendor and device, such as 10de:20b0
}

// ShapeOf returns the shape of a machine.
func ShapeOf(f Facts) Shape {
	s := Shape{
		Sources: f.Sources, Vendor: f.System.Vendor, Product: f.System.Product,
		Firmware: f.Firmware.Version, BootMode: f.Firmware.BootMode, CPU: f.CPU, MemoryMB: f.Memory.TotalMB,
	}

	for _, key := range sortedKeys(byKey(f.Memory.Modules, Module.key)) {
		s.Modules = append(s.Modules, DIMM{key, byKey(f.Memory.Modules, Module.key)[key].SizeMB})
	}

	disks, ports := map[DiskKind]int{}, map[PortKind]int{}
	for _, d := range f.Disks {
		if !d.Removable {
			disks[DiskKind{SizeBytes: d.SizeBytes, Model: d.Model}]++
		}
	}
	for _, i := range f.Interfaces {
		ports[PortKind{Driver: i.Driver}]++
	}

	for d, n := range disks {
		d.Count = n
		s.Disks = append(s.Disks, d)
	}
	for p, n := range ports {
		p.Count = n
		s.Ports = append(s.Ports, p)
	}

	slices.SortFunc(s.Disks, func(a, b DiskKind) int {
		return cmp.Or(cmp.Compare(a.SizeBytes, b.SizeBytes), strings.Compare(a.Model, b.Model))
	})
	slices.SortFunc(s.Ports, func(a, b PortKind) int { return strings.Compare(a.Driver, b.Driver) })

	devices := byID(f.PCI)
	for _, id := range sortedKeys(devices) {
		s.PCI = append(s.PCI, PCIKind{len(devices[id]), id})
	}

	return s
}

// maxDifferences bounds the differences of a machine from its class.
const maxDifferences = 50

// Difference is a part that a machine has otherwise than its class.
type Difference struct {
	Part  string `json:"part"`  // such as "DIMM B3", "cores" or "BIOS"
	Class string `json:"class"` // what the class has; "none": nothing
	Node  string `json:"node"`  // what the node has; "none": nothing; "unknown": the inspection could not find it
	Text  string `json:"text"`  // all of it as a sentence
}

// Differences returns the sentences of Compare, with the number of those beyond 50.
func (s Shape) Differences(f Facts) []string {
	var said []string
	for _, d := range s.Compare(f) {
		said = append(said, d.Text)
	}

	if more := len(said) - maxDifferences; more > 0 {
		return append(said[:maxDifferences:maxDifferences], fmt.Sprintf("and %d more", more))
	}

	return said
}

// Compare returns what a machine has otherwise than the shape of its class, the more important first. Only the
// machine names parts as other machines do: of what a BMC says, no more than numbers are compared with it.
func (s Shape) Compare(f Facts) []Difference {
	d, is := &shapeDiffer{}, ShapeOf(f)

	if inBand(is.Sources) != inBand(s.Sources) {
		s = s.numbers(is)
		is.Modules = nil
	}

	d.text("vendor", is.Vendor, s.Vendor)
	d.text("product", is.Product, s.Product)
	d.text("CPU", is.CPU.Model, s.CPU.Model)
	d.number("processors", is.CPU.Sockets, s.CPU.Sockets)
	d.number("cores", is.CPU.Cores, s.CPU.Cores)
	d.number("threads", is.CPU.Threads, s.CPU.Threads)
	d.dimms(is, s)

	compareKinds(d, is.Disks, s.Disks, func(k DiskKind) (string, int) {
		return strings.TrimSpace("disks of "+bytes(k.SizeBytes)+" "+k.Model) + exact(k, is.Disks, s.Disks), k.Count
	})
	compareKinds(d, is.Ports, s.Ports, func(k PortKind) (string, int) {
		return "network ports with the driver " + cmp.Or(k.Driver, "(none)"), k.Count
	})
	compareKinds(d, is.PCI, s.PCI, func(k PCIKind) (string, int) { return "PCI devices " + k.ID, k.Count })

	d.text("BIOS", is.Firmware, s.Firmware)
	d.text("boot mode", is.BootMode, s.BootMode)

	return d.all
}

// shapeDiffer collects differences.
type shapeDiffer struct{ all []Difference }

func (d *shapeDiffer) add(part, is, want, format string, args ...any) {
	d.all = append(d.all, Difference{Part: part, Class: want, Node: is, Text: fmt.Sprintf(format, args...)})
}

// numbers returns what of the shape can be compared with one of another source: the numbers that both have. All else is
// as that other shape has it.
func (s Shape) numbers(other Shape) Shape {
	is := other
	is.Modules = nil
	is.MemoryMB = s.MemoryMB

	if other.MemoryMB == 0 {
		is.MemoryMB = 0
	}
	for _, n := range []struct{ is, was *int }{
		{&is.CPU.Sockets, &s.CPU.Sockets}, {&is.CPU.Cores, &s.CPU.Cores}, {&is.CPU.Threads, &s.CPU.Threads},
	} {
		if *n.is != 0 && *n.was != 0 {
			*n.is = *n.was
		}
	}

	return is
}

// inBand reports whether the machine itself is among the sources of facts.
func inBand(sources []string) bool {
	return len(sources) == 0 || slices.Contains(sources, SSH) || slices.Contains(sources, Network)
}

// exact tells kinds of disk apart that are the same in short.
func exact(k DiskKind, all ...[]DiskKind) string {
	for _, o := range slices.Concat(all...) {
		if o.Model == k.Model && o.SizeBytes != k.SizeBytes && bytes(o.SizeBytes) == bytes(k.SizeBytes) {
			return fmt.Sprintf(" (%d bytes)", k.SizeBytes)
		}
	}

	return ""
}

// What a difference has for a part that is not there, and for one that an inspection could not find.
const (
	noPart      = "none"
	unknownPart = "unknown"
)

// count writes a number of parts.
func count(n int) string {
	if n == 0 {
		return noPart
	}
	return strconv.Itoa(n)
}

// text compares a text. A class without it takes any.
func (d *shapeDiffer) text(name, is, want string) {
	if want != "" && is != want {
		is = cmp.Or(is, unknownPart)
		d.add(name, is, want, "%s %s, class %s", name, is, want)
	}
}

// number compares a number. A class without it takes any.
func (d *shapeDiffer) number(name string, is, want int) {
	if want != 0 && is != want {
		d.add(name, count(is), count(want), "%d %s, class %d", is, name, want)
	}
}

// dimms compares the memory: the modules by their slots, or else the sum.
func (d *shapeDiffer) dimms(is, want Shape) {
	switch {
	case len(want.Modules) == 0:
		// What the kernel has differs a little between machines with the same modules.
		const share = 20
		if part := want.MemoryMB / share; is.MemoryMB < want.MemoryMB-part || is.MemoryMB > want.MemoryMB+part {
			has, should := mebibytes(is.MemoryMB), mebibytes(want.MemoryMB)
			d.add("memory", has, should, "memory %s, class %s", has, should)
		}
		return
	case len(is.Modules) == 0:
		d.add("memory modules", unknownPart, count(len(want.Modules)), "memory modules unknown, class %d",
			len(want.Modules))
		return
	}

	was, now := map[string]int{}, map[string]int{}
	for _, m := range want.Modules {
		was[m.Slot] = m.SizeMB
	}
	for _, m := range is.Modules {
		now[m.Slot] = m.SizeMB
	}

	slots := maps.Clone(was)
	maps.Copy(slots, now)

	for _, slot := range sortedKeys(slots) {
		size, there := now[slot]
		should, expected := was[slot]

		switch {
		case !there:
			d.add("DIMM "+slot, noPart, mebibytes(should), "DIMM %s missing", slot)
		case !expected:
			d.add("DIMM "+slot, mebibytes(size), noPart, "DIMM %s of %s, class none", slot, mebibytes(size))
		case size != should:
			d.add("DIMM "+slot, mebibytes(size), mebibytes(should), "DIMM %s of %s, class %s", slot, mebibytes(size),
				mebibytes(should))
		}
	}
}

// compareKinds compares numbers of parts by their kind.
func compareKinds[K any](d *shapeDiffer, is, want []K, describe func(K) (kind string, number int)) {
	now, was := map[string]int{}, map[string]int{}
	for _, k := range is {
		kind, number := describe(k)
		now[kind] += number
	}
	for _, k := range want {
		kind, number := describe(k)
		was[kind] += number
	}

	kinds := maps.Clone(was)
	maps.Copy(kinds, now)

	for _, kind := range sortedKeys(kinds) {
		if now[kind] != was[kind] {
			d.add(kind, count(now[kind]), count(was[kind]), "%d %s, class %d", now[kind], kind, was[kind])
		}
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
