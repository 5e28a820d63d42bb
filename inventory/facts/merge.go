// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Found is what an inspection has found. What the machine and its BMC said is kept apart, because two inspections are
// compared by what the same source said: vendors name the same part in several ways.
type Found struct {
	Facts // of the machine, or else of its BMC

	OutOfBand *Facts `json:"out_of_band,omitempty"` // of the BMC, if the machine has answered as well
}

// Merged returns the facts of all sources as one.
func (f Found) Merged() Facts {
	if f.OutOfBand == nil {
		return f.Facts
	}
	return Merge(f.Facts, *f.OutOfBand)
}

// Since returns what differs from an earlier inspection, as sentences. What only one of the two could know is not
// compared.
func (f Found) Since(old Found) []string {
	was, is := old.bySource(), f.bySource()

	if sameKeys(was, is) {
		return Diff(old.Merged(), f.Merged())
	}

	for _, source := range []string{SSH, Redfish} {
		before, there := was[source]
		after, stays := is[source]

		if there && stays {
			return Diff(before, after)
		}
	}

	return []string{fmt.Sprintf("the inspection before was by %s, and this one is by %s: they cannot be compared",
		strings.Join(sortedKeys(was), " and "), strings.Join(sortedKeys(is), " and "))}
}

// bySource returns the facts by their source. Those without one are of the machine.
func (f Found) bySource() map[string]Facts {
	all := map[string]Facts{SSH: f.Facts}
	if !inBand(f.Sources) {
		all = map[string]Facts{Redfish: f.Facts}
	}

	if f.OutOfBand != nil {
		all[Redfish] = *f.OutOfBand
	}

	return all
}

func sameKeys[V any](a, b map[string]V) bool { return slices.Equal(sortedKeys(a), sortedKeys(b)) }

// Merge returns the facts of a machine, with what its BMC knows besides. A list of the machine is whole: the BMC adds
// no parts to it, because the drives behind a RAID controller are no disks of the machine, but it fills in what is
// missing of the same parts. Only a list that the machine does not have is that of the BMC.
func Merge(inBand, outOfBand Facts) Facts {
	m := inBand
	m.Sources = slices.Concat(inBand.Sources, outOfBand.Sources)

	m.Arch = cmp.Or(inBand.Arch, outOfBand.Arch)
	fill(&m.System, outOfBand.System)
	fill(&m.Firmware, outOfBand.Firmware)
	fill(&m.CPU, outOfBand.CPU)
	fill(&m.BMC, outOfBand.BMC)

	// The sum of the modules is better than what the kernel has.
	if len(inBand.Memory.Modules) == 0 && (len(outOfBand.Memory.Modules) > 0 || inBand.Memory.TotalMB == 0) {
		m.Memory.TotalMB = cmp.Or(outOfBand.Memory.TotalMB, inBand.Memory.TotalMB)
	}

	m.Memory.Modules = mergeParts(inBand.Memory.Modules, outOfBand.Memory.Modules,
		func(p Module) []string { return []string{identity(p.Serial), identity(p.Slot)} },
		func(to *Module, from Module) {
			slot := to.Slot
			fill(to, from)
			to.Slot = slot
		})

	m.Disks = mergeParts(inBand.Disks, outOfBand.Disks,
		func(d Disk) []string { return []string{identity(d.WWN), identity(d.Serial)} },
		func(to *Disk, from Disk) {
			to.SizeBytes = cmp.Or(to.SizeBytes, from.SizeBytes)
			to.Vendor, to.Model = cmp.Or(to.Vendor, from.Vendor), cmp.Or(to.Model, from.Model)
			to.Serial, to.WWN = cmp.Or(to.Serial, from.Serial), cmp.Or(to.WWN, from.WWN)
			to.Place = cmp.Or(to.Place, from.Place)
		})

	m.Interfaces = mergeParts(inBand.Interfaces, outOfBand.Interfaces,
		func(i Interface) []string { return []string{identity(i.MAC)} },
		func(to *Interface, from Interface) { to.Place = cmp.Or(to.Place, from.Place) })

	m.Problems = slices.Clone(inBand.Problems)
	for _, p := range outOfBand.Problems {
		m.Problems = append(m.Problems, "BMC: "+p)
	}

	return m
}

// fill sets the fields of a struct that are zero.
func fill[T any](to *T, from T) {
	t, f := reflect.ValueOf(to).Elem(), reflect.ValueOf(from)
	for i := range t.NumField() {
		if t.Field(i).IsZero() {
			t.Field(i).Set(f.Field(i))
		}
	}
}

// identity returns a name of a part as all sources write it.
func identity(name string) string {
	name = strings.ToLower(name)
	for _, prefix := range []string{"0x", "naa.", "eui.", "wwn-"} {
		name = strings.TrimPrefix(name, prefix)
	}

	return strings.NewReplacer(":", "", "-", "", " ", "").Replace(name)
}

// mergeParts returns the parts of the machine, each with what the BMC knows of the same one, or else those of the BMC.
// names returns what identifies a part, the most certain first. A name that several parts have identifies none.
func mergeParts[P any](own, other []P, names func(P) []string, add func(to *P, from P)) []P {
	if len(own) == 0 {
		return slices.Clone(other)
	}

	is, has := indexes(own, names), indexes(other, names)
	merged := slices.Clone(own)

	for i := range merged {
		for at, name := range names(merged[i]) {
			key := partName{at, name}
			if name != "" && len(is[key]) == 1 && len(has[key]) == 1 {
				add(&merged[i], other[has[key][0]])
				break
			}
		}
	}

	return merged
}

// partName is a name of a part, with its kind: its place among the names.
type partName struct {
	kind int
	name string
}

// indexes returns the indexes of parts by their names.
func indexes[P any](parts []P, names func(P) []string) map[partName][]int {
	by := map[partName][]int{}
	for i, p := range parts {
		for kind, name := range names(p) {
			by[partName{kind, name}] = append(by[partName{kind, name}], i)
		}
	}

	return by
}
