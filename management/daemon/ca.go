// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"crypto/x509"
	"path/filepath"
	"time"

	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/pki"
	"github.com/contiv/cluster/management/setting"
)

// CA is the CA of a configuration, beside its daemon or without it.
type CA struct {
	dir  string
	cert *x509.Certificate
}

// OpenCA reads the CA of the configuration file, or returns KindNotFound if no
// start has made it yet.
func OpenCA(path string) (CA, error) {
	file, err := setting.Load(path, adapters{})
	if err != nil {
		return CA{}, err
	}

	dir := filepath.Join(file.DataDir, pkiDir)
	cert, err := pki.ReadCA(dir)

	return CA{dir, cert}, err
}

// Fingerprint returns the fingerprint for clients to pin.
func (c CA) Fingerprint() string { return pki.Fingerprint(c.cert) }

// PEM returns the certificate of the CA.
func (c CA) PEM() []byte { return pki.EncodeCertificate(c.cert) }

// Issue makes a client certificate, and returns it with its key in PEM.
func (c CA) Issue(name, role string, life time.Duration) ([]byte, error) {
	if _, err := access.ParseRole(role); err != nil {
		return nil, err
	}

	return pki.IssueClient(c.dir, name, role, life)
}
