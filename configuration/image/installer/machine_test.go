// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/inventory/facts"
)

// TestMountAll mounts what the kernel has, and goes on after a failure.
func TestMountAll(t *testing.T) {
	t.Parallel()

	var kinds []string
	problems := mountAll(func(_, target, kind string, flags uintptr, _ string) error {
		kinds = append(kinds, kind+" "+target)
		if flags&unix.MS_NOSUID == 0 {
			t.Errorf("%s is mounted with set-user-id programs", target)
		}

		switch kind {
		case "sysfs":
			return unix.EPERM
		case "devtmpfs":
			return unix.EBUSY // the kernel has mounted it
		}
		return nil
	})

	if want := []string{"proc /proc", "sysfs /sys", "devtmpfs /dev", "tmpfs /run"}; !slices.Equal(kinds, want) {
		t.Errorf("mounted %q, not %q", kinds, want)
	}
	if got := texts(problems); !slices.Equal(got, []string{"cannot mount /sys: operation not permitted"}) {
		t.Errorf("problems: %q", got)
	}
}

// TestOpenConsole: a wrong console= costs the machine its console, and not its life.
func TestOpenConsole(t *testing.T) {
	t.Parallel()

	opened, err := os.Create(filepath.Join(t.TempDir(), "console"))
	errtest.None(t, err)
	defer opened.Close()

	for has, want := range map[string]*os.File{"/dev/console": opened, "/dev/tty0": opened, "": os.Stdout} {
		console, err := openConsole(func(name string) (*os.File, error) {
			if name != has {
				return nil, unix.ENODEV
			}
			return opened, nil
		})
		if console != want || (err == nil) != (has == "/dev/console") {
			t.Errorf("a machine with the console %q: %s, %v", has, console.Name(), err)
		}
	}
}

func TestParams(t *testing.T) {
	t.Parallel()

	for cmdline, want := range map[string]params{
		"":                                 {},
		"quiet clusterm.offline":           {},
		"console=ttyS0 clusterm.off\n":     {off: true},
		"BOOTIF=01-52-54-00-AA-00-0f":      {bootif: net.HardwareAddr{0x52, 0x54, 0, 0xaa, 0, 0x0f}},
		"x BOOTIF=52:54:00:aa:00:0f":       {bootif: net.HardwareAddr{0x52, 0x54, 0, 0xaa, 0, 0x0f}},
		"BOOTIF=eth0 BOOTIF=01- BOOTIF":    {},
		"BOOTIF=01-52-54-00-aa-00-0f-0f-0": {},
	} {
		got := parseParams(cmdline)
		if got.off != want.off || got.bootif.String() != want.bootif.String() {
			t.Errorf("%q: %+v", cmdline, got)
		}
	}
}

func TestChoose(t *testing.T) {
	t.Parallel()

	ports := []net.Interface{
		{Name: "lo"}, {Name: "eth0", HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1}},
		{Name: "eth1", HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 2}},
	}
	bootif := ports[1].HardwareAddr

	for _, c := range []struct {
		mac    string
		bootif net.HardwareAddr
		want   string
		kind   inventory.Kind
	}{
		{"02:00:00:00:00:02", nil, "eth1", ""},
		{"02:00:00:00:00:02", bootif, "eth1", ""}, // the order knows better
		{"", bootif, "eth0", ""},
		{"", nil, "", inventory.KindInvalid},
		{"02:00:00:00:00:03", bootif, "", inventory.KindNotFound},
	} {
		got, err := choose(ports, c.mac, c.bootif)
		if got.Name != c.want || inventory.KindOf(err) != c.kind {
			t.Errorf("%q, %s: %q, %v", c.mac, c.bootif, got.Name, err)
			continue
		}
		if c.kind == inventory.KindNotFound && !strings.Contains(err.Error(), "02:00:00:00:00:01, 02:00:00:00:00:02") {
			t.Errorf("the error does not name the ports: %v", err)
		}
	}
}

// TestAwaitCable: a machine without a link goes on once it has one, says what it waits for, and ends the wait.
func TestAwaitCable(t *testing.T) {
	t.Parallel()

	p := &port{Interface: net.Interface{Name: "eth0", HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1}}}

	for _, c := range []struct {
		after  int // pauses until there is a link
		says   int // that there is none
		linked bool
	}{{0, 1, true}, {cableRounds + 1, 2, true}, {1 << 30, cableLooks, false}} {
		var console strings.Builder

		pauses := 0
		pause := func() {
			if pauses++; pauses > cableLooks*cableRounds {
				t.Fatal("the wait has no end")
			}
		}

		if linked := awaitCable(&console, p, func() bool { return pauses >= c.after }, pause); linked != c.linked {
			t.Errorf("after %d pauses: %t", c.after, linked)
		}
		text := console.String()
		if n := strings.Count(text, "The network port eth0 (02:00:00:00:00:01) has no link"); n != c.says {
			t.Errorf("after %d pauses it says %d times what is missing:\n%s", c.after, n, text)
		}
	}

	pauses := 0
	if awaitLink(func() bool { return false }, func() { pauses++ }) || pauses != linkRounds {
		t.Errorf("a port without a link has one after %d pauses", pauses)
	}
}

func TestWriteResolver(t *testing.T) {
	t.Parallel()

	file := filepath.Join(t.TempDir(), "etc/resolv.conf")
	errtest.None(t, writeResolver(file, nil))

	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file without name servers: %v", err)
	}

	errtest.None(t, writeResolver(file, []netip.Addr{netip.MustParseAddr("10.9.1.2"), netip.MustParseAddr("fd00::2")}))

	if b, err := os.ReadFile(file); string(b) != "nameserver 10.9.1.2\nnameserver fd00::2\n" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestAnswerOf reads the answers of the kernel to requests.
func TestAnswerOf(t *testing.T) {
	t.Parallel()

	answer := func(kind uint16, number int32) []byte {
		return append(encode(unix.NlMsghdr{Len: 36, Type: kind}), encode(number)...)
	}

	if err := answerOf(answer(unix.NLMSG_ERROR, 0)); err != nil {
		t.Error(err)
	}
	if err := answerOf(answer(unix.NLMSG_ERROR, -int32(unix.ENETUNREACH))); !errors.Is(err, unix.ENETUNREACH) {
		t.Error(err)
	}

	for _, b := range [][]byte{nil, answer(unix.NLMSG_DONE, 0), answer(unix.NLMSG_ERROR, 0)[:18]} {
		if err := answerOf(b); err == nil {
			t.Errorf("%x is an answer", b)
		}
	}
}

// TestPrintFacts prints one document of JSON between its lines.
func TestPrintFacts(t *testing.T) {
	t.Parallel()

	var console strings.Builder
	errtest.None(t, printFacts(&console,
		facts.Facts{Schema: facts.Schema, Arch: "x86_64", Disks: []facts.Disk{{Name: "vda"}}}))

	text := strings.TrimSuffix(strings.TrimPrefix(console.String(), FactsBegin+"\n"), FactsEnd+"\n")

	var got facts.Facts
	if err := json.Unmarshal([]byte(text), &got); err != nil || len(got.Disks) != 1 || got.Arch != "x86_64" {
		t.Errorf("%v:\n%s", err, console.String())
	}
}

func TestSentence(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		"cannot mount /sys: not permitted": "Cannot mount /sys: not permitted.",
		"the port has no link; check it.":  "The port has no link; check it.",
		"":                                 "An error has no text.",
	} {
		if got := sentence(errors.New(text)); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// TestInitElsewhere expects that the program does nothing outside of the environment.
func TestInitElsewhere(t *testing.T) {
	t.Parallel()

	err := Init(func(context.Context, string) facts.Facts {
		t.Error("the facts are collected")
		return facts.Facts{}
	})
	if inventory.KindOf(err) != inventory.KindRefused {
		t.Error(err)
	}
}
