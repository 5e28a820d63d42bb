// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/notify"
)

// maxSecretFile bounds the file of a secret or of CAs, in bytes.
const maxSecretFile = 1 << 20

// Targets returns the targets of notifications. Their files are read again, so that a reload takes over a new
// secret. A target whose files cannot be used is Unusable until they can.
func (c *Config) Targets() []notify.Target {
	list := make([]notify.Target, len(c.Notifications))

	for i, n := range c.Notifications {
		// A file may be missing now, and there at the next reload.
		sender, err := n.sender()
		if err != nil {
			sender = notify.Unusable(err)
		}
		list[i] = notify.Target{Name: n.Name, Events: n.Events, Single: n.Single, Sender: sender}
		// The configuration was checked, so there is no error.
		list[i].Matches, _ = n.Matcher(c.Groups)
	}

	return list
}

// sender returns the sender of a target. It reads the files of the target.
func (n Notification) sender() (notify.Sender, error) {
	config, err := receiverTLS(n.CAFile)
	if err != nil {
		return nil, err
	}

	if m := n.Mail; m != nil {
		password, err := secretIn(m.PasswordFile)
		if err != nil {
			return nil, err
		}
		return m.sender(string(password), config)
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

	return notify.NewWebhook(notify.WebhookOptions{
		URL: url, Format: cmp.Or(n.Format, notify.FormatJSON), Secret: secret, TLS: config, AllowLocal: n.AllowLocal,
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
