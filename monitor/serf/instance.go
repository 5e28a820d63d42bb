// SPDX-License-Identifier: Apache-2.0

package serf

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	hserf "github.com/hashicorp/serf/serf"

	"github.com/contiv/cluster/monitor"
)

// eventBuffer is the capacity for serf's events. It is larger than serf's own
// buffers, so that all of them fit without a reader when serf shuts down.
const eventBuffer = 2048

type addrPort = netip.AddrPort

// instance is one run of serf under one name. An agent has one at a time: a new
// name needs a new instance.
type instance struct {
	s      *hserf.Serf
	net    *transport
	name   string
	own    addrPort // the advertised address
	host   string   // the bound host; "" for all addresses
	port   int
	rivals *rivals
	watch  watch

	hangUp  context.CancelFunc // closes its connections
	quit    chan struct{}      // ends drain
	drained chan struct{}
}

// launch starts serf. ctx bounds the start, life its connections.
func (a *Agent) launch(ctx, life context.Context, port int) (*instance, error) {
	life, hangUp := context.WithCancel(life)

	tr, err := listen(life, a.host, port, a.t.Dial, a.serf)
	if err != nil {
		hangUp()
		return nil, err
	}

	in := &instance{
		net: tr, name: a.memberName(), host: a.host, port: tr.GetAutoBindPort(),
		rivals: newRivals(a.t.Rivalry, a.rivals), watch: a.watch,
		hangUp: hangUp, quit: make(chan struct{}), drained: make(chan struct{}),
	}
	if in.own, err = a.o.advertised(ctx, a.host, in.port); err == nil {
		events := make(chan hserf.Event, eventBuffer)
		in.rivals.live(in.name, in.own.String())

		if in.s, err = hserf.Create(a.config(in, events)); err == nil {
			go in.drain(events)
			return in, nil
		}

		err = fmt.Errorf("cannot start serf: %w", err)
	}

	hangUp()
	tr.discard()

	return nil, err
}

// config builds serf's configuration.
func (a *Agent) config(in *instance, events chan<- hserf.Event) *hserf.Config {
	c := hserf.DefaultConfig()

	c.NodeName = in.name
	if a.o.Node != (Identity{}) {
		c.Tags = hardware(a.o.Node.Addr).Add(a.o.Node.Tags())
	}

	c.EventCh = events
	c.Merge = in.rivals
	c.LogOutput, c.Logger = nil, a.serf
	// serf writes a changed keyring before it confirms the change.
	if a.o.DataDir != "" {
		c.KeyringFile = filepath.Join(a.o.DataDir, keyringFile)
	}

	c.DisableCoordinates = true // nothing uses network distances

	// serf resolves a name conflict by a vote that shuts the loser down. Rivals
	// are reported as duplicates instead.
	c.EnableNameConflictResolution = false

	m := c.MemberlistConfig
	m.Transport = in.net
	m.BindPort = in.port
	m.AdvertiseAddr, m.AdvertisePort = in.own.Addr().String(), int(in.own.Port())
	m.Keyring = a.ring
	m.LogOutput, m.Logger = nil, a.serf
	a.t.apply(c)

	return c
}

// memberName is the name of the node, or of the host if it is not a node, with the
// suffix that makes it unique.
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

// drain receives serf's events. serf sends them while it holds its member lock, so
// nothing here may block or call serf.
func (in *instance) drain(events <-chan hserf.Event) {
	defer close(in.drained)

	for {
		select {
		case e := <-events:
			in.record(e)
		case <-in.quit:
			return
		}
	}
}

// record updates the rivals and the observers.
func (in *instance) record(e hserf.Event) {
	me, ok := e.(hserf.MemberEvent)
	if !ok {
		return
	}

	for _, m := range me.Members {
		// A reaped member is forgotten, not only dead.
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

// alive is true for a member that is leaving, too: it has not left yet.
func alive(m hserf.Member) bool {
	return m.Status == hserf.StatusAlive || m.Status == hserf.StatusLeaving
}

// member converts a member of serf, with its rivals.
func (in *instance) member(m hserf.Member) monitor.Member {
	out := monitor.Member{Name: m.Name, Addr: placeOf(m), Tags: m.Tags, Alive: alive(m)}
	if out.Alive {
		out.Rivals = in.rivals.of(m.Name)
	}
	return out
}

// shutdown stops serf without a leave and waits until it is down.
func (in *instance) shutdown() {
	in.hangUp()
	_ = in.s.Shutdown() // its error is always nil
	close(in.quit)
	<-in.drained
}

// live returns the addresses of the other live members; alone means there are
// none.
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

// peers lists the addresses of the other members that have not left, sorted.
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

// isOwn reports whether an address is one of this member.
func (in *instance) isOwn(ap addrPort) bool {
	if ap == in.own {
		return true
	}

	// Bound to all addresses, the member answers on each of the host.
	if int(ap.Port()) != in.port {
		return false
	}

	if ip, err := netip.ParseAddr(in.host); err == nil && !ip.IsUnspecified() {
		return ap.Addr() == ip.Unmap()
	}

	return slices.Contains(localAddrs(), ap.Addr())
}
