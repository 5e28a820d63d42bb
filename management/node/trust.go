// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/state"
)

// scanTime bounds the scan of the host keys of one node.
const scanTime = 30 * time.Second

// HostKeys are the ssh host keys of a node, each in the form of
// inventory.Node.HostKeys.
type HostKeys struct {
	Node     string
	Addr     string
	Recorded []string
	Shown    []string // by the host now, the preferred one first
}

// Trust names the ssh host key to record: by the whole key or by its fingerprint.
type Trust struct {
	Key         string // "ssh-ed25519 AAAA…"
	Fingerprint string // "SHA256:…"
	Reason      string // the operator's

	// SetAside makes the other addresses at which the node is claimed not count; it
	// needs a reason.
	SetAside bool
}

// check refuses a trust that names no key, or several, and malformed ones.
func (t Trust) check() error {
	switch {
	case t.Key == "" && t.Fingerprint == "":
		return inventory.Errorf(inventory.KindInvalid, "no ssh host key is named").Do("give key or fingerprint")
	case t.Key != "" && t.Fingerprint != "":
		return inventory.Errorf(inventory.KindInvalid, "both key and fingerprint are given").Do("give one of them")
	case len(t.Reason) > maxReason:
		return inventory.Errorf(
			inventory.KindTooLarge,
			"the reason has %d bytes, the limit is %d",
			len(t.Reason),
			maxReason,
		)
	case t.SetAside && strings.TrimSpace(t.Reason) == "":
		return inventory.Errorf(inventory.KindInvalid, "setting claims aside needs a reason").Do("give one")
	case t.Key != "":
		_, err := configuration.ParseHostKey(t.Key)
		return err
	}

	return configuration.CheckFingerprint(t.Fingerprint)
}

// maxReason bounds the reason of an operator in bytes.
const maxReason = 1024

// wanted returns the fingerprint of the key.
func (t Trust) wanted() string {
	if key, err := configuration.ParseHostKey(t.Key); err == nil {
		return configuration.Fingerprint(key)
	}
	return t.Fingerprint
}

// ScanHostKeys asks the host of a node for its ssh host keys, with the connection
// settings of the node. It changes nothing, and blocks until the host has answered
// or run into a timeout. It is KindBusy if the caller has too many logins under way.
func (ns *Nodes) ScanHostKeys(ctx context.Context, c access.Caller, name string) (HostKeys, error) {
	v, err := c.Check(ctx, ns.state, ns.state.View(), access.Node(name))
	if err != nil {
		return HostKeys{}, err
	}
	n, err := v.Node(name)
	if err != nil {
		return HostKeys{}, err
	}

	h := configuration.Host{
		Name: n.Name, Addr: n.Addr, Label: n.Label, Serial: n.Serial, Role: configuration.RoleTarget,
		Connection: ns.settings().Connect(v, n.Group, n.Name),
	}

	// The address comes from the network, and becomes an argument of ssh.
	if err := configuration.CheckHosts([]configuration.Host{h}); err != nil {
		return HostKeys{}, err
	}

	ctx, cancel := context.WithTimeout(ctx, scanTime)
	defer cancel()

	shown, err := ns.prober(c.Principal).HostKeys(ctx, h)
	if inventory.KindOf(err) == inventory.KindBusy {
		return HostKeys{}, err
	}

	if err != nil {
		silent := inventory.Errorf(inventory.KindUnavailable, "%s does not show its ssh host key: %w", name, err)

		return HostKeys{}, silent.
			Do("check the host, its address and the port of its sshd").
			With(inventory.SetConnection(name)).
			About(name)
	}

	return HostKeys{Node: n.Name, Addr: n.Addr, Recorded: n.HostKeys, Shown: shown}, nil
}

// TrustHostKey records the named ssh host key of a node in place of those recorded,
// if the host shows it now. The change is in the history of the node.
func (ns *Nodes) TrustHostKey(ctx context.Context, c access.Caller, name string, t Trust) (inventory.Node, error) {
	if err := t.check(); err != nil {
		return inventory.Node{}, err
	}

	var trusted inventory.Node

	record := access.Record{Action: "nodes.trust", Targets: []string{name}, Reason: t.Reason}
	err := access.Audited(ctx, ns.audit, c, record, func(recording context.Context, record *access.Record) error {
		keys, err := ns.ScanHostKeys(ctx, c, name)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(keys.Shown, func(key string) bool { return configuration.Fingerprint(key) == t.wanted() })
		if i < 0 {
			return inventory.Errorf(inventory.KindRefused, "%s does not show the ssh host key %s, but %s",
				name, t.wanted(), strings.Join(configuration.Fingerprints(keys.Shown), ", ")).
				Do("find out which machine answers at %s; nothing was changed", keys.Addr).About(name)
		}

		if err := ns.yield(ctx, c.Principal, []string{name}); err != nil {
			return err
		}

		record.Reason = trustReason(keys.Shown[i], keys.Recorded, t.Reason)
		trusted, err = ns.recordHostKey(recording, c, keys, keys.Shown[i], record.Reason, t.SetAside)

		return err
	})

	return trusted, err
}

// trustReason describes the change of the key for history and audit.
func trustReason(key string, recorded []string, reason string) string {
	text := "ssh host key " + configuration.Fingerprint(key)
	if len(recorded) > 0 {
		text += " in place of " + strings.Join(configuration.Fingerprints(recorded), ", ")
	}
	if reason != "" {
		text += ": " + reason
	}
	return text
}

// recordHostKey records the key, and with setAside the decision on the other claims,
// unless the node has changed its address or its keys since the scan.
func (ns *Nodes) recordHostKey(
	ctx context.Context, c access.Caller, scanned HostKeys, key, reason string, setAside bool,
) (inventory.Node, error) {
	err := state.RetryConflict(ctx, ns.state, func(v *state.View) error {
		v, err := c.Check(ctx, ns.state, v, nil)
		if err != nil {
			return err
		}
		n, err := v.Node(scanned.Node)
		if err != nil {
			return err
		}

		switch {
		// A running playbook relies on the recorded key.
		case n.Job != "":
			return inventory.Errorf(inventory.KindRefused, "%s is held by job %s", n.Name, n.Job).
				Do("wait for the job").With(inventory.WaitForJob(n.Job)).About(n.Name)
		case n.Addr != scanned.Addr || !slices.Equal(n.HostKeys, scanned.Recorded):
			return inventory.Errorf(inventory.KindPrecondition, "%s changed during the scan of its host key", n.Name).
				Do("repeat the request").About(n.Name)
		}

		if owner := v.HostKeys()[key]; owner != "" && owner != n.Name {
			return configuration.ErrTaken(n.Name, configuration.Fingerprint(key), v.HostKeys())
		}

		trigger := inventory.Trigger{Actor: c.Principal, Reason: reason, Time: time.Now()}
		if setAside && len(n.Duplicates) > 0 {
			trigger.Reason += "; set aside: " + strings.Join(n.Duplicates, ", ") + n.Conflict()
			n = n.SetAsideOthers()
		}

		m, entry := n.Note(inventory.VerbTrust, trigger)
		m.HostKeys = []string{key}

		return PutNodes(ctx, ns.store, []state.NodeWrite{{Node: m, Entries: []inventory.HistoryEntry{entry}}})
	})
	if err != nil {
		return inventory.Node{}, err
	}

	return ns.state.View().Node(scanned.Node)
}
