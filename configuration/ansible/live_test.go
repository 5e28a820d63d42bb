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
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/configuration/repository"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
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

// liveSSH is an sshd on 127.0.0.2, .3 and .4.
type liveSSH struct {
	port    int
	user    string
	keyFile string // of the client
	fence   string // folder of the fence on the hosts
	hostKey string // as in known_hosts
	ca      string // of its certificate, as in known_hosts; empty: it has none
}

var liveAddrs = []string{"127.0.0.2", "127.0.0.3", "127.0.0.4"}

// startSSHD starts an sshd. With principals, it shows a certificate for them.
func startSSHD(t *testing.T, principals ...string) liveSSH {
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
		// A system on which sshd never ran lacks this directory. It stays, because
		// another test may use it by the end of this one.
		if err := os.Mkdir("/run/sshd", 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			t.Skip("sshd has no /run/sshd: ", err)
		}
	}

	dir := t.TempDir()
	for _, k := range []string{"host", "client"} {
		generateKey(t, filepath.Join(dir, k))
	}

	certificate, ca := "", ""
	if len(principals) > 0 {
		generateKey(t, filepath.Join(dir, "ca"))

		sign := exec.Command("ssh-keygen", "-q", "-s", filepath.Join(dir, "ca"), "-I", "host", "-h",
			"-n", strings.Join(principals, ","), filepath.Join(dir, "host.pub"))
		if out, err := sign.CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen: %v: %s", err, out)
		}

		certificate = "HostCertificate " + dir + "/host-cert.pub"
		ca = strings.TrimSpace(read(t, filepath.Join(dir, "ca.pub")))
	}

	free, err := net.Listen("tcp", liveAddrs[0]+":0")
	if err != nil {
		t.Skip("no loopback network: ", err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	errtest.None(t, free.Close())

	config := strings.Join([]string{
		"HostKey " + dir + "/host",
		certificate,
		"AuthorizedKeysFile " + dir + "/client.pub",
		"StrictModes no",
		"UsePAM " + pam,
		"PidFile none",
		"PermitRootLogin prohibit-password",
		"PasswordAuthentication no",
		"Subsystem sftp internal-sftp",
		"SetEnv CLUSTERM_FENCE_DIR=" + dir + "/fence",
		"MaxStartups 50",
		"",
	}, "\n")
	for _, a := range liveAddrs {
		config += fmt.Sprintf("ListenAddress %s:%d\n", a, port)
	}

	errtest.None(t, os.WriteFile(filepath.Join(dir, "sshd_config"), []byte(config), 0o600))

	log, err := os.Create(filepath.Join(dir, "log"))
	errtest.None(t, err)

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
		// It begins to listen at one address after the other.
		silent := slices.ContainsFunc(liveAddrs, func(addr string) bool {
			c, err := net.Dial("tcp", net.JoinHostPort(addr, strconv.Itoa(port)))
			if err == nil {
				c.Close()
			}

			return err != nil
		})
		if !silent {
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

	return liveSSH{
		port, me.Username, filepath.Join(dir, "client"), filepath.Join(dir, "fence"), key[0] + " " + key[1], ca,
	}
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

// inProc looks for text in the command line or environment of any process. It
// also returns the command line of an ssh to Web-1, if there is one.
func inProc(text string) (where, ssh string) {
	for _, p := range processes() {
		for _, f := range []string{"cmdline", "environ"} {
			b, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p), f))
			if strings.Contains(string(b), text) {
				where = fmt.Sprintf("/proc/%d/%s: %q", p, f, b)
			}
			if f == "cmdline" && strings.Contains(string(b), "HostKeyAlias=Web-1") {
				ssh = strings.ReplaceAll(string(b), "\x00", " ")
			}
		}
	}

	return where, ssh
}

// TestLive runs ansible-playbook over ssh.
func TestLive(t *testing.T) {
	t.Parallel()
	needAnsible(t)
	sshd := startSSHD(t)
	t.Run("contacts", func(t *testing.T) { t.Parallel(); liveContacts(t, sshd) })
	t.Run("cancel", func(t *testing.T) { t.Parallel(); liveCancel(t, sshd) })
}

// liveContacts runs on three hosts at their first contact, then on two of them.
// By then one host has another key than the recorded one.
func liveContacts(t *testing.T, sshd liveSSH) {
	base := t.TempDir()
	flag := filepath.Join(base, "evaluated")
	evil := "{{ lookup('pipe', 'touch " + flag + "') }}"
	store := &repository.Store{Dir: filepath.Join(base, "playbooks")}

	digest, err := store.Keep(t.Context(), fstest.MapFS{
		"site.yml": {Data: []byte(`
- hosts: service-worker
  gather_facts: false
  tasks:
    - name: write the received variables
      ansible.builtin.command:
        argv: [tee, "{{ playbook_dir }}/{{ node_name }}.json"]
        stdin: >-
          {{ {'evil': evil, 'deep': deep, 'label': node_label, 'request': request, 'secret': secret,
          'trusted': trusted, 'commissioned': node_commissioned} | to_json }}
    - name: from the bundled roles
      ansible.builtin.include_role:
        name: bundled
- hosts: all
  gather_facts: false
  tasks:
    - name: print the host
      ansible.builtin.debug:
        msg: "acted on {{ inventory_hostname }}, masters are {{ groups['service-master'] }}"
`)},
		"ansible.cfg": {Data: []byte("[defaults]\nhost_key_checking = False\nforks = 1\n")},
	})
	errtest.None(t, err)

	callback, err := store.Keep(t.Context(), os.DirFS("../../ansible/plugins/callback"))
	errtest.None(t, err)

	roles, err := store.Keep(
		t.Context(),
		fstest.MapFS{
			"bundled/tasks/main.yml": {Data: []byte("- name: greet\n  ansible.builtin.debug: {msg: hello}\n")},
		},
	)
	errtest.None(t, err)

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
		Playbooks:    store.Path(digest),
		Playbook:     "site.yml",
		BundledRoles: store.Path(roles),
		CallbackDir:  store.Path(callback),
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
				t.Fatal("a variable of the request is visible in ", where)
			}
		}
	}

	output := read(t, run.Output())
	if !exit.OK() {
		t.Fatalf("exit %+v:\n%s", exit, output)
	}

	expectContains(t, "the command line of ssh", sshSeen,
		" -F "+first.Dir+"/ssh_config ",
		"UserKnownHostsFile="+first.Dir+"/known_hosts ",
		"StrictHostKeyChecking=accept-new ",
		"ControlPath=\""+socketDir(first.Dir)+"/",
	)

	if strings.Contains(output, "\x1b[") || strings.Contains(output, secret) ||
		strings.Contains(output, "acted on master-1") ||
		!strings.Contains(output, "acted on fd00::7, masters are ['master-1']") {
		t.Errorf("output:\n%s", output)
	}

	if strings.Contains(output, "WARNING") {
		t.Errorf("warnings:\n%s", output)
	}

	if _, err := os.Stat(flag); err == nil {
		t.Error("Ansible evaluated a template in data")
	}

	for _, h := range hosts[:3] {
		var got, want map[string]any

		received := read(t, filepath.Join(store.Path(digest), h.Name+".json"))
		errtest.None(t, json.Unmarshal([]byte(received), &got))

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
	errtest.None(t, err)

	wantKeys := map[string][]string{
		"Web-1":   {sshd.hostKey},
		"web-2":   {sshd.hostKey},
		"fd00::7": {sshd.hostKey},
	}
	if !reflect.DeepEqual(keys, wantKeys) {
		t.Errorf("recorded keys %v", keys)
	}

	results := summary(t, run)
	for _, h := range hosts[:3] {
		if r := results[h.Name]; !r.Good() || r.Changed != 1 {
			t.Errorf("%s: %+v", h.Name, r)
		}
	}

	second := first
	second.Hosts = []configuration.Host{hosts[0], hosts[1], hosts[3]}
	second.Hosts[0].HostKeys = keys["Web-1"]
	second.Hosts[1].HostKeys = []string{otherKey(t)}

	// Ansible may still write to an ssh that has ended already, and then reports that in the
	// place of the reason that ssh gave.
	for try := range 5 {
		second.ID = fmt.Sprintf("second-%d", try)
		second.Dir = filepath.Join(base, second.ID)
		run = start(t, second)

		exit, err = run.Wait(within(t, patience))
		if err != nil || exit.Reason != Done || exit.Code == 0 {
			t.Errorf("exit %+v, %v", exit, err)
		}

		if results = summary(t, run); !strings.Contains(results["web-2"].Message, "Broken pipe") {
			break
		}
	}

	if r := results["Web-1"]; !r.Good() {
		t.Errorf("the host with the recorded key: %+v\n%s", r, read(t, run.Output()))
	}

	r := results["web-2"]

	explanation := configuration.ExplainFailure(r.Message, configuration.Host{Name: "web-2", Label: "web"})
	if r.Unreachable != 1 || !strings.Contains(explanation, "trust the new key") {
		t.Errorf("the host with another key: %+v", r)
	}

	if keys, err := NewHostKeys(second.Dir); err != nil || len(keys) > 0 {
		t.Errorf("keys were recorded: %v, %v", keys, err)
	}
}

// liveCancel cancels a run. That ends ansible-playbook, its workers, ssh and
// ssh's master connections; start checks that no process is left.
func liveCancel(t *testing.T, sshd liveSSH) {
	base := t.TempDir()
	store := &repository.Store{Dir: filepath.Join(base, "playbooks")}

	digest, err := store.Keep(t.Context(), fstest.MapFS{"site.yml": {Data: []byte(`
- hosts: all
  gather_facts: false
  tasks:
    - name: take some time
      ansible.builtin.command: sleep 60
`)}})
	errtest.None(t, err)

	s := Spec{
		ID: "cancel", Dir: filepath.Join(base, "run"), Playbooks: store.Path(digest), Playbook: "site.yml",
		Hosts: []configuration.Host{sshd.host("web-1", liveAddrs[0]), sshd.host("web-2", liveAddrs[1])},
		// Python may lose a SIGINT during a fork; SIGTERM follows.
		Deadline: time.Now().Add(time.Hour), GraceInt: time.Second, GraceTerm: time.Second,
	}
	run := start(t, s)
	waitForOutput(t, run, "TASK [take some time]")

	errtest.None(t, run.Cancel(t.Context()))

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
	generateKey(t, path)
	return strings.TrimSpace(read(t, path+".pub"))
}

func generateKey(t *testing.T, path string) {
	cmd := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v: %s", err, out)
	}
}

func TestSyntaxChecker(t *testing.T) {
	t.Parallel()
	needAnsible(t)
	store := &repository.Store{Dir: filepath.Join(t.TempDir(), "playbooks")}

	digest, err := store.Keep(t.Context(), fstest.MapFS{
		"site.yml":    {Data: []byte("- hosts: service-worker\n  roles: [own]\n")},
		"cleanup.yml": {Data: []byte("- hosts: all\n  tasks:\n    - no_such_module: {}\n")},
		"broken.yml":  {Data: []byte("- hosts: [all\n")},

		"roles/own/tasks/main.yml": {Data: []byte("- ansible.builtin.debug: {msg: hello}\n")},
	})
	errtest.None(t, err)

	var checker SyntaxChecker

	check := func(ctx context.Context, playbook string) error {
		return checker.Check(ctx, store.Path(digest), playbook, "", "service-worker", "service-master")
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
			strings.Contains(err.Error(), store.Dir) {
			t.Errorf("%s: %v", playbook, err)
		}
	}

	cancelled, cancel := context.WithCancel(t.Context())
	cancel()

	if err := check(cancelled, "site.yml"); err != nil {
		t.Errorf("a playbook that passed was checked again: %v", err)
	}

	if err := check(cancelled, "cleanup.yml"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled context: %v", err)
	}
}
