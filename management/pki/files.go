// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/localfile"
)

func caPath(dir string) string     { return filepath.Join(dir, "ca.pem") }
func serverPath(dir string) string { return filepath.Join(dir, "server.pem") }

// maxFile is the size of the largest file with certificates, in bytes.
const maxFile = 1 << 20

// refreshOwn makes or renews the own CA and the own server certificate.
func (o Options) refreshOwn(next *held, now time.Time) (changes []string, err error) {
	if next.ca == nil {
		if next.ca, err = o.openCA(now); err != nil {
			return nil, err
		}

		// An unusable server certificate is replaced below: no client pins it.
		next.own, _ = readPair(serverPath(o.Dir))
	}

	if due(next.ca.cert, now) {
		// With the same key, so that clients that pinned it accept the new certificate.
		ca, err := newCA(next.ca.key, now, o.CALife)
		if err == nil {
			err = store(caPath(o.Dir), ca, nil)
		}
		if err != nil {
			return nil, cannotRenew("the CA", next.ca.cert, err)
		}

		next.ca = ca
		changes = append(changes, "the CA was renewed until "+ca.cert.NotAfter.UTC().Format(time.RFC3339))
	}

	names := o.names()
	if len(changes) == 0 && next.own.serves(next.ca, names, now) {
		return changes, nil
	}
	server, err := newServer(next.ca, names, now, o.LeafLife)
	if err == nil {
		err = store(serverPath(o.Dir), server, next.ca.cert)
	}

	if err != nil {
		if next.own == nil {
			return changes, fmt.Errorf("the server certificate cannot be made: %w", err)
		}
		return changes, cannotRenew("the server certificate", next.own.cert, err)
	}

	next.own = server

	return append(changes, fmt.Sprintf("the server certificate was made, until %s, for %s",
		server.cert.NotAfter.UTC().Format(time.RFC3339), strings.Join(names, ", "))), nil
}

func cannotRenew(part string, c *x509.Certificate, err error) error {
	return fmt.Errorf("%s cannot be renewed, and expires at %s: %w", part, c.NotAfter.UTC().Format(time.RFC3339), err)
}

// openCA reads the CA, or makes it in a folder without certificates.
func (o Options) openCA(now time.Time) (*pair, error) {
	if err := prepareDir(o.Dir); err != nil {
		return nil, err
	}

	ca, err := readPair(caPath(o.Dir))
	if err == nil && !ca.cert.IsCA {
		err = errors.New("it holds no CA")
	}
	if err == nil {
		return ca, nil
	}

	if !errors.Is(err, fs.ErrNotExist) {
		if _, ok := errors.AsType[*inventory.Error](err); ok {
			return nil, err
		}

		return nil, inventory.Errorf(inventory.KindUnavailable, "%s is damaged: %w", caPath(o.Dir), err).
			Do("restore it from a backup; without one, remove %s and log in again on every client: the next start "+
				"makes a new CA", o.Dir)
	}

	// The CA is stored before its certificates, so no crash leaves them without it.
	if _, err := os.Lstat(serverPath(o.Dir)); err == nil {
		return nil, inventory.Errorf(inventory.KindUnavailable, "%s is missing, beside the certificate that it signed",
			caPath(o.Dir)).Do("restore it from a backup; without one, remove %s and log in again on every client: "+
			"the next start makes a new CA", o.Dir)
	}

	if ca, err = newCA(nil, now, o.CALife); err == nil {
		err = store(caPath(o.Dir), ca, nil)
	}

	if err != nil {
		return nil, inventory.Errorf(inventory.KindUnavailable, "the CA cannot be made: %w", err)
	}

	return ca, nil
}

// prepareDir makes the folder, or refuses one that others may open. It removes the
// temporary files of a crash.
func prepareDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return inventory.Errorf(inventory.KindUnavailable, "the folder of the CA cannot be made: %w", err)
	}

	info, err := os.Stat(dir)
	if err != nil {
		return inventory.Errorf(inventory.KindUnavailable, "the folder of the CA: %w", err)
	}

	if info.Mode().Perm()&0o077 != 0 {
		return inventory.Errorf(inventory.KindRefused, "others than the owner may open %s, which holds private keys",
			dir).Do("chmod 700 %s", dir)
	}

	left, err := filepath.Glob(filepath.Join(dir, ".new-*"))
	for _, path := range left {
		err = errors.Join(err, os.Remove(path))
	}

	return err
}

func store(path string, p *pair, ca *x509.Certificate) error {
	content, err := p.encode(ca)
	if err != nil {
		return err
	}
	return localfile.Replace(path, content)
}

// serves reports whether the server certificate can be used for longer: with this
// CA, for all the names.
func (p *pair) serves(ca *pair, names []string, now time.Time) bool {
	if p == nil || due(p.cert, now) || p.cert.CheckSignatureFrom(ca.cert) != nil {
		return false
	}

	// A name that is gone does no harm until the next renewal: an interface that
	// comes and goes must not cause two certificates.
	have := slices.Clone(p.cert.DNSNames)
	for _, ip := range p.cert.IPAddresses {
		have = append(have, ip.String())
	}

	return !slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(have, name) })
}

// readPair reads a certificate and its key from a file of the owner only.
func readPair(path string) (*pair, error) {
	content, err := readPrivate(path)
	if err != nil {
		return nil, err
	}
	return decode(content)
}

// readPrivate reads a file that only its owner may read.
func readPrivate(path string) ([]byte, error) { return readFile(path, true) }

func readFile(path string, private bool) ([]byte, error) {
	// A pipe must not hang.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	info, err := f.Stat()

	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a file", path)
	case private && info.Mode().Perm()&0o077 != 0:
		return nil, inventory.Errorf(inventory.KindRefused, "others than the owner may read the private key in %s",
			path).Do("chmod 600 %s; if others had access to it, replace the key", path)
	case info.Size() > maxFile:
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}

	return io.ReadAll(f)
}

// Site names a site's own files, all in PEM. An empty field is the manager's own.
type Site struct {
	CertFile     string // the server certificate and its chain
	KeyFile      string // its private key
	ClientCAFile string // the CAs of client certificates
}

// siteFiles are the contents of a site's files.
type siteFiles struct {
	cert, key, ca []byte

	server  *tls.Certificate // nil: the manager's own
	clients *x509.CertPool   // nil: the manager's own
}

func (f siteFiles) equal(other siteFiles) bool {
	return bytes.Equal(f.cert, other.cert) && bytes.Equal(f.key, other.key) && bytes.Equal(f.ca, other.ca)
}

// read reads the files. Errors are of KindInvalid and name the key of the
// configuration.
func (s Site) read() (f siteFiles, err error) {
	if s.CertFile != "" {
		if f.cert, err = readFile(s.CertFile, false); err != nil {
			return f, errSite("cert_file", err)
		}

		if f.key, err = readPrivate(s.KeyFile); err != nil {
			return f, errSite("key_file", err)
		}

		server, err := tls.X509KeyPair(f.cert, f.key)
		if err != nil {
			return f, errSite("cert_file", fmt.Errorf("%s and %s do not fit: %w", s.CertFile, s.KeyFile, err))
		}
		f.server = &server
	}

	if s.ClientCAFile != "" {
		if f.ca, err = readFile(s.ClientCAFile, false); err != nil {
			return f, errSite("client_ca_file", err)
		}

		f.clients = x509.NewCertPool()
		if !f.clients.AppendCertsFromPEM(f.ca) {
			return f, errSite("client_ca_file", fmt.Errorf("%s holds no certificate", s.ClientCAFile))
		}
	}

	return f, nil
}

func errSite(key string, err error) error {
	out := inventory.Errorf(inventory.KindInvalid, "tls.%s: %w", key, err)
	if inner, ok := errors.AsType[*inventory.Error](err); ok {
		out.Remedy = inner.Remedy
	}
	return out
}
