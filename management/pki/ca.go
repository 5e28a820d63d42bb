// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"net"
	"time"
)

// backdate makes a new certificate valid for clients with a clock behind this
// one's.
const backdate = time.Hour

// Fingerprint returns the SHA-256 digest of the public key of a certificate, as
// "sha256:" and 64 hexadecimal digits. It is the same for a renewed certificate
// with the same key.
func Fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// pair is a certificate with its private key.
type pair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newKey makes a private key on the curve P-256.
func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// newCA makes the certificate of a CA, for a new key if key is nil.
func newCA(key *ecdsa.PrivateKey, now time.Time, life time.Duration) (*pair, error) {
	if key == nil {
		var err error
		if key, err = newKey(); err != nil {
			return nil, err
		}
	}

	// The key in the name tells the CAs of several managers apart.
	spki, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(spki)

	t := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "clusterm CA " + hex.EncodeToString(sum[:4])},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(life),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}

	cert, err := sign(t, &key.PublicKey, &pair{cert: t, key: key})
	if err != nil {
		return nil, err
	}

	return &pair{cert: cert, key: key}, nil
}

// newServer makes a server certificate for the host names and addresses.
func newServer(ca *pair, names []string, now time.Time, life time.Duration) (*pair, error) {
	t := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "clusterm"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}

	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, name)
		}
	}

	return newLeaf(ca, t, now, life)
}

// newClient makes a client certificate.
func newClient(ca *pair, g Grant, now time.Time, life time.Duration) (*pair, error) {
	return newLeaf(ca, &x509.Certificate{
		Subject:     pkix.Name{CommonName: g.Name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		URIs:        g.uris(),
	}, now, life)
}

func newLeaf(ca *pair, t *x509.Certificate, now time.Time, life time.Duration) (*pair, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}

	cert, err := signLeaf(ca, t, &key.PublicKey, now, life)
	if err != nil {
		return nil, err
	}

	return &pair{cert: cert, key: key}, nil
}

// signLeaf signs a certificate for the holder of a key. It does not outlive its CA.
func signLeaf(
	ca *pair, t *x509.Certificate, public *ecdsa.PublicKey, now time.Time, life time.Duration,
) (*x509.Certificate, error) {
	t.NotBefore, t.NotAfter = now.Add(-backdate), now.Add(life)
	if t.NotAfter.After(ca.cert.NotAfter) {
		t.NotAfter = ca.cert.NotAfter
	}

	t.BasicConstraintsValid = true
	t.KeyUsage = x509.KeyUsageDigitalSignature

	return sign(t, public, ca)
}

// sign signs a certificate for the holder of a key.
func sign(t *x509.Certificate, public *ecdsa.PublicKey, ca *pair) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, t, ca.cert, public, ca.key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// The types of PEM blocks.
const (
	typeCertificate = "CERTIFICATE"
	typeKey         = "PRIVATE KEY"
)

// encode returns the pair, and the certificate of its CA if there is one, in PEM.
// One file holds all of it, so that a crash cannot part a certificate and its key.
func (p *pair) encode(ca *x509.Certificate) ([]byte, error) {
	key, err := x509.MarshalPKCS8PrivateKey(p.key)
	if err != nil {
		return nil, err
	}

	out := EncodeCertificate(p.cert)
	if ca != nil {
		out = append(out, EncodeCertificate(ca)...)
	}
	return append(out, pem.EncodeToMemory(&pem.Block{Type: typeKey, Bytes: key})...), nil
}

// EncodeCertificate returns a certificate in PEM.
func EncodeCertificate(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: typeCertificate, Bytes: c.Raw})
}

// decode reads a pair in PEM. It refuses a key that is not that of the certificate.
func decode(content []byte) (*pair, error) {
	var p pair

	for {
		var block *pem.Block
		if block, content = pem.Decode(content); block == nil {
			break
		}

		switch {
		case block.Type == typeCertificate && p.cert == nil:
			cert, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return nil, err
			}
			p.cert = cert
		case block.Type == typeKey && p.key == nil:
			key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			if err != nil {
				return nil, err
			}
			p.key, _ = key.(*ecdsa.PrivateKey)
		}
	}

	if len(bytes.TrimSpace(content)) > 0 {
		return nil, errors.New("it holds more than PEM blocks, or an incomplete one")
	}

	if p.cert == nil || p.key == nil {
		return nil, errors.New("it holds no certificate with its ECDSA key")
	}

	if !p.key.PublicKey.Equal(p.cert.PublicKey) {
		return nil, errors.New("its key does not belong to its certificate")
	}

	return &p, nil
}

// tls returns the pair as a certificate for TLS, with the CA in its chain.
func (p *pair) tls(ca *x509.Certificate) *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{p.cert.Raw, ca.Raw}, PrivateKey: p.key, Leaf: p.cert}
}

// due reports whether a certificate is past two thirds of its lifetime, or not
// valid yet.
func due(c *x509.Certificate, now time.Time) bool {
	// The time before the issue, for late clocks, is no part of the lifetime.
	life := c.NotAfter.Sub(c.NotBefore.Add(backdate))
	return now.Before(c.NotBefore) || now.After(c.NotAfter.Add(-life/3))
}
