// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/gossipkey"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/setting"
	"github.com/contiv/cluster/monitor"
	"github.com/contiv/cluster/monitor/serf"
)

// observer is the name under which observations of the gossip are stored.
const observer = inventory.ObserverGossip

// gossipSource is a running source of membership.
type gossipSource interface {
	// Err returns the reason why the source does not observe now, or nil.
	Err() error
	Stats() serf.Stats
	Close() error
}

// gossip is the daemon's part in the gossip. It implements setting.Membership.
type gossip struct {
	config     setting.Gossip
	node       monitor.Identity
	executable string // for hosts that are being prepared

	// Observations arrive before the start of the source returns, so their
	// goroutines read these fields while the start writes them.
	mu     sync.Mutex
	source gossipSource // nil: none
	agent  *serf.Agent  // the source, if it is the agent inside
	remote *serf.Remote // the source, if it is an existing agent
	key    string       // of the key file, at the start
	// rotation returns the newest rotation of the key.
	rotation func() gossipkey.Rotation

	manager   manager // of the hosts that are being prepared
	noManager error   // the reason why there is none
}

// startGossip starts the agent inside, or watches an existing one, unless the
// configuration turns the gossip off.
func (d *Daemon) startGossip(ctx context.Context) error {
	sink := node.Sink{Nodes: d.nodes, Observer: observer}

	switch g := d.file.Gossip; {
	case g.Off:
		// The observations of an earlier daemon are void: nobody renews them.
		return sink.Observe(ctx, monitor.Report{Full: true})
	case g.RPC != "":
		return d.watchAgent(ctx, sink)
	default:
		return d.startAgent(ctx, sink)
	}
}

// watchAgent watches an existing serf agent.
func (d *Daemon) watchAgent(ctx context.Context, sink monitor.Sink) error {
	c := d.gossip.config
	// Without the key, nodes are observed, but no host can be prepared.
	key := ""

	if c.KeyFile != "" {
		var err error
		if key, err = readGossipKey(c.KeyFile, false); err != nil {
			return err
		}
	}

	remote, err := serf.WatchRemote(ctx, serf.RemoteOptions{
		Addr: c.RPC, AuthFile: c.RPCAuthFile, Sinks: []monitor.Sink{sink}, Before: d.observedNodes(),
		Timing: d.opts.Timing, Log: d.opts.Logger,
	})
	if err != nil {
		return inventory.Errorf(inventory.KindInvalid, "gossip.rpc: %w", err)
	}

	d.gossip.set(func(g *gossip) { g.source, g.remote, g.key = remote, remote, key })
	d.onStop("gossip", func(context.Context) error { return remote.Close() })

	return nil
}

// startAgent starts the agent inside.
func (d *Daemon) startAgent(ctx context.Context, sink monitor.Sink) error {
	c := d.gossip.config

	keyPath := cmp.Or(c.KeyFile, filepath.Join(d.file.DataDir, "gossip.key"))

	key, err := readGossipKey(keyPath, c.KeyFile == "")
	if err != nil {
		return err
	}

	bind, advertise := agentAddrs(c, d.node.Addr)

	agent, err := serf.Start(ctx, serf.Options{
		Node: d.node,
		Bind: bind, Advertise: advertise, KeyFile: keyPath, Join: c.Join,
		DataDir: filepath.Join(d.file.DataDir, "gossip"),
		Timing:  d.opts.Timing, Log: d.opts.Logger, Sinks: []monitor.Sink{sink},
	})
	if err != nil {
		return err
	}

	d.gossip.set(func(g *gossip) { g.source, g.agent, g.key = agent, agent, key })

	// A restart of the daemon is no leave of its host. So the agent ends without
	// a leave message, and returns before the other members count it as failed.
	d.onStop("gossip", func(context.Context) error { return agent.Close() })

	go func() {
		<-agent.Done()

		if err := agent.Err(); err != nil {
			d.failed <- fmt.Errorf("the gossip agent ended: %w", err)
		}
	}()

	return nil
}

// agentAddrs returns the addresses that an agent on a host binds to and
// advertises.
func agentAddrs(c setting.Gossip, host string) (bind, advertise string) {
	_, port, _ := net.SplitHostPort(c.Bind)

	bind, advertise = c.Bind, c.Advertise
	if advertise == "" && port != "0" {
		advertise = net.JoinHostPort(host, port)
	}

	// The default covers all IPv4 addresses, which is no use to an IPv6 host.
	if bind == serf.DefaultBind && strings.Contains(host, ":") {
		bind = net.JoinHostPort("::", port)
	}

	return bind, advertise
}

// observedNodes returns the names of the nodes that were alive in the last
// observations of the gossip.
func (d *Daemon) observedNodes() []string {
	var names []string
	for _, n := range d.store.View().Nodes {
		if n.Seen[observer] {
			names = append(names, n.Name)
		}
	}

	slices.Sort(names)

	return names
}

func (g *gossip) set(change func(*gossip)) {
	g.mu.Lock()
	defer g.mu.Unlock()

	change(g)
}

func (g *gossip) running() gossipSource {
	g.mu.Lock()
	defer g.mu.Unlock()

	return g.source
}

// off reports whether there is no source.
func (g *gossip) off() bool { return g.running() == nil }

// Err returns the reason why the source does not observe now, or nil. It must
// not be called if the gossip is off.
func (g *gossip) Err() error { return g.running().Err() }

// Own returns the name of this host's node, or "" if it has none.
func (g *gossip) Own() string {
	g.mu.Lock()
	defer g.mu.Unlock()

	if g.source == nil {
		return ""
	}

	// An existing agent may have an identity other than the configured one.
	if g.remote != nil {
		if n := g.remote.Node(); n != (monitor.Identity{}) {
			return n.Name()
		}
	}

	return g.node.Name()
}

// Manager returns the identity of the manager, or "" if it is not known.
func (g *gossip) Manager() string {
	g.mu.Lock()
	defer g.mu.Unlock()

	return g.manager.ID
}

// AgentVars returns the variables for hosts that join the gossip, or the reason
// why hosts cannot join.
func (g *gossip) AgentVars() (map[string]any, error) {
	g.mu.Lock()
	defer g.mu.Unlock()

	addr, join, err := g.contact()
	if err != nil {
		return nil, err
	}

	if g.manager.ID == "" {
		return nil, inventory.Errorf(inventory.KindUnavailable,
			"cannot prepare hosts: this manager has no identity: %w", g.noManager).
			Do("see clusterctl status; it works again soon after the store accepts writes")
	}

	host, port, _ := net.SplitHostPort(addr)

	// A manager that watches an existing agent may have no address of its own.
	identity := g.manager
	identity.Addr = cmp.Or(identity.Addr, host)

	// Variables hold the types of JSON.
	peers := make([]any, len(join))
	for i, j := range join {
		peers[i] = j
	}

	return map[string]any{
		"clusterm_binary":      g.executable,
		"clusterm_gossip_key":  g.keys(),
		"clusterm_gossip_join": peers,
		"clusterm_gossip_port": port,
		"clusterm_manager":     identity.vars(),
	}, nil
}

// contact returns the address of this host's agent, and the members for new
// hosts to join. The caller holds the lock.
func (g *gossip) contact() (addr string, join []string, err error) {
	switch {
	case g.agent != nil:
		addr = g.agent.Addr()
		return addr, []string{addr}, nil
	case g.remote == nil:
		return "", nil, inventory.Errorf(inventory.KindRefused,
			"cannot prepare hosts: this manager is outside the gossip (gossip: off), so they have no member to join").
			Do("install the agents yourself, and report their hosts to POST /monitor/event")
	case g.key == "":
		return "", nil, inventory.Errorf(inventory.KindRefused,
			"cannot prepare hosts: they need the key of the gossip, and this manager, which watches an existing "+
				"serf agent (gossip.rpc), has none").
			Do("write the agent's encrypt_key into a file, set gossip.key_file to its path, and restart clusterm; " +
				"or install the agents yourself")
	}

	self, err := g.remote.Self()
	if err != nil {
		return "", nil, inventory.Errorf(inventory.KindUnavailable, "%w", err).
			Do("see clusterctl status; new hosts would not be observed")
	}

	// The Ansible role starts agents with encryption only.
	if !self.Encrypted {
		return "", nil, inventory.Errorf(inventory.KindRefused,
			"the gossip of the serf agent at %s is not encrypted; agents of clusterm join encrypted gossip only",
			g.config.RPC).
			Do("run the serf agents with encrypt_key; or install stock agents yourself")
	}

	if len(g.config.Join) > 0 {
		return self.Addr, g.config.Join, nil
	}

	return self.Addr, []string{self.Addr}, nil
}
