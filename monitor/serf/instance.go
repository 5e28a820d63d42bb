// SPDX-License-Identifier: Apache-2.0

package serf

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	hserf "github.com/hashicorp/serf/serf"

	"github.com/contiv/cluster/monitor"
)

// eventRoom is the room for serf's events. It is more than serf itself buffers,
// so that whatever is left when serf shuts down fits without a reader.
const eventRoom = 2048

type addrPort = netip.AddrPort

// instance is one run of serf under one name. An agent has one at a time.
type instance struct {
	s      *hserf.Serf
	net    *transport
	name   string
	own    addrPort // as advertised
	host   string   // bound to; "" for all addresses
	port   int
	rivals *rivals
	watch  watch

	cut     context.CancelFunc // ends its connections
	quit    chan struct{}      // ends drain
	drained chan struct{}
}

// launch starts serf. ctx bounds the start, life the connections it makes.
func (a *Agent) launch(ctx, life context.Context, port int) (*instance, error) {
	life, cut := context.WithCancel(life)

	tr, err := listen(life, a.host, port, a.t.Dial, a.serf)
	if err != nil {
		cut()
		return nil, err
	}

	in := &instance{
		net: tr, name: a.memberName(), host: a.host, port: tr.GetAutoBindPort(),
		rivals: newRivals(a.t.Rivalry, a.rivals), watch: a.watch,
		cut: cut, quit: make(chan struct{}), drained: make(chan struct{}),
	}
	if in.own, err = a.o.advertised(ctx, a.host, in.port); err == nil {
		events := make(chan hserf.Event, eventRoom)
		in.rivals.live(in.name, in.own.String())

		if in.s, err = hserf.Create(a.config(in, events)); err == nil {
			go in.drain(events)
			return in, nil
		}

		err = fmt.Errorf("serf does not start: %w", err)
	}

	cut()
	tr.discard()

	return nil, err
}

// config is serf's configuration.
func (a *Agent) config(in *instance, events chan<- hserf.Event) *hserf.Config {
	c := hserf.DefaultConfig()

	c.NodeName = in.name
	if a.o.Node != (Identity{}) {
		c.Tags = a.o.Node.Tags()
	}

	c.EventCh = events
	c.Merge = in.rivals
	c.LogOutput, c.Logger = nil, a.serf
	c.DisableCoordinates = true
	// A vote of others must never end this agent: a duplicate is reported.
	c.EnableNameConflictResolution = false

	m := c.MemberlistConfig
	m.Transport = in.net
	m.BindPort = in.port
	m.AdvertiseAddr, m.AdvertisePort = in.own.Addr().String(), int(in.own.Port())
	m.SecretKey = a.key
	m.LogOutput, m.Logger = nil, a.serf
	a.t.apply(c)

	return c
}

// memberName is the name in the gossip: the node's, or the host's where it is
// not a node, and the suffix that makes it unique.
func (a *Agent) memberName() string {
	base := ""
	if a.o.Node != (Identity{}) {
		base = a.o.Node.Name()
	} else if host, err := os.Hostname(); err == nil {
		base = strings.Map(func(r rune) rune {
			if r == '.' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
				return r
			}

			return '-'
		}, host[:min(len(host), 63)])
	}

	return strings.TrimPrefix(base+"-"+a.store.Suffix, "-")
}

// drain takes serf's events. serf sends them while it holds its lock, so nothing
// here may wait or ask serf.
func (in *instance) drain(events <-chan hserf.Event) {
	defer close(in.drained)

	for {
		select {
		case e := <-events:
			in.take(e)
		case <-in.quit:
			return
		}
	}
}

func (in *instance) take(e hserf.Event) {
	me, ok := e.(hserf.MemberEvent)
	if !ok {
		return
	}

	for _, m := range me.Members {
		if me.Type == hserf.EventMemberReap {
			in.rivals.dead(m.Name)
			in.watch.remove(m.Name)
			continue
		}

		if alive(m) {
			in.rivals.live(m.Name, placeOf(m))
		} else {
			in.rivals.dead(m.Name)
		}

		in.watch.change(in.member(m))
	}
}

// alive: a member that is about to leave has not left yet.
func alive(m hserf.Member) bool {
	return m.Status == hserf.StatusAlive || m.Status == hserf.StatusLeaving
}

func (in *instance) member(m hserf.Member) monitor.Member {
	out := monitor.Member{Name: m.Name, Addr: placeOf(m), Tags: m.Tags, Alive: alive(m)}
	if out.Alive {
		out.Rivals = in.rivals.of(m.Name)
	}

	return out
}

// shutdown ends serf without a word and waits until it is down.
func (in *instance) shutdown() {
	in.cut()
	in.s.Shutdown() // its error is always nil
	close(in.quit)
	<-in.drained
}

// live are the addresses of live members, and whether this is the only one.
func (in *instance) live() (at map[addrPort]bool, alone bool) {
	at, alone = map[addrPort]bool{}, true
	for _, m := range in.s.Members() {
		if !alive(m) || m.Name == in.name {
			continue
		}

		alone = false

		if ap, err := netip.ParseAddrPort(placeOf(m)); err == nil {
			at[ap] = true
		}
	}

	return at, alone
}

// peers are the addresses of the members that have not left, sorted.
func (in *instance) peers() []string {
	var all []string
	for _, m := range in.s.Members() {
		if m.Status == hserf.StatusLeft || m.Name == in.name || placeOf(m) == in.own.String() {
			continue
		}

		all = append(all, placeOf(m))
	}

	slices.Sort(all)

	return slices.Compact(all)
}

// isOwn reports whether an address is this member's.
func (in *instance) isOwn(ap addrPort) bool {
	if ap == in.own {
		return true
	}

	if int(ap.Port()) != in.port {
		return false
	}

	if ip, err := netip.ParseAddr(in.host); err == nil && !ip.IsUnspecified() {
		return ap.Addr() == ip.Unmap()
	}

	return slices.Contains(localAddrs(), ap.Addr())
}
