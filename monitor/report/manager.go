// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/yamlfile"
	"github.com/contiv/cluster/management/client"
)

// Manager is a manager to report to, with the trust and the credential of the
// connection to it. The paths are absolute, and the files are for https only.
type Manager struct {
	// URL lists those of its instances, separated by commas. One of them gets a report.
	URL string `yaml:"manager"`

	// Fingerprint or the file with the CA pins the CA of the manager, or those of its
	// instances, separated by commas. With neither, the CAs that this host trusts count.
	Fingerprint string `yaml:"fingerprint"`
	CAFile      string `yaml:"ca_file"`

	// The credential: a token, or a client certificate with its key, in one file or
	// in two.
	TokenFile string `yaml:"token_file"`
	CertFile  string `yaml:"cert_file"`
	KeyFile   string `yaml:"key_file"`
}

// UnmarshalYAML also accepts a URL alone, and sequences of URLs and of fingerprints.
func (m *Manager) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		return n.Decode(&m.URL)
	}

	if err := yamlfile.CheckKeys(n, reflect.TypeFor[Manager](), "report_to"); err != nil {
		return err
	}

	for i := 1; i < len(n.Content); i += 2 {
		key, value := n.Content[i-1].Value, n.Content[i]
		if value.Kind != yaml.SequenceNode || key != "manager" && key != "fingerprint" {
			continue
		}

		var all []string
		if err := value.Decode(&all); err != nil {
			return err
		}
		value.SetString(strings.Join(all, ","))
	}

	// A type without methods, which does not call this one.
	type plain Manager

	return n.Decode((*plain)(m))
}

// check refuses URLs that a client cannot use, and those that would carry reports
// over the network in the clear. It reads no file.
func (m Manager) check() error {
	urls := client.URLs(m.URL)
	if len(urls) == 0 {
		urls = []string{""} // which is refused
	}

	for _, at := range urls {
		if err := m.checkURL(at); err != nil {
			return err
		}
	}

	return nil
}

func (m Manager) checkURL(at string) error {
	u, err := url.Parse(at)
	if err != nil || u.Scheme != "unix" && u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("%q is none of https://HOST:PORT, unix:///PATH and http://ADDRESS:PORT", at)
	}

	if u.Scheme == "http" && !isLoopback(u.Hostname()) {
		return fmt.Errorf(
			"%s is not on this host, and plain HTTP is not protected; use the https:// URL of the manager", at,
		)
	}

	if _, err := client.New(client.Options{URL: at}); err != nil {
		return err
	}

	if u.Scheme == "https" {
		return m.checkSecure()
	}

	if m != (Manager{URL: m.URL}) {
		return fmt.Errorf("%s takes neither CA nor credential: its role is that of the listener; leave the other keys "+
			"out, or use an https:// URL", at)
	}

	return nil
}

// checkSecure checks the keys of an https URL.
func (m Manager) checkSecure() error {
	for key, path := range map[string]string{
		"ca_file": m.CAFile, "token_file": m.TokenFile, "cert_file": m.CertFile, "key_file": m.KeyFile,
	} {
		if path != "" && !filepath.IsAbs(path) {
			return fmt.Errorf("%s: %q is not an absolute path", key, path)
		}
	}

	switch {
	case m.Fingerprint != "" && m.CAFile != "":
		return fmt.Errorf("%s has both fingerprint and ca_file; leave one of them out", m.URL)
	case m.TokenFile != "" && m.CertFile != "":
		return fmt.Errorf("%s has both token_file and cert_file; leave one of them out", m.URL)
	case m.KeyFile != "" && m.CertFile == "":
		return fmt.Errorf("%s has a key_file without a cert_file", m.URL)
	case m.TokenFile == "" && m.CertFile == "":
		return fmt.Errorf("%s needs a credential: a token_file, or a cert_file of `clusterm ca issue --role monitor`",
			m.URL)
	}

	if m.Fingerprint != "" {
		_, err := client.ParseFingerprint(m.Fingerprint)
		return err
	}

	return nil
}

// connect reads the files, and returns a client of the manager. It opens no
// connection.
func (m Manager) connect() (*client.Client, error) {
	o := client.Options{
		URL: m.URL, UserAgent: "clusterm-monitor",
		Trust: client.Trust{Fingerprint: m.Fingerprint, CertFile: m.CertFile, KeyFile: m.KeyFile},
	}

	if m.CAFile != "" {
		ca, err := os.ReadFile(m.CAFile)
		if err != nil {
			return nil, inventory.Errorf(inventory.KindInvalid, "report_to: %s: the CA cannot be read: %w", m.URL, err)
		}
		o.Trust.CA = ca
	}

	if m.TokenFile != "" {
		token, err := client.ReadToken(m.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("report_to: %s: %w", m.URL, err)
		}
		o.Token = token
	}

	c, err := client.New(o)
	if err != nil {
		return nil, fmt.Errorf("report_to: %s: %w", m.URL, err)
	}
	return c, nil
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
