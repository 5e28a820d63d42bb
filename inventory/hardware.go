// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"strconv"
	"strings"
	"time"
)

// Hardware is what the newest inspection found on a node, in short. All sizes are those that the machine says.
type Hardware struct {
	Inspection int       `json:"inspection"` // the number of the inspection
	Time       time.Time `json:"time"`       // when it was

	Arch    string `json:"arch,omitempty"`    // as `uname -m` prints it
	Vendor  string `json:"vendor,omitempty"`  // of the machine
	Product string `json:"product,omitempty"` // of the vendor
	Serial  string `json:"serial,omitempty"`  // of the machine
	UUID    string `json:"uuid,omitempty"`    // of the machine (SMBIOS)
	TPM     string `json:"tpm,omitempty"`     // the SHA-256 of the public endorsement key of the TPM, hexadecimal

	BootMode string `json:"boot_mode,omitempty" enum:"bios,uefi"` // how it was booted
	Firmware string `json:"firmware,omitempty"`                   // the version of the BIOS or UEFI
	Kernel   string `json:"kernel,omitempty"`                     // as `uname -r` prints it
	BMC      string `json:"bmc,omitempty"`                        // the address of the BMC, as the machine sees it

	Sockets    int `json:"sockets,omitempty"`    // processors
	Cores      int `json:"cores,omitempty"`      // of all processors
	Threads    int `json:"threads,omitempty"`    // of all processors
	MemoryMB   int `json:"memory_mb,omitempty"`  // MiB
	DIMMs      int `json:"dimms,omitempty"`      // memory modules
	Disks      int `json:"disks,omitempty"`      // disks
	DiskGB     int `json:"disk_gb,omitempty"`    // GB (10⁹ bytes), of all disks
	Interfaces int `json:"interfaces,omitempty"` // network ports
	PCI        int `json:"pci,omitempty"`        // devices on PCI

	MACs []string `json:"macs,omitempty"` // of network ports, 16 at most
	// What LLDP sees at its network ports, 16 at most.
	Neighbours []Neighbour `json:"neighbours,omitempty"`
}

// Neighbour is what LLDP sees at a network port.
type Neighbour struct {
	Port     string `json:"port"`               // the network port of the node
	Name     string `json:"name,omitempty"`     // the name that the neighbour says
	Chassis  string `json:"chassis,omitempty"`  // its id, mostly a MAC
	Forwards bool   `json:"forwards,omitempty"` // it says that it is a bridge or a router
}

// MaxMACs is the number of MACs, and of neighbours, that are kept of the hardware of a node.
const MaxMACs = 16

// String describes the hardware in a line.
func (h *Hardware) String() string {
	if h == nil {
		return ""
	}

	parts := []string{strings.TrimSpace(h.Vendor + " " + h.Product)}
	add := func(n int, one, many string) {
		if n > 0 {
			parts = append(parts, Count(n, one, many))
		}
	}

	add(h.Sockets, "processor", "processors")
	add(h.Threads, "thread", "threads")
	add(h.MemoryMB, "MiB of memory", "MiB of memory")
	add(h.Disks, "disk", "disks")
	add(h.Interfaces, "network port", "network ports")

	if parts[0] == "" {
		parts = parts[1:]
	}

	return strings.Join(parts, ", ")
}

// HardwareField is a field that selectors compare.
type HardwareField struct {
	Name    string // after "facts."
	Meaning string
	Number  bool
	of      func(*Hardware) string
}

// HardwareFields lists the fields of selectors about hardware.
var HardwareFields = []HardwareField{
	hardwareText("arch", "the architecture, such as x86_64", func(h *Hardware) string { return h.Arch }),
	hardwareText("vendor", "the vendor", func(h *Hardware) string { return h.Vendor }),
	hardwareText("product", "the product", func(h *Hardware) string { return h.Product }),
	hardwareText("serial", "the serial number of the machine", func(h *Hardware) string { return h.Serial }),
	hardwareText("uuid", "the UUID of the machine", func(h *Hardware) string { return h.UUID }),
	hardwareText("tpm", "the SHA-256 of the public key of the TPM", func(h *Hardware) string { return h.TPM }),
	hardwareText("boot_mode", "bios or uefi", func(h *Hardware) string { return h.BootMode }),
	hardwareText("firmware", "the version of the BIOS or UEFI", func(h *Hardware) string { return h.Firmware }),
	hardwareText("kernel", "the release of the kernel", func(h *Hardware) string { return h.Kernel }),
	hardwareText("bmc", "the address of the BMC", func(h *Hardware) string { return h.BMC }),
	hardwareNumber("sockets", "processors", func(h *Hardware) int { return h.Sockets }),
	hardwareNumber("cores", "cores of all processors", func(h *Hardware) int { return h.Cores }),
	hardwareNumber("threads", "threads of all processors", func(h *Hardware) int { return h.Threads }),
	hardwareNumber("memory_mb", "the memory, in MiB", func(h *Hardware) int { return h.MemoryMB }),
	hardwareNumber("dimms", "memory modules", func(h *Hardware) int { return h.DIMMs }),
	hardwareNumber("disks", "disks", func(h *Hardware) int { return h.Disks }),
	hardwareNumber("disk_gb", "the size of all disks, in GB", func(h *Hardware) int { return h.DiskGB }),
	hardwareNumber("interfaces", "network ports", func(h *Hardware) int { return h.Interfaces }),
	hardwareNumber("pci", "devices on PCI", func(h *Hardware) int { return h.PCI }),
}

func hardwareText(name, meaning string, of func(*Hardware) string) HardwareField {
	return HardwareField{Name: name, Meaning: meaning, of: func(h *Hardware) string { return SelectorWord(of(h)) }}
}

func hardwareNumber(name, meaning string, of func(*Hardware) int) HardwareField {
	return HardwareField{Name: name, Meaning: meaning, Number: true, of: func(h *Hardware) string {
		return strconv.Itoa(of(h))
	}}
}

// Of returns the value as selectors compare it; "" if the node was not inspected.
func (f HardwareField) Of(n *Node) string {
	if n.Hardware == nil {
		return ""
	}
	return f.of(n.Hardware)
}

// SelectorWord returns a text as a selector can write it: "Dell Inc." is Dell-Inc.
func SelectorWord(text string) string {
	word := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("._-:", r):
			return r
		}
		return '-'
	}, text)

	return strings.Trim(word, "._-:")
}
