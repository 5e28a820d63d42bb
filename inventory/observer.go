// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"net/netip"
	"slices"
)

// ObserverGossip is the observer of the manager's own gossip.
const ObserverGossip = "gossip"

// MaxOthers bounds the further addresses in one observation.
const MaxOthers = 16

// CheckObserver validates the name of an observer outside the manager: a word
// (see CheckLabel) that is not reserved for an observer of the manager's own.
func CheckObserver(name string) error {
	if slices.Contains([]string{ObserverPost, ObserverGossip}, name) {
		return Errorf(KindInvalid, "the observer name %q is reserved", name).
			Do("choose another one, such as the name of the observer's host")
	}

	return checkWord("observer name", name, MaxLabel)
}

// CheckOthers validates the addresses of other claimants in an observation: each
// an address (see CheckAddr) or the ip:port of a gossip.
func CheckOthers(others []string) error {
	if len(others) > MaxOthers {
		return Errorf(KindInvalid, "%d other addresses are reported, the limit is %d", len(others), MaxOthers)
	}

	for _, addr := range others {
		if _, err := netip.ParseAddrPort(addr); err == nil {
			continue
		}

		if err := CheckAddr(addr); err != nil {
			return err
		}
	}

	return nil
}
