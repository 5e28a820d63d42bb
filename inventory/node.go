// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// Node is the record of one host.
type Node struct {
	Name   string `json:"name"`   // LABEL-SERIAL; of a registered machine, the name that it was registered with
	Label  string `json:"label"`  // as reported by its agent; empty: none has spoken yet
	Serial string `json:"serial"` // as reported by its agent
	Addr   string `json:"addr"`   // the address for Ansible: IPv4, IPv6 or a host name; empty: unknown

	Status     Status `json:"status"`
	PrevStatus Status `json:"prev_status,omitempty"`
	State      State  `json:"state"`
	PrevState  State  `json:"prev_state,omitempty"`

	// Group is the host group of a commissioned node, the target group during a
	// commission, and the last group of a Quarantined node. Empty otherwise.
	Group string `json:"group,omitempty"`
	// Residue names groups with configuration left on the node after a failed
	// cleanup.
	Residue []string `json:"residue,omitempty"`
	// Uncleaned: a cleaning broke off on the host after it had begun, and none succeeded since. Such a node is not
	// offered for use.
	Uncleaned bool `json:"uncleaned,omitempty"`
	// Applied is the id of the job that configured the node; empty if nothing is
	// applied, or if a failure left that unknown.
	Applied string `json:"applied,omitempty"`
	// Configured is the configuration of that job; nil if it is unknown, or not recorded.
	Configured *Configured `json:"configured,omitempty"`
	// Cleaned: a job has begun to remove the configuration of the node in service, and none
	// was applied whole since. It has its group, and does not serve.
	Cleaned bool `json:"cleaned,omitempty"`
	// Playbooks are the digests of the playbooks that configured the node, by each
	// group that it carries. A group without an entry was configured before there
	// was a record of it.
	Playbooks map[string]string `json:"playbooks,omitempty"`
	// LastError is the error of the last verb. The next verb clears it.
	LastError string `json:"last_error,omitempty"`
	// Verification is the last verdict on a node in service, or nil. A verb that may have changed the host
	// clears it.
	Verification *Verdict `json:"verification,omitempty"`

	Job  string `json:"job,omitempty"`  // id of the job that holds the node
	Verb Verb   `json:"verb,omitempty"` // the verb of that job
	// Before is the node before that job reserved it. Until the job commits its
	// reservation (it is still Queued) the reservation counts as absent and
	// Unreserved returns the node as it stands.
	Before *Before `json:"before,omitempty"`

	// Labels are set by operators, for selectors; see Relabel. Verbs keep them.
	Labels map[string]string `json:"labels,omitempty"`

	// Alerts are what somebody found about the node, at most MaxAlerts, the oldest first.
	Alerts []Alert `json:"alerts,omitempty"`

	// Seen is the latest report of each observer: true for alive.
	Seen map[string]bool `json:"seen,omitempty"`
	// Sightings are what the observers say that see the node alive.
	Sightings map[string]Sighting `json:"sightings,omitempty"`
	// Duplicates are the other addresses in Sightings, without those that are set aside:
	// of other live members with the same identity, or where another observer sees the
	// node. With any, every job refuses the node.
	Duplicates []string `json:"duplicates,omitempty"`
	// SetAside are addresses in Sightings that an operator has found not to be this node's.
	// Each is dropped when nobody claims it any more, and all when the node moves.
	SetAside []string `json:"set_aside,omitempty"`
	// AnnouncedFrom is the address of its member in the gossip, if that announces an
	// address other than its own. Only the ssh host key can tell who is at Addr.
	AnnouncedFrom string `json:"announced_from,omitempty"`
	// HostKeys are the ssh host keys recorded at the first contact, each in the
	// format of known_hosts without the host field ("ssh-ed25519 AAAA…").
	HostKeys []string `json:"host_keys,omitempty"`

	Presence Presence `json:"presence,omitzero"` // the evidence on its absences

	// Hardware is what its newest inspection found; nil: it was not inspected.
	Hardware *Hardware `json:"hardware,omitempty"`
	// Installed is what was installed on it last; nil: nothing by the manager.
	Installed *Installed `json:"installed,omitempty"`

	Entries uint64    `json:"entries"` // history entries so far, pruned ones included
	Created time.Time `json:"created"`
	Updated time.Time `json:"updated"`
	Actor   string    `json:"actor,omitempty"` // of the newest history entry

	// Revision is the store's revision of this record; it is not part of the record.
	Revision int64 `json:"-"`
}

// HistoryLimit is the number of history entries kept per node.
const HistoryLimit = 1000

// Tombstone is the remainder of a forgotten node. A node that reappears under a
// name with a tombstone starts Quarantined instead of Unallocated.
type Tombstone struct {
	Name     string   `json:"name"`
	Label    string   `json:"label"`
	Serial   string   `json:"serial"`
	HostKeys []string `json:"host_keys,omitempty"`
	Residue  []string `json:"residue,omitempty"` // groups with configuration possibly left on the host
	// Playbooks are the digests of the playbooks that configured those groups.
	Playbooks map[string]string `json:"playbooks,omitempty"`
	Uncleaned bool              `json:"uncleaned,omitempty"` // see Node
	Time      time.Time         `json:"time"`
	Actor     string            `json:"actor,omitempty"`
	Reason    string            `json:"reason,omitempty"`
}

// TombstoneAge and TombstoneLimit bound the age and the number of the tombstones. A node that returns after its
// tombstone went counts as new.
const (
	TombstoneAge   = 2 * 365 * 24 * time.Hour
	TombstoneLimit = 10_000
)

// ExpiredTombstones returns the names of the tombstones beyond the age or the number, the oldest first.
func ExpiredTombstones(all []*Tombstone, now time.Time) (names []string) {
	all = slices.SortedFunc(slices.Values(all), func(a, b *Tombstone) int {
		return cmp.Or(a.Time.Compare(b.Time), strings.Compare(a.Name, b.Name))
	})

	for i, t := range all {
		if now.Sub(t.Time) >= TombstoneAge || len(all)-i > TombstoneLimit {
			names = append(names, t.Name)
		}
	}

	return names
}

// Commissioned reports whether the node is meant to serve: it is Allocated, or held by a
// verb that keeps its service, such as an upgrade in place.
func (n Node) Commissioned() bool {
	if n.Status == Allocated {
		return true
	}

	row, held := TransitionOf(n.Verb)
	return held && row.KeepsService && n.Status == row.Through
}

// Serves reports whether the node serves if it is alive: it is Commissioned, and no job has
// removed its configuration without applying one again.
func (n Node) Serves() bool { return n.Commissioned() && !n.Cleaned }

// InService reports whether the node depends on the group that its own needs.
func (n Node) InService() bool {
	return n.Status == Provisioning || n.Status == Allocated || n.Status == Maintenance
}

// Fresh reports whether the node is offered for use and was not used since: it appeared by its agent, or it was cleaned
// and provided.
func (n Node) Fresh() bool {
	offered := n.PrevStatus == "" || n.PrevStatus == Enrolled || n.PrevStatus == Cleaning
	return n.Status == Unallocated && offered && n.LastError == "" && len(n.Residue) == 0 && !n.Uncleaned
}

// Clone returns a deep copy.
func (n Node) Clone() Node {
	n.Residue = slices.Clone(n.Residue)
	n.Duplicates = slices.Clone(n.Duplicates)
	n.Alerts = slices.Clone(n.Alerts) // the effects of an alert are immutable
	n.HostKeys = slices.Clone(n.HostKeys)
	n.Labels = maps.Clone(n.Labels)
	n.Playbooks = maps.Clone(n.Playbooks)
	n.Seen = maps.Clone(n.Seen)
	n.Sightings = maps.Clone(n.Sightings) // sightings are immutable
	n.SetAside = slices.Clone(n.SetAside)

	n.Configured = n.Configured.Clone()
	n.Presence.Returns = slices.Clone(n.Presence.Returns)

	if n.Hardware != nil {
		h := *n.Hardware
		n.Hardware = &h
	}
	if n.Installed != nil {
		i := *n.Installed
		n.Installed = &i
	}

	if n.Verification != nil {
		v := *n.Verification
		n.Verification = &v
	}

	if n.Before != nil {
		b := *n.Before
		b.Residue = slices.Clone(b.Residue)
		n.Before = &b
	}

	return n
}

// Trigger is the origin of a transition: the actor, the job, the reason and the
// time.
type Trigger struct {
	Actor  string
	Job    string
	Reason string
	Time   time.Time
}

// Carries returns the groups with configuration possibly on the node: its residue,
// oldest first, and its current group.
func (n Node) Carries() []string {
	groups := slices.Clone(n.Residue)
	if n.Group != "" && !slices.Contains(groups, n.Group) {
		groups = append(groups, n.Group)
	}
	return groups
}

// CarriesOther reports whether the node carries configuration from other playbooks
// than those with the digest, as far as they are on record.
func (n Node) CarriesOther(digest string) bool {
	for _, carried := range n.Playbooks {
		if carried != digest {
			return true
		}
	}

	return false
}

// log counts a history entry, dates the record and returns the entry.
func (n *Node) log(v Verb, from Status, t Trigger) HistoryEntry {
	n.Entries++
	n.Updated, n.Actor = t.Time, t.Actor

	if n.Status == Quarantined && from != Quarantined {
		n.Presence.Fenced = t.Time
	}

	return HistoryEntry{
		Seq: n.Entries, Time: t.Time, Verb: v, From: from, To: n.Status, State: n.State, Group: n.Group,
		Actor: t.Actor, Job: t.Job, Reason: t.Reason, Read: n.Revision,
	}
}

// Hold reserves the node for the job in trigger: it returns a copy in the verb's
// in-progress status and in the given group (empty keeps the current one), with
// the present values in Before. The error is that of Transition.Check.
func (n Node) Hold(t Transition, group string, trigger Trigger) (Node, HistoryEntry, error) {
	if err := t.Check(n); err != nil {
		return Node{}, HistoryEntry{}, err
	}

	m := n.Clone()
	m.Before = &Before{
		Status: n.Status, PrevStatus: n.PrevStatus, Group: n.Group, LastError: n.LastError,
		Applied: n.Applied, Residue: slices.Clone(n.Residue), Entries: n.Entries,
	}

	m.PrevStatus, m.Status = n.Status, t.Through
	m.Job, m.Verb = trigger.Job, t.Verb
	m.LastError = ""

	if group != "" {
		m.Group = group
	}

	return m, m.log(t.Verb, n.Status, trigger), nil
}

// Unreserved returns the node without an uncommitted reservation.
func (n Node) Unreserved() Node {
	if n.Before == nil {
		return n
	}

	m := n.Clone()
	b := m.Before
	m.Status, m.PrevStatus, m.Group, m.LastError = b.Status, b.PrevStatus, b.Group, b.LastError
	m.Applied, m.Residue = b.Applied, b.Residue
	m.Job, m.Verb, m.Before = "", "", nil

	// Entries keeps counting, so that no sequence number is used twice.
	return m
}

// As returns the node with the reservation if it is held, which its job commits, else without.
func (n *Node) As(held bool) *Node {
	if held || n.Before == nil {
		return n
	}

	m := n.Unreserved()
	return &m
}

// Outcome is the result of a verb for one node.
type Outcome struct {
	Status     Status            `json:"status"`
	Group      string            `json:"group,omitempty"`
	Applied    string            `json:"applied,omitempty"`
	Configured *Configured       `json:"configured,omitempty"` // by the job; nil: not at all
	Playbooks  map[string]string `json:"playbooks,omitempty"`
	Residue    []string          `json:"residue,omitempty"`
	// Cleaned: the job has begun to remove the configuration, and has not applied one whole.
	Cleaned bool `json:"cleaned,omitempty"`
	// Uncleaned: a cleaning of the host broke off after it had begun.
	Uncleaned bool `json:"uncleaned,omitempty"`
	// Trusted: clean.yml succeeded on the host, or an operator says that it is clean.
	Trusted bool `json:"trusted,omitempty"`
	// AsBefore: the job has left the node as it was. All other fields are those of the job alone.
	AsBefore bool `json:"as_before,omitempty"`
	// Untouched: no task of the job may have changed the host.
	Untouched bool     `json:"untouched,omitempty"`
	Verdict   *Verdict `json:"verdict,omitempty"` // of a verification; nil: the job has none
	Error     string   `json:"error,omitempty"`   // becomes LastError
	Reason    string   `json:"reason,omitempty"`
}

// Release ends the verb with the outcome and frees the node of its job.
func (n Node) Release(o Outcome, t Trigger) (Node, HistoryEntry) {
	m := n.Clone()
	if b := n.Before; o.AsBefore && b != nil {
		m.Status, m.PrevStatus, m.Group, m.LastError = b.Status, b.PrevStatus, b.Group, b.LastError
		m.Applied, m.Residue = b.Applied, slices.Clone(b.Residue)
	} else {
		m.PrevStatus, m.Status = n.Status, o.Status
		m.Group, m.Applied, m.Playbooks, m.Residue, m.LastError = o.Group, o.Applied, o.Playbooks, o.Residue, o.Error
	}

	m.Configured = n.configuredAfter(o, m.Applied)
	m.Cleaned = n.CleanedAfter(o)
	m.Uncleaned = n.UncleanedAfter(o)

	m.Verification = n.VerificationAfter(o, m.Status)

	m.Job, m.Verb, m.Before = "", "", nil

	t.Reason = o.Reason
	entry := m.log(n.Verb, n.Status, t)

	// A verb that leaves the status as it was does not fence the node anew.
	if row, _ := TransitionOf(n.Verb); row.Success == AsBefore && n.PrevStatus == Quarantined {
		m.Presence.Fenced = n.Presence.Fenced
	}

	return m, entry
}

// CleanedAfter returns Cleaned of the node after a verb with the outcome. Only a configuration
// that is applied whole, or the end of its service, clears it.
func (n Node) CleanedAfter(o Outcome) bool {
	if o.AsBefore {
		return n.Cleaned
	}
	return o.Status == Allocated && o.Applied == "" && (n.Cleaned || o.Cleaned)
}

// UncleanedAfter returns Uncleaned of the node after a verb with the outcome.
func (n Node) UncleanedAfter(o Outcome) bool {
	if o.AsBefore {
		return n.Uncleaned
	}
	return o.Uncleaned || n.Uncleaned && !o.Trusted
}

// VerificationAfter returns the verdict on the node after a verb with the outcome, which leaves it in the
// status. A verb that may have changed the host clears it.
func (n Node) VerificationAfter(o Outcome, status Status) *Verdict {
	switch {
	case o.Verdict != nil:
		v := *o.Verdict
		return &v
	case !o.AsBefore && !o.Untouched, status != Allocated:
		return nil
	}

	return n.Verification
}

// Note returns n with an entry in its history that changes nothing else.
func (n Node) Note(v Verb, t Trigger) (Node, HistoryEntry) {
	m := n.Clone()
	return m, m.log(v, n.Status, t)
}

// Unproven returns a node that is Manageable as Enrolled again: how it is reached was changed, so its credentials were
// not checked.
func (n Node) Unproven(t Trigger) (Node, HistoryEntry) {
	m := n.Clone()
	m.PrevStatus, m.Status = n.Status, Enrolled

	return m, m.log(VerbRegister, n.Status, t)
}

// Inherit returns n with the history of another node of the same machine, which goes.
func (n Node) Inherit(from string, history []HistoryEntry) (Node, []HistoryEntry) {
	entries := slices.Clone(history)
	for i := range entries {
		n.Entries++
		entries[i].Seq, entries[i].Reason = n.Entries, strings.TrimSpace("as "+from+": "+entries[i].Reason)
	}

	return n, entries
}

// NameRange is the nodes with names after After, up to and including Until, in the
// order of the bytes. An empty bound is no limit.
type NameRange struct{ After, Until string }

// Contains reports whether the name is in the range.
func (r NameRange) Contains(name string) bool {
	return name > r.After && (r.Until == "" || name <= r.Until)
}

// Observation is the report of one observer on one node.
type Observation struct {
	Observer string
	Label    string
	Serial   string
	Addr     string
	Alive    bool
	Joined   bool     // the observer's previous report, if any, was not alive
	Others   []string // addresses of other live members with the same identity
	From     string   // address of its member in the gossip, if that is not Addr
	UUID     string   // of the system, as the host says; empty: unknown
	MACs     []string // of its network ports, as the host says
	Becomes  Status   // the status of a node whose agent speaks for the first time; empty: Unallocated
}

func (o Observation) becomes() Status { return cmp.Or(o.Becomes, Unallocated) }

// ObserverPost is the observer of all reports without an observer identity (plain
// POSTs). Its latest report holds until the next one, or until another observer
// sees the node join anew.
const ObserverPost = "post"

// NewNode returns the record of a node at its first observation: as the observation has it, or
// Quarantined if tomb is not nil.
func NewNode(o Observation, tomb *Tombstone, at time.Time) (Node, HistoryEntry) {
	n := Node{
		Name: NodeName(o.Label, o.Serial), Label: o.Label, Serial: o.Serial, Addr: o.Addr,
		Status: o.becomes(), State: Unknown, PrevState: Unknown, Created: at, Seen: map[string]bool{},
	}
	trigger := Trigger{Actor: "monitor:" + o.Observer, Reason: "seen for the first time", Time: at}

	if tomb != nil {
		n.Status = Quarantined
		n.HostKeys, n.Residue = slices.Clone(tomb.HostKeys), slices.Clone(tomb.Residue)
		n.Playbooks, n.Uncleaned = maps.Clone(tomb.Playbooks), tomb.Uncleaned
		n.LastError = "it was forgotten on " + tomb.Time.UTC().Format(time.RFC3339) + " and is seen again"
		trigger.Reason = n.LastError
	}

	n.apply(o, at)
	n.Presence.Since = at

	return n, n.log(VerbDiscovered, "", trigger)
}

// Enroll returns the record of a machine that is registered before its agent speaks. tomb is what is left of an earlier
// node of the name, or nil: the host may carry the same still.
func Enroll(name, addr string, tomb *Tombstone, t Trigger) (Node, HistoryEntry) {
	n := Node{Name: name, Addr: addr, Status: Enrolled, State: Unknown, PrevState: Unknown, Created: t.Time}
	n.Presence.Since = t.Time

	if tomb != nil {
		n.Residue, n.Playbooks, n.Uncleaned = slices.Clone(tomb.Residue), maps.Clone(tomb.Playbooks), tomb.Uncleaned
	}

	return n, n.log(VerbRegister, "", t)
}

// Announced returns the name that the agent of the node announces; that of the node, until one has spoken.
func (n Node) Announced() string {
	if n.Label == "" {
		return n.Name
	}
	return NodeName(n.Label, n.Serial)
}

// OwnName returns the name of the node if its agent announces another one, or "".
func (n Node) OwnName() string {
	if n.Label == "" || n.Name == n.Announced() {
		return ""
	}
	return n.Name
}

// Observe returns a copy with the observation applied. changed reports any
// difference in the record; entry is nil unless the state changed, or the addresses
// at which the node is claimed.
func (n Node) Observe(o Observation, at time.Time) (m Node, entry *HistoryEntry, changed bool) {
	m = n.Clone()
	if m.Seen == nil {
		m.Seen = map[string]bool{}
	}

	// The agent of a registered machine tells its identity. Credentials that were checked decide on the status.
	if m.Label == "" && o.Alive {
		m.Label, m.Serial = o.Label, o.Serial
	}

	// A check of credentials that failed while the agent spoke for the first time has left the node Enrolled.
	if m.Status == Enrolled && o.Alive {
		m.PrevStatus, m.Status = Enrolled, o.becomes()
		if m.Uncleaned {
			m.Status = Manageable // not offered before it is cleaned
		}
	}

	m.apply(o, at)

	if entry = m.observed(n, o.Observer, "", at); entry != nil {
		return m, entry, true
	}

	changed = m.Addr != n.Addr || m.AnnouncedFrom != n.AnnouncedFrom || !maps.Equal(m.Seen, n.Seen) ||
		!maps.EqualFunc(m.Sightings, n.Sightings, Sighting.equal)
	if changed {
		m.Updated = at
	}
	return m, nil, changed
}

// Withdraw returns a copy without the report of an observer, which has fallen
// silent. entry is as in Observe, and has the reason.
func (n Node) Withdraw(observer, reason string, at time.Time) (m Node, entry *HistoryEntry) {
	m = n.Clone()
	m.fillSightings()
	delete(m.Seen, observer)
	delete(m.Sightings, observer)
	m.settle()
	m.Updated = at

	return m, m.observed(n, observer, reason, at)
}

// observed returns the history entry for the difference from the node before a
// report; nil for none.
func (n *Node) observed(before Node, observer, reason string, at time.Time) *HistoryEntry {
	var verb Verb

	switch {
	case n.State != before.State:
		n.PrevState = before.State
		n.Presence.moved(before.State, n.State, at)

		verb = VerbDiscovered
		if before.Label == "" {
			reason = "its agent speaks for the first time, as " + n.Announced()
		}

		if n.State == Disappeared {
			verb = VerbDisappeared
		}
	case n.Status != before.Status:
		verb, reason = VerbDiscovered, "its agent speaks as "+n.Announced()
	case !slices.Equal(n.Duplicates, before.Duplicates):
		verb, reason = VerbConflict, "all observers see it at "+n.Addr
		if len(n.Duplicates) > 0 {
			reason = "several live hosts claim to be it" + n.Conflict()
		}
	default:
		return nil
	}

	e := n.log(verb, before.Status, Trigger{Actor: "monitor:" + observer, Job: n.Job, Reason: reason, Time: at})

	return &e
}

// apply records the observation, and derives state, address and duplicates.
func (n *Node) apply(o Observation, at time.Time) {
	n.fillSightings()

	// A fresh join outdates every report by POST: those have no lease to end them.
	if o.Joined && o.Observer != ObserverPost {
		delete(n.Seen, ObserverPost)
		delete(n.Sightings, ObserverPost)
	}

	n.Seen[o.Observer] = o.Alive
	if o.Alive {
		n.sight(o, at)
	} else {
		delete(n.Sightings, o.Observer)
	}

	// Other observers do not know the gossip.
	if o.Alive && o.Observer == ObserverGossip {
		n.AnnouncedFrom = o.From
	}

	n.settle()
}

// held returns the refusal of a change to a node that a job holds.
func (n Node) held() *Error {
	return Errorf(KindRefused, "%s is %s: job %s holds it", n.Name, n.Status, n.Job).
		Do("wait for the job, or cancel it").
		With(WaitForJob(n.Job), CancelJob(n.Job)).
		About(n.Name)
}

// CheckForget returns an error of KindRefused if a job holds the node, or if the
// node has not disappeared and force is false.
func (n Node) CheckForget(force bool) error {
	switch {
	case n.Status.InProgress():
		return n.held()
	case (n.Status == Enrolled || n.Status == Manageable || n.Label == "") && n.State == Unknown:
		return nil // there is no agent that could bring it back
	case n.State != Disappeared && !force && n.Status == Allocated:
		return Errorf(KindRefused, "%s is %s and still %s", n.Name, n.Status, n.State).
			Do("decommission it first: forgotten by force, its services would run on").
			With(Submit(VerbDecommission, n.Name)).
			About(n.Name)
	case n.State != Disappeared && !force:
		return n.stillSeen()
	}

	return nil
}

// stillSeen refuses to forget a node out of service that is not Disappeared.
func (n Node) stillSeen() error {
	const back = "by force alone, it comes back as Quarantined while its agent runs"

	refused := Errorf(KindRefused, "%s is still %s", n.Name, n.State).About(n.Name)
	force := ForgetNodes(n.Name).Forced()

	// A job removes the agent, where it can.
	if row, _ := TransitionOf(VerbForget); row.Check(n) == nil {
		return refused.Do("remove its agent with it; forgotten %s", back).With(Submit(VerbForget, n.Name), force)
	}

	return refused.Do("stop its agent first, then forget it; forgotten %s", back).With(force)
}
