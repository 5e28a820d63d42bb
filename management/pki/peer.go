// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/localfile"
)

// peerLife is the lifetime of the certificate of an instance. Every instance renews its own.
const peerLife = 365 * 24 * time.Hour

// Peers is a folder with the certificates by which the instances of a manager know each other. Their CA signs nothing
// else: a client of the API is no peer, and the other way round. Every instance has the key of the CA, so that each can
// admit the next one.
type Peers struct {
	Dir string
	Now func() time.Time // nil: time.Now
}

// Files returns the certificate of the CA, and the file with the certificate and the key of this instance.
func (p Peers) Files() (ca, own string) {
	return filepath.Join(p.Dir, "ca.crt"), filepath.Join(p.Dir, "peer.pem")
}

func (p Peers) now() time.Time {
	if p.Now == nil {
		return time.Now()
	}
	return p.Now()
}

// PeerName is what the certificate of an instance says: its id, and the address at which the others reach it.
type PeerName struct {
	ID   string
	Addr string // an IP address
}

func (n PeerName) template() (*x509.Certificate, error) {
	ip := net.ParseIP(n.Addr)
	if ip == nil || ip.IsUnspecified() {
		return nil, inventory.Errorf(inventory.KindInvalid, "%q is no address of a host", n.Addr).
			Do("give an IP address of the host")
	}

	// The loopback addresses are for the instance's own client.
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: n.ID}, DNSNames: []string{n.ID, "localhost"}, IPAddresses: []net.IP{ip},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, nil
}

// Refresh makes the CA and the certificate of this instance where they are missing, and renews what is due. It reports
// whether anything was written.
func (p Peers) Refresh(n PeerName) (changed bool, err error) {
	t, err := n.template()
	if err != nil {
		return false, err
	}

	ca, changed, err := p.refreshCA()
	if err != nil {
		return false, err
	}

	_, path := p.Files()

	own, err := readPair(path)
	if err == nil && own.serves(ca, append(t.DNSNames, n.Addr), p.now()) {
		return changed, nil
	}
	if _, refused := errors.AsType[*inventory.Error](err); refused {
		return changed, err
	}

	made, err := newLeaf(ca, t, p.now(), peerLife)
	if err == nil {
		err = store(path, made, nil)
	}
	if err != nil {
		return changed, inventory.Errorf(
			inventory.KindUnavailable,
			"the instance's certificate cannot be made: %w",
			err,
		)
	}

	return true, nil
}

func (p Peers) refreshCA() (ca *pair, changed bool, err error) {
	path := caPath(p.Dir)

	if err := prepareDir(p.Dir); err != nil {
		return nil, false, err
	}

	ca, err = readPair(path)

	switch _, refused := errors.AsType[*inventory.Error](err); {
	case refused:
		return nil, false, err
	case errors.Is(err, fs.ErrNotExist) && p.signed():
		return nil, false, inventory.Errorf(inventory.KindRefused,
			"the CA of the instances is missing: %s does not exist, and certificates of it do", path).
			Do("copy that file from another instance; with a new CA, none would know this one")
	case errors.Is(err, fs.ErrNotExist):
		ca, err = newCA(nil, p.now(), defaultCALife)
	case err != nil:
		return nil, false, inventory.Errorf(inventory.KindUnavailable, "%s is damaged: %w", path, err).
			Do("restore it from the backup or from another instance")
	case due(ca.cert, p.now()):
		ca, err = newCA(ca.key, p.now(), defaultCALife)
	default:
		return ca, false, p.storeCA(ca)
	}

	if err == nil {
		err = store(path, ca, nil)
	}
	if err == nil {
		err = p.storeCA(ca)
	}
	if err != nil {
		return nil, false, inventory.Errorf(
			inventory.KindUnavailable,
			"the CA of the instances cannot be made: %w",
			err,
		)
	}

	return ca, true, nil
}

// signed reports whether there has been a CA.
func (p Peers) signed() bool {
	ca, own := p.Files()

	return slices.ContainsFunc([]string{ca, own}, func(path string) bool {
		_, err := os.Lstat(path)
		return !errors.Is(err, fs.ErrNotExist)
	})
}

// storeCA writes the certificate of the CA apart from its key, for etcd.
func (p Peers) storeCA(ca *pair) error {
	path, _ := p.Files()
	encoded := EncodeCertificate(ca.cert)

	if before, err := readFile(path, false); err == nil && string(before) == string(encoded) {
		return nil
	}
	return localfile.Replace(path, encoded)
}

// CA returns the CA with its key, for an instance that joins.
func (p Peers) CA() ([]byte, error) { return readPrivate(caPath(p.Dir)) }

// PeerKey is the key of an instance that joins, until it has its certificate.
type PeerKey struct{ key *ecdsa.PrivateKey }

// NewPeerKey makes a key, and the request to sign a certificate for it.
func NewPeerKey() (PeerKey, []byte, error) {
	key, err := newKey()
	if err != nil {
		return PeerKey{}, nil, err
	}

	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	return PeerKey{key}, request, err
}

// Sign returns the certificate of an instance that joins. The request says nothing but its public key.
func (p Peers) Sign(request []byte, n PeerName) ([]byte, error) {
	parsed, err := x509.ParseCertificateRequest(request)
	if err == nil {
		err = parsed.CheckSignature()
	}

	public, ok := (*ecdsa.PublicKey)(nil), false
	if err == nil {
		public, ok = parsed.PublicKey.(*ecdsa.PublicKey)
	}
	if err != nil || !ok {
		return nil, inventory.Errorf(inventory.KindInvalid, "the request for a certificate cannot be used: %w",
			errors.Join(err, errors.New("it needs an ECDSA key"))).Do("join with a clusterm of the same version")
	}

	t, err := n.template()
	if err != nil {
		return nil, err
	}

	ca, err := readPair(caPath(p.Dir))
	if err != nil {
		return nil, fmt.Errorf("the CA of the instances cannot be read: %w", err)
	}

	cert, err := signLeaf(ca, t, public, p.now(), peerLife)
	if err != nil {
		return nil, err
	}

	return EncodeCertificate(cert), nil
}

// Store writes what an instance has got by joining: its certificate, and the CA with its key.
func (p Peers) Store(key PeerKey, certificate, ca []byte) error {
	if err := prepareDir(p.Dir); err != nil {
		return err
	}

	authority, err := decode(ca)
	if err != nil {
		return fmt.Errorf("the CA of the instances: %w", err)
	}

	block, _ := pem.Decode(certificate)
	if block == nil {
		return errors.New("the certificate of this instance is no PEM block")
	}

	cert, err := x509.ParseCertificate(block.Bytes)
	if err == nil {
		err = cert.CheckSignatureFrom(authority.cert)
	}
	if err == nil && !key.key.PublicKey.Equal(cert.PublicKey) {
		err = errors.New("it is for another key")
	}
	if err != nil {
		return fmt.Errorf("the certificate of this instance: %w", err)
	}

	_, own := p.Files()

	return errors.Join(
		store(caPath(p.Dir), authority, nil), p.storeCA(authority), store(own, &pair{cert: cert, key: key.key}, nil),
	)
}
