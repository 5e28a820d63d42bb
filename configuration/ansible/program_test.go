// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory/errtest"
)

// packed compresses a script as a program.
func packed(t *testing.T, script string) []byte {
	t.Helper()

	var b bytes.Buffer

	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(script))
	errtest.None(t, err)
	errtest.None(t, w.Close())

	return b.Bytes()
}

// TestRunProgram sends programs to a host that is this machine, behind an ssh without a network.
func TestRunProgram(t *testing.T) {
	t.Parallel()

	var uname unix.Utsname
	errtest.None(t, unix.Uname(&uname))

	here := unix.ByteSliceToString(uname.Machine[:])

	for name, tt := range map[string]struct {
		script  string // the program
		first   string // the architecture that is tried first; empty: that of this machine
		ssh     string // in place of ssh, before it runs the line; empty: only a greeting
		want    string
		problem string
		reached bool
		asked   string // the architectures for which there was a program to send
	}{
		"a program": {
			script: "#!/bin/sh\necho '{\"a\":1}'\n", want: "{\"a\":1}\n", reached: true, asked: here,
		},
		"another architecture first": {
			script: "#!/bin/sh\necho yes\n", first: "pdp11", want: "yes\n", reached: true, asked: "pdp11 " + here,
		},
		"a program that fails": {
			script: "#!/bin/sh\necho some; echo 'no \033[2Jway' >&2; exit 7\n", problem: "exit status 7: no ?[2Jway",
			reached: true, asked: here,
		},
		"too much": {
			script: "#!/bin/sh\nyes | head -c 300000\n", problem: "more than 1000 bytes", reached: true, asked: here,
		},
		"a little too much": {
			script: "#!/bin/sh\nyes | head -c 1001\n", problem: "something else", reached: true, asked: here,
		},
		"no login": {
			script: "#!/bin/sh\n", ssh: "echo 'root@h: Permission denied (publickey).' >&2; exit 255",
			problem: "denied", asked: here,
		},
		"something else": {
			script: "#!/bin/sh\n", ssh: "echo hello; exit 0", problem: "something else", reached: true, asked: here,
		},
		"a liar": {
			script: "#!/bin/sh\n", ssh: "echo clusterm-program arch vax; exit 0", reached: true, asked: here + " vax",
			problem: "by turns",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			dir := t.TempDir()
			h := host(serve(t, "SSH-2.0-x\r\n"))

			p := &Prober{Dir: filepath.Join(t.TempDir(), "p"), SSH: fakeSSH(t, tt.ssh+"\nfor line; do :; done\n"+
				"echo 'Welcome'\nexport TMPDIR='"+dir+"'\nsh -c \"$line\"")}

			var asked []string

			program := configuration.Program{Limit: 1000, Arch: tt.first, For: func(arch string) ([]byte, error) {
				asked = append(asked, arch)
				return packed(t, tt.script), nil
			}}
			if program.Arch == "" {
				program.Arch = here
			}

			out, r, err := p.RunProgram(t.Context(), h, program)

			if string(out) != tt.want || (err == nil) != (tt.problem == "") || r.OK() != tt.reached {
				t.Errorf("%q, %+v, %v", out, r, err)
			}

			if err != nil && !strings.Contains(err.Error(), tt.problem) {
				t.Errorf("%v, want %q", err, tt.problem)
			}

			if got := strings.Join(asked, " "); got != tt.asked {
				t.Errorf("asked for programs for %q, want %q", got, tt.asked)
			}

			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("left on the host: %v, %v", left, err)
			}
		})
	}
}

// TestRunProgramBecomes: the program runs as the account of the plays.
func TestRunProgramBecomes(t *testing.T) {
	t.Parallel()

	become := true
	h := host(serve(t, "SSH-2.0-x\r\n"))
	h.Connection.Become, h.Connection.BecomeUser = &become, "probe"

	p := &Prober{Dir: t.TempDir(), SSH: fakeSSH(t,
		"for line; do :; done\nprintf '%s' \"$line\" | head -1 >&2; exit 3")}

	_, _, err := p.RunProgram(t.Context(), h, configuration.Program{
		Limit: 10, For: func(string) ([]byte, error) { return nil, nil },
	})
	if err == nil || !strings.Contains(err.Error(), "exit status 3: sudo -n -u probe sh -c ") {
		t.Errorf("%v", err)
	}
}

// TestRunProgramWithout: nothing is tried on a host for which there is no program.
func TestRunProgramWithout(t *testing.T) {
	t.Parallel()

	p := &Prober{Dir: t.TempDir(), SSH: fakeSSH(t, "exit 0")}
	none := errors.New("there is none")

	_, _, err := p.RunProgram(t.Context(), host(serve(t, "SSH-2.0-x\r\n")), configuration.Program{
		For: func(string) ([]byte, error) { return nil, none },
	})
	if !errors.Is(err, none) {
		t.Errorf("%v", err)
	}

	_, r, err := p.RunProgram(t.Context(), configuration.Host{
		Name: "a", Addr: "127.0.0.1", Connection: configuration.Connection{Port: 1},
	}, configuration.Program{})
	if err == nil || r.OK() || !r.Silent {
		t.Errorf("%+v, %v", r, err)
	}
}
