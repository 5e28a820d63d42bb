// SPDX-License-Identifier: Apache-2.0

package report

import (
	_ "embed" // for the example file
	"fmt"
	"os"
	"path/filepath"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/yamlfile"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/monitor/serf"
)

// Example is a configuration file with every key and its meaning.
//
//go:embed monitor.yaml
var Example []byte

// Config is the configuration of `clusterm monitor`; Example describes its keys.
type Config struct {
	ReportTo []Manager         `yaml:"report_to"`
	Observer string            `yaml:"observer"` // empty: the host's name
	DataDir  string            `yaml:"data_dir"`
	Gossip   serf.SourceConfig `yaml:"gossip"`
	LogLevel string            `yaml:"log_level"`
}

// Load reads a configuration file. Its errors name the file, and are of
// inventory.KindInvalid.
func Load(path string) (Config, error) {
	c := Config{
		ReportTo: []Manager{{URL: "unix://" + api.DefaultSocket}},
		DataDir:  "/var/lib/clusterm-monitor",
		LogLevel: "info",
	}

	const remedy = "'clusterm monitor --example' prints every key with its meaning"
	if _, err := yamlfile.Load(path, &c, remedy); err != nil {
		return Config{}, err
	}

	if c.Gossip.Bind == "" && c.Gossip.RPC == "" {
		c.Gossip.Bind = serf.DefaultBind
	}

	if err := c.Check(); err != nil {
		return Config{}, yamlfile.Invalid(path, err, remedy)
	}

	return c, nil
}

// Check refuses invalid values and keys that exclude each other. It reads no
// file and opens no connection.
func (c *Config) Check() error {
	if err := c.checkManagers(); err != nil {
		return err
	}

	if err := inventory.CheckObserver(c.observer()); err != nil {
		return invalid("observer", "%w", err)
	}

	if !filepath.IsAbs(c.DataDir) {
		return invalid("data_dir", "%q is not an absolute path", c.DataDir)
	}

	if err := c.checkGossip(); err != nil {
		return err
	}

	if _, err := logrus.ParseLevel(c.LogLevel); err != nil {
		return invalid("log_level", "%q is not error, warning, info or debug", c.LogLevel)
	}

	return nil
}

// observer is the name under which this monitor reports.
func (c *Config) observer() string {
	if c.Observer != "" {
		return c.Observer
	}

	// An error leaves the name empty, which Check refuses with the key to set.
	host, _ := os.Hostname()

	return host
}

// urls lists the managers, each with the URLs of its instances.
func (c *Config) urls() []string {
	urls := make([]string, len(c.ReportTo))
	for i, m := range c.ReportTo {
		urls[i] = m.URL
	}

	return urls
}

// CheckFiles reads the credentials and the CAs of the managers, and refuses a
// secret that others may read. It opens no connection.
func (c *Config) CheckFiles() error {
	for _, m := range c.ReportTo {
		if _, err := m.connect(); err != nil {
			return err
		}
	}

	return nil
}

func (c *Config) checkManagers() error {
	if len(c.ReportTo) == 0 {
		return invalid(
			"report_to",
			"it is empty; name the manager to report to, such as unix:///run/clusterm/clusterm.sock",
		)
	}

	seen := map[string]bool{}

	for _, m := range c.ReportTo {
		for _, at := range client.URLs(m.URL) {
			if seen[at] {
				return invalid("report_to", "%s is there twice", at)
			}
			seen[at] = true
		}

		if err := m.check(); err != nil {
			return invalid("report_to", "%w", err)
		}
	}

	return nil
}

// checkGossip refuses keys of a source that cannot observe anything.
func (c *Config) checkGossip() error {
	switch g := c.Gossip; {
	case g.Off:
		return invalid("gossip", "it is off; a monitor without gossip observes nothing")
	case g.RPC == "" && g.KeyFile == "":
		return invalid(
			"gossip",
			"name the rpc of a serf agent on this host, or the key_file and the members to join for an agent of the "+
				"monitor's own",
		)
	case g.RPC == "" && len(g.Join) == 0:
		return invalid("gossip.join", "it is empty; name members for the monitor's agent to join")
	case g.RPC != "" && g.KeyFile != "":
		return invalid(
			"gossip.key_file",
			"gossip.rpc names an existing serf agent, which has the key already; leave one of them out",
		)
	case g.RPC != "" && len(g.Join) > 0:
		return invalid(
			"gossip.join",
			"gossip.rpc names an existing serf agent, which joins by itself; leave one of them out",
		)
	}

	return c.Gossip.Check()
}

func invalid(key, format string, args ...any) error {
	return inventory.Errorf(inventory.KindInvalid, "%s: %w", key, fmt.Errorf(format, args...))
}
