// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/contiv/cluster/inventory"
)

// The tags by which a member says that it is a node, and which.
const (
	TagLabel  = "NodeLabel"
	TagSerial = "NodeSerial"
	TagAddr   = "NodeAddr"
)

// maxTag bounds a tag's value, in bytes, before anything looks into it.
const maxTag = 255

// ErrNoNode says that a member does not claim to be a node: it has none of the
// three tags.
var ErrNoNode = errors.New("it has none of the tags " + TagLabel + ", " + TagSerial + " and " + TagAddr)

// Member is one entry of a source's member list. Everything in it comes from
// the network and is trusted for nothing.
type Member struct {
	Name  string            // unique in the source
	Addr  string            // where it is heard from, ip:port
	Tags  map[string]string // not changed by anyone once handed over
	Alive bool

	// Rivals are other places (ip:port) from which somebody claims the same
	// Name at the same time. Most sources never have any.
	Rivals []string
}

func (m Member) equal(o Member) bool {
	return m.Name == o.Name && m.Addr == o.Addr && m.Alive == o.Alive &&
		slices.Equal(m.Rivals, o.Rivals) && maps.Equal(m.Tags, o.Tags)
}

// Identity is which node a member is.
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

// Tags is the identity as a member carries it.
func (i Identity) Tags() map[string]string {
	return map[string]string{TagLabel: i.Label, TagSerial: i.Serial, TagAddr: i.Addr}
}

// IdentityOf reads the identity from a member's tags. The error is ErrNoNode
// where there are none, and says what is wrong where there are wrong ones.
func IdentityOf(tags map[string]string) (Identity, error) {
	var id Identity
	var missing []error

	var wrong []error
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

		if len(v) > maxTag {
			wrong = append(wrong, fmt.Errorf("the tag %s has %d bytes, the limit is %d", t.name, len(v), maxTag))
			continue
		}

		if err := t.check(v); err != nil {
			wrong = append(wrong, fmt.Errorf("the tag %s is wrong: %w", t.name, err))
			continue
		}

		*t.value = v
	}

	if len(missing) == 3 {
		return Identity{}, ErrNoNode
	}

	if err := errors.Join(append(missing, wrong...)...); err != nil {
		return Identity{}, err
	}

	return id, nil
}
