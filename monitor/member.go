// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/contiv/cluster/inventory"
)

// The tags of a member that is a node. Together they are its identity.
const (
	TagLabel  = "NodeLabel"
	TagSerial = "NodeSerial"
	TagAddr   = "NodeAddr"
)

// maxTag bounds the value of a tag, in bytes, before it is parsed.
const maxTag = 255

// ErrNotNode is the error for a member without any of the three tags: it does
// not claim to be a node.
var ErrNotNode = errors.New("it has none of the tags " + TagLabel + ", " + TagSerial + " and " + TagAddr)

// Member is one entry of a source's member list. All of it comes from the network
// and is untrusted.
type Member struct {
	Name  string            // unique in the source
	Addr  string            // ip:port of its gossip
	Tags  map[string]string // immutable once passed on
	Alive bool

	// Rivals are other addresses (ip:port) that claim the same Name at the same
	// time. Most sources never report any.
	Rivals []string
}

func (m Member) equal(o Member) bool {
	return m.Name == o.Name && m.Addr == o.Addr && m.Alive == o.Alive &&
		slices.Equal(m.Rivals, o.Rivals) && maps.Equal(m.Tags, o.Tags)
}

// Identity identifies a node, and gives the address that Ansible uses.
type Identity struct {
	Label  string `yaml:"label"`
	Serial string `yaml:"serial"`
	Addr   string `yaml:"addr"` // IPv4, IPv6 or host name
}

// Name is the name of the node.
func (i Identity) Name() string { return inventory.NodeName(i.Label, i.Serial) }

// Check refuses an identity outside the grammar of the inventory.
func (i Identity) Check() error {
	return errors.Join(inventory.CheckLabel(i.Label), inventory.CheckSerial(i.Serial), inventory.CheckAddr(i.Addr))
}

// Tags encodes the identity as the tags of a member.
func (i Identity) Tags() map[string]string {
	return map[string]string{TagLabel: i.Label, TagSerial: i.Serial, TagAddr: i.Addr}
}

// IdentityOf decodes the identity from the tags of a member. The error is
// ErrNotNode if there are none, and lists every missing or invalid tag if there
// are some.
func IdentityOf(tags map[string]string) (Identity, error) {
	var id Identity
	var missing, invalid []error

	for _, t := range []struct {
		name  string
		value *string
		check func(string) error
	}{
		{TagLabel, &id.Label, inventory.CheckLabel},
		{TagSerial, &id.Serial, inventory.CheckSerial},
		{TagAddr, &id.Addr, inventory.CheckAddr},
	} {
		v, ok := tags[t.name]
		if !ok {
			missing = append(missing, fmt.Errorf("the tag %s is missing", t.name))
			continue
		}

		// The length first, so that no check runs over, and no error quotes, megabytes.
		if len(v) > maxTag {
			err := fmt.Errorf("the tag %s has %d bytes, the limit is %d", t.name, len(v), maxTag)
			invalid = append(invalid, err)
			continue
		}

		if err := t.check(v); err != nil {
			invalid = append(invalid, fmt.Errorf("the tag %s is invalid: %w", t.name, err))
			continue
		}

		*t.value = v
	}

	// Other members of the gossip have none of the tags, a misconfigured node has some.
	if len(missing) == 3 {
		return Identity{}, ErrNotNode
	}

	if err := errors.Join(append(missing, invalid...)...); err != nil {
		return Identity{}, err
	}

	return id, nil
}
