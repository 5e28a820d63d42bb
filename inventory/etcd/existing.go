// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
)

// DefaultPrefix is the default prefix of an existing etcd. The keys are below
// Keys(DefaultPrefix).
const DefaultPrefix = "/clusterm"

// Keys returns the prefix of all keys below the configured prefix. It contains the
// generation of the data format.
func Keys(prefix string) string { return prefix + "/v1" }

// Existing is the configuration of an existing etcd. The yaml tags are the keys
// below "etcd" in the configuration file, which documents them.
type Existing struct {
	Endpoints    []string `yaml:"endpoints"`
	CAFile       string   `yaml:"ca_file"`
	CertFile     string   `yaml:"cert_file"`
	KeyFile      string   `yaml:"key_file"`
	User         string   `yaml:"user"`
	PasswordFile string   `yaml:"password_file"`
	Prefix       string   `yaml:"prefix"`
}

// Used reports whether an existing etcd is configured. Otherwise the embedded one
// is used.
func (e Existing) Used() bool { return len(e.Endpoints) > 0 }

// maxPrefix bounds the prefix in bytes, because every key contains it.
const maxPrefix = 200

var segments = regexp.MustCompile(`^(/[A-Za-z0-9._-]+)+$`)

// Check validates the values and their combination. It reads no files. Errors are
// of KindInvalid and begin with the key of the configuration.
func (e Existing) Check() error {
	if !e.Used() {
		return e.checkUnused()
	}

	for _, f := range e.files() {
		if f.value != "" && !strings.HasPrefix(f.value, "/") {
			return invalid(f.key, "%q is not an absolute path", f.value)
		}
	}

	if !segments.MatchString(e.Prefix) || len(e.Prefix) > maxPrefix {
		return invalid("prefix", "%q is not a prefix; write one like %s: a slash, then letters, digits, "+
			"dot, dash and underscore, at most %d in all", e.Prefix, DefaultPrefix, maxPrefix)
	}

	scheme, err := e.checkEndpoints()

	switch {
	case err != nil:
		return err
	case scheme == "http" && (e.CAFile != "" || e.CertFile != "" || e.KeyFile != ""):
		return invalid("endpoints", "ca_file, cert_file and key_file require https")
	case (e.CertFile == "") != (e.KeyFile == ""):
		return invalid("cert_file", "cert_file and key_file go together")
	case (e.User == "") != (e.PasswordFile == ""):
		return invalid("user", "user and password_file go together")
	}

	return nil
}

// checkUnused refuses settings that have no effect.
func (e Existing) checkUnused() error {
	const reason = "it is for an existing etcd, and etcd.endpoints is empty"

	for _, s := range append(e.files(), setting{"user", e.User}) {
		if s.value != "" {
			return invalid(s.key, reason)
		}
	}

	if e.Prefix != DefaultPrefix {
		return invalid("prefix", reason)
	}

	return nil
}

// checkEndpoints validates the endpoints and returns their common scheme.
func (e Existing) checkEndpoints() (scheme string, err error) {
	for i, endpoint := range e.Endpoints {
		u, err := url.Parse(endpoint)
		if err != nil || !isEndpoint(u) {
			return "", invalid("endpoints", "%q is not an endpoint; write https://HOST:2379", endpoint)
		}

		// Even localhost may resolve to another host.
		addr, err := netip.ParseAddr(u.Hostname())
		loopback := err == nil && addr.IsLoopback()

		if u.Scheme == "http" && !loopback {
			return "", invalid("endpoints", "%q would send everything, secrets included, unprotected over the "+
				"network; http is accepted for loopback addresses only, use https", endpoint)
		}

		if scheme != "" && u.Scheme != scheme {
			return "", invalid("endpoints", "https and http are mixed")
		}

		scheme = u.Scheme

		if slices.Contains(e.Endpoints[:i], endpoint) {
			return "", invalid("endpoints", "%q is listed twice", endpoint)
		}
	}

	return scheme, nil
}

// isEndpoint reports whether u consists of scheme, host and port only.
func isEndpoint(u *url.URL) bool {
	bare := u.User == nil && (u.Path == "" || u.Path == "/") && u.RawQuery == "" && u.Fragment == ""
	return (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != "" && u.Port() != "" && bare
}

// setting is a key below "etcd" in the configuration, with its value.
type setting struct{ key, value string }

// files returns the settings that are paths of files.
func (e Existing) files() []setting {
	return []setting{
		{"ca_file", e.CAFile},
		{"cert_file", e.CertFile},
		{"key_file", e.KeyFile},
		{"password_file", e.PasswordFile},
	}
}

func invalid(key, format string, args ...any) error {
	return inventory.Errorf(inventory.KindInvalid, "etcd.%s: %w", key, fmt.Errorf(format, args...))
}

// config returns the configuration of the etcd client. It reads the files; a file
// that is missing, unreadable or inconsistent is an error of KindInvalid.
func (e Existing) config() (clientv3.Config, error) {
	c := clientv3.Config{Endpoints: e.Endpoints}

	if e.User != "" {
		password, err := readSecret("password_file", e.PasswordFile)
		if err != nil {
			return c, err
		}
		c.Username, c.Password = e.User, strings.TrimRight(string(password), "\r\n")
		if c.Password == "" {
			return c, inventory.Errorf(inventory.KindInvalid, "etcd.password_file: %s is empty", e.PasswordFile).
				Do("write the password of %s into it", e.User)
		}
	}

	var err error
	if strings.HasPrefix(e.Endpoints[0], "https:") {
		c.TLS, err = e.tlsConfig()
	}

	return c, err
}

func (e Existing) tlsConfig() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}

	if e.CAFile != "" {
		pem, err := os.ReadFile(e.CAFile)
		if err != nil {
			return nil, unreadable("ca_file", err)
		}

		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, inventory.Errorf(inventory.KindInvalid, "etcd.ca_file: %s contains no certificate", e.CAFile).
				Do("name the PEM file with the certificate of the authority that signed those of the etcd servers")
		}
	}

	if e.CertFile != "" {
		if _, err := e.keyPair(); err != nil {
			return nil, err
		}

		// Reading the files at every handshake picks up a renewed certificate without a
		// restart.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return e.keyPair() }
	}

	return c, nil
}

// keyPair reads the client certificate and its key.
func (e Existing) keyPair() (*tls.Certificate, error) {
	cert, err := os.ReadFile(e.CertFile)
	if err != nil {
		return nil, unreadable("cert_file", err)
	}

	key, err := readSecret("key_file", e.KeyFile)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, inventory.Errorf(inventory.KindInvalid, "etcd.cert_file and etcd.key_file do not match: %w", err).
			Do("name a certificate and its own private key, both in PEM form")
	}

	return &pair, nil
}

// readSecret reads a file and refuses one that any account may read.
func readSecret(key, path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, unreadable(key, err)
	}

	// Read access of a group is left to the operator.
	info, err := os.Stat(path)
	if err != nil {
		return nil, unreadable(key, err)
	}

	if info.Mode().Perm()&0o007 != 0 {
		return nil, inventory.Errorf(inventory.KindInvalid,
			"etcd.%s: every account of this host may open %s", key, path).
			Do("chmod 600 %s", path)
	}

	return data, nil
}

func unreadable(key string, err error) error {
	return inventory.Errorf(inventory.KindInvalid, "etcd.%s cannot be read: %w", key, err).
		Do("name a file on this host that clusterm may read")
}

// DialExisting connects to an existing etcd, waits up to a minute until it responds,
// and refuses a server that is too old. Until Close it checks the versions of the
// servers every minute (Server) and logs a change.
func DialExisting(ctx context.Context, e Existing, log logrus.FieldLogger) (*Client, error) {
	return e.dial(ctx, false, log)
}

// DialToRestore is DialExisting, also to data that this build cannot read, in order to replace them.
func DialToRestore(ctx context.Context, e Existing, log logrus.FieldLogger) (*Client, error) {
	return e.dial(ctx, true, log)
}

func (e Existing) dial(ctx context.Context, anyData bool, log logrus.FieldLogger) (*Client, error) {
	config, err := e.config()
	if err != nil {
		return nil, err
	}

	accept := func(ctx context.Context, c *Client) (err error) {
		c.any = anyData

		if c.server, err = c.fetchVersion(ctx); err != nil {
			return err
		}
		return c.server.problem
	}

	c, err := connect(ctx, config, Keys(e.Prefix), accept, log)
	if err != nil {
		return nil, err
	}
	if c.server.warning != "" {
		log.Warn(c.server.warning)
	}

	watch, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.stop = stop
	c.tasks.Go(func() { c.watchVersion(watch, log) })

	return c, nil
}
