// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/localfile"
	"github.com/contiv/cluster/monitor"
	"github.com/contiv/cluster/monitor/serf"
)

// serialBytes is the length of a serial number taken from the machine id: unique
// in any fleet, and short enough to read. The Ansible role of the agent has the
// same rule.
const serialBytes = 12

// notInLabel matches characters that a label must not contain.
var notInLabel = regexp.MustCompile(`[^a-z0-9-]+`)

// identify completes the identity of this host: the label from the host name, the
// serial number from the machine id, and, for a host that runs an agent, the
// address from the network interfaces.
func identify(n monitor.Identity, runsAgent bool) (monitor.Identity, error) {
	if n.Label == "" {
		host, err := os.Hostname()
		if err != nil {
			return n, err
		}

		// The label is the host name without its domain.
		host, _, _ = strings.Cut(strings.ToLower(host), ".")
		n.Label = strings.Trim(notInLabel.ReplaceAllString(host, "-"), "-")
	}

	if n.Serial == "" {
		id, err := os.ReadFile("/etc/machine-id")
		if err != nil || len(id) < serialBytes {
			return n, inventory.Errorf(inventory.KindInvalid,
				"this host has no /etc/machine-id to take its serial number from").
				Do("run systemd-machine-id-setup, or configure node.serial")
		}

		n.Serial = string(id[:serialBytes])
	}

	if n.Addr == "" && runsAgent {
		addr, err := ownAddr()
		if err != nil {
			return n, err
		}

		n.Addr = addr
	}

	for _, err := range []error{inventory.CheckLabel(n.Label), inventory.CheckSerial(n.Serial)} {
		if err != nil {
			return n, inventory.Errorf(inventory.KindInvalid, "node: %w", err).
				Do("configure node.label and node.serial")
		}
	}

	return n, nil
}

// ownAddr returns the first global unicast address of this host: IPv4 before
// IPv6, in the order of the interfaces.
func ownAddr() (string, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return "", err
	}

	var ipv6 string
	for _, i := range interfaces {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 {
			continue
		}

		// An interface may disappear during the loop.
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}

		for _, a := range addrs {
			ip, ok := a.(*net.IPNet)
			if !ok || !ip.IP.IsGlobalUnicast() {
				continue
			}

			if ip.IP.To4() != nil {
				return ip.IP.String(), nil
			}

			if ipv6 == "" {
				ipv6 = ip.IP.String()
			}
		}
	}

	if ipv6 == "" {
		return "", inventory.Errorf(inventory.KindInvalid, "this host has no address that other hosts can reach").
			Do("configure node.addr, or write gossip: off")
	}

	return ipv6, nil
}

// readGossipKey reads the key of the gossip. If create is set, it generates a missing one.
func readGossipKey(path string, create bool) (string, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) && create {
		key := serf.GenerateKey()
		if err := localfile.Replace(path, []byte(key+"\n")); err != nil {
			return "", inventory.Errorf(inventory.KindUnavailable, "the gossip key cannot be written: %w", err)
		}

		return key, nil
	}

	if err != nil {
		return "", inventory.Errorf(inventory.KindInvalid, "the gossip key cannot be read: %w", err).
			Do("check gossip.key_file")
	}

	keys, err := serf.ParseKeys(string(data))
	if err != nil {
		return "", inventory.Errorf(inventory.KindInvalid, "%s holds no gossip key: %w", path, err)
	}

	return strings.Join(keys, "\n"), nil
}

// instanceFile contains the identity, in the data directory.
const instanceFile = "instance.id"

// instanceIDs matches a valid identity.
var instanceIDs = regexp.MustCompile(`^[0-9a-f]{16}$`)

// instanceID returns the identity of the daemon with this data directory, which
// the first start generates. It survives restarts, so that a daemon recognizes
// its own records.
func instanceID(dataDir string) (string, error) {
	path := filepath.Join(dataDir, instanceFile)

	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		var b [8]byte
		rand.Read(b[:])

		id := hex.EncodeToString(b[:])
		if err := localfile.Replace(path, []byte(id+"\n")); err != nil {
			return "", inventory.Errorf(inventory.KindUnavailable,
				"the identity of this instance cannot be written: %w", err).
				Do("check owner, mode and free space of %s", dataDir)
		}

		return id, nil
	}

	if err != nil {
		return "", inventory.Errorf(inventory.KindUnavailable, "the identity of this instance cannot be read: %w", err).
			Do("run as root")
	}

	id := strings.TrimSpace(string(data))
	if !instanceIDs.MatchString(id) {
		return "", inventory.Errorf(inventory.KindInvalid, "%s holds no valid identity", path).
			Do("remove it; the next start generates a new one")
	}

	return id, nil
}
