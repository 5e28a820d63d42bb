// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"maps"
	"slices"
	"time"
)

// Node is the record of one host.
type Node struct {
	Name   string `json:"name"`   // LABEL-SERIAL
	Label  string `json:"label"`  // from its agent
	Serial string `json:"serial"` // from its agent
	Addr   string `json:"addr"`   // where Ansible reaches it: IPv4, IPv6 or host name

	Status     Status `json:"status"`
	PrevStatus Status `json:"prev_status,omitempty"`
	State      State  `json:"state"`
	PrevState  State  `json:"prev_state,omitempty"`

	// Group is the host group it is commissioned into, is being commissioned
	// into, or (Quarantined) may still carry traces of. Empty otherwise.
	Group string `json:"group,omitempty"`
	// Residue names the groups whose configuration could not be cleaned off it.
	Residue []string `json:"residue,omitempty"`
	// Applied is the id of the job whose configuration it carries; empty where
	// that is unknown or nothing is applied.
	Applied string `json:"applied,omitempty"`
	// LastError is why the last verb failed; the next verb clears it.
	LastError string `json:"last_error,omitempty"`

	Job  string `json:"job,omitempty"`  // the job that holds it
	Verb Verb   `json:"verb,omitempty"` // what that job does
	// Before is what the node was before that job reserved it. While the job is
	// not committed to (it is still Queued) the reservation counts as absent
	// and this is what the node is.
	Before *Before `json:"before,omitempty"`

	// Labels are what operators put on it to find it by, see Relabel. They are
	// its own: no verb changes them.
	Labels map[string]string `json:"labels,omitempty"`

	// Seen is the last word of each observer.
	Seen map[string]bool `json:"seen,omitempty"`
	// Duplicates are the addresses of further live members that claim this identity.
	Duplicates []string `json:"duplicates,omitempty"`
	// HostKeys are the ssh host keys recorded at the first contact, each as in
	// known_hosts without the host field ("ssh-ed25519 AAAA…").
	HostKeys []string `json:"host_keys,omitempty"`

	Entries uint64    `json:"entries"` // how many history entries it ever had
	Created time.Time `json:"created"`
	Updated time.Time `json:"updated"`

	// Revision is the store's revision of this record; not part of it.
	Revision int64 `json:"-"`
}

// Before is the part of a node that a reservation changes.
type Before struct {
	Status     Status   `json:"status"`
	PrevStatus Status   `json:"prev_status,omitempty"`
	Group      string   `json:"group,omitempty"`
	LastError  string   `json:"last_error,omitempty"`
	Applied    string   `json:"applied,omitempty"`
	Residue    []string `json:"residue,omitempty"`
	Entries    uint64   `json:"entries"`
}

// HistoryEntry is one line of a node's history.
type HistoryEntry struct {
	Seq    uint64    `json:"seq"` // counts upwards from 1; a withdrawn reservation leaves a gap
	Time   time.Time `json:"time"`
	Verb   Verb      `json:"verb"`
	From   Status    `json:"from,omitempty"`
	To     Status    `json:"to"`
	State  State     `json:"state"` // the state at that time
	Group  string    `json:"group,omitempty"`
	Actor  string    `json:"actor,omitempty"`
	Job    string    `json:"job,omitempty"`
	Reason string    `json:"reason,omitempty"`
	// Read is the revision of the record that the transition was decided on.
	Read int64 `json:"read_revision,omitempty"`
}

// HistoryLimit is how many entries of a node's history are kept.
const HistoryLimit = 1000

// Tombstone is what is left of a forgotten node. A node that is seen under a
// name with a tombstone is Quarantined instead of new.
type Tombstone struct {
	Name     string    `json:"name"`
	Label    string    `json:"label"`
	Serial   string    `json:"serial"`
	HostKeys []string  `json:"host_keys,omitempty"`
	Residue  []string  `json:"residue,omitempty"` // groups whose configuration it may still carry
	Time     time.Time `json:"time"`
	Actor    string    `json:"actor,omitempty"`
	Reason   string    `json:"reason,omitempty"`
}

// Commissioned tells whether the node serves: it is Allocated, or is being
// upgraded in place. A node that is being updated has its configuration
// removed meanwhile, and does not count.
func (n Node) Commissioned() bool {
	return n.Status == Allocated || n.Status == Maintenance && n.Verb != VerbUpdate
}

// InService tells whether the node depends on what its group needs.
func (n Node) InService() bool {
	return n.Status == Provisioning || n.Status == Allocated || n.Status == Maintenance
}

// Clone returns a copy that shares nothing with n.
func (n Node) Clone() Node {
	n.Residue = slices.Clone(n.Residue)
	n.Duplicates = slices.Clone(n.Duplicates)
	n.HostKeys = slices.Clone(n.HostKeys)
	n.Labels = maps.Clone(n.Labels)

	n.Seen = maps.Clone(n.Seen)
	if n.Before != nil {
		b := *n.Before
		b.Residue = slices.Clone(b.Residue)
		n.Before = &b
	}

	return n
}

// Trigger is who does something, for which job, and why.
type Trigger struct {
	Actor  string
	Job    string
	Reason string
	Time   time.Time
}

// Carries are the groups whose configuration the node may carry: its residue,
// the oldest first, and the group it is in.
func (n Node) Carries() []string {
	groups := slices.Clone(n.Residue)
	if n.Group != "" && !slices.Contains(groups, n.Group) {
		groups = append(groups, n.Group)
	}

	return groups
}

// log counts an entry and returns it.
func (n *Node) log(v Verb, from Status, c Trigger) HistoryEntry {
	n.Entries++
	n.Updated = c.Time

	return HistoryEntry{
		Seq: n.Entries, Time: c.Time, Verb: v, From: from, To: n.Status, State: n.State, Group: n.Group,
		Actor: c.Actor, Job: c.Job, Reason: c.Reason, Read: n.Revision,
	}
}

// Hold takes the node through the first half of the verb: into its in-progress
// status, held by the job, with the group it is being brought into (empty: the
// group stays). What it was is kept in Before. It refuses what the table refuses.
func (n Node) Hold(t Transition, group string, c Trigger) (Node, HistoryEntry, error) {
	if err := t.Check(n); err != nil {
		return Node{}, HistoryEntry{}, err
	}

	m := n.Clone()
	m.Before = &Before{n.Status, n.PrevStatus, n.Group, n.LastError, n.Applied, slices.Clone(n.Residue), n.Entries}
	m.PrevStatus, m.Status = n.Status, t.Through
	m.Job, m.Verb = c.Job, t.Verb

	m.LastError = ""
	if group != "" {
		m.Group = group
	}

	return m, m.log(t.Verb, n.Status, c), nil
}

// Unreserved is the node without a reservation that was never committed to.
func (n Node) Unreserved() Node {
	if n.Before == nil {
		return n
	}

	m := n.Clone()
	b := m.Before
	m.Status, m.PrevStatus, m.Group, m.LastError = b.Status, b.PrevStatus, b.Group, b.LastError
	m.Applied, m.Residue = b.Applied, b.Residue
	m.Job, m.Verb, m.Before = "", "", nil

	return m
}

// Outcome is how a verb ended for one node.
type Outcome struct {
	Status  Status   `json:"status"`
	Group   string   `json:"group,omitempty"`
	Applied string   `json:"applied,omitempty"`
	Residue []string `json:"residue,omitempty"`
	Error   string   `json:"error,omitempty"` // becomes LastError
	Reason  string   `json:"reason,omitempty"`
}

// Release ends the verb: the node gets the outcome's status and no job holds it.
func (n Node) Release(o Outcome, c Trigger) (Node, HistoryEntry) {
	m := n.Clone()
	verb := n.Verb
	m.PrevStatus, m.Status = n.Status, o.Status
	m.Group, m.Applied, m.Residue, m.LastError = o.Group, o.Applied, o.Residue, o.Error
	m.Job, m.Verb, m.Before = "", "", nil
	c.Reason = o.Reason

	return m, m.log(verb, n.Status, c)
}

// Observation is what one observer says of a node.
type Observation struct {
	Observer string
	Label    string
	Serial   string
	Addr     string
	Alive    bool
	Joined   bool     // it was not alive before, as far as this observer knows
	Others   []string // addresses of further live members with the same identity
}

// ObserverPost is the observer that stands for every report without an identity.
// Its last word holds until it says otherwise or gossip sees the node join anew.
const ObserverPost = "post"

// NewNode is the node that an observer reports for the first time: Unallocated,
// or Quarantined where a tombstone says that it was forgotten before.
func NewNode(w Observation, grave *Tombstone, at time.Time) (Node, HistoryEntry) {
	n := Node{
		Name: NodeName(w.Label, w.Serial), Label: w.Label, Serial: w.Serial, Addr: w.Addr,
		Status: Unallocated, State: Unknown, PrevState: Unknown, Created: at, Seen: map[string]bool{},
	}

	c := Trigger{Actor: "monitor:" + w.Observer, Reason: "seen for the first time", Time: at}
	if grave != nil {
		n.Status = Quarantined
		n.HostKeys, n.Residue = slices.Clone(grave.HostKeys), slices.Clone(grave.Residue)
		n.LastError = "it was forgotten on " + grave.Time.UTC().Format(time.RFC3339) + " and is seen again"
		c.Reason = n.LastError
	}

	n.apply(w)

	return n, n.log(VerbDiscovered, "", c)
}

// Observe applies an observer's word. changed tells whether the record differs
// at all; the entry is nil unless the state did.
func (n Node) Observe(w Observation, at time.Time) (m Node, entry *HistoryEntry, changed bool) {
	m = n.Clone()
	if m.Seen == nil {
		m.Seen = map[string]bool{}
	}

	m.apply(w)

	if m.State != n.State {
		m.PrevState = n.State

		verb := VerbDiscovered
		if m.State == Disappeared {
			verb = VerbDisappeared
		}

		e := m.log(verb, n.Status, Trigger{Actor: "monitor:" + w.Observer, Job: n.Job, Time: at})

		return m, &e, true
	}

	changed = m.Addr != n.Addr || !maps.Equal(m.Seen, n.Seen) || !slices.Equal(m.Duplicates, n.Duplicates)
	if changed {
		m.Updated = at
	}

	return m, nil, changed
}

func (n *Node) apply(w Observation) {
	if w.Joined && w.Observer != ObserverPost {
		delete(n.Seen, ObserverPost)
	}

	n.Seen[w.Observer] = w.Alive
	if w.Alive {
		n.Addr = w.Addr
	}

	switch {
	case w.Observer == ObserverPost: // sees one report at a time, so cannot tell
	case w.Alive:
		n.Duplicates = slices.Sorted(slices.Values(w.Others))
	default:
		n.Duplicates = nil
	}

	n.State = Disappeared
	for _, alive := range n.Seen {
		if alive {
			n.State = Discovered
		}
	}
}

// CheckForget refuses to forget a node that is in progress, or that is still
// seen unless force is given.
func (n Node) CheckForget(force bool) error {
	switch {
	case n.Status.InProgress():
		return Errorf(KindRefused, "%s is %s: job %s holds it", n.Name, n.Status, n.Job).
			Do("wait for the job, or cancel it: clusterctl job cancel %s", n.Job).About(n.Name)
	case n.State != Disappeared && !force:
		return Errorf(KindRefused, "%s is still %s", n.Name, n.State).
			Do("stop its agent first, or repeat with --force (in the API force: true)").About(n.Name)
	}

	return nil
}
