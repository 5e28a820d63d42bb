// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory/errtest"
)

// serve accepts connections on a loopback address and greets each with the text.
func serve(t *testing.T, greeting string) int {
	t.Helper()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	errtest.None(t, err)
	t.Cleanup(func() { l.Close() })

	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(conn, greeting)

			if greeting != "" {
				conn.Close()
				continue
			}

			t.Cleanup(func() { conn.Close() })
		}
	}()

	return int(netip.MustParseAddrPort(l.Addr().String()).Port())
}

// fakeSSH is a program in place of ssh that records its arguments.
func fakeSSH(t *testing.T, script string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "ssh")
	writeFile(t, path, "#!/bin/sh\n"+script+"\n", 0o700)
	return path
}

func host(port int) configuration.Host {
	return configuration.Host{
		Name: "127.0.0.1", Addr: "127.0.0.1", Role: configuration.RoleTarget,
		Connection: configuration.Connection{Port: port},
	}
}

func TestProbePort(t *testing.T) {
	t.Parallel()

	closed := func() int {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		errtest.None(t, err)
		defer l.Close()
		return int(netip.MustParseAddrPort(l.Addr().String()).Port())
	}()

	for _, tt := range []struct {
		name   string
		port   int
		want   string
		silent bool
	}{
		{"an ssh server", serve(t, "SSH-2.0-test\r\n"), "", false},
		{"an ssh server with a banner", serve(t, "authorized use only\r\nSSH-2.0-test\r\n"), "", false},
		{"a web server", serve(t, "HTTP/1.1 400 Bad Request\r\n\r\n"), "no ssh server answers", false},
		{"a server that does not greet", serve(t, ""), "no ssh server answers", false},
		{"a closed port", closed, "refuses connections", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			r := (&Prober{}).probePort(t.Context(), host(tt.port))
			if tt.want == "" && r.Port != "" || !strings.Contains(r.Port, tt.want) ||
				r.Silent != tt.silent || r.NoAnswer {
				t.Errorf("%+v", r)
			}
		})
	}
}

func TestProbeLogin(t *testing.T) {
	t.Parallel()

	port := serve(t, "SSH-2.0-test\r\n")
	known := host(port)
	known.Name, known.Label, known.Serial = "a-1", "a", "1"
	known.HostKeys = []string{"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFirst"}
	known.Connection.User, known.Connection.KeyFile = "admin", "/root/.ssh/id"

	jump := host(port)
	jump.Addr, jump.Connection.Jump = "192.0.2.1", "gate"

	for _, tt := range []struct {
		name   string
		host   configuration.Host
		script string
		want   string
		silent bool
	}{
		{"a login", host(port), "exit 0", "", false},
		{"a login with a command that fails", host(port), "exit 7", "", false},
		{
			"a refused key", host(port), "echo 'root@127.0.0.1: Permission denied (publickey).' >&2; exit 255",
			"ssh access as root@127.0.0.1 was denied", false,
		},
		{"another message", host(port), "printf 'one\\ntwo\\n' >&2; exit 255", "two", false},
		{"no message", host(port), "exit 255", "without a message", false},
		{"a silent host behind a jump host", jump,
			"echo 'stdio forwarding failed' >&2; exit 255", "stdio forwarding failed", true},
		{
			"the recorded key", known,
			`case "$*" in
			*"-o IdentityFile=/root/.ssh/id -o HostKeyAlias=a-1 -o StrictHostKeyChecking=yes"*"-l admin -p "*) ;;
			*) exit 255 ;;
			esac
			for a; do
				case $a in
				UserKnownHostsFile=*) grep -q '^a-1 ssh-ed25519 ' "${a#*=}" || exit 255 ;;
				esac
			done`, "", false,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			p := &Prober{Dir: filepath.Join(t.TempDir(), "tmp"), SSH: fakeSSH(t, tt.script)}

			r := p.Probe(t.Context(), []configuration.Host{tt.host})[0]
			if r.OK() != (tt.want == "") || !strings.Contains(r.Login, tt.want) || r.Silent != tt.silent {
				t.Errorf("%+v", r)
			}

			if left, err := os.ReadDir(p.Dir); err != nil || len(left) > 0 {
				t.Errorf("files are left: %v, %v", left, err)
			}
		})
	}
}

// TestProbeMany: the results keep the order of the hosts, and a cancelled context
// ends the probe.
func TestProbeMany(t *testing.T) {
	t.Parallel()

	good := serve(t, "SSH-2.0-test\r\n")
	bad := serve(t, "nonsense\r\n")

	var hosts []configuration.Host
	for i := range 300 {
		hosts = append(hosts, host([]int{good, bad}[i%2]))
	}

	p := &Prober{Dir: t.TempDir(), SSH: "/bin/true", patience: patience}
	for i, r := range p.Probe(t.Context(), hosts) {
		if r.OK() != (i%2 == 0) {
			t.Fatalf("host %d: %+v", i, r)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	for i, r := range p.Probe(ctx, hosts) {
		if r.OK() {
			t.Fatalf("host %d: %+v", i, r)
		}
	}
}

// TestProbeOfALogin: a login that succeeded counts, although a child of ssh outlives it
// with its pipes.
func TestProbeOfALogin(t *testing.T) {
	t.Parallel()

	end := filepath.Join(t.TempDir(), "end")
	errtest.None(t, unix.Mkfifo(end, 0o600))

	// The child waits until the test opens the FIFO and closes it.
	p := &Prober{Dir: t.TempDir(), SSH: fakeSSH(t, "read line <"+end+" &\nexit 0"), patience: patience}
	r := p.Probe(t.Context(), []configuration.Host{host(serve(t, "SSH-2.0-test\r\n"))})[0]

	f, err := os.OpenFile(end, os.O_WRONLY, 0)
	errtest.None(t, err)
	f.Close()

	if !r.OK() {
		t.Errorf("%+v", r)
	}
}

// TestUnanswered: only a timeout and a missing route say that a host is gone.
func TestUnanswered(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		err  error
		want bool
	}{
		{syscall.EHOSTUNREACH, true},
		{os.ErrDeadlineExceeded, true},
		{syscall.ECONNREFUSED, false},
		{syscall.ENETUNREACH, false},
		{syscall.EMFILE, false},
		{&net.DNSError{IsTimeout: true}, false},
	} {
		if got := isUnanswered(&net.OpError{Op: "dial", Err: tt.err}); got != tt.want {
			t.Errorf("%v: %t", tt.err, got)
		}
	}

	for stderr, want := range map[string]bool{
		"channel 0: open failed: connect failed: Connection timed out": true,
		"channel 0: open failed: connect failed: No route to host":     true,
		"channel 0: open failed: connect failed: Connection refused":   false,
		"ssh: connect to host jump port 22: Connection timed out":      false,
		"stdio forwarding failed":                                      false,
	} {
		if got := isBeyond(stderr); got != want {
			t.Errorf("%s: %t", stderr, got)
		}
	}
}
