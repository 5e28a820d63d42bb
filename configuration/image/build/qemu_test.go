// SPDX-License-Identifier: Apache-2.0

package build_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/configuration/image/build"
	"github.com/contiv/cluster/inventory/errtest"
)

const (
	// bootTime bounds the time from the start of qemu to an answer by ssh: several times what it takes.
	bootTime   = 25 * time.Minute
	machineMAC = "52:54:00:77:00:0c"
	otherMAC   = "52:54:00:77:00:0d"
)

// asked is what the test runs on a machine. It prints the name of each answer.
const asked = `set -u
echo "name $(hostname)"
echo "user $(id -un) $(sudo -n id -un)"
echo "root $(findmnt -no FSTYPE /) $(($(findmnt -bno SIZE /) >> 30))"
echo "address $(ip -br addr | grep -c '10\.0\.2\.77/24')"
echo "route $(ip route show default)"
echo "dns $(resolvectl dns | grep -c '10\.0\.2\.3')"
echo "identity $(wc -c </etc/machine-id) $(ls /etc/ssh/ssh_host_ed25519_key)"
echo "locked $(sudo passwd -S root | cut -d' ' -f2)"
echo "agent $(stat -c %a,%U $(command -v clusterm))"
echo "firmware $([ -d /sys/firmware/efi ] && echo uefi || echo bios)"
echo "cloud $(cloud-init status --wait | grep -v '^\.*$' | head -1)"
echo "failed $(systemctl --failed --no-legend | wc -l)"
echo "took $(cut -d' ' -f1 /proc/uptime) $(systemd-analyze time | head -1)"
`

// TestQemuImage makes an image, and boots it on a larger disk with a seed, by BIOS and by UEFI.
func TestQemuImage(t *testing.T) {
	if os.Getenv("CLUSTERM_IMAGES") != "1" {
		t.Skip("needs qemu: run `make images`, or set CLUSTERM_IMAGES=1")
	}

	dir := t.TempDir()
	raw := filepath.Join(dir, "disk.raw")

	// One that is there saves minutes while the test is written.
	path := os.Getenv("CLUSTERM_IMAGE")
	if path == "" {
		agent, err := exec.LookPath("/bin/true") // instead of 80 MB
		errtest.None(t, err)
		o := build.Options{
			Suite: "bookworm", Arch: "amd64", Size: 2 << 30, Packages: []string{"lldpd"}, Agent: agent, Folder: dir,
		}
		errtest.None(t, o.Check())

		begun := time.Now()
		made, err := build.Make(
			t.Context(),
			o,
			func(text string) { t.Logf("%4.0f s: %s", time.Since(begun).Seconds(), text) },
		)
		errtest.None(t, err)
		t.Logf("%4.0f s: %d packages", time.Since(begun).Seconds(), made.Packages)
		path = made.Path
	}
	runs(t, "zstd", "-qdf", path, "-o", raw)

	key := filepath.Join(dir, "key")
	runs(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
	seed := seedDisk(t, dir, key+".pub")

	for firmware, options := range map[string][]string{
		"bios": nil,
		"uefi": {"-drive", "if=pflash,format=raw,readonly=on,file=/usr/share/OVMF/OVMF_CODE_4M.fd"},
	} {
		t.Run(firmware, func(t *testing.T) {
			disk := filepath.Join(t.TempDir(), "disk")
			runs(t, "cp", "--sparse=always", raw, disk)
			errtest.None(t, os.Truncate(disk, 5<<30))

			got := boots(t, disk, seed, key, options)
			for _, want := range []string{
				"name node-7\n", "user ops root\n", "root ext4 4\n", "address 1\n", "route default via 10.0.2.2 dev",
				"dns 1\n", "identity 33 /etc/ssh/ssh_host_ed25519_key\n", "locked L\n", "agent 755,root\n",
				"firmware " + firmware + "\n", "cloud status: done\n", "failed 0\n",
			} {
				if !strings.Contains(got, want) {
					t.Errorf("the answers lack %q", want)
				}
			}
			t.Logf("answers:\n%s", got)
		})
	}
}

// seedDisk makes the disk CIDATA: a host name, a user, and a network with a static address and a port without one.
func seedDisk(t *testing.T, dir, public string) string {
	t.Helper()

	key, err := os.ReadFile(public)
	errtest.None(t, err)

	seed := filepath.Join(dir, "seed")
	errtest.None(t, os.WriteFile(seed, nil, 0o600))
	errtest.None(t, os.Truncate(seed, 4<<20))
	runs(t, "mkfs.vfat", "-n", "CIDATA", seed)

	for name, content := range map[string]string{
		"meta-data": "instance-id: node-7\nlocal-hostname: node-7\n",
		"user-data": fmt.Sprintf(`#cloud-config
hostname: node-7
users:
- name: ops
  shell: /bin/bash
  sudo: ALL=(ALL) NOPASSWD:ALL
  ssh_authorized_keys: [ %q ]
`, strings.TrimSpace(string(key))),
		"network-config": `version: 2
ethernets:
  first:
    match: { macaddress: "` + machineMAC + `" }
    addresses: [ 10.0.2.77/24 ]
    gateway4: 10.0.2.2
    nameservers: { addresses: [ 10.0.2.3 ] }
`,
	} {
		file := filepath.Join(dir, name)
		errtest.None(t, os.WriteFile(file, []byte(content), 0o600))
		runs(t, "mcopy", "-i", seed, file, "::")
	}

	return seed
}

// boots starts a machine, and returns what it answers by ssh.
func boots(t *testing.T, disk, seed, key string, options []string) string {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), bootTime)
	defer cancel()

	free, err := net.Listen("tcp4", "127.0.0.1:0")
	errtest.None(t, err)
	_, port, err := net.SplitHostPort(free.Addr().String())
	errtest.None(t, err)
	errtest.None(t, free.Close())

	// Nothing of the machine leaves this host.
	var console bytes.Buffer
	machine := exec.CommandContext(ctx, "qemu-system-x86_64", append([]string{
		"-accel", "tcg", "-m", "768", "-smp", "2", "-nodefaults", "-display", "none", "-serial", "stdio",
		"-drive", "if=virtio,format=raw,file=" + disk, "-drive", "if=virtio,format=raw,readonly=on,file=" + seed,
		"-netdev", "user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:" + port + "-10.0.2.77:22",
		"-device", "virtio-net-pci,netdev=net,mac=" + machineMAC,
		"-device", "virtio-net-pci,mac=" + otherMAC,
	}, options...)...)
	machine.Stdout, machine.Stderr = &console, &console
	errtest.None(t, machine.Start())

	ended := make(chan error, 1)
	go func() { ended <- machine.Wait() }()

	defer func() {
		cancel()
		<-ended
		if t.Failed() {
			t.Logf("the console:\n%s", console.String())
		}
	}()

	for begun := time.Now(); ; {
		var refused bytes.Buffer
		ssh := exec.CommandContext(
			ctx,
			"ssh",
			"-F",
			"none",
			"-i",
			key,
			"-p",
			port,
			"-o",
			"StrictHostKeyChecking=no",
			"-o",
			"UserKnownHostsFile=/dev/null",
			"-o",
			"BatchMode=yes",
			"-o",
			"ConnectTimeout=20",
			"-o",
			"LogLevel=ERROR",
			"ops@127.0.0.1",
			"echo ready",
		)
		ssh.Stderr = &refused

		if out, err := ssh.Output(); err == nil && string(out) == "ready\n" {
			t.Logf("ssh answers %.0f s after the start of qemu", time.Since(begun).Seconds())

			ssh := exec.CommandContext(ctx, ssh.Path, append(ssh.Args[1:len(ssh.Args)-1], "sh")...)
			ssh.Stdin = strings.NewReader(asked)
			out, err := ssh.CombinedOutput()
			if err != nil {
				t.Errorf("the machine broke off: %v", err)
			}

			return string(out)
		}

		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			t.Errorf("no ssh: %s", refused.String())
			return ""
		case err := <-ended:
			ended <- err
			t.Errorf("qemu ended: %v", err)
			return ""
		}
	}
}

func runs(t *testing.T, name string, args ...string) {
	t.Helper()

	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}
