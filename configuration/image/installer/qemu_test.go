// SPDX-License-Identifier: Apache-2.0

package installer_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/configuration/image/installer"
	"github.com/contiv/cluster/configuration/image/installer/report"
	"github.com/contiv/cluster/configuration/image/kernel"
	"github.com/contiv/cluster/configuration/image/program"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/inventory/facts"
)

// kernelPackage is where vagrant/deps puts a kernel package of Debian.
const kernelPackage = "../../../bin/linux-image.deb"

// bootTime bounds the life of a machine: several times what it takes.
const bootTime = 3 * time.Minute

// The machine of the tests.
const (
	machineMAC  = "52:54:00:77:00:0a"
	otherMAC    = "52:54:00:77:00:0b"
	diskSize    = 96 << 20 // bytes
	diskSerial  = "clusterm-0001"
	scsiSize    = 160 << 20 // bytes
	scsiSerial  = "clusterm-0002"
	scsiWWN     = "0x5000c500deadbe01"
	machineUUID = "5b1c2c5e-3c1f-4a26-9c44-0f4f6b1d7c11"
)

// TestQemuFacts boots a machine with an order, and compares its facts with the command line of qemu, and its network
// with the frames that it sends.
func TestQemuFacts(t *testing.T) {
	t.Parallel()

	m := boot(t, `{"interface": {"mac": "`+machineMAC+`", "address": "10.9.1.100/24", "gateway": "10.9.1.1"}}`, nil)
	got := m.facts(t)

	if got.System.UUID != machineUUID || got.Arch != "x86_64" || got.CPU.Threads != 2 ||
		got.Firmware.BootMode != facts.BIOS {
		t.Errorf("not the machine that was started: %+v, %+v, %+v", got.System, got.CPU, got.Firmware)
	}

	serials := map[string]int{}
	for _, d := range got.Disks {
		serials[d.Serial] = d.SizeBytes
	}
	if want := map[string]int{diskSerial: diskSize, scsiSerial: scsiSize}; !maps.Equal(serials, want) {
		t.Errorf("not the disks %v that it has: %+v", want, got.Disks)
	}

	ports := map[string]facts.Interface{}
	for _, p := range got.Interfaces {
		ports[p.MAC] = p
	}
	wired, other := ports[machineMAC], ports[otherMAC]
	if len(got.Interfaces) != 2 || !wired.Carrier || wired.PCI == "" || other.MAC == "" {
		t.Errorf("not the two network ports that it has: %+v", got.Interfaces)
	}

	if len(got.Problems) > 0 {
		t.Errorf("the collector has problems: %q", got.Problems)
	}

	m.waits(t)
	m.testNetwork(t)
}

// TestQemuBOOTIF boots a machine whose port is named by the firmware alone.
func TestQemuBOOTIF(t *testing.T) {
	t.Parallel()

	m := boot(t, `{"interface": {"address": "10.9.1.100/24", "gateway": "10.9.1.1"}}`, nil,
		"BOOTIF=01-"+strings.ReplaceAll(machineMAC, ":", "-"))
	m.facts(t)
	m.waits(t)
	m.testNetwork(t)
}

// TestQemuProblems boots a machine with a wrong order, and modules that cannot be loaded. It prints the facts, too.
func TestQemuProblems(t *testing.T) {
	t.Parallel()

	m := boot(t, `{"interface": {"addr": "10.9.1.100/24"}}`, func(index *kernel.Index) {
		hollow := kernel.Module{Name: "hollow", Path: "lib/none.ko", Aliases: []string{"virtio:*"}}
		lost := hollow
		lost.Name, lost.Depends = "lost", []string{"nowhere"}
		index.Modules = append(index.Modules, lost, hollow)
	}, "clusterm.off")

	if got := m.facts(t); len(got.Disks) != 2 {
		t.Errorf("the problems cost the facts: %+v", got)
	}
	m.endsOff(t)

	for _, want := range []string{
		"Cannot load the module lost: it needs nowhere, which the environment lacks.",
		"Cannot load the module hollow: open /lib/none.ko: no such file or directory.",
		`Invalid order in boot.json: unknown field "addr"`,
	} {
		if !strings.Contains(m.text.String(), want) {
			t.Errorf("the console lacks %q:\n%s", want, m.text.String())
		}
	}
}

// TestQemuReports boots a machine that reports its facts, and is told to switch off. In the network of qemu, 10.0.2.2
// is the loopback of this host; without a gateway the machine gets no further.
func TestQemuReports(t *testing.T) {
	t.Parallel()

	received := make(chan report.Message, 9)
	manager := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var got report.Message
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil || r.URL.Path != "/boot" ||
			r.Header.Get("Authorization") != "Bearer 0123456789abcdef" {
			t.Errorf("%s by %q: %v", r.URL, r.Header.Get("Authorization"), err)
		}
		received <- got

		answer := report.Answer{Then: report.Continue}
		if got.Stage == report.Facts {
			answer.Then = report.Off
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(manager.Close)

	_, port, err := net.SplitHostPort(manager.Listener.Addr().String())
	errtest.None(t, err)

	m := bootAt(t, "user,id=other,ipv6=off", `{"interface": {"mac": "`+otherMAC+`", "address": "10.0.2.15/24"},
		"report": {"url": "http://10.0.2.2:`+port+`/boot", "token": "0123456789abcdef"}}`, nil)
	m.endsOff(t)

	if len(received) != 2 {
		t.Fatalf("%d messages", len(received))
	}
	if got := <-received; got.Stage != report.Started || len(got.Problems) > 0 {
		t.Errorf("not the start: %+v", got)
	}
	if got := <-received; got.Stage != report.Facts || got.Facts == nil || got.Facts.System.UUID != machineUUID ||
		len(got.Facts.Disks) != 2 {
		t.Errorf("not the facts: %+v", got)
	}
}

// machine is one of qemu.
type machine struct {
	console *bufio.Reader
	text    strings.Builder // of the console so far
	begun   time.Time
	wire    net.Conn // the other end of its first network port
	end     func() error
}

// boot starts a machine that boots the environment with an order.
func boot(t *testing.T, order string, edit func(*kernel.Index), params ...string) *machine {
	t.Helper()
	return bootAt(t, "hubport,id=other,hubid=0", order, edit, params...)
}

// bootAt starts a machine whose second network port is at a network of qemu with the id other.
func bootAt(t *testing.T, network, order string, edit func(*kernel.Index), params ...string) *machine {
	t.Helper()

	if os.Getenv("CLUSTERM_IMAGES") != "1" {
		t.Skip("needs qemu: run `make images`, or set CLUSTERM_IMAGES=1")
	}

	dir := t.TempDir()
	vmlinuz, initrd := environment(t, dir, order, edit)

	disk := func(name string, size int64) string {
		path := filepath.Join(dir, name)
		errtest.None(t, os.WriteFile(path, nil, 0o600))
		errtest.None(t, os.Truncate(path, size))

		return "if=none,format=raw,id=" + name + ",file=" + path
	}

	// The first port is a wire to this process.
	wire, err := net.Listen("tcp4", "127.0.0.1:0")
	errtest.None(t, err)
	t.Cleanup(func() { wire.Close() })

	ctx, cancel := context.WithTimeout(context.Background(), bootTime)
	t.Cleanup(cancel)

	out, in := io.Pipe()
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", "-accel", "tcg", "-m", "512", "-smp", "2",
		"-uuid", machineUUID, "-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot",
		"-kernel", vmlinuz, "-initrd", initrd,
		"-append", strings.Join(append(params, "console=ttyS0", "panic=5"), " "),
		"-drive", disk("one", diskSize), "-device", "virtio-blk-pci,drive=one,serial="+diskSerial,
		"-drive", disk("two", scsiSize), "-device", "virtio-scsi-pci",
		"-device", "scsi-hd,drive=two,serial="+scsiSerial+",wwn="+scsiWWN,
		"-netdev", "socket,id=wire,connect="+wire.Addr().String(),
		"-device", "virtio-net-pci,netdev=wire,mac="+machineMAC,
		"-netdev", network, "-device", "virtio-net-pci,netdev=other,mac="+otherMAC)
	cmd.Stdout, cmd.Stderr = in, in

	m := &machine{console: bufio.NewReader(out), begun: time.Now()}
	errtest.None(t, cmd.Start())

	ended := make(chan error, 1)
	go func() {
		ended <- cmd.Wait()
		in.Close()
	}()
	m.end = func() error { return <-ended }

	t.Cleanup(func() {
		cancel()
		out.Close()

		if t.Failed() {
			t.Logf("the console:\n%s", m.text.String())
		}
	})

	m.wire, err = wire.Accept()
	errtest.None(t, err)
	t.Cleanup(func() { m.wire.Close() })
	errtest.None(t, m.wire.SetDeadline(m.begun.Add(bootTime)))

	return m
}

// line returns the next line of the console, without its end.
func (m *machine) line() (string, error) {
	line, err := m.console.ReadString('\n')
	m.text.WriteString(line)

	return strings.TrimRight(line, "\r\n"), err
}

// facts reads the console up to the end of the facts.
func (m *machine) facts(t *testing.T) facts.Facts {
	t.Helper()

	var (
		got    facts.Facts
		text   strings.Builder
		within bool
	)

	for {
		line, err := m.line()
		if err != nil {
			t.Fatalf("the machine ended without its facts: %v", err)
		}

		switch {
		case line == installer.FactsBegin:
			within = true
		case line == installer.FactsEnd:
			t.Logf("the facts came %.1f s after the start of qemu", time.Since(m.begun).Seconds())
			errtest.None(t, json.Unmarshal([]byte(text.String()), &got))

			return got
		case within:
			text.WriteString(line)
		}
	}
}

// waits expects that the machine waits for a person.
func (m *machine) waits(t *testing.T) {
	t.Helper()

	line, err := m.line()
	if err != nil || !strings.HasPrefix(line, "clusterm-boot: These are the facts of this machine.") {
		t.Errorf("the machine does not wait: %q (%v)", line, err)
	}
}

// endsOff reads the rest of the console, and expects that the machine switches off by itself.
func (m *machine) endsOff(t *testing.T) {
	t.Helper()

	for {
		if _, err := m.line(); err != nil {
			break
		}
	}

	if err := m.end(); err != nil {
		t.Errorf("the machine did not switch off: %v", err)
	}
	if strings.Contains(m.text.String(), "Kernel panic") {
		t.Error("the kernel panicked")
	}
}

// testNetwork asks the machine as its neighbour. It must have its address at the right port, and send through its
// gateway what is for others.
func (m *machine) testNetwork(t *testing.T) {
	t.Helper()

	const (
		neighbour = "02000000000a" + "0a090102" // hardware address, 10.9.1.2
		unknown   = "000000000000"
		target    = "0a090164" // 10.9.1.100
		gateway   = "0a090101" // 10.9.1.1
	)

	self := strings.ReplaceAll(machineMAC, ":", "")

	// Who has 10.9.1.100? And an echo request from 192.0.2.7, whose answer has another way.
	m.send(t, "ffffffffffff"+"02000000000a"+"0806"+"0001080006040001"+neighbour+unknown+target)
	m.await(t, "02000000000a"+self+"0806"+"0001080006040002"+self+target+neighbour)
	m.send(t, self+"02000000000a"+"0800"+"4500001c000100004001ad6c"+"c0000207"+target+"0800f7fe00010000")
	m.await(t, "ffffffffffff"+self+"0806"+"0001080006040001"+self+target+unknown+gateway)
}

// send puts a frame on the wire of qemu: its length in four bytes, and its bytes.
func (m *machine) send(t *testing.T, frame string) {
	t.Helper()

	b, err := hex.DecodeString(frame)
	errtest.None(t, err)
	_, err = m.wire.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	errtest.None(t, err)
}

// await reads frames up to one that begins as wanted.
func (m *machine) await(t *testing.T, beginning string) {
	t.Helper()

	for {
		length := make([]byte, 4)
		_, err := io.ReadFull(m.wire, length)

		frame := make([]byte, binary.BigEndian.Uint32(length))
		if err == nil {
			_, err = io.ReadFull(m.wire, frame)
		}
		if err != nil {
			t.Fatalf("the machine sent no frame %s: %v", beginning, err)
		}

		if strings.HasPrefix(hex.EncodeToString(frame), beginning) {
			return
		}
	}
}

// environment writes a kernel of Debian, and an initrd with an order, into a folder, as clusterctl does.
func environment(t *testing.T, dir, order string, edit func(*kernel.Index)) (vmlinuz, initrd string) {
	t.Helper()

	deb, err := os.Open(kernelPackage)
	if err != nil {
		t.Fatalf("vagrant/deps downloads the package of a kernel: %v", err)
	}
	defer deb.Close()

	info, err := deb.Stat()
	errtest.None(t, err)
	k, err := kernel.Unpack(deb, info.Size())
	errtest.None(t, err)

	if edit != nil {
		edit(&k.Index)
	}

	var first, modules, last, all bytes.Buffer
	errtest.None(t, kernel.WriteProgram(&first, unpackedProgram(t)))
	errtest.None(t, k.WriteModules(&modules))

	added := kernel.NewArchive(&last)
	errtest.None(t, added.Add(installer.OrderFile, 0o644, []byte(order)))
	errtest.None(t, added.Close())
	errtest.None(t, kernel.Join(&all, &first, &modules, &last))

	vmlinuz, initrd = filepath.Join(dir, "vmlinuz"), filepath.Join(dir, "initrd")
	errtest.None(t, os.WriteFile(vmlinuz, k.Image, 0o600))
	errtest.None(t, os.WriteFile(initrd, all.Bytes(), 0o600))

	return vmlinuz, initrd
}

func unpackedProgram(t *testing.T) []byte {
	t.Helper()

	packed, err := program.For("amd64")
	errtest.None(t, err)
	r, err := gzip.NewReader(bytes.NewReader(packed))
	errtest.None(t, err)
	b, err := io.ReadAll(r)
	errtest.None(t, err)

	return b
}
