// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"crypto/x509"
	"fmt"
	"path/filepath"
	"time"

	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/pki"
	"github.com/contiv/cluster/management/setting"
)

// Grant is what a client certificate gives to its holder.
type Grant = pki.Grant

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

// Issue makes a client certificate, and returns it with its key in PEM. The groups of a
// scope need not exist yet.
func (c CA) Issue(g Grant, life time.Duration) ([]byte, error) {
	parsed, err := access.ParseRole(g.Role)
	if err != nil {
		return nil, err
	}

	scope := access.Scope{Groups: g.Groups, Selector: g.Selector}

	if err := scope.CheckRole(parsed); err != nil {
		return nil, err
	}

	if err := scope.CheckForm(); err != nil {
		return nil, err
	}

	return pki.IssueClient(c.dir, g, life)
}

// issuedCertificates returns the client certificates that the CA has issued, and why
// others cannot be read.
func (d *Daemon) issuedCertificates() (all []access.Certificate, damaged []error, err error) {
	issued, damaged, err := pki.Issued(filepath.Join(d.file.DataDir, pkiDir))
	if err != nil {
		return nil, nil, err
	}

	for _, c := range issued {
		all = append(all, certificateOf(c.Certificate, c.Grant))
	}

	return all, damaged, nil
}

// issuedWarnings reports the issued certificates that cannot be read: revoked by name,
// they stay valid.
func (d *Daemon) issuedWarnings() (warnings []string) {
	_, damaged, err := d.issuedCertificates()
	if err != nil {
		damaged = append(damaged, err)
	}

	for _, err := range damaged[:min(len(damaged), maxUnreadable)] {
		warnings = append(warnings, fmt.Sprintf(
			"the list of client certificates is not complete: %v; restore the file from a backup, or remove it", err))
	}

	return warnings
}

func certificateOf(c *x509.Certificate, g pki.Grant) access.Certificate {
	return access.Certificate{
		Serial: pki.Serial(c), Name: g.Name, Role: access.Role(g.Role),
		Scope:  access.Scope{Groups: g.Groups, Selector: g.Selector},
		Issued: pki.IssuedAt(c), Expires: c.NotAfter,
	}
}

// certifiedCaller returns the identity behind a client certificate.
func (d *Daemon) certifiedCaller(c *x509.Certificate) (access.Identity, error) {
	grant, err := pki.GrantOf(c, time.Now())
	if err != nil {
		return access.Identity{}, err
	}

	return d.clients.Identity(certificateOf(c, grant), c.Issuer.CommonName)
}
