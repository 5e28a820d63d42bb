// SPDX-License-Identifier: Apache-2.0

// Package joining makes this host an instance of a manager that runs elsewhere: it asks for admission, and prepares an
// empty data directory for the first start.
package joining

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/inventory/localfile"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/cluster/datadir"
	"github.com/contiv/cluster/management/instance"
	"github.com/contiv/cluster/management/pki"
)

// timeout bounds the request: a first one restarts the etcd of the manager.
const timeout = 2 * time.Minute

// Options are the parameters of Join.
type Options struct {
	Manager client.Options // with the URL, the token and the pin of the CA
	DataDir string
	// Existing: the configuration names an etcd that is not inside.
	Existing bool
	Node     string // the name of this host's node
	// Addr is the address at which the other instances reach this one.
	Addr                 string
	ClientPort, PeerPort uint16 // of the etcd inside
}

func (o Options) etcdDir() string { return filepath.Join(o.DataDir, "etcd") }

// Join asks the manager for admission, and writes what the first start of clusterm needs. It is refused for a data
// directory with a store. After an error it can be repeated, with another token if that was spent.
func Join(ctx context.Context, o Options) (api.JoinAnswer, error) {
	if o.Existing {
		return api.JoinAnswer{}, inventory.Errorf(inventory.KindInvalid,
			"the configuration names an existing etcd, and an instance that joins brings its own").
			Do("remove the section etcd, or start clusterm without join")
	}

	if err := o.checkEmpty(); err != nil {
		return api.JoinAnswer{}, err
	}
	if err := o.checkNetwork(ctx); err != nil {
		return api.JoinAnswer{}, err
	}

	id, err := o.identity()
	if err != nil {
		return api.JoinAnswer{}, err
	}

	own, request, err := pki.NewPeerKey()
	if err != nil {
		return api.JoinAnswer{}, err
	}
	opens, public, err := instance.NewKey()
	if err != nil {
		return api.JoinAnswer{}, err
	}

	o.Manager.Timeout, o.Manager.Patience = timeout, -1

	m, err := client.New(o.Manager)
	if err != nil {
		return api.JoinAnswer{}, err
	}

	answer, err := m.Join(ctx, api.JoinRequest{
		ID:                 id,
		Node:               o.Node,
		Addr:               o.Addr,
		PeerPort:           int(o.PeerPort),
		CertificateRequest: text(request),
		Key:                text(public),
	})
	if err != nil {
		return answer, err
	}

	sealed, err := base64.StdEncoding.DecodeString(answer.Sealed)
	if err != nil {
		return answer, err
	}
	handover, err := opens.Open(sealed)
	if err != nil {
		return answer, err
	}

	return answer, o.store(id, own, answer, handover)
}

func text(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

// checkEmpty refuses a data directory that is in use, or has a store.
func (o Options) checkEmpty() error {
	running, err := etcd.Running(o.etcdDir())

	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case running:
		return inventory.Errorf(inventory.KindRefused, "clusterm runs with the data directory %s", o.DataDir).
			Do("stop it first: systemctl stop clusterm")
	}

	own, joins := filepath.Join(o.DataDir, "instance.id"), readID(o.joiningFile())

	for _, path := range []string{filepath.Join(o.etcdDir(), "data"), own} {
		if _, err := os.Lstat(path); err == nil && (path != own || joins == "" || readID(own) != joins) {
			return inventory.Errorf(inventory.KindRefused,
				"the data directory %s belongs to an instance already: it has %s", o.DataDir, filepath.Base(path)).
				Do("to join with this host, move the directory away first; its nodes and jobs are not taken along")
		}
	}

	return nil
}

// checkNetwork refuses an address and ports at which the etcd inside could not be reached. An admission for them would
// leave a member that never starts.
func (o Options) checkNetwork(ctx context.Context) error {
	invalid := func(key string, format string, args ...any) error {
		return inventory.Errorf(inventory.KindInvalid, "%s: %w", key, fmt.Errorf(format, args...)).
			Do("set %s in the configuration file, and repeat the command with the same token", key)
	}

	addr, err := netip.ParseAddr(o.Addr)

	switch {
	case err != nil:
		return invalid("node.addr", "%q is no IP address", o.Addr)
	case !instance.Reachable(addr):
		return invalid("node.addr", "others cannot reach a host at %s", o.Addr)
	case addr.String() != o.Addr || addr.Is4In6():
		return invalid("node.addr", "the usual form of %q is %s", o.Addr, addr.Unmap())
	case o.ClientPort == o.PeerPort:
		return invalid("instances.peer_port", "%d is the client port, too", o.PeerPort)
	}

	for key, port := range map[string]uint16{
		"instances.client_port": o.ClientPort, "instances.peer_port": o.PeerPort,
	} {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", netip.AddrPortFrom(addr, port).String())

		switch {
		case errors.Is(err, syscall.EADDRNOTAVAIL):
			return invalid("node.addr", "this host does not have the address %s", addr)
		case err != nil:
			return invalid(key, "the etcd inside cannot listen there: %w", err)
		}

		l.Close()
	}

	return nil
}

// joiningFile has the identity under which this data directory joins. It tells an interrupted join from an instance
// that has lost its store.
func (o Options) joiningFile() string { return filepath.Join(o.peers().Dir, "joining.id") }

// readID returns the identity in a file; empty: there is none.
func readID(path string) string {
	text, err := os.ReadFile(path)
	if id := strings.TrimSpace(string(text)); err == nil && datadir.IsID(id) {
		return id
	}
	return ""
}

// identity returns the id of the new instance. It is in the data directory before the request, so that the request can
// be repeated wherever it ended.
func (o Options) identity() (string, error) {
	id := readID(o.joiningFile())

	if id == "" {
		var random [8]byte

		_, _ = rand.Read(random[:]) // it never fails
		id = hex.EncodeToString(random[:])

		if err := os.MkdirAll(o.peers().Dir, 0o700); err != nil {
			return "", cannotWrite(o.DataDir, err)
		}
		if err := localfile.Replace(o.joiningFile(), []byte(id+"\n")); err != nil {
			return "", cannotWrite(o.DataDir, err)
		}
	}

	return id, datadir.SetInstanceID(o.DataDir, id)
}

func cannotWrite(dir string, err error) error {
	return inventory.Errorf(inventory.KindUnavailable, "the data directory %s cannot be written: %w", dir, err).
		Do("run as root, and check the free space")
}

func (o Options) peers() pki.Peers { return pki.Peers{Dir: instance.PeersDir(o.DataDir)} }

// store writes the files of the instance. The membership comes last: without it clusterm does not start with this
// directory, which has an identity and no store.
func (o Options) store(id string, own pki.PeerKey, answer api.JoinAnswer, h instance.Handover) error {
	for _, f := range h.Files {
		if err := o.checkFile(f); err != nil {
			return err
		}
	}

	for _, f := range h.Files {
		path := f.In(o.DataDir)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return cannotWrite(o.DataDir, err)
		}
		if err := localfile.Replace(path, f.Content); err != nil {
			return cannotWrite(o.DataDir, err)
		}
	}

	if err := o.peers().Store(own, []byte(answer.Certificate), h.CA); err != nil {
		return err
	}

	ca, certificate := o.peers().Files()

	addr, err := netip.ParseAddr(o.Addr)
	if err != nil {
		return err
	}

	if err := os.MkdirAll(o.etcdDir(), 0o700); err != nil {
		return cannotWrite(o.DataDir, err)
	}

	return etcd.WriteMember(o.etcdDir(), etcd.Member{
		Name: id, Address: addr, ClientPort: o.ClientPort, PeerPort: o.PeerPort,
		CAFile: ca, CertFile: certificate, KeyFile: certificate, InitialCluster: answer.Members,
		Endpoints: answer.Endpoints,
	})
}

// checkFile refuses to replace another file of the same name.
func (o Options) checkFile(f instance.File) error {
	path := f.In(o.DataDir)

	switch present, err := os.ReadFile(path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return cannotWrite(o.DataDir, err)
	case bytes.Equal(present, f.Content):
		return nil
	}

	return inventory.Errorf(inventory.KindRefused,
		"%s exists, and is another one than on the other instances, which need the same", path).
		Do("move it away and repeat the command with a new token; or let all instances use another path")
}
