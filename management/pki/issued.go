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

	issued, err := Issued(dir)
	if err != nil {
		return err
	}

	valid := 0

	for _, old := range issued {
		if now.Before(old.NotAfter) {
			valid++
			continue
		}

		if err := os.Remove(filepath.Join(folder, Serial(old)+".pem")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return inventory.Errorf(inventory.KindUnavailable, "an expired certificate cannot be removed: %w", err)
		}
	}

	if valid >= maxIssued {
		return inventory.Errorf(inventory.KindRefused, "%d client certificates are valid, which is the limit", valid).
			Do("use tokens instead, or wait until some have expired")
	}

	if err := localfile.Replace(filepath.Join(folder, Serial(c)+".pem"), EncodeCertificate(c)); err != nil {
		return inventory.Errorf(inventory.KindUnavailable, "the issued certificate cannot be recorded: %w", err)
	}

	return nil
}

// Issued returns the client certificates that the CA in the folder has issued, by serial
// number. Those that have expired may be missing.
func Issued(dir string) ([]*x509.Certificate, error) {
	folder := issuedDir(dir)

	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}

	if err != nil {
		return nil, inventory.Errorf(inventory.KindUnavailable, "the issued certificates cannot be read: %w", err)
	}

	var issued []*x509.Certificate

	for _, entry := range entries {
		if filepath.Ext(entry.Name()) != ".pem" {
			continue
		}

		cert, err := readCertificate(filepath.Join(folder, entry.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // another process has removed it
		}

		if err != nil {
			return nil, inventory.Errorf(inventory.KindUnavailable, "the issued certificate %s is damaged: %w",
				filepath.Join(folder, entry.Name()), err).Do("restore it from a backup, or remove it")
		}

		issued = append(issued, cert)
	}

	return issued, nil
}

func readCertificate(path string) (*x509.Certificate, error) {
	content, err := readFile(path, false)
	if err != nil {
		return nil, err
	}

	block, _ := pem.Decode(content)
	if block == nil || block.Type != typeCertificate {
		return nil, fmt.Errorf("%s holds no certificate", path)
	}

	return x509.ParseCertificate(block.Bytes)
}

// IssuedAt returns the time of the issue of a certificate by the manager.
func IssuedAt(c *x509.Certificate) time.Time { return c.NotBefore.Add(backdate) }

// Serial returns the serial number of a certificate in lower-case hexadecimal digits.
func Serial(c *x509.Certificate) string { return c.SerialNumber.Text(16) }
