// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/inventory/facts"
)

func TestMain(m *testing.M) {
	os.Setenv("GHW_DISABLE_WARNINGS", "1") // of what the machines of the tests lack
	os.Exit(m.Run())
}

// machine is the /sys, /proc and /run of a machine: files, and with -> symbolic links.
var machine = map[string]string{
	"etc/os-release":            "PRETTY_NAME=\"Debian GNU/Linux 12\"\nID=debian\n",
	"proc/sys/kernel/osrelease": "6.1.0-18-amd64\n",
	"proc/cpuinfo": "processor\t: 0\nmodel name\t: Xeon 4210\nphysical id\t: 0\ncore id\t: 0\nflags\t: fpu\n\n" +
		"processor\t: 1\nmodel name\t: Xeon 4210\nphysical id\t: 0\ncore id\t: 1\nflags\t: fpu\n\n",
	"proc/meminfo": "MemTotal:       32768000 kB\nMemFree: 1 kB\nHugepagesize: 2048 kB\nHugetlb: 0 kB\n",

	"sys/devices/system/cpu/cpu0/topology/physical_package_id": "0",
	"sys/devices/system/cpu/cpu0/topology/core_id":             "0",
	"sys/devices/system/cpu/cpu1/topology/physical_package_id": "0",
	"sys/devices/system/cpu/cpu1/topology/core_id":             "1",

	"sys/firmware/efi/fw_platform_size": "64",
	"sys/class/dmi/id/sys_vendor":       "Dell Inc.\n",
	"sys/class/dmi/id/product_name":     "PowerEdge R640\n",
	"sys/class/dmi/id/product_serial":   "ABC123\n",
	"sys/class/dmi/id/product_uuid":     "4C4C4544-0000-1000-8000-000000000001\n",
	"sys/class/dmi/id/product_version":  "Not Specified\n",
	"sys/class/dmi/id/bios_version":     "2.10.2\n",
	"sys/class/dmi/id/board_serial":     "CN1\n",

	"sys/devices/pci0/0000:00:1f.2/vendor":                     "0x8086\n",
	"sys/devices/pci0/0000:00:1f.2/device":                     "0xa182\n",
	"sys/devices/pci0/0000:00:1f.2/class":                      "0x010601\n",
	"sys/devices/pci0/0000:00:1f.2/numa_node":                  "1\n",
	"sys/devices/pci0/0000:00:1f.2/driver":                     "-> ../../../bus/pci/drivers/ahci",
	"sys/bus/pci/devices/0000:00:1f.2":                         "-> ../../../devices/pci0/0000:00:1f.2",
	"sys/devices/pci0/0000:00:1f.2/block/sda/size":             "937703088\n",
	"sys/devices/pci0/0000:00:1f.2/block/sda/dev":              "8:0\n",
	"sys/devices/pci0/0000:00:1f.2/block/sda/removable":        "0\n",
	"sys/devices/pci0/0000:00:1f.2/block/sda/queue/rotational": "0\n",
	"sys/devices/pci0/0000:00:1f.2/block/sda/device/vendor":    "ATA     \n",
	"sys/block/sda":                        "-> ../devices/pci0/0000:00:1f.2/block/sda",
	"sys/devices/virtual/block/loop0/size": "1000\n",
	"sys/devices/virtual/block/loop0/dev":  "7:0\n",
	"sys/block/loop0":                      "-> ../devices/virtual/block/loop0",
	"run/udev/data/b8:0": "E:ID_MODEL=SSDSC2KB48\nE:ID_SERIAL_SHORT=BTYF1\nE:ID_WWN=0x5001\n" +
		"E:ID_PATH=pci-0000:00:1f.2-ata-1\n",
	"sys/devices/pci0/0000:01:00.0/subsystem":                          "-> ../../../bus/pci",
	"sys/bus/pci/slots":                                                "",
	"sys/bus/pci/drivers/ixgbe/x":                                      "",
	"sys/devices/pci0/0000:01:00.0/driver":                             "-> ../../../bus/pci/drivers/ixgbe",
	"sys/devices/pci0/0000:01:00.0/net/eth0/mtu":                       "1500",
	"sys/devices/pci0/0000:01:00.0/net/eth0/type":                      "1\n",
	"sys/devices/pci0/0000:01:00.0/net/eth0/address":                   "52:54:00:AA:00:09\n",
	"sys/devices/pci0/0000:01:00.0/net/eth0/bonding_slave/perm_hwaddr": "52:54:00:AA:00:01\n",
	"sys/devices/pci0/0000:01:00.0/net/eth0/carrier":                   "1\n",
	"sys/devices/pci0/0000:01:00.0/net/eth0/speed":                     "10000\n",
	"sys/devices/pci0/0000:01:00.0/net/eth0/device":                    "-> ../../../0000:01:00.0",
	"sys/class/net/eth0":                                               "-> ../../devices/pci0/0000:01:00.0/net/eth0",
	"sys/devices/pci0/0000:02:00.0/subsystem":                          "-> ../../../bus/pci",
	"sys/devices/pci0/0000:02:00.0/virtio0/subsystem":                  "-> ../../../../bus/virtio",
	"sys/bus/virtio/x":                                                 "",
	"sys/devices/pci0/0000:02:00.0/virtio0/net/eth1/type":              "1\n",
	"sys/devices/pci0/0000:02:00.0/virtio0/net/eth1/address":           "52:54:00:aa:00:02\n",
	"sys/devices/pci0/0000:02:00.0/virtio0/net/eth1/speed":             "-1\n",
	"sys/devices/pci0/0000:02:00.0/virtio0/net/eth1/device":            "-> ../../../virtio0",

	"sys/class/net/eth1":                        "-> ../../devices/pci0/0000:02:00.0/virtio0/net/eth1",
	"sys/devices/virtual/net/docker0/type":      "1\n",
	"sys/devices/virtual/net/docker0/address":   "02:42:00:00:00:01\n",
	"sys/devices/virtual/net/docker0/bridge/id": "1",
	"sys/class/net/docker0":                     "-> ../../devices/virtual/net/docker0",
}

// write writes the files of a machine below a new root.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()

	for name, content := range files {
		path := filepath.Join(root, name)
		errtest.None(t, os.MkdirAll(filepath.Dir(path), 0o700))

		if to, link := strings.CutPrefix(content, "-> "); link {
			errtest.None(t, os.Symlink(to, path))
		} else {
			errtest.None(t, os.WriteFile(path, []byte(content), 0o600))
		}
	}

	return root
}

// dimm returns a memory device of SMBIOS 3.
func dimm(slot, serial string, size uint16, extended uint32) string {
	b := make([]byte, 0x22)
	b[0], b[1] = 17, byte(len(b))
	b[0x0c], b[0x0d] = byte(size), byte(size>>8)
	b[0x10], b[0x17], b[0x18], b[0x1a] = 1, 2, 3, 4
	b[0x12] = 0x1a
	b[0x1c], b[0x1d], b[0x1e], b[0x1f] = byte(extended), byte(extended>>8), byte(extended>>16), byte(extended>>24)
	b[0x20], b[0x21] = byte(2933&0xff), byte(2933>>8)

	if serial == "" {
		serial = "Not Specified"
	}

	return string(b) + slot + "\x00Samsung\x00" + serial + "\x00M393\x00\x00"
}

const endOfTable = "\x7f\x04\x00\x00\x00\x00"

// TestCollect finds all parts of a machine, and passes the check of whoever receives them.
func TestCollect(t *testing.T) {
	t.Parallel()

	root := write(t, machine)
	path := filepath.Join(root, "sys/firmware/dmi/tables/DMI")
	errtest.None(t, os.MkdirAll(filepath.Dir(path), 0o700))
	errtest.None(t, os.WriteFile(path, []byte(dimm("A1", "s1", 16384, 0)+dimm("A2", "", 0, 0)+
		dimm("B1", "s2", 0x7fff, 65536)+endOfTable), 0o600))

	got := Collect(t.Context(), root)

	if want := (facts.System{
		Vendor: "Dell Inc.", Product: "PowerEdge R640", Serial: "ABC123", UUID: "4c4c4544-0000-1000-8000-000000000001",
		BoardSerial: "CN1",
	}); got.System != want {
		t.Errorf("system: %+v", got.System)
	}

	if want := (facts.Firmware{Version: "2.10.2", BootMode: "uefi"}); got.Firmware != want {
		t.Errorf("firmware: %+v", got.Firmware)
	}

	if want := (facts.OS{Name: "Debian GNU/Linux 12", ID: "debian", Kernel: "6.1.0-18-amd64"}); got.OS != want {
		t.Errorf("os: %+v", got.OS)
	}

	if want := (facts.CPU{Model: "Xeon 4210", Sockets: 1, Cores: 2, Threads: 2}); got.CPU != want {
		t.Errorf("cpu: %+v", got.CPU)
	}

	module := facts.Module{
		Slot:   "A1",
		SizeMB: 16384,
		Type:   "DDR4",
		Speed:  2933,
		Vendor: "Samsung",
		Part:   "M393",
		Serial: "s1",
	}
	second := module
	second.Slot, second.SizeMB, second.Serial = "B1", 65536, "s2"

	if want := (facts.Memory{TotalMB: 81920, Modules: []facts.Module{module, second}}); !reflect.DeepEqual(
		got.Memory,
		want,
	) {
		t.Errorf("memory: %+v", got.Memory)
	}

	if want := []facts.Disk{{
		Name: "sda", SizeBytes: 480103981056, Vendor: "ATA", Model: "SSDSC2KB48", Serial: "BTYF1", WWN: "0x5001",
		Path: "pci-0000:00:1f.2-ata-1",
	}}; !reflect.DeepEqual(got.Disks, want) {
		t.Errorf("disks: %+v", got.Disks)
	}

	if want := []facts.Interface{{
		Name: "eth0", MAC: "52:54:00:aa:00:01", SpeedMbps: 10000, Carrier: true, PCI: "0000:01:00.0", Driver: "ixgbe",
	}, {
		Name: "eth1", MAC: "52:54:00:aa:00:02", PCI: "0000:02:00.0",
	}}; !reflect.DeepEqual(got.Interfaces, want) {
		t.Errorf("interfaces: %+v", got.Interfaces)
	}

	node := 1
	if want := []facts.PCIDevice{{
		Address: "0000:00:1f.2", Class: "010601", ID: "8086:a182", Driver: "ahci", Node: &node,
	}}; !reflect.DeepEqual(got.PCI, want) {
		t.Errorf("pci: %+v", got.PCI)
	}

	b, err := json.Marshal(got)
	errtest.None(t, err)

	parsed, err := facts.Parse(b)
	if err != nil || !reflect.DeepEqual(parsed, got) {
		t.Errorf("%v\n%+v", err, parsed)
	}
}

// TestDisksWithoutUdev reads serial number and WWN from the device itself, as in the boot environment.
func TestDisksWithoutUdev(t *testing.T) {
	t.Parallel()

	disk := func(name string, more map[string]string) map[string]string {
		files := map[string]string{"size": "2048", "dev": "8:0\n", "device/vendor": "SEAGATE \n"}
		maps.Copy(files, more)

		out := map[string]string{}
		for file, content := range files {
			out["sys/block/"+name+"/"+file] = content
		}
		return out
	}

	for _, c := range []struct {
		files       map[string]string
		serial, wwn string
	}{
		{map[string]string{"device/vpd_pg80": "\x00\x80\x00\x08  ZA1B2C", "device/wwid": "naa.5000c500deadbe01\n"},
			"ZA1B2C", "0x5000c500deadbe01"},
		{map[string]string{"device/vpd_pg80": "\x00\x80", "device/wwid": "t10.ATA     x\n"}, "", ""},
		{map[string]string{"device/serial": "S1\n", "wwid": "eui.0025385\n"}, "S1", "eui.0025385"},
		{map[string]string{"serial": "V1"}, "V1", ""},
	} {
		got := Collect(t.Context(), write(t, disk("sda", c.files)))
		if len(got.Disks) != 1 || got.Disks[0].Serial != c.serial || got.Disks[0].WWN != c.wwn {
			t.Errorf("%q: want %q and %q: %+v", c.files, c.serial, c.wwn, got.Disks)
		}
	}
}

// TestCollectHere: the facts of whatever runs this test are accepted.
func TestCollectHere(t *testing.T) {
	t.Parallel()

	b, err := json.Marshal(Collect(t.Context(), "/"))
	errtest.None(t, err)

	f, err := facts.Parse(b)
	errtest.None(t, err)

	if f.CPU.Threads == 0 || f.Memory.TotalMB == 0 || f.OS.Kernel == "" {
		t.Errorf("%s", b)
	}
}

// TestCollectNothing: a machine without anything has facts, and no panic.
func TestCollectNothing(t *testing.T) {
	t.Parallel()

	for _, table := range []string{
		"", "\x11", dimm("A1", "", 1, 0)[:20], "\x11\x04\x00\x00\x00\x00" + endOfTable, "\x11\xff",
	} {
		root := write(t, map[string]string{"sys/firmware/dmi/tables/DMI": table})
		if f := Collect(t.Context(), root); f.Schema != facts.Schema || len(f.Memory.Modules) > 0 {
			t.Errorf("%q: %+v", table, f)
		}
	}
}

// TestParseLLDP reads an answer of lldpctl 1.0.16.
func TestParseLLDP(t *testing.T) {
	t.Parallel()

	by, err := parseLLDP([]byte(`{"lldp":[{"interface":[{"name":"eth0","via":"LLDP","rid":"1","age":"0 day, 00:00:14",
		"chassis":[{"id":[{"type":"mac","value":"aa:bb:cc:00:00:01"}],"name":[{"value":"sw1"}],
			"descr":[{"value":"Arista"}],
			"capability":[{"type":"Bridge","enabled":true},{"type":"Router","enabled":false}]}],
		"port":[{"id":[{"type":"ifname","value":"Ethernet1/7"}],"descr":[{"value":"rack 3"}],"ttl":[{"value":"120"}]}]},
		{"name":"eth2","chassis":[{"id":[{"type":"mac","value":"aa:bb:cc:00:00:02"}],
			"capability":[{"type":"Bridge","enabled":false},{"type":"Station","enabled":true}]}],
		"port":[{"id":[{"type":"mac","value":"aa:bb:cc:00:00:02"}]}]},
		{"name":"eth1"}]}]}`))
	errtest.None(t, err)

	want := map[string]*facts.Neighbour{
		"eth0": {Name: "sw1", Chassis: "aa:bb:cc:00:00:01", Port: "Ethernet1/7", Description: "rack 3", Forwards: true},
		"eth2": {Chassis: "aa:bb:cc:00:00:02", Port: "aa:bb:cc:00:00:02"},
	}
	if !reflect.DeepEqual(by, want) {
		t.Errorf("%+v", by["eth0"])
	}

	if _, err := parseLLDP([]byte("lldpctl: no")); err == nil {
		t.Error("no JSON is accepted")
	}
}

// TestParseLAN reads an answer of ipmitool lan print.
func TestParseLAN(t *testing.T) {
	t.Parallel()

	got := parseLAN([]byte("Set in Progress         : Set Complete\nIP Address Source       : DHCP Address\n" +
		"IP Address              : 127.0.0.9\nMAC Address             : AA:bb:cc:00:00:02\n"))
	if want := (facts.BMCPort{Address: "127.0.0.9", MAC: "aa:bb:cc:00:00:02"}); got != want {
		t.Errorf("%+v", got)
	}
}
