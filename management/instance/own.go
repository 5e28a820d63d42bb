// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"cmp"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/cluster/datadir"
	"github.com/contiv/cluster/management/pki"
	"github.com/contiv/cluster/management/record"
)

// Start is what is known of an instance before its etcd starts.
type Start struct {
	DataDir string
	Etcd    string // the directory of its etcd
	// Addr, ClientPort and PeerPort are those of the configuration. Without an address they are not compared.
	Addr                 string
	ClientPort, PeerPort uint16
	AcceptEmpty          bool // it may begin with an empty store
	Now                  func() time.Time
}

// Prepare readies the files of an instance that may be one of several: it renews the certificate, which has run out if
// the host was off for long. It refuses what would harm the others: a data directory that was copied, another address
// than they know, and a store of its own beside theirs.
func (s Start) Prepare() error {
	peers := pki.Peers{Dir: PeersDir(s.DataDir), Now: s.Now}

	m, err := etcd.ReadMember(s.Etcd)

	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s.checkAlone(peers)
	case err != nil:
		return err
	}

	for _, check := range []func(etcd.Member) error{s.checkPlace, s.checkConfigured} {
		if err := check(m); err != nil {
			return err
		}
	}

	// Without the CA nothing can be renewed, and a new one would be that of nobody else.
	if _, err := peers.CA(); errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	_, err = peers.Refresh(pki.PeerName{ID: m.Name, Addr: m.Address.String()})

	return err
}

// checkAlone refuses to begin with an empty store where an instance was one of several.
func (s Start) checkAlone(peers pki.Peers) error {
	_, own := peers.Files()

	switch {
	case !s.AcceptEmpty || !exists(own) || exists(filepath.Join(s.Etcd, "data")):
		return nil
	default:
		return inventory.Errorf(inventory.KindRefused,
			"this instance was one of several: %s exists, and %s does not. An empty store would be none of theirs",
			own, filepath.Join(s.Etcd, "data")).
			Do("remove this instance by another one (clusterctl instance remove), move its data directory away, and "+
				"join it again; if all others are lost as well, move %s away", peers.Dir)
	}
}

// CheckMember returns why the instance may not work beside the others, or nil: it was removed.
//
// An instance that never had others has no record.
func CheckMember(r record.Reader, id string) error {
	if len(record.List(r, &Kind)) == 0 || record.Get(r, &Kind, id) != nil {
		return nil
	}
	return inventory.Errorf(inventory.KindRefused, "the instance %s was removed from the manager", id).
		Do("to bring it back, move its data directory away, and join it again with a new invitation")
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// checkPlace refuses the data of another instance, and those of an earlier time beside others: etcd would forget what
// it has acknowledged to them.
func (s Start) checkPlace(m etcd.Member) error {
	moved, _, err := datadir.Moved(s.DataDir)

	var id string
	if err == nil {
		id, err = datadir.InstanceID(s.DataDir)
	}

	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case id != m.Name:
		return inventory.Errorf(inventory.KindRefused,
			"the etcd in %s is that of the instance %s, and %s has the id %q", s.Etcd, m.Name, s.DataDir, id).
			Do("if clusterm join was interrupted, repeat it; else put the instance.id of that instance back")
	case moved && len(m.Others()) > 0:
		return inventory.Errorf(inventory.KindRefused, "the data directory %s was copied, or put back from a backup, "+
			"and the other instances know what it has lost since", s.DataDir).
			Do("remove this instance by another one (clusterctl instance remove), move its data directory away, and " +
				"join it again. If it was copied while clusterm was stopped, and never started since at its former " +
				"place, remove instance.place in it; if all others are lost, restore a backup: clusterm restore FILE")
	}

	return nil
}

// checkConfigured refuses another address than that by which the others know this instance.
func (s Start) checkConfigured(m etcd.Member) error {
	if s.Addr == "" {
		return nil
	}

	addr, err := netip.ParseAddr(s.Addr)
	if err != nil {
		return inventory.Errorf(inventory.KindInvalid, "node.addr: %w", err)
	}

	now := etcd.Member{Address: addr, ClientPort: s.ClientPort, PeerPort: s.PeerPort}
	if now.ClientURL() == m.ClientURL() && now.PeerURL() == m.PeerURL() {
		return nil
	}

	return inventory.Errorf(inventory.KindRefused,
		"the other instances know this one as %s and %s, and the configuration makes it %s and %s",
		m.ClientURL(), m.PeerURL(), now.ClientURL(), now.PeerURL()).
		Do("configure node.addr: %s, and instances with client_port: %d and peer_port: %d; for another address, "+
			"remove this instance by another one (clusterctl instance remove), move its data directory away, and "+
			"join it again",
			m.Address, cmp.Or(m.ClientPort, etcd.DefaultClientPort), cmp.Or(m.PeerPort, etcd.DefaultPeerPort))
}
