// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
)

// Check refuses invalid values. It reads nothing outside c, and leaves the
// sections of the adapters to Adapters. Errors are of inventory.KindInvalid and
// begin with the key.
func (c *Config) Check() error {
	checks := []func() error{
		c.checkPaths,
		c.checkListen,
		c.checkOIDC,
		c.checkNode,
		c.checkGroups,
		c.checkVars,
		c.checkSecrets,
		c.checkRepository,
		c.checkConnections,
		c.checkGateCommands,
		c.checkWindows,
		c.checkPolicies,
		c.checkDiscovered,
		c.checkNumbers,
		c.checkDurations,
		c.checkNotifications,
		c.checkScan,
		c.checkBoot,
		c.checkInspection,
		c.checkAvailability,
	}
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}

	if _, err := logrus.ParseLevel(c.LogLevel); err != nil {
		return invalid("log_level", "%q is not error, warning, info or debug", c.LogLevel)
	}

	return nil
}

func invalid(key, format string, args ...any) *inventory.Error {
	return inventory.Errorf(inventory.KindInvalid, "%s: %w", key, fmt.Errorf(format, args...))
}

func (c *Config) checkPaths() error {
	for _, p := range []struct{ key, path string }{{"data_dir", c.DataDir}, {"socket", c.Socket}} {
		if !filepath.IsAbs(p.path) {
			return invalid(p.key, "%q is not an absolute path", p.path)
		}
	}

	for _, p := range []struct{ key, path string }{{"playbooks", c.Playbooks}, {"images.folder", c.Images.Folder}} {
		if p.path != "" && !filepath.IsAbs(p.path) {
			return invalid(p.key, "%q is not an absolute path", p.path)
		}
	}

	if c.Ansible == "" {
		return invalid("ansible_playbook", "it is empty")
	}

	for _, id := range c.VaultIDs {
		if err := configuration.CheckVaultID(id); err != nil {
			return invalid("vault_ids", "%w", err)
		}
	}

	if _, err := access.ParseReusable(c.PlainRole); err != nil {
		return invalid("plain_http_role", "%w", err)
	}

	if c.PlainHTTP == "" {
		return nil
	}

	// A name such as localhost is refused: its address can change.
	addr, err := netip.ParseAddrPort(c.PlainHTTP)
	if err != nil || !addr.Addr().IsLoopback() {
		return invalid("plain_http", "%q is not a loopback address and port; plain HTTP has no authentication, "+
			"so write 127.0.0.1:PORT or [::1]:PORT", c.PlainHTTP)
	}

	return nil
}

func (c *Config) checkListen() error {
	for _, l := range []struct{ key, addr string }{{"listen", c.Listen}, {"metrics_listen", c.Metrics}} {
		if l.addr == "" {
			continue
		}

		// A name is refused: its address can change.
		if _, err := netip.ParseAddrPort(l.addr); err != nil {
			return invalid(l.key, "%q is not an IP address and port; write one such as 0.0.0.0:9443", l.addr)
		}
	}

	for _, f := range []struct{ key, path string }{
		{"tls.cert_file", c.TLS.CertFile}, {"tls.key_file", c.TLS.KeyFile}, {"tls.client_ca_file", c.TLS.ClientCAFile},
	} {
		if f.path != "" && !filepath.IsAbs(f.path) {
			return invalid(f.key, "%q is not an absolute path", f.path)
		}
	}

	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		return invalid("tls", "cert_file and key_file belong together; set both or none")
	}

	for _, name := range c.TLS.Names {
		if !isHostName(name) {
			return invalid("tls.names", "%q is neither a host name nor an IP address", name)
		}
	}

	return nil
}

func (c *Config) checkOIDC() error {
	o := c.OIDC
	if o.Issuer == "" {
		if o.Audience != "" || o.CAFile != "" || len(o.Rules) > 0 {
			return invalid("oidc.issuer", "it is empty, and other keys of oidc are set; write the URL of the issuer")
		}
		return nil
	}

	// The URL is compared with a claim of the tokens, so it must be as the issuer writes it.
	u, err := url.Parse(o.Issuer)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return invalid("oidc.issuer", "%q is not a URL such as https://login.example.com", o.Issuer)
	}

	for _, required := range []struct{ key, value string }{
		{"oidc.audience", o.Audience}, {"oidc.name_claim", o.NameClaim}, {"oidc.claim", o.Claim},
	} {
		if required.value == "" {
			return invalid(required.key, "it is empty")
		}
	}

	if o.CAFile != "" && !filepath.IsAbs(o.CAFile) {
		return invalid("oidc.ca_file", "%q is not an absolute path", o.CAFile)
	}

	if len(o.Rules) == 0 {
		return invalid("oidc.rules", "there is none, so no token would have a role")
	}

	for _, r := range o.Rules {
		if err := r.check(c.Groups); err != nil {
			return invalid("oidc.rules", "the value %q: %w", r.Value, err)
		}
	}

	return nil
}

func (r OIDCRule) check(groups inventory.Groups) error {
	if r.Value == "" {
		return errors.New("it is empty")
	}

	role, err := access.ParseReusable(r.Role)
	if err != nil {
		return err
	}
	if err := r.Scope().CheckRole(role); err != nil {
		return err
	}

	return r.Scope().Check(groups)
}

// hostNames matches a host name in a certificate. The first label may be a wildcard.
var hostNames = regexp.MustCompile(`^(?i)(\*\.)?[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)

// isHostName reports whether a certificate may be for the name.
func isHostName(name string) bool {
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	return len(name) <= 253 && hostNames.MatchString(name)
}

func (c *Config) checkNode() error {
	for _, field := range []struct {
		key, value string
		check      func(string) error
	}{
		{"node.label", c.Node.Label, inventory.CheckLabel},
		{"node.serial", c.Node.Serial, inventory.CheckSerial},
		{"node.addr", c.Node.Addr, inventory.CheckAddr},
	} {
		// An empty value is detected on the host at the start.
		if field.value == "" {
			continue
		}

		if err := field.check(field.value); err != nil {
			return invalid(field.key, "%w", err)
		}
	}

	return nil
}

func (c *Config) checkGroups() error {
	if err := c.Groups.Check(); err != nil {
		return invalid("groups", "%w", err)
	}
	return nil
}

func (c *Config) checkVars() error {
	if err := configuration.CheckVars(c.Vars); err != nil {
		return invalid("vars", "%w", err)
	}

	if err := c.SecretVars.Check(); err != nil {
		return invalid("secret_vars", "%w", err)
	}
	return nil
}

func (c *Config) checkSecrets() error {
	if c.Secrets.KeyFile != "" && !filepath.IsAbs(c.Secrets.KeyFile) {
		return invalid("secrets.key_file", "%q is not an absolute path", c.Secrets.KeyFile)
	}

	for _, name := range slices.Sorted(maps.Keys(c.Secrets.Sources)) {
		source, key := c.Secrets.Sources[name], "secrets.sources."+name

		if err := configuration.CheckVars(configuration.Vars{name: ""}); err != nil {
			return invalid("secrets.sources", "%w", err)
		}

		if (len(source.Command) > 0) == (source.File != "") {
			return invalid(key, "give either a command or a file")
		}

		if !filepath.IsAbs(source.Path()) {
			return invalid(key, "%q is not an absolute path", source.Path())
		}
	}

	return nil
}

// maxHostCAs bounds the CAs: each is in the files of every run, once for each host.
const maxHostCAs = 16

func (c *Config) checkConnections() error {
	if err := c.SSH.Check(); err != nil {
		return invalid("ssh", "%w", err)
	}

	for _, key := range c.SSH.HostCA {
		if _, err := configuration.ParseHostKey(key); err != nil {
			return invalid("ssh.host_ca", "%w", err)
		}
	}

	if len(c.SSH.HostCA) > maxHostCAs {
		return invalid("ssh.host_ca", "it has %d keys, the limit is %d", len(c.SSH.HostCA), maxHostCAs)
	}

	for group, ssh := range c.GroupSSH {
		// Hosts that are being prepared are in a group of their own, which is not configured.
		if _, err := c.Groups.Get(group); err != nil && group != inventory.GroupPrepare {
			return invalid("group_ssh", "%w", err)
		}

		if err := ssh.Check(); err != nil {
			return invalid("group_ssh."+group, "%w", err)
		}
	}

	return nil
}

func (c *Config) checkPolicies() error {
	for _, check := range []func() error{c.checkNames, c.checkCommission, c.checkUpgrade, c.checkVerify} {
		if err := check(); err != nil {
			return err
		}
	}

	return nil
}

func (c *Config) checkScan() error {
	if _, err := c.Scan.Parsed(); err != nil {
		return invalid("scan.ranges", "%w", err)
	}
	return nil
}

// discovered are the values of Config.Discovered, the default first.
var discovered = []string{
	strings.ToLower(string(inventory.Unallocated)), strings.ToLower(string(inventory.Manageable)),
}

func (c *Config) checkDiscovered() error {
	if !slices.Contains(discovered, c.Discovered) {
		return invalid("discovered", "%q is not one of %s", c.Discovered, strings.Join(discovered, ", "))
	}
	return nil
}

func (c *Config) checkNumbers() error {
	for _, n := range []struct {
		key              string
		value, low, high int64
	}{
		{"jobs.limit", int64(c.Jobs.Limit), 1, 1000},
		{"jobs.forks", int64(c.Jobs.Forks), 1, 1000},
		{"jobs.keep", int64(c.Jobs.Keep), 1, 100_000},
		{"jobs.keep_bytes", c.Jobs.KeepBytes, 1 << 20, 1 << 40},
		{"jobs.output_limit", c.Jobs.OutputLimit, 64 << 10, 1 << 30},
		{"policies.jobs", int64(c.Policies.Jobs), 1, 100},
		{"policies.rate", int64(c.Policies.Rate), 1, 100},
		{"policies.brake.share", int64(c.Policies.Brake.Share), 1, 100},
		{"policies.brake.minimum", int64(c.Policies.Brake.Minimum), 1, 10_000},
		{"jobs.plans", int64(c.Jobs.Plans), 1, 1000},
		{"audit.keep", int64(c.Audit.Keep), 1000, 10_000_000},
		{"repository.limits.fetch", c.Repository.Limits.Fetch, 64 << 10, 16 << 30},
		{"repository.limits.size", c.Repository.Limits.Size, 64 << 10, 64 << 20},
		{"repository.limits.files", int64(c.Repository.Limits.Files), 1, 10_000},
		{"scan.rate", int64(c.Scan.Rate), 1, 1000},
		{"instances.client_port", int64(c.Instances.ClientPort), 1, 65_535},
		{"instances.peer_port", int64(c.Instances.PeerPort), 1, 65_535},
		{"max_body", c.MaxBody, 1 << 10, 1 << 30},
		{"max_requests", int64(c.MaxRequests), 2, 10_000},
		{"max_streams", int64(c.MaxStreams), 2, 256},
	} {
		if n.value < n.low || n.value > n.high {
			return invalid(n.key, "%d is not within %d and %d", n.value, n.low, n.high)
		}
	}

	return nil
}

func (c *Config) checkAvailability() error {
	const key = "instances.availability"

	switch {
	case c.Instances.Availability == Consistency:
		return nil
	case c.Instances.Availability != Survivor:
		return invalid(key, "%q is neither %s nor %s", c.Instances.Availability, Consistency, Survivor)
	case c.Etcd.Used():
		return invalid(key, "%s is for the etcd inside, and etcd.endpoints names an existing one", Survivor)
	case c.Gossip.Off:
		return invalid(key, "%s needs the gossip, to know whether the others are gone, and gossip is off", Survivor)
	}

	return nil
}

func (c *Config) checkDurations() error {
	const day = 24 * time.Hour

	for _, d := range []struct {
		key       string
		value     Duration
		low, high time.Duration
	}{
		{"monitor_timeout", c.MonitorTimeout, 2 * time.Minute, day},
		{"instances.survivor_after", c.Instances.SurvivorAfter, 10 * time.Second, day},
		{"jobs.timeout", c.Jobs.Timeout, time.Second, 7 * day},
		{"jobs.appear", c.Jobs.Appear, time.Second, time.Hour},
		{"jobs.runner_lease", c.Jobs.RunnerLease, 10 * time.Second, day},
		{"jobs.keep_for", c.Jobs.KeepFor, time.Hour, 100 * 365 * day},
		{"policies.settle", c.Policies.Settle, time.Second, day},
		{"policies.brake.within", c.Policies.Brake.Within, 10 * time.Second, day},
		{"policies.brake.release_after", c.Policies.Brake.ReleaseAfter, 0, 30 * day},
		{"jobs.plan_for", c.Jobs.PlanFor, time.Minute, 30 * day},
		{"repository.interval", c.Repository.Interval, 10 * time.Second, 7 * day},
		{"repository.limits.time", c.Repository.Limits.Time, time.Second, time.Hour},
		{"audit.keep_for", c.Audit.KeepFor, day, 100 * 365 * day},
		{"boot.lease", c.Boot.Lease, 2 * time.Minute, 7 * day},
	} {
		if v := time.Duration(d.value); v < d.low || v > d.high {
			return invalid(d.key, "%s is not within %s and %s", d.value, Duration(d.low), Duration(d.high))
		}
	}

	return nil
}
