// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/contiv/cluster/inventory"
)

// maxSocketPath is the longest path in a socket address (sockaddr_un), in bytes.
const maxSocketPath = 107

// ListenUnix listens on a Unix socket that only the owner of this process can
// open. It replaces the socket of an earlier process, and returns KindRefused if
// a process answers on the socket, or if the file is no socket. It creates a
// missing folder, for its owner only.
func ListenUnix(path string) (net.Listener, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, inventory.Errorf(inventory.KindInvalid, "the socket %q: %w", path, err)
	}
	folder := filepath.Dir(path)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, inventory.Errorf(inventory.KindUnavailable, "cannot create the folder of the socket: %w", err)
	}

	// Only a dead socket may be replaced. Lstat does not follow a symbolic link.
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

	// A socket is created with the mode of the umask. Creating it in a private
	// folder and moving it with its final mode leaves other users no moment in
	// which they could open it.
	private, err := os.MkdirTemp(folder, ".s")
	if err != nil {
		return nil, inventory.Errorf(inventory.KindUnavailable, "cannot create the socket %s: %w", path, err)
	}
	defer func() { _ = os.RemoveAll(private) }()

	fresh := filepath.Join(private, "s")
	if len(fresh) > maxSocketPath || len(path) > maxSocketPath {
		return nil, inventory.Errorf(inventory.KindInvalid, "the path of the socket is too long: %s", path).
			Do("choose one of less than 90 bytes")
	}

	l, err := net.Listen("unix", fresh)
	if err != nil {
		return nil, inventory.Errorf(inventory.KindUnavailable, "cannot create the socket %s: %w", path, err)
	}

	// The listener would remove the path of its creation, not the final one.
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
		return nil, inventory.Errorf(inventory.KindUnavailable, "cannot create the socket %s: %w", path, err)
	}

	return bounded(&socket{Listener: l, path: path, file: info}, maxLocalConns, maxLocalConns), nil
}

// socket removes its file when it is closed, unless another process has replaced
// the file.
type socket struct {
	net.Listener
	path string
	file fs.FileInfo
	once sync.Once
}

func (l *socket) Close() error {
	l.once.Do(func() {
		if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.file) {
			_ = os.Remove(l.path)
		}
	})

	return l.Listener.Close()
}

// Addr returns the path under which clients open the socket.
func (l *socket) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

// ListenLoopback listens on a TCP port of a loopback address, HOST:PORT, with a bounded
// number of connections. Port 0 selects a free port.
func ListenLoopback(addr string) (net.Listener, error) {
	bad := func(reason string) error {
		return inventory.Errorf(inventory.KindInvalid,
			"%q %s: plain HTTP has no authentication, so it serves this host only", addr, reason).
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
		return nil, inventory.Errorf(inventory.KindUnavailable, "cannot listen on %s: %w", addr, err)
	}

	// A name such as localhost may resolve to another address.
	if tcp, ok := l.Addr().(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		_ = l.Close()
		return nil, bad("does not resolve to a loopback address")
	}

	return bounded(l, maxLocalConns, maxLocalConns), nil
}
