// SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"reflect"
	"slices"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
)

// View is everything that is read often, as of one revision of the store. It is
// immutable, with everything it refers to. The next view shares each record that
// has not changed.
type View struct {
	job.Snapshot

	Revision int64
	// Stale: the store has not answered for 3 seconds, so the view may be old.
	Stale bool
}

// ViewOf returns the view that a transaction on the store of the manager reads. What is read of it
// without the transaction is no guard, see record.Tx.DependOn.
func ViewOf(tx *record.Tx) *View { return tx.Base().(*View) }

// Busy reports whether a job is queued or runs.
func (v *View) Busy() bool {
	return slices.ContainsFunc(v.Jobs(), func(j *job.Job) bool { return !j.Status.Ended() })
}

// Connection returns the ssh parameters set for the node, or nil.
func (v *View) Connection(node string) *configuration.Connection {
	return record.Get(v, &Connections, node)
}

// PowerOf returns the power of a node as its BMC last said it: on, off or changing; "": no BMC ever did.
func (v *View) PowerOf(node string) string {
	power, _ := v.BMCOf(node)
	return power
}

// BMCOf returns the power of a node, see PowerOf, and why its BMC did not say it when it was asked last; "": it did.
func (v *View) BMCOf(node string) (power, problem string) {
	if p := record.Get(v, &Powers, node); p != nil {
		return p.Power, p.Problem
	}
	return "", ""
}

// HostKeys returns the recorded ssh host keys, each with the name of its node.
func (v *View) HostKeys() map[string]string { return hostKeys(v.Nodes()) }

// HostKeysInUse is HostKeys without those of nodes that are gone: at another address, their
// hosts are discovered anew.
func (v *View) HostKeysInUse() map[string]string {
	return hostKeys(slices.DeleteFunc(slices.Clone(v.Nodes()), func(n *inventory.Node) bool {
		return n.State != inventory.Discovered && n.Job == ""
	}))
}

func hostKeys(nodes []*inventory.Node) map[string]string {
	keys := map[string]string{}

	for _, n := range nodes {
		for _, key := range n.HostKeys {
			keys[key] = n.Name
		}
	}

	return keys
}

// AddrRivals returns, for each of the names, the other nodes under the same
// address, port and jump host that are Discovered or carry configuration. Ansible
// could not reach one of them for sure.
func (v *View) AddrRivals(names ...string) map[string][]string {
	type endpoint struct {
		addr, jump string
		port       int
	}

	at := func(n *inventory.Node) endpoint {
		c := cmp.Or(v.Connection(n.Name), &configuration.Connection{})
		return endpoint{job.CanonicalAddr(n.Addr), c.Jump, c.Port}
	}

	wanted := map[endpoint][]string{}
	for _, name := range names {
		if n := v.Find(name); n != nil {
			wanted[at(n)] = append(wanted[at(n)], name)
		}
	}

	rivals := map[string][]string{}
	for _, n := range v.Nodes() {
		if n.State != inventory.Discovered && len(n.Carries()) == 0 {
			continue
		}

		for _, name := range wanted[at(n)] {
			if name != n.Name {
				rivals[name] = append(rivals[name], n.Name)
			}
		}
	}

	return rivals
}

// NodeWrite writes a node and adds to its history. The write is refused unless
// the record is still at Node.Revision (0: it must not exist).
type NodeWrite struct {
	Node    inventory.Node
	Entries []inventory.HistoryEntry
	// Connection, unless nil, replaces the ssh parameters of the node; the zero
	// value removes them. Only PutNodes writes it.
	Connection *configuration.Connection
	// Agent, unless nil, is what the agent of the new node says of its machine. The write is refused if a machine was
	// registered after Decided, the revision of the decision on it. Only PutNodes writes it.
	Agent   *Agent
	Decided int64
	// Tombstone, unless nil, removes the node with its history and variables,
	// and stays in its place.
	Tombstone *inventory.Tombstone
}

// Claim is the claim of the nodes of a job.
type Claim struct {
	Job    job.Job // as it is to run
	Writes []NodeWrite
	// Revision is that of the view on which the claim was decided, and Uses are the
	// groups whose nodes the decision depends on. The claim is refused if a job or a
	// removal of nodes has changed one of them since.
	Revision int64
	Uses     []string
}

// SameMap reports whether a and b are the same map. Views share maps that have
// not changed, so identity shows that nothing changed.
func SameMap[K comparable, V any](a, b map[K]V) bool {
	return reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer()
}
