// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"context"
	_ "embed" // for the example file
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/configuration/ansible"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/inventory/yamlfile"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/monitor"
	"github.com/contiv/cluster/monitor/serf"
)

// Example is a configuration file with every key at its default, and what each means.
//
//go:embed clusterm.yaml
var Example []byte

// Config is the configuration of a daemon. The example file says what each key
// means; the yaml tags are the keys.
type Config struct {
	DataDir   string             `yaml:"data_dir"`
	Socket    string             `yaml:"socket"`
	PlainHTTP string             `yaml:"plain_http"`
	Node      monitor.Identity   `yaml:"node"` // of the daemon's own host
	Gossip    serf.SourceConfig  `yaml:"gossip"`
	Etcd      etcd.Existing      `yaml:"etcd"`
	Groups    inventory.Groups   `yaml:"groups"`
	Playbooks string             `yaml:"playbooks"`
	Ansible   string             `yaml:"ansible_playbook"`
	Vars      configuration.Vars `yaml:"vars"`

	SecretVars configuration.Secrets `yaml:"secret_vars"`

	SSH      configuration.Connection            `yaml:"ssh"`
	GroupSSH map[string]configuration.Connection `yaml:"group_ssh"`
	Jobs     Jobs                                `yaml:"jobs"`
	MaxBody  int64                               `yaml:"max_body"`
	LogLevel string                              `yaml:"log_level"`
}

// Jobs bounds jobs and what is kept of them.
type Jobs struct {
	Limit       int          `yaml:"limit"`
	Timeout     api.Duration `yaml:"timeout"`
	Forks       int          `yaml:"forks"`
	Appear      api.Duration `yaml:"appear"`
	RunnerLease api.Duration `yaml:"runner_lease"`
	Keep        int          `yaml:"keep"`
	KeepFor     api.Duration `yaml:"keep_for"`
	KeepBytes   int64        `yaml:"keep_bytes"`
	OutputLimit int64        `yaml:"output_limit"`
}

// Default is the configuration without a file.
func Default() Config {
	return Config{
		DataDir:    "/var/lib/clusterm",
		Socket:     api.DefaultSocket,
		Gossip:     serf.SourceConfig{Bind: serf.DefaultBind, Join: []string{}},
		Etcd:       etcd.Existing{Endpoints: []string{}, Prefix: etcd.DefaultPrefix},
		Groups:     inventory.DefaultGroups(),
		Ansible:    "ansible-playbook",
		Vars:       configuration.Vars{},
		SecretVars: configuration.DefaultSecrets(),
		GroupSSH:   map[string]configuration.Connection{},
		Jobs: Jobs{
			Limit: 4, Timeout: api.Duration(time.Hour), Forks: 50, Appear: api.Duration(2 * time.Minute),
			RunnerLease: api.Duration(10 * time.Minute), Keep: 1000, KeepFor: api.Duration(30 * 24 * time.Hour),
			KeepBytes: 256 << 20, OutputLimit: 16 << 20,
		},
		MaxBody:  1 << 20,
		LogLevel: "info",
	}
}

// LoadConfig reads a configuration file. "" is the default configuration. The
// keys that the file names are returned beside it.
func LoadConfig(path string) (Config, map[string]bool, error) {
	c, named := Default(), map[string]bool{}
	if path == "" {
		return c, named, c.Check()
	}

	const remedy = "'clusterm example' prints every key with its meaning"

	top, err := yamlfile.Load(path, &c, remedy)
	if err != nil {
		return Config{}, nil, err
	}

	if top != nil {
		walk(top, "", func(key string) { named[key] = true })
	}

	if err := c.Check(); err != nil {
		return Config{}, nil, yamlfile.Invalid(path, err, remedy)
	}

	return c, named, nil
}

// inDocument is where the YAML library found an error; of a document that
// nobody has seen it is no help.
var inDocument = regexp.MustCompile(`\bline \d+: `)

// CheckFile is `clusterm check`: it refuses what the daemon would refuse, or
// could not work with, on this host.
func CheckFile(ctx context.Context, path string) error {
	c, _, err := LoadConfig(path)
	if err != nil {
		return err
	}

	return c.usable(ctx, Default())
}

// usable refuses what is not there on this host: the Ansible, the folder of
// playbooks, the keys. What old names as well is not looked at.
func (c *Config) usable(ctx context.Context, old Config) error {
	if c.Ansible != old.Ansible {
		if _, err := ansible.Check(ctx, c.Ansible); err != nil {
			return inventory.Errorf(inventory.KindInvalid, "ansible_playbook: %w", err)
		}
	}

	return c.present(old)
}

// present is usable without running anything.
func (c *Config) present(old Config) error {
	for _, group := range slices.Sorted(maps.Keys(c.GroupSSH)) {
		if err := readable("group_ssh."+group, c.GroupSSH[group].KeyFile, old.GroupSSH[group].KeyFile); err != nil {
			return err
		}
	}

	if err := readable("ssh", c.SSH.KeyFile, old.SSH.KeyFile); err != nil {
		return err
	}

	if c.Playbooks != "" && c.Playbooks != old.Playbooks {
		if _, err := os.Stat(filepath.Join(c.Playbooks, job.PlaybookSite)); err != nil {
			return inventory.Errorf(inventory.KindInvalid, "playbooks: there is no %s in %s", job.PlaybookSite,
				c.Playbooks).
				Do("put your playbooks there, or leave the key empty for those that come with clusterm")
		}
	}

	return nil
}

// readable refuses a key file that is named anew and cannot be read.
func readable(key, path, before string) error {
	if path == "" || path == before {
		return nil
	}

	f, err := os.Open(path)
	if err != nil {
		return inventory.Errorf(inventory.KindInvalid, "%s.key_file cannot be read: %w", key, err).
			Do("name a private key on this host")
	}

	return f.Close()
}

// walk calls found with the dotted key of everything the mapping names.
func walk(n *yaml.Node, prefix string, found func(string)) {
	if n.Kind != yaml.MappingNode {
		return
	}

	for i := 0; i+1 < len(n.Content); i += 2 {
		key := prefix + n.Content[i].Value
		found(key)
		walk(n.Content[i+1], key+".", found)
	}
}

// fileKeys belong to the file: they are read once, at the start.
var fileKeys = []string{"data_dir", "socket", "plain_http", "node", "gossip", "etcd"}

// Check refuses values that make no sense. It looks at nothing outside c.
func (c *Config) Check() error {
	bad := func(key, format string, args ...any) error {
		return inventory.Errorf(inventory.KindInvalid, "%s: %w", key, fmt.Errorf(format, args...))
	}
	if !filepath.IsAbs(c.DataDir) {
		return bad("data_dir", "%q is not an absolute path", c.DataDir)
	}

	if !filepath.IsAbs(c.Socket) {
		return bad("socket", "%q is not an absolute path", c.Socket)
	}

	if c.PlainHTTP != "" {
		addr, err := netip.ParseAddrPort(c.PlainHTTP)
		if err != nil || !addr.Addr().IsLoopback() {
			return bad(
				"plain_http",
				"%q is not a loopback address and port; it has no authentication, so only 127.0.0.1:PORT or "+
					"[::1]:PORT is taken",
				c.PlainHTTP,
			)
		}
	}

	if c.Playbooks != "" && !filepath.IsAbs(c.Playbooks) {
		return bad("playbooks", "%q is not an absolute path", c.Playbooks)
	}

	if c.Ansible == "" {
		return bad("ansible_playbook", "it is empty")
	}

	if err := c.Gossip.Check(); err != nil {
		return err
	}

	if err := c.Etcd.Check(); err != nil {
		return inventory.Errorf(inventory.KindInvalid, "%w", err)
	}

	for _, check := range []struct {
		key, value string
		check      func(string) error
	}{
		{"node.label", c.Node.Label, inventory.CheckLabel}, {"node.serial", c.Node.Serial, inventory.CheckSerial},
		{"node.addr", c.Node.Addr, inventory.CheckAddr},
	} {
		if check.value != "" {
			if err := check.check(check.value); err != nil {
				return bad(check.key, "%w", err)
			}
		}
	}

	if err := c.Groups.Check(); err != nil {
		return bad("groups", "%w", err)
	}

	if err := configuration.CheckVars(c.Vars); err != nil {
		return bad("vars", "%w", err)
	}

	if err := c.SecretVars.Check(); err != nil {
		return bad("secret_vars", "%w", err)
	}

	if err := c.SSH.Check(); err != nil {
		return bad("ssh", "%w", err)
	}

	for group, ssh := range c.GroupSSH {
		if _, err := c.Groups.Get(group); err != nil && group != inventory.GroupPrepare {
			return bad("group_ssh", "%w", err)
		}

		if err := ssh.Check(); err != nil {
			return bad("group_ssh."+group, "%w", err)
		}
	}

	for _, n := range []struct {
		key              string
		value, low, high int64
	}{
		{"jobs.limit", int64(c.Jobs.Limit), 1, 1000},
		{"jobs.forks", int64(c.Jobs.Forks), 1, 1000},
		{"jobs.keep", int64(c.Jobs.Keep), 1, 100_000},
		{"jobs.keep_bytes", c.Jobs.KeepBytes, 1 << 20, 1 << 40},
		{"jobs.output_limit", c.Jobs.OutputLimit, 64 << 10, 1 << 30},
		{"max_body", c.MaxBody, 1 << 10, 1 << 30},
	} {
		if n.value < n.low || n.value > n.high {
			return bad(n.key, "%d is not within %d and %d", n.value, n.low, n.high)
		}
	}

	for _, d := range []struct {
		key       string
		value     api.Duration
		low, high time.Duration
	}{
		{"jobs.timeout", c.Jobs.Timeout, time.Second, 7 * 24 * time.Hour},
		{"jobs.appear", c.Jobs.Appear, time.Second, time.Hour},
		{"jobs.runner_lease", c.Jobs.RunnerLease, 10 * time.Second, 24 * time.Hour},
		{"jobs.keep_for", c.Jobs.KeepFor, time.Hour, 100 * 365 * 24 * time.Hour},
	} {
		if v := time.Duration(d.value); v < d.low || v > d.high {
			return bad(d.key, "%s is not within %s and %s", v, d.low, d.high)
		}
	}

	if _, err := logrus.ParseLevel(c.LogLevel); err != nil {
		return bad("log_level", "%q is not error, warning, info or debug", c.LogLevel)
	}

	return nil
}

// keyed is one key of the configuration.
type keyed struct {
	key   string
	value any
}

// keys lists every key with its value, in the order of the example. A struct is
// taken apart; a map or a list is one value.
func keys(c Config) []keyed {
	var out []keyed
	var visit func(prefix string, v reflect.Value)
	visit = func(prefix string, v reflect.Value) {
		for _, f := range yamlfile.Fields(v.Type()) {
			key, value := prefix+yamlfile.Key(f), v.FieldByIndex(f.Index)
			switch {
			case f.Type == reflect.TypeFor[serf.SourceConfig]() && value.Interface().(serf.SourceConfig).Off:
				out = append(out, keyed{key, "off"})
			case f.Type.Kind() == reflect.Struct:
				visit(key+".", value)
			default:
				out = append(out, keyed{key, value.Interface()})
			}
		}
	}
	visit("", reflect.ValueOf(c))

	return out
}

// isFileKey tells whether the key, or what it is part of, belongs to the file.
func isFileKey(key string) bool {
	top, _, _ := strings.Cut(key, ".")
	return slices.Contains(fileKeys, top)
}

// numbers has the YAML library write numbers as they were given: of their type,
// and with every digit.
func numbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: v.String()}
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = numbers(e)
		}

		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = numbers(e)
		}

		return out
	}

	return v
}

func noKey(key string) error {
	return inventory.Errorf(inventory.KindInvalid, "there is no key %q in the configuration", key).
		Do("see clusterctl config get")
}

// overlaid is the configuration of the file with the overlay's keys over it.
func overlaid(file Config, overlay map[string]any) (Config, error) {
	if len(overlay) == 0 {
		return file, nil
	}

	exist := map[string]bool{}
	for _, k := range keys(file) {
		exist[k.key] = true
	}

	// What the file's configuration points to must not be written through, and
	// a map is replaced, not merged.
	c := file
	if file.SSH.Become != nil {
		become := *file.SSH.Become
		c.SSH.Become = &become
	}

	c.Groups, c.Gossip.Join, c.Etcd.Endpoints = slices.Clone(
		file.Groups,
	), slices.Clone(
		file.Gossip.Join,
	), slices.Clone(
		file.Etcd.Endpoints,
	)
	for _, key := range slices.Sorted(maps.Keys(overlay)) {
		switch {
		case isFileKey(key):
			return Config{}, inventory.Errorf(inventory.KindRefused, "%s belongs to the configuration file", key).
				Do("change it there and restart clusterm")
		case !exist[key]:
			return Config{}, noKey(key)
		case key == "vars":
			c.Vars = nil
		case key == "secret_vars":
			c.SecretVars = nil
		case key == "group_ssh":
			c.GroupSSH = nil
		}

		doc := numbers(overlay[key])
		for _, part := range slices.Backward(strings.Split(key, ".")) {
			doc = map[string]any{part: doc}
		}

		data, err := yaml.Marshal(doc)
		if err != nil {
			return Config{}, err
		}

		dec := yaml.NewDecoder(bytes.NewReader(data))
		dec.KnownFields(true)

		if err := dec.Decode(&c); err != nil {
			return Config{}, inventory.Errorf(inventory.KindInvalid, "the value of %s does not fit: %s", key,
				inDocument.ReplaceAllString(yamlfile.Plain(err), "")).
				Do("see clusterctl config get %s, and 'clusterm example'", key)
		}
	}

	return c, c.Check()
}
