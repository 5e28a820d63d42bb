// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"time"

	"github.com/contiv/cluster/inventory"
)

// presenceRecord is the evidence on the absences of a node.
type presenceRecord struct {
	Since   time.Time     `json:"since,omitzero"`
	Lost    time.Time     `json:"lost,omitzero"`
	Returns []time.Time   `json:"returns,omitempty"`
	Handled time.Time     `json:"handled,omitzero"`
	Fenced  time.Time     `json:"fenced,omitzero"`
	Boot    string        `json:"boot,omitempty"`
	Away    contactRecord `json:"away,omitzero"`
	Back    contactRecord `json:"back,omitzero"`
}

// contactRecord is the result of an attempt to reach a node over ssh.
type contactRecord struct {
	Time    time.Time `json:"time,omitzero"`
	Reached bool      `json:"reached,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Silent  bool      `json:"silent,omitempty"`
	Foreign bool      `json:"foreign,omitempty"`
	Boot    string    `json:"boot,omitempty"`
	Booted  time.Time `json:"booted,omitzero"`
	Agent   time.Time `json:"agent,omitzero"`
}

func newPresenceRecord(p inventory.Presence) presenceRecord {
	return presenceRecord{
		Since: p.Since, Lost: p.Lost, Returns: p.Returns, Handled: p.Handled, Fenced: p.Fenced, Boot: p.Boot,
		Away: contactRecord(p.Away), Back: contactRecord(p.Back),
	}
}

func (r presenceRecord) presence() inventory.Presence {
	return inventory.Presence{
		Since: r.Since, Lost: r.Lost, Returns: r.Returns, Handled: r.Handled, Fenced: r.Fenced, Boot: r.Boot,
		Away: inventory.Contact(r.Away), Back: inventory.Contact(r.Back),
	}
}
