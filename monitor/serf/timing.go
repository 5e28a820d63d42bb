// SPDX-License-Identifier: Apache-2.0

package serf

import (
	"time"

	hserf "github.com/hashicorp/serf/serf"
)

// Timing is how quick the gossip is. The zero value means LAN.
type Timing struct {
	Probe        time.Duration // each member probes another one this often
	ProbeTimeout time.Duration // for the direct answer; others are asked then
	Gossip       time.Duration // changes are passed on this often
	Sync         time.Duration // each member compares everything with another one this often
	Dial         time.Duration // for a TCP connection

	Reconnect time.Duration // a failed member is tried again about this often
	Forget    time.Duration // a failed member is forgotten after this
	Bury      time.Duration // a member that left is forgotten after this
	Reap      time.Duration // what is to be forgotten is looked for this often
	Reclaim   time.Duration // a failed member's name is given to another address after this

	Broadcast time.Duration // for passing on that this member leaves
	Linger    time.Duration // it still answers for this long after it has left

	Window    time.Duration // changes closer together than this are one report
	Tick      time.Duration // the agent looks after itself this often
	Grace     time.Duration // the first report waits this long for a first contact
	JoinMin   time.Duration // wait after the first failed attempt to join, doubled by each further one
	JoinMax   time.Duration // up to this
	JoinAgain time.Duration // addresses to join that are no live members are tried again this often
	Contested time.Duration // a name that somebody else uses for this long is given up
	Rivalry   time.Duration // somebody who has not been heard of for this long no longer counts

	Answer time.Duration // an agent that is asked by RPC has this long to answer
	Ping   time.Duration // and is asked at least this often
	Alone  time.Duration // and is believed that it has lost everybody after this
}

// LAN is for hosts in one data centre: a host that crashed is seen as failed
// within about ten seconds, a cut that has healed within about as much.
func LAN() Timing {
	return Timing{
		Probe: time.Second, ProbeTimeout: 500 * time.Millisecond,
		Gossip: 200 * time.Millisecond, Sync: 30 * time.Second, Dial: 2 * time.Second,
		Reconnect: 5 * time.Second, Forget: 30 * 24 * time.Hour, Bury: 24 * time.Hour,
		Reap: 15 * time.Second, Reclaim: 5 * time.Second,
		Broadcast: 2 * time.Second, Linger: time.Second,
		Window: 200 * time.Millisecond, Tick: time.Second, Grace: 15 * time.Second,
		JoinMin: time.Second, JoinMax: 30 * time.Second, JoinAgain: 30 * time.Second,
		Contested: 15 * time.Second, Rivalry: 5 * time.Minute,
		Answer: 10 * time.Second, Ping: 15 * time.Second, Alone: time.Minute,
	}
}

// Loopback is for tests in which all members are on one machine.
func Loopback() Timing {
	return Timing{
		Probe: 150 * time.Millisecond, ProbeTimeout: 75 * time.Millisecond,
		Gossip: 20 * time.Millisecond, Sync: 500 * time.Millisecond, Dial: 500 * time.Millisecond,
		Reconnect: 100 * time.Millisecond, Forget: time.Hour, Bury: time.Hour,
		Reap: 100 * time.Millisecond, Reclaim: 100 * time.Millisecond,
		Broadcast: time.Second, Linger: 100 * time.Millisecond,
		Window: 20 * time.Millisecond, Tick: 20 * time.Millisecond, Grace: time.Second,
		JoinMin: 50 * time.Millisecond, JoinMax: 200 * time.Millisecond, JoinAgain: 500 * time.Millisecond,
		Contested: 700 * time.Millisecond, Rivalry: 5 * time.Second,
		Answer: 2 * time.Second, Ping: 200 * time.Millisecond, Alone: time.Second,
	}
}

// apply sets everything of a serf configuration that is about time.
func (t Timing) apply(c *hserf.Config) {
	c.ReconnectInterval, c.ReconnectTimeout = t.Reconnect, t.Forget
	c.TombstoneTimeout, c.ReapInterval = t.Bury, t.Reap
	c.BroadcastTimeout, c.LeavePropagateDelay = t.Broadcast, t.Linger

	m := c.MemberlistConfig
	m.ProbeInterval, m.ProbeTimeout = t.Probe, t.ProbeTimeout
	m.GossipInterval, m.PushPullInterval = t.Gossip, t.Sync
	m.DeadNodeReclaimTime = t.Reclaim
	// A suspicion that nobody confirms lasts twice, not six times, as long as
	// a confirmed one: eight seconds for up to ten members.
	m.SuspicionMaxTimeoutMult = 2
}
