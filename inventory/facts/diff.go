// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Diff returns what differs in the new facts, as sentences. Parts are matched by what stays with them, such as serial
// numbers and MACs: not by the names of the kernel, which may change with each boot.
func Diff(old, now Facts) []string {
	var d differ

	d.fields(old, now)
	d.memory(old.Memory, now.Memory)

	if told(old, old.Disks) && told(now, now.Disks) {
		d.disks(old.Disks, now.Disks)
	}
	if told(old, old.Interfaces) && told(now, now.Interfaces) {
		d.interfaces(old.Interfaces, now.Interfaces)
	}
	if told(old, old.PCI) && told(now, now.PCI) {
		d.pci(old.PCI, now.PCI)
	}

	return d.said
}

// told reports whether a list of the facts is one. An empty list beside a problem may be what could not be read.
func told[P any](f Facts, list []P) bool { return len(list) > 0 || len(f.Problems) == 0 }

// differ collects sentences.
type differ struct{ said []string }

func (d *differ) say(format string, args ...any) {
	d.said = append(d.said, fmt.Sprintf(format, args...))
}

// fields compares the facts of which there is one.
func (d *differ) fields(old, now Facts) {
	texts := func(what, was, is string) {
		switch {
		case was == is:
		case was == "":
			d.say("%s is known now: %s", what, is)
		case is == "":
			d.say("%s is not known any more; it was %s", what, was)
		default:
			d.say("%s was %s and is %s", what, was, is)
		}
	}
	numbers := func(what string, was, is int) {
		if was != is {
			d.say("%s: %d, and there were %d", what, is, was)
		}
	}

	texts("the architecture", old.Arch, now.Arch)
	texts("the vendor", old.System.Vendor, now.System.Vendor)
	texts("the product", old.System.Product, now.System.Product)
	texts("the serial number", old.System.Serial, now.System.Serial)
	texts("the UUID", old.System.UUID, now.System.UUID)
	texts("the endorsement key of the TPM", old.System.TPM, now.System.TPM)
	texts("the serial number of the mainboard", old.System.BoardSerial, now.System.BoardSerial)
	texts("the version of the firmware", old.Firmware.Version, now.Firmware.Version)
	texts("the boot mode", old.Firmware.BootMode, now.Firmware.BootMode)
	texts("the operating system", old.OS.Name, now.OS.Name)
	texts("the kernel", old.OS.Kernel, now.OS.Kernel)
	texts("the processor", old.CPU.Model, now.CPU.Model)
	numbers("processors", old.CPU.Sockets, now.CPU.Sockets)
	numbers("cores", old.CPU.Cores, now.CPU.Cores)
	numbers("threads", old.CPU.Threads, now.CPU.Threads)
	numbers("NUMA nodes", len(old.NUMA), len(now.NUMA))
	texts("the address of the BMC", old.BMC.Address, now.BMC.Address)
	texts("the MAC of the BMC", old.BMC.MAC, now.BMC.MAC)
}

// memory compares memory by its modules, or else by its size.
func (d *differ) memory(old, now Memory) {
	if len(old.Modules) == 0 || len(now.Modules) == 0 {
		// A kernel keeps a little for itself, and not always the same.
		diff := now.TotalMB - old.TotalMB
		if old.TotalMB > 0 && now.TotalMB > 0 && max(diff, -diff) > old.TotalMB/50 {
			d.say("the memory was %s and is %s", mebibytes(old.TotalMB), mebibytes(now.TotalMB))
		}

		return
	}

	was, is := byKey(old.Modules, Module.key), byKey(now.Modules, Module.key)

	// A module may have moved to another slot.
	bySerial := map[string]string{}
	for slot, m := range is {
		if _, stays := was[slot]; m.Serial != "" && !stays {
			bySerial[m.Serial] = slot
		}
	}

	gone, added := map[string][]string{}, map[string][]string{}

	for _, slot := range slices.Sorted(maps.Keys(was)) {
		before := was[slot]
		after, stays := is[slot]
		to, moved := bySerial[before.Serial]

		switch {
		case !stays && before.Serial != "" && moved:
			d.say("the DIMM with the serial number %s moved from %s to %s", before.Serial, slot, to)
			delete(is, to)
			delete(bySerial, before.Serial)
		case !stays:
			size := mebibytes(before.SizeMB)
			gone[size] = append(gone[size], slot)
		case before.SizeMB != after.SizeMB, before.Serial != after.Serial, before.Part != after.Part:
			d.say("the DIMM in %s was replaced: %s, and it was %s", slot, module(after), module(before))
		case before.Speed != after.Speed && before.Speed > 0 && after.Speed > 0:
			d.say("the DIMM in %s runs at %d MT/s, and ran at %d", slot, after.Speed, before.Speed)
		}
	}

	for _, slot := range slices.Sorted(maps.Keys(is)) {
		if _, known := was[slot]; !known {
			size := mebibytes(is[slot].SizeMB)
			added[size] = append(added[size], slot)
		}
	}

	d.modules(gone, "is gone", "are gone")
	d.modules(added, "was added", "were added")
}

// modules says what happened to modules, by their sizes.
func (d *differ) modules(bySize map[string][]string, one, many string) {
	for _, size := range slices.Sorted(maps.Keys(bySize)) {
		slots := bySize[size]
		if len(slots) == 1 {
			d.say("one DIMM of %s %s (%s)", size, one, slots[0])
			continue
		}

		d.say("%d DIMMs of %s %s (%s)", len(slots), size, many, strings.Join(slots, ", "))
	}
}

// key returns the slot of a module.
func (m Module) key() string { return cmp.Or(m.Slot, "an unnamed slot") }

func module(m Module) string { return m.Size() + serial(m.Serial) }

// disks compares disks.
func (d *differ) disks(old, now []Disk) {
	was, is := byKey(old, Disk.key), byKey(now, Disk.key)

	for _, key := range slices.Sorted(maps.Keys(was)) {
		before := was[key]
		after, stays := is[key]

		switch {
		case !stays:
			d.say("disk %s is gone", before)
		case before.SizeBytes != after.SizeBytes:
			d.say("disk %s had %s", after, bytes(before.SizeBytes))
		case before.Path != "" && after.Path != "" && before.Path != after.Path:
			d.say("disk %s moved from %s to %s", after, before.Path, after.Path)
		}
	}

	for _, key := range slices.Sorted(maps.Keys(is)) {
		if _, known := was[key]; !known {
			d.say("disk %s was added", is[key])
		}
	}
}

// key returns what stays with a disk.
func (d Disk) key() string { return cmp.Or(d.WWN, d.Serial, d.Path, d.Place, d.Name) }

// Label returns the name of the kernel, or else the one that the BMC has for it.
func (d Disk) Label() string { return cmp.Or(d.Name, d.Place) }

// String describes a disk as a person would.
func (d Disk) String() string {
	s := d.Label() + " of " + bytes(d.SizeBytes)
	if d.Serial == "" && d.WWN != "" {
		return s + " (WWN " + d.WWN + ")"
	}
	return s + serial(d.Serial)
}

// interfaces compares network ports.
func (d *differ) interfaces(old, now []Interface) {
	was, is := byKey(old, Interface.key), byKey(now, Interface.key)
	byDevice := map[string]string{} // new MACs by the device

	for key, i := range is {
		if _, known := was[key]; !known && i.PCI != "" {
			byDevice[i.PCI] = key
		}
	}

	// Without lldpd no port has a neighbour.
	sees := slices.ContainsFunc(now, func(i Interface) bool { return i.Neighbour != nil })

	for _, key := range slices.Sorted(maps.Keys(was)) {
		before := was[key]
		after, stays := is[key]
		other, replaced := byDevice[before.PCI]

		switch {
		case stays:
			d.link(before, after, sees)
		case before.PCI != "" && replaced:
			d.say("the network port %s at %s was replaced: its MAC is %s, and was %s", is[other].Label(), before.PCI,
				is[other].MAC, before.MAC)
			delete(is, other)
		default:
			d.say("the network port %s%s is gone", before.Label(), mac(before.MAC))
		}
	}

	for _, key := range slices.Sorted(maps.Keys(is)) {
		if _, known := was[key]; !known {
			d.say("the network port %s%s was added", is[key].Label(), mac(is[key].MAC))
		}
	}
}

// link compares the link of a network port. sees: some port has a neighbour.
func (d *differ) link(before, after Interface, sees bool) {
	switch {
	case before.Carrier && !after.Carrier:
		d.say("%s has lost its link", after.Label())
		return
	case !before.Carrier && after.Carrier:
		d.say("%s has a link now", after.Label())
	case before.SpeedMbps != after.SpeedMbps && before.SpeedMbps > 0 && after.SpeedMbps > 0:
		d.say("%s runs at %d Mbit/s, and ran at %d", after.Label(), after.SpeedMbps, before.SpeedMbps)
	}

	switch from, to := before.Neighbour, after.Neighbour; {
	case from == nil || to == nil && !sees:
	case to == nil:
		d.say("%s has no neighbour any more; it was %s", after.Label(), from)
	case from.Chassis != to.Chassis || from.Chassis == "" && from.Name != to.Name:
		d.say("%s moved to another switch: %s, and it was %s", after.Label(), to, from)
	case from.Port != to.Port:
		d.say("%s moved to another switch port: %s, and it was %s", after.Label(), to, from)
	}
}

// key returns what stays with a network port.
func (i Interface) key() string { return cmp.Or(i.MAC, i.PCI, i.Place, i.Name) }

// Label returns the name of the kernel, or else the one that the BMC has for it.
func (i Interface) Label() string { return cmp.Or(i.Name, i.Place) }

// String describes a neighbour as a person would.
func (n *Neighbour) String() string {
	return strings.TrimSpace(cmp.Or(n.Name, n.Chassis) + " " + n.Port)
}

// pci compares the numbers of devices of each kind: their addresses shift when a device is added. Network ports are
// compared by their MACs.
func (d *differ) pci(old, now []PCIDevice) {
	was, is := byID(old), byID(now)

	kinds := maps.Clone(was)
	maps.Copy(kinds, is)

	for _, id := range slices.Sorted(maps.Keys(kinds)) {
		before, after := len(was[id]), len(is[id])

		switch {
		case before > after:
			d.say("PCI devices %s: %d, and there were %d", id, after, before)
		case before < after:
			d.say("PCI devices %s: %d, and there were %d (now at %s)", id, after, before, shortList(is[id]))
		}
	}
}

// classNetwork begins the class of network ports.
const classNetwork = "02"

// byID returns the addresses of devices by their kind.
func byID(all []PCIDevice) map[string][]string {
	by := map[string][]string{}

	for _, p := range all {
		if !strings.HasPrefix(p.Class, classNetwork) {
			by[p.ID] = append(by[p.ID], p.Address)
		}
	}

	return by
}

// shortList joins addresses, and counts those beyond a few.
func shortList(all []string) string {
	const most = 4
	if len(all) <= most {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
}

// byKey returns parts by what stays with them. Vendors may give several parts the same serial number, or slot.
func byKey[T any](all []T, key func(T) string) map[string]T {
	by, count := make(map[string]T, len(all)), map[string]int{}

	for _, part := range all {
		k := key(part)
		if count[k]++; count[k] > 1 {
			k = fmt.Sprintf("%s #%d", k, count[k])
		}

		by[k] = part
	}

	return by
}

func serial(s string) string {
	if s == "" {
		return ""
	}
	return " (serial " + s + ")"
}

func mac(s string) string {
	if s == "" {
		return ""
	}
	return " (MAC " + s + ")"
}

// Size returns the size as a person would write it.
func (m Memory) Size() string { return mebibytes(m.TotalMB) }

// Size returns the size as a person would write it.
func (m Module) Size() string { return mebibytes(m.SizeMB) }

// Size returns the size in the units of vendors.
func (d Disk) Size() string { return bytes(d.SizeBytes) }

// mebibytes writes a size of memory.
func mebibytes(n int) string {
	if n >= 1024 && n%1024 == 0 {
		return fmt.Sprintf("%d GiB", n/1024)
	}
	return fmt.Sprintf("%d MiB", n)
}

// bytes writes the size of a disk in the units of vendors.
func bytes(n int) string {
	const kilo = 1000

	units := []string{"B", "kB", "MB", "GB", "TB", "PB"}
	size, unit := float64(n), 0
	for size >= kilo && unit < len(units)-1 {
		size /= kilo
		unit++
	}

	if size < 10 && unit > 0 {
		return fmt.Sprintf("%.1f %s", size, units[unit])
	}
	return fmt.Sprintf("%.0f %s", size, units[unit])
}
