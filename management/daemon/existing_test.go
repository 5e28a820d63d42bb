// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/monitor/serf/serftest"
)

// peers are members of the distribution's etcd, with its default limits.
type peers struct {
	t       *testing.T
	ca      *authority // nil: plain http
	members []*peer
}

type peer struct {
	t    *testing.T
	url  string
	args []string
	log  string
	cmd  *exec.Cmd
	gone chan struct{}
}

// startPeers starts members on addresses of their own, and waits for their leader.
func startPeers(t *testing.T, count int, ca *authority) *peers {
	t.Helper()

	if os.Getenv("CLUSTERM_LAB") != "1" {
		t.Skip("runs the distribution's etcd; set CLUSTERM_LAB=1, as make system does")
	}

	if _, err := exec.LookPath("etcd"); err != nil {
		t.Skipf("the distribution's etcd-server is not installed: %v", err)
	}

	p := &peers{t: t, ca: ca}
	dir := t.TempDir()
	scheme := "http://"

	var secure []string
	if ca != nil {
		scheme = "https://"
		cert, key := ca.issue(t, "server", "127.0.0.31", "127.0.0.32", "127.0.0.33")
		secure = []string{"--cert-file", cert, "--key-file", key, "--trusted-ca-file", ca.file, "--client-cert-auth"}
	}

	var initial, peerURLs []string
	for i := range count {
		ip := fmt.Sprintf("127.0.0.%d", 31+i)
		peerURLs = append(peerURLs, "http://"+serftest.Free(t, ip))
		initial = append(initial, fmt.Sprintf("m%d=%s", i, peerURLs[i]))
		p.members = append(
			p.members,
			&peer{t: t, url: scheme + serftest.Free(t, ip), log: filepath.Join(dir, fmt.Sprintf("m%d.log", i))},
		)
	}

	for i, m := range p.members {
		m.args = append(
			[]string{"--name", fmt.Sprintf("m%d", i), "--data-dir", filepath.Join(dir, fmt.Sprintf("m%d", i)),
				"--listen-client-urls", m.url, "--advertise-client-urls", m.url,
				"--listen-peer-urls", peerURLs[i], "--initial-advertise-peer-urls", peerURLs[i],
				"--initial-cluster", strings.Join(initial, ","), "--logger", "zap"},
			secure...)
		m.start()
		t.Cleanup(m.kill)
	}

	admin := p.admin("", "")

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	if _, err := admin.Put(ctx, "/ready", ""); err != nil {
		t.Fatalf("the etcd does not serve: %v", err)
	}

	return p
}

func (m *peer) start() {
	m.t.Helper()

	log, err := os.OpenFile(m.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	errtest.None(m.t, err)
	defer log.Close()
	m.cmd = exec.Command("etcd", m.args...)
	m.cmd.Stdout, m.cmd.Stderr = log, log

	m.cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	errtest.None(m.t, m.cmd.Start())

	gone := make(chan struct{})

	m.gone = gone
	go func(cmd *exec.Cmd) { _ = cmd.Wait(); close(gone) }(m.cmd)
}

func (m *peer) kill() {
	_ = m.cmd.Process.Kill()
	<-m.gone
}

// signal sends STOP or CONT.
func (m *peer) signal(s unix.Signal) { _ = m.cmd.Process.Signal(s) }

// admin returns an etcd client besides the daemon's.
func (p *peers) admin(user, password string) *clientv3.Client {
	p.t.Helper()

	config := clientv3.Config{Username: user, Password: password, DialTimeout: patience}
	for _, m := range p.members {
		config.Endpoints = append(config.Endpoints, m.url)
	}

	if p.ca != nil {
		config.TLS = p.ca.client(p.t, "admin")
	}

	c, err := clientv3.New(config)
	errtest.None(p.t, err)
	p.t.Cleanup(func() { c.Close() })

	return c
}

// yaml returns the section etcd for the members, with further keys.
func (p *peers) yaml(more ...string) string {
	var urls []string
	for _, m := range p.members {
		urls = append(urls, fmt.Sprintf("%q", m.url))
	}

	return "etcd: {endpoints: [" + strings.Join(urls, ", ") + "], " + strings.Join(more, ", ") + "}"
}

// authority signs certificates.
type authority struct {
	dir, file string
	cert      *x509.Certificate
	key       *ecdsa.PrivateKey
	serial    int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.cert = &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "authority"},
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	a.key, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)

	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, a.key.Public(), a.key)
	errtest.None(t, err)
	a.file = a.write(t, "ca.crt", "CERTIFICATE", der)

	return a
}

func (a *authority) write(t *testing.T, name, kind string, data []byte) string {
	t.Helper()
	path := filepath.Join(a.dir, name)
	errtest.None(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600))
	return path
}

func (a *authority) issue(t *testing.T, name string, ips ...string) (cert, key string) {
	t.Helper()
	a.serial++

	template := &x509.Certificate{
		SerialNumber: big.NewInt(a.serial + 1),
		Subject:      pkix.Name{CommonName: name},
		NotAfter:     time.Now().Add(time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, ip := range ips {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(ip))
	}

	private, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)

	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, private.Public(), a.key)
	errtest.None(t, err)

	bytes, err := x509.MarshalPKCS8PrivateKey(private)
	errtest.None(t, err)
	return a.write(t, name+".crt", "CERTIFICATE", der), a.write(t, name+".key", "PRIVATE KEY", bytes)
}

func (a *authority) client(t *testing.T, name string) *tls.Config {
	t.Helper()

	pair, err := tls.LoadX509KeyPair(a.issue(t, name))
	errtest.None(t, err)

	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	data, _ := os.ReadFile(a.file)
	pool.AppendCertsFromPEM(data)

	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool}
}

// reportMany reports nodes n-0000, n-0001 and so on in one event, and returns their names.
func (s *site) reportMany(count int) (names []string) {
	s.t.Helper()

	var nodes []string
	for i := range count {
		nodes = append(nodes, fmt.Sprintf(`{"label":"n","serial":"%04d","addr":"10.1.%d.%d"}`, i, i/250, i%250+1))
		names = append(names, fmt.Sprintf("n-%04d", i))
	}

	if status, text := s.post(
		api.LegacyMonitorEvent,
		`{"monitor_event":{"name":"discovered","nodes":[`+strings.Join(nodes, ",")+`]}}`,
	); status != 200 {
		s.t.Fatalf("%d: %s", status, text)
	}

	return names
}

// eventually waits until the condition holds.
func (s *site) eventually(what string, so func() bool) {
	s.t.Helper()

	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()

	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()

	for !so() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			s.t.Fatalf("not so: %s", what)
		}
	}
}

// TestExistingEtcd runs the daemon on three members of the distribution's etcd with
// default limits, and takes the members away and back in the middle of a job.
func TestExistingEtcd(t *testing.T) { // several servers: not beside other tests
	p := startPeers(t, 3, nil)
	s := prepare(t, p.yaml())
	s.staleAfter = 0
	s.up()
	t.Cleanup(s.down)
	h, err := s.Health(s.ctx())
	s.must(err)

	if h.Status != api.HealthOK || len(h.Warnings) != 1 || !strings.Contains(h.Warnings[0], "3.6.14") {
		t.Errorf("%+v", h)
	}

	v, err := s.Version(s.ctx())
	s.must(err)

	if v.Etcd == "" || !strings.Contains(h.Warnings[0], v.Etcd) {
		t.Errorf("%+v", v)
	}

	names := s.reportMany(1000)
	fifo := s.fifo("gate")
	// Every reason and every variable is in as many records as there are nodes.
	j, err := s.Client.Submit(
		s.ctx(),
		api.JobRequest{
			Verb:  inventory.VerbCommission,
			Nodes: names,
			Group: inventory.GroupMaster,
			JobOptions: inventory.JobOptions{
				SharedOptions: inventory.SharedOptions{Reason: strings.Repeat("why ", 200)},
			},
			ExtraVars: []byte(`{"waits_at":"` + fifo + `"}`),
		},
	)
	s.must(err)

	// One of three is killed while the nodes are being claimed: everything goes on.
	p.members[0].kill()
	s.until(j.ID, "it runs", func(j api.Job) bool { return j.Status == api.Running })
	s.waitOutput(j.ID, "waiting\n")

	list, err := s.Nodes(s.ctx(), client.NodeFilter{Status: []inventory.Status{inventory.Provisioning}})
	if err != nil || len(list.Items) != 1000 {
		t.Errorf("%d are held, %v", len(list.Items), err)
	}

	s.eventually("a write without one of three", func() bool {
		_, err := s.Client.SetVars(s.ctx(), client.ScopeGlobal, api.Vars{"one": "down"})
		return err == nil
	})

	// Without a quorum, reads are served and marked as stale; changes fail with the reason.
	p.members[1].kill()
	s.eventually("marked as stale", func() bool {
		list, err := s.Nodes(s.ctx(), client.NodeFilter{})
		return err == nil && len(list.Items) == 1000 && list.Stale
	})
	begun := time.Now()
	_, err = s.Client.SetVars(s.ctx(), client.ScopeGlobal, api.Vars{"two": "down"})
	checkError(t, err, inventory.KindUnavailable, "the store does not answer")
	t.Logf("a change without a quorum: %v, after %s", err, time.Since(begun).Round(time.Millisecond))

	h, err = s.Health(s.ctx())
	if err != nil || h.Status != api.HealthDegraded || h.Checks["store"] == "ok" {
		t.Errorf("%+v, %v", h, err)
	}

	s.release(fifo) // the playbook ends in the dark

	// They are back: so is everything, by itself.
	p.members[0].start()
	p.members[1].start()
	j, err = s.Client.WaitJob(s.ctx(), j.ID)
	s.must(err)

	if j.Status != api.Complete || len(j.Runs) != 1 || s.status("n-0999") != "Allocated service-master" {
		t.Errorf("%s %s, %d runs, %s", j.Status, j.Message, len(j.Runs), s.status("n-0999"))
	}

	s.eventually("healthy", func() bool {
		h, err := s.Health(s.ctx())
		return err == nil && h.Status == api.HealthOK && !h.Stale
	})

	if l, err := s.Instances(s.ctx()); err != nil || len(l.Items) != 1 || l.Items[0].Node != "manager-1" {
		t.Errorf("%+v, %v", l, err)
	}

	// All hosts fail with long messages; the record still fits into etcd.
	playbook := filepath.Join(s.dir, "fails")
	script := "#!/bin/sh\n[ \"$1\" = --version ] && { echo 'ansible-playbook [core 2.16.3]'; exit; }\ncase \"$*\" " +
		"in *--syntax-check*) exit 0;; esac\n" +
		"i=0; while [ $i -lt 1000 ]; do printf " +
		"'{\"event\":\"failed\",\"host\":\"n-%04d\",\"task\":\"T\",\"message\":\"%s\"}\\n' $i \"" + strings.Repeat(
		"no such package ",
		250,
	) + "\"; i=$((i+1)); done >\"$CLUSTERM_EVENTS\"\nexit 2\n"
	s.must(writeProgram(playbook, script))
	s.write(p.yaml(), "ansible_playbook: "+playbook)
	s.must(s.Reload())
	j, err = s.Client.Submit(s.ctx(), api.JobRequest{Verb: inventory.VerbMaintenance, Nodes: names})
	s.must(err)
	j, err = s.Client.WaitJob(s.ctx(), j.ID)
	s.must(err)

	if j.Status != api.Errored || s.status("n-0999") != "Allocated service-master" {
		t.Errorf("%s %.300s %s", j.Status, j.Message, s.status("n-0999"))
	}
}

// TestExistingEtcdHangs suspends members. The daemon continues with a quorum, and
// recovers without help after an outage longer than its lease.
func TestExistingEtcdHangs(t *testing.T) { // several servers: not beside other tests
	p := startPeers(t, 3, nil)
	s := prepare(t, p.yaml())
	s.staleAfter = 0
	s.up()
	t.Cleanup(s.down)
	s.report("a")
	before := s.instance()
	p.members[1].signal(unix.SIGSTOP)
	s.eventually("a write without one of three", func() bool {
		_, err := s.Client.SetVars(s.ctx(), client.ScopeGlobal, api.Vars{"one": "stopped"})
		return err == nil
	})
	s.eventually("not stale", func() bool {
		l, err := s.Nodes(s.ctx(), client.NodeFilter{})
		return err == nil && !l.Stale
	})
	p.members[2].signal(unix.SIGSTOP)
	s.eventually("no right to run jobs", func() bool { return !s.member.Leads() })

	// The first member to stop may have cost that right already, before the outage.
	s.eventually("a known outage", func() bool {
		l, err := s.Nodes(s.ctx(), client.NodeFilter{})
		return err == nil && l.Stale
	})

	begun := time.Now()
	status, text := s.post("/globals", `{"extra_vars":{"one":"two"}}`)

	if took := time.Since(begun); status != http.StatusInternalServerError || took > 2*time.Second ||
		!strings.Contains(text, "the store does not answer, for ") {
		t.Errorf("after %s: %d: %s", took, status, text)
	}

	p.members[1].signal(unix.SIGCONT)
	p.members[2].signal(unix.SIGCONT)
	s.eventually("a write with a quorum", func() bool {
		_, err := s.Client.SetVars(s.ctx(), client.ScopeGlobal, api.Vars{"one": "goes on"})
		return err == nil
	})

	j := s.runJob(api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}})
	if j.Status != api.Complete || s.instance() != before {
		t.Errorf("%+v", j)
	}
}

func (s *site) instance() string {
	s.t.Helper()
	l, err := s.Instances(s.ctx())
	s.must(err)

	if len(l.Items) != 1 {
		s.t.Fatalf("%+v", l.Items)
	}
	return l.Items[0].ID
}

// TestExistingEtcdAccess checks TLS with client certificates and a user with rights on
// its prefix only, and the errors of wrong credentials.
func TestExistingEtcdAccess(t *testing.T) { // several servers: not beside other tests
	ca := newAuthority(t)
	p := startPeers(t, 3, ca)
	admin := p.admin("", "")

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	for _, err := range []error{
		second(admin.UserAdd(ctx, "root", "root")), second(admin.UserGrantRole(ctx, "root", "root")),
		second(admin.RoleAdd(ctx, "clusterm")),
		second(admin.RoleGrantPermission(ctx, "clusterm", "/site/a/", clientv3.GetPrefixRangeEnd("/site/a/"),
			clientv3.PermissionType(clientv3.PermReadWrite))),
		second(admin.UserAdd(ctx, "clusterm", "pass word")), second(admin.UserGrantRole(ctx, "clusterm", "clusterm")),
		second(admin.AuthEnable(ctx)),
	} {
		errtest.None(t, err)
	}

	file := func(name, content string) string {
		path := filepath.Join(ca.dir, name)
		errtest.None(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	good, wrong := file("password", "pass word\n"), file("wrong", "guess\n")
	cert, key := ca.issue(t, "somebody")
	others := newAuthority(t)
	otherCert, otherKey := others.issue(t, "stranger")
	tls := "ca_file: " + ca.file + ", cert_file: " + cert + ", key_file: " + key

	user := "user: clusterm, password_file: " + good
	for name, tt := range map[string]struct {
		yaml    string
		kind    inventory.Kind
		message string
	}{
		"a wrong password": {
			tls + ", prefix: /site/a, user: clusterm, password_file: " + wrong, inventory.KindUnavailable,
			"check etcd.user",
		},
		"an unknown user": {
			tls + ", prefix: /site/a, user: nobody, password_file: " + good, inventory.KindUnavailable,
			"check etcd.user",
		},
		"no user": {tls + ", prefix: /site/a", inventory.KindUnavailable, "the store refuses clusterm"},
		"another prefix": {
			tls + ", prefix: /site/b, " + user, inventory.KindUnavailable, "read and write access below etcd.prefix",
		},
		"a prefix that begins alike": {
			tls + ", prefix: /site/abc, " + user, inventory.KindUnavailable, "read and write access below etcd.prefix",
		},
		"another authority": {
			"ca_file: " + others.file + ", cert_file: " + cert + ", key_file: " + key + ", prefix: /site/a, " + user,
			inventory.KindUnavailable, "x509: certificate signed by unknown authority",
		},
		"no certificate": {
			"ca_file: " + ca.file + ", prefix: /site/a, " + user, inventory.KindUnavailable, "certificate",
		},
		"a certificate of a stranger": {
			"ca_file: " + ca.file + ", cert_file: " + otherCert + ", key_file: " + otherKey + ", prefix: /site/a, " +
				user,
			inventory.KindUnavailable, "certificate",
		},
	} {
		other := prepare(t, p.yaml(tt.yaml))
		begun := time.Now()
		err := other.try(patience)
		t.Logf("%s, after %s: %v", name, time.Since(begun).Round(time.Millisecond), err)
		checkError(t, err, tt.kind, tt.message)

		if err == nil {
			other.down()
		}
	}

	s := begin(t, p.yaml(tls, "prefix: /site/a", user))

	names := s.reportMany(200)
	if j := s.runJob(
		api.JobRequest{Verb: inventory.VerbCommission, Nodes: names, Group: inventory.GroupMaster},
	); j.Status != api.Complete {
		t.Errorf("%+v", j)
	}

	// Tokens are forgotten when a member restarts, and new ones asked for.
	for _, m := range p.members {
		m.kill()
		m.start()
	}

	s.eventually("a write after a restart of all", func() bool {
		_, err := s.Client.SetVars(s.ctx(), client.ScopeGlobal, api.Vars{"a": "b"})
		return err == nil
	})

	if j := s.runJob(api.JobRequest{Verb: inventory.VerbMaintenance, Nodes: names}); j.Status != api.Complete {
		t.Errorf("%+v", j)
	}

	s.restart()

	if s.status("n-0199") != "Allocated service-master" {
		t.Error(s.status("n-0199"))
	}

	// Nothing was written elsewhere.
	root := p.admin("root", "root")
	all, err := root.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithKeysOnly())
	s.must(err)

	for _, kv := range all.Kvs {
		if key := string(kv.Key); key != "/ready" && !strings.HasPrefix(key, "/site/a/") {
			t.Errorf("there is a key %s", key)
		}
	}
}

// TestExistingEtcdShared runs managers on one etcd. With prefixes of their own they
// are independent. With the same prefix the second is refused, and may take over after
// the end of the first.
func TestExistingEtcdShared(t *testing.T) { // several servers: not beside other tests
	p := startPeers(t, 1, nil)
	a := begin(t, p.yaml("prefix: /a"))
	b := begin(t, p.yaml("prefix: /a/b"), `node: {label: other, serial: "1"}`)
	a.report("a")
	b.report("b c")

	for s, want := range map[*site]int{a: 1, b: 2} {
		if l, err := s.Nodes(s.ctx(), client.NodeFilter{}); err != nil || len(l.Items) != want {
			t.Errorf("%+v, %v", l, err)
		}
	}

	if a.instance() == b.instance() {
		t.Error("they have the same identity")
	}

	c := prepare(t, p.yaml("prefix: /a"), `node: {label: third, serial: "1"}`)
	begun := time.Now()
	err := c.try(patience)
	checkError(t, err, inventory.KindRefused, "secret variables are locked", "from the other instance")
	t.Logf("refused after %s", time.Since(begun).Round(time.Millisecond))

	if h, err := a.Health(a.ctx()); err != nil || h.Status != api.HealthOK {
		t.Errorf("the first one is disturbed: %+v, %v", h, err)
	}

	id := a.instance()
	a.restart()

	if a.instance() != id {
		t.Error("a restart made it another instance")
	}

	a.down()
	begun = time.Now()
	c.up()
	t.Cleanup(c.down)
	t.Logf("the next one is up after %s", time.Since(begun).Round(time.Millisecond))

	if c.status("a-1") != "Unallocated" {
		t.Error("the next one does not know the nodes")
	}

	// An instance follows when another one leads.
	admin := p.admin("", "")
	_, err = admin.Put(
		c.ctx(),
		"/a/v1/v/holder",
		`{"id":"ffffffffffffffff","node":"fourth-1","version":"x","started":"2026-01-02T03:04:05Z"}`,
	)
	c.must(err)
	c.eventually("it begins no jobs", func() bool { return !c.member.Leads() })

	if h, err := c.Health(c.ctx()); err != nil || len(c.Daemon.failed) > 0 {
		t.Errorf("it ends: %+v, %v", h, err)
	}

	// The record has no lease, so nobody would lead before it is removed.
	_, err = admin.Delete(c.ctx(), "/a/v1/v/holder")
	c.must(err)
	c.eventually("it leads again", c.member.Leads)
}

// TestPlaybooksOfAnotherInstance: an instance that takes over has the playbooks in use, and
// those that nodes carry, while the repository is away.
func TestPlaybooksOfAnotherInstance(t *testing.T) { // a server: not beside other tests
	p := startPeers(t, 1, nil)
	a := prepare(t)
	c := a.newClone()
	section := append(c.section(""), p.yaml("prefix: /p"))

	first := c.push("first", false)
	a.write(section...)
	a.up()
	a.report("a")
	a.sync(first)

	j := a.runJob(api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}})
	if j.Status != api.Complete || j.Commit != first {
		t.Fatalf("%+v", j)
	}

	c.put("files/new", "new\n")
	second := c.push("second", false)
	a.sync(second)
	a.down()
	a.must(os.RemoveAll(c.bare))

	b := prepare(t, section...)
	b.up()
	t.Cleanup(b.down)

	cleanup := b.runJob(api.JobRequest{Verb: inventory.VerbDecommission, Nodes: []string{"a-1"}})
	if cleanup.Status != api.Complete || cleanup.Runs[0].PlaybookDigest != j.PlaybookDigest {
		t.Errorf("the cleanup: %+v", cleanup)
	}

	again := b.runJob(api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}})
	if again.Status != api.Complete || again.Commit != second {
		t.Errorf("the next commission: %+v", again)
	}
}

// TestDataDirectoryInUse starts a second daemon on a data directory. It logs at once
// why it waits, with an embedded etcd and with an existing one.
func TestDataDirectoryInUse(t *testing.T) {
	t.Parallel()
	s := begin(t)
	const words = "in use by another clusterm"

	second := func(yaml ...string) (*Daemon, *logWaiter) {
		options := prepare(t, append(yaml, "data_dir: "+s.dir+"/d")...).options()
		log := &logWaiter{words: words + "; waiting for up to 15s", found: make(chan struct{})}
		options.Logger.SetOutput(log)
		d, err := New(options)
		s.must(err)
		return d, log
	}
	for _, etcd := range []string{"etcd: {}", "etcd: {endpoints: [\"http://127.0.0.1:1\"]}"} {
		d, log := second(etcd)
		ctx, cancel := context.WithCancel(t.Context())

		ended := make(chan error, 1)
		go func() { ended <- d.Start(ctx) }()

		select {
		case <-log.found:
			cancel()
			checkError(t, <-ended, inventory.KindUnavailable, words)
		case err := <-ended:
			cancel()
			t.Errorf("%s: %v", etcd, err)
		}
	}

	// As in main: a stop during the start is logged, and is no failure.
	d, log := second()

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx, nil) }()

	select {
	case <-log.found:
		cancel()
	case err := <-ended:
		t.Fatalf("it did not wait: %v", err)
	}

	s.must(<-ended)

	if text := log.text.String(); !strings.Contains(text, "stopped before it had started") ||
		!strings.Contains(text, words) {
		t.Error(text)
	}
}

// logWaiter closes found when the log contains the text.
type logWaiter struct {
	mu    sync.Mutex
	text  bytes.Buffer
	words string
	found chan struct{}
}

func (s *logWaiter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(p)

	if s.words != "" && strings.Contains(s.text.String(), s.words) {
		s.words = ""
		close(s.found)
	}

	return len(p), nil
}

// TestInstance checks that the record of an instance survives a restart, and that a
// damaged identity is refused.
func TestInstance(t *testing.T) {
	t.Parallel()
	s := begin(t)
	l, err := s.Instances(s.ctx())
	s.must(err)

	if len(l.Items) != 1 || l.Items[0].Node != "manager-1" || l.Items[0].Version != "test" ||
		strings.Join(l.Items[0].API, " ") != "unix://"+s.dir+"/s "+s.url || l.Items[0].Started.IsZero() {
		t.Errorf("%+v", l.Items)
	}

	s.restart()

	again, err := s.Instances(s.ctx())
	if err != nil || len(again.Items) != 1 || again.Items[0].ID != l.Items[0].ID ||
		!again.Items[0].Started.After(l.Items[0].Started) {
		t.Errorf("%+v, %v", again, err)
	}

	s.down()
	path := filepath.Join(s.dir, "d", "instance.id")
	s.must(os.WriteFile(path, []byte("../x\n"), 0o600))
	checkError(t, s.try(patience), inventory.KindInvalid, path, "remove it")
	s.must(errors.Join(os.Remove(path)))
	s.up()
}
