// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"slices"
	"strings"
	"testing"
)

// rootDisks are disks as servers have them, not in the order of their names.
var rootDisks = []Disk{
	{Name: "sdb", SizeBytes: 4_000_787_030_016, Vendor: "SEAGATE", Model: "ST4000NM", Serial: "Z1", Rotational: true},
	{
		Name: "sda", SizeBytes: 480_103_981_056, Vendor: "ATA", Model: "SAMSUNG MZ7", Serial: "S1",
		WWN: "0x5002538c40000001", Path: "pci-0000:00:17.0-ata-1",
	},
	{
		Name: "nvme0n1", SizeBytes: 480_103_981_056, Model: "SAMSUNG PM9", Serial: "S2",
		WWN: "0x60000000000000015002538c40000002", Path: "pci-0000:01:00.0-nvme-1",
	},
	{Name: "sdc", SizeBytes: 31_000_000_000, Model: "Stick", Removable: true},
	{Name: "sdd", SizeBytes: 1_000_000_000, Model: "SD card"},
}

func TestRootDevice(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		hints map[string]any
		want  string // the name of a disk, or part of the error
	}{
		{nil, "sda"}, // of the same size as nvme0n1, and in an earlier place
		{map[string]any{"model": "samsung pm9"}, "nvme0n1"},
		{map[string]any{"model": "s== SAMSUNG PM9"}, "nvme0n1"},
		{map[string]any{"model": "<in> samsung"}, "sda"},
		{map[string]any{"model": "<all-in> samsung 9"}, "nvme0n1"},
		{map[string]any{"serial": "<or> X1 <or> Z1"}, "sdb"},
		{map[string]any{"serial": "s!= S1", "rotational": false}, "nvme0n1"}, // sdc has no serial number
		{map[string]any{"rotational": "true"}, "sdb"},
		{map[string]any{"rotational": true, "vendor": "ata"}, "no disk fits the hints rotational=true vendor=ata"},
		{map[string]any{"size": float64(447)}, "sda"}, // GiB, rounded down
		{map[string]any{"size": "448"}, "no disk fits the hint size=448"},
		{map[string]any{"size": ">= 1000"}, "sdb"},
		{map[string]any{"size": ">=1000"}, "sdb"},
		{map[string]any{"size": "= 1000"}, "sdb"}, // at least, in Ironic
		{map[string]any{"size": "< 20"}, "sdd"},
		{map[string]any{"size": "<= 447", "model": "<in> pm"}, "nvme0n1"},
		{map[string]any{"size": "!= 447", "rotational": true}, "sdb"},
		{map[string]any{"size": "<range-in> [ 400 447 ]"}, "sda"},
		{map[string]any{"size": "<range-in> ( 447 500 ]"}, "no disk fits"},
		{map[string]any{"name": "/dev/sdb"}, "sdb"},
		{map[string]any{"name": "sdb"}, "sdb"},
		{map[string]any{"name": "s!= sda", "size": 447}, "nvme0n1"},
		{map[string]any{"by_path": "/dev/disk/by-path/pci-0000:01:00.0-nvme-1"}, "nvme0n1"},
		{map[string]any{"wwn": "0x5002538C40000001"}, "sda"},
		{map[string]any{"wwn": "0x6000000000000001"}, "nvme0n1"},
		{map[string]any{"wwn_with_extension": "0x60000000000000015002538c40000002"}, "nvme0n1"},
		{map[string]any{"hctl": "0:0:0:0"}, "have no hctl"},

		{
			map[string]any{"model": "X"},
			"no disk fits the hint model=X: it has sdb 4.0 TB SEAGATE ST4000NM Z1, sda 480 GB ATA SAMSUNG MZ7 S1",
		},
		{map[string]any{"size": "large"}, `"large" is no number`},
		{map[string]any{"size": ">"}, "nothing follows >"},
		{map[string]any{"size": "<range-in> 1 2"}, "is no range"},
		{map[string]any{"rotational": "perhaps"}, "neither true nor false"},
		{map[string]any{"colour": "red"}, "is no hint"},
		{map[string]any{"model": []any{"x"}}, "neither a text nor a number"},
		{map[string]any{"model": strings.Repeat("x", 300)}, "longer than"},
	} {
		d, err := RootDevice(test.hints, rootDisks)
		if err != nil {
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v: got the error %v, want %s", test.hints, err, test.want)
			}

			continue
		}

		if d.Name != test.want {
			t.Errorf("%v: got %s, want %s", test.hints, d.Name, test.want)
		}
	}

	if _, err := RootDevice(
		map[string]any{"model": "X"},
		nil,
	); err == nil ||
		!strings.Contains(err.Error(), "no disk") {
		t.Errorf("without disks: %v", err)
	}
}

// TestStrategies chooses the same disk in whatever order the kernel has found them, and a hint that finds it again.
func TestStrategies(t *testing.T) {
	t.Parallel()

	for strategy, want := range map[Strategy]string{Smallest: "sda", Largest: "sdb"} {
		disks := slices.Clone(rootDisks)

		for range disks {
			disks = append(disks[1:], disks[0])

			d, err := strategy.Choose(disks)
			if err != nil || d.Name != want {
				t.Errorf("%s: got %s, %v; want %s", strategy, d.Name, err, want)
			}

			again, err := RootDevice(HintsFor(d, disks), disks)
			if err != nil || again != d {
				t.Errorf("%s: the hints %v find %s, %v", strategy, HintsFor(d, disks), again.Name, err)
			}
		}
	}

	if _, err := Largest.Choose(rootDisks[3:]); err == nil || !strings.Contains(err.Error(), "sdc 31 GB Stick") {
		t.Errorf("only a stick and a card: %v", err)
	}

	if hints := HintsFor(Disk{Place: "Bay 0"}, []Disk{{Place: "Bay 0"}, {Place: "Bay 1"}}); hints != nil {
		t.Errorf("a disk that only its BMC names has the hints %v", hints)
	}

	// A serial number that reads as an operator is no hint.
	hostile := []Disk{
		{Name: "sda", SizeBytes: minRoot, Serial: "<in> a"}, {Name: "sdb", SizeBytes: 2 * minRoot, Serial: "ba"},
	}

	for _, d := range hostile {
		if found, err := RootDevice(HintsFor(d, hostile), hostile); err != nil || found != d {
			t.Errorf("%s: the hints %v find %s, %v", d.Name, HintsFor(d, hostile), found.Name, err)
		}
	}
}

// TestDescribeRoot: the disk with the reason, or why there is none.
func TestDescribeRoot(t *testing.T) {
	t.Parallel()

	disks := []Disk{{Name: "sda", SizeBytes: 480e9, Serial: "S1"}, {Place: "Bay 1", SizeBytes: 960e9, Serial: "S2"}}

	for _, test := range []struct {
		hints map[string]any
		want  string
	}{
		{nil, "sda, 480 GB, the smallest disk, without a hint"},
		{map[string]any{"serial": "s2"}, "Bay 1, 960 GB, by the hint serial=s2"},
		{map[string]any{"size": ">= 500", "serial": "S2"}, "Bay 1, 960 GB, by the hints serial=S2 size=>= 500"},
		{map[string]any{"serial": "S9"}, "no disk fits the hint serial=S9: it has sda 480 GB S1, Bay 1 960 GB S2"},
	} {
		if got := DescribeRoot(test.hints, disks); got != test.want {
			t.Errorf("%v: %q, want %q", test.hints, got, test.want)
		}
	}
}
