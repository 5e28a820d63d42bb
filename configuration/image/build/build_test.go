// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

func TestParsePackages(t *testing.T) {
	t.Parallel()

	got, err := ParsePackages([]byte("# ours\nlldpd\n\n  g++ # to build\r\nlibstdc++6"))
	if want := []string{"lldpd", "g++", "libstdc++6"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}

	for _, list := range []string{"Lldpd", "a,b", "--keyring=x", "a b", "?true", "x", strings.Repeat("aa\n", 1001)} {
		if got, err := ParsePackages([]byte(list)); err == nil {
			t.Errorf("%.20q is the list %.3q", list, got)
		}
	}
}

// options are those of an image without an agent.
func options(t *testing.T) Options {
	t.Helper()
	return Options{
		Suite: "bookworm", Arch: runtime.GOARCH, Size: MinSize, Folder: t.TempDir(),
		Mirrors: []string{"http://127.0.0.1:9/debian"},
	}
}

// TestCheckRefuses: what is wrong is named before the machine is looked at.
func TestCheckRefuses(t *testing.T) {
	t.Parallel()

	for want, change := range map[string]func(o *Options){
		"is no suite":             func(o *Options) { o.Suite = "-x" },
		"cannot be made":          func(o *Options) { o.Size = 1 << 20 },
		"is no name of a package": func(o *Options) { o.Packages = []string{"-o"} },
		`"--x" is no mirror`:      func(o *Options) { o.Mirrors = []string{"--x"} },
		`"http://a\n`:             func(o *Options) { o.Mirrors = []string{"http://a\ndeb http://b c main"} },
		"makes no images":         func(o *Options) { o.Arch = "riscv64" },
		"cannot read the agent":   func(o *Options) { o.Agent = "build.sh" },
	} {
		o := options(t)
		change(&o)

		err := o.Check()
		if e, ok := errors.AsType[*inventory.Error](err); !ok || !strings.Contains(e.Message, want) || e.Remedy == "" {
			t.Errorf("%s: %v", want, err)
		}
	}

	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	if err := checkAgent("/proc/self/exe", other); inventory.KindOf(err) != inventory.KindInvalid {
		t.Errorf("a program for another architecture: %v", err)
	}
	errtest.None(t, checkAgent("/proc/self/exe", runtime.GOARCH))

	for _, m := range []string{"http://a/debian", "deb [trusted=yes arch=amd64] file:/srv/apt bookworm main contrib"} {
		if !mirrorForm.MatchString(m) {
			t.Errorf("%s is no mirror", m)
		}
	}
}

// TestCheckHost names all that is missing, with the command that installs it.
func TestCheckHost(t *testing.T) {
	t.Parallel()

	lacks := func(names ...string) func(string) bool {
		return func(name string) bool { return !slices.Contains(names, name) }
	}

	for _, c := range []struct {
		uid    int
		has    func(string) bool
		remedy string
	}{
		{0, lacks("apt-get"), "make images on a machine with Debian"},
		{1000, lacks("zstd", "losetup", "mount", keyring), "apt install debian-archive-keyring mount zstd"},
		{1000, lacks(), "repeat the command with sudo"},
	} {
		e, _ := errors.AsType[*inventory.Error](checkHost(c.uid, c.has))
		if e == nil || e.Remedy != c.remedy {
			t.Errorf("want %q: %+v", c.remedy, e)
		}
	}
	errtest.None(t, checkHost(0, lacks()))

	if !lookPath("sh") || lookPath("no-such-program") || lookPath("/no/such/file") {
		t.Error("programs are not found as they are")
	}
}

func TestFailure(t *testing.T) {
	t.Parallel()

	for log, want := range map[string]string{
		"E: Unable to locate package lldpdd\nE: more":           "there is no package lldpdd in bookworm",
		"E: Package 'foo' has no installation candidate":        "there is no package foo in bookworm",
		"dpkg: error: No space left on device":                  "the packages do not fit",
		"build: apt of this machine knows no archive of Debian": "knows no archive",
		"E: connection refused":                                 "the build of the image failed (exit status 1)",
	} {
		e, _ := errors.AsType[*inventory.Error](failure(log, Options{Suite: "bookworm"}, errors.New("exit status 1")))
		if e == nil || !strings.Contains(e.Message, want) || e.Remedy == "" {
			t.Errorf("%s: %+v", log, e)
		}
	}
}

// TestTail bounds the log.
func TestTail(t *testing.T) {
	t.Parallel()

	var log tail
	for range 100 {
		_, err := log.Write(bytes.Repeat([]byte("0123456789\n"), 100))
		errtest.None(t, err)
	}
	_, err := log.Write(append(bytes.Repeat([]byte("x"), 2*logEnd), "\nlast but one\nlast\n"...))
	errtest.None(t, err)

	if log.Len() != logEnd || log.last(2) != "last but one\nlast" {
		t.Errorf("%d bytes, %q", log.Len(), log.last(2))
	}
}

// TestLeavesNothing ends builds while the disk is mounted. A shell function has the place of mmdebstrap.
func TestLeavesNothing(t *testing.T) {
	t.Parallel()

	if err := checkHost(os.Geteuid(), lookPath); err != nil {
		t.Skipf("%v: install the packages of vagrant/deps, and run it as root", err)
	}

	const mounted = "mmdebstrap() { findmnt -no FSTYPE root >&3; "

	for name, c := range map[string]struct {
		instead string
		cancel  bool
		want    string
	}{
		"failed": {
			mounted + "echo 'E: Unable to locate package nosuch'; return 100; }\n", false, "no package nosuch",
		},
		"cancelled": {mounted + "(trap '' TERM INT; sleep 600) & wait; }\n", true, "canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()

			o, said := options(t), []string{}
			folder := o.Folder
			here, err := os.Getwd()
			errtest.None(t, err)
			o.Folder, err = filepath.Rel(here, folder) // as --save FILE has it
			errtest.None(t, err)

			_, err = makeBy(ctx, c.instead+script, o, func(text string) {
				if said = append(said, text); text == "ext4" && c.cancel {
					cancel()
				}
			})

			if !slices.Contains(said, "ext4") || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, after %q", err, said)
			}

			if left, _ := os.ReadDir(folder); len(left) > 0 {
				t.Errorf("it leaves %v", left)
			}
			if mounts, err := os.ReadFile(
				"/proc/self/mountinfo",
			); err != nil ||
				strings.Contains(string(mounts), folder) {
				t.Errorf("it leaves a mount: %v", err)
			}

			awaitNoLoop(t, folder)
		})
	}
}

// awaitNoLoop expects that no loop device has a file in the folder. The kernel removes the last mount a moment after
// the process.
func awaitNoLoop(t *testing.T, folder string) {
	t.Helper()

	tick, end := time.NewTicker(20*time.Millisecond), time.After(10*time.Second)
	defer tick.Stop()

	for {
		devices, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
		errtest.None(t, err)

		left := slices.IndexFunc(devices, func(file string) bool {
			name, err := os.ReadFile(file)
			return err == nil && strings.Contains(string(name), folder)
		})
		if left < 0 {
			return
		}

		select {
		case <-tick.C:
		case <-end:
			// The failure of the test leaves it neither.
			device := strings.Split(devices[left], "/")[3]
			err := exec.CommandContext(t.Context(), "losetup", "--detach", "/dev/"+device).Run()
			t.Fatalf("it leaves the loop device %s, which is removed now (%v)", device, err)
		}
	}
}

// TestSave replaces no file.
func TestSave(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	i := &Image{Path: filepath.Join(dir, "image.zst")}
	errtest.None(t, os.WriteFile(i.Path, []byte("x"), 0o600))
	errtest.None(t, i.Save(filepath.Join(dir, "file")))

	if err := i.Save(filepath.Join(dir, "file")); inventory.KindOf(err) != inventory.KindRefused {
		t.Errorf("it replaces a file: %v", err)
	}
}
