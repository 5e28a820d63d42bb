// SPDX-License-Identifier: Apache-2.0

package serf

import (
	"time"

	"github.com/cenkalti/backoff/v5"
	hserf "github.com/hashicorp/serf/serf"
)

// Timing holds the intervals and timeouts of an agent. The zero value means LAN.
type Timing struct {
	Probe        time.Duration // between probes of one other member
	ProbeTimeout time.Duration // for a direct answer, before other members probe as well
	Gossip       time.Duration // between messages with changes
	Sync         time.Duration // between full state exchanges with another member
	Dial         time.Duration // timeout of a TCP connection

	Reconnect time.Duration // between attempts to reach a failed member
	Forget    time.Duration // until a failed member is forgotten
	Tombstone time.Duration // until a member that left is forgotten
	Reap      time.Duration // between searches for members to forget
	Reclaim   time.Duration // until another address may take a failed member's name

	Broadcast time.Duration // timeout of the broadcast of a leave
	Linger    time.Duration // a member still answers for this long after its leave

	Window    time.Duration // changes closer together than this share a report
	Tick      time.Duration // between runs of the agent's maintenance
	Grace     time.Duration // limit for a first contact before the first report
	JoinMin   time.Duration // backoff after the first failed join, doubled by each further one
	JoinMax   time.Duration // up to this; jitter changes both by up to a half
	JoinAgain time.Duration // between attempts to join configured addresses that are no members
	Contested time.Duration // until an agent gives up a name that a rival uses
	Rivalry   time.Duration // until a silent rival is forgotten

	Answer time.Duration // timeout of an RPC answer
	Ping   time.Duration // between RPC health checks
	Alone  time.Duration // until an agent that has lost all members over a restart is believed
}

// LAN is for hosts in one data centre. A crash and a healed partition are detected
// within about ten seconds.
func LAN() Timing {
	return Timing{
		Probe: time.Second, ProbeTimeout: 500 * time.Millisecond,
		Gossip: 200 * time.Millisecond, Sync: 30 * time.Second, Dial: 2 * time.Second,
		Reconnect: 5 * time.Second, Forget: 30 * 24 * time.Hour, Tombstone: 24 * time.Hour,
		Reap: 15 * time.Second, Reclaim: 5 * time.Second,
		Broadcast: 2 * time.Second, Linger: time.Second,
		Window: 200 * time.Millisecond, Tick: time.Second, Grace: 15 * time.Second,
		JoinMin: time.Second, JoinMax: 20 * time.Second, JoinAgain: 30 * time.Second,
		Contested: 15 * time.Second, Rivalry: 5 * time.Minute,
		Answer: 10 * time.Second, Ping: 15 * time.Second, Alone: time.Minute,
	}
}

// Loopback is for tests with all members on one host.
func Loopback() Timing {
	return Timing{
		Probe: 150 * time.Millisecond, ProbeTimeout: 75 * time.Millisecond,
		Gossip: 20 * time.Millisecond, Sync: 500 * time.Millisecond, Dial: 500 * time.Millisecond,
		Reconnect: 100 * time.Millisecond, Forget: time.Hour, Tombstone: time.Hour,
		Reap: 100 * time.Millisecond, Reclaim: 100 * time.Millisecond,
		Broadcast: time.Second, Linger: 100 * time.Millisecond,
		Window: 20 * time.Millisecond, Tick: 20 * time.Millisecond, Grace: time.Second,
		JoinMin: 50 * time.Millisecond, JoinMax: 200 * time.Millisecond, JoinAgain: 500 * time.Millisecond,
		Contested: 700 * time.Millisecond, Rivalry: 5 * time.Second,
		Answer: 2 * time.Second, Ping: 200 * time.Millisecond, Alone: time.Second,
	}
}

// joinBackOff returns the delays between attempts to join, or to reconnect to an
// agent. The jitter keeps the hosts of a cluster from retrying in step.
func (t Timing) joinBackOff() *backoff.ExponentialBackOff {
	return &backoff.ExponentialBackOff{
		InitialInterval: t.JoinMin, Multiplier: 2, MaxInterval: t.JoinMax, RandomizationFactor: 0.5,
	}
}

// apply sets the timing of a serf configuration.
func (t Timing) apply(c *hserf.Config) {
	c.ReconnectInterval, c.ReconnectTimeout = t.Reconnect, t.Forget
	c.TombstoneTimeout, c.ReapInterval = t.Tombstone, t.Reap
	c.BroadcastTimeout, c.LeavePropagateDelay = t.Broadcast, t.Linger

	m := c.MemberlistConfig
	m.ProbeInterval, m.ProbeTimeout = t.Probe, t.ProbeTimeout
	m.GossipInterval, m.PushPullInterval = t.Gossip, t.Sync
	m.DeadNodeReclaimTime = t.Reclaim

	// An unconfirmed suspicion lasts twice as long as a confirmed one, instead of
	// six times: eight seconds for up to ten members.
	m.SuspicionMaxTimeoutMult = 2
}
