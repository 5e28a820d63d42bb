// SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"strings"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/cluster"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
)

// Instance is a live daemon. Its record disappears soon after the daemon does.
type Instance struct {
	cluster.Identity

	Addr    string   `json:"addr"`         // of its host; empty: unknown
	API     []string `json:"api"`          // URLs of its API, that for other hosts last
	CA      string   `json:"ca,omitempty"` // fingerprint of the CA of its https URL; empty: no HTTPS
	Version string   `json:"version"`      // of clusterm
	// Schema is the version of the stored data that the instance writes, once all do; empty: it is too old to tell.
	Schema  string    `json:"schema,omitempty"`
	Started time.Time `json:"started"`
}

// CheckAlone refuses what changes a file that every instance has on its own host, beside other instances than those
// on the node.
func CheckAlone(r record.Reader, node string) error {
	for _, i := range record.List(r, &Instances) {
		if i.Node != node {
			return inventory.Errorf(inventory.KindRefused,
				"another instance is alive, on %s: it would not have the new key", i.Node).
				Do("stop clusterm there, try again, and copy the key to it before its start")
		}
	}

	return nil
}

// Playbooks are the playbooks that an instance would run now.
type Playbooks struct {
	Digest string    `json:"digest,omitempty"` // empty: they cannot be read, see Problem
	Commit string    `json:"commit,omitempty"` // of their git repository; empty: a folder
	Since  time.Time `json:"since"`
	// Problem is the reason why they cannot be read, or empty.
	Problem string `json:"problem,omitempty"`
}

// Instances are the live daemons, the oldest first.
var Instances = record.Kind[Instance]{
	Name: "instances",
	Key:  func(i *Instance) string { return i.ID },
	Compare: func(a, b *Instance) int {
		return cmp.Or(a.Started.Compare(b.Started), strings.Compare(a.ID, b.ID))
	},
	Nodes: func(i *Instance) []string { return []string{i.Node} },
}

// Lead is the instance that does the duties of the cluster; zero while none does. It is written with the record of the
// instance, so a change of the lead is one of its instance as well.
var Lead = record.Kind[Instance]{
	Name: "holder", Single: true, Nodes: func(i *Instance) []string { return []string{i.Node} },
}

// NotLeading is the refusal of what only the instance that leads can do. work says in words why, as the end of a
// sentence: "so it does not fetch".
func NotLeading(r record.Reader, work string) error {
	lead := record.One(r, &Lead)
	if lead.ID == "" {
		return inventory.Errorf(inventory.KindUnavailable, "no instance leads now, %s", work).
			Do("try again in %s", inventory.ShortDuration(leadAgain)).With(inventory.ShowHealth())
	}

	err := inventory.Errorf(inventory.KindUnavailable, "this instance does not lead, %s: the one on %s does",
		work, lead.Node).With(inventory.ShowHealth())
	if len(lead.API) == 0 {
		return err.Do("ask the one on %s", lead.Node)
	}

	return err.Do("ask the one on %s, at %s", lead.Node, lead.API[len(lead.API)-1])
}

// leadAgain is how long it takes at most until an instance leads again after another one was lost.
const leadAgain = 20 * time.Second

// InstancePlaybooks are the playbooks that each instance would run now, by its id.
var InstancePlaybooks = record.Kind[Playbooks]{Name: "playbooks"}

// PlaybooksOf returns the playbooks that an instance would run now; zero ones while they are not
// known.
func PlaybooksOf(r record.Reader, instance string) Playbooks {
	if p := record.Get(r, &InstancePlaybooks, instance); p != nil {
		return *p
	}
	return Playbooks{}
}

// Owners are the instances that run a job now, by its number. Each record goes with its lease. One that cannot be read
// is of an unknown instance.
var Owners = record.Kind[cluster.Identity]{
	Name:    "owners",
	Damaged: func(string, *cluster.Identity) *cluster.Identity { return &cluster.Identity{} },
}

// Observer is a monitor of the nodes whose reports came to an instance that does not lead.
type Observer struct {
	Name string    `json:"name"`
	At   time.Time `json:"at"`             // its newest report, by the clock of the instance that took it
	Full bool      `json:"full,omitempty"` // whether that was the end of a full report
}

// Observers tell the instance that leads of reports to others, by observer.
var Observers = record.Kind[Observer]{Name: "observers", Key: func(o *Observer) string { return o.Name }}

// Connections are the ssh parameters set for single nodes, by name.
var Connections = record.Kind[configuration.Connection]{Name: "connections", ByNode: true}

// Tombstones are the remainders of forgotten nodes, by name.
var Tombstones = record.Kind[inventory.Tombstone]{
	Name: "tombstones",
	Key:  func(t *inventory.Tombstone) string { return t.Name },
}

// Kinds are the kinds of this package.
var Kinds = []record.Any{
	&job.Nodes,
	&job.Newest,
	&Instances,
	&Lead,
	&Epochs,
	&Observers,
	&InstancePlaybooks,
	&Owners,
	&Connections,
	&Tombstones,
	&Memory,
	&Variables,
	&Checksums,
	&Overlays,
	&ConfigFiles,
	&Machines,
	&Agents,
	&Powers,
	&Facts,
	&Classes,
}
