// SPDX-License-Identifier: Apache-2.0

package ansible_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/contiv/cluster/ansible"
	"github.com/contiv/cluster/inventory/errtest"
)

const (
	mib      = 1 << 20
	diskSize = 96 * mib
)

// loop is a disk in a file. Nothing else is ever handed to the script for an erasure.
type loop struct{ path, file string }

// newLoop returns a disk with random data and one partition, from 16 MiB to 48 MiB.
func newLoop(t *testing.T) loop {
	t.Helper()

	if os.Getuid() != 0 {
		t.Skip("needs root for a loop device")
	}

	data := make([]byte, diskSize)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data)

	l := loop{file: filepath.Join(t.TempDir(), "disk")}
	errtest.None(t, os.WriteFile(l.file, data, 0o600))

	out, err := command(t, "losetup", "--find", "--show", "--partscan", l.file).CombinedOutput()
	if err != nil {
		t.Skipf("no loop device here: %s", out)
	}

	l.path = strings.TrimSpace(string(out))
	t.Cleanup(func() { _ = exec.Command("losetup", "--detach", l.path).Run() })

	// Not every kernel reads partition tables, so it is told.
	run(t, "addpart", l.path, "1", strconv.Itoa(16*mib/512), strconv.Itoa(32*mib/512))

	return l
}

// sum returns a digest of the disk.
func (l loop) sum(t *testing.T) string {
	t.Helper()
	errtest.None(t, exec.Command("blockdev", "--flushbufs", l.path).Run())

	data, err := os.ReadFile(l.file)
	errtest.None(t, err)
	sum := sha256.Sum256(data)

	return hex.EncodeToString(sum[:])
}

// zeros returns the number of the bytes that are zero, from and to in bytes.
func (l loop) zeros(t *testing.T, from, to int) int {
	t.Helper()

	data, err := os.ReadFile(l.file)
	errtest.None(t, err)

	return bytes.Count(data[from:to], []byte{0})
}

// partition returns the device of the first partition.
func (l loop) partition(t *testing.T) string {
	t.Helper()

	// Where no udev makes the device, the kernel knows it all the same.
	name := filepath.Base(l.path) + "p1"
	dev, err := os.ReadFile("/sys/class/block/" + name + "/dev")
	errtest.None(t, err)

	path := filepath.Join(t.TempDir(), name)
	major, minor, _ := strings.Cut(strings.TrimSpace(string(dev)), ":")
	run(t, "mknod", path, "b", major, minor)

	return path
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := command(t, name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

// disks runs the script on loop devices of the test, or looks at all disks.
func disks(t *testing.T, what string, on ...loop) (string, error) {
	t.Helper()

	args := []string{filepath.Join(playbooks(t), ansible.RolesDir, "clean/files/disks.py"), what}
	for _, l := range on {
		if !strings.HasPrefix(l.path, "/dev/loop") {
			t.Fatalf("%q is no loop device", l.path)
		}
		args = append(args, l.path)
	}
	if what != "look" && len(on) == 0 {
		t.Fatal("no disk is named")
	}

	out, err := command(t, "python3", args...).CombinedOutput()

	return string(out), err
}

// wantRefused expects that the disk is not erased, and not changed, because of why.
func wantRefused(t *testing.T, l loop, why string) {
	t.Helper()

	before := l.sum(t)

	if out, _ := disks(t, "look", l); !strings.HasPrefix(out, "refused "+l.path+": ") || !strings.Contains(out, why) {
		t.Errorf("look says %q, want a refusal: %s", out, why)
	}

	for _, how := range []string{"metadata", "full"} {
		if out, err := disks(t, how, l); err == nil || !strings.HasPrefix(out, "failed "+l.path+": ") {
			t.Errorf("%s: %v %q", how, err, out)
		}
	}

	if l.sum(t) != before {
		t.Error("the disk has changed")
	}
}

// TestEraseMetadata: both ends of the disk and of its partition are zero, and the rest is as before.
func TestEraseMetadata(t *testing.T) {
	l := newLoop(t)
	run(t, "mkfs.ext4", "-q", l.partition(t))

	before, err := os.ReadFile(l.file)
	errtest.None(t, err)

	if out, err := disks(t, "look", l); err != nil || out != fmt.Sprintf("erase %s 100.7 MB\n", l.path) {
		t.Errorf("look: %v %q", err, out)
	}

	if out, err := disks(t, "metadata", l); err != nil || out != "erased "+l.path+"\n" {
		t.Fatalf("metadata: %v %q", err, out)
	}

	for _, r := range [][2]int{{0, 8}, {16, 24}, {40, 48}, {88, 96}} {
		if n := l.zeros(t, r[0]*mib, r[1]*mib); n != (r[1]-r[0])*mib {
			t.Errorf("%d bytes are zero from %d to %d MiB", n, r[0], r[1])
		}
	}

	after, err := os.ReadFile(l.file)
	errtest.None(t, err)

	for _, r := range [][2]int{{8, 16}, {24, 40}, {48, 88}} {
		if !bytes.Equal(before[r[0]*mib:r[1]*mib], after[r[0]*mib:r[1]*mib]) {
			t.Errorf("changed from %d to %d MiB", r[0], r[1])
		}
	}

	if out, _ := command(t, "wipefs", "--no-act", l.path).CombinedOutput(); len(out) > 0 {
		t.Errorf("signatures are left:\n%s", out)
	}
}

// TestEraseFull: every byte is zero.
func TestEraseFull(t *testing.T) {
	l := newLoop(t)

	if out, err := disks(t, "full", l); err != nil || out != "erased "+l.path+"\n" {
		t.Fatalf("%v %q", err, out)
	}
	if n := l.zeros(t, 0, diskSize); n != diskSize {
		t.Errorf("%d of %d bytes are zero", n, diskSize)
	}
}

// TestEraseRefusesDisksInUse: a disk in use stays as it is, however it is used.
func TestEraseRefusesDisksInUse(t *testing.T) {
	mount := func(t *testing.T, device string) {
		t.Helper()
		run(t, "mkfs.ext4", "-q", device)

		at := t.TempDir()
		run(t, "mount", "-o", "ro", device, at) // a file system changes by itself
		t.Cleanup(func() { _ = exec.Command("umount", at).Run() })
	}

	t.Run("mounted", func(t *testing.T) {
		l := newLoop(t)
		run(t, "wipefs", "--all", "--quiet", l.path)
		mount(t, l.path)
		wantRefused(t, l, "mounted at ")
	})

	t.Run("a mounted partition", func(t *testing.T) {
		l := newLoop(t)
		mount(t, l.partition(t))
		wantRefused(t, l, "p1 is mounted at ")
	})

	t.Run("open", func(t *testing.T) {
		l := newLoop(t)

		f, err := os.Open(l.path)
		errtest.None(t, err)
		t.Cleanup(func() { _ = f.Close() })

		wantRefused(t, l, "open by ")
	})

	t.Run("in another mount namespace", func(t *testing.T) {
		l := newLoop(t)
		run(t, "mkfs.ext4", "-q", l.partition(t))

		// The namespace lives as long as its process, which ends with its input.
		at := t.TempDir()
		holder := command(t, "unshare", "--mount", "sh", "-c", `mount -o ro "$0" "$1" && echo mounted && cat`,
			l.partition(t), at)

		in, err := holder.StdinPipe()
		errtest.None(t, err)
		out, err := holder.StdoutPipe()
		errtest.None(t, err)
		errtest.None(t, holder.Start())
		t.Cleanup(func() {
			_ = in.Close()
			_ = holder.Wait()
		})

		if _, err := out.Read(make([]byte, 64)); err != nil {
			t.Skip("no mount namespaces here")
		}

		wantRefused(t, l, "is mounted at "+at)
	})

	t.Run("a part of an active device", func(t *testing.T) {
		l := newLoop(t)

		// A device that nothing uses, as of a former RAID.
		name := "clusterm-test-" + filepath.Base(l.path)
		if out, err := command(t, "dmsetup", "create", name, "--table", "0 2048 linear "+l.path+" 0").
			CombinedOutput(); err != nil {
			t.Skipf("no device mapper here: %s", out)
		}
		t.Cleanup(func() { _ = exec.Command("dmsetup", "remove", "--retry", name).Run() })

		wantRefused(t, l, "which is active although nothing uses it")
	})

	t.Run("a partition", func(t *testing.T) {
		l := newLoop(t)
		l.path += "p1"

		if _, err := os.Stat(l.path); err != nil {
			t.Skip("there is no udev that makes the devices of partitions")
		}
		if out, err := disks(t, "metadata", l); err == nil || !strings.Contains(out, "is a partition; name the disk") {
			t.Errorf("%v %q", err, out)
		}
	})
}

// TestDisksOfThisMachine: what is mounted here is never among the disks to erase. It only looks.
func TestDisksOfThisMachine(t *testing.T) {
	out, err := disks(t, "look")
	errtest.None(t, err)

	found, err := command(t, "findmnt", "--noheadings", "--output", "SOURCE", "/").Output()
	errtest.None(t, err)

	root, err := command(t, "lsblk", "--noheadings", "--inverse", "--nodeps", "--output", "PKNAME,NAME",
		strings.TrimSpace(string(found))).Output()
	if err != nil {
		t.Skipf("the root of this machine is on no disk: %s", found)
	}

	name := strings.Fields(string(root))[0]
	if !strings.Contains(out, "keep /dev/"+name+": ") || strings.Contains(out, "erase /dev/"+name+" ") {
		t.Errorf("the root is on %s, and the disks are\n%s", name, out)
	}
}

// TestErasePlaybook: the playbook names the disks, refuses one in use before it erases any other, and erases the named
// ones.
func TestErasePlaybook(t *testing.T) {
	free, used := newLoop(t), newLoop(t)

	f, err := os.Open(used.path)
	errtest.None(t, err)
	t.Cleanup(func() { _ = f.Close() })

	play := func(on ...loop) (string, error) {
		var list []string
		for _, l := range on {
			list = append(list, fmt.Sprintf("%q", l.path))
		}

		cmd := command(t, "ansible-playbook", "-i", "job_targets,", "-c", "local", "-e",
			fmt.Sprintf(`{"clean_disks": [%s], "clusterm_erase": "metadata"}`, strings.Join(list, ",")), "erase.yml")
		cmd.Dir = playbooks(t)
		out, err := cmd.CombinedOutput()

		return string(out), err
	}

	before := free.sum(t)

	out, err := play(free, used)
	if err == nil || !strings.Contains(out, "Nothing was erased: "+used.path+": open by ") {
		t.Errorf("%v\n%s", err, out)
	}
	if free.sum(t) != before {
		t.Error("a disk was erased although another one is in use")
	}

	out, err = play(free)
	if named := strings.Index(out, "erase "+free.path+" 100.7 MB"); err != nil || named < 0 ||
		named > strings.Index(out, "Erase the disks") {
		t.Errorf("%v\n%s", err, out)
	}
	if n := free.zeros(t, 0, 8*mib); n != 8*mib {
		t.Errorf("%d bytes are zero", n)
	}
}

// TestLeft: the script of the role clean names what is there, and nothing else.
func TestLeft(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"etc/clusterm", "etc/clusterm-dns"} {
		errtest.None(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}

	for name, text := range map[string]string{
		"etc/clusterm/node.json": "{}", "etc/hosts": "127.0.0.1 localhost\n# BEGIN clusterm\n# END clusterm\n",
	} {
		errtest.None(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
	}

	script, err := os.ReadFile("roles/clean/files/left.sh")
	errtest.None(t, err)

	look := func() string {
		cmd := exec.Command("sh", "-c", string(script), "left",
			"/etc/clusterm/node.json", "/etc/sysctl.d/60-clusterm.conf", "/etc/clusterm-dns",
			"--", "clusterm-none.service")
		cmd.Env = append(os.Environ(), "ROOT="+root)
		out, err := cmd.CombinedOutput()
		errtest.None(t, err)

		return string(out)
	}

	const want = "/etc/clusterm/node.json\n/etc/clusterm-dns\n/etc/hosts (a block of clusterm)\n"
	if got := look(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}

	errtest.None(t, os.RemoveAll(root))
	if got := look(); got != "" {
		t.Errorf("got %q of an empty host", got)
	}
}
