// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"
	"time"
)

// ClockSlack is the difference between two clocks that is no error. A stored time may lie that far
// in the future.
const ClockSlack = 5 * time.Second

// MaxReturns is the number of returns that the record of a node keeps.
const MaxReturns = 10

// Presence is the evidence on the absences of a host.
type Presence struct {
	Since time.Time `json:"since,omitzero"` // of the state
	Lost  time.Time `json:"lost,omitzero"`  // the start of the newest absence; zero: none
	// Returns are the times of the newest returns, the oldest first; MaxReturns at most.
	Returns []time.Time `json:"returns,omitempty"`
	// Handled is the newest return on which automation has decided.
	Handled time.Time `json:"handled,omitzero"`
	// Fenced is since when the node is Quarantined, if it is; zero: not known.
	Fenced time.Time `json:"fenced,omitzero"`
	// Boot is the boot id from before the newest absence; empty: unknown.
	Boot string `json:"boot,omitempty"`
	// Away is the newest attempt over ssh in the newest absence: the second opinion.
	Away Contact `json:"away,omitzero"`
	// Back is the newest attempt over ssh while the host was Discovered.
	Back Contact `json:"back,omitzero"`
}

// Contact is the result of one attempt to reach a host over ssh. The zero value is none.
type Contact struct {
	Time    time.Time `json:"time,omitzero"`
	Reached bool      `json:"reached,omitempty"`
	Reason  string    `json:"reason,omitempty"` // why the host was not reached
	// Silent: the network had no sign of the host. Without it, a host that was not reached
	// may be up, or the attempt failed on the way.
	Silent bool `json:"silent,omitempty"`
	// Foreign: a host answered with another ssh host key than the recorded one.
	Foreign bool      `json:"foreign,omitempty"`
	Boot    string    `json:"boot,omitempty"`  // the boot id of the kernel; empty: not read
	Booted  time.Time `json:"booted,omitzero"` // the time of the boot, by the uptime; zero: not read
	Agent   time.Time `json:"agent,omitzero"`  // the start of the agent; zero: not read
}

// Returned returns the time of the newest return; zero: none.
func (p Presence) Returned() time.Time {
	if len(p.Returns) == 0 {
		return time.Time{}
	}
	return p.Returns[len(p.Returns)-1]
}

// Pending reports whether automation has not decided on the newest return yet.
func (p Presence) Pending() bool { return p.Returned().After(p.Handled) }

// ReturnsSince counts the kept returns at and after the time.
func (p Presence) ReturnsSince(at time.Time) int {
	n := 0
	for _, t := range p.Returns {
		if !t.Before(at) {
			n++
		}
	}

	return n
}

// Newest returns the newest time of the presence.
func (p Presence) Newest() time.Time {
	newest := p.Returned()

	for _, t := range []time.Time{p.Since, p.Lost, p.Handled, p.Fenced, p.Away.Time, p.Back.Time} {
		if t.After(newest) {
			newest = t
		}
	}

	return newest
}

// Until returns the presence without the times after now, which a clock that was ahead has
// recorded. The state is as if it had begun now, an answer of the host is not known, and a return
// that is pending stays so.
func (p Presence) Until(now time.Time) Presence {
	pending, returned := p.Pending(), p.Returned()

	for _, t := range []*time.Time{&p.Since, &p.Fenced, &p.Handled} {
		if t.After(now) {
			*t = now
		}
	}

	// The length of the absence is not known.
	if p.Lost.After(now) {
		p.Lost = time.Time{}
	}

	p.Returns = slices.DeleteFunc(slices.Clone(p.Returns), func(t time.Time) bool { return t.After(now) })
	if returned.After(now) {
		p.Returns = append(p.Returns, now)
	}

	if pending && !p.Pending() {
		p.Handled = time.Time{}
	}

	for _, c := range []*Contact{&p.Away, &p.Back} {
		if c.Time.After(now) {
			*c = Contact{}
		}
	}

	return p
}

// moved records that the state of the host changed from one to another.
func (p *Presence) moved(from, to State, at time.Time) {
	// Else a return could look older than the decision on an earlier one.
	if p.Newest().After(at.Add(ClockSlack)) {
		*p = p.Until(at.Add(-1))
	}

	p.Since = at

	switch {
	case to == Disappeared:
		// A boot id that was read since the last decision is the newest one.
		if p.Back.Boot != "" {
			p.Boot = p.Back.Boot
		}

		p.Lost, p.Away = at, Contact{}
	case from == Disappeared && to == Discovered:
		p.Returns = append(slices.Clone(p.Returns), at)
		p.Returns = p.Returns[max(0, len(p.Returns)-MaxReturns):]
	}
}

// Contacted returns the node with the result of an attempt to reach it over ssh.
func (n Node) Contacted(c Contact) Node {
	m := n.Clone()

	if n.State == Disappeared {
		m.Presence.Away = c
		return m
	}

	// A failure does not erase the boot id of an earlier login in the same presence.
	if c.Boot == "" && !m.Presence.Back.Time.Before(m.Presence.Returned()) {
		c.Boot, c.Booted = m.Presence.Back.Boot, m.Presence.Back.Booted
	}

	m.Presence.Back = c

	return m
}

// Decided returns the node with a decision of automation in its history. Returns up to the
// time in the trigger are no longer pending.
func (n Node) Decided(t Trigger) (Node, HistoryEntry) {
	m, entry := n.Note(VerbReturned, t)
	m.Presence.Handled = t.Time
	return m, entry
}

// CheckQuarantine returns an error of KindRefused unless the node may be fenced: no job
// holds it, and it is Allocated or Unallocated.
func (n Node) CheckQuarantine() error {
	switch {
	case n.Job != "" || n.Status.InProgress():
		return Errorf(KindRefused, "%s is %s: job %s holds it", n.Name, n.Status, n.Job).About(n.Name)
	case n.Status != Allocated && n.Status != Unallocated:
		return Errorf(KindRefused, "%s is %s and cannot be quarantined", n.Name, n.Status).About(n.Name)
	}

	return nil
}

// Quarantine returns the node fenced, for the reason in the trigger. Check it with
// CheckQuarantine before.
func (n Node) Quarantine(t Trigger) (Node, HistoryEntry) {
	m := n.Clone()
	m.PrevStatus, m.Status = n.Status, Quarantined
	m.LastError, m.Verification = t.Reason, nil
	m.Presence.Handled = t.Time
	return m, m.log(VerbQuarantine, n.Status, t)
}
