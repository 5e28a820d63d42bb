// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/localfile"
)

// maxIssued bounds the client certificates of a CA that have not expired.
const maxIssued = 1000

// issuedDir is the folder of the certificates that a CA has issued, without their keys.
func issuedDir(dir string) string { return filepath.Join(dir, "issued") }

// IssueClient makes a client certificate with the CA in the folder, keeps a copy without
// its key, and returns certificate and key in PEM. The caller has checked the role and
// the scope.
func IssueClient(dir string, g Grant, life time.Duration) ([]byte, error) {
	if err := inventory.CheckObserver(g.Name); err != nil {
		return nil, err
	}

	ca, err := readCA(dir)
	if err != nil {
		return nil, err
	}

	now := time.Now()

	client, err := newClient(ca, g, now, life)
	if err != nil {
		return nil, err
	}

	// Whoever has the certificate can use it, so it must be known first.
	if err := keepIssued(dir, client.cert, now); err != nil {
		return nil, err
	}

	return client.encode(ca.cert)
}

// keepIssued stores a copy of an issued certificate, and removes those that have expired.
func keepIssued(dir string, c *x509.Certificate, now time.Time) error {
	folder := issuedDir(dir)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return inventory.Errorf(inventory.KindUnavailable, "the issued certificate cannot be recorded: %w", err)
	}

	issued, damaged, err := Issued(dir)
	if err != nil {
		return err
	}
	valid := len(damaged) // perhaps

	for _, old := range issued {
		if now.Before(old.NotAfter) {
			valid++
			continue
		}

		if err := os.Remove(issuedPath(dir, old.Certificate)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return inventory.Errorf(inventory.KindUnavailable, "an expired certificate cannot be removed: %w", err)
		}
	}

	if valid >= maxIssued {
		return inventory.Errorf(inventory.KindRefused, "%d client certificates are valid, which is the limit", valid).
			Do("use tokens instead, or wait until some have expired")
	}

	if err := localfile.Replace(issuedPath(dir, c), EncodeCertificate(c)); err != nil {
		return inventory.Errorf(inventory.KindUnavailable, "the issued certificate cannot be recorded: %w", err)
	}

	return nil
}

// IssuedCertificate is a client certificate that the CA has issued.
type IssuedCertificate struct {
	*x509.Certificate

	Grant Grant
}

// Issued returns the client certificates that the CA in the folder has issued, by serial
// number. Those that have expired may be missing. damaged has an error for each file that
// holds none; it names the file.
func Issued(dir string) (issued []IssuedCertificate, damaged []error, err error) {
	folder := issuedDir(dir)

	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}

	if err != nil {
		return nil, nil, inventory.Errorf(inventory.KindUnavailable, "the issued certificates cannot be read: %w", err)
	}

	for _, entry := range entries {
		if filepath.Ext(entry.Name()) != ".pem" {
			continue
		}

		path := filepath.Join(folder, entry.Name())

		made, err := readIssued(path)

		switch {
		case errors.Is(err, fs.ErrNotExist): // another process has removed it
		case err != nil:
			damaged = append(damaged, fmt.Errorf("%s is damaged: %w", path, err))
		default:
			issued = append(issued, made)
		}
	}

	return issued, damaged, nil
}

func readIssued(path string) (made IssuedCertificate, err error) {
	if made.Certificate, err = readCertificate(path); err != nil {
		return made, err
	}

	// One that has expired is still one that was issued.
	if made.Grant, err = GrantOf(made.Certificate, made.NotBefore); err != nil {
		return made, errors.New("it gives no role")
	}

	return made, nil
}

func issuedPath(dir string, c *x509.Certificate) string {
	return filepath.Join(issuedDir(dir), Serial(c)+".pem")
}

func readCertificate(path string) (*x509.Certificate, error) {
	content, err := readFile(path, false)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(content)
	if block == nil || block.Type != typeCertificate {
		return nil, errors.New("it holds no certificate")
	}
	return x509.ParseCertificate(block.Bytes)
}

// IssuedAt returns the time of the issue of a certificate by the manager.
func IssuedAt(c *x509.Certificate) time.Time { return c.NotBefore.Add(backdate) }

// Serial returns the serial number of a certificate in lower-case hexadecimal digits.
func Serial(c *x509.Certificate) string { return c.SerialNumber.Text(16) }
