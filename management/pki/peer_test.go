// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

// shake makes a TLS connection with certificates on both sides, and returns what the server and the client say.
func shake(t *testing.T, server, client Peers, name string) error {
	t.Helper()

	config := func(p Peers) *tls.Config {
		ca, own := p.Files()
		pair, err := tls.LoadX509KeyPair(own, own)
		errtest.None(t, err)

		text, err := os.ReadFile(ca)
		errtest.None(t, err)

		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(text) {
			t.Fatal("no CA")
		}

		return &tls.Config{
			Certificates: []tls.Certificate{pair}, RootCAs: roots, ClientCAs: roots,
			ClientAuth: tls.RequireAndVerifyClientCert, ServerName: name, Time: client.now,
		}
	}

	l, err := tls.Listen("tcp", "127.0.0.1:0", config(server))
	errtest.None(t, err)
	defer l.Close()

	served := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			err = c.(*tls.Conn).HandshakeContext(t.Context())
			c.Close()
		}
		served <- err
	}()

	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
	errtest.None(t, err)

	err = tls.Client(c, config(client)).HandshakeContext(t.Context())
	if err != nil {
		c.Close()
	}

	return errors.Join(err, <-served)
}

func peers(t *testing.T) Peers { return Peers{Dir: filepath.Join(t.TempDir(), "instance")} }

// TestPeers lets an instance join, which then admits a third one. All know each other, and nobody else.
func TestPeers(t *testing.T) {
	t.Parallel()

	first, second, third := peers(t), peers(t), peers(t)

	changed, err := first.Refresh(PeerName{"aa", "127.0.0.1"})
	if err != nil || !changed {
		t.Fatal(changed, err)
	}

	if changed, err := first.Refresh(PeerName{"aa", "127.0.0.1"}); err != nil || changed {
		t.Errorf("a second look writes: %t, %v", changed, err)
	}

	join := func(from, to Peers, n PeerName) {
		t.Helper()

		key, request, err := NewPeerKey()
		errtest.None(t, err)
		certificate, err := from.Sign(request, n)
		errtest.None(t, err)
		ca, err := from.CA()
		errtest.None(t, err)
		errtest.None(t, to.Store(key, certificate, ca))
	}
	join(first, second, PeerName{"bb", "127.0.0.2"})
	join(second, third, PeerName{"cc", "127.0.0.3"})

	for _, err := range []error{
		shake(t, first, third, "127.0.0.1"), shake(t, third, second, "127.0.0.3"), shake(t, second, first, "bb"),
	} {
		if err != nil {
			t.Error(err)
		}
	}

	if shake(t, first, third, "127.0.0.9") == nil {
		t.Error("a certificate is good for another address")
	}

	other := peers(t)
	if _, err := other.Refresh(PeerName{"aa", "127.0.0.1"}); err != nil {
		t.Fatal(err)
	}

	if shake(t, first, other, "127.0.0.1") == nil {
		t.Error("an instance of another manager is a peer")
	}

	// Files of the owner only, except what is public.
	for _, name := range []string{"ca.pem", "peer.pem"} {
		info, err := os.Stat(filepath.Join(third.Dir, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}

	// An instance renews its own certificate in time, under the same CA, and after a change of its address.
	third.Now = func() time.Time { return time.Now().Add(300 * 24 * time.Hour) }
	if changed, err := third.Refresh(PeerName{"cc", "127.0.0.3"}); err != nil || !changed {
		t.Errorf("not renewed: %v", err)
	}
	if err := shake(t, first, third, "127.0.0.1"); err != nil {
		t.Error(err)
	}

	if changed, err := second.Refresh(PeerName{"bb", "127.0.0.4"}); err != nil || !changed {
		t.Errorf("not made for the new address: %v", err)
	}
}

// TestPeersWithoutCA: a new CA would be that of no other instance.
func TestPeersWithoutCA(t *testing.T) {
	t.Parallel()

	p, n := peers(t), PeerName{"aa", "127.0.0.1"}
	if _, err := p.Refresh(n); err != nil {
		t.Fatal(err)
	}

	ca, own := p.Files()
	errtest.None(t, os.Remove(filepath.Join(p.Dir, "ca.pem")))

	for _, left := range [][]string{{ca, own}, {own}} {
		if _, err := p.Refresh(n); inventory.KindOf(err) != inventory.KindRefused {
			t.Errorf("with %v: %v", left, err)
		}
		errtest.None(t, os.Remove(left[0]))
	}

	if changed, err := p.Refresh(n); err != nil || !changed {
		t.Errorf("with nothing left: %t, %v", changed, err)
	}
}

func TestPeersRefuse(t *testing.T) {
	t.Parallel()

	p := peers(t)
	if _, err := p.Refresh(PeerName{"aa", "127.0.0.1"}); err != nil {
		t.Fatal(err)
	}

	key, request, err := NewPeerKey()
	errtest.None(t, err)

	for _, addr := range []string{"", "host", "0.0.0.0"} {
		if _, err := p.Sign(request, PeerName{"bb", addr}); inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("the address %q: %v", addr, err)
		}
	}

	spoiled := append([]byte{}, request...)
	spoiled[len(spoiled)-1] ^= 1

	for _, bad := range [][]byte{nil, []byte("x"), spoiled} {
		if _, err := p.Sign(bad, PeerName{"bb", "127.0.0.2"}); inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("the request %q: %v", bad, err)
		}
	}

	// A certificate of another CA, or for another key, is not stored.
	certificate, err := p.Sign(request, PeerName{"bb", "127.0.0.2"})
	errtest.None(t, err)
	ca, err := p.CA()
	errtest.None(t, err)

	otherKey, _, err := NewPeerKey()
	errtest.None(t, err)

	other := peers(t)
	if _, err := other.Refresh(PeerName{"aa", "127.0.0.1"}); err != nil {
		t.Fatal(err)
	}
	otherCA, err := other.CA()
	errtest.None(t, err)

	for what, err := range map[string]error{
		"another key": peers(t).Store(otherKey, certificate, ca),
		"another CA":  peers(t).Store(key, certificate, otherCA),
		"no PEM":      peers(t).Store(key, []byte("x"), ca),
		"no CA":       peers(t).Store(key, certificate, pem.EncodeToMemory(&pem.Block{Type: "X"})),
	} {
		if err == nil {
			t.Errorf("%s is stored", what)
		}
	}
}
