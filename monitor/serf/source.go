// SPDX-License-Identifier: Apache-2.0

package serf

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"
	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/yamlfile"
)

// DefaultBind is the gossip address of a process that configures none: all IPv4
// addresses of the host.
const DefaultBind = "0.0.0.0:7946"

// SourceConfig is the key gossip of a configuration file. It selects the source
// of membership: an agent inside the process, an existing serf agent (RPC), or
// none (Off).
type SourceConfig struct {
	Off         bool     `yaml:"-"`
	Bind        string   `yaml:"bind"`
	Advertise   string   `yaml:"advertise"`
	KeyFile     string   `yaml:"key_file"`
	Join        []string `yaml:"join"`
	RPC         string   `yaml:"rpc"`
	RPCAuthFile string   `yaml:"rpc_auth_file"`
}

// UnmarshalYAML takes the mapping, or the word off.
func (c *SourceConfig) UnmarshalYAML(n *yaml.Node) error {
	// A type without this method, so that the decoding does not recurse.
	type plain SourceConfig
	decoded := plain(*c)

	off, err := yamlfile.DecodeOrOff(n, "gossip", &decoded)
	if err != nil {
		return err
	}

	*c = SourceConfig(decoded)
	c.Off = off

	return nil
}

// MarshalYAML writes the word off for a process outside the gossip.
func (c SourceConfig) MarshalYAML() (any, error) {
	if c.Off {
		return "off", nil
	}

	type plain SourceConfig
	return plain(c), nil
}

// Check refuses invalid values and keys that exclude each other. It reads no
// file. Its errors are of inventory.KindInvalid and start with the key.
func (c SourceConfig) Check() error {
	switch {
	case c.Off:
		return nil
	case c.RPC == "":
		if c.RPCAuthFile != "" {
			return invalidKey("rpc_auth_file", "it is the key of an existing serf agent, and gossip.rpc names none")
		}
	default:
		if err := c.checkRPC(); err != nil {
			return err
		}
	}

	agent := GossipConfig{Bind: c.Bind, Advertise: c.Advertise, Join: c.Join}
	if err := agent.Check(); err != nil {
		return inventory.Errorf(inventory.KindInvalid, "%w", err)
	}

	return nil
}

// checkRPC refuses invalid keys of an existing agent, and those that only an
// agent inside takes.
func (c SourceConfig) checkRPC() error {
	if err := CheckRemote(c.RPC); err != nil {
		return invalidKey("rpc", "%w", err)
	}

	if c.RPCAuthFile != "" && !filepath.IsAbs(c.RPCAuthFile) {
		return invalidKey("rpc_auth_file", "%q is not an absolute path", c.RPCAuthFile)
	}

	if c.Bind != "" {
		return invalidKey(
			"bind",
			"gossip.rpc names an existing serf agent, which is bound already; leave one of them out",
		)
	}

	if c.Advertise != "" {
		return invalidKey(
			"advertise",
			"gossip.rpc names an existing serf agent, which advertises itself; leave one of them out",
		)
	}

	return nil
}

func invalidKey(key, format string, args ...any) error {
	return inventory.Errorf(inventory.KindInvalid, "gossip.%s: %w", key, fmt.Errorf(format, args...))
}

// Source is a running source of membership. Agent and Remote are sources.
type Source interface {
	// Done is closed when the source has ended, for any reason.
	Done() <-chan struct{}

	// Leave ends the source, waits until it is down, and returns the error of a
	// source that failed before. When ctx is done first, it returns ctx's error,
	// and the source ends on its own.
	Leave(ctx context.Context) error
}

// leaveTimeout bounds the leave of Run, so that the gossip does not hold up the
// shutdown of a host.
const leaveTimeout = 10 * time.Second

// Run is the life of a process that serves one source: it starts the source,
// calls ready, which may be nil, waits until ctx is done, and leaves. A source
// that fails is an error; a start that ctx interrupts is not.
func Run(
	ctx context.Context,
	start func(context.Context) (Source, error),
	log logrus.FieldLogger,
	ready func(),
) error {
	s, err := start(ctx)
	if err != nil {
		return StartError(ctx, err, log)
	}

	if ready != nil {
		ready()
	}

	select {
	case <-s.Done():
	case <-ctx.Done():
	}

	leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()

	return s.Leave(leave)
}

// StartError is the result of a failed start: err, or nil if ctx is done, since
// an operator stopped the process before the start was complete.
func StartError(ctx context.Context, err error, log logrus.FieldLogger) error {
	if ctx.Err() == nil {
		return err
	}

	if !errors.Is(err, ctx.Err()) {
		log = log.WithError(err) // the obstacle that the start was waiting for
	}

	log.Info("stopped before it had started")

	return nil
}
