// SPDX-License-Identifier: Apache-2.0

package job

import (
	"maps"
	"slices"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
)

// maxHostKeys bounds the ssh host keys of one address. A host has one of each type.
const maxHostKeys = 16

// giveHostKeys adds the keys of a request to its targets. It refuses malformed keys,
// and keys of an address that is no target: that would be a mistake in the address.
func giveHostKeys(targets []Target, given map[string][]string) error {
	for _, addr := range slices.Sorted(maps.Keys(given)) {
		i := slices.IndexFunc(targets, func(t Target) bool { return t.Addr == CanonicalAddr(addr) })

		switch {
		case i < 0:
			return inventory.Errorf(inventory.KindInvalid, "host_keys has a key of %q, no address of the request",
				inventory.Shorten(addr, 100)).
				Do("add the address, or leave the key out")
		case len(given[addr]) == 0:
			return inventory.Errorf(inventory.KindInvalid, "host_keys has no key of %s", addr).
				Do("give one, or leave the address out of host_keys")
		case len(targets[i].HostKeys)+len(given[addr]) > maxHostKeys:
			return inventory.Errorf(inventory.KindInvalid, "host_keys has more than %d keys of %s", maxHostKeys, addr)
		}

		for _, text := range given[addr] {
			key, err := configuration.ParseHostKey(text)
			if err != nil {
				return err
			}
			targets[i].HostKeys = append(targets[i].HostKeys, key)
		}
	}

	return nil
}

// contradicts reports whether a host has recorded keys, and none of them is given.
func contradicts(given, recorded []string) bool {
	isGiven := func(key string) bool { return slices.Contains(given, key) }
	return len(given) > 0 && len(recorded) > 0 && !slices.ContainsFunc(recorded, isGiven)
}

// hostKeys returns the keys that a request gave for the addresses.
func (j Job) hostKeys(addrs []string) map[string][]string {
	var keys map[string][]string
	for _, addr := range addrs {
		if t, _ := j.Target(addr); len(t.HostKeys) > 0 {
			if keys == nil {
				keys = map[string][]string{}
			}

			keys[addr] = t.HostKeys
		}
	}

	return keys
}
