// SPDX-License-Identifier: Apache-2.0

// Package machine describes machines as a site registers them, before an agent speaks there: how the BMC is reached,
// the network ports, and what the machine is expected to have.
package machine

import (
	"maps"
	"slices"
	"time"
)

// Driver says how the power of a machine is controlled.
type Driver string

// The drivers.
const (
	Redfish Driver = "redfish" // any BMC with DMTF Redfish
	IPMI    Driver = "ipmi"    // any BMC with IPMI 2.0 over the network
	IDRAC   Driver = "idrac"   // Dell: Redfish
	ILO     Driver = "ilo"     // HPE: Redfish
	IRMC    Driver = "irmc"    // Fujitsu: Redfish
	Manual  Driver = "manual-management"
)

// Drivers lists every driver with its meaning.
var Drivers = []struct {
	Driver  Driver
	Meaning string
}{
	{Redfish, "Redfish"},
	{IPMI, "IPMI 2.0"},
	{IDRAC, "Redfish of a Dell iDRAC"},
	{ILO, "Redfish of an HPE iLO"},
	{IRMC, "Redfish of a Fujitsu iRMC"},
	{Manual, "no BMC: a person switches the machine"},
}

// SpeaksRedfish reports whether a BMC of the driver is reached by Redfish.
func (d Driver) SpeaksRedfish() bool { return d != IPMI && d != Manual }

// BMC is how the BMC of a machine is reached.
type BMC struct {
	Driver  Driver `json:"driver"`            // how the power is controlled
	Address string `json:"address,omitempty"` // a host name, or an IP address without brackets; empty: Manual
	Port    int    `json:"port,omitempty"`    // 0: 623 for IPMI; for Redfish 443, or 80 if Plain
	User    string `json:"user,omitempty"`    // empty: that of the firmware without a name (IPMI)
	// Password is no part of the record: it is stored encrypted beside it, and never shown.
	Password string `json:"-"`
	// Next is a password that is being set, and kept likewise: the BMC has it, or still has Password; empty: none.
	Next string `json:"-"`
	// Given counts how often somebody has given the login of a registered machine anew, or asked for another attempt.
	Given int `json:"-"`
	// System is the Redfish path of the machine, such as /redfish/v1/Systems/1; empty: the BMC has one machine.
	System string `json:"system,omitempty"`
	// Plain: Redfish without TLS.
	Plain bool `json:"plain,omitempty"`
	// Verify: the certificate of the BMC must be of a CA that the manager trusts.
	Verify bool `json:"verify,omitempty"`
}

// Port is a network port of a machine.
type Port struct {
	MAC string `json:"mac"` // lower case, with colons
	// Other fields of the port in the list, which have no effect.
	Extra map[string]any `json:"extra,omitempty"`
}

// MaxText bounds the texts about an installation, in bytes.
const MaxText = 1024

// Machine is a machine as it was registered. It has the name of its node.
type Machine struct {
	Node string `json:"node"`           // the name of the node
	UUID string `json:"uuid,omitempty"` // of the system (SMBIOS), lower case; empty: unknown
	BMC  *BMC   `json:"bmc,omitempty"`  // nil: it has none

	Ports []Port `json:"ports,omitempty"` // the network ports

	// What the machine is expected to have; 0 or empty: unknown.
	CPUs     int    `json:"cpus,omitempty"`      // processors
	MemoryMB int    `json:"memory_mb,omitempty"` // MiB
	DiskGB   int    `json:"disk_gb,omitempty"`   // GiB, of the root device
	Arch     string `json:"arch,omitempty"`      // as uname -m prints it

	Capabilities map[string]string `json:"capabilities,omitempty"` // what it can do, in words of the site
	// RootDevice are the hints that choose the disk of the operating system, by their names in OpenStack Ironic.
	RootDevice map[string]any `json:"root_device,omitempty"`
	// What an installation takes. Nothing uses them yet.
	Image      string `json:"image,omitempty"`       // the operating system, in words of the site
	KernelArgs string `json:"kernel_args,omitempty"` // the arguments of its kernel

	// Extra are other fields of the file, which are kept and have no effect.
	Extra map[string]any `json:"extra,omitempty"`

	Registered time.Time `json:"registered,omitzero"` // when it was registered first; absent: only configured
	Actor      string    `json:"actor,omitempty"`     // who registered it
}

// Clone returns a deep copy, but for the values of Extra and of hints, which are immutable.
func (m Machine) Clone() Machine {
	if m.BMC != nil {
		b := *m.BMC
		m.BMC = &b
	}

	m.Ports = slices.Clone(m.Ports)
	m.Capabilities = maps.Clone(m.Capabilities)
	m.RootDevice, m.Extra = maps.Clone(m.RootDevice), maps.Clone(m.Extra)

	return m
}

// DefaultPort is the port of a BMC whose record has none.
func (b BMC) DefaultPort() int {
	switch {
	case b.Driver == IPMI:
		return 623
	case b.Plain:
		return 80
	default:
		return 443
	}
}
