// SPDX-License-Identifier: Apache-2.0

// Package gossipkey rotates the key of the gossip. The new key is installed on all
// members, then used, and the old one is removed only after every known node has
// confirmed the new one; a node that the gossip does not reach gets it over ssh.
//
// The record of a rotation is written before each step, and each step may be repeated,
// so that a rotation goes on after a crash at any point.
package gossipkey

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/rotation"
	"github.com/contiv/cluster/monitor"
)

// Phase is the position of a rotation.
type Phase string

// The phases of a rotation, in order.
const (
	PhaseNone    Phase = ""        // there was none yet
	PhaseInstall Phase = "install" // all members learn the new key, and the old one encrypts
	PhaseUse     Phase = "use"     // the new one encrypts, on one member after the other
	PhaseRemove  Phase = "remove"  // the old one is removed once every known node has confirmed
	PhaseDone    Phase = "done"
)

// Running reports whether a rotation is to go on.
func (p Phase) Running() bool { return p == PhaseInstall || p == PhaseUse || p == PhaseRemove }

// Rotation is the record of the newest rotation.
type Rotation struct {
	Phase   Phase     `json:"phase"`
	New     string    `json:"new"`
	Old     []string  `json:"old"`
	Actor   string    `json:"actor"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"`

	// Confirmed nodes accept the new key, and Removed ones no longer the old one.
	Confirmed map[string]time.Time `json:"confirmed"`
	Removed   map[string]time.Time `json:"removed"`
	// Replaced are the fingerprints of the keys that this and earlier rotations replace,
	// the newest last.
	Replaced []string `json:"replaced,omitempty"`
	// LockedOut nodes are not waited for: an operator gave them up.
	LockedOut []string `json:"locked_out,omitempty"`
	// Laggards are the members that the rotation waits for, as of the last round.
	Laggards []rotation.Laggard `json:"laggards,omitempty"`
	Round    time.Time          `json:"round,omitzero"` // the end of the last round
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
func (r Rotation) Keys() []string {
	switch r.Phase {
	case PhaseInstall:
		return append(slices.Clone(r.Old), r.New)
	case PhaseUse, PhaseRemove:
		return append([]string{r.New}, r.Old...)
	case PhaseDone:
		return []string{r.New}
	case PhaseNone:
	}

	return nil
}

func (r Rotation) clone() Rotation {
	r.Old, r.LockedOut, r.Laggards = slices.Clone(r.Old), slices.Clone(r.LockedOut), slices.Clone(r.Laggards)
	r.Replaced = slices.Clone(r.Replaced)
	r.Confirmed, r.Removed = maps.Clone(r.Confirmed), maps.Clone(r.Removed)
	return r
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

// note records in confirmed which of the nodes have confirmed, and returns the nodes
// without a live member.
func (as answers) note(nodes []*inventory.Node, confirmed map[string]time.Time, at time.Time) []*inventory.Node {
	var absent []*inventory.Node
	for _, n := range nodes {
		problem, live := as.of(n.Name)

		switch {
		case !live:
			absent = append(absent, n)
		case problem == "" && len(n.Duplicates) == 0:
			confirmed[n.Name] = at
		}
	}

	return absent
}

// unconfirmed returns the nodes that are not in confirmed, and were not given up.
func (r Rotation) unconfirmed(
	nodes []*inventory.Node,
	confirmed map[string]time.Time,
	why func(string) string,
) []rotation.Laggard {
	var all []rotation.Laggard
	for _, n := range nodes {
		if _, ok := confirmed[n.Name]; !ok && !slices.Contains(r.LockedOut, n.Name) {
			all = append(all, rotation.Laggard{Name: n.Name, Reason: why(n.Name)})
		}
	}

	return all
}
