// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/contiv/cluster/configuration/image/installer"
	"github.com/contiv/cluster/configuration/image/installer/report"
	"github.com/contiv/cluster/configuration/image/program"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/boot"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/step"
)

// agreed is an executor of a step that succeeds on every host.
type agreed struct{ step.Plain }

func (agreed) Run(ctx context.Context, s step.Step, out step.Events) (step.Result, error) {
	return step.Each(ctx, s, out, 1, "agree", func(context.Context, string) error { return nil })
}

// sshKeyPair writes a private key, and returns its file and its public half.
func sshKeyPair(t *testing.T) (file, public string) {
	t.Helper()

	pub, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(pub)
	if err != nil {
		t.Fatal(err)
	}

	file = filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}

	return file, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

// installing is a manager with a Manageable machine of the name r1-1, which boots over the loopback.
type installing struct {
	*firmware

	public string // of its ssh key
	disk   []byte // the image d1
}

func newInstalling(t *testing.T) installing {
	t.Helper()

	if _, err := program.For("amd64"); err != nil {
		t.Skip("the program of the boot environment is not built: run `make facts`")
	}

	dhcp, conn := portPair(t)
	ports := boot.Ports{DHCP: dhcp, TFTP: freePort(t), Web: freePort(t)}

	programs := t.TempDir()
	if err := os.WriteFile(filepath.Join(programs, "snponly.efi"), []byte("iPXE for UEFI"), 0o600); err != nil {
		t.Fatal(err)
	}

	key, public := sshKeyPair(t)

	s := prepare(t, "boot: {interfaces: [lo], pool: [127.9.3.100-127.9.3.103], ipxe: "+programs+"}\n"+
		"ssh: {user: admin, key_file: "+key+"}")
	s.breaksLifecycle = true // by putting a node to Manageable
	s.tune = func(o *Options) {
		o.BootPorts = ports
		o.Executors = func(record.Store) step.Executors {
			return step.Executors{job.StepPlaybook: agreed{}, job.StepAppear: agreed{}}
		}
	}
	s.up()
	t.Cleanup(s.down)

	f := &firmware{s, conn, ports, net.HardwareAddr{2, 0, 0, 0, 3, 1}}
	s.report("r1")
	s.register("r1-1", machine.BMC{Driver: machine.Manual}, f.mac.String())
	s.setStatus("r1-1", inventory.Manageable)
	s.addKernel("k1")

	disk := bytes.Repeat([]byte("disk"), 64<<10)
	disk[510], disk[511] = 0x55, 0xaa
	s.addDisk("d1", disk)

	_, err := s.SetVars(s.ctx(), client.ScopeNode("r1-1"), api.Vars{
		"cloud_config": map[string]any{"packages": []any{"chrony"}, "timezone": "UTC"},
	})
	s.must(err)
	s.eventually("an address", func() bool {
		all, err := s.Addresses(s.ctx())
		s.must(err)

		return len(all.Items) == 1
	})

	return installing{f, public, disk}
}

// setStatus gives a node a status past the manager.
func (s *site) setStatus(node string, status inventory.Status) {
	s.t.Helper()

	_, _, err := record.Decide(s.ctx(), s.store, func(tx *record.Tx) (any, error) {
		n, _ := state.ViewOf(tx).Lookup(node)
		n.Status = status
		tx.Attach(state.NodeWrite{Node: n})

		return nil, nil
	})
	s.must(err)
}

// addDisk adds an image of a disk for any firmware.
func (s *site) addDisk(name string, content []byte) {
	s.t.Helper()

	sum := sha256.Sum256(content)
	_, err := s.CreateImage(s.ctx(), api.ImageRequest{
		Name: name, Kind: api.ImageDisk, Arch: "amd64", Boot: "both", Files: []api.ImageFileRequest{
			{Role: "image", Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(content))},
		},
	})
	s.must(err)
	_, err = s.SendImage(s.ctx(), name, "image", 0, bytes.NewReader(content))
	s.must(err)
}

// boots is what a machine does from its start until its environment runs, and returns its address and its order.
func (f *firmware) boots() (net.IP, installer.Order) {
	f.t.Helper()

	offer := f.ask(f.pxe()...)
	if offer.BootFileNameOption() != "snponly.efi" {
		f.t.Fatalf("the firmware gets %s", offer.Summary())
	}

	own := f.from(offer.YourIPAddr)
	_, text := f.fetch(own, f.ask(f.ipxe()...).BootFileNameOption())
	urls := scriptURL.FindAllString(string(text), -1)
	if len(urls) != 3 {
		f.t.Fatalf("the script is %s", text)
	}

	status, initrd := f.fetch(own, urls[1])
	if status != http.StatusOK {
		f.t.Fatalf("the initrd: %d, %s", status, initrd)
	}

	order, err := installer.Decode(orderIn(initrd))
	f.must(err)

	return offer.YourIPAddr, order
}

// says sends a report, and returns the answer and its status.
func (f *firmware) says(from net.IP, to installer.Report, m report.Message) (int, report.Answer) {
	f.t.Helper()

	b, err := json.Marshal(m)
	f.must(err)
	r, err := http.NewRequestWithContext(f.ctx(), http.MethodPost, to.URL, bytes.NewReader(b))
	f.must(err)
	r.Header.Set("Authorization", "Bearer "+to.Token)

	return f.answered(from, r)
}

func (f *firmware) answered(from net.IP, r *http.Request) (int, report.Answer) {
	f.t.Helper()

	got, err := f.from(from).Do(r)
	f.must(err)
	defer got.Body.Close()

	var answer report.Answer
	_ = json.NewDecoder(got.Body).Decode(&answer)

	return got.StatusCode, answer
}

// fetchImage returns the image of an order as a machine with the token gets it.
func (f *firmware) fetchImage(from net.IP, i installer.Image, token string) (int, []byte) {
	f.t.Helper()

	r, err := http.NewRequestWithContext(f.ctx(), http.MethodGet, i.URL, nil)
	f.must(err)
	r.Header.Set("Authorization", "Bearer "+token)
	got, err := f.from(from).Do(r)
	f.must(err)
	defer got.Body.Close()

	b, err := io.ReadAll(got.Body)
	f.must(err)

	return got.StatusCode, b
}

// call is the call of an installed system with an ssh host key.
func (f *firmware) call(from net.IP, at, key string) int {
	f.t.Helper()

	r, err := http.NewRequestWithContext(f.ctx(), http.MethodPost, at,
		strings.NewReader(url.Values{"pub_key_ed25519": {key + " root@r1"}, "pub_key_rsa": {"nonsense"}}.Encode()))
	f.must(err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	status, _ := f.answered(from, r)

	return status
}

// TestBootInstall: a job has an image written to a machine, whose system then calls the manager, and is known by its
// ssh host key. The image needs the token, and nothing is served once the image is on the disk.
func TestBootInstall(t *testing.T) {
	t.Parallel()

	f := newInstalling(t)
	s := f.site

	request := api.JobRequest{Verb: inventory.VerbInstall, Nodes: []string{"r1-1"}}
	if _, err := s.Submit(s.ctx(), request); err == nil || !strings.Contains(err.Error(), "no image is named") {
		t.Errorf("without an image: %v", err)
	}

	request.Image = "k1"
	if _, err := s.Submit(s.ctx(), request); err == nil || !strings.Contains(err.Error(), "of the kind kernel") {
		t.Errorf("with a kernel as the image: %v", err)
	}

	request.Image = "d1"
	j, err := s.Submit(s.ctx(), request)
	s.must(err)

	last := func() api.Boot {
		b, err := s.NodeBoots(s.ctx(), "r1-1")
		s.must(err)
		if len(b.Boots) == 0 {
			return api.Boot{}
		}

		return b.Boots[len(b.Boots)-1]
	}
	s.eventually("a boot", func() bool { return last().Started != nil })

	if _, err := s.DeleteImage(s.ctx(), "d1"); err == nil || !strings.Contains(err.Error(), "installs it on r1-1") {
		t.Errorf("the image is removed under the installation: %v", err)
	}

	addr, order := f.boots()
	what := order.Install
	if what == nil {
		t.Fatalf("the order is %+v", order)
	}

	var config struct {
		Users []struct {
			Name string   `json:"name"`
			Keys []string `json:"ssh_authorized_keys"`
		} `json:"users"`
		Packages []string `json:"packages"`
		Home     struct {
			URL string `json:"url"`
		} `json:"phone_home"`
	}
	text, ok := strings.CutPrefix(what.Seed.UserData, "#cloud-config\n")
	if err := json.Unmarshal([]byte(text), &config); err != nil || !ok {
		t.Fatalf("the user data are %s: %v", what.Seed.UserData, err)
	}
	if len(config.Users) != 1 || config.Users[0].Name != "admin" ||
		!slices.Equal(config.Users[0].Keys, []string{f.public}) || !slices.Equal(config.Packages, []string{"chrony"}) {
		t.Errorf("the user data are %s", what.Seed.UserData)
	}
	if !strings.Contains(what.Seed.NetworkConfig, addr.String()+"/8") ||
		!strings.Contains(what.Seed.NetworkConfig, f.mac.String()) || !strings.Contains(what.Seed.MetaData, `"r1-1"`) {
		t.Errorf("the network is %s, and the instance %s", what.Seed.NetworkConfig, what.Seed.MetaData)
	}

	// The environment.
	for _, m := range []report.Message{{Stage: report.Started}, {Stage: report.Writing, Disk: "vda", Total: 100}} {
		if status, then := f.says(addr, order.Report, m); status != http.StatusOK || then.Then != report.Continue {
			t.Errorf("%s is answered with %d, %s", m.Stage, status, then.Then)
		}
	}
	if status, _ := f.fetchImage(addr, what.Image, "another-token-of-somebody"); status != http.StatusGone {
		t.Errorf("without the token the image comes with %d", status)
	}
	if _, got := f.fetchImage(addr, what.Image, order.Report.Token); !bytes.Equal(got, f.disk) {
		t.Errorf("the image has %d bytes", len(got))
	}

	_, key := sshKeyPair(t)
	if status := f.call(addr, config.Home.URL, key); status != http.StatusGone {
		t.Errorf("a system that is not installed calls, and gets %d", status)
	}

	f.says(addr, order.Report, report.Message{Stage: report.Writing, Disk: "vda", Written: 57, Total: 100})
	if b := last(); b.Stage != api.BootWriting || b.Written != 57 || b.Disk != "vda" || b.Installs != "d1" {
		t.Errorf("while it is written, the boot is %+v", b)
	}

	for range 2 { // the first answer is lost
		status, then := f.says(addr, order.Report, report.Message{Stage: report.Installed, Disk: "vda", Total: 100})
		if status != http.StatusOK || then.Then != report.Restart {
			t.Errorf("the installed machine is answered with %d, %s", status, then.Then)
		}
	}

	if offer := f.ask(f.pxe()...); offer.BootFileNameOption() != "" {
		t.Errorf("the installed machine gets %s", offer.Summary())
	}
	if status, _ := f.fetchImage(addr, what.Image, order.Report.Token); status != http.StatusGone {
		t.Errorf("the image comes with %d after its installation", status)
	}

	if status := f.call(
		addr,
		strings.Replace(config.Home.URL, order.Report.Token, "x", 1),
		key,
	); status != http.StatusGone {
		t.Errorf("a call without the token gets %d", status)
	}
	if status := f.call(addr, config.Home.URL, key); status != http.StatusOK {
		t.Errorf("the call of the system gets %d", status)
	}

	done, err := s.WaitJob(s.ctx(), j.ID)
	s.must(err)
	if done.Status != api.Complete {
		t.Errorf("the job is %s: %s", done.Status, done.Message)
	}

	n, err := s.Node(s.ctx(), "r1-1")
	s.must(err)
	if n.Status != inventory.Manageable || n.Addr != addr.String() || !slices.Equal(n.HostKeys, []string{key}) ||
		n.Installed == nil || n.Installed.Image != "d1" || n.Installed.Job != j.ID {
		t.Errorf("the node is %+v", n)
	}
	if b := last(); b.Ended == nil || b.Result != "the system runs" || b.Stage != api.BootRunning {
		t.Errorf("the boot is %+v", b)
	}

	var backup bytes.Buffer
	s.must(s.Backup(s.ctx(), &backup))
	if b := backup.Bytes(); len(b) == 0 || bytes.Contains(b, []byte(order.Report.Token)) {
		t.Error("the token is in the backup, or nothing is")
	}
}

// TestBootInstallFails: a node is Quarantined once its disk was touched, and is as it was before that. Another job
// installs it then.
func TestBootInstallFails(t *testing.T) {
	t.Parallel()

	f := newInstalling(t)
	s := f.site

	request := api.JobRequest{Verb: inventory.VerbInstall, Nodes: []string{"r1-1"}}
	request.Image = "d1"

	for i, c := range []struct {
		says   []report.Message
		then   func(job string)
		status inventory.Status
		err    string
	}{
		{[]report.Message{{Stage: report.Failed, Message: "no disk has it"}}, nil, inventory.Manageable, "no disk"},
		{
			[]report.Message{
				{Stage: report.Writing, Disk: "vda", Total: 100}, {Stage: report.Failed, Message: "the disk is broken"},
			},
			nil, inventory.Quarantined, "the disk is broken",
		},
		{
			[]report.Message{{Stage: report.Writing, Disk: "vda", Total: 100}},
			func(job string) {
				_, err := s.Cancel(s.ctx(), job)
				s.must(err)
			},
			inventory.Quarantined, "cancelled",
		},
		{
			[]report.Message{{Stage: report.Writing, Disk: "vda", Total: 100}},
			func(job string) { s.must(s.boot.End(s.ctx(), "r1-1", job, "somebody ends it")) },
			inventory.Quarantined, "no boot",
		},
		{
			[]report.Message{
				{Stage: report.Writing, Disk: "vda", Total: 100}, {Stage: report.Installed, Disk: "vda", Total: 100},
			},
			nil, inventory.Manageable, "",
		},
	} {
		j, err := s.Submit(s.ctx(), request)
		s.must(err)
		s.eventually("a boot", func() bool {
			b, err := s.NodeBoots(s.ctx(), "r1-1")
			s.must(err)

			return len(b.Boots) == i+1 && b.Boots[i].Started != nil
		})

		addr, order := f.boots()
		for _, m := range append([]report.Message{{Stage: report.Started}}, c.says...) {
			status, then := f.says(addr, order.Report, m)
			if wants := m.Stage == report.Failed; status != http.StatusOK || wants != (then.Then == report.Wait) {
				t.Errorf("%s is answered with %d, %s", m.Stage, status, then.Then)
			}
		}

		if c.then != nil {
			c.then(j.ID)
		}
		if c.err == "" {
			_, key := sshKeyPair(t)
			home := strings.Replace(order.Report.URL, "report", order.Report.Token+"/running", 1)
			if status := f.call(addr, home, key); status != http.StatusOK {
				t.Errorf("the call of the system gets %d", status)
			}
		}

		done, err := s.WaitJob(s.ctx(), j.ID)
		s.must(err)
		n, err := s.Node(s.ctx(), "r1-1")
		s.must(err)

		if n.Status != c.status || !strings.Contains(n.LastError, c.err) || (n.LastError == "") != (c.err == "") ||
			(done.Status == api.Complete) != (c.err == "") {
			t.Errorf("%d: the node is %s (%s), and the job %s: %s", i, n.Status, n.LastError, done.Status, done.Message)
		}
	}
}
