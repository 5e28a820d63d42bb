// SPDX-License-Identifier: Apache-2.0

package facts_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/inventory/facts"
)

// TestParseRefuses: what is no facts, or too much, is refused with the reason.
func TestParseRefuses(t *testing.T) {
	t.Parallel()

	const none = "not answered with facts"

	problems := strings.Repeat(`"`+strings.Repeat("y", 240)+`",`, 3000)

	for _, tt := range []struct{ text, want string }{
		{"", none},
		{"bash: warning", none},
		{"[]", none},
		{"{}", "the schema is 0"},
		{`{"schema":1,"cpu":{"cores":-1}}`, "cpu.cores is -1"},
		{`{"schema":1,"disks":[{},{"size_bytes":9007199254740993}]}`, "disks[1].size_bytes is 9007199254740993"},
		{`{"schema":1,"disks":[{"size_bytes":1e30}]}`, none},
		{`{"schema":1,"disks":7}`, none},
		{`{"schema":1,"arch":"` + strings.Repeat("x", facts.MaxOutput) + `"}`, "more than 1048576 bytes"},
		{`{"schema":1,"system":{"tpm":"abc"}}`, "system.tpm"},
		{`{"schema":1,"system":{"tpm":"` + strings.Repeat("a", 62) + `"}}`, "system.tpm"},
		{`{"schema":1,"system":{"tpm":"` + strings.Repeat("z", 64) + `"}}`, "system.tpm"},
		{`{"schema":1,"numa":[` + strings.Repeat(`{},`, 4096) + `{}]}`, "numa has 4097 elements"},
		{`{"schema":1,"problems":[` + problems + `""]}`, "the limit is"},
		{strings.Repeat("[", 100_000), none},
	} {
		_, err := facts.Parse([]byte(tt.text))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.60q: %v, want %q", tt.text, err, tt.want)
		}
	}
}

// TestParseCleans: texts of a machine have neither control characters nor any length, and unknown fields are ignored.
func TestParseCleans(t *testing.T) {
	t.Parallel()

	f, err := facts.Parse([]byte(`{"schema":2,"new":{"deep":[1]},` +
		`"system":{"vendor":"\u001b[2JEvil\nInc\u202e ","serial":"` +
		strings.Repeat("\u00e4", 1000) + `"},"interfaces":[{"name":"eth0\u0000","neighbour":{"port":"\t7\r"}}]}`))
	errtest.None(t, err)

	port := f.Interfaces[0]
	for _, text := range []string{f.System.Vendor, f.System.Serial, port.Name, port.Neighbour.Port} {
		if len(text) > 256 || strings.ContainsAny(text, "\x00\x1b\n\r\t\u202e") {
			t.Errorf("%q is kept", text)
		}
	}

	if !strings.Contains(f.System.Vendor, "Evil Inc") || f.Interfaces[0].Neighbour.Port != "7" {
		t.Errorf("%+v", f)
	}
}

// FuzzParse: what is accepted is accepted again as it is kept, and the same.
func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(`{"schema":1,"disks":[{"name":"\u001b\ud800"}]}`))
	f.Add([]byte(`{"schema":1,"interfaces":[{"neighbour":null}],"pci":[{"numa_node":-1}]}`))

	f.Fuzz(func(t *testing.T, output []byte) {
		first, err := facts.Parse(output)
		if err != nil {
			return
		}

		kept, err := json.Marshal(first)
		errtest.None(t, err)
		second, err := facts.Parse(kept)
		errtest.None(t, err)

		if d := facts.Diff(first, second); len(d) > 0 {
			t.Fatalf("%q: %q", output, d)
		}

		if d := facts.Diff(facts.Facts{}, first); len(d) > 100_000 {
			t.Fatalf("%d differences", len(d))
		}
	})
}

const good = `{"schema":1,"arch":"x86_64",
 "system":{"vendor":"Dell Inc.","product":"R640","serial":"ABC1",
  "tpm":"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"},
 "firmware":{"version":"2.1","boot_mode":"uefi"},
 "os":{"name":"Debian 12","kernel":"6.1.0"},"cpu":{"model":"Xeon","sockets":2,"cores":16,"threads":32},
 "memory":{"total_mb":49152,"modules":[
  {"slot":"A1","size_mb":16384,"speed":2933,"serial":"m1"},{"slot":"A2","size_mb":16384,"serial":"m2"},
  {"slot":"B1","size_mb":16384,"serial":"m3"}]},
 "disks":[{"name":"sda","size_bytes":480103981056,"serial":"d1","path":"pci-1"},
  {"name":"sdb","size_bytes":4000787030016,"serial":"d2","path":"pci-2"}],
 "interfaces":[{"name":"eth0","mac":"52:54:00:00:00:01","carrier":true,"speed_mbps":10000,"pci":"0000:01:00.0",
   "neighbour":{"name":"sw1","chassis":"aa","port":"Eth1/1"}},
  {"name":"eth1","mac":"52:54:00:00:00:02","carrier":true,"speed_mbps":10000,"pci":"0000:01:00.1",
   "neighbour":{"name":"sw1","chassis":"aa","port":"Eth1/2"}}],
 "pci":[{"address":"0000:01:00.0","class":"020000","id":"8086:1572"},
  {"address":"0000:3b:00.0","class":"030200","id":"10de:20b0"},
  {"address":"0000:3c:00.0","class":"030200","id":"10de:20b0"}],
 "bmc":{"address":"127.0.0.9"}}`

// TestDiff: each change is one sentence, and what varies by itself is none.
func TestDiff(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		change func(*facts.Facts)
		want   []string
	}{
		"nothing": {func(*facts.Facts) {}, nil},
		"the kernel names and the order": {func(f *facts.Facts) {
			f.Disks[0].Name, f.Disks[1].Name = "sdb", "sda"
			slices.Reverse(f.Disks)
			f.Interfaces[0].Name, f.Interfaces[1].Name = "eth1", "eth0"
			slices.Reverse(f.Interfaces)
			slices.Reverse(f.Memory.Modules)
			f.PCI[1].Address = "0000:40:00.0"
		}, nil},
		"a module is gone": {func(f *facts.Facts) {
			f.Memory.Modules = f.Memory.Modules[:2]
			f.Memory.TotalMB = 32768
		}, []string{"one DIMM of 16 GiB is gone (B1)"}},
		"two modules are gone": {func(f *facts.Facts) {
			f.Memory.Modules = f.Memory.Modules[:1]
		}, []string{"2 DIMMs of 16 GiB are gone (A2, B1)"}},
		"a module is added": {func(f *facts.Facts) {
			f.Memory.Modules = append(f.Memory.Modules, facts.Module{Slot: "B2", SizeMB: 32768, Serial: "m4"})
		}, []string{"one DIMM of 32 GiB was added (B2)"}},
		"a module is replaced": {func(f *facts.Facts) {
			f.Memory.Modules[1].Serial = "m9"
		}, []string{"the DIMM in A2 was replaced: 16 GiB (serial m9), and it was 16 GiB (serial m2)"}},
		"a module is moved": {func(f *facts.Facts) {
			f.Memory.Modules[2].Slot = "B2"
		}, []string{"the DIMM with the serial number m3 moved from B1 to B2"}},
		"a module runs slower": {func(f *facts.Facts) {
			f.Memory.Modules[0].Speed = 2400
		}, []string{"the DIMM in A1 runs at 2400 MT/s, and ran at 2933"}},
		"free memory, without modules": {func(f *facts.Facts) {
			f.Memory.Modules = nil
			f.Memory.TotalMB -= 100
		}, nil},
		"a disk is added": {func(f *facts.Facts) {
			f.Disks = append(f.Disks, facts.Disk{Name: "sdc", SizeBytes: 480103981056, Serial: "d3"})
		}, []string{"disk sdc of 480 GB (serial d3) was added"}},
		"a disk is gone, and another is where it was": {func(f *facts.Facts) {
			f.Disks[0].Serial, f.Disks[0].SizeBytes = "d8", 960197124096
		}, []string{"disk sda of 480 GB (serial d1) is gone", "disk sda of 960 GB (serial d8) was added"}},
		"a disk is moved": {func(f *facts.Facts) {
			f.Disks[1].Path = "pci-7"
		}, []string{"disk sdb of 4.0 TB (serial d2) moved from pci-2 to pci-7"}},
		"another switch port": {func(f *facts.Facts) {
			f.Interfaces[1].Neighbour = &facts.Neighbour{Name: "sw1", Chassis: "aa", Port: "Eth1/7"}
		}, []string{"eth1 moved to another switch port: sw1 Eth1/7, and it was sw1 Eth1/2"}},
		"another switch": {func(f *facts.Facts) {
			f.Interfaces[1].Neighbour = &facts.Neighbour{Name: "sw2", Chassis: "bb", Port: "Eth1/2"}
		}, []string{"eth1 moved to another switch: sw2 Eth1/2, and it was sw1 Eth1/2"}},
		"no lldpd": {func(f *facts.Facts) {
			f.Interfaces[0].Neighbour, f.Interfaces[1].Neighbour = nil, nil
		}, nil},
		"one neighbour is gone": {func(f *facts.Facts) {
			f.Interfaces[1].Neighbour = nil
		}, []string{"eth1 has no neighbour any more; it was sw1 Eth1/2"}},
		"no link": {func(f *facts.Facts) {
			f.Interfaces[1].Carrier, f.Interfaces[1].SpeedMbps, f.Interfaces[1].Neighbour = false, 0, nil
		}, []string{"eth1 has lost its link"}},
		"a slow link": {func(f *facts.Facts) {
			f.Interfaces[0].SpeedMbps = 1000
		}, []string{"eth0 runs at 1000 Mbit/s, and ran at 10000"}},
		"a network card is replaced": {func(f *facts.Facts) {
			f.Interfaces[0].MAC = "52:54:00:00:00:09"
		}, []string{"the network port eth0 at 0000:01:00.0 was replaced: its MAC is 52:54:00:00:00:09, and was " +
			"52:54:00:00:00:01"}},
		"a network card is gone": {func(f *facts.Facts) {
			f.Interfaces = f.Interfaces[:1]
		}, []string{"the network port eth1 (MAC 52:54:00:00:00:02) is gone"}},
		"a GPU is gone": {func(f *facts.Facts) {
			f.PCI = f.PCI[:2]
		}, []string{"PCI devices 10de:20b0: 1, and there were 2"}},
		"fields": {func(f *facts.Facts) {
			f.System.Serial, f.Firmware.Version, f.OS.Kernel, f.CPU.Sockets, f.BMC.Address = "XYZ", "2.2", "6.12", 1, ""
		}, []string{
			"the serial number was ABC1 and is XYZ", "the version of the firmware was 2.1 and is 2.2",
			"the kernel was 6.1.0 and is 6.12", "processors: 1, and there were 2",
			"the address of the BMC is not known any more; it was 127.0.0.9",
		}},
	} {
		old, err := facts.Parse([]byte(good))
		errtest.None(t, err)
		now, err := facts.Parse([]byte(good))
		errtest.None(t, err)
		tt.change(&now)

		if got := facts.Diff(old, now); !slices.Equal(got, tt.want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
		}
	}
}

// TestDiffOfTwins: parts with the same serial number are counted, and a thousand of them take no time.
func TestDiffOfTwins(t *testing.T) {
	t.Parallel()

	var old, now facts.Facts
	for i := range 4000 {
		d := facts.Disk{Name: fmt.Sprint("sd", i), Serial: "0000", SizeBytes: 1000}
		old.Disks = append(old.Disks, d)
		if i > 0 {
			now.Disks = append(now.Disks, d)
		}
	}

	if got := facts.Diff(old, now); len(got) != 1 || !strings.HasSuffix(got[0], "is gone") {
		t.Errorf("%d: %.200q", len(got), got)
	}
}
