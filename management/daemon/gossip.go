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

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/monitor"
	"github.com/contiv/cluster/monitor/serf"
)

// gossiper tells who is there.
type gossiper interface {
	Err() error // what is wrong with it; nil: nothing
	Stats() serf.Stats
	Close() error
}

// gossip starts the agent inside, or watches an existing one, unless the
// configuration keeps out of it.
func (d *Daemon) gossip(ctx context.Context, c Config) (err error) {
	sink := node.Sink{Nodes: d.nodes, Observer: observer}

	g := c.Gossip
	if g.Off {
		// What an earlier daemon saw by gossip, nobody sees any more.
		return sink.Observe(ctx, monitor.Report{Full: true})
	}

	if g.RPC != "" {
		if g.KeyFile != "" {
			if d.key, err = gossipKey(g.KeyFile, false); err != nil {
				return err
			}
		}

		d.remote, err = serf.WatchRemote(ctx, serf.RemoteOptions{
			Addr: g.RPC, AuthFile: g.RPCAuthFile, Sinks: []monitor.Sink{sink}, Before: d.seen(),
			Timing: d.opts.Timing, Log: d.opts.Logger,
		})
		if err != nil {
			return inventory.Errorf(inventory.KindInvalid, "gossip.rpc: %w", err)
		}

		d.source = d.remote
		d.onStop("gossip", func(context.Context) error { return d.remote.Close() })

		return nil
	}

	path := cmp.Or(g.KeyFile, filepath.Join(c.DataDir, "gossip.key"))
	if d.key, err = gossipKey(path, g.KeyFile == ""); err != nil {
		return err
	}

	_, port, _ := net.SplitHostPort(g.Bind)

	advertise := g.Advertise
	if advertise == "" && port != "0" {
		advertise = net.JoinHostPort(d.node.Addr, port)
	}

	bind := g.Bind
	if bind == serf.DefaultBind && strings.Contains(d.node.Addr, ":") {
		bind = net.JoinHostPort("::", port)
	}

	d.agent, err = serf.Start(ctx, serf.Options{
		Node: d.node,
		Bind: bind, Advertise: advertise, KeyFile: path, Join: g.Join, DataDir: filepath.Join(c.DataDir, "gossip"),
		Timing: d.opts.Timing, Log: d.opts.Logger, Sinks: []monitor.Sink{sink},
	})
	if err != nil {
		return err
	}

	d.source = d.agent
	// The daemon's host does not leave the cluster when its daemon restarts: the
	// agent ends without a word, and is back before the others take it for dead,
	// or is rightly taken for dead.
	d.onStop("gossip", func(context.Context) error { return d.agent.Close() })
	go func() {
		<-d.agent.Done()

		if err := d.agent.Err(); err != nil {
			d.failed <- fmt.Errorf("the gossip: %w", err)
		}
	}()

	return nil
}

// seen names the nodes that were alive by the last word of the gossip.
func (d *Daemon) seen() []string {
	var names []string
	for _, n := range d.store.View().Nodes {
		if n.Seen[observer] {
			names = append(names, n.Name)
		}
	}

	slices.Sort(names)

	return names
}

// own is the name of the node that this host is; "" for none.
func (d *Daemon) own() string {
	if d.source == nil {
		return ""
	}

	if d.remote != nil {
		if n := d.remote.Node(); n != (monitor.Identity{}) {
			return n.Name()
		}
	}

	return d.node.Name()
}

// agentVars is what hosts need to take part in the gossip, or why they cannot
// be given it.
func (d *Daemon) agentVars(g serf.SourceConfig) (map[string]any, error) {
	at, join := "", g.Join
	switch {
	case d.agent != nil:
		at = d.agent.Addr()
		join = []string{at}
	case d.remote == nil:
		return nil, inventory.Errorf(inventory.KindRefused,
			"this manager takes no part in the gossip (gossip: off), so hosts prepared by it would have nobody to "+
				"join").
			Do("install the agents yourself, and report them to POST /monitor/event")
	case d.key == "":
		return nil, inventory.Errorf(inventory.KindRefused,
			"this manager watches an existing serf agent (gossip.rpc) and was not told the key of its gossip, which "+
				"hosts that it prepares need").
			Do("write the agent's encrypt_key into a file, name that in gossip.key_file, and restart clusterm; or " +
				"install the agents yourself")
	default:
		self, err := d.remote.Self()
		if err != nil {
			return nil, inventory.Errorf(inventory.KindUnavailable, "%w", err).
				Do("see clusterctl health; the hosts would not be seen")
		}

		if !self.Encrypted {
			return nil, inventory.Errorf(inventory.KindRefused,
				"the gossip of the serf agent at %s is not encrypted; agents of clusterm take part in an encrypted "+
					"one only",
				g.RPC).
				Do("run the serf agents with encrypt_key; or install stock agents yourself")
		}

		if at = self.Addr; len(join) == 0 {
			join = []string{at}
		}
	}

	_, port, _ := net.SplitHostPort(at)

	peers := make([]any, len(join))
	for i, j := range join {
		peers[i] = j
	}

	return map[string]any{
		"clusterm_binary":      d.self,
		"clusterm_gossip_key":  d.key,
		"clusterm_gossip_join": peers,
		"clusterm_gossip_port": port,
	}, nil
}
