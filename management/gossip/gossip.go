// SPDX-License-Identifier: Apache-2.0

package gossip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/gossipkey"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
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

// Options are the parameters of a Gossip.
type Options struct {
	Config     serf.SourceConfig
	Node       monitor.Identity
	DataDir    string
	Executable string // for hosts that are being prepared
	Timing     serf.Timing
	Logger     logrus.FieldLogger
	// Failed is called if the agent inside ends by itself.
	Failed func(error)
}

// Gossip is the manager's part in the gossip. It implements setting.Membership.
type Gossip struct {
	Options

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

// New returns the part of a manager that has not started it.
func New(o Options) *Gossip { return &Gossip{Options: o} }

// Start starts the agent inside, or watches an existing one, unless the
// configuration turns the gossip off. Its observations go to the nodes.
func (g *Gossip) Start(ctx context.Context, v *state.View, nodes *node.Nodes) error {
	sink := node.Sink{Nodes: nodes, Observer: observer}

	switch {
	case g.Config.Off:
		// The observations of an earlier daemon are void: nobody renews them.
		return sink.Observe(ctx, monitor.Report{Full: true})
	case g.Config.RPC != "":
		return g.watchAgent(ctx, v, sink)
	default:
		return g.startAgent(ctx, v, sink)
	}
}

// Close ends the part. A restart of the daemon is no leave of its host. So the agent ends without
// a leave message, and returns before the other members count it as failed.
func (g *Gossip) Close() error {
	if source := g.running(); source != nil {
		return source.Close()
	}
	return nil
}

// watchAgent watches an existing serf agent.
func (g *Gossip) watchAgent(ctx context.Context, v *state.View, sink monitor.Sink) error {
	c := g.Config
	// Without the key, nodes are observed, but no host can be prepared.
	key := ""

	if c.KeyFile != "" {
		var err error
		if key, err = readKey(c.KeyFile, false); err != nil {
			return err
		}
	}

	remote, err := serf.WatchRemote(ctx, serf.RemoteOptions{
		Addr: c.RPC, AuthFile: c.RPCAuthFile, Sinks: []monitor.Sink{sink}, Before: observedNodes(v),
		Timing: g.Timing, Log: g.Logger,
	})
	if err != nil {
		return inventory.Errorf(inventory.KindInvalid, "gossip.rpc: %w", err)
	}
	g.set(func() { g.source, g.remote, g.key = remote, remote, key })

	return nil
}

// startAgent starts the agent inside.
func (g *Gossip) startAgent(ctx context.Context, v *state.View, sink monitor.Sink) error {
	c := g.Config
	keyPath := cmp.Or(c.KeyFile, g.keyFile())

	key, err := readKey(keyPath, c.KeyFile == "")
	if err != nil {
		return err
	}

	bind, advertise := agentAddrs(c, g.Node.Addr)

	agent, err := serf.Start(ctx, serf.Options{
		Node: g.Node,
		Bind: bind, Advertise: advertise, KeyFile: keyPath,
		Join:    slices.Concat(c.Join, instances(v, g.Node.Addr, bind)),
		DataDir: filepath.Join(g.DataDir, "gossip"),
		Timing:  g.Timing, Log: g.Logger, Sinks: []monitor.Sink{sink},
	})
	if err != nil {
		return err
	}
	g.set(func() { g.source, g.agent, g.key = agent, agent, key })

	go func() {
		<-agent.Done()

		if err := agent.Err(); err != nil {
			g.Failed(fmt.Errorf("the gossip agent ended: %w", err))
		}
	}()

	return nil
}

// instances returns the addresses of the agents of the other live instances, which have the port of this one. An
// instance in a gossip of its own would count all nodes as lost once it leads.
func instances(v *state.View, own, bind string) []string {
	var peers []string

	_, port, _ := net.SplitHostPort(bind)
	for _, i := range record.List(v, &state.Instances) {
		if i.Addr != "" && i.Addr != own && port != "0" {
			peers = append(peers, net.JoinHostPort(i.Addr, port))
		}
	}

	return peers
}

// agentAddrs returns the addresses that an agent on a host binds to and
// advertises.
func agentAddrs(c serf.SourceConfig, host string) (bind, advertise string) {
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
func observedNodes(v *state.View) []string {
	var names []string
	for _, n := range v.Nodes() {
		if n.Seen[observer] {
			names = append(names, n.Name)
		}
	}

	slices.Sort(names)

	return names
}

func (g *Gossip) set(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
}

func (g *Gossip) running() gossipSource {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.source
}

// Off reports whether there is no source.
func (g *Gossip) Off() bool { return g.running() == nil }

// Err returns the reason why the source does not observe now, or nil. It must
// not be called if the gossip is off.
func (g *Gossip) Err() error { return g.running().Err() }

// Own returns the name of this host's node, or "" if it has none.
func (g *Gossip) Own() string {
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

	return g.Node.Name()
}

// Alive returns the addresses of the members of the gossip that live, by the list of this host alone: where their
// gossip is, and those of nodes. A list without this host says nothing.
func (g *Gossip) Alive(ctx context.Context) (map[netip.Addr]bool, error) {
	g.mu.Lock()
	agent, remote := g.agent, g.remote
	g.mu.Unlock()

	var members []monitor.Member

	switch {
	case agent != nil:
		members = agent.Members()
	case remote != nil:
		var err error
		if members, err = remote.Members(ctx); err != nil {
			return nil, err
		}
	default:
		return nil, errors.New("this manager is outside the gossip")
	}

	alive := map[netip.Addr]bool{}

	for _, m := range members {
		if !m.Alive {
			continue
		}
		if at, err := netip.ParseAddrPort(m.Addr); err == nil {
			alive[at.Addr().Unmap()] = true
		}
		if id, err := monitor.IdentityOf(m.Tags); err == nil {
			if at, err := netip.ParseAddr(id.Addr); err == nil {
				alive[at.Unmap()] = true
			}
		}
	}

	if own, err := netip.ParseAddr(g.Node.Addr); err != nil || !alive[own.Unmap()] {
		return nil, fmt.Errorf("the gossip of this host does not show its own address %s", g.Node.Addr)
	}

	return alive, nil
}

// Join takes part in the gossip for Alive alone, until Close.
func (g *Gossip) Join(ctx context.Context) error {
	if g.Config.RPC != "" {
		return g.watchAgent(ctx, &state.View{}, nobody{})
	}
	return g.startAgent(ctx, &state.View{}, nobody{})
}

// nobody keeps no observation.
type nobody struct{}

// Observe implements monitor.Sink.
func (nobody) Observe(context.Context, monitor.Report) error { return nil }

// Manager returns the identity of the manager, or "" if it is not known.
func (g *Gossip) Manager() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.manager.ID
}

// AgentVars returns the variables for hosts that join the gossip, or the reason
// why hosts cannot join.
func (g *Gossip) AgentVars() (map[string]any, error) {
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
		"clusterm_binary":      g.Executable,
		"clusterm_gossip_key":  g.keys(),
		"clusterm_gossip_join": peers,
		"clusterm_gossip_port": port,
		"clusterm_manager":     identity.vars(),
	}, nil
}

// contact returns the address of this host's agent, and the members for new
// hosts to join. The caller holds the lock.
func (g *Gossip) contact() (addr string, join []string, err error) {
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
			g.Config.RPC).
			Do("run the serf agents with encrypt_key; or install stock agents yourself")
	}

	if len(g.Config.Join) > 0 {
		return self.Addr, g.Config.Join, nil
	}

	return self.Addr, []string{self.Addr}, nil
}

// Measure emits the metrics of the gossip, unless it is off.
func (g *Gossip) Measure(emit func(name string, value float64, labels ...string)) {
	source := g.running()
	if source == nil {
		return
	}

	connected := 0.0
	if source.Err() == nil {
		connected = 1
	}

	s := source.Stats()
	emit("clusterm_gossip_connected", connected)
	emit("clusterm_gossip_members", float64(s.Alive), "alive")
	emit("clusterm_gossip_members", float64(s.Failed), "failed")
	emit("clusterm_gossip_members", float64(s.Left), "left")
	emit("clusterm_gossip_strangers", float64(s.Observer.Strangers))
	emit("clusterm_gossip_events_total", float64(s.Observer.Changes))
	emit("clusterm_gossip_pending_nodes", float64(s.Observer.Pending))
	emit("clusterm_gossip_reports_total", float64(s.Observer.Reports))
	emit("clusterm_gossip_report_errors_total", float64(s.Observer.Errors))

	for queue, depth := range s.Queues {
		emit("clusterm_gossip_queue_depth", float64(depth), queue)
	}

	emit("clusterm_gossip_health_score", float64(s.Health))
}
