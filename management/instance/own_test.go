// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/cluster"
	"github.com/contiv/cluster/management/cluster/datadir"
	"github.com/contiv/cluster/management/pki"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/record/recordtest"
)

// prepared makes the files of one of several instances, which has run.
func prepared(t *testing.T) (Start, etcd.Member) {
	t.Helper()

	dir := t.TempDir()
	s := Start{DataDir: dir, Etcd: filepath.Join(dir, "etcd"), Addr: "127.0.0.1", ClientPort: 12379, PeerPort: 12380}
	errtest.None(t, os.MkdirAll(filepath.Join(s.Etcd, "data"), 0o700))

	id, err := datadir.InstanceID(dir)
	errtest.None(t, err)

	peers := pki.Peers{Dir: PeersDir(dir)}
	_, err = peers.Refresh(pki.PeerName{ID: id, Addr: s.Addr})
	errtest.None(t, err)

	ca, own := peers.Files()
	m := etcd.Member{
		Name: id, Address: netip.MustParseAddr(s.Addr), CAFile: ca, CertFile: own, KeyFile: own,
		Endpoints: []string{"https://127.0.0.2:12379"},
	}
	errtest.None(t, etcd.WriteMember(s.Etcd, m))

	_, settle, err := datadir.Moved(dir)
	errtest.None(t, err)
	errtest.None(t, settle())
	errtest.None(t, s.Prepare())

	return s, m
}

// again puts a file back with the same content, as from a copy.
func again(t *testing.T, path string) {
	t.Helper()

	content, err := os.ReadFile(path)
	errtest.None(t, err)
	errtest.None(t, os.Remove(path))
	errtest.None(t, os.WriteFile(path, content, 0o600))
}

// TestPrepareRefuses: one of several does not start with what would harm the others.
func TestPrepareRefuses(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		spoil func(t *testing.T, s *Start, m etcd.Member)
		want  string // empty: it starts
	}{
		"a copy": {func(t *testing.T, s *Start, _ etcd.Member) {
			again(t, filepath.Join(s.DataDir, "instance.id"))
		}, "was copied"},
		"a copy of the only one": {func(t *testing.T, s *Start, m etcd.Member) {
			m.Endpoints = nil
			errtest.None(t, etcd.WriteMember(s.Etcd, m))
			again(t, filepath.Join(s.DataDir, "instance.id"))
		}, ""},
		"a copy that an operator vouches for": {func(t *testing.T, s *Start, _ etcd.Member) {
			again(t, filepath.Join(s.DataDir, "instance.id"))
			errtest.None(t, os.Remove(filepath.Join(s.DataDir, "instance.place")))
		}, ""},
		"another identity": {func(t *testing.T, s *Start, _ etcd.Member) {
			errtest.None(t, datadir.SetInstanceID(s.DataDir, "0123456789abcdef"))
		}, "is that of the instance"},
		"no identity": {func(t *testing.T, s *Start, _ etcd.Member) {
			errtest.None(t, os.Remove(filepath.Join(s.DataDir, "instance.id")))
		}, "is that of the instance"},
		"another address": {func(_ *testing.T, s *Start, _ etcd.Member) { s.Addr = "127.0.0.3" }, "know this one as"},
		"another port":    {func(_ *testing.T, s *Start, _ etcd.Member) { s.PeerPort++ }, "know this one as"},
		"a tool":          {func(_ *testing.T, s *Start, _ etcd.Member) { s.Addr, s.PeerPort = "", 0 }, ""},
		"an empty store": {func(t *testing.T, s *Start, _ etcd.Member) {
			errtest.None(t, os.RemoveAll(s.Etcd))
			s.AcceptEmpty = true
		}, "was one of several"},
		"a restored store": {func(t *testing.T, s *Start, _ etcd.Member) {
			errtest.None(t, os.Remove(filepath.Join(s.Etcd, "member.json")))
			s.AcceptEmpty = true
		}, ""},
		"no CA": {func(t *testing.T, s *Start, _ etcd.Member) {
			errtest.None(t, os.Remove(filepath.Join(PeersDir(s.DataDir), "ca.pem")))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s, m := prepared(t)
			tt.spoil(t, &s, m)

			err := s.Prepare()
			if tt.want == "" {
				errtest.None(t, err)
			} else if inventory.KindOf(err) != inventory.KindRefused || !strings.Contains(fmt.Sprint(err), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// TestCheckMember: of several, only those that belong to the manager work.
func TestCheckMember(t *testing.T) {
	t.Parallel()

	for members, want := range map[string]bool{"": true, "a": true, "a b": true, "b": false, "b c": false} {
		s := recordtest.NewStore(&Kind)
		tx := record.NewTx(s)
		for id := range strings.FieldsSeq(members) {
			record.Put(tx, &Kind, &Member{Identity: cluster.Identity{ID: id}})
		}

		_, err := s.Commit(t.Context(), tx)
		errtest.None(t, err)

		now, _ := s.Latest()
		if err := CheckMember(now, "a"); (err == nil) != want {
			t.Errorf("a of %q: %v", members, err)
		}
	}
}

// TestPrepareRenews: after a year off, the certificate is renewed, under the CA that the others know.
func TestPrepareRenews(t *testing.T) {
	t.Parallel()

	s, m := prepared(t)

	ca, err := os.ReadFile(m.CAFile)
	errtest.None(t, err)

	later := time.Now().Add(400 * 24 * time.Hour)
	s.Now = func() time.Time { return later }
	errtest.None(t, s.Prepare())

	content, err := os.ReadFile(m.CertFile)
	errtest.None(t, err)
	block, _ := pem.Decode(content)
	cert, err := x509.ParseCertificate(block.Bytes)
	errtest.None(t, err)

	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)

	_, err = cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: later, DNSName: "127.0.0.1"})
	errtest.None(t, err)

	if cert.Subject.CommonName != m.Name {
		t.Errorf("it is for %s", cert.Subject.CommonName)
	}
}
