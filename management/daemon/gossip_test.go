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
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/monitor/serf"
	"github.com/contiv/cluster/monitor/serf/serftest"
)

var wait = serftest.Eventually

// TestPlainGossip checks that hosts are not prepared for gossip without encryption.
func TestPlainGossip(t *testing.T) {
	t.Parallel()
	hub := serftest.Start(t, "hub", "127.0.3.11", serftest.Tags("hub", "1", "127.0.3.11")...)

	path := filepath.Join(t.TempDir(), "key")
	errtest.None(t, os.WriteFile(path, []byte(serf.GenerateKey()), 0o600))
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
