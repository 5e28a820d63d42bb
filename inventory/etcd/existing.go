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

// DefaultPrefix is below which everything is kept, in a folder per generation
// of the format (Keys).
const DefaultPrefix = "/clusterm"

// Keys is the prefix of the keys below the prefix that an operator knows.
func Keys(prefix string) string { return prefix + "/v1" }

// Existing says where an etcd outside is and how to get in. The yaml tags are
// the keys of the configuration; the example file says what each means.
type Existing struct {
	Endpoints    []string `yaml:"endpoints"`
	CAFile       string   `yaml:"ca_file"`
	CertFile     string   `yaml:"cert_file"`
	KeyFile      string   `yaml:"key_file"`
	User         string   `yaml:"user"`
	PasswordFile string   `yaml:"password_file"`
	Prefix       string   `yaml:"prefix"`
}

// Used tells whether there is one: without endpoints the etcd inside is meant.
func (e Existing) Used() bool { return len(e.Endpoints) > 0 }

// maxPrefix bounds the prefix, in bytes: it is part of every key.
const maxPrefix = 200

var segments = regexp.MustCompile(`^(/[A-Za-z0-9._-]+)+$`)

// Check refuses what makes no sense. It looks at no file.
func (e Existing) Check() error {
	bad := func(key, format string, args ...any) error {
		return inventory.Errorf(inventory.KindInvalid, "etcd.%s: %w", key, fmt.Errorf(format, args...))
	}

	files := []struct{ key, path string }{
		{"ca_file", e.CAFile},
		{"cert_file", e.CertFile},
		{"key_file", e.KeyFile},
		{"password_file", e.PasswordFile},
	}
	if !e.Used() {
		for _, f := range append(files, struct{ key, path string }{"user", e.User}) {
			if f.path != "" {
				return bad(f.key, "it is for an existing etcd, and etcd.endpoints names none")
			}
		}

		if e.Prefix != DefaultPrefix {
			return bad("prefix", "it is for an existing etcd, and etcd.endpoints names none")
		}

		return nil
	}

	for _, f := range files {
		if f.path != "" && !strings.HasPrefix(f.path, "/") {
			return bad(f.key, "%q is not an absolute path", f.path)
		}
	}

	if !segments.MatchString(e.Prefix) || len(e.Prefix) > maxPrefix {
		return bad(
			"prefix",
			"%q is not a prefix; write one like %s: a slash, then letters, digits, dot, dash and underscore, at most %d in all",
			e.Prefix,
			DefaultPrefix,
			maxPrefix,
		)
	}

	scheme := ""
	for i, endpoint := range e.Endpoints {
		u, err := url.Parse(endpoint)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.Port() == "" ||
			u.User != nil || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
			return bad("endpoints", "%q is not an endpoint; write https://HOST:2379", endpoint)
		}

		if addr, err := netip.ParseAddr(u.Hostname()); u.Scheme == "http" && (err != nil || !addr.IsLoopback()) {
			return bad(
				"endpoints",
				"%q would send everything, secrets included, unprotected over the network; only a loopback address is taken with http, others need https",
				endpoint,
			)
		}

		if scheme != "" && u.Scheme != scheme {
			return bad("endpoints", "https and http are mixed")
		}

		scheme = u.Scheme

		if slices.Contains(e.Endpoints[:i], endpoint) {
			return bad("endpoints", "%q is there twice", endpoint)
		}
	}

	if scheme == "http" && (e.CAFile != "" || e.CertFile != "" || e.KeyFile != "") {
		return bad("endpoints", "ca_file, cert_file and key_file go with https")
	}

	if (e.CertFile == "") != (e.KeyFile == "") {
		return bad("cert_file", "cert_file and key_file go together")
	}

	if (e.User == "") != (e.PasswordFile == "") {
		return bad("user", "user and password_file go together")
	}

	return nil
}

// config reads the files. What is missing, unreadable or does not fit is an error.
func (e Existing) config() (clientv3.Config, error) {
	c := clientv3.Config{Endpoints: e.Endpoints}
	if e.User != "" {
		password, err := secret("password_file", e.PasswordFile)
		if err != nil {
			return c, err
		}

		c.Username, c.Password = e.User, strings.TrimRight(string(password), "\r\n")
		if c.Password == "" {
			return c, inventory.Errorf(inventory.KindInvalid, "etcd.password_file: %s is empty", e.PasswordFile).
				Do("write the password of %s into it", e.User)
		}
	}

	if !strings.HasPrefix(e.Endpoints[0], "https:") {
		return c, nil
	}

	c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	if e.CAFile != "" {
		pem, err := os.ReadFile(e.CAFile)
		if err != nil {
			return c, unreadable("ca_file", err)
		}

		c.TLS.RootCAs = x509.NewCertPool()
		if !c.TLS.RootCAs.AppendCertsFromPEM(pem) {
			return c, inventory.Errorf(inventory.KindInvalid, "etcd.ca_file: %s holds no certificate", e.CAFile).
				Do("name the file, in PEM form, with the certificate of the authority that signed those of the etcd servers")
		}
	}

	if e.CertFile != "" {
		if _, err := e.pair(); err != nil {
			return c, err
		}

		// Read again at every handshake: a renewed certificate needs no restart.
		c.TLS.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return e.pair() }
	}

	return c, nil
}

// pair reads the client's certificate and its key.
func (e Existing) pair() (*tls.Certificate, error) {
	cert, err := os.ReadFile(e.CertFile)
	if err != nil {
		return nil, unreadable("cert_file", err)
	}

	key, err := secret("key_file", e.KeyFile)
	if err != nil {
		return nil, err
	}

	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, inventory.Errorf(inventory.KindInvalid, "etcd.cert_file and etcd.key_file do not fit: %s", strings.TrimPrefix(err.Error(), "tls: ")).
			Do("name a certificate and its own private key, both in PEM form")
	}

	return &pair, nil
}

// secret reads a file that not everybody may read.
func secret(key, path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, unreadable(key, err)
	}

	info, err := os.Stat(path)
	if err != nil {
		return nil, unreadable(key, err)
	}

	if info.Mode().Perm()&0o007 != 0 {
		return nil, inventory.Errorf(inventory.KindInvalid, "etcd.%s: every account of this host may open %s", key, path).
			Do("chmod 600 %s", path)
	}

	return data, nil
}

func unreadable(key string, err error) error {
	return inventory.Errorf(inventory.KindInvalid, "etcd.%s cannot be read: %w", key, err).
		Do("name a file on this host that clusterm may read")
}

// DialExisting connects to an etcd outside, waits until it answers, and refuses
// a server that is too old. From then on the servers' versions are looked at
// every minute (Server).
func DialExisting(ctx context.Context, e Existing, log logrus.FieldLogger) (*Client, error) {
	config, err := e.config()
	if err != nil {
		return nil, err
	}

	c, err := connect(ctx, config, Keys(e.Prefix), func(ctx context.Context, c *Client) (err error) {
		if c.server, err = c.survey(ctx); err != nil {
			return err
		}

		return c.server.problem
	}, log)
	if err != nil {
		return nil, err
	}

	if c.server.warning != "" {
		log.Warn(c.server.warning)
	}

	within, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.stop = stop
	c.tasks.Go(func() { c.lookAfter(within, log) })

	return c, nil
}
