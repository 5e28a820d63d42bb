// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/contiv/cluster/configuration/image/installer"
	"github.com/contiv/cluster/configuration/image/installer/report"
	"github.com/contiv/cluster/configuration/image/kernel/kerneltest"
	"github.com/contiv/cluster/configuration/image/program"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/facts"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/boot"
)

// freePort returns a port of UDP and TCP on the loopback that nobody has.
func freePort(t *testing.T) uint16 {
	t.Helper()

	for range 50 {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		_ = l.Close()

		if conn, err := net.ListenPacket("udp4", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = conn.Close()
			return uint16(port)
		}
	}

	t.Fatal("there is no free port")

	return 0
}

// firmware is a machine that boots from the network.
type firmware struct {
	*site

	conn  net.PacketConn
	ports boot.Ports
	mac   net.HardwareAddr
}

// ask sends a discovery with options, and returns the offer.
func (f *firmware) ask(with ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	f.t.Helper()

	m, err := dhcpv4.NewDiscovery(f.mac, with...)
	f.must(err)
	_, err = f.conn.WriteTo(m.ToBytes(), &net.UDPAddr{IP: net.IPv4bcast, Port: int(f.ports.DHCP)})
	f.must(err)
	f.must(f.conn.SetReadDeadline(time.Now().Add(patience)))

	for {
		buffer := make([]byte, 1500)
		n, _, err := f.conn.ReadFrom(buffer)
		f.must(err)

		if offer, err := dhcpv4.FromBytes(buffer[:n]); err == nil && offer.TransactionID == m.TransactionID {
			return offer
		}
	}
}

func (f *firmware) pxe() []dhcpv4.Modifier {
	return []dhcpv4.Modifier{
		dhcpv4.WithOption(dhcpv4.OptClassIdentifier("PXEClient:Arch:00007:UNDI:003016")),
		dhcpv4.WithOption(dhcpv4.OptClientArch(iana.EFI_X86_64)),
	}
}

func (f *firmware) ipxe() []dhcpv4.Modifier {
	return append(f.pxe(), dhcpv4.WithGeneric(dhcpv4.OptionUserClassInformation, []byte("iPXE")))
}

// from returns a client with the address of the machine.
func (f *firmware) from(addr net.IP) *http.Client {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: addr}}
	return &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
}

func (f *firmware) fetch(c *http.Client, at string) (int, []byte) {
	f.t.Helper()

	r, err := http.NewRequestWithContext(f.ctx(), http.MethodGet, at, nil)
	f.must(err)
	got, err := c.Do(r)
	f.must(err)
	defer got.Body.Close()

	b, err := io.ReadAll(got.Body)
	f.must(err)

	return got.StatusCode, b
}

// scriptURL finds the URLs in a script of iPXE.
var scriptURL = regexp.MustCompile(`http://\S+`)

// orderIn returns the order in an initrd, which is in an archive of its own before that of the environment.
func orderIn(initrd []byte) []byte {
	head := initrd[:bytes.Index(initrd, []byte("TRAILER!!!"))]
	return head[bytes.IndexByte(head, '{') : bytes.LastIndexByte(head, '}')+1]
}

// addKernel adds the package of a small kernel as an image.
func (s *site) addKernel(name string) {
	s.t.Helper()

	deb := kerneltest.Package(s.t, kerneltest.Control("linux-image-6.1.0-35-amd64", "amd64"), kerneltest.Files())
	sum := sha256.Sum256(deb)

	_, err := s.CreateImage(s.ctx(), api.ImageRequest{
		Name: name, Kind: api.ImageKernel, Arch: "amd64", Boot: "both", Files: []api.ImageFileRequest{
			{Role: "package", Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(deb))},
		},
	})
	s.must(err)
	_, err = s.SendImage(s.ctx(), name, "package", 0, bytes.NewReader(deb))
	s.must(err)
}

// TestBootInspect: a job boots a machine, which goes the whole way from its firmware to the report of its facts, with a
// restart of the manager on that way. Before and after it, and any other machine, is given its address alone.
func TestBootInspect(t *testing.T) {
	t.Parallel()

	if _, err := program.For("amd64"); err != nil {
		t.Skip("the program of the boot environment is not built: run `make facts`")
	}

	dhcp, conn := portPair(t)
	ports := boot.Ports{DHCP: dhcp, TFTP: freePort(t), Web: freePort(t)}

	programs := t.TempDir()
	if err := os.WriteFile(filepath.Join(programs, "snponly.efi"), []byte("iPXE for UEFI"), 0o600); err != nil {
		t.Fatal(err)
	}

	s := prepare(t, "boot: {interfaces: [lo], pool: [127.9.2.100-127.9.2.103], ipxe: "+programs+"}")
	s.breaksLifecycle = true // by putting a node to Manageable
	s.tune = func(o *Options) { o.BootPorts = ports }
	s.up()
	t.Cleanup(s.down)

	f := &firmware{s, conn, ports, net.HardwareAddr{2, 0, 0, 0, 2, 1}}
	s.report("r1")
	s.register("r1-1", machine.BMC{Driver: machine.Manual}, f.mac.String())

	s.setStatus("r1-1", inventory.Manageable)

	request := api.JobRequest{Verb: inventory.VerbInspect, Nodes: []string{"r1-1"}}
	request.Boot = inventory.BootNetwork

	if _, err := s.Submit(s.ctx(), request); err == nil || !strings.Contains(err.Error(), "no image has a kernel") {
		t.Errorf("without a kernel: %v", err)
	}

	s.addKernel("k1")
	s.eventually("an address", func() bool {
		all, err := s.Addresses(s.ctx())
		s.must(err)

		return len(all.Items) == 1
	})

	alone := func(when string) {
		t.Helper()
		if offer := f.ask(f.pxe()...); offer.BootFileNameOption() != "" || offer.BootFileName != "" {
			t.Errorf("%s the machine gets %s", when, offer.Summary())
		}
	}
	alone("before its job")

	j, err := s.Submit(s.ctx(), request)
	s.must(err)

	boots := func() []api.Boot {
		b, err := s.NodeBoots(s.ctx(), "r1-1")
		s.must(err)

		return b.Boots
	}
	s.eventually("a boot", func() bool { b := boots(); return len(b) == 1 && b[0].Started != nil })

	if _, err := s.DeleteImage(s.ctx(), "k1"); err == nil || !strings.Contains(err.Error(), "job "+j.ID+" boots r1-1") {
		t.Errorf("the image is removed under the boot: %v", err)
	}

	// The firmware, and iPXE.
	offer := f.ask(f.pxe()...)
	if offer.BootFileNameOption() != "snponly.efi" || offer.ServerIPAddr.String() != "127.0.0.1" {
		t.Errorf("the firmware gets %s", offer.Summary())
	}

	addr := offer.YourIPAddr
	if got := f.tftp(addr, "snponly.efi"); got != "iPXE for UEFI" {
		t.Errorf("by TFTP came %q", got)
	}
	if got := f.tftp(net.IP{127, 9, 2, 77}, "snponly.efi"); got != "" {
		t.Errorf("another machine got %q by TFTP", got)
	}

	own := f.from(addr)
	if status, b := f.fetch(own, fmt.Sprintf("http://127.0.0.1:%d/boot/files/snponly.efi", ports.Web)); status != 200 ||
		string(b) != "iPXE for UEFI" {
		t.Errorf("by HTTP came %d, %q", status, b)
	}

	script := f.ask(f.ipxe()...).BootFileNameOption()
	_, text := f.fetch(own, script)
	urls := scriptURL.FindAllString(string(text), -1)
	if len(urls) != 3 {
		t.Fatalf("the script is %s", text)
	}

	// The manager begins anew, and the machine is not started again.
	s.down()
	s.up()
	s.eventually("the boot service", func() bool {
		b, err := s.Boot(s.ctx())
		s.must(err)

		return len(b.Interfaces) == 1 && b.Interfaces[0].Problem == ""
	})

	_, kernel := f.fetch(own, urls[0])

	status, initrd := f.fetch(own, urls[1])
	if status != http.StatusOK {
		t.Fatalf("the initrd: %d, %s", status, initrd)
	}

	if i := slices.IndexFunc(kerneltest.Files(), func(f kerneltest.File) bool {
		return strings.Contains(f.Name, "vmlinuz")
	}); !bytes.Equal(kernel, kerneltest.Files()[i].Content) {
		t.Errorf("the kernel has %d bytes", len(kernel))
	}

	order, err := installer.Decode(orderIn(initrd))
	s.must(err)
	if order.Interface.Address.Addr().String() != addr.String() || order.Interface.MAC != f.mac.String() {
		t.Errorf("the order is %+v", order)
	}

	// The environment.
	found := machineOf(65536, "a")
	found.Schema = facts.Schema

	for _, m := range []report.Message{{Stage: report.Started}, {Stage: report.Facts, Facts: &found}} {
		b, err := json.Marshal(m)
		s.must(err)

		r, err := http.NewRequestWithContext(s.ctx(), http.MethodPost, order.Report.URL, bytes.NewReader(b))
		s.must(err)
		r.Header.Set("Authorization", "Bearer "+order.Report.Token)

		got, err := own.Do(r)
		s.must(err)
		_ = got.Body.Close()

		if got.StatusCode != http.StatusOK {
			t.Errorf("the report %s is answered with %s", m.Stage, got.Status)
		}
	}

	done, err := s.WaitJob(s.ctx(), j.ID)
	s.must(err)
	if done.Status != api.Complete {
		t.Errorf("the job is %s: %s", done.Status, done.Message)
	}

	n, err := s.Facts(s.ctx(), "r1-1", 0)
	s.must(err)
	if n.Facts.Memory.TotalMB != 65536 || !slices.Equal(n.Facts.Sources, []string{"network"}) {
		t.Errorf("the facts are %+v", n.Facts)
	}

	last := boots()[0]

	var events []string
	for _, e := range last.Events {
		events = append(events, e.From+": "+e.Text)
	}
	all := strings.Join(events, "\n")

	if len(boots()) != 1 || last.Ended == nil || last.Result != "the facts of the machine have come" ||
		strings.Count(all, "switch it on by hand") != 1 {
		t.Errorf("the boot is %+v", last)
	}
	for _, want := range []string{
		"dhcp: PXE of UEFI, x86-64: discover", "tftp: asked for snponly.efi, and got it", "dhcp: iPXE: discover",
		"http: asked for its script", "report: started", "report: these are the facts",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not among\n%s", want, all)
		}
	}

	alone("after its job")
	if status, _ := f.fetch(own, urls[0]); status != http.StatusNotFound {
		t.Errorf("the kernel is still served: %d", status)
	}

	// The token is in no record that somebody can read.
	var backup bytes.Buffer
	s.must(s.Backup(s.ctx(), &backup))
	if b := backup.Bytes(); len(b) == 0 || bytes.Contains(b, []byte(order.Report.Token)) {
		t.Error("the token is in the backup, or nothing is")
	}
}

// tftp returns a file of less than one block as a machine with the address gets it; "": it gets none.
func (f *firmware) tftp(addr net.IP, name string) string {
	f.t.Helper()

	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: addr})
	f.must(err)
	defer conn.Close()
	f.must(conn.SetDeadline(time.Now().Add(patience)))

	server := &net.UDPAddr{IP: net.IP{127, 0, 0, 1}, Port: int(f.ports.TFTP)}
	_, err = conn.WriteTo([]byte("\x00\x01"+name+"\x00octet\x00"), server)
	f.must(err)

	buffer := make([]byte, 516)
	n, from, err := conn.ReadFrom(buffer)
	f.must(err)

	if !bytes.HasPrefix(buffer[:n], []byte{0, 3, 0, 1}) {
		return ""
	}

	_, err = conn.WriteTo([]byte{0, 4, 0, 1}, from)
	f.must(err)

	return string(buffer[4:n])
}
