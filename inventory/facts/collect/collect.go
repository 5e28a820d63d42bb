// SPDX-License-Identifier: Apache-2.0

// Package collect finds the facts of the machine that it runs on: by ghw, and from /sys what that lacks. It changes
// nothing, and needs root for serial numbers and memory modules.
package collect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/digitalocean/go-smbios/smbios"
	"github.com/jaypipes/ghw/pkg/baseboard"
	"github.com/jaypipes/ghw/pkg/bios"
	"github.com/jaypipes/ghw/pkg/block"
	"github.com/jaypipes/ghw/pkg/cpu"
	"github.com/jaypipes/ghw/pkg/memory"
	"github.com/jaypipes/ghw/pkg/option"
	"github.com/jaypipes/ghw/pkg/product"
	"github.com/jaypipes/ghw/pkg/topology"

	"github.com/contiv/cluster/inventory/facts"
)

// Collect returns the facts below a root directory: / for those of this machine. A part that cannot be read is left
// out, and named among the problems.
func Collect(ctx context.Context, root string) facts.Facts {
	c := collector{root: root, facts: facts.Facts{Schema: facts.Schema, Arch: arch()}}

	c.part("the system", c.system)
	c.part("the operating system", c.os)
	c.part("the processors", c.cpu)
	c.part("the memory", c.memory)
	c.part("the memory modules", c.modules)
	c.part("the NUMA nodes", c.numa)
	c.part("the disks", c.disks)
	c.part("the PCI devices", c.pci)
	c.part("the network ports", c.interfaces)
	c.part("the neighbours of the network ports", func() error { return c.neighbours(ctx) })
	c.part("the BMC", func() error { return c.bmc(ctx) })
	c.part("the TPM", func() error { return c.tpm(ctx) })

	return c.facts
}

type collector struct {
	root  string
	facts facts.Facts
}

// part collects one part. Hardware is full of surprises, so a panic costs that part alone.
func (c *collector) part(name string, collect func() error) {
	defer func() {
		if p := recover(); p != nil {
			c.problem(name, fmt.Errorf("%v", p))
		}
	}()

	// What a machine does not have is no problem.
	if err := collect(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.problem(name, err)
	}
}

func (c *collector) problem(part string, err error) {
	c.facts.Problems = append(c.facts.Problems, part+": "+err.Error())
}

// arch returns the architecture as uname -m prints it.
func arch() string {
	switch runtime.GOARCH {
	case "amd64":
		return "x86_64"
	case "arm64":
		return "aarch64"
	default:
		return runtime.GOARCH
	}
}

// options are those of ghw. It runs no programs.
func (c *collector) options() (root, noTools any) {
	return option.WithChroot(c.root), option.WithDisableTools()
}

func (c *collector) path(path string) string { return filepath.Join(c.root, path) }

// read returns the text of a small file without the space around it; "" if it cannot be read.
func (c *collector) read(path ...string) string {
	b, err := os.ReadFile(c.path(filepath.Join(path...)))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// number is read for a number; 0 for anything that is not positive.
func (c *collector) number(path ...string) int {
	n, err := strconv.Atoi(c.read(path...))
	if err != nil {
		return 0
	}
	return max(n, 0)
}

// link returns the last part of the destination of a symbolic link, or "".
func (c *collector) link(path ...string) string {
	to, err := os.Readlink(c.path(filepath.Join(path...)))
	if err != nil {
		return ""
	}
	return filepath.Base(to)
}

func (c *collector) exists(path ...string) bool {
	_, err := os.Stat(c.path(filepath.Join(path...)))
	return err == nil
}

// names returns the names in a directory, in order.
func (c *collector) names(path string) ([]string, error) {
	entries, err := os.ReadDir(c.path(path))
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}

	return names, err
}

func (c *collector) system() error {
	if p, err := product.New(c.options()); err == nil {
		c.facts.System = facts.System{
			Vendor: facts.Known(p.Vendor), Product: facts.Known(p.Name), Version: facts.Known(p.Version),
			Serial: facts.Known(p.SerialNumber), UUID: strings.ToLower(facts.Known(p.UUID)),
		}
	}

	if b, err := baseboard.New(c.options()); err == nil {
		s := &c.facts.System
		s.BoardVendor, s.BoardProduct = facts.Known(b.Vendor), facts.Known(b.Product)
		s.BoardSerial = facts.Known(b.SerialNumber)
	}

	if b, err := bios.New(c.options()); err == nil {
		f := &c.facts.Firmware
		f.Vendor, f.Version, f.Date = facts.Known(b.Vendor), facts.Known(b.Version), facts.Known(b.Date)
	}

	switch {
	case c.exists("sys/firmware/efi"):
		c.facts.Firmware.BootMode = "uefi"
	case c.facts.Arch == "x86_64":
		c.facts.Firmware.BootMode = "bios"
	}

	if _, err := os.ReadFile(c.path("sys/class/dmi/id/product_serial")); errors.Is(err, fs.ErrPermission) {
		return errors.New("only root can read the serial numbers")
	}

	return nil
}

func (c *collector) os() error {
	c.facts.OS.Kernel = c.read("proc/sys/kernel/osrelease")

	release := c.read("etc/os-release")
	if release == "" {
		release = c.read("usr/lib/os-release")
	}

	for line := range strings.Lines(release) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")

		switch value = strings.Trim(value, `"'`); name {
		case "PRETTY_NAME":
			c.facts.OS.Name = value
		case "ID":
			c.facts.OS.ID = value
		}
	}

	return nil
}

func (c *collector) cpu() error {
	info, err := cpu.New(c.options())
	if err != nil {
		return err
	}

	found := &c.facts.CPU
	found.Sockets, found.Cores, found.Threads = len(
		info.Processors,
	), int(
		info.TotalCores,
	), int(
		info.TotalHardwareThreads,
	)
	for _, p := range info.Processors {
		if found.Model = facts.Known(p.Model); found.Model != "" {
			break
		}
	}

	return nil
}

func (c *collector) memory() error {
	m, err := memory.New(c.options())
	if err == nil {
		c.facts.Memory.TotalMB = int(max(m.TotalPhysicalBytes, 0) >> 20)
	}
	return err
}

// modules reads the memory modules of SMBIOS (structures of type 17, chapter 7.18 of DSP0134).
func (c *collector) modules() error {
	table, err := os.Open(c.path("sys/firmware/dmi/tables/DMI"))
	if err != nil {
		return err
	}
	defer table.Close()

	structures, err := smbios.NewDecoder(table).Decode()
	if err != nil {
		return err
	}

	sum := 0

	for _, s := range structures {
		const memoryDevice = 17
		if s.Header.Type != memoryDevice {
			continue
		}

		if m := moduleOf(structure{s}); m.SizeMB > 0 {
			c.facts.Memory.Modules = append(c.facts.Memory.Modules, m)
			sum += m.SizeMB
		}
	}

	if sum > 0 {
		c.facts.Memory.TotalMB = sum
	}

	return nil
}

// structure reads the fields of an SMBIOS structure at the offsets of the standard; zero beyond its end.
type structure struct{ *smbios.Structure }

const headerLength = 4

func (s structure) byte(at int) int {
	if at -= headerLength; at >= 0 && at < len(s.Formatted) {
		return int(s.Formatted[at])
	}
	return 0
}

func (s structure) word(at int) int { return s.byte(at) | s.byte(at+1)<<8 }

func (s structure) text(at int) string {
	if n := s.byte(at); n > 0 && n <= len(s.Strings) {
		return facts.Known(s.Strings[n-1])
	}
	return ""
}

// memoryTypes are the types of modules that machines of today have.
var memoryTypes = map[int]string{
	0x0f: "SDRAM", 0x12: "DDR", 0x13: "DDR2", 0x18: "DDR3", 0x1a: "DDR4", 0x1b: "LPDDR", 0x1c: "LPDDR2", 0x1d: "LPDDR3",
	0x1e: "LPDDR4", 0x1f: "NVDIMM", 0x20: "HBM", 0x21: "HBM2", 0x22: "DDR5", 0x23: "LPDDR5",
}

// moduleOf returns the module of a memory device, with the size 0 if the slot is empty or its size is not known.
func moduleOf(s structure) facts.Module {
	m := facts.Module{
		Slot: s.text(0x10), Type: memoryTypes[s.byte(0x12)], Speed: s.word(0x20),
		Vendor: s.text(0x17), Serial: s.text(0x18), Part: s.text(0x1a),
	}
	if bank := s.text(0x11); bank != "" && bank != m.Slot {
		m.Slot = strings.TrimSpace(bank + " " + m.Slot)
	}
	if m.Speed == 0 {
		m.Speed = s.word(0x15)
	}

	const (
		unknownSize  = 0xffff
		extendedSize = 0x7fff
		kilobytes    = 0x8000
	)

	switch size := s.word(0x0c); {
	case size == unknownSize:
	case size == extendedSize:
		m.SizeMB = s.word(0x1c) | s.word(0x1e)<<16
	case size&kilobytes != 0:
		m.SizeMB = (size &^ kilobytes) / 1024
	default:
		m.SizeMB = size
	}

	return m
}

func (c *collector) numa() error {
	t, err := topology.New(c.options())
	if err != nil {
		return err
	}

	for _, n := range t.Nodes {
		node := facts.NUMANode{ID: n.ID}
		for _, core := range n.Cores {
			node.Threads += len(core.LogicalProcessors)
		}
		if n.Memory != nil {
			node.MemoryMB = int(max(n.Memory.TotalPhysicalBytes, 0) >> 20)
		}

		c.facts.NUMA = append(c.facts.NUMA, node)
	}

	return nil
}

func (c *collector) disks() error {
	all, err := block.New(c.options())
	if err != nil {
		return err
	}

	for _, d := range all.Disks {
		// Virtual ones, such as those of md, dm and loop, have no device. An empty drive is none.
		dir := "sys/block/" + d.Name
		if !c.exists(dir, "device") || d.SizeBytes == 0 || d.DriveType == block.DriveTypeODD {
			continue
		}

		disk := facts.Disk{
			Name: d.Name, SizeBytes: int(d.SizeBytes), //nolint:gosec // a disk has less than 8 EiB
			Vendor: facts.Known(d.Vendor), Model: facts.Known(d.Model),
			Serial: facts.Known(d.SerialNumber), WWN: facts.Known(d.WWN), Path: facts.Known(d.BusPath),
			Rotational: c.read(dir, "queue/rotational") == "1", Removable: d.IsRemovable,
		}

		// virtio has numbers.
		if strings.HasPrefix(disk.Vendor, "0x") {
			disk.Vendor = ""
		}

		// Without udev, as in a small boot environment, the device itself may say it.
		if disk.Model == "" {
			disk.Model = facts.Known(c.read(dir, "device/model"))
		}
		if disk.Serial == "" {
			disk.Serial = facts.Known(c.read(dir, "device/serial"))
		}
		if disk.Serial == "" {
			disk.Serial = facts.Known(c.read(dir, "serial")) // virtio
		}
		if disk.Serial == "" {
			disk.Serial = facts.Known(c.vitalSerial(dir))
		}
		if disk.WWN == "" {
			disk.WWN = facts.Known(c.read(dir, "wwid"))
		}
		if name, found := strings.CutPrefix(c.read(dir, "device/wwid"), "naa."); disk.WWN == "" && found {
			disk.WWN = "0x" + name // as udev writes that of a SCSI disk
		}

		c.facts.Disks = append(c.facts.Disks, disk)
	}

	return nil
}

// vitalSerial returns the serial number of a SCSI or SATA disk: of its vital product data the page 80, which has a head
// of four bytes (SPC-4, 7.8.18).
func (c *collector) vitalSerial(dir string) string {
	const head = 4

	page, err := os.ReadFile(c.path(filepath.Join(dir, "device/vpd_pg80")))
	if err != nil || len(page) < head {
		return ""
	}

	return strings.TrimSpace(strings.ToValidUTF8(string(page[head:]), ""))
}

func (c *collector) pci() error {
	const devices = "sys/bus/pci/devices"

	names, err := c.names(devices)

	for _, name := range names {
		dir := filepath.Join(devices, name)
		id := func(vendor, device string) string {
			vendor, device = hex(c.read(dir, vendor)), hex(c.read(dir, device))
			if vendor == "" || device == "" {
				return ""
			}
			return vendor + ":" + device
		}

		found := facts.PCIDevice{
			Address: name, Class: hex(c.read(dir, "class")), ID: id("vendor", "device"),
			Subsystem: id("subsystem_vendor", "subsystem_device"), Driver: c.link(dir, "driver"),
		}
		if n, err := strconv.Atoi(c.read(dir, "numa_node")); err == nil && n >= 0 {
			found.Node = &n
		}

		c.facts.PCI = append(c.facts.PCI, found)
	}

	return err
}

// hex returns a hexadecimal number without its prefix.
func hex(text string) string { return strings.TrimPrefix(text, "0x") }
