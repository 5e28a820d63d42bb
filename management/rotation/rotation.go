// SPDX-License-Identifier: Apache-2.0

// Package rotation is the common part of rotations of keys: phases, laggards, and giving them up.
package rotation

import (
	"maps"
	"slices"
	"strings"

	"github.com/contiv/cluster/inventory"
)

// Phase is the position of a rotation.
type Phase string

// The phases of a rotation, in order.
const (
	PhaseNone    Phase = ""        // there was none yet
	PhaseInstall Phase = "install" // all hosts learn the new key, and the old one is in use
	PhaseUse     Phase = "use"     // the new one begins to be used
	PhaseRemove  Phase = "remove"  // the old one is removed from hosts that have confirmed the new one
	PhaseDone    Phase = "done"
)

// Running reports whether the rotation has not ended.
func (p Phase) Running() bool { return p == PhaseInstall || p == PhaseUse || p == PhaseRemove }

// Laggard is a node, or another host, that a rotation waits for.
type Laggard struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Merge returns the laggards of all lists, each name once with its first reason, sorted.
func Merge(lists ...[]Laggard) []Laggard {
	byName := map[string]Laggard{}
	for _, list := range lists {
		for _, l := range list {
			if _, found := byName[l.Name]; !found {
				byName[l.Name] = l
			}
		}
	}

	all := make([]Laggard, 0, len(byName))
	for _, key := range slices.Sorted(maps.Keys(byName)) {
		all = append(all, byName[key])
	}

	return all
}

// CheckLockOut refuses to lock names out that are not all the laggards of a rotation,
// and no others.
func CheckLockOut(laggards []Laggard, names []string) error {
	var unnamed []string
	for _, l := range laggards {
		if !slices.Contains(names, l.Name) {
			unnamed = append(unnamed, l.Name)
		}
	}

	if len(unnamed) > 0 {
		return inventory.Errorf(inventory.KindRefused, "%s would be locked out, and not all of them are named",
			strings.Join(unnamed, ", ")).
			Do("compare the laggards of the rotation, and name them all").About(unnamed...)
	}

	// A name that the rotation does not wait for is most likely a mistake.
	for _, name := range names {
		if !slices.ContainsFunc(laggards, func(l Laggard) bool { return l.Name == name }) {
			return inventory.Errorf(inventory.KindInvalid, "the rotation does not wait for %q",
				inventory.Shorten(name, 100)).Do("name the laggards only")
		}
	}

	return nil
}

// Has reports whether a sorted list contains a name.
func Has(names []string, name string) bool {
	_, found := slices.BinarySearch(names, name)
	return found
}

// With returns the sorted list with more names.
func With(names, more []string) []string {
	all := slices.Concat(names, more)
	slices.Sort(all)
	return slices.Compact(all)
}
