// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
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
	"github.com/contiv/cluster/monitor/serf/serftest"
)

var wait = serftest.Eventually

// TestExistingAgent runs a manager that observes nodes through a serf agent of the
// distribution, which stops and restarts.
func TestExistingAgent(t *testing.T) {
	serftest.NeedLab(t)
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
	hub := serftest.Start(
		t,
		"hub",
		"127.0.3.1",
		append(serftest.Tags("hub", "1", "127.0.3.1"), "-encrypt", key, "-config-file", config)...)
	other := serftest.Start(
		t,
		"other",
		"127.0.3.2",
		append(serftest.Tags("other", "1", "127.0.3.2"), "-encrypt", key, "-retry-join", hub.Bound)...)
	auth := file("rpc.key", "wrong\n")
	gossip := func(more string) string {
		return "gossip: {rpc: \"" + hub.RPC + "\", rpc_auth_file: " + auth + more + "}"
	}
	s := prepare(t, gossip(""))

	// The daemon starts with a wrong key, and health reports the reason.
	s.up()
	t.Cleanup(s.down)
	waitHealth := func(status, words string) {
		t.Helper()
		wait(t, words, func() bool {
			h, err := s.Health(s.ctx())
			return err == nil && h.Status == status && strings.Contains(h.Checks["gossip"], words)
		})
	}
	waitHealth(api.HealthDegraded, "it refuses the key")
	file("rpc.key", "open sesame\n")
	waitHealth(api.HealthOK, "ok")
	s.state("hub-1", inventory.Discovered)
	s.state("other-1", inventory.Discovered)

	if _, text := s.get(api.PathMetrics); !strings.Contains(text, `clusterm_gossip_members{status="alive"} 2`) {
		t.Errorf("%s", text)
	}

	// Preparing hosts needs the key of the gossip.
	discover := api.JobRequest{Verb: inventory.VerbDiscover, Addrs: []string{"127.0.3.9"}}
	checkError(t, second(s.Submit(s.ctx(), discover)), inventory.KindRefused, "gossip.key_file")
	checkError(
		t,
		second(s.Submit(s.ctx(), api.JobRequest{Verb: inventory.VerbForget, Nodes: []string{"hub-1"}})),
		inventory.KindRefused,
		"own host",
	)
	s.down()
	s.write(gossip(", key_file: " + file("gossip.key", key+"\n")))
	s.up()

	vars := s.settings.Engine().AgentVars
	if vars["clusterm_gossip_key"] != key || vars["clusterm_gossip_join"].([]any)[0] != hub.Bound ||
		vars["clusterm_gossip_port"] != hub.Bound[strings.LastIndexByte(hub.Bound, ':')+1:] {
		t.Errorf("%v", vars)
	}

	// A node that is as it was has not come back: a report about it holds.
	n, err := s.store.View().Node("other-1")
	s.must(err)
	before := n.Entries

	code, text := s.post(
		"/monitor/event",
		`{"monitor_event":{"name":"disappeared","nodes":[{"label":"other","serial":"1","addr":"127.0.3.2"}]}}`,
	)
	if code != 200 {
		t.Fatal(text)
	}

	s.restart()
	wait(t, "a full report", func() bool { return s.measured("clusterm_gossip_reports_total") > 0 })

	if n, err := s.store.View().
		Node("other-1"); err != nil || n.Entries != before || n.Seen[inventory.ObserverPost] ||
		len(n.Seen) != 2 {
		t.Errorf("%+v, %v", n, err)
	}

	// Without the agent, the last observations hold; afterwards the changes show.
	hub.Kill()
	waitHealth(api.HealthDegraded, "is not connected since")
	checkError(t, second(s.Submit(s.ctx(), discover)), inventory.KindUnavailable, "not connected")

	if n, err := s.store.View().Node("other-1"); err != nil || n.State != inventory.Discovered {
		t.Errorf("%+v, %v", n, err)
	}

	other.Ask("leave")
	newcomer := serftest.Start(
		t,
		"newcomer",
		"127.0.3.3",
		append(serftest.Tags("newcomer", "1", "127.0.3.3"), "-encrypt", key, "-retry-join", hub.Bound)...)
	hub.Restart()
	s.state("newcomer-1", inventory.Discovered)
	s.state("other-1", inventory.Disappeared)
	s.state("hub-1", inventory.Discovered)
	waitHealth(api.HealthOK, "ok")
	newcomer.Ask("tags", "-set", "NodeAddr=127.0.3.7")
	wait(t, "its new address", func() bool {
		n, err := s.store.View().Node("newcomer-1")
		return err == nil && n.Addr == "127.0.3.7"
	})
}

// TestPlainGossip checks that hosts are not prepared for gossip without encryption.
func TestPlainGossip(t *testing.T) {
	t.Parallel()
	hub := serftest.Start(t, "hub", "127.0.3.11", serftest.Tags("hub", "1", "127.0.3.11")...)

	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(serf.GenerateKey()), 0o600); err != nil {
		t.Fatal(err)
	}
	s := begin(t, `gossip: {rpc: "`+hub.RPC+`", key_file: `+path+`}`)
	s.state("hub-1", inventory.Discovered)
	checkError(
		t,
		second(s.Submit(s.ctx(), api.JobRequest{Verb: inventory.VerbDiscover, Addrs: []string{"127.0.3.9"}})),
		inventory.KindRefused,
		"not encrypted",
	)

	for text, words := range map[string]string{
		`gossip: {rpc: "` + hub.RPC + `", rpc_auth_file: /nope/key}`: "/nope/key",
		`gossip: {rpc: "` + hub.RPC + `", key_file: /nope/key}`:      "/nope/key",
	} {
		if err := prepare(t, text).try(30 * time.Second); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestOpenGossipKey checks the warning about a key that other users can read.
func TestOpenGossipKey(t *testing.T) {
	t.Parallel()
	s := prepare(t)
	key := filepath.Join(s.dir, "key")
	s.must(os.WriteFile(key, []byte(serf.GenerateKey()), 0o644))
	s.write("gossip: {bind: 127.0.0.1:0, key_file: "+key+"}", `node: {label: manager, serial: "1", addr: 127.0.0.1}`)
	o := s.options()
	log, entries := logtest.NewNullLogger()
	o.Logger = log
	d, err := New(o)
	s.must(err)
	s.must(d.Start(s.ctx()))
	s.must(d.Stop(s.ctx()))

	isWarning := func(e *logrus.Entry) bool { return strings.Contains(e.Message, key+" is readable by other users") }
	if !slices.ContainsFunc(entries.AllEntries(), isWarning) {
		t.Error("no warning about a readable key")
	}
}

// measured returns a metric of the gossip.
func (s *site) measured(name string) (found float64) {
	s.gossip.Measure(func(emitted string, value float64, _ ...string) {
		if emitted == name {
			found = value
		}
	})

	return found
}
