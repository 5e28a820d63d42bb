// SPDX-License-Identifier: Apache-2.0

package serf

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	hserf "github.com/hashicorp/serf/serf"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/contiv/cluster/inventory/errtest"
)

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.yaml")
	errtest.None(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

const minimal = "node: {label: a, serial: b, addr: 192.0.2.1}\n"

func TestLoadAgentConfig(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	errtest.None(t, err)
	_, example, _ := strings.Cut(string(readme), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")

	c, err := LoadAgentConfig(writeFile(t, example))
	if err != nil {
		t.Fatalf("the example in the README: %v", err)
	}
	if c.Node.Name() != "rack1-S0001" || len(c.Gossip.Join) != 1 || c.Gossip.Bind != "192.0.2.11:7946" {
		t.Fatalf("%+v", c)
	}

	c, err = LoadAgentConfig(writeFile(t, minimal))
	if err != nil || c.Gossip.Bind != "192.0.2.1:7946" || c.DataDir == "" || c.Gossip.KeyFile == "" {
		t.Fatalf("%+v %v", c, err)
	}
	c, err = LoadAgentConfig(writeFile(t, "node: {label: a, serial: b, addr: '2001:db8::1'}"))
	if err != nil || c.Gossip.Bind != "[2001:db8::1]:7946" {
		t.Fatalf("%+v %v", c, err)
	}

	for _, tc := range []struct{ name, text, want string }{
		{"empty", "", "label is empty"},
		{"an unknown key", minimal + "datadir: /x\n", "line 2:"},
		{"an unknown key, named", minimal + "datadir: /x\n", "datadir"},
		{"an unknown key below", minimal + "gossip: {bin: ':1'}\n", "bin"},
		{"a repeated key", minimal + minimal, "node"},
		{"two documents", minimal + "---\ndata_dir: /x\n", "more than one document"},
		{"a wrong kind", minimal + "gossip: {join: {a: b}}\n", "line 2:"},
		{"no YAML", "node: [", "line 1:"},
		{"no label", "node: {serial: b, addr: 192.0.2.1}", "label is empty"},
		{"a bad serial", "node: {label: a, serial: 'b c', addr: 192.0.2.1}", "serial"},
		{"a bad address", "node: {label: a, serial: b, addr: 'x y'}", "address"},
		{"a host name and no bind", "node: {label: a, serial: b, addr: host1}", "gossip.bind"},
		{"a bad bind", minimal + "gossip: {bind: host1}\n", "gossip.bind"},
		{"a bad advertise", minimal + "gossip: {advertise: 'a:b:c'}\n", "gossip.advertise"},
		{"a bad peer", minimal + "gossip: {join: ['a b']}\n", "gossip.join"},
		{"no key file", minimal + "gossip: {key_file: ''}\n", "gossip.key_file"},
		{"no directory", minimal + "data_dir: ''\n", "data_dir"},
		{"huge", strings.Repeat("# comment\n", 200000), "larger than"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := writeFile(t, tc.text)

			_, err := LoadAgentConfig(path)
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), path) {
				t.Fatalf("%v, want %q and the file in it", err, tc.want)
			}
		})
	}

	if _, err := LoadAgentConfig("/nonexistent/agent.yaml"); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}

func TestRunAgent(t *testing.T) {
	t.Parallel()
	obs, seen := observer(t, options(t, 130))

	key := filepath.Join(t.TempDir(), "key")
	errtest.None(t, os.WriteFile(key, []byte(testKey+"\n"), 0o644))
	if err := os.Chmod(key, 0o644); err != nil { // independent of the umask
		t.Fatal(err)
	}

	c := AgentConfig{
		Node: node(131), DataDir: filepath.Join(t.TempDir(), "new", "dir"),
		Gossip: GossipConfig{Bind: at(131) + ":0", KeyFile: key, Join: []string{obs.Addr()}},
	}
	log, hook := logtest.NewNullLogger()
	ctx, cancel := context.WithCancel(t.Context())

	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- runAgent(ctx, c, Loopback(), log, func() { close(ready) }) }()
	<-ready
	eventually(t, "the node is seen", func() bool { return seen.see("node-131").Alive })
	cancel()

	errtest.None(t, <-done)

	eventually(t, "the node has left", func() bool { return obs.Stats().Left == 1 && !seen.see("node-131").Alive })

	warned := false
	for _, e := range hook.AllEntries() {
		warned = warned || strings.Contains(e.Message, "0600")
		if strings.Contains(e.Message, testKey) {
			t.Fatal("the log contains the key")
		}
	}

	if !warned {
		t.Error("no warning about a key file that others can read")
	}

	c.Gossip.Bind = obs.Addr()
	if err := RunAgent(t.Context(), c, log, nil); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Fatalf("a taken port: %v", err)
	}
}

func TestForgottenMembers(t *testing.T) {
	t.Parallel()
	o := options(t, 140)
	o.Timing.Tombstone = 100 * time.Millisecond
	obs, seen := observer(t, o)
	n := options(t, 141)
	n.Join = []string{obs.Addr()}
	a := start(t, n)
	eventually(t, "the node is seen", func() bool { return seen.see("node-141").Alive })
	leave(t, a)
	eventually(t, "the member is forgotten", func() bool {
		st := obs.Stats()
		return st.Left == 0 && st.Observer.Nodes == 0 && !seen.see("node-141").Alive
	})

	// A host that lost its directory has a new name; the old one is forgotten.
	n = options(t, 142)
	n.Join = []string{obs.Addr()}
	a = start(t, n)
	eventually(t, "the node is seen", func() bool { return seen.see("node-142").Alive })
	old := a.Name()
	n.Bind = a.Addr()
	a.Close()

	a = start(t, n)
	if a.Name() == old {
		t.Fatal("the name survived the loss of the directory")
	}

	eventually(t, "the old name is forgotten", func() bool {
		s := seen.see("node-142")
		return s.Alive && !s.Duplicate && len(obs.Members()) == 2
	})
}

func TestState(t *testing.T) {
	dir := t.TempDir()

	s, damage, err := openStore(dir)
	if err != nil || damage != nil {
		t.Fatal(err, damage)
	}
	for i := range 2 * maxPeers {
		s.Peers = append(s.Peers, fmt.Sprintf("10.0.%d.%d:7946", i/250, i%250))
	}

	s.Alive = []string{"a-b"}
	errtest.None(t, s.save())

	suffix := s.Suffix
	s.close()

	s, damage, err = openStore(dir)
	if err != nil || damage != nil || s.Suffix != suffix || len(s.Peers) != maxPeers || s.Alive[0] != "a-b" {
		t.Fatalf("%+v %v %v", s, damage, err)
	}
	s.close()

	path := filepath.Join(dir, stateFile)
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Fatal(st, err)
	}

	for _, bad := range []string{"", "{", `{"suffix": "../../x"}`, `{"suffix": "0123abcd", "peers": ["a b"]}`, `[]`} {
		errtest.None(t, os.WriteFile(path, []byte(bad), 0o600))

		s, damage, err := openStore(dir)
		if err != nil || damage == nil || s.Suffix == suffix || !suffixForm.MatchString(s.Suffix) ||
			len(s.Peers) != 0 {
			t.Fatalf("%q: %+v %v %v", bad, s, damage, err)
		}

		s.close()

		if kept, _ := os.ReadFile(path + ".bad"); string(kept) != bad {
			t.Fatalf("%q was not kept", bad)
		}
	}
}

func TestLogBridge(t *testing.T) {
	to, hook := logtest.NewNullLogger()
	to.SetLevel(logrus.DebugLevel)

	l := newLogger(to)
	for _, c := range []struct {
		line  string
		level logrus.Level
		text  string
	}{
		{"[DEBUG] serf: d", logrus.DebugLevel, "serf: d"},
		{"[INFO] serf: i", logrus.InfoLevel, "serf: i"},
		{"[WARN] memberlist: w", logrus.WarnLevel, "memberlist: w"},
		{"[ERR] memberlist: e", logrus.WarnLevel, "memberlist: e"},
		{"no level", logrus.InfoLevel, "no level"},
		{"[INFO] serf: attempting reconnect to x", logrus.DebugLevel, "serf: attempting reconnect to x"},
		{"[WARN] a\nb\x1b[31m\xff", logrus.WarnLevel, "a b?[31m?"},
		{"[INFO] " + strings.Repeat("x", 2000), logrus.InfoLevel, strings.Repeat("x", maxLine) + "…"},
	} {
		l.Print(c.line)

		if e := hook.LastEntry(); e.Level != c.level || e.Message != c.text {
			t.Errorf("%q: %v %q", c.line, e.Level, e.Message)
		}
	}

	hook.Reset()

	for range 1000 {
		l.Print("[WARN] flood")
	}

	if n := len(hook.AllEntries()); n > 2*logBurst {
		t.Fatalf("%d lines", n)
	}
}

func TestKey(t *testing.T) {
	a, b := GenerateKey(), GenerateKey()
	if a == b || CheckKey(a) != nil || CheckKey(" "+b+"\n") != nil {
		t.Fatal(a, b)
	}

	for _, bad := range []string{"", "x", "AAAA", a + a} {
		if err := CheckKey(bad); err == nil || !strings.Contains(err.Error(), "openssl rand") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestAddresses(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.1": "192.0.2.1 7946", "192.0.2.1:1": "192.0.2.1 1", "[2001:db8::1]:2": "2001:db8::1 2",
		"2001:db8::1": "2001:db8::1 7946", "host1": "host1 7946", "host1:3": "host1 3", ":4": " 4",
		"host1:x": "", "a b": "", "[::1": "", "host1:70000": "", "": "", "a:b:c": "",
	} {
		host, port, err := splitAddr(in)

		got := fmt.Sprint(host, " ", port)
		if err != nil {
			got = ""
		}
		if got != want {
			t.Errorf("%q: %q %v, want %q", in, got, err, want)
		}
	}

	ip := netip.MustParseAddr

	all := []netip.Addr{
		ip("127.0.0.1"),
		ip("fe80::1"),
		ip("2001:db8::1"),
		ip("fd00::1"),
		ip("203.0.113.9"),
		ip("10.0.0.9"),
		ip("10.0.0.10"),
	}
	for skip, want := range []string{"10.0.0.9", "10.0.0.10", "203.0.113.9", "fd00::1", "2001:db8::1", ""} {
		got, ok := usual(all, false)
		if ok != (want != "") || ok && got.String() != want {
			t.Errorf("%d: %v, want %q", skip, got, want)
		}

		for i, a := range all {
			if a == got {
				all = append(all[:i], all[i+1:]...)
				break
			}
		}
	}

	if _, ok := usual([]netip.Addr{ip("2001:db8::1")}, true); ok {
		t.Error("an IPv6 address for an IPv4 socket")
	}

	for _, c := range []struct {
		name, bind string
		o          Options
		want       string
	}{
		{"configured", "", Options{Advertise: "192.0.2.5:99"}, "192.0.2.5:99"},
		{"with the bound port", "0.0.0.0", Options{Advertise: "192.0.2.5:0"}, "192.0.2.5:1234"},
		{"bound", "127.0.3.1", Options{Node: Identity{Addr: "127.0.0.1"}}, "127.0.3.1:1234"},
		{"management address of the node", "0.0.0.0", Options{Node: Identity{Addr: "127.0.0.1"}}, "127.0.0.1:1234"},
		{
			"source address towards a peer", "",
			Options{Node: Identity{Addr: "192.0.2.1"}, Join: []string{"nowhere.invalid", "127.0.0.9:1"}},
			"127.0.0.1:1234",
		},
	} {
		got, err := c.o.advertised(t.Context(), c.bind, 1234)
		if err != nil || got.String() != c.want {
			t.Errorf("%s: %v %v, want %s", c.name, got, err, c.want)
		}
	}
}

func TestRivals(t *testing.T) {
	changes := make(chan struct{}, 1)
	notified := func() bool {
		select {
		case <-changes:
			return true
		default:
			return false
		}
	}
	r := newRivals(time.Minute, changes)
	now := time.Unix(1000, 0)
	after := func(d time.Duration) time.Time { return now.Add(d) }
	r.observe("a", "p:1", now) // no member has that name
	r.live("a", "p:1")
	r.observe("a", "p:1", now) // the member itself

	if notified() || r.of("a") != nil {
		t.Fatal("a rival without a conflict")
	}

	r.observe("a", "p:2", now)

	if !notified() || r.of("a")[0] != "p:2" {
		t.Fatal("the rival is not reported")
	}

	r.observe("a", "p:2", after(20*time.Second))

	if place, d := r.contested("a"); notified() || place != "p:2" || d != 20*time.Second {
		t.Fatal(place, d)
	}

	r.expire(after(80 * time.Second))

	if notified() || r.of("a") == nil {
		t.Fatal("the rival expires early")
	}

	r.expire(after(81 * time.Second))

	if !notified() || r.of("a") != nil {
		t.Fatal("the rival does not expire")
	}

	r.observe("a", "p:2", now)
	r.live("b", "p:2") // the rival takes another name

	if !notified() || r.of("a") != nil {
		t.Fatal("another member is a rival")
	}

	r.observe("a", "p:3", now)
	r.live("a", "p:3") // it has moved

	if r.of("a") != nil {
		t.Fatal("the new place of the member is a rival")
	}

	r.observe("a", "p:4", now)
	r.dead("a")
	r.observe("a", "p:4", now)

	if place, _ := r.contested("a"); place != "" {
		t.Fatal("a dead member has a rival")
	}

	// A list of several members mixes dead and live ones, and is ignored.
	r.live("c", "1.1.1.1:1")

	two := []*hserf.Member{{Name: "c", Addr: []byte{2, 2, 2, 2}, Port: 2}, {Name: "d"}}
	if err := r.NotifyMerge(two); err != nil || r.of("c") != nil {
		t.Fatal(err)
	}
	if err := r.NotifyMerge(two[:1]); err != nil || r.of("c")[0] != "2.2.2.2:2" {
		t.Fatal(err)
	}
}
