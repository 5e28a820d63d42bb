// SPDX-License-Identifier: Apache-2.0

// Package gossipkey rotates the key of the gossip. The new key is installed on all
// members, then used, and the old one is removed only after every known node has
// confirmed the new one; a node that the gossip does not reach gets it over ssh.
//
// The record of a rotation is in the store, and written before each step. Each step may be repeated,
// so that a rotation goes on after a crash at any point, and another leader continues it. What each
// host has of its own is its keyring and its key file, which its instance writes when the rotation is done.
package gossipkey

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rotation"
	"github.com/contiv/cluster/monitor"
)

// Rotation is the record of the newest rotation.
type Rotation struct {
	Phase   rotation.Phase `json:"phase"`
	Actor   string         `json:"actor"`
	Started time.Time      `json:"started"`
	Ended   time.Time      `json:"ended,omitzero"`

	// Secret has the keys: the new one, and those that it replaces, one per line. The store has them encrypted.
	Secret configuration.Vars `json:"keys"`

	// Confirmed nodes accept the new key, and Removed ones no longer the old one. Both lists are sorted.
	Confirmed []string `json:"confirmed,omitempty"`
	Removed   []string `json:"removed,omitempty"`
	// Replaced are the fingerprints of the keys that this and earlier rotations replace,
	// the newest last.
	Replaced []string `json:"replaced,omitempty"`
	// LockedOut nodes are not waited for: an operator gave them up.
	LockedOut []string `json:"locked_out,omitempty"`
	// Laggards are the members that the rotation waits for, as of the last round.
	Laggards []rotation.Laggard `json:"laggards,omitempty"`
	Round    time.Time          `json:"round,omitzero"` // when the members were last asked
}

// The names in Rotation.Secret, which errors show.
const nameNew, nameOld = "new_gossip_key", "old_gossip_keys"

// Kind is the one rotation of a store, the newest.
var Kind = record.Kind[Rotation]{
	Name: "gossip-key", Single: true,
	Secret: func(r *Rotation, convert record.Convert) (*Rotation, error) {
		// Their names may match no pattern of secret names.
		keys, err := convert([]string{"gossip-key"}, r.Secret.Mark(func(name string) bool {
			_, plain := r.Secret[name].(string)
			return plain
		}))
		sealed := *r
		sealed.Secret = keys

		return &sealed, err
	},
}

// withKeys returns the rotation with its keys.
func (r Rotation) withKeys(fresh string, old []string) Rotation {
	r.Secret = configuration.Vars{nameNew: fresh, nameOld: strings.Join(old, "\n")}
	return r
}

// keys returns the new key and those that it replaces.
func (r Rotation) keys() (fresh string, old []string, err error) {
	var text [2]string

	for i, name := range []string{nameNew, nameOld} {
		value := r.Secret[name]
		if hidden, ok := value.(configuration.Secret); ok {
			value, err = hidden.Reveal()
		}

		if text[i], _ = value.(string); err != nil || text[i] == "" {
			return "", nil, inventory.Errorf(inventory.KindRefused,
				"the keys of the rotation of the gossip key cannot be read, see the check secrets").
				Do("bring the key of the secrets back, or rotate the gossip key again")
		}
	}

	return text[0], strings.Fields(text[1]), nil
}

// Fingerprint identifies a gossip key without revealing it.
func Fingerprint(key string) string {
	sum := sha256.Sum256([]byte(strings.TrimSpace(key)))
	return "sha256:" + hex.EncodeToString(sum[:8])
}

// maxReplaced bounds the replaced keys that a record remembers.
const maxReplaced = 256

// replace returns the fingerprints of the replaced keys with those of more keys.
func replace(replaced, keys []string) []string {
	all := slices.Clone(replaced)
	for _, key := range keys {
		all = append(all, Fingerprint(key))
	}

	return all[max(0, len(all)-maxReplaced):]
}

// Supersedes reports whether a rotation has replaced a key, or is about to.
func (r Rotation) Supersedes(key string) bool { return slices.Contains(r.Replaced, Fingerprint(key)) }

// Keys returns the keys for a member that joins now, the one that encrypts first.
func (r Rotation) Keys() ([]string, error) {
	if r.Phase == rotation.PhaseNone {
		return nil, nil
	}

	fresh, old, err := r.keys()

	switch {
	case err != nil:
		return nil, err
	case r.Phase == rotation.PhaseInstall:
		return append(old, fresh), nil
	case r.Phase == rotation.PhaseDone:
		return []string{fresh}, nil
	default:
		return append([]string{fresh}, old...), nil
	}
}

// isKnown reports whether the node has ever been a member of this gossip.
func isKnown(n *inventory.Node) bool {
	_, seen := n.Seen[inventory.ObserverGossip]
	return seen
}

// answers are those of all live members to one operation.
type answers []monitor.KeyAnswer

// of returns why a node has not confirmed: "" if it has. live is false if no live
// member claims to be the node.
func (as answers) of(node string) (problem string, live bool) {
	for _, a := range as {
		if a.Node == node {
			live = true
			// One of two claimants does not speak for the other.
			if problem == "" {
				problem = a.Problem
			}
		}
	}

	return problem, live
}

// name returns the node of a member, or else its name in the gossip.
func name(a monitor.KeyAnswer) string {
	if a.Node != "" {
		return a.Node
	}
	return a.Member
}

// pending returns the live members that have not confirmed, and were not given up.
func (as answers) pending(lockedOut []string) []rotation.Laggard {
	var all []rotation.Laggard
	for _, a := range as {
		if a.Problem != "" && !slices.Contains(lockedOut, name(a)) {
			all = append(all, rotation.Laggard{Name: name(a), Reason: a.Problem})
		}
	}

	return all
}

// note returns the names of the nodes that have confirmed, and the nodes without a live member.
func (as answers) note(nodes []*inventory.Node) (confirmed []string, absent []*inventory.Node) {
	for _, n := range nodes {
		problem, live := as.of(n.Name)

		switch {
		case !live:
			absent = append(absent, n)
		case problem == "" && len(n.Duplicates) == 0:
			confirmed = append(confirmed, n.Name)
		}
	}

	return confirmed, absent
}
