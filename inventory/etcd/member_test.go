// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

func TestMemberCheck(t *testing.T) {
	t.Parallel()

	good := newAuthority(t).member(t, "i1", "127.0.0.1")
	errtest.None(t, good.Check())

	missing := filepath.Join(shortDir(t), "missing")

	for want, change := range map[string]func(*Member){
		"name":                            func(m *Member) { m.Name = "a=b,c" },
		"address":                         func(m *Member) { m.Address = netip.Addr{} },
		"the address of one host":         func(m *Member) { m.Address = netip.IPv4Unspecified() },
		"peer_port":                       func(m *Member) { m.PeerPort = m.ClientPort },
		"initial_cluster":                 func(m *Member) { m.InitialCluster = map[string]string{"i2": m.PeerURL()} },
		"endpoints":                       func(m *Member) { m.Endpoints = []string{"http://127.0.0.2:1"} },
		`ca_file: "x" is not an absolute`: func(m *Member) { m.CAFile = "x" },
		"cert_file cannot be read":        func(m *Member) { m.CertFile = missing },
		"key_file cannot be read":         func(m *Member) { m.KeyFile = missing },
		"contains no certificate":         func(m *Member) { m.CAFile = m.KeyFile },
		"is not a member with a URL like ": func(m *Member) {
			m.InitialCluster = map[string]string{m.Name: m.PeerURL(), "i2,i3": m.PeerURL()}
		},
	} {
		m := good
		change(&m)

		err := WriteMember(shortDir(t), m)
		if inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an invalid error with %q", err, want)
		}
	}
}

// TestReadMember: a file that is not wholly understood is refused, because a start without
// it would serve something else.
func TestReadMember(t *testing.T) {
	t.Parallel()

	dir := shortDir(t)
	path := filepath.Join(dir, memberFile)

	if _, err := ReadMember(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}

	m := newAuthority(t).member(t, "i1", "127.0.0.1")
	m.Endpoints = []string{"https://127.0.0.2:12379"}
	errtest.None(t, WriteMember(dir, m))

	got, err := ReadMember(dir)
	if err != nil || got.ClientURL() != m.ClientURL() || got.Endpoints[0] != m.Endpoints[0] {
		t.Errorf("got %+v, %v, want %+v", got, err, m)
	}

	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}

	content, err := json.Marshal(m)
	errtest.None(t, err)

	// Of a newer version, which was taken back.
	errtest.None(t, os.WriteFile(path, append([]byte(`{"new": 1, `), content[1:]...), 0o600))

	if got, err := ReadMember(dir); err != nil || got.Name != m.Name {
		t.Errorf("with one more field: %+v, %v", got, err)
	}

	for name, text := range map[string]string{
		"empty": "", "cut": string(content[:len(content)-1]), "two": string(content) + "{}",
		"type": `{"client_port": 100000}`,
		"long": strings.Repeat(" ", maxMemberFile) + "{}",
	} {
		errtest.None(t, os.WriteFile(path, []byte(text), 0o600))

		if _, err := ReadMember(dir); inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("%s: %v", name, err)
		}

		_, err := StartServer(within(t, testTimeout), ServerOptions{Dir: dir, NoSync: true, Log: discardLog()})
		if inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("%s: the server starts: %v", name, err)
		}
	}
}
