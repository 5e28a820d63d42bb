// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
)

var ansibleMissing = sync.OnceValue(func() error {
	_, err := Check(context.Background(), "")
	return err
})

func needAnsible(t *testing.T) {
	if os.Getenv("CLUSTERM_LAB") != "1" {
		t.Skip("runs the real ansible-playbook; set CLUSTERM_LAB=1, as make system does")
	}

	if err := ansibleMissing(); err != nil {
		t.Skip(err)
	}
}

// liveSSH is a real sshd on 127.0.0.2, .3 and .4.
type liveSSH struct {
	port    int
	user    string
	keyFile string // of the client
	hostKey string // as in known_hosts
}

var liveAddrs = []string{"127.0.0.2", "127.0.0.3", "127.0.0.4"}

func startSSHD(t *testing.T) liveSSH {
	sshd, err := exec.LookPath("/usr/sbin/sshd")
	if err != nil {
		t.Skip("no sshd: ", err)
	}

	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("no ssh-keygen: ", err)
	}

	me, err := user.Current()
	if err != nil {
		t.Skip("no account: ", err)
	}

	pam := "no"
	if me.Uid == "0" {
		pam = "yes" // root's password may be locked
		// A system that never started its sshd lacks this. It stays: by now
		// others may rely on it.
		if err := os.Mkdir("/run/sshd", 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			t.Skip("sshd has no /run/sshd: ", err)
		}
	}

	dir := t.TempDir()
	for _, k := range []string{"host", "client"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", filepath.Join(dir, k)).
			CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen: %v: %s", err, out)
		}
	}

	free, err := net.Listen("tcp", liveAddrs[0]+":0")
	if err != nil {
		t.Skip("no loopback network: ", err)
	}

	port := free.Addr().(*net.TCPAddr).Port
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}

	config := fmt.Sprintf(
		"HostKey %s/host\nAuthorizedKeysFile %s/client.pub\nStrictModes no\nUsePAM %s\nPidFile none\nPermitRootLogin prohibit-password\nPasswordAuthentication no\nSubsystem sftp internal-sftp\nMaxStartups 50\n",
		dir,
		dir,
		pam,
	)
	for _, a := range liveAddrs {
		config += fmt.Sprintf("ListenAddress %s:%d\n", a, port)
	}

	if err := os.WriteFile(filepath.Join(dir, "sshd_config"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}

	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}

	cmd := exec.Command(sshd, "-D", "-e", "-f", filepath.Join(dir, "sshd_config"))
	cmd.Stdout, cmd.Stderr = log, log

	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Skip("sshd does not start: ", err)
	}

	gone := make(chan struct{})
	go func() { cmd.Wait(); close(gone) }()
	t.Cleanup(func() {
		unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		<-gone

		if t.Failed() {
			t.Log(read(t, log.Name()))
		}

		log.Close()
	})

	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()

	for ctx := within(t, patience); ; {
		if c, err := net.Dial("tcp", net.JoinHostPort(liveAddrs[2], strconv.Itoa(port))); err == nil {
			c.Close()
			break
		}

		select {
		case <-gone:
			t.Skip("sshd does not run here: ", read(t, log.Name()))
		case <-ctx.Done():
			t.Skip("sshd does not listen: ", read(t, log.Name()))
		case <-tick.C:
		}
	}

	key := strings.Fields(read(t, filepath.Join(dir, "host.pub")))

	return liveSSH{port, me.Username, filepath.Join(dir, "client"), key[0] + " " + key[1]}
}

func (l liveSSH) host(name, addr string) configuration.Host {
	return configuration.Host{
		Name:       name,
		Addr:       addr,
		Label:      "label",
		Serial:     "serial",
		Group:      "service-worker",
		Role:       configuration.RoleTarget,
		Connection: configuration.Connection{User: l.user, Port: l.port, KeyFile: l.keyFile, Python: "auto_silent"},
	}
}

// inProc looks for words in the command line or environment of any process.
func inProc(words string) (where, ssh string) {
	for _, p := range processes() {
		for _, f := range []string{"cmdline", "environ"} {
			b, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p), f))
			if strings.Contains(string(b), words) {
				where = fmt.Sprintf("/proc/%d/%s: %q", p, f, b)
			}

			if f == "cmdline" && strings.Contains(string(b), "HostKeyAlias=Web-1") {
				ssh = strings.ReplaceAll(string(b), "\x00", " ")
			}
		}
	}

	return where, ssh
}

// Real runs over real ssh.
func TestLive(t *testing.T) {
	t.Parallel()
	needAnsible(t)
	sshd := startSSHD(t)
	t.Run("contacts", func(t *testing.T) { t.Parallel(); liveContacts(t, sshd) })
	t.Run("cancel", func(t *testing.T) { t.Parallel(); liveCancel(t, sshd) })
}

// A run on three hosts at their first contact, then one on two of them, one of
// which shows another key than the one recorded.
func liveContacts(t *testing.T, sshd liveSSH) {
	base := t.TempDir()
	flag := filepath.Join(base, "evaluated")
	evil := "{{ lookup('pipe', 'touch " + flag + "') }}"
	trees := &Trees{Dir: filepath.Join(base, "trees")}

	digest, err := trees.Pin(t.Context(), fstest.MapFS{
		"site.yml": {Data: []byte(`
- hosts: service-worker
  gather_facts: false
  tasks:
    - name: write what arrived
      ansible.builtin.command:
        argv: [tee, "{{ playbook_dir }}/{{ node_name }}.json"]
        stdin: "{{ {'evil': evil, 'deep': deep, 'label': node_label, 'request': request, 'secret': secret, 'trusted': trusted, 'commissioned': node_commissioned} | to_json }}"
    - name: from the bundled roles
      ansible.builtin.include_role:
        name: bundled
- hosts: all
  gather_facts: false
  tasks:
    - name: name those acted on
      ansible.builtin.debug:
        msg: "acted on {{ inventory_hostname }}, masters are {{ groups['service-master'] }}"
`)},
		"ansible.cfg": {Data: []byte("[defaults]\nhost_key_checking = False\nforks = 1\n")},
	})
	if err != nil {
		t.Fatal(err)
	}

	callback, err := trees.Pin(t.Context(), os.DirFS("../../ansible/plugins/callback"))
	if err != nil {
		t.Fatal(err)
	}

	roles, err := trees.Pin(
		t.Context(),
		fstest.MapFS{
			"bundled/tasks/main.yml": {Data: []byte("- name: greet\n  ansible.builtin.debug: {msg: hello}\n")},
		},
	)
	if err != nil {
		t.Fatal(err)
	}

	hosts := []configuration.Host{
		sshd.host("Web-1", liveAddrs[0]),
		sshd.host("web-2", liveAddrs[1]),
		sshd.host("fd00::7", liveAddrs[2]),
	}
	for i := range hosts {
		hosts[i].Label = evil
		hosts[i].Vars = map[string]configuration.Var{
			"evil": {Value: evil, Origin: configuration.OriginNode},
			"deep": {
				Value:  map[string]any{evil: []any{evil, 1, "multi\nline: \"'"}},
				Origin: configuration.OriginGlobal,
			},
			"trusted": {Value: "{{ 40 + 2 }}", Origin: configuration.OriginConfig, Trusted: true},
		}
	}

	hosts = append(
		hosts,
		configuration.Host{
			Name:         "master-1",
			Addr:         "127.0.0.9",
			Group:        "service-master",
			Commissioned: true,
			Role:         configuration.RolePeer,
		},
	)
	const secret = "swordfish-not-for-ps"
	first := Spec{
		ID:           "first",
		Dir:          filepath.Join(base, strings.Repeat("long-", 20), "first"),
		Tree:         trees.Path(digest),
		Playbook:     "site.yml",
		BundledRoles: trees.Path(roles),
		CallbackDir:  trees.Path(callback),
		Hosts:        hosts,
		ExtraVars:    configuration.Vars{"request": evil, "secret": secret},
		Deadline:     time.Now().Add(time.Hour),
	}
	run := start(t, first)
	done := make(chan Exit, 1)

	ctx := within(t, patience)
	go func() {
		e, err := run.Wait(ctx)
		if err != nil {
			t.Error(err)
		}

		done <- e
	}()

	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	sshSeen := ""

	var exit Exit
	for running := true; running; {
		select {
		case exit = <-done:
			running = false
		case <-tick.C:
			where, ssh := inProc(secret)
			sshSeen = cmp.Or(sshSeen, ssh)

			if where != "" {
				t.Fatal("a request's variable is visible in ", where)
			}
		}
	}

	output := read(t, run.Output())
	if !exit.OK() {
		t.Fatalf("exit %+v:\n%s", exit, output)
	}

	for _, want := range []string{" -F " + first.Dir + "/ssh_config ", "UserKnownHostsFile=" + first.Dir + "/known_hosts ", "StrictHostKeyChecking=accept-new ", "/" + socketPrefix} {
		if !strings.Contains(sshSeen, want) {
			t.Errorf("no %q in the command line of ssh: %s", want, sshSeen)
		}
	}

	if strings.Contains(output, "\x1b[") || strings.Contains(output, secret) ||
		strings.Contains(output, "acted on master-1") ||
		!strings.Contains(output, "acted on fd00::7, masters are ['master-1']") {
		t.Errorf("output:\n%s", output)
	}

	if strings.Contains(output, "WARNING") {
		t.Errorf("warnings:\n%s", output)
	}

	if _, err := os.Stat(flag); err == nil {
		t.Error("a template that is data was evaluated")
	}

	for _, h := range hosts[:3] {
		var got, want map[string]any
		if err := json.Unmarshal([]byte(read(t, filepath.Join(trees.Path(digest), h.Name+".json"))), &got); err != nil {
			t.Fatal(err)
		}

		want = map[string]any{
			"evil":         evil,
			"deep":         map[string]any{evil: []any{evil, 1.0, "multi\nline: \"'"}},
			"label":        evil,
			"request":      evil,
			"secret":       secret,
			"trusted":      "42",
			"commissioned": false,
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s got %v", h.Name, got)
		}
	}

	keys, err := NewHostKeys(first.Dir)
	if err != nil {
		t.Fatal(err)
	}

	if want := map[string][]string{
		"Web-1":   {sshd.hostKey},
		"web-2":   {sshd.hostKey},
		"fd00::7": {sshd.hostKey},
	}; !reflect.DeepEqual(
		keys,
		want,
	) {
		t.Errorf("recorded keys %v", keys)
	}

	results := summary(t, run)
	for _, h := range hosts[:3] {
		if r := results[h.Name]; !r.Good() || r.Changed != 1 {
			t.Errorf("%s: %+v", h.Name, r)
		}
	}

	second := first
	second.ID, second.Dir, second.Hosts = "second", filepath.Join(
		base,
		"second",
	), []configuration.Host{
		hosts[0],
		hosts[1],
		hosts[3],
	}
	second.Hosts[0].HostKeys = keys["Web-1"]
	second.Hosts[1].HostKeys = []string{otherKey(t)}
	run = start(t, second)

	exit, err = run.Wait(within(t, patience))
	if err != nil || exit.Reason != Done || exit.Code == 0 {
		t.Errorf("exit %+v, %v", exit, err)
	}

	results = summary(t, run)
	if r := results["Web-1"]; !r.Good() {
		t.Errorf("the host with the recorded key: %+v\n%s", r, read(t, run.Output()))
	}

	r := results["web-2"]
	if r.Unreachable != 1 ||
		!strings.Contains(
			configuration.ExplainFailure(r.Message, "web-2"),
			"clusterctl nodes set web-2 --forget-host-key",
		) {
		t.Errorf("the host with another key: %+v", r)
	}

	if keys, err := NewHostKeys(second.Dir); err != nil || len(keys) > 0 {
		t.Errorf("keys were recorded: %v, %v", keys, err)
	}
}

// A cancelled run ends ansible-playbook, its workers, ssh and ssh's master
// connections (start looks for what is left).
func liveCancel(t *testing.T, sshd liveSSH) {
	base := t.TempDir()
	trees := &Trees{Dir: filepath.Join(base, "trees")}

	digest, err := trees.Pin(t.Context(), fstest.MapFS{"site.yml": {Data: []byte(`
- hosts: all
  gather_facts: false
  tasks:
    - name: take some time
      ansible.builtin.command: sleep 60
`)}})
	if err != nil {
		t.Fatal(err)
	}

	s := Spec{
		ID: "cancel", Dir: filepath.Join(base, "run"), Tree: trees.Path(digest), Playbook: "site.yml",
		Hosts: []configuration.Host{sshd.host("web-1", liveAddrs[0]), sshd.host("web-2", liveAddrs[1])},
		// Python may lose a SIGINT that comes while it forks; SIGTERM follows.
		Deadline: time.Now().Add(time.Hour), GraceInt: time.Second, GraceTerm: time.Second,
	}
	run := start(t, s)
	see(t, run, "TASK [take some time]")

	if err := run.Cancel(t.Context()); err != nil {
		t.Fatal(err)
	}

	e := wait(t, run)
	if e.Reason != Cancelled || e.Code == 0 {
		t.Errorf("exit %+v", e)
	}
}

func summary(t *testing.T, run *Run) map[string]configuration.HostResult {
	var events configuration.EventStream
	return configuration.Summarize(events.Write([]byte(read(t, run.Events()))))
}

func otherKey(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "key")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", path).
		CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v: %s", err, out)
	}

	return strings.TrimSpace(read(t, path+".pub"))
}

func TestSyntaxCheck(t *testing.T) {
	t.Parallel()
	needAnsible(t)
	trees := &Trees{Dir: filepath.Join(t.TempDir(), "trees")}

	digest, err := trees.Pin(t.Context(), fstest.MapFS{
		"site.yml":    {Data: []byte("- hosts: service-worker\n  roles: [own]\n")},
		"cleanup.yml": {Data: []byte("- hosts: all\n  tasks:\n    - no_such_module: {}\n")},
		"broken.yml":  {Data: []byte("- hosts: [all\n")},

		"roles/own/tasks/main.yml": {Data: []byte("- ansible.builtin.debug: {msg: hello}\n")},
	})
	if err != nil {
		t.Fatal(err)
	}

	check := func(ctx context.Context, playbook string) error {
		return trees.SyntaxCheck(ctx, digest, playbook, "", "service-worker", "service-master")
	}
	if err := check(t.Context(), "site.yml"); err != nil {
		t.Error(err)
	}

	for playbook, want := range map[string]string{
		"cleanup.yml": "no_such_module",
		"broken.yml":  "line",
		"missing.yml": "has no missing.yml",
		"../x.yml":    "not the path",
	} {
		err := check(t.Context(), playbook)
		if inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), trees.Dir) {
			t.Errorf("%s: %v", playbook, err)
		}
	}

	over, cancel := context.WithCancel(t.Context())
	cancel()

	if err := check(over, "site.yml"); err != nil {
		t.Errorf("what passed is checked again: %v", err)
	}

	if err := check(over, "cleanup.yml"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
