// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // the format of hashed names in known_hosts
	"encoding/base64"
	"net"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl/exit"
)

func hostKeyFlag(meaning string) cli.Flag {
	return listFlag("host-key", "`ADDR=KEY`: "+meaning)
}

// hostKeys returns the ssh host keys that the command line gives for the addresses.
func (c *call) hostKeys(addrs []string) (map[string][]string, error) {
	keys := map[string][]string{}
	for _, arg := range c.StringSlice("host-key") {
		addr, key, ok := strings.Cut(arg, "=")
		if !ok || addr == "" || key == "" {
			return nil, exit.Usagef("--host-key %q is not ADDR=KEY", arg).
				Try("write --host-key '192.168.2.11=ssh-ed25519 AAAA…'")
		}

		keys[addr] = append(keys[addr], key)
	}

	if !c.IsSet("known-hosts") {
		return keys, nil
	}

	content, err := readFile(c.String("known-hosts"))
	if err != nil {
		return nil, exit.Usagef("cannot read the host keys: %v", err).Try("give --known-hosts FILE")
	}

	var missing []string
	for _, addr := range addrs {
		keys[addr] = append(keys[addr], knownKeys(string(content), addr)...)
		if len(keys[addr]) == 0 {
			missing = append(missing, addr)
		}
	}

	// The operator relies on the verification of every address.
	if len(missing) > 0 {
		return nil, exit.Usagef("%s has no key of %s", c.String("known-hosts"), strings.Join(missing, ", ")).
			Try("add the keys to it, or give --host-key ADDR=KEY")
	}

	return keys, nil
}

// knownKeys returns the keys of an address in a known_hosts file, each as its type and
// base64. It skips certificate authorities, revoked keys and patterns.
func knownKeys(content, addr string) []string {
	var keys []string
	for line := range strings.Lines(content) {
		words := strings.Fields(line)
		if len(words) < 3 || strings.HasPrefix(words[0], "#") || strings.HasPrefix(words[0], "@") {
			continue
		}

		isAddr := func(name string) bool { return isKnownName(name, addr) }
		key := words[1] + " " + words[2]

		if slices.ContainsFunc(strings.Split(words[0], ","), isAddr) && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}

	return keys
}

// isKnownName reports whether a name of known_hosts, plain or hashed, with or without
// a port, is the address.
func isKnownName(name, addr string) bool {
	if host, _, err := net.SplitHostPort(name); err == nil && strings.HasPrefix(name, "[") {
		return strings.EqualFold(host, addr)
	}

	salted, ok := strings.CutPrefix(name, "|1|")
	if !ok {
		return strings.EqualFold(name, addr)
	}
	salt, hash, _ := strings.Cut(salted, "|")

	key, err := base64.StdEncoding.DecodeString(salt)
	if err != nil {
		return false
	}

	want, err := base64.StdEncoding.DecodeString(hash)
	if err != nil {
		return false
	}

	mac := hmac.New(sha1.New, key)
	mac.Write([]byte(addr))

	return hmac.Equal(mac.Sum(nil), want)
}
