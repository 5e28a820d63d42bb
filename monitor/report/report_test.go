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
	"github.com/contiv/cluster/inventory/errtest"
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

	// The role monitor may not read.
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusForbidden)
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
		names := inventory.NameRange{After: rep.After, Until: rep.Until}
		maps.DeleteFunc(m.alive, func(name string, _ bool) bool { return names.Contains(name) })

		line = "full"
		if names != (inventory.NameRange{}) {
			line = "full(" + names.After + "," + names.Until + "]"
		}
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
	errtest.None(t, err)

	nodes, err := openReported(file, []string{"manager"})
	errtest.None(t, err)
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

	errtest.None(t, os.WriteFile(file, []byte("nonsense"), 0o600))

	if _, err := openReported(file, nil); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a malformed file: %v", err)
	}
}

// TestReporterParts: a full report beyond the limit of a request, or of the
// manager, is sent in ranges of names. Together they cover every name, so that the
// manager misses the lost nodes, and the monitor reads nothing.
func TestReporterParts(t *testing.T) {
	t.Parallel()

	for name, limit := range map[string]struct{ observations, body int }{
		"observations": {observations: 2},
		"body":         {observations: 100, body: 230},
	} {
		m := &fakeManager{maxBody: limit.body, alive: map[string]bool{
			"0-1": true, "b-1": true, "bb-1": true, "d-10": true, "lost-1": true,
		}}
		r := connect(t, m, filepath.Join(t.TempDir(), "reported.json"), silent())
		r.limit = limit.observations

		err := r.Observe(t.Context(), monitor.Report{Full: true, Sightings: sightings("a b c d e")})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}

		want := map[string]bool{"a-1": true, "b-1": true, "c-1": true, "d-1": true, "e-1": true}
		posts := m.take()

		if !maps.Equal(m.alive, want) || posts != "full(,b-1] a-1 b-1; full(b-1,c-1] c-1; full(c-1,] d-1 e-1" {
			t.Errorf("%s: %v after %s", name, m.alive, posts)
		}

		// A partial report has no ranges.
		err = r.Observe(t.Context(), monitor.Report{Sightings: sightings("a! b! c!")})
		if posts := m.take(); err != nil || posts != "some a-1!; some b-1! c-1!" && posts != "some a-1! b-1! c-1!" {
			t.Errorf("%s: %v after %s", name, err, posts)
		}
	}
}

// TestReporterInstances: a report goes to one instance of a manager, and to another one while that is down. A monitor
// keeps what it has reported if the configuration names another instance.
func TestReporterInstances(t *testing.T) {
	t.Parallel()

	a, b := &fakeManager{alive: map[string]bool{}}, &fakeManager{alive: map[string]bool{}}
	first, second := httptest.NewServer(a), httptest.NewServer(b)
	t.Cleanup(second.Close)

	both := first.URL + "," + second.URL
	file := filepath.Join(t.TempDir(), "reported.json")

	manager, err := client.New(client.Options{URL: both})
	errtest.None(t, err)
	nodes, err := openReported(file, []string{both})
	errtest.None(t, err)
	r := newReporter(manager, both, observer, nodes, silent())

	step := func(words, atFirst, atSecond string, want inventory.Kind) {
		t.Helper()

		err := r.Observe(t.Context(), monitor.Report{Sightings: sightings(words)})
		if inventory.KindOf(err) != want {
			t.Errorf("%s: %v, want %q", words, err, want)
		}

		if got, other := a.take(), b.take(); got != atFirst || other != atSecond {
			t.Errorf("%s: the instances got %q and %q", words, got, other)
		}
	}
	step("a b", "some a-1 b-1", "", "")

	a.fail = inventory.KindUnavailable
	step("c", "", "some c-1", "")

	first.Close()
	step("d!", "", "some d-1!", "")

	b.fail = inventory.KindUnavailable
	step("e", "", "", inventory.KindUnavailable)

	want := []string{"a-1", "b-1", "c-1"}

	for managers, known := range map[string][]string{
		second.URL + ",http://127.0.0.1:1": want, first.URL: want, "http://127.0.0.1:1": nil,
	} {
		nodes, err := openReported(file, []string{managers})
		if err != nil || !slices.Equal(nodes.names(), known) {
			t.Errorf("for %s: %v, %v", managers, nodes.names(), err)
		}
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "monitor.yaml")
	put := func(text string) {
		errtest.None(t, os.WriteFile(path, []byte(text), 0o600))
	}
	put(string(Example))

	c, err := Load(path)
	if err != nil || !slices.Equal(c.urls(), []string{"unix:///run/clusterm/clusterm.sock"}) ||
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

	if c, err := Load(path); err != nil || !slices.Equal(c.urls(), []string{"unix://" + api.DefaultSocket}) {
		t.Errorf("%+v, %v", c, err)
	}

	const to, rpc = "report_to: [\"http://127.0.0.1:9007\"]\n", "gossip: {rpc: \"127.0.0.1:7373\"}\n"
	for text, words := range map[string]string{
		"report_to: []\n" + rpc:                                               "report_to: it is empty",
		"report_to: [\"ftp://x\"]\n" + rpc:                                    "none of https://HOST:PORT",
		"report_to: [\"127.0.0.1:9007\"]\n" + rpc:                             "none of https://HOST:PORT",
		"report_to: [\"https://manager\"]\n" + rpc:                            "needs a credential",
		"report_to: [\"http://192.0.2.1:9007\"]\n" + rpc:                      "plain HTTP is not protected",
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

// TestManagers: managers on other hosts have https, and a credential in a file.
func TestManagers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "monitor.yaml")
	load := func(manager string) (Config, error) {
		text := "report_to: [" + manager + "]\ngossip: {rpc: \"127.0.0.1:7373\"}\n"
		errtest.None(t, os.WriteFile(path, []byte(text), 0o600))
		return Load(path)
	}

	pin := "sha256:" + strings.Repeat("0a", 32)

	c, err := load("unix:///s, {manager: \"https://m:1\", fingerprint: \"" + pin + "\", cert_file: /c, key_file: /k}")
	want := []Manager{{URL: "unix:///s"}, {URL: "https://m:1", Fingerprint: pin, CertFile: "/c", KeyFile: "/k"}}

	if err != nil || !slices.Equal(c.ReportTo, want) {
		t.Errorf("%+v, %v", c.ReportTo, err)
	}

	// The instances of one manager.
	pins := "[" + pin + ", " + pin + "]"
	c, err = load("{manager: [\"https://m:1\", \"https://n:1\"], token_file: /t, fingerprint: " + pins + "}")
	want = []Manager{{URL: "https://m:1,https://n:1", Fingerprint: pin + "," + pin, TokenFile: "/t"}}

	if err != nil || !slices.Equal(c.ReportTo, want) {
		t.Errorf("%+v, %v", c.ReportTo, err)
	}

	for manager, words := range map[string]string{
		`{manager: ["https://m:1", "http://192.0.2.1:1"], token_file: /t}`:        "plain HTTP is not protected",
		`{manager: ["https://m:1", "unix:///s"], token_file: /t}`:                 "unix:///s takes neither CA",
		`{manager: ["https://m:1", {}], token_file: /t}`:                          "report_to",
		`{manager: [], token_file: /t}`:                                           "none of https",
		`{manager: ["unix:///s", "unix:///r"]}, "unix:///r"`:                      "is there twice",
		`{manager: "https://m:1"}`:                                                "needs a credential",
		`{manager: "https://m:1", token_file: /t, cert_file: /c}`:                 "both token_file",
		`{manager: "https://m:1", token_file: /t, key_file: /k}`:                  "key_file without",
		`{manager: "https://m:1", token_file: t}`:                                 "is not an absolute path",
		`{manager: "https://m:1", token_file: /t, ca_file: c}`:                    "is not an absolute path",
		`{manager: "https://m:1", token_file: /t, ca_file: /c, fingerprint: abc}`: "both fingerprint",
		`{manager: "https://m:1", token_file: /t, fingerprint: abc}`:              "is not a fingerprint",
		`{manager: "https://u:p@m:1", token_file: /t}`:                            "more than an address",
		`{manager: "http://192.0.2.1:1", token_file: /t}`:                         "plain HTTP is not protected",
		`{manager: "http://127.0.0.1:9007", token_file: /t}`:                      "takes neither CA",
		`{manager: "unix:///s", cert_file: /c}`:                                   "takes neither CA",
		`{token_file: /t}`:                                                        "none of https",
		`{manager: "https://m:1", token: geheim}`:                                 "token not found",
		`["https://m:1"]`: "is not a mapping",
		`{manager: "https://m:1", token_file: [1]}`: "report_to",
	} {
		_, err := load(manager)
		if inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(err.Error(), words) &&
			words != "report_to" || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v, want %q", manager, err, words)
		}
	}
}

// TestCredentialFiles: a secret that others may read is refused, and no error holds
// it.
func TestCredentialFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		errtest.None(t, os.WriteFile(path, []byte(text), 0o600))
		errtest.None(t, os.Chmod(path, mode))
		return path
	}

	good := put("good", "geheim\n", 0o600)
	for name, tt := range map[string]struct {
		m     Manager
		words string // of the error; empty: none
	}{
		"token":          {Manager{TokenFile: good}, ""},
		"readable token": {Manager{TokenFile: put("open", "geheim", 0o640)}, "may read the token"},
		"missing token":  {Manager{TokenFile: filepath.Join(dir, "none")}, "cannot be read"},
		"empty token":    {Manager{TokenFile: put("empty", " \n", 0o600)}, "is empty"},
		"long token":     {Manager{TokenFile: put("long", strings.Repeat("geheim", 3000), 0o600)}, "larger than"},
		"two tokens":     {Manager{TokenFile: put("two", "geheim geheim", 0o600)}, "malformed"},
		"a folder":       {Manager{TokenFile: dir}, "token"},
		"readable key":   {Manager{CertFile: put("key", "geheim", 0o604)}, "may read the private key"},
		"no certificate": {Manager{CertFile: good}, "client certificate cannot be used"},
		"missing CA":     {Manager{TokenFile: good, CAFile: "/nope/ca.pem"}, "/nope/ca.pem"},
		"no CA":          {Manager{TokenFile: good, CAFile: good}, "holds no certificate"},
	} {
		tt.m.URL = "https://127.0.0.1:1"
		c := Config{ReportTo: []Manager{tt.m}}
		err := c.CheckFiles()

		if tt.words == "" && err != nil {
			t.Errorf("%s: %v", name, err)
		}

		if tt.words != "" && (inventory.KindOf(err) != inventory.KindInvalid ||
			!strings.Contains(err.Error(), tt.words) || strings.Contains(err.Error(), "geheim")) {
			t.Errorf("%s: %v, want %q", name, err, tt.words)
		}
	}
}
