// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/pki"
)

// deafManager notes the requests of instances, and breaks the connection in place of an answer.
type deafManager struct {
	client.Options

	mu  sync.Mutex
	ids []string
}

func (m *deafManager) asked() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ids
}

func newDeafManager(t *testing.T) *deafManager {
	t.Helper()

	k, err := pki.Open(pki.Options{
		Dir: filepath.Join(t.TempDir(), "pki"), Names: func() []string { return []string{"127.0.0.1"} },
	})
	errtest.None(t, err)

	m := &deafManager{}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body api.JoinRequest
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.URL.Path != api.PathJoin {
			t.Errorf("%s: %v", r.URL.Path, err)
		}

		m.mu.Lock()
		m.ids = append(m.ids, body.ID)
		m.mu.Unlock()

		panic(http.ErrAbortHandler)
	}))

	addr := s.Listener.Addr().String()
	s.Listener = tls.NewListener(s.Listener, k.ServerConfig())
	s.Start()
	t.Cleanup(s.Close)

	m.Options = client.Options{
		URL: "https://" + addr, Token: "clusterm-x", Trust: client.Trust{Fingerprint: k.Fingerprint()},
	}

	return m
}

// free returns a port that nothing listens on.
func free(t *testing.T) uint16 {
	t.Helper()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	errtest.None(t, err)
	defer l.Close()

	return l.Addr().(*net.TCPAddr).AddrPort().Port()
}

func (m *deafManager) options(t *testing.T) Options {
	t.Helper()

	return Options{
		Manager: m.Options, DataDir: filepath.Join(t.TempDir(), "d"), Node: "b-1", Addr: "127.0.0.1",
		ClientPort: free(t), PeerPort: free(t),
	}
}

// TestRepeat: a request whose answer is lost is repeated under the same identity, which the data directory has by then.
// Another one that has an identity or a store does not join.
func TestRepeat(t *testing.T) {
	t.Parallel()

	m := newDeafManager(t)
	o := m.options(t)
	errtest.None(t, os.MkdirAll(o.DataDir, 0o700))

	for range 2 {
		if _, err := Join(t.Context(), o); err == nil || inventory.KindOf(err) == inventory.KindRefused {
			t.Fatalf("without an answer: %v", err)
		}
	}

	ids := m.asked()
	if len(ids) != 2 || ids[0] != ids[1] {
		t.Fatalf("the identities are %q", ids)
	}

	own, err := os.ReadFile(filepath.Join(o.DataDir, "instance.id"))
	if strings.TrimSpace(string(own)) != ids[0] {
		t.Errorf("the data directory has the identity %q, %v", own, err)
	}

	refused := func(when string) {
		t.Helper()

		_, err := Join(t.Context(), o)
		if inventory.KindOf(err) != inventory.KindRefused || len(m.asked()) != 2 {
			t.Errorf("%s: %v", when, err)
		}
	}

	errtest.None(t, os.MkdirAll(filepath.Join(o.DataDir, "etcd", "data"), 0o700))
	refused("with a store")
	errtest.None(t, os.RemoveAll(filepath.Join(o.DataDir, "etcd")))

	for _, other := range []string{"0123456789abcdef", "", "x"} {
		errtest.None(t, os.WriteFile(filepath.Join(o.DataDir, "instance.id"), []byte(other+"\n"), 0o600))
		refused("with the identity " + other)
	}
}

// TestCheckNetwork: an etcd that nobody could reach is refused before the request, which changes nothing.
func TestCheckNetwork(t *testing.T) {
	t.Parallel()

	m := newDeafManager(t)

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	errtest.None(t, err)
	defer taken.Close()

	port := taken.Addr().(*net.TCPAddr).AddrPort().Port()

	for want, change := range map[string]func(*Options){
		"instances.client_port: the etcd inside cannot listen": func(o *Options) { o.ClientPort = port },
		"instances.peer_port: the etcd inside cannot listen":   func(o *Options) { o.PeerPort = port },
		"is the client port, too":                              func(o *Options) { o.PeerPort = o.ClientPort },
		`"host2" is no IP address`:                             func(o *Options) { o.Addr = "host2" },
		"others cannot reach a host at 0.0.0.0":                func(o *Options) { o.Addr = "0.0.0.0" },
		"others cannot reach a host at fe80::1%lo":             func(o *Options) { o.Addr = "fe80::1%lo" },
		"this host does not have the address 192.0.2.77":       func(o *Options) { o.Addr = "192.0.2.77" },
		`the usual form of "::ffff:127.0.0.1" is 127.0.0.1`:    func(o *Options) { o.Addr = "::ffff:127.0.0.1" },
		`the usual form of "0:0::1" is ::1`:                    func(o *Options) { o.Addr = "0:0::1" },
		"names an existing etcd":                               func(o *Options) { o.Existing = true },
	} {
		o := m.options(t)
		change(&o)

		_, err := Join(t.Context(), o)
		if inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if _, err := os.Stat(o.DataDir); err == nil {
			t.Errorf("%s: the data directory exists", want)
		}
	}

	if ids := m.asked(); len(ids) > 0 {
		t.Errorf("the manager was asked by %q", ids)
	}
}
