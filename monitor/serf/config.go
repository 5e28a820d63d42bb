// SPDX-License-Identifier: Apache-2.0

package serf

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory/yamlfile"
)

// AgentConfig is the configuration file of `clusterm agent`.
type AgentConfig struct {
	Node    Identity     `yaml:"node"`
	DataDir string       `yaml:"data_dir"`
	Gossip  GossipConfig `yaml:"gossip"`
}

// GossipConfig is the gossip key of AgentConfig; see Options for its fields.
type GossipConfig struct {
	Bind      string   `yaml:"bind"`
	Advertise string   `yaml:"advertise"`
	KeyFile   string   `yaml:"key_file"`
	Join      []string `yaml:"join"`
}

// DefaultAgentConfig holds the defaults under a file. The identity and the members
// to join have none; the address to bind defaults to the node's address.
func DefaultAgentConfig() AgentConfig {
	return AgentConfig{
		DataDir: "/var/lib/clusterm-agent",
		Gossip:  GossipConfig{KeyFile: "/etc/clusterm/gossip.key"},
	}
}

// LoadAgentConfig reads a configuration file strictly (see package yamlfile) and
// checks it. Its errors are of inventory.KindInvalid.
func LoadAgentConfig(path string) (AgentConfig, error) {
	c := DefaultAgentConfig()

	const remedy = "the README of monitor/serf shows a file with every key"
	if _, err := yamlfile.Load(path, &c, remedy); err != nil {
		return c, err
	}

	if c.Gossip.Bind == "" {
		c.Gossip.Bind = defaultBind(c.Node.Addr)
	}

	if err := c.Check(); err != nil {
		return c, yamlfile.Invalid(path, err, remedy)
	}

	return c, nil
}

// defaultBind is the management address of the node with the default port, or ""
// if that is a host name.
func defaultBind(addr string) string {
	if _, err := netip.ParseAddr(addr); err != nil {
		return ""
	}
	return net.JoinHostPort(addr, strconv.Itoa(DefaultPort))
}

// Check refuses a configuration with which no agent can start. It reads no file.
func (c AgentConfig) Check() error {
	errs := []error{keyed("node", c.Node.Check())}
	if c.DataDir == "" {
		errs = append(errs, errors.New("data_dir: it is empty; name a directory the agent may write to"))
	}
	if c.Gossip.KeyFile == "" {
		errs = append(errs, errors.New("gossip.key_file: it is empty; name the file that holds the gossip key"))
	}

	if c.Gossip.Bind == "" {
		errs = append(
			errs,
			fmt.Errorf(
				"gossip.bind: it is empty and node.addr is not an IP address; "+
					"give an IP address of this host and a port, as in 192.0.2.1:%d",
				DefaultPort,
			),
		)
	}

	return errors.Join(append(errs, c.Gossip.Check())...)
}

// Check refuses malformed addresses. It resolves no name and reads no file.
func (c GossipConfig) Check() error {
	var errs []error
	if c.Bind != "" {
		_, _, err := parseBind(c.Bind)
		errs = append(errs, keyed("gossip.bind", err))
	}

	if c.Advertise != "" {
		_, _, err := splitAddr(c.Advertise)
		errs = append(errs, keyed("gossip.advertise", err))
	}

	for _, j := range c.Join {
		errs = append(errs, keyed("gossip.join", checkPeer(j)))
	}

	return errors.Join(errs...)
}

// keyed prefixes an error with the key of its value; nil stays nil.
func keyed(key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", key, err)
}

// RunAgent is the whole of `clusterm agent`: it is a member of the gossip until ctx
// is done, and then leaves. See Run.
func RunAgent(ctx context.Context, c AgentConfig, log logrus.FieldLogger, ready func()) error {
	return runAgent(ctx, c, Timing{}, log, ready)
}

func runAgent(ctx context.Context, c AgentConfig, t Timing, log logrus.FieldLogger, ready func()) error {
	start := func(ctx context.Context) (Source, error) {
		return Start(ctx, Options{
			Node: c.Node, DataDir: c.DataDir,
			Bind: c.Gossip.Bind, Advertise: c.Gossip.Advertise, KeyFile: c.Gossip.KeyFile, Join: c.Gossip.Join,
			Timing: t, Log: log,
		})
	}

	return Run(ctx, start, log, ready)
}
