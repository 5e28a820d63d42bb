// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/contiv/cluster/inventory"
)

// maxSocketPath is what fits into a socket address (sockaddr_un), less its end.
const maxSocketPath = 107

// ListenUnix listens on a Unix socket that only the owner of this process can
// open. What an earlier process left at the path is replaced; a socket that
// somebody answers on, or anything that is no socket, is refused. The folder
// is made, for its owner only, where it does not exist.
func ListenUnix(path string) (net.Listener, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, inventory.Errorf(inventory.KindInvalid, "the socket %q: %w", path, err)
	}

	folder := filepath.Dir(path)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, inventory.Errorf(inventory.KindUnavailable, "the folder of the socket cannot be made: %w", err)
	}

	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, inventory.Errorf(inventory.KindUnavailable, "the socket %s: %w", path, err).
			Do("run this as root, or choose another path")
	case info.Mode().Type() != fs.ModeSocket:
		return nil, inventory.Errorf(inventory.KindRefused, "%s exists and is not a socket", path).
			Do("move it away, or choose another path")
	default:
		if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
			_ = c.Close()

			return nil, inventory.Errorf(inventory.KindRefused, "another process listens on %s", path).
				Do("stop it first (systemctl stop clusterm), or choose another path")
		}
	}

	// The socket is made in a folder that nobody else can enter and moved to
	// its place when its mode is set, so that there is no moment in which
	// another user could open it.
	private, err := os.MkdirTemp(folder, ".s")
	if err != nil {
		return nil, inventory.Errorf(inventory.KindUnavailable, "the socket %s cannot be made: %w", path, err)
	}

	defer func() { _ = os.RemoveAll(private) }()

	fresh := filepath.Join(private, "s")
	if len(fresh) > maxSocketPath || len(path) > maxSocketPath {
		return nil, inventory.Errorf(inventory.KindInvalid, "the path of the socket is too long: %s", path).
			Do("choose one of less than 90 bytes")
	}

	l, err := net.Listen("unix", fresh)
	if err != nil {
		return nil, inventory.Errorf(inventory.KindUnavailable, "the socket %s cannot be made: %w", path, err)
	}

	l.(*net.UnixListener).SetUnlinkOnClose(false)

	if err = os.Chmod(fresh, 0o600); err == nil {
		err = os.Rename(fresh, path)
	}

	var info fs.FileInfo
	if err == nil {
		info, err = os.Lstat(path)
	}

	if err != nil {
		_ = l.Close()
		return nil, inventory.Errorf(inventory.KindUnavailable, "the socket %s cannot be made: %w", path, err)
	}

	return &socket{Listener: l, path: path, made: info}, nil
}

// socket removes its file when it is closed, unless somebody else has put
// another one there.
type socket struct {
	net.Listener
	path string
	made fs.FileInfo
	once sync.Once
}

func (l *socket) Close() error {
	l.once.Do(func() {
		if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.made) {
			_ = os.Remove(l.path)
		}
	})

	return l.Listener.Close()
}

// Addr is the address of the socket where it can be opened.
func (l *socket) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

// ListenLoopback listens on a TCP port of a loopback address: HOST:PORT. Port 0
// takes a free one.
func ListenLoopback(addr string) (net.Listener, error) {
	bad := func(why string) error {
		return inventory.Errorf(inventory.KindInvalid,
			"%q %s: plain HTTP knows no users, so only this host may reach it", addr, why).
			Do("write 127.0.0.1:PORT or [::1]:PORT")
	}

	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, bad("is not an address with a port")
	}

	if !isLoopback(host) {
		return nil, bad("is not a loopback address")
	}

	l, err := net.Listen("tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, inventory.Errorf(inventory.KindRefused, "another process listens on %s: %w", addr, err).
			Do("choose another port, or stop that process: ss -ltnp")
	case err != nil:
		return nil, inventory.Errorf(inventory.KindUnavailable, "nothing can listen on %s: %w", addr, err)
	}

	// A name is believed only when it has turned out to mean this host.
	if tcp, ok := l.Addr().(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		_ = l.Close()
		return nil, bad("turns out not to be a loopback address")
	}

	return l, nil
}

// peer is who is at the other end of a connection.
type peer struct {
	unix bool
	uid  uint32
	name string // unix: the account's name; else the address
}

type peerKey struct{}

// withPeer asks the kernel who has opened a connection.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, peerKey{}, peerOf(c))
}

func peerOf(c net.Conn) peer {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return peer{name: c.RemoteAddr().String()}
	}

	p := peer{unix: true, uid: ^uint32(0), name: "unknown"}

	raw, err := u.SyscallConn()
	if err != nil {
		return p
	}

	var cred *syscall.Ucred

	cerr := raw.Control(func(fd uintptr) {
		cred, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if cerr != nil || err != nil || cred == nil {
		return p
	}

	p.uid, p.name = cred.Uid, accountName(cred.Uid)

	return p
}

func accountName(uid uint32) string {
	if uid == 0 {
		return "root"
	}

	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}

	return "uid " + id
}
