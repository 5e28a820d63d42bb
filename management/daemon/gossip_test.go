// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/monitor/serf"
)

// stock is an agent of the distribution's serf.
type stock struct {
	t          *testing.T
	rpc, bound string
	args       []string
	cmd        *exec.Cmd
	done       chan struct{}
}

// startStock starts an agent with these further arguments, and waits until it
// answers by RPC.
func startStock(t *testing.T, name, ip string, args ...string) *stock {
	t.Helper()
	if _, err := exec.LookPath("serf"); err != nil {
		t.Skipf("the distribution's serf is not installed: %v", err)
	}
	a := &stock{t: t, rpc: free(t, ip), bound: free(t, ip)}
	a.args = append([]string{"agent", "-node", name, "-bind", a.bound, "-rpc-addr", a.rpc, "-profile", "local", "-retry-interval", "1s"}, args...)
	a.start()
	t.Cleanup(a.kill)
	return a
}

func (a *stock) start() {
	a.t.Helper()
	a.cmd, a.done = exec.Command("serf", a.args...), make(chan struct{})
	said, err := os.Create(filepath.Join(a.t.TempDir(), "serf.log"))
	if err != nil {
		a.t.Fatal(err)
	}
	defer said.Close()
	a.cmd.Stdout, a.cmd.Stderr = said, said
	if err := a.cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	cmd, done := a.cmd, a.done
	go func() {
		defer close(done)
		cmd.Wait() // how it ends does not matter
	}()
	wait(a.t, "the agent answers", func() bool {
		select {
		case <-done:
			text, err := os.ReadFile(said.Name())
			a.t.Fatalf("the agent has ended: %s, %v", text, err)
		default:
		}
		c, err := net.Dial("tcp", a.rpc)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

func (a *stock) kill() {
	a.cmd.Process.Kill() // fails where it has ended
	<-a.done
}

func (a *stock) ask(args ...string) {
	a.t.Helper()
	words := append([]string{args[0], "-rpc-addr=" + a.rpc}, args[1:]...)
	if out, err := exec.Command("serf", words...).CombinedOutput(); err != nil {
		a.t.Fatalf("serf %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// free is an address on which nobody listens at the moment.
func free(t *testing.T, ip string) string {
	t.Helper()
	// Not one of those that the kernel gives to outgoing connections (32768 and
	// up, ip(7)): one of them could take it before it is listened on.
	for range 100 {
		addr := fmt.Sprintf("%s:%d", ip, 20000+rand.IntN(12000))
		l, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		l.Close()
		p, err := net.ListenPacket("udp", addr)
		if err != nil {
			continue
		}
		p.Close()
		return addr
	}
	t.Fatalf("no port is free on %s", ip)
	return ""
}

// wait waits until it is so.
func wait(t *testing.T, what string, so func() bool) {
	t.Helper()
	deadline := time.NewTimer(60 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-deadline.C:
			t.Fatalf("waited for: %s", what)
		case <-tick.C:
		}
	}
}

// tags are the arguments by which an agent is a node.
func tags(label, addr string) []string {
	return []string{"-tag", "NodeLabel=" + label, "-tag", "NodeSerial=1", "-tag", "NodeAddr=" + addr}
}

// TestExistingAgent is a manager whose nodes are seen by a serf agent of the
// distribution, which goes and comes.
func TestExistingAgent(t *testing.T) {
	if os.Getenv("CLUSTERM_LAB") != "1" {
		t.Skip("waits for the real serf; set CLUSTERM_LAB=1, as make system does")
	}
	t.Parallel()
	key := serf.GenerateKey()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	config := file("serf.json", `{"rpc_auth": "open sesame"}`)
	hub := startStock(t, "hub", "127.0.3.1", append(tags("hub", "127.0.3.1"), "-encrypt", key, "-config-file", config)...)
	other := startStock(t, "other", "127.0.3.2", append(tags("other", "127.0.3.2"), "-encrypt", key, "-retry-join", hub.bound)...)
	auth := file("rpc.key", "wrong\n")
	gossip := func(more string) string {
		return "gossip: {rpc: \"" + hub.rpc + "\", rpc_auth_file: " + auth + more + "}"
	}
	s := prepare(t, gossip(""))

	// The wrong key keeps nobody from starting; health says what is the matter.
	s.up()
	t.Cleanup(s.down)
	says := func(status, words string) {
		t.Helper()
		wait(t, words, func() bool {
			h, err := s.Health(s.ctx())
			return err == nil && h.Status == status && strings.Contains(h.Checks["gossip"], words)
		})
	}
	says(api.HealthDegraded, "it refuses the key")
	file("rpc.key", "open sesame\n")
	says(api.HealthOK, "ok")
	s.state("hub-1", inventory.Discovered)
	s.state("other-1", inventory.Discovered)
	if _, text := s.get(api.PathMetrics); !strings.Contains(text, `clusterm_gossip_members{status="alive"} 2`) {
		t.Errorf("%s", text)
	}

	// Hosts can be prepared once it is known how they take part.
	discover := api.JobRequest{Verb: inventory.VerbDiscover, Addrs: []string{"127.0.3.9"}}
	kind(t, second(s.Submit(s.ctx(), discover)), inventory.KindRefused, "gossip.key_file")
	kind(t, second(s.Submit(s.ctx(), api.JobRequest{Verb: inventory.VerbForget, Nodes: []string{"hub-1"}})), inventory.KindRefused, "own host")
	s.down()
	s.write(gossip(", key_file: " + file("gossip.key", key+"\n")))
	s.up()
	vars := s.settings().AgentVars
	if vars["clusterm_gossip_key"] != key || vars["clusterm_gossip_join"].([]any)[0] != hub.bound || vars["clusterm_gossip_port"] != hub.bound[strings.LastIndexByte(hub.bound, ':')+1:] {
		t.Errorf("%v", vars)
	}

	// A node that is as it was has not come back: a report about it holds.
	n, err := s.store.View().Node("other-1")
	s.must(err)
	before := n.Entries
	code, text := s.post("/monitor/event", `{"monitor_event":{"name":"disappeared","nodes":[{"label":"other","serial":"1","addr":"127.0.3.2"}]}}`)
	if code != 200 {
		t.Fatal(text)
	}
	s.restart()
	wait(t, "a full report", func() bool { return s.source.Stats().Observer.Reports > 0 })
	if n, err := s.store.View().Node("other-1"); err != nil || n.Entries != before || n.Seen[inventory.ObserverPost] || len(n.Seen) != 2 {
		t.Errorf("%+v, %v", n, err)
	}

	// While the agent is away, what it said holds; then what happened is seen.
	hub.kill()
	says(api.HealthDegraded, "is not connected since")
	kind(t, second(s.Submit(s.ctx(), discover)), inventory.KindUnavailable, "not connected")
	if n, err := s.store.View().Node("other-1"); err != nil || n.State != inventory.Discovered {
		t.Errorf("%+v, %v", n, err)
	}
	other.ask("leave")
	newcomer := startStock(t, "newcomer", "127.0.3.3", append(tags("newcomer", "127.0.3.3"), "-encrypt", key, "-retry-join", hub.bound)...)
	hub.start()
	s.state("newcomer-1", inventory.Discovered)
	s.state("other-1", inventory.Disappeared)
	s.state("hub-1", inventory.Discovered)
	says(api.HealthOK, "ok")
	newcomer.ask("tags", "-set", "NodeAddr=127.0.3.7")
	wait(t, "its new address", func() bool {
		n, err := s.store.View().Node("newcomer-1")
		return err == nil && n.Addr == "127.0.3.7"
	})
}

// TestPlainGossip: hosts cannot be prepared for a gossip that is not encrypted.
func TestPlainGossip(t *testing.T) {
	t.Parallel()
	hub := startStock(t, "hub", "127.0.3.11", tags("hub", "127.0.3.11")...)
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(serf.GenerateKey()), 0o600); err != nil {
		t.Fatal(err)
	}
	s := begin(t, `gossip: {rpc: "`+hub.rpc+`", key_file: `+path+`}`)
	s.state("hub-1", inventory.Discovered)
	kind(t, second(s.Submit(s.ctx(), api.JobRequest{Verb: inventory.VerbDiscover, Addrs: []string{"127.0.3.9"}})), inventory.KindRefused, "not encrypted")

	for text, words := range map[string]string{
		`gossip: {rpc: "` + hub.rpc + `", rpc_auth_file: /nope/key}`: "/nope/key",
		`gossip: {rpc: "` + hub.rpc + `", key_file: /nope/key}`:      "/nope/key",
	} {
		if err := prepare(t, text).try(30 * time.Second); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestOpenGossipKey: whoever reads the key is let into the gossip.
func TestOpenGossipKey(t *testing.T) {
	t.Parallel()
	s := prepare(t)
	key := filepath.Join(s.dir, "key")
	s.must(os.WriteFile(key, []byte(serf.GenerateKey()), 0o644))
	s.write("gossip: {bind: 127.0.0.1:0, key_file: "+key+"}", `node: {label: manager, serial: "1", addr: 127.0.0.1}`)
	o := s.options()
	log, told := logtest.NewNullLogger()
	o.Logger = log
	d, err := New(o)
	s.must(err)
	s.must(d.Start(s.ctx()))
	s.must(d.Stop(s.ctx()))
	if !slices.ContainsFunc(told.AllEntries(), func(e *logrus.Entry) bool { return strings.Contains(e.Message, key+" can be read by others") }) {
		t.Error("nobody is told")
	}
}
