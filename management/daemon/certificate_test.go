// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/pki"
)

// holder returns a client with a certificate that `clusterm ca issue` would make.
func (s *site) holder(g pki.Grant) *client.Client {
	s.t.Helper()

	ca, err := OpenCA(s.file)
	s.must(err)
	content, err := ca.Issue(g, time.Hour)
	s.must(err)

	file := filepath.Join(s.t.TempDir(), "client.pem")
	s.must(os.WriteFile(file, content, 0o600))

	c, err := client.New(client.Options{
		URL: s.secureURL(), Trust: client.Trust{Fingerprint: ca.Fingerprint(), CertFile: file}, Patience: -1,
	})
	s.must(err)

	return c
}

// TestScopedCertificate shows the nodes of the scope in a certificate, and no other.
func TestScopedCertificate(t *testing.T) {
	t.Parallel()

	s := secureSite(t)
	s.report("a b")

	rack := "r1"
	_, err := s.PatchNode(s.ctx(), "b-1", api.NodePatch{Labels: map[string]*string{"rack": &rack}})
	s.must(err)

	ann := s.holder(pki.Grant{Name: "ann", Role: "operator", Selector: "rack in (r1,r2)"})

	l, err := ann.Nodes(s.ctx(), client.NodeFilter{})
	s.must(err)

	if l.Total != 1 || l.Items[0].Name != "b-1" {
		t.Errorf("the nodes: %+v", l.Items)
	}

	_, err = ann.SetVars(s.ctx(), client.ScopeNode("a-1"), api.Vars{"x": 1})
	checkError(t, err, inventory.KindNotFound, "a-1")

	id, err := ann.WhoAmI(s.ctx())
	s.must(err)

	if id.Scope.String() == "" || id.Principal != "certificate:ann" {
		t.Errorf("%+v", id)
	}

	ca, err := OpenCA(s.file)
	s.must(err)

	for _, g := range []pki.Grant{
		{Role: "admin", Groups: []string{"g"}}, {Role: "monitor", Selector: "a"}, {Role: "viewer", Selector: "a in"},
		{Role: "king"}, {Role: "operator", Groups: []string{"g", "g"}}, {Role: "operator", Groups: []string{"a b"}},
	} {
		g.Name = "ann"
		_, err := ca.Issue(g, time.Hour)
		checkError(t, err, inventory.KindInvalid, "")
	}
}

// TestRevokedCertificate revokes a certificate while it has a stream and a kept
// connection open: the stream ends, the next request is refused, and no
// other certificate is.
func TestRevokedCertificate(t *testing.T) {
	t.Parallel()

	s := secureSite(t)
	viewer := pki.Grant{Name: "rack1", Role: "viewer"}
	gone, other := s.holder(viewer), s.holder(pki.Grant{Name: "rack10", Role: "viewer"})

	_, err := gone.Version(s.ctx())
	s.must(err)

	ended := make(chan error, 1)
	begun := make(chan struct{})

	go func() {
		for _, err := range gone.Watch(s.ctx(), client.WatchOptions{Kinds: []api.WatchKind{api.WatchNodes}}) {
			if err != nil {
				ended <- err
				return
			}

			select {
			case <-begun:
			default:
				close(begun)
			}
		}
	}()

	s.report("a")
	<-begun
	s.must(second(s.RevokeCertificate(s.ctx(), "rack1")))

	if err := <-ended; s.ctx().Err() != nil {
		t.Errorf("the stream of a revoked certificate goes on: %v", err)
	}

	refused := func(when string) {
		t.Helper()

		_, err := gone.Version(s.ctx())
		checkError(t, err, inventory.KindUnauthenticated, "the client certificate is revoked")

		_, err = other.Version(s.ctx())
		if err != nil {
			t.Errorf("%s, another certificate: %v", when, err)
		}
	}
	refused("at once")

	list, err := s.Certificates(s.ctx())
	s.must(err)

	for _, c := range list.Items {
		if (c.Revoked != nil) != (c.Name == "rack1") || c.Issued == nil || c.Role != "viewer" {
			t.Errorf("%+v", c)
		}
	}

	// One with the same name that is issued later is valid.
	_, err = s.holder(viewer).Version(s.ctx())
	s.must(err)

	_, err = s.RevokeCertificate(s.ctx(), "rack2")
	checkError(t, err, inventory.KindNotFound, "rack2")

	// A damaged record revokes as well.
	issued, _, err := pki.Issued(s.pkiDir())
	s.must(err)

	serial := ""

	for _, c := range issued {
		if c.Subject.CommonName == "rack10" {
			serial = pki.Serial(c.Certificate)
		}
	}

	s.must(s.clients.Check(serial))
	s.must(second(s.etcd.Put(s.ctx(), s.etcd.Prefix+"/v/revocations/"+serial, "{damaged")))
	s.eventually("the damaged record revokes", func() bool { return s.clients.Check(serial) != nil })
}

// TestOddCertificates puts files that are no certificates among the issued ones: the list
// and a revocation by name work with the others, and the health names each file.
func TestOddCertificates(t *testing.T) {
	t.Parallel()

	s := secureSite(t)
	s.holder(pki.Grant{Name: "rack1", Role: "viewer"})
	s.holder(pki.Grant{Name: "rack2", Role: "viewer"})

	issued, _, err := pki.Issued(s.pkiDir())
	s.must(err)

	// One without a role, as of a CA that somebody has used by hand.
	keys, err := os.ReadFile(filepath.Join(s.pkiDir(), "server.pem"))
	s.must(err)

	at := func(name string) string { return filepath.Join(s.pkiDir(), "issued", name) }
	s.must(os.WriteFile(at("0a.pem"), []byte("not PEM"), 0o600))
	s.must(os.WriteFile(at("0b.pem"), keys, 0o600))
	s.must(os.Mkdir(at("0c.pem"), 0o700))
	s.must(syscall.Mkfifo(at("0d.pem"), 0o600))
	s.must(os.WriteFile(at("notes.txt"), nil, 0o600))

	list, err := s.Certificates(s.ctx())
	s.must(err)

	if list.Total != len(issued) || len(issued) != 2 {
		t.Errorf("the list: %+v", list.Items)
	}

	done, err := s.RevokeCertificate(s.ctx(), "rack1")
	s.must(err)

	health, err := s.Health(s.ctx())
	s.must(err)

	for _, warnings := range [][]string{done.Warnings, health.Warnings} {
		text := strings.Join(warnings, "\n")
		for _, name := range []string{"0a.pem", "0b.pem", "0c.pem", "0d.pem"} {
			if !strings.Contains(text, name) {
				t.Errorf("no warning names %s: %s", name, text)
			}
		}

		if strings.Contains(text, "notes.txt") {
			t.Errorf("a warning about another file: %s", text)
		}
	}

	// The CA still issues.
	s.holder(pki.Grant{Name: "rack3", Role: "viewer"})
}
