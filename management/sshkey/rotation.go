// SPDX-License-Identifier: Apache-2.0

// Package sshkey rotates the ssh key with which the manager logs in to nodes.
//
// A rotation installs the new public key beside the old one on every node and confirms
// it by a login with the new key alone. Then the manager switches to the new key, keeps
// offering the old one as a fallback, and revokes the old key node by node on those that
// have confirmed. The old private key is deleted after the last node.
//
// A rotation is not a job: a job locks its nodes and has a deadline, while a rotation may
// wait weeks for an absent node without blocking other jobs. The leader carries it out.
// Every step is idempotent and recorded in the store, so a rotation survives a crash at
// any point. The record holds no private keys; those stay in files.
package sshkey

import (
	"slices"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rotation"
)

// Key is an ssh key of the manager.
type Key struct {
	Path   string `json:"path"`   // of the private half, on the host of the manager
	Public string `json:"public"` // in the form of configuration.Host.HostKeys
	// Generated: a rotation made the key, so the manager may delete its files.
	Generated bool `json:"generated,omitempty"`
	// Setting is the value of ssh.key_file that selects the key, and RunTime whether it was
	// set at run time. Empty: ssh finds the key by itself.
	Setting string `json:"setting,omitempty"`
	RunTime bool   `json:"run_time,omitempty"`
}

// Rotation is the record of the newest rotation.
type Rotation struct {
	Number int            `json:"number"` // counts the rotations
	Phase  rotation.Phase `json:"phase"`
	New    Key            `json:"new"`
	Old    Key            `json:"old"`
	// Reverts marks a rotation that reverts a cancelled one.
	Reverts bool      `json:"reverts,omitempty"`
	Actor   string    `json:"actor,omitempty"`
	Started time.Time `json:"started,omitzero"`
	Ended   time.Time `json:"ended,omitzero"` // zero: not yet

	// Confirmed nodes accept the new key; Removed nodes no longer accept the old one. Both
	// lists are sorted.
	Confirmed []string `json:"confirmed,omitempty"`
	Removed   []string `json:"removed,omitempty"`
	// LockedOut nodes are not waited for: an operator gave them up.
	LockedOut []string `json:"locked_out,omitempty"`
}

// newest is the key under which the rotation is stored; only the newest is kept.
const newest = "newest"

// Kind are the rotations. They hold no private keys.
var Kind = record.Kind[Rotation]{Name: "ssh-key"}

// RotationOf returns the newest rotation; a zero one if there was none. Its lists must not be
// changed.
func RotationOf(r record.Reader) Rotation {
	if found := record.Get(r, &Kind, newest); found != nil {
		return *found
	}
	return Rotation{}
}

// CheckBeside refuses an instance that begins to run jobs while another one rotates the key.
func CheckBeside(r record.Reader) error {
	if !RotationOf(r).Phase.Running() {
		return nil
	}

	return inventory.Errorf(inventory.KindRefused,
		"another instance is rotating the ssh key, which is not on this host").
		Do("wait for the end of the rotation (clusterctl key status ssh), and copy the new key to this host")
}

// confirmedBy reports whether one of the nodes has confirmed.
func (r Rotation) confirmedBy(known []*inventory.Node) bool {
	return slices.ContainsFunc(known, func(n *inventory.Node) bool { return rotation.Has(r.Confirmed, n.Name) })
}

// locksAllOut refuses to give up the laggards if the manager could then log in to no node at all.
// inUse is the setting of the key in use.
func (r Rotation) locksAllOut(known []*inventory.Node, inUse string) error {
	// A rotation cancelled before the switch keeps the key in use.
	keeps := r.Phase == rotation.PhaseInstall && inUse == r.New.Setting
	if keeps || len(known) == 0 || r.confirmedBy(known) {
		return nil
	}

	refused := inventory.Errorf(inventory.KindRefused,
		"no node has confirmed the new key, so the manager could log in to none of them any more")
	if r.Reverts {
		return refused.Do("bring a node back, or forget those that are gone").With(inventory.ShowSSHKey())
	}
	return refused.Do("bring a node back, forget those that are gone, or take the rotation back").
		With(inventory.ShowSSHKey(), inventory.CancelSSHKey())
}

// Former returns the fallback key, and the setting and path of the key in use. ok is false if no
// fallback is needed.
func (r Rotation) Former() (setting, path, former string, ok bool) {
	switch {
	case r.Phase == rotation.PhaseUse, r.Phase == rotation.PhaseRemove:
		return r.New.Setting, r.New.Path, r.Old.Path, true
	case r.Phase == rotation.PhaseInstall && r.Reverts:
		// The manager may still use the key being reverted, which some nodes never accepted.
		return r.Old.Setting, r.Old.Path, r.New.Path, true
	}

	return "", "", "", false
}

// Status is the state of the manager's ssh key.
type Status struct {
	Rotation

	Problem  string // why the last round could not go on; empty: it could
	Known    int    // nodes that use the key
	Laggards []rotation.Laggard
	OwnKeys  []string // nodes with a key of their own, which stays
}
