// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access/mtls"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/pki"
	"github.com/contiv/cluster/monitor"
	"github.com/contiv/cluster/monitor/report"
	"github.com/contiv/cluster/monitor/serf"
	"github.com/contiv/cluster/monitor/serf/serftest"
)

func silent() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

// watcher is a monitor that can be ended and started again.
type watcher struct {
	t    *testing.T
	c    report.Config
	log  logTail
	stop context.CancelFunc
	done chan error
}

func (w *watcher) options() report.Options {
	log := logrus.New()
	log.SetOutput(&w.log)
	return report.Options{Config: w.c, Timing: serf.Loopback(), Log: log}
}

func (w *watcher) start() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	ready, done := make(chan struct{}), make(chan error, 1)

	w.stop, w.done = cancel, done
	go func() { done <- report.Run(ctx, w.options(), func() { close(ready) }) }()

	select {
	case <-ready:
	case err := <-done:
		w.stop = nil // there is nothing to wait for
		w.t.Fatal(err)
	}
}

func (w *watcher) end() {
	w.t.Helper()

	if w.stop == nil {
		return
	}

	w.stop()

	if err := <-w.done; err != nil {
		w.t.Error(err)
	}

	w.stop = nil
}

// watch starts a monitor.
func watch(t *testing.T, gossip serf.SourceConfig, to ...string) *watcher {
	t.Helper()

	managers := make([]report.Manager, len(to))
	for i, url := range to {
		managers[i].URL = url
	}

	return watchWith(t, gossip, report.Config{ReportTo: managers})
}

// watchWith starts a monitor with the managers and the observer of a configuration.
func watchWith(t *testing.T, gossip serf.SourceConfig, c report.Config) *watcher {
	t.Helper()

	c.DataDir, c.Gossip, c.LogLevel = filepath.Join(t.TempDir(), "m"), gossip, "debug"

	w := &watcher{t: t, c: c}
	if err := w.c.Check(); err != nil {
		t.Fatal(err)
	}
	w.start()
	t.Cleanup(w.end)

	return w
}

// TestMonitor runs two managers outside the gossip. They follow the membership through
// restarts of managers, monitor and nodes.
func TestMonitor(t *testing.T) {
	t.Parallel()

	key := filepath.Join(t.TempDir(), "gossip.key")
	if err := os.WriteFile(key, []byte(serf.GenerateKey()), 0o600); err != nil {
		t.Fatal(err)
	}

	var first string
	agent := func(label, addr string) *serf.Agent {
		t.Helper()

		o := serf.Options{
			Node: monitor.Identity{
				Label:  label,
				Serial: "1",
				Addr:   addr,
			},
			Bind:    "127.0.4.1:0",
			KeyFile: key,
			Timing:  serf.Loopback(),
			Log:     silent(),
		}
		if first != "" {
			o.Join = []string{first}
		}
		a, err := serf.Start(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { a.Close() })

		return a
	}
	leave := func(a *serf.Agent) {
		t.Helper()

		if err := a.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	a := agent("a", "10.0.0.1")
	first = a.Addr()
	b := agent("b", "10.0.0.2")

	one, two := begin(t), prepare(t)
	w := watch(t, serf.SourceConfig{
		Bind: "127.0.4.1:0", KeyFile: key, Join: []string{first},
	}, one.url, "unix://"+two.dir+"/s")
	one.state("a-1", inventory.Discovered)
	one.state("b-1", inventory.Discovered)
	// The other manager was not there so far. What it missed is made up for.
	leave(b)
	one.state("b-1", inventory.Disappeared)
	two.up()
	t.Cleanup(two.down)
	two.state("a-1", inventory.Discovered)

	if _, err := two.store.View().Node("b-1"); err == nil {
		t.Error("a node that is gone was made known")
	}

	// A manager that is down misses a newcomer, and a leave.
	two.down()
	c := agent("c", "10.0.0.3")
	one.state("c-1", inventory.Discovered)
	two.up()
	two.state("c-1", inventory.Discovered)
	two.down()
	leave(c)
	one.state("c-1", inventory.Disappeared)
	two.up()
	two.state("c-1", inventory.Disappeared)

	// While the monitor is down a node goes away for good: the members that are
	// left have forgotten it when the monitor is back.
	d := agent("d", "10.0.0.4")
	one.state("d-1", inventory.Discovered)
	two.state("d-1", inventory.Discovered)
	w.end()
	d.Close()
	a.Close()
	first = ""
	a = agent("a", "10.0.0.9")

	w.c.Gossip.Join = []string{a.Addr()}
	if err := os.RemoveAll(filepath.Join(w.c.DataDir, "gossip")); err != nil {
		t.Fatal(err)
	}

	w.start()

	for _, s := range []*site{one, two} {
		s.state("d-1", inventory.Disappeared)
		s.state("a-1", inventory.Discovered)
		wait(t, "a new address", func() bool {
			n, err := s.store.View().Node("a-1")
			return err == nil && n.Addr == "10.0.0.9"
		})
	}

	err := report.Run(t.Context(), w.options(), nil)
	checkError(t, err, inventory.KindUnavailable, "in use by another clusterm monitor")
}

// TestMonitorHTTPS: a monitor reports over the network with a certificate of its
// own. Its log has the reason of each failure, and no credential.
func TestMonitorHTTPS(t *testing.T) {
	t.Parallel()

	s, other := secureSite(t), secureSite(t)
	key := filepath.Join(t.TempDir(), "gossip.key")
	s.must(os.WriteFile(key, []byte(serf.GenerateKey()), 0o600))

	member, err := serf.Start(t.Context(), serf.Options{
		Node: monitor.Identity{Label: "a", Serial: "1", Addr: "10.0.0.1"},
		Bind: "127.0.4.1:0", KeyFile: key, Timing: serf.Loopback(), Log: silent(),
	})
	s.must(err)
	t.Cleanup(func() { member.Close() })

	gossip := serf.SourceConfig{Bind: "127.0.4.1:0", KeyFile: key, Join: []string{member.Addr()}}

	ca, err := OpenCA(s.options().ConfigPath)
	s.must(err)
	foreign, err := OpenCA(other.options().ConfigPath)
	s.must(err)

	caFile := filepath.Join(t.TempDir(), "ca.pem")
	s.must(os.WriteFile(caFile, ca.PEM(), 0o644))

	issue := func(ca mtls.CA, role string, life time.Duration) string {
		content, err := ca.Issue(pki.Grant{Name: "rack1", Role: role}, life)
		s.must(err)

		path := filepath.Join(t.TempDir(), "rack1.pem")
		s.must(os.WriteFile(path, content, 0o600))
		return path
	}

	token := filepath.Join(t.TempDir(), "token")
	s.must(os.WriteFile(token, []byte("geheim"), 0o600))

	good := issue(ca, "monitor", time.Hour)
	for name, tt := range map[string]struct {
		observer string
		m        report.Manager
		words    string // in the log
	}{
		"another CA":      {"rack1", report.Manager{Fingerprint: foreign.Fingerprint(), CertFile: good}, "another CA"},
		"no CA":           {"rack1", report.Manager{CertFile: good}, "does not trust"},
		"expired":         {"rack1", report.Manager{CertFile: issue(ca, "monitor", -time.Minute)}, "expired"},
		"certificate":     {"rack1", report.Manager{CertFile: issue(foreign, "monitor", time.Hour)}, "refused"},
		"role":            {"rack1", report.Manager{CertFile: issue(ca, "viewer", time.Hour)}, "viewer"},
		"name":            {"rack10", report.Manager{CertFile: good}, "reports as"},
		"a token unknown": {"rack1", report.Manager{TokenFile: token}, "token"},
	} {
		tt.m.URL = s.secureURL()
		if tt.m.Fingerprint == "" && name != "no CA" {
			tt.m.CAFile = caFile
		}

		w := watchWith(t, gossip, report.Config{Observer: tt.observer, ReportTo: []report.Manager{tt.m}})
		wait(t, "the refusal of "+name, func() bool { return strings.Contains(w.log.String(), tt.words) })
		w.end()

		if text := w.log.String(); strings.Contains(text, "geheim") || strings.Contains(text, "PRIVATE KEY") {
			t.Errorf("%s: the log holds a credential", name)
		}
	}

	if nodes := s.store.View().Nodes(); len(nodes) > 0 {
		t.Fatalf("a refused report counted: %v", nodes)
	}

	w := watchWith(t, gossip, report.Config{Observer: "rack1", ReportTo: []report.Manager{
		{URL: s.secureURL(), Fingerprint: ca.Fingerprint(), CertFile: good},
	}})
	s.state("a-1", inventory.Discovered)

	if n, err := s.store.View().Node("a-1"); err != nil || !n.Seen["rack1"] {
		t.Errorf("%+v, %v", n, err)
	}

	w.end()

	// The same with a token.
	made, err := s.CreateToken(t.Context(), api.TokenRequest{Role: "monitor", Name: "rack2"})
	s.must(err)
	s.must(os.WriteFile(token, []byte(made.Token+"\n"), 0o600))

	w = watchWith(t, gossip, report.Config{Observer: "rack2", ReportTo: []report.Manager{
		{URL: s.secureURL(), CAFile: caFile, TokenFile: token},
	}})
	wait(t, "the report with a token", func() bool {
		n, err := s.store.View().Node("a-1")
		return err == nil && n.Seen["rack2"]
	})
	s.must(member.Leave(t.Context()))
	wait(t, "the loss with a token", func() bool {
		n, err := s.store.View().Node("a-1")
		return err == nil && !n.Seen["rack2"]
	})
	w.end()

	if strings.Contains(w.log.String(), made.Token) {
		t.Error("the log holds the token")
	}

	// The events of the first generation have no observer of their own.
	err = s.remote("monitor").Report(t.Context(), true, []api.LegacyEventNode{
		{Label: "b", Serial: "1", Addr: "10.0.0.2"},
	})
	checkError(t, err, inventory.KindForbidden, "reports as")
}

// TestLiveEventHandler checks that the script reports the events of serf, by HTTP and
// through the socket.
func TestLiveEventHandler(t *testing.T) {
	serftest.NeedLab(t)
	t.Parallel()

	script, err := filepath.Abs(root + "/monitor/serf/handler/serf-handler.sh")
	if err != nil {
		t.Fatal(err)
	}

	for i, way := range []string{"http", "socket", "unix"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			s := begin(t)
			at := func(n int) string { return fmt.Sprintf("127.0.4.%d", 20+10*i+n) }
			env := map[string]string{
				"http": "CLUSTERM_URL=" + s.url, "socket": "CLUSTERM_SOCKET=" + s.dir + "/s",
				"unix": "CLUSTERM_URL=unix://" + s.dir + "/s",
			}[way]
			hub := serftest.Start(
				t,
				"hub",
				at(1),
				"-event-handler",
				"member-join,member-update,member-leave,member-failed=env "+env+" "+script,
			)
			join := func(name, addr string, more ...string) *serftest.Agent {
				return serftest.Start(
					t,
					name,
					addr,
					append(append(serftest.Tags(name, "1", addr), "-retry-join", hub.Bound), more...)...)
			}
			evil := join("evil", at(2), "-tag", `NodeAddr=10.0.0.1"},{"label":"x`)
			leaver, crasher := join("leaver", at(3)), join("crasher", at(4))
			// Two of one name, of which one is refused, and keeps nobody from being seen.
			join("one", at(5), serftest.Tags("x", "y-1", at(5))...)
			join("other", at(6), serftest.Tags("x-y", "1", at(6))...)
			s.state("x-y-1", inventory.Discovered)
			s.state("leaver-1", inventory.Discovered)
			s.state("crasher-1", inventory.Discovered)
			leaver.Ask("tags", "-set", "NodeAddr="+at(9))
			wait(t, "a new address", func() bool {
				n, err := s.store.View().Node("leaver-1")
				return err == nil && n.Addr == at(9)
			})
			leaver.Ask("leave")
			s.state("leaver-1", inventory.Disappeared)
			crasher.Kill()
			s.state("crasher-1", inventory.Disappeared)
			evil.Kill()

			if nodes := s.store.View().Nodes(); len(nodes) != 3 {
				t.Errorf("%+v", nodes)
			}
		})
	}
}
