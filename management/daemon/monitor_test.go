// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/monitor"
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
	c    MonitorConfig
	stop context.CancelFunc
	done chan error
}

func (w *watcher) start() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	ready, done := make(chan struct{}), make(chan error, 1)

	w.stop, w.done = cancel, done
	go func() { done <- runMonitor(ctx, w.c, serf.Loopback(), silent(), func() { close(ready) }) }()

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
func watch(t *testing.T, gossip Gossip, to ...string) *watcher {
	t.Helper()

	w := &watcher{
		t: t,
		c: MonitorConfig{ReportTo: to, DataDir: filepath.Join(t.TempDir(), "m"), Gossip: gossip, LogLevel: "debug"},
	}
	if err := w.c.Check(); err != nil {
		t.Fatal(err)
	}

	w.start()
	t.Cleanup(w.end)

	return w
}

// TestMonitor: two managers outside the gossip learn who is there, although each
// of them, the monitor and the nodes go and come.
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
	w := watch(t, Gossip{Bind: "127.0.4.1:0", KeyFile: key, Join: []string{first}}, one.url, "unix://"+two.dir+"/s")
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

	if err := runMonitor(
		t.Context(),
		w.c,
		serf.Loopback(),
		silent(),
		nil,
	); err == nil ||
		!strings.Contains(err.Error(), "in use by another clusterm monitor") {
		t.Errorf("a second one: %v", err)
	}
}

// hearing is a manager that records what it is told.
type hearing struct {
	mu    sync.Mutex
	nodes map[string]bool // seen by POST
	posts []string
	fail  string // every answer to a POST
	not   string // a node that is refused
}

func (h *hearing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()

	if r.Method == http.MethodGet {
		list := api.List[api.Node]{Items: []api.Node{}}
		for name, seen := range h.nodes {
			label, serial, _ := strings.Cut(name, "-")
			list.Items = append(list.Items, api.Node{
				Name:   name,
				Label:  label,
				Serial: serial,
				Addr:   "10.0.0.1",
				Seen:   map[string]bool{inventory.ObserverPost: seen},
			})
		}

		w.Header().Set("Content-Type", api.TypeJSON)
		json.NewEncoder(w).Encode(list)

		return
	}

	var body api.LegacyRequest
	json.NewDecoder(r.Body).Decode(&body)

	fail := func(kind inventory.Kind, text string) {
		w.Header().Set(api.HeaderProblem, string(kind))
		http.Error(w, text, http.StatusInternalServerError)
	}
	if h.fail != "" {
		fail(inventory.KindUnavailable, h.fail)
		return
	}

	line := body.Event.Name
	for _, n := range body.Event.Nodes {
		name := inventory.NodeName(n.Label, n.Serial)
		if name == h.not {
			fail(inventory.KindRefused, name+" is refused")
			return
		}

		line += " " + name
	}

	for _, n := range body.Event.Nodes {
		h.nodes[inventory.NodeName(n.Label, n.Serial)] = body.Event.Name == "discovered"
	}

	h.posts = append(h.posts, line)
}

func (h *hearing) take() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := strings.Join(h.posts, "; ")
	h.posts = nil

	return out
}

func TestReporter(t *testing.T) {
	t.Parallel()
	h := &hearing{nodes: map[string]bool{}}
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	file := filepath.Join(t.TempDir(), "told.json")
	log, hook := logtest.NewNullLogger()
	reports := func() *reporter {
		to, err := client.New(client.Options{URL: srv.URL})
		if err != nil {
			t.Fatal(err)
		}

		told, err := openTold(file, []string{srv.URL})
		if err != nil {
			t.Fatal(err)
		}

		return &reporter{
			to:      to,
			target:  srv.URL,
			told:    told,
			refused: map[string]string{},
			doubled: map[string]string{},
			log:     log,
		}
	}
	r := reports()
	see := func(words string) (out []monitor.Sighting) {
		for _, w := range strings.Fields(words) {
			label, gone := strings.CutSuffix(w, "!")
			out = append(out, monitor.Sighting{Label: label, Serial: "1", Addr: "10.0.0.1", Alive: !gone})
		}

		return out
	}
	step := func(full bool, words, want string) {
		t.Helper()

		if err := r.Observe(t.Context(), monitor.Report{Full: full, Sightings: see(words)}); err != nil {
			t.Errorf("%s: %v", words, err)
		}

		if got := h.take(); got != want {
			t.Errorf("%s: %q, want %q", words, got, want)
		}
	}
	step(true, "a b c!", "discovered a-1 b-1")
	step(true, "a b c!", "")
	step(false, "c", "discovered c-1")
	step(false, "a! b", "discovered b-1; disappeared a-1")
	step(true, "a! b c", "")
	h.nodes["a-1"] = true // a manager that was restored from a backup
	step(true, "a! b c", "disappeared a-1")
	h.nodes["x-1"] = true // reported by somebody else
	step(true, "b", "disappeared c-1")

	// After a restart it knows what it has said.
	r = reports()
	step(true, "d", "discovered d-1; disappeared b-1")
	r = reports()
	step(true, "d", "")

	// A manager that fails is an error, and nothing is lost by it.
	h.fail = "no store"

	err := r.Observe(t.Context(), monitor.Report{Sightings: see("d! e")})
	if inventory.KindOf(err) != inventory.KindUnavailable || !strings.Contains(err.Error(), srv.URL) {
		t.Errorf("%v", err)
	}

	h.fail = ""
	r = reports()
	step(true, "d!", "disappeared d-1")

	// One that is refused does not keep the others away, and is logged once.
	h.not = "g-1"
	hook.Reset()
	step(true, "f g h i", "discovered f-1; discovered h-1 i-1")
	step(true, "f g h i", "")

	if len(hook.AllEntries()) != 1 || !strings.Contains(fmt.Sprint(hook.LastEntry().Data["error"]), "g-1 is refused") {
		t.Errorf("%+v", hook.AllEntries())
	}

	h.not = ""
	step(true, "f g h i", "discovered g-1")

	if err := os.WriteFile(file, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}

	if _, err := openTold(file, nil); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("%v", err)
	}
}

// TestReporterMany: large reports are sent in parts.
func TestReporterMany(t *testing.T) {
	t.Parallel()
	h := &hearing{nodes: map[string]bool{}}
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)

	to, err := client.New(client.Options{URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}

	told, err := openTold(filepath.Join(t.TempDir(), "told.json"), nil)
	if err != nil {
		t.Fatal(err)
	}

	r := &reporter{
		to:      to,
		target:  srv.URL,
		told:    told,
		refused: map[string]string{},
		doubled: map[string]string{},
		log:     silent(),
	}

	var all []monitor.Sighting
	for i := range 2*reportSize + 1 {
		all = append(all, monitor.Sighting{Label: "n", Serial: fmt.Sprint(i), Addr: "10.0.0.1", Alive: true})
	}

	if err := r.Observe(t.Context(), monitor.Report{Full: true, Sightings: all}); err != nil {
		t.Fatal(err)
	}

	if len(h.posts) != 3 || len(h.nodes) != len(all) {
		t.Errorf("%d nodes in %d posts", len(h.nodes), len(h.posts))
	}
}

func TestMonitorConfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "monitor.yaml")
	put := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(string(MonitorExample))

	c, err := LoadMonitorConfig(path)
	if err != nil || !slices.Equal(c.ReportTo, []string{"http://127.0.0.1:9007"}) || c.Gossip.RPC != "127.0.0.1:7373" ||
		c.DataDir != "/var/lib/clusterm-monitor" {
		t.Fatalf("%+v, %v", c, err)
	}

	put(
		"report_to: [unix:///run/clusterm/clusterm.sock]\ngossip: {key_file: /etc/clusterm/gossip.key, join: [192.0.2.10]}\n",
	)

	if c, err := LoadMonitorConfig(path); err != nil || c.Gossip.Bind != "0.0.0.0:7946" {
		t.Errorf("%+v, %v", c, err)
	}

	const to, rpc = "report_to: [\"http://127.0.0.1:9007\"]\n", "gossip: {rpc: \"127.0.0.1:7373\"}\n"
	for text, words := range map[string]string{
		rpc:                                "report_to: it is empty",
		"report_to: []\n" + rpc:            "report_to: it is empty",
		"report_to: [\"ftp://x\"]\n" + rpc: "neither unix:///PATH nor http://",
		"report_to: [\"127.0.0.1:9007\"]\n" + rpc:                             "neither unix:///PATH nor http://",
		"report_to: [\"https://manager\"]\n" + rpc:                            "neither unix:///PATH nor http://",
		"report_to: [\"http://192.0.2.1:9007\"]\n" + rpc:                      "ssh -N -L",
		"report_to: [\"unix://relative\"]\n" + rpc:                            "names no socket",
		"report_to: [\"http://127.0.0.1:1\", \"http://127.0.0.1:1\"]\n" + rpc: "is there twice",
		to:                                    "gossip: name the rpc of a serf agent",
		to + "gossip: off\n":                  "sees nobody",
		to + "gossip: {key_file: /k}\n":       "gossip.join: it is empty",
		to + "gossip: {rpc: \"1.2.3.4:1\"}\n": "not a loopback address",
		to + "gossip: {rpc: \"127.0.0.1:7373\", key_file: /k}\n":          "gossip.key_file: gossip.rpc names an existing",
		to + "gossip: {rpc: \"127.0.0.1:7373\", join: [\"192.0.2.1\"]}\n": "gossip.join: gossip.rpc names an existing",
		to + "gossip: {rpc: \"127.0.0.1:7373\", bind: \"0.0.0.0:1\"}\n":   "gossip.bind: gossip.rpc names an existing",
		to + rpc + "nonsense: 1\n":                                        "key nonsense not found",
		to + rpc + "data_dir: relative\n":                                 "data_dir:",
		to + rpc + "log_level: loud\n":                                    "log_level:",
	} {
		put(text)
		_, err := LoadMonitorConfig(path)
		kind(t, err, inventory.KindInvalid, words, path)
	}

	if _, err := LoadMonitorConfig("/nope"); err == nil || !strings.Contains(err.Error(), "cannot be read") {
		t.Error(err)
	}

	c.DataDir, c.Gossip.RPCAuthFile = filepath.Join(dir, "m"), "/nope/key"
	if err := RunMonitor(t.Context(), c, silent(), nil); err == nil || !strings.Contains(err.Error(), "/nope/key") {
		t.Error(err)
	}

	c.DataDir = filepath.Join(path, "below")
	if err := RunMonitor(
		t.Context(),
		c,
		silent(),
		nil,
	); err == nil ||
		!strings.Contains(err.Error(), "data directory") {
		t.Error(err)
	}
}

// TestLiveMonitor watches Debian's serf for a manager outside the gossip.
func TestLiveMonitor(t *testing.T) {
	serftest.NeedLab(t)
	t.Parallel()
	hub := serftest.Start(t, "hub", "127.0.4.11")
	leaver := serftest.Start(
		t,
		"leaver",
		"127.0.4.12",
		append(serftest.Tags("leaver", "1", "127.0.4.12"), "-retry-join", hub.Bound)...)
	crasher := serftest.Start(
		t,
		"crasher",
		"127.0.4.13",
		append(serftest.Tags("crasher", "1", "127.0.4.13"), "-retry-join", hub.Bound)...)
	s := begin(t)
	w := watch(t, Gossip{RPC: hub.RPC}, "unix://"+s.dir+"/s")
	s.state("leaver-1", inventory.Discovered)
	s.state("crasher-1", inventory.Discovered)

	// The agent goes, one node with it, and the manager, too: nobody disappears
	// for want of somebody to ask, and afterwards all is as it is.
	hub.Kill()
	s.restart()
	w.end()
	w.start()

	if n, err := s.store.View().Node("crasher-1"); err != nil || n.State != inventory.Discovered {
		t.Errorf("%+v, %v", n, err)
	}

	leaver.Ask("leave")
	hub.Args = append(hub.Args, "-retry-join", crasher.Bound)
	hub.Restart()
	s.state("leaver-1", inventory.Disappeared)
	s.state("crasher-1", inventory.Discovered)

	crasher.Ask("tags", "-set", "NodeAddr=127.0.4.14")
	wait(t, "a new address", func() bool {
		n, err := s.store.View().Node("crasher-1")
		return err == nil && n.Addr == "127.0.4.14"
	})
	crasher.Kill()
	s.state("crasher-1", inventory.Disappeared)
}

// TestLiveEventHandler: the script reports what serf tells it, by HTTP or
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
			env := map[string]string{"http": "CLUSTERM_URL=" + s.url, "socket": "CLUSTERM_SOCKET=" + s.dir + "/s", "unix": "CLUSTERM_URL=unix://" + s.dir + "/s"}[way]
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

			if nodes := s.store.View().Nodes; len(nodes) != 3 {
				t.Errorf("%+v", nodes)
			}
		})
	}
}
