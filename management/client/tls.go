// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
)

// Trust selects the certificates of both ends of an https connection.
type Trust struct {
	// Fingerprint pins the CA of the manager: "sha256:" and the digest of its public
	// key. `clusterm ca fingerprint` prints it. The CA is a certificate of the chain
	// that the manager presents. Of several, separated by commas, each counts for every
	// URL: instances may have CAs of their own.
	Fingerprint string
	// CA holds the CAs of the manager in PEM, instead of Fingerprint. With neither,
	// the CAs that this host trusts count.
	CA []byte
	// Host lets the CAs that this host trusts count beside Fingerprint or CA.
	Host bool
	// CertFile and KeyFile hold a client certificate and its private key in PEM, in
	// one file or in two. They are read for every new connection. Empty: none.
	CertFile, KeyFile string
}

// Fingerprint returns the fingerprint of a CA, as Trust pins it.
func Fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// ParseFingerprint returns a fingerprint, or several separated by commas, in the form of
// Fingerprint. It accepts capitals, colons between the digits, and a missing "sha256:".
func ParseFingerprint(s string) (string, error) {
	var all []string

	for one := range strings.SplitSeq(s, ",") {
		digits := strings.ToLower(strings.TrimSpace(one))
		digits = strings.ReplaceAll(strings.TrimPrefix(digits, "sha256:"), ":", "")

		if b, err := hex.DecodeString(digits); err != nil || len(b) != sha256.Size {
			return "", inventory.Errorf(inventory.KindInvalid, "%q is not a fingerprint", one).
				Do("write sha256: and 64 hexadecimal digits, as `clusterm ca fingerprint` prints it on the manager's " +
					"host")
		}

		if pin := "sha256:" + digits; !slices.Contains(all, pin) {
			all = append(all, pin)
		}
	}

	return strings.Join(all, ","), nil
}

// config returns the configuration of the connections to the manager at where, a
// URL.
func (t Trust) config(where string) (*tls.Config, error) {
	u, err := url.Parse(where)
	if err != nil {
		return nil, err
	}

	c := &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: u.Hostname(),
		// VerifyConnection makes the same checks, with errors for an operator.
		InsecureSkipVerify: true, //nolint:gosec // see VerifyConnection
	}

	var roots *x509.CertPool
	if len(t.CA) > 0 {
		roots = x509.NewCertPool()
		if !roots.AppendCertsFromPEM(t.CA) {
			return nil, inventory.Errorf(inventory.KindInvalid, "the CA of %s holds no certificate in PEM", where)
		}
	}

	var pins []string
	if t.Fingerprint != "" {
		all, err := ParseFingerprint(t.Fingerprint)
		if err != nil {
			return nil, err
		}
		pins = strings.Split(all, ",")
	}

	// The state of a connection has no server name if that is an address.
	c.VerifyConnection = func(s tls.ConnectionState) error {
		err := verify(where, u.Hostname(), s.PeerCertificates, pins, roots)
		if err != nil && t.Host && verify(where, u.Hostname(), s.PeerCertificates, nil, nil) == nil {
			return nil
		}

		return err
	}

	if t.CertFile != "" {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return loadCertificate(t.CertFile, t.KeyFile)
		}

		// A file that cannot be used is an error now, and not one of the first request.
		if _, err := c.GetClientCertificate(nil); err != nil {
			return nil, err
		}
	}

	return c, nil
}

// loadCertificate reads a client certificate, and refuses a key that others may
// read.
func loadCertificate(certFile, keyFile string) (*tls.Certificate, error) {
	if keyFile == "" {
		keyFile = certFile
	}

	bad := func(err error) error {
		return inventory.Errorf(inventory.KindInvalid, "the client certificate cannot be used: %w", err)
	}

	info, err := os.Stat(keyFile)
	if err != nil {
		return nil, bad(err)
	}

	if info.Mode().Perm()&0o077 != 0 {
		return nil, inventory.Errorf(inventory.KindInvalid, "others than the owner may read the private key in %s",
			keyFile).Do("chmod 600 %s; if others had access to it, replace the key", keyFile)
	}

	c, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, bad(err)
	}
	return &c, nil
}

// verify checks the chain that the manager at where presented, for the name in that
// URL. One of the pinned CAs, if there are any, has to be in it.
func verify(where, name string, chain []*x509.Certificate, pins []string, roots *x509.CertPool) error {
	leaf, now := chain[0], time.Now()
	options := x509.VerifyOptions{
		Roots: roots, Intermediates: x509.NewCertPool(), DNSName: name, CurrentTime: now,
	}

	for _, c := range chain[1:] {
		options.Intermediates.AddCert(c)
	}

	if len(pins) > 0 {
		pinned := func(c *x509.Certificate) bool { return c.IsCA && slices.Contains(pins, Fingerprint(c)) }

		i := slices.IndexFunc(chain, pinned)
		if i < 0 {
			return errPin(where, pins, chain)
		}

		options.Roots = x509.NewCertPool()
		options.Roots.AddCert(chain[i])
	}

	_, err := leaf.Verify(options)
	if err == nil {
		return nil
	}

	return certificateError(where, name, leaf, now, err)
}

// errPin is the error about a manager with another CA than the pinned ones.
func errPin(where string, pins []string, chain []*x509.Certificate) error {
	presented := "none"
	if c := chain[len(chain)-1]; c.IsCA {
		presented = Fingerprint(c)
	}

	which := "the pinned one"
	if len(pins) > 1 {
		which = "the pinned ones"
	}

	return inventory.Errorf(inventory.KindUnauthenticated,
		"%s has another CA than %s: expected %s, got %s; the connection may be intercepted, so nothing "+
			"was sent", where, which, strings.Join(pins, " or "), presented).
		Do("compare with the output of `clusterm ca fingerprint` on the manager's host; if the manager has a new CA, "+
			"log in again: clusterctl login %s", where)
}

// certificateError translates an error of the verification.
func certificateError(where, name string, leaf *x509.Certificate, now time.Time, err error) error {
	fail := func(format string, args ...any) *inventory.Error {
		e := inventory.Errorf(inventory.KindUnauthenticated, format, args...)
		e.Err = err
		return e
	}
	stamp := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }

	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		names := slices.Clone(leaf.DNSNames)
		for _, ip := range leaf.IPAddresses {
			names = append(names, ip.String())
		}

		return fail("the certificate of %s is for %s, and not for %s", where, strings.Join(names, ", "), name).
			Do("use one of these names, or add this one to tls.names in the manager's clusterm.yaml")
	}

	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		c := leaf
		if invalid.Cert != nil {
			c = invalid.Cert
		}

		if now.Before(c.NotBefore) {
			return fail("the certificate of %s is not valid before %s, and the clock of this host shows %s", where,
				stamp(c.NotBefore), stamp(now)).Do("check the clocks of both hosts: timedatectl")
		}

		return fail("the certificate of %s expired at %s; the clock of this host shows %s", where,
			stamp(c.NotAfter), stamp(now)).
			Do("check the clocks of both hosts (timedatectl), and `clusterctl status` on the manager's host")
	}

	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return fail("the certificate of %s is signed by an authority that this host does not trust", where).
			Do("log in, to pin the CA of the manager: clusterctl login %s", where)
	}

	return fail("the certificate of %s is not valid: %w", where, err).
		Do("check `clusterctl status` on the manager's host")
}

// tlsError translates an error of a handshake that verify has not made, or returns
// nil.
func (e *endpoint) tlsError(err error) *inventory.Error {
	fail := func(kind inventory.Kind, format string, args ...any) *inventory.Error {
		out := inventory.Errorf(kind, format, args...)
		out.Err = err
		return out
	}

	var record tls.RecordHeaderError
	if errors.Is(err, http.ErrSchemeMismatch) || errors.As(err, &record) {
		return fail(inventory.KindUnavailable, "%s does not speak TLS", e.where).
			Do("use the port of the key listen in the manager's clusterm.yaml; plain_http has another")
	}

	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Op != "remote error" {
		return nil
	}
	alert := op.Err.Error()
	if e.certFile != "" && strings.Contains(alert, "certificate") {
		return fail(inventory.KindUnauthenticated, "%s refused the client certificate %s: %s", e.where,
			e.certFile, alert).
			Do("use a valid certificate of the manager's client CA; `clusterm ca issue` makes one on its host")
	}

	return fail(inventory.KindUnavailable, "%s refused the connection: %s", e.where, alert).
		Do("check the address, and that clusterm and clusterctl have the same version")
}

// checkToken refuses a token that cannot be sent, or not safely. Its errors do not
// contain the token.
func checkToken(token, base string) error {
	if token == "" {
		return nil
	}

	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return inventory.Errorf(inventory.KindInvalid, "the token is malformed: it holds a space or another character "+
			"that no token has").Do("copy the token again")
	}

	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" {
		return err
	}
	if ip, err := netip.ParseAddr(u.Hostname()); u.Hostname() == "localhost" || err == nil && ip.IsLoopback() {
		return nil
	}

	return inventory.Errorf(inventory.KindRefused, "a token is not sent to %s: plain HTTP is not protected", base).
		Do("use the https:// URL of the manager")
}

// Certificate connects to an https URL, and returns the certificate of the CA that
// the manager presents, without trusting it: compare its Fingerprint with that of
// the manager, and then pin it. trusted is set if this host trusts the certificate
// already, as that of a site's own CA.
func Certificate(ctx context.Context, rawURL string) (ca *x509.Certificate, trusted bool, err error) {
	c, err := New(Options{URL: rawURL})
	if err != nil {
		return nil, false, err
	}

	e := c.route.endpoints[0]
	if !strings.HasPrefix(e.base, "https://") {
		return nil, false, inventory.Errorf(inventory.KindInvalid, "%s is not an https:// URL", rawURL).
			Do("write https://HOST:PORT")
	}

	u, err := url.Parse(e.base)
	if err != nil {
		return nil, false, err
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}

	ctx, cancel := context.WithTimeout(ctx, c.opt.Timeout)
	defer cancel()

	dialer := &tls.Dialer{Config: &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: u.Hostname(),
		InsecureSkipVerify: true, //nolint:gosec // the caller compares the fingerprint; nothing is sent
	}}

	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return nil, false, e.explain(ctx, err)
	}
	defer conn.Close()

	chain := conn.(*tls.Conn).ConnectionState().PeerCertificates
	if verify(e.where, u.Hostname(), chain, nil, nil) == nil {
		return chain[len(chain)-1], true, nil
	}

	for _, cert := range chain {
		if cert.IsCA {
			ca = cert
		}
	}

	if ca == nil {
		return nil, false, inventory.Errorf(inventory.KindUnauthenticated,
			"%s presents no CA to pin, and this host does not trust its certificate", e.where).
			Do("name the file with the CA of the site: clusterctl login --ca-file FILE %s", e.where)
	}

	// Pinned, it has to pass every other check: name, dates, signature.
	return ca, false, verify(e.where, u.Hostname(), chain, []string{Fingerprint(ca)}, nil)
}
