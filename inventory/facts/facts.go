// SPDX-License-Identifier: Apache-2.0

// Package facts describes the hardware of a machine and what runs on it, as the program clusterm-facts or the BMC found
// it: one form with units, its check, and what differs between two inspections.
//
// Whoever controls a machine or its BMC controls its facts, so they are untrusted. See Parse and Bound.
package facts

import "time"

// Schema is the number of the form. New fields do not change it: a reader ignores those that it does not know, and a
// field that was not found is empty.
const Schema = 1

// Facts are what was found on a machine.
type Facts struct {
	Schema int    `json:"schema"`         // 1
	Arch   string `json:"arch,omitempty"` // as uname -m prints it: x86_64, aarch64

	// Where they come from: ssh, the machine itself; redfish, its BMC.
	Sources []string `json:"sources,omitempty"`

	System   System   `json:"system,omitzero"`   // the machine
	Firmware Firmware `json:"firmware,omitzero"` // its BIOS or UEFI
	OS       OS       `json:"os,omitzero"`       // the system that runs
	CPU      CPU      `json:"cpu,omitzero"`      // the processors
	Memory   Memory   `json:"memory,omitzero"`   // the memory

	Disks      []Disk      `json:"disks,omitempty"`      // the disks, without partitions and virtual ones
	Interfaces []Interface `json:"interfaces,omitempty"` // the network ports, without virtual ones
	PCI        []PCIDevice `json:"pci,omitempty"`        // the devices on PCI
	NUMA       []NUMANode  `json:"numa,omitempty"`       // the NUMA nodes

	BMC BMCPort `json:"bmc,omitzero"` // the network port of the BMC

	Problems []string `json:"problems,omitempty"` // what could not be read, and why
}

// The sources.
const (
	SSH     = "ssh"
	Redfish = "redfish"
	Network = "network" // the machine itself, booted from the network for that
)

// System identifies a machine (SMBIOS).
type System struct {
	Vendor  string `json:"vendor,omitempty"`  // who made the machine
	Product string `json:"product,omitempty"` // the model
	Version string `json:"version,omitempty"` // of the product
	Serial  string `json:"serial,omitempty"`  // the serial number
	UUID    string `json:"uuid,omitempty"`    // lower case
	TPM     string `json:"tpm,omitempty"`     // of its TPM: the SHA-256 of the public endorsement key, hexadecimal

	BoardVendor  string `json:"board_vendor,omitempty"`  // of the mainboard
	BoardProduct string `json:"board_product,omitempty"` // of the mainboard
	BoardSerial  string `json:"board_serial,omitempty"`  // of the mainboard
}

// Firmware is the BIOS or UEFI of a machine.
type Firmware struct {
	Vendor   string `json:"vendor,omitempty"`                     // who made it
	Version  string `json:"version,omitempty"`                    // the version
	Date     string `json:"date,omitempty"`                       // as the vendor writes it
	BootMode string `json:"boot_mode,omitempty" enum:"bios,uefi"` // how the machine was booted
}

// The boot modes.
const (
	BIOS = "bios"
	UEFI = "uefi"
)

// OS is the operating system that runs on a machine.
type OS struct {
	Name   string `json:"name,omitempty"`   // with its version, for people
	ID     string `json:"id,omitempty"`     // such as debian; see os-release(5)
	Kernel string `json:"kernel,omitempty"` // the release, as uname -r prints it
}

// CPU describes the processors of a machine.
type CPU struct {
	Model   string `json:"model,omitempty"`   // of the first one
	Sockets int    `json:"sockets,omitempty"` // processors
	Cores   int    `json:"cores,omitempty"`   // of all processors
	Threads int    `json:"threads,omitempty"` // of all processors
}

// Memory is the memory of a machine.
type Memory struct {
	TotalMB int      `json:"total_mb,omitempty"` // MiB: the sum of the modules, or else what the kernel has
	Modules []Module `json:"modules,omitempty"`  // those that are present (SMBIOS); empty: unknown
}

// Module is a memory module.
type Module struct {
	Slot   string `json:"slot"`              // as the vendor names it
	SizeMB int    `json:"size_mb,omitempty"` // MiB
	Type   string `json:"type,omitempty"`    // such as DDR4
	Speed  int    `json:"speed,omitempty"`   // as configured, in MT/s
	Vendor string `json:"vendor,omitempty"`  // who made it
	Part   string `json:"part,omitempty"`    // the number of the vendor
	Serial string `json:"serial,omitempty"`  // the serial number
}

// Disk is a disk.
type Disk struct {
	Name       string `json:"name"`                 // of the kernel, such as sda; it may change; empty: unknown
	SizeBytes  int    `json:"size_bytes,omitempty"` // the size, in bytes
	Vendor     string `json:"vendor,omitempty"`     // who made it
	Model      string `json:"model,omitempty"`      // the model
	Serial     string `json:"serial,omitempty"`     // the serial number
	WWN        string `json:"wwn,omitempty"`        // the World Wide Name
	Path       string `json:"path,omitempty"`       // its name in /dev/disk/by-path
	Place      string `json:"place,omitempty"`      // where it is, as the BMC names it, such as Disk.Bay.0
	Rotational bool   `json:"rotational,omitempty"` // it has platters
	Removable  bool   `json:"removable,omitempty"`  // its medium can be taken out
}

// Interface is a network port.
type Interface struct {
	Name      string     `json:"name"`                 // of the kernel; it may change; empty: unknown
	MAC       string     `json:"mac,omitempty"`        // the permanent one if it is known, lower case
	SpeedMbps int        `json:"speed_mbps,omitempty"` // Mbit/s; 0: unknown, or no link
	Carrier   bool       `json:"carrier,omitempty"`    // it has a link
	PCI       string     `json:"pci,omitempty"`        // the address of its device
	Place     string     `json:"place,omitempty"`      // where it is, as the BMC names it
	Driver    string     `json:"driver,omitempty"`     // the driver of the kernel
	Neighbour *Neighbour `json:"neighbour,omitempty"`  // as lldpd sees it
}

// Neighbour is the port at the other end of a cable (LLDP).
type Neighbour struct {
	Name        string `json:"name,omitempty"`        // of the switch
	Chassis     string `json:"chassis,omitempty"`     // the id of the switch
	Forwards    bool   `json:"forwards,omitempty"`    // it says that it is a bridge or a router
	Port        string `json:"port,omitempty"`        // the id of its port
	Description string `json:"description,omitempty"` // of its port
}

// PCIDevice is a device on PCI.
type PCIDevice struct {
	Address   string `json:"address"`             // such as 0000:3b:00.0
	Class     string `json:"class,omitempty"`     // six hexadecimal digits
	ID        string `json:"id,omitempty"`        // VENDOR:DEVICE, hexadecimal
	Subsystem string `json:"subsystem,omitempty"` // VENDOR:DEVICE, hexadecimal
	Driver    string `json:"driver,omitempty"`    // the driver of the kernel
	Node      *int   `json:"numa_node,omitempty"` // absent: no node in particular
}

// NUMANode is a NUMA node.
type NUMANode struct {
	ID       int `json:"id"`                  // the number of the node
	Threads  int `json:"threads,omitempty"`   // threads of processors
	MemoryMB int `json:"memory_mb,omitempty"` // MiB
}

// BMCPort is the network port of the BMC of a machine.
type BMCPort struct {
	Address string `json:"address,omitempty"` // of its network port
	MAC     string `json:"mac,omitempty"`     // lower case
}

// Inspection is one look at the hardware of a node.
type Inspection struct {
	Number int       `json:"number"`        // counts the inspections of the node, from 1
	Time   time.Time `json:"time"`          // when the facts were found
	Job    string    `json:"job,omitempty"` // the job that found them
}
