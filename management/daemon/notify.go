// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/notify"
	"github.com/contiv/cluster/management/setting"
)

// maxSecretFile bounds the file of a secret or of CAs, in bytes.
const maxSecretFile = 1 << 20

// targets are the targets of notifications, as the configuration in force names them.
type targets struct {
	mu   sync.Mutex
	list []notify.Target
	errs map[string]error // why a target cannot be used, by name
}

// set replaces the targets. A file is read again, so that a reload takes over a new
// secret. A target that cannot be used keeps its deliveries until it can.
func (t *targets) set(c setting.Config) {
	var list []notify.Target

	errs := map[string]error{}

	for _, n := range c.Notifications {
		// A file may be missing now, and there at the next reload.
		sender, err := senderOf(n)
		if err != nil {
			errs[n.Name], sender = err, unusable{err}
		}
		target := notify.Target{Name: n.Name, Single: n.Single, Sender: sender, Events: n.Events}

		// The configuration was checked, so there is no error.
		target.Matches, _ = n.Matcher(c.Groups)
		list = append(list, target)
	}

	t.mu.Lock()
	defer t.mu.Unlock()

	t.list, t.errs = list, errs
}

func (t *targets) all() []notify.Target {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.list
}

// problem returns why some target cannot be used, or nil.
func (t *targets) problem() error {
	t.mu.Lock()
	defer t.mu.Unlock()

	for _, name := range slices.Sorted(maps.Keys(t.errs)) {
		return fmt.Errorf("the notification target %s cannot be used: %w", name, t.errs[name])
	}

	return nil
}

// unusable is the sender of a target with files that cannot be read.
type unusable struct{ err error }

func (u unusable) Describe() string { return "nowhere: " + u.err.Error() }

func (u unusable) Send(context.Context, notify.Event, time.Time) error { return u.err }

func senderOf(n setting.Notification) (notify.Sender, error) {
	config, err := receiverTLS(n.CAFile)
	if err != nil {
		return nil, err
	}

	if m := n.Mail; m != nil {
		password, err := secretIn(m.PasswordFile)
		if err != nil {
			return nil, err
		}

		return notify.NewMail(notify.MailOptions{
			Relay: m.Relay, From: m.From, To: m.To, PlainText: m.TLS == "off", User: m.User,
			Password: string(password), TLS: config,
		})
	}

	secret, err := secretIn(n.SecretFile)
	if err != nil {
		return nil, err
	}

	url := n.URL
	if n.URLFile != "" {
		content, err := secretIn(n.URLFile)
		if err != nil {
			return nil, err
		}
		url = string(content)
	}

	format := n.Format
	if format == "" {
		format = notify.FormatJSON
	}
	return notify.NewWebhook(notify.WebhookOptions{
		URL: url, Format: format, Secret: secret, TLS: config, AllowLocal: n.AllowLocal,
	})
}

// secretIn returns the content of a file without the newline at its end; nil for "".
func secretIn(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}

	info, err := os.Stat(path)
	if err == nil && info.Size() > maxSecretFile {
		err = fmt.Errorf("%s has %d bytes", path, info.Size())
	}

	if err != nil {
		return nil, inventory.Errorf(inventory.KindInvalid, "%w", err).Do("correct the path, or the file")
	}

	content, err := os.ReadFile(path)
	if err != nil {
		return nil, inventory.Errorf(inventory.KindInvalid, "%w", err).Do("make it readable for clusterm")
	}
	return bytes.TrimSpace(content), nil
}

// receiverTLS returns the configuration that trusts the CAs in the file; nil for "".
func receiverTLS(path string) (*tls.Config, error) {
	content, err := secretIn(path)
	if content == nil || err != nil {
		return nil, err
	}

	// The CAs of the host do not count for a receiver with CAs of its own.
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		return nil, inventory.Errorf(inventory.KindInvalid, "%s holds no certificate", path).
			Do("write the CA of the receiver as PEM into it")
	}

	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

// wireNotifier makes the notifier, and starts nothing.
func (d *Daemon) wireNotifier() {
	d.notifier = notify.New(notify.Options{
		Store: d.store, Targets: d.targets.all, Leads: d.member.Leads, Health: d.complaints,
		Manager: d.node.Name(), Audit: d.audit, Logger: d.opts.Logger.WithField("part", "notifications"),
	})
}

// complaints returns the checks of the health that failed, by part, without that of the
// notifications itself.
func (d *Daemon) complaints(ctx context.Context) map[string]string {
	checks := maps.Clone(d.health(ctx).Checks)

	// Gossip that is off is no problem, and a target that is down is no reason to notify
	// others.
	maps.DeleteFunc(checks, func(part, said string) bool {
		return said == "ok" || said == "off" || part == "notifications"
	})

	return checks
}
