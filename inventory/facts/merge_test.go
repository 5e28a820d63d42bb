// SPDX-License-Identifier: Apache-2.0

package facts_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/inventory/facts"
)

// TestMerge: the machine wins part by part, the BMC fills in what it did not say, and no part is there twice.
func TestMerge(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct{ inBand, outOfBand, want facts.Facts }{
		"nothing of the BMC": {
			facts.Facts{Sources: []string{"ssh"}, Arch: "x86_64"}, facts.Facts{Sources: []string{"redfish"}},
			facts.Facts{Sources: []string{"ssh", "redfish"}, Arch: "x86_64"},
		},
		"fields": {
			facts.Facts{
				System: facts.System{Vendor: "Dell Inc.", Product: "R640"}, CPU: facts.CPU{Model: "Xeon", Threads: 32},
				Firmware: facts.Firmware{BootMode: "bios"}, OS: facts.OS{Kernel: "6.1.0"},
			},
			facts.Facts{
				Arch: "x86_64", System: facts.System{Vendor: "Dell", Serial: "S1", BoardSerial: "B1"},
				CPU:      facts.CPU{Model: "Intel Xeon", Sockets: 2, Threads: 64},
				Firmware: facts.Firmware{BootMode: "uefi", Version: "2.1"},
				BMC:      facts.BMCPort{MAC: "52:54:00:00:00:09"},
			},
			facts.Facts{
				Arch:     "x86_64",
				System:   facts.System{Vendor: "Dell Inc.", Product: "R640", Serial: "S1", BoardSerial: "B1"},
				CPU:      facts.CPU{Model: "Xeon", Sockets: 2, Threads: 32},
				Firmware: facts.Firmware{BootMode: "bios", Version: "2.1"}, OS: facts.OS{Kernel: "6.1.0"},
				BMC: facts.BMCPort{MAC: "52:54:00:00:00:09"},
			},
		},
		"modules of the BMC, with their sum": {
			facts.Facts{Memory: facts.Memory{TotalMB: 32000}},
			facts.Facts{Memory: facts.Memory{TotalMB: 32768, Modules: []facts.Module{{Slot: "A1", SizeMB: 32768}}}},
			facts.Facts{Memory: facts.Memory{TotalMB: 32768, Modules: []facts.Module{{Slot: "A1", SizeMB: 32768}}}},
		},
		"no modules at all": {
			facts.Facts{Memory: facts.Memory{TotalMB: 32000}}, facts.Facts{Memory: facts.Memory{TotalMB: 32768}},
			facts.Facts{Memory: facts.Memory{TotalMB: 32000}},
		},
		"modules by serial number, and by slot": {
			facts.Facts{Memory: facts.Memory{Modules: []facts.Module{
				{Slot: "A1", SizeMB: 1, Serial: "m1"}, {Slot: "A2", SizeMB: 2}, {Slot: "A3", SizeMB: 3},
			}}},
			facts.Facts{Memory: facts.Memory{Modules: []facts.Module{
				{Slot: "a2", SizeMB: 9, Type: "DDR5"}, {Slot: "DIMM.Socket.A1", SizeMB: 9, Part: "M393", Serial: "M1"},
				{Slot: "B1", SizeMB: 9},
			}}},
			facts.Facts{Memory: facts.Memory{Modules: []facts.Module{
				{Slot: "A1", SizeMB: 1, Serial: "m1", Part: "M393"}, {Slot: "A2", SizeMB: 2, Type: "DDR5"},
				{Slot: "A3", SizeMB: 3},
			}}},
		},
		"disks by WWN and serial number, and none behind a RAID controller": {
			facts.Facts{Disks: []facts.Disk{
				{Name: "sda", WWN: "0x5000c500a1b2c3d4"}, {Name: "sdb", Serial: "d2", SizeBytes: 2},
				{Name: "sdc", Model: "PERC"},
			}},
			facts.Facts{Disks: []facts.Disk{
				{Place: "Bay 1", Serial: "D2", SizeBytes: 9, Rotational: true}, {Place: "Bay 2", Serial: "d3"},
				{Place: "Bay 0", WWN: "naa.5000C500A1B2C3D4", Serial: "d1", Model: "ST4000"},
			}},
			facts.Facts{Disks: []facts.Disk{
				{Name: "sda", WWN: "0x5000c500a1b2c3d4", Serial: "d1", Model: "ST4000", Place: "Bay 0"},
				{Name: "sdb", Serial: "d2", SizeBytes: 2, Place: "Bay 1"}, {Name: "sdc", Model: "PERC"},
			}},
		},
		"disks with one serial number": {
			facts.Facts{Disks: []facts.Disk{{Name: "sda", Serial: "0000"}, {Name: "sdb", Serial: "0000"}}},
			facts.Facts{Disks: []facts.Disk{{Place: "Bay 0", Serial: "0000"}}},
			facts.Facts{Disks: []facts.Disk{{Name: "sda", Serial: "0000"}, {Name: "sdb", Serial: "0000"}}},
		},
		"ports by MAC": {
			facts.Facts{Interfaces: []facts.Interface{
				{Name: "eth0", MAC: "52:54:00:00:00:01"}, {Name: "eth1", MAC: "52:54:00:00:00:02"}, {Name: "ib0"},
			}},
			facts.Facts{Interfaces: []facts.Interface{
				{Place: "NIC.1", MAC: "52-54-00-00-00-02", SpeedMbps: 25000, Carrier: true}, {Place: "NIC.2"},
			}},
			facts.Facts{Interfaces: []facts.Interface{
				{Name: "eth0", MAC: "52:54:00:00:00:01"}, {Name: "eth1", MAC: "52:54:00:00:00:02", Place: "NIC.1"},
				{Name: "ib0"},
			}},
		},
		"lists that the machine does not have": {
			facts.Facts{Problems: []string{"the disks: denied"}},
			facts.Facts{
				Disks: []facts.Disk{{Place: "Bay 0", Serial: "d1"}}, Problems: []string{"the memory: 500"},
				Interfaces: []facts.Interface{{Place: "NIC.1", MAC: "52:54:00:00:00:02"}},
			},
			facts.Facts{
				Disks:      []facts.Disk{{Place: "Bay 0", Serial: "d1"}},
				Interfaces: []facts.Interface{{Place: "NIC.1", MAC: "52:54:00:00:00:02"}},
				Problems:   []string{"the disks: denied", "BMC: the memory: 500"},
			},
		},
	} {
		before := [2]string{dump(tt.inBand), dump(tt.outOfBand)}

		if got := facts.Merge(tt.inBand, tt.outOfBand); dump(got) != dump(tt.want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, dump(got), dump(tt.want))
		}

		if after := [2]string{dump(tt.inBand), dump(tt.outOfBand)}; after != before {
			t.Errorf("%s: it has changed the facts that it was given", name)
		}
	}
}

// TestSince: two inspections are compared by what the same source said.
func TestSince(t *testing.T) {
	t.Parallel()

	machine, err := facts.Parse([]byte(good))
	errtest.None(t, err)
	machine.Sources = []string{"ssh"}

	// The BMC has other words for the same parts, knows drives that the machine does not see, and knows no PCI devices.
	console := facts.Facts{
		Schema: 1, Sources: []string{"redfish"}, System: facts.System{Vendor: "Dell", Product: "PowerEdge R640"},
		CPU: facts.CPU{Model: "Intel Xeon", Sockets: 2},
		Memory: facts.Memory{TotalMB: 49152, Modules: []facts.Module{
			{Slot: "DIMM.A1", SizeMB: 16384, Serial: "m1"}, {Slot: "DIMM.A2", SizeMB: 16384, Serial: "m2"},
			{Slot: "DIMM.B1", SizeMB: 16384, Serial: "m3"},
		}},
		Disks: []facts.Disk{{Place: "Bay 0", Serial: "d1"}, {Place: "Bay 5", Serial: "d5"}},
	}

	both := facts.Found{Facts: machine, OutOfBand: &console}
	bySSH, byBMC := facts.Found{Facts: machine}, facts.Found{Facts: console}

	less := console
	less.Memory.Modules = console.Memory.Modules[:2]
	less.Memory.TotalMB = 32768

	lessSeen := machine
	lessSeen.Memory.Modules = slices.Clone(machine.Memory.Modules[1:])

	bothLess := facts.Found{Facts: lessSeen, OutOfBand: &less}

	failed := console
	failed.Memory, failed.Disks = facts.Memory{}, nil
	failed.Problems = []string{"the memory: 500"}

	unknown := bySSH
	unknown.Sources = nil

	const (
		other   = "the inspection before was by ssh, and this one is by redfish: they cannot be compared"
		bySlot  = "one DIMM of 16 GiB is gone (A1)"
		byPlace = "one DIMM of 16 GiB is gone (DIMM.B1)"
	)

	for name, tt := range map[string]struct {
		old, now facts.Found
		want     []string
	}{
		"both, and both":                       {both, both, nil},
		"both, and the BMC":                    {both, byBMC, nil},
		"the BMC, and both":                    {byBMC, both, nil},
		"both, and ssh":                        {both, bySSH, nil},
		"ssh, and both":                        {bySSH, both, nil},
		"ssh, and without a source":            {bySSH, unknown, nil},
		"ssh, and the BMC":                     {bySSH, byBMC, []string{other}},
		"both, and the BMC with a DIMM less":   {both, facts.Found{Facts: less}, []string{byPlace}},
		"both, and both with a DIMM less":      {both, bothLess, []string{bySlot}},
		"both, and ssh with a DIMM less":       {both, facts.Found{Facts: lessSeen}, []string{bySlot}},
		"the BMC, and one that fails to tell":  {byBMC, facts.Found{Facts: failed}, nil},
		"one that failed to tell, and the BMC": {facts.Found{Facts: failed}, byBMC, nil},
	} {
		if got := tt.now.Since(tt.old); !slices.Equal(got, tt.want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
		}
	}

	if m := both.Merged(); !reflect.DeepEqual(m.Sources, []string{"ssh", "redfish"}) || len(m.Disks) != 2 ||
		m.Disks[0].Place != "Bay 0" {
		t.Errorf("merged: %s", dump(m))
	}
}

// dump returns facts as a text that shows every difference.
func dump(f facts.Facts) string {
	b, _ := json.MarshalIndent(f, "", " ")
	return string(b)
}
