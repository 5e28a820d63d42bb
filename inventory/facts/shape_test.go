// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"fmt"
	"slices"
	"testing"
)

// TestDifferences: each part that differs from the class is one difference, and what has no part in the shape is none.
func TestDifferences(t *testing.T) {
	t.Parallel()

	good := func() Facts {
		f := Facts{
			System: System{Vendor: "Dell Inc.", Product: "R640", Serial: "A"},
			Firmware: Firmware{
				Version:  "1.4",
				BootMode: "uefi",
			},
			CPU:    CPU{Model: "Gold", Sockets: 2, Cores: 20, Threads: 40},
			Memory: Memory{TotalMB: 65536},
			PCI:    []PCIDevice{{Address: "1", ID: "10de:20b0"}, {Address: "2", ID: "10de:20b0"}},
		}
		for i := range 4 {
			f.Memory.Modules = append(
				f.Memory.Modules,
				Module{Slot: fmt.Sprint("B", i), SizeMB: 16384, Serial: fmt.Sprint(i)},
			)
			f.Disks = append(
				f.Disks,
				Disk{Name: fmt.Sprint("sd", i), Model: "M", SizeBytes: 480e9, Serial: fmt.Sprint(i)},
			)
		}
		f.Interfaces = []Interface{{Name: "eth0", Driver: "ixgbe"}, {Name: "eth1", Driver: "ixgbe"}}

		return f
	}
	shape := ShapeOf(good())

	for name, c := range map[string]struct {
		change func(*Facts)
		want   []string
	}{
		"the same": {func(*Facts) {}, nil},
		"another machine of the kind": {func(f *Facts) {
			f.System.Serial, f.Disks[0].Serial, f.Disks[0].Name, f.Memory.Modules[0].Serial = "B", "x", "sdx", "y"
			f.Interfaces[0].MAC, f.Interfaces[1].Name, f.Memory.TotalMB = "z", "lan", 64000
			slices.Reverse(f.Disks)
			slices.Reverse(f.Memory.Modules)
		}, nil},
		"a stick is left in": {func(f *Facts) { f.Disks = append(f.Disks, Disk{Name: "sdz", Removable: true}) }, nil},
		"a module is gone": {
			func(f *Facts) { f.Memory.Modules = slices.Delete(f.Memory.Modules, 3, 4) }, []string{"DIMM B3 missing"},
		},
		"a module moved": {
			func(f *Facts) { f.Memory.Modules[3].Slot = "B9" },
			[]string{"DIMM B3 missing", "DIMM B9 of 16 GiB, class none"},
		},
		"a smaller module": {
			func(f *Facts) { f.Memory.Modules[1].SizeMB = 8192 }, []string{"DIMM B1 of 8 GiB, class 16 GiB"},
		},
		"modules unknown": {func(f *Facts) { f.Memory.Modules = nil }, []string{"memory modules unknown, class 4"}},
		"an older BIOS":   {func(f *Facts) { f.Firmware.Version = "1.2" }, []string{"BIOS 1.2, class 1.4"}},
		"another kind of disk": {
			func(f *Facts) { f.Disks[0].SizeBytes = 960e9 },
			[]string{"3 disks of 480 GB M, class 4", "1 disks of 960 GB M, class 0"},
		},
		"a card is gone": {func(f *Facts) { f.PCI = f.PCI[:1] }, []string{"1 PCI devices 10de:20b0, class 2"}},
		"a port is gone": {
			func(f *Facts) { f.Interfaces = f.Interfaces[:1] },
			[]string{"1 network ports with the driver ixgbe, class 2"},
		},
		"a BMC has other words": {
			func(f *Facts) {
				*f = Facts{
					Sources: []string{Redfish}, System: System{Vendor: "Dell"}, CPU: CPU{Model: "Xeon", Sockets: 2},
					Memory: Memory{TotalMB: 65536, Modules: []Module{{Slot: "DIMM.B0", SizeMB: 65536}}},
					Disks:  []Disk{{Place: "Bay 0", Model: "M480"}},
				}
			}, nil,
		},
		"a BMC has other numbers": {
			func(f *Facts) {
				*f = Facts{Sources: []string{Redfish}, CPU: CPU{Sockets: 1, Cores: 20}, Memory: Memory{TotalMB: 32768}}
			}, []string{"1 processors, class 2", "memory 32 GiB, class 64 GiB"},
		},
		"several": {
			func(f *Facts) { f.CPU.Threads, f.Firmware.BootMode = 20, "bios" },
			[]string{"20 threads, class 40", "boot mode bios, class uefi"},
		},
	} {
		f := good()
		c.change(&f)

		if got := shape.Differences(f); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}

	var huge Facts
	for i := range 4000 {
		huge.Memory.Modules = append(huge.Memory.Modules, Module{Slot: fmt.Sprint("X", i)})
	}

	if n := len(shape.Differences(huge)); n != 51 {
		t.Errorf("%d differences", n)
	}

	// Without modules in the class, the memory of the kernel is compared with a margin.
	loose := Shape{MemoryMB: 64000}
	for total, want := range map[int]int{64000: 0, 62000: 0, 66000: 0, 48000: 1, 96000: 1} {
		if got := loose.Differences(Facts{Memory: Memory{TotalMB: total}}); len(got) != want {
			t.Errorf("%d MiB: %q", total, got)
		}
	}
}

// TestCompare: a difference has both sides, and none is left out.
func TestCompare(t *testing.T) {
	t.Parallel()

	class := Facts{Firmware: Firmware{Version: "1.4"}, CPU: CPU{Cores: 20}}
	for i := range 60 {
		class.Memory.Modules = append(class.Memory.Modules, Module{Slot: fmt.Sprintf("B%02d", i), SizeMB: 16384})
	}

	is := Facts{CPU: CPU{Cores: 18}, Memory: Memory{Modules: []Module{{Slot: "X1", SizeMB: 8192}}}}

	all := ShapeOf(class).Compare(is)
	if len(all) != 63 {
		t.Fatalf("%d differences: %v", len(all), all)
	}

	for at, want := range map[int]Difference{
		0:  {"cores", "20", "18", "18 cores, class 20"},
		1:  {"DIMM B00", "16 GiB", "none", "DIMM B00 missing"},
		61: {"DIMM X1", "none", "8 GiB", "DIMM X1 of 8 GiB, class none"},
		62: {"BIOS", "1.4", "unknown", "BIOS unknown, class 1.4"},
	} {
		if all[at] != want {
			t.Errorf("%d: %+v, want %+v", at, all[at], want)
		}
	}

	if short := ShapeOf(class).Differences(is); len(short) != 51 || short[50] != "and 13 more" {
		t.Errorf("%q", short)
	}
}
