// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/notify"
	"github.com/contiv/cluster/management/selector"
)

// Notification is a target that is told what happens: a webhook, or mail.
type Notification struct {
	Name   string   `json:"name" yaml:"name"`
	Events []string `json:"events" yaml:"events"` // see notify.Kinds
	// Nodes is a selector for the events about a node; empty: every node.
	Nodes string `json:"nodes,omitempty" yaml:"nodes"`

	// Single: each event is a message of its own, also where there are many.
	Single bool `json:"single,omitempty" yaml:"single"`

	// Of a webhook. The URL of a chat is a secret, so it may be in a file.
	URL     string `json:"url,omitempty" yaml:"url"`
	URLFile string `json:"url_file,omitempty" yaml:"url_file"`
	Format  string `json:"format,omitempty" yaml:"format"` // empty: json
	// SecretFile has the secret that signs the requests.
	SecretFile string `json:"secret_file,omitempty" yaml:"secret_file"`
	// AllowLocal allows a receiver on this host or at a link-local address.
	AllowLocal bool `json:"allow_local,omitempty" yaml:"allow_local"`

	Mail *NotificationMail `json:"mail,omitempty" yaml:"mail"`

	// CAFile has the CAs of the receiver; empty: those of the host.
	CAFile string `json:"ca_file,omitempty" yaml:"ca_file"`
}

// NotificationMail are the relay and the recipients of mail.
type NotificationMail struct {
	Relay        string   `json:"relay" yaml:"relay"` // HOST:PORT
	From         string   `json:"from" yaml:"from"`
	To           []string `json:"to" yaml:"to"`
	TLS          string   `json:"tls,omitempty" yaml:"tls"` // empty: required; off: none
	User         string   `json:"user,omitempty" yaml:"user"`
	PasswordFile string   `json:"password_file,omitempty" yaml:"password_file"`
}

// maxNotifications bounds the number of targets.
const maxNotifications = 32

func (c *Config) checkNotifications() error {
	if len(c.Notifications) > maxNotifications {
		return invalid("notifications", "there are %d targets; %d fit", len(c.Notifications), maxNotifications)
	}

	seen := map[string]bool{}

	for i, n := range c.Notifications {
		if err := inventory.CheckEntryName(n.Name); err != nil {
			return invalid("notifications", "target %d: %w", i+1, err)
		}

		if seen[n.Name] {
			return invalid("notifications", "%s is configured twice", n.Name)
		}

		seen[n.Name] = true

		if err := n.check(c.Groups); err != nil {
			return invalid("notifications", "%s: %w", n.Name, err)
		}
	}

	return nil
}

func (n Notification) check(groups inventory.Groups) error {
	if len(n.Events) == 0 {
		return fmt.Errorf("events is empty; write some of %s", kinds())
	}

	for _, e := range n.Events {
		if !slices.Contains(notify.Kinds, e) {
			return fmt.Errorf("%q is not an event; write some of %s", e, kinds())
		}
	}

	if _, err := n.Matcher(groups); err != nil {
		return fmt.Errorf("nodes: %w", err)
	}

	for _, f := range []struct{ key, path string }{
		{"url_file", n.URLFile}, {"secret_file", n.SecretFile}, {"ca_file", n.CAFile},
	} {
		if f.path != "" && !filepath.IsAbs(f.path) {
			return fmt.Errorf("%s: %q is not an absolute path", f.key, f.path)
		}
	}

	// A target is one of the three.
	ways := 0
	for _, given := range []bool{n.URL != "", n.URLFile != "", n.Mail != nil} {
		if given {
			ways++
		}
	}

	switch {
	case ways != 1:
		return errors.New("write one of url, url_file and mail")
	case n.Mail != nil:
		return n.checkMail()
	case n.Format != "":
		if err := notify.CheckFormat(n.Format); err != nil {
			return fmt.Errorf("format: %w", err)
		}
	}

	// A URL in a file is checked when that is read.
	if n.URL != "" {
		o := notify.WebhookOptions{URL: n.URL, Format: notify.FormatJSON, AllowLocal: n.AllowLocal}
		if _, err := notify.NewWebhook(o); err != nil {
			return fmt.Errorf("url: %w", err)
		}
	}

	return nil
}

func (n Notification) checkMail() error {
	m := n.Mail

	switch {
	case n.Format != "" || n.SecretFile != "" || n.AllowLocal:
		return errors.New("format, secret_file and allow_local belong to a webhook, not to mail")
	case m.TLS != "" && m.TLS != "off":
		return fmt.Errorf("mail.tls is %q; write off, or leave it out", m.TLS)
	case (m.User == "") != (m.PasswordFile == ""):
		return errors.New("mail.user and mail.password_file belong together; set both or none")
	case m.PasswordFile != "" && !filepath.IsAbs(m.PasswordFile):
		return fmt.Errorf("mail.password_file: %q is not an absolute path", m.PasswordFile)
	}

	// The password is read when the target is made.
	if _, err := m.sender("", nil); err != nil {
		return fmt.Errorf("mail: %w", err)
	}

	return nil
}

func (m *NotificationMail) sender(password string, config *tls.Config) (*notify.Mail, error) {
	return notify.NewMail(notify.MailOptions{
		Relay: m.Relay, From: m.From, To: m.To, PlainText: m.TLS == "off", User: m.User, Password: password,
		TLS: config,
	})
}

// Matcher returns the condition on nodes; nil: every node.
func (n Notification) Matcher(groups inventory.Groups) (func(*inventory.Node) bool, error) {
	if n.Nodes == "" {
		return nil, nil //nolint:nilnil // no condition
	}

	checkGroup := func(name string) error {
		_, err := groups.Get(name)
		return err
	}

	s, err := selector.Parse(n.Nodes, checkGroup)
	if err != nil {
		return nil, err
	}
	if field := s.Judged(); field != "" {
		return nil, fmt.Errorf("%s is not in the record of a node; leave it out", field)
	}

	return s.Matches, nil
}

func kinds() string { return strings.Join(notify.Kinds, ", ") }

// hideURLs returns the targets with the host alone of each URL, because the path of a
// chat's URL is a secret.
func hideURLs(list []Notification) []Notification {
	out := slices.Clone(list)
	for i := range out {
		if u, err := url.Parse(out[i].URL); err == nil && out[i].URL != "" {
			out[i].URL = u.Scheme + "://" + u.Host + "/" + configuration.Hidden
		}
	}

	return out
}
