// SPDX-License-Identifier: Apache-2.0

// Package mtls gives callers their identity by the client certificates that the CA of the manager has issued.
package mtls

import (
	"crypto/x509"
	"fmt"
	"time"

	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/pki"
)

// CA is the CA of a manager, beside its daemon or without it.
type CA struct {
	dir  string
	cert *x509.Certificate
}

// OpenCA reads the CA in the folder, or returns KindNotFound if no start has made it yet.
func OpenCA(dir string) (CA, error) {
	cert, err := pki.ReadCA(dir)
	return CA{dir, cert}, err
}

// Fingerprint returns the fingerprint for clients to pin.
func (c CA) Fingerprint() string { return pki.Fingerprint(c.cert) }

// PEM returns the certificate of the CA.
func (c CA) PEM() []byte { return pki.EncodeCertificate(c.cert) }

// Issue makes a client certificate, and returns it with its key in PEM. The groups of a
// scope need not exist yet.
func (c CA) Issue(g pki.Grant, life time.Duration) ([]byte, error) {
	parsed, err := access.ParseReusable(g.Role)
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

// Issued returns the client certificates that the CA in the folder has issued, and why
// others cannot be read.
func Issued(dir string) access.IssuedFunc {
	return func() (all []access.Certificate, damaged []error, err error) {
		issued, damaged, err := pki.Issued(dir)
		if err != nil {
			return nil, nil, err
		}
		for _, c := range issued {
			all = append(all, certificateOf(c.Certificate, c.Grant))
		}

		return all, damaged, nil
	}
}

// maxNamed is the number of damaged files that Warnings names.
const maxNamed = 10

// Warnings reports the issued certificates that cannot be read: revoked by name,
// they stay valid.
func Warnings(issued access.IssuedFunc) (warnings []string) {
	_, damaged, err := issued()
	if err != nil {
		damaged = append(damaged, err)
	}

	for _, err := range damaged[:min(len(damaged), maxNamed)] {
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

// Caller returns the function that returns the identity behind a client certificate.
func Caller(known *access.Certificates) func(*x509.Certificate) (access.Identity, error) {
	return func(c *x509.Certificate) (access.Identity, error) {
		grant, err := pki.GrantOf(c, time.Now())
		if err != nil {
			return access.Identity{}, err
		}
		return known.Identity(certificateOf(c, grant), c.Issuer.CommonName)
	}
}
