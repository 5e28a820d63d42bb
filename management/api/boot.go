// SPDX-License-Identifier: Apache-2.0

package api

import "time"

// Address is an address that the manager gives to a registered machine, or that it gives to nobody.
type Address struct {
	Addr string `json:"addr"`           // IPv4
	Node string `json:"node,omitempty"` // whose it is; absent: it is given to nobody
	MAC  string `json:"mac,omitempty"`  // of the network port that gets it, or of the one that had it; see until
	// Whether an operator has reserved it. Others are of the pool.
	Reserved bool      `json:"reserved,omitempty"`
	Unprobed bool      `json:"unprobed,omitempty"` // it is not given yet: another host may have it
	Conflict string    `json:"conflict,omitempty"` // why it cannot be used; absent: it can
	Declined string    `json:"declined,omitempty"` // the MAC of the network port that declined it
	Since    time.Time `json:"since"`              // when it became so
	// When the lease of the machine that had it is over. Until then, only its network port can get it; absent: nobody
	// had it before.
	Until time.Time `json:"until,omitzero"`
}

// AddressRequest reserves an address.
type AddressRequest struct {
	Addr string `json:"addr"` // IPv4
	Node string `json:"node"` // a registered machine
	// The network port that gets it; absent: the first one of the machine.
	MAC string `json:"mac,omitempty"`
}

// BootStatus is how an instance serves the machines that boot.
type BootStatus struct {
	Instance   string          `json:"instance"`   // its host
	Interfaces []BootInterface `json:"interfaces"` // none: it serves nobody
	Pool       int             `json:"pool"`       // the addresses of the pool
	Free       int             `json:"free"`       // those that can be given
	Conflicts  int             `json:"conflicts"`  // addresses that cannot be used
	Held       int             `json:"held"`       // addresses of former machines, whose leases may still run
	Waiting    []string        `json:"waiting"`    // the registered machines with a network port and without an address
	Dropped    uint64          `json:"dropped"`    // queries that came faster than they were answered
	// The newest query of each MAC, newest first; at most 200, since the start of the instance.
	Queries []BootQuery `json:"queries"`
}

// BootInterface is a network interface on which machines are served.
type BootInterface struct {
	Name    string `json:"name"`              // such as eth1
	Addr    string `json:"addr,omitempty"`    // of the instance, with the length of the network's prefix
	Problem string `json:"problem,omitempty"` // why nobody is served; absent: they are
}

// BootQuery is what a machine asked, and what it got.
type BootQuery struct {
	MAC       string    `json:"mac"`              // of the network port
	Node      string    `json:"node,omitempty"`   // absent: it is not registered
	Interface string    `json:"interface"`        // of the instance, where it came
	Query     string    `json:"query"`            // such as `discover` and `request`
	Answer    string    `json:"answer,omitempty"` // `offer`, `ack` or `nak`; absent: none
	Addr      string    `json:"addr,omitempty"`   // that it got
	Why       string    `json:"why"`              // the reason for the answer
	Count     int       `json:"count"`            // the queries of this MAC
	Last      time.Time `json:"last"`             // when the newest came
}

// NodeBoots are the newest boots of a node.
type NodeBoots struct {
	Node  string `json:"node"`  // the name of the node
	Boots []Boot `json:"boots"` // the oldest first; at most 5
}

// Boot is one start of a machine over the network, for a job.
type Boot struct {
	Job     string    `json:"job"`     // that has ordered it
	Purpose string    `json:"purpose"` // such as `inspect`
	Image   string    `json:"image"`   // the image with the kernel of the boot environment
	Begun   time.Time `json:"begun"`   // since when the machine is served
	// When the machine was switched on by its BMC, last; absent: nobody was told to yet.
	Started *time.Time `json:"started,omitempty"`
	// When it ended. Until then the machine is served, and after that it is not.
	Ended  *time.Time `json:"ended,omitempty"`
	Result string     `json:"result,omitempty"` // how it ended

	Installs string `json:"installs,omitempty"` // the image that is installed; absent: none
	// How far the installation is. `writing`: the image is being written. `installed`: it is on the disk, and the
	// machine restarts. `running`: the system has called the manager. Absent: nothing is written yet.
	Stage   string `json:"stage,omitempty" enum:"writing,installed,running"`
	Disk    string `json:"disk,omitempty"`    // the disk that the image is written to
	Written int64  `json:"written,omitempty"` // the bytes of the image that were written so far
	Size    int64  `json:"size,omitempty"`    // the bytes of the image

	// What was asked, answered and reported, the oldest first. The same thing again is counted.
	Events []BootEvent `json:"events"`
}

// The stages of an installation.
const (
	BootWriting   = "writing"
	BootInstalled = "installed"
	BootRunning   = "running"
)

// BootEvent is something that happened during a boot.
type BootEvent struct {
	At time.Time `json:"at"` // when it happened last
	// `manager`: what the manager did. `dhcp`, `tftp` and `http`: what the machine asked the boot service.
	// `report`: what the boot environment says.
	From  string `json:"from" enum:"manager,dhcp,tftp,http,report"`
	Text  string `json:"text"`            // in words
	Count int    `json:"count,omitempty"` // how often; absent: once
}
