// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
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

// fakeManager records the reports of one observer.
type fakeManager struct {
	mu      sync.Mutex
	alive   map[string]bool // by node
	posts   []string
	fail    inventory.Kind // of every POST; "" for success
	refuse  string         // a node
	maxBody int            // bytes; 0: no limit
}

func (m *fakeManager) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()

	answer := func(v any) {
		w.Header().Set("Content-Type", api.TypeJSON)
		json.NewEncoder(w).Encode(v)
	}

	if r.Method == http.MethodGet {
		list := api.List[api.Node]{Items: []api.Node{}}
		for name, alive := range m.alive {
			label, serial, _ := strings.Cut(name, "-")
			list.Items = append(list.Items, api.Node{
				Name: name, Label: label, Serial: serial, Addr: "10.0.0.1", Seen: map[string]bool{observer: alive},
			})
		}

		answer(list)

		return
	}

	body, _ := io.ReadAll(r.Body)

	fail := m.fail
	if m.maxBody > 0 && len(body) > m.maxBody {
		fail = inventory.KindTooLarge
	}

	if fail != "" {
		w.Header().Set("Content-Type", api.TypeProblem)
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintf(w, `{"type":%q,"title":"t","status":503,"detail":"no store"}`, api.ProblemBase+string(fail))

		return
	}

	var rep api.Report
	json.Unmarshal(body, &rep)
	answer(m.record(rep))
}

func (m *fakeManager) record(rep api.Report) api.Reported {
	line := "some"
	if rep.Full {
		line = "full"
		clear(m.alive)
	}

	var result api.Reported
	for i, o := range rep.Observations {
		name := inventory.NodeName(o.Label, o.Serial)
		if name == m.refuse {
			result.Refused = append(result.Refused, api.Refusal{Index: i, Message: name + " is refused"})
			continue
		}

		m.alive[name] = o.Alive

		line += " " + name
		if !o.Alive {
			line += "!"
		}
	}

	m.posts = append(m.posts, line)

	return result
}

func (m *fakeManager) take() string {
	m.mu.Lock()
	defer m.mu.Unlock()

	posts := strings.Join(m.posts, "; ")
	m.posts = nil

	return posts
}

const observer = "rack1"

// connect returns a reporter to the manager, with its state in the file.
func connect(t *testing.T, m *fakeManager, file string, log *logrus.Logger) *reporter {
	t.Helper()

	srv := httptest.NewServer(m)
	t.Cleanup(srv.Close)

	manager, err := client.New(client.Options{URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}

	nodes, err := openReported(file, []string{"manager"})
	if err != nil {
		t.Fatal(err)
	}

	return newReporter(manager, "manager", observer, nodes, log)
}

// sightings parses words such as "a b!": a-1 is alive, b-1 is not.
func sightings(words string) (all []monitor.Sighting) {
	for _, w := range strings.Fields(words) {
		label, gone := strings.CutSuffix(w, "!")
		all = append(all, monitor.Sighting{Label: label, Serial: "1", Addr: "10.0.0.1", Alive: !gone})
	}

	return all
}

func TestReporter(t *testing.T) {
	t.Parallel()

	m := &fakeManager{alive: map[string]bool{}}
	file := filepath.Join(t.TempDir(), "reported.json")
	log, hook := logtest.NewNullLogger()
	r := connect(t, m, file, log)

	step := func(full bool, words, want string) {
		t.Helper()

		if err := r.Observe(t.Context(), monitor.Report{Full: full, Sightings: sightings(words)}); err != nil {
			t.Errorf("%s: %v", words, err)
		}

		if got := m.take(); got != want {
			t.Errorf("%s: %q, want %q", words, got, want)
		}
	}
	step(true, "a b c!", "full a-1 b-1 c-1!")
	step(false, "a! d", "some a-1! d-1")
	step(true, "", "full")
	step(true, "b d", "full b-1 d-1")

	// The live nodes survive a restart.
	r = connect(t, m, file, log)
	if names := r.reported.names(); !slices.Equal(names, []string{"b-1", "d-1"}) {
		t.Errorf("alive before the restart: %v", names)
	}

	m.fail = inventory.KindUnavailable

	err := r.Observe(t.Context(), monitor.Report{Sightings: sightings("d!")})
	if inventory.KindOf(err) != inventory.KindUnavailable || !strings.Contains(err.Error(), "manager: ") {
		t.Errorf("a manager that fails: %v", err)
	}

	if names := r.reported.names(); !slices.Contains(names, "d-1") {
		t.Errorf("a report that failed counts as recorded: %v", names)
	}

	// A refused node does not affect the others, and is logged once.
	m.fail, m.refuse = "", "g-1"
	hook.Reset()
	step(true, "f g h", "full f-1 h-1")
	step(true, "f g h", "full f-1 h-1")

	if len(hook.AllEntries()) != 1 || hook.LastEntry().Data["reason"] != "g-1 is refused" {
		t.Errorf("log: %+v", hook.AllEntries())
	}

	m.refuse = ""
	step(true, "f g h", "full f-1 g-1 h-1")

	if err := os.WriteFile(file, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}

	if _, err := openReported(file, nil); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a malformed file: %v", err)
	}
}

// TestReporterParts: a report beyond the limit of a request, or of the manager,
// is sent in parts, with the lost nodes.
func TestReporterParts(t *testing.T) {
	t.Parallel()

	for name, limit := range map[string]struct{ observations, body int }{
		"observations": {observations: 2},
		"body":         {observations: 100, body: 220},
	} {
		m := &fakeManager{alive: map[string]bool{"lost-1": true}, maxBody: limit.body}
		r := connect(t, m, filepath.Join(t.TempDir(), "reported.json"), silent())
		r.limit = limit.observations

		err := r.Observe(t.Context(), monitor.Report{Full: true, Sightings: sightings("a b c d e")})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}

		want := map[string]bool{"a-1": true, "b-1": true, "c-1": true, "d-1": true, "e-1": true, "lost-1": false}
		posts := m.take()

		inParts := strings.Contains(posts, ";") && !strings.Contains(posts, "full")
		if !maps.Equal(m.alive, want) || !inParts {
			t.Errorf("%s: %v after %s", name, m.alive, posts)
		}
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
	if err != nil || !slices.Equal(c.ReportTo, []string{"unix:///run/clusterm/clusterm.sock"}) ||
		c.Gossip.RPC != "127.0.0.1:7373" ||
		c.DataDir != "/var/lib/clusterm-monitor" {
		t.Fatalf("%+v, %v", c, err)
	}

	put(
		"report_to: [unix:///run/clusterm/clusterm.sock]\n" +
			"gossip: {key_file: /etc/clusterm/gossip.key, join: [192.0.2.10]}\n",
	)

	if c, err := Load(path); err != nil || c.Gossip.Bind != "0.0.0.0:7946" {
		t.Errorf("%+v, %v", c, err)
	}

	// Without report_to, it is the socket that a manager on this host serves by default.
	put("gossip: {rpc: \"127.0.0.1:7373\"}\n")

	if c, err := Load(path); err != nil || !slices.Equal(c.ReportTo, []string{"unix://" + api.DefaultSocket}) {
		t.Errorf("%+v, %v", c, err)
	}

	const to, rpc = "report_to: [\"http://127.0.0.1:9007\"]\n", "gossip: {rpc: \"127.0.0.1:7373\"}\n"
	for text, words := range map[string]string{
		"report_to: []\n" + rpc:                                               "report_to: it is empty",
		"report_to: [\"ftp://x\"]\n" + rpc:                                    "neither unix:///PATH nor http://",
		"report_to: [\"127.0.0.1:9007\"]\n" + rpc:                             "neither unix:///PATH nor http://",
		"report_to: [\"https://manager\"]\n" + rpc:                            "neither unix:///PATH nor http://",
		"report_to: [\"http://192.0.2.1:9007\"]\n" + rpc:                      "ssh -N -L",
		"report_to: [\"unix://relative\"]\n" + rpc:                            "names no socket",
		"report_to: [\"http://127.0.0.1:1\", \"http://127.0.0.1:1\"]\n" + rpc: "is there twice",
		to:                                    "gossip: name the rpc of a serf agent",
		to + "gossip: off\n":                  "observes nothing",
		to + "gossip: {key_file: /k}\n":       "gossip.join: it is empty",
		to + "gossip: {rpc: \"1.2.3.4:1\"}\n": "not a loopback address",
		to + "gossip: {rpc: \"127.0.0.1:7373\", key_file: /k}\n":          "gossip.key_file: gossip.rpc names",
		to + "gossip: {rpc: \"127.0.0.1:7373\", join: [\"192.0.2.1\"]}\n": "gossip.join: gossip.rpc names an existing",
		to + "gossip: {rpc: \"127.0.0.1:7373\", bind: \"0.0.0.0:1\"}\n":   "gossip.bind: gossip.rpc names an existing",
		to + rpc + "nonsense: 1\n":                                        "key nonsense not found",
		to + rpc + "observer: post\n":                                     "name \"post\" is reserved",
		to + rpc + "observer: a b\n":                                      "observer:",
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
