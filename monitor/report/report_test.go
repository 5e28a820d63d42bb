// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"fmt"
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
)

func silent() *logrus.Logger {
	log, _ := logtest.NewNullLogger()
	return log
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
	file := filepath.Join(t.TempDir(), "reported.json")
	log, hook := logtest.NewNullLogger()
	reports := func() *reporter {
		to, err := client.New(client.Options{URL: srv.URL})
		if err != nil {
			t.Fatal(err)
		}

		nodes, err := openReported(file, []string{srv.URL})
		if err != nil {
			t.Fatal(err)
		}

		return newReporter(to, srv.URL, nodes, log)
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

	if _, err := openReported(file, nil); err == nil || !strings.Contains(err.Error(), file) {
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

	nodes, err := openReported(filepath.Join(t.TempDir(), "reported.json"), nil)
	if err != nil {
		t.Fatal(err)
	}

	r := newReporter(to, srv.URL, nodes, silent())

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

func TestConfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "monitor.yaml")
	put := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(string(Example))

	c, err := Load(path)
	if err != nil || !slices.Equal(c.ReportTo, []string{"http://127.0.0.1:9007"}) || c.Gossip.RPC != "127.0.0.1:7373" ||
		c.DataDir != "/var/lib/clusterm-monitor" {
		t.Fatalf("%+v, %v", c, err)
	}

	put(
		"report_to: [unix:///run/clusterm/clusterm.sock]\ngossip: {key_file: /etc/clusterm/gossip.key, join: [192.0.2.10]}\n",
	)

	if c, err := Load(path); err != nil || c.Gossip.Bind != "0.0.0.0:7946" {
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
		to + "gossip: off\n":                  "observes nothing",
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

		_, err := Load(path)
		if inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(err.Error(), words) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q and the file in it", text, err, words)
		}
	}

	if _, err := Load("/nope"); err == nil || !strings.Contains(err.Error(), "cannot be read") {
		t.Error(err)
	}

	c.DataDir, c.Gossip.RPCAuthFile = filepath.Join(dir, "m"), "/nope/key"
	if err := Run(t.Context(), Options{Config: c, Log: silent()}, nil); err == nil ||
		!strings.Contains(err.Error(), "/nope/key") {
		t.Error(err)
	}

	c.DataDir = filepath.Join(path, "below")
	if err := Run(t.Context(), Options{Config: c, Log: silent()}, nil); err == nil ||
		!strings.Contains(err.Error(), "data directory") {
		t.Error(err)
	}
}
