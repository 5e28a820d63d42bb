// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/cluster/clusterctl/contexts"
	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/pki"
)

const goodToken = "canary-token-0123456789"

// remoteManager is a manager over TLS that accepts one token.
type remoteManager struct {
	*testing.T
	url, pin, home string
}

// remote begins a manager, and gives the test a home of its own.
func remote(t *testing.T) *remoteManager {
	t.Helper()

	url, pin := serveTokens(t, func() []api.Instance { return nil }, "")

	m := &remoteManager{t, url, pin, t.TempDir()}
	t.Setenv("XDG_CONFIG_HOME", m.home)
	t.Setenv("CLUSTERM_URL", "")
	t.Setenv(envContext, "")

	return m
}

// serveTokens serves a manager over TLS that accepts one token. It lists the instances, and is the one with the id.
func serveTokens(t *testing.T, instances func() []api.Instance, id string) (url, pin string) {
	t.Helper()

	k, err := pki.Open(pki.Options{
		Dir: filepath.Join(t.TempDir(), "pki"), Names: func() []string { return []string{"127.0.0.1"} },
	})
	errtest.None(t, err)

	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer "+goodToken {
			w.Header().Set("Content-Type", api.TypeJSON)

			if r.URL.Path == api.PathMembers {
				var members api.List[api.Member]
				for _, i := range instances() {
					members.Items = append(members.Items, api.Member{ID: i.ID, Node: i.Node, Alive: true})
				}
				_ = json.NewEncoder(w).Encode(members)

				return
			}

			if r.URL.Path == api.PathInstances {
				_ = json.NewEncoder(w).Encode(api.List[api.Instance]{Items: instances()})
				return
			}

			_, _ = io.WriteString(w, `{"version":"1","commit":"c","status":"ok","instance":"`+id+`"}`)

			return
		}

		w.Header().Set("Content-Type", api.TypeProblem)
		w.WriteHeader(http.StatusUnauthorized)

		kind := string(inventory.KindUnauthenticated)
		_, _ = io.WriteString(w, `{"type":"`+api.ProblemBase+kind+`","detail":"the bearer token is not valid"}`)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	addr := s.Listener.Addr().String()
	s.Listener = tls.NewListener(s.Listener, k.ServerConfig())
	s.Start()
	t.Cleanup(s.Close)

	return "https://" + addr, k.Fingerprint()
}

func (m *remoteManager) path() string { return filepath.Join(m.home, "clusterctl", "config.yaml") }

// ctl runs a command line with input, and expects an exit code, and parts of the
// output of both kinds. The token must never be in it.
func (m *remoteManager) ctl(code int, input, line string, want ...string) {
	m.Helper()

	var out bytes.Buffer
	o := Options{Stdin: strings.NewReader(input), Stdout: &out, Stderr: &out}

	if got := Run(m.Context(), strings.Fields("clusterctl "+line), o); got != code {
		m.Errorf("%s: exit code %d, want %d\n%s", line, got, code, &out)
	}

	for _, part := range want {
		if !strings.Contains(out.String(), part) {
			m.Errorf("%s: no %q in\n%s", line, part, &out)
		}
	}

	if strings.Contains(out.String(), goodToken) {
		m.Errorf("%s: the token is in the output", line)
	}
}

func TestLogin(t *testing.T) {
	m := remote(t)
	file := filepath.Join(m.home, "token")
	write := func(mode os.FileMode) {
		t.Helper()
		_ = os.Remove(file)
		errtest.None(t, os.WriteFile(file, []byte(goodToken+"\n"), mode))
	}
	write(0o600)

	pinned := "login " + m.url + " --fingerprint " + m.pin

	// Each of these stores nothing.
	m.ctl(exit.Usage, "", "login "+m.url, m.pin, "needs a confirmation", "--fingerprint sha256:")
	m.ctl(exit.Usage, "", pinned, "the token needs a terminal", "--token-file")
	m.ctl(exit.Usage, "", pinned+" --token-file -", "the token is empty")
	m.ctl(exit.Usage, "two words", pinned+" --token-file -", "the token is malformed")
	m.ctl(exit.Usage, "", pinned+" --token-file "+m.home+"/none", "the token cannot be read")
	m.ctl(exit.Usage, "", pinned+" --ca-file x", "exclude each other")
	m.ctl(exit.Usage, "", "login http://127.0.0.1:9007", "https://HOST:PORT")
	m.ctl(exit.Usage, "", pinned+" --context local --token-file "+file, "the manager on this host")
	m.ctl(exit.Refused, "wrong-token", pinned+" --token-file -", "not valid")
	m.ctl(exit.Refused, "", "login "+m.url+" --fingerprint "+strings.Repeat("0", 64)+" --token-file "+file,
		"another CA than the pinned one", "intercepted")
	write(0o644)
	m.ctl(exit.Usage, "", pinned+" --token-file "+file, "others than the owner", "chmod 600")
	write(0o600)

	if _, err := os.Stat(m.path()); err == nil {
		t.Error("a refused login stored something")
	}

	m.ctl(exit.Done, goodToken, pinned+" --token-file - --context lab", "as context lab")
	m.ctl(exit.Done, "", pinned+" --token-file "+file, "as context 127.0.0.1")

	if st, err := os.Stat(m.path()); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}

	m.ctl(exit.Done, "", "context list -o long", "lab", m.url, m.pin)
	m.ctl(exit.Done, "", "context list -o json", `"has_token": true`)
	m.ctl(exit.Done, "", "status -v", "GET /v1/version: 200")

	m.ctl(exit.Done, "", "logout", "logged out of 127.0.0.1")
	m.ctl(exit.Refused, "", "status", "not valid")
	m.ctl(exit.Done, "", "status --context lab")
	m.ctl(exit.Done, "", "context remove lab", "removed: lab")
	m.ctl(exit.NotFound, "", "status --context lab", "there is no context")

	errtest.None(t, os.Chmod(m.path(), 0o640))

	m.ctl(exit.Refused, "", "status", "which holds tokens", "chmod 600")
	m.ctl(exit.Refused, "", pinned+" --token-file "+file, "which holds tokens")
}

// TestLoginInstances: one URL is enough to log in to all instances that answer, each with its own CA. An instance that
// is down, or that is not what the manager says, is left out.
func TestLoginInstances(t *testing.T) {
	m := remote(t)
	file := filepath.Join(m.home, "token")
	errtest.None(t, os.WriteFile(file, []byte(goodToken), 0o600))

	const down = "https://127.0.0.1:1"

	var all []api.Instance

	list := func() []api.Instance { return all }
	a, pinA := serveTokens(t, list, "1")
	b, pinB := serveTokens(t, list, "2")
	c, _ := serveTokens(t, list, "3")
	all = []api.Instance{
		{ID: "1", Node: "m-1", API: []string{"unix:///s", "http://127.0.0.1:9007", "https://m-1:9443"}, CA: pinA},
		{ID: "2", Node: "m-2", API: []string{"unix:///s", b}, CA: pinB},
		{ID: "3", Node: "m-3", API: []string{c}, CA: "sha256:" + strings.Repeat("0", 64)},
		{ID: "4", Node: "m-4", API: []string{down}, CA: pinB},
		{ID: "5", Node: "m-5", API: []string{"unix:///s"}},
	}

	stored := func(url, pin string) {
		t.Helper()

		f, err := contexts.Load(m.path())
		errtest.None(t, err)

		if x, err := f.Get("prod"); err != nil || x.URL != url || x.Fingerprint != pin || x.Token != goodToken {
			t.Errorf("%+v, %v; want %s with %s", x, err, url, pin)
		}
	}
	with := " --context prod --token-file " + file + " --fingerprint "

	m.ctl(exit.Done, "", "login "+a+with+pinA, "added the instance on m-2: "+b, "the instance on m-3 is left out",
		"another CA", "the instance on m-4 is left out", "as context prod")
	stored(a+","+b, pinA+","+pinB)
	m.ctl(exit.Done, "", "status -v", "GET "+a+"/v1/version: 200")
	m.ctl(exit.Done, "", "context list -o long", a+","+b)

	// Those that the command line names are stored also while they are down.
	all = all[:2]
	m.ctl(exit.Done, "", "login "+down+","+b+" "+a+with+pinA+","+pinB, "warning: "+down+" refused")
	stored(down+","+b+","+a, pinA+","+pinB)
	m.ctl(exit.Done, "", "status -v", "GET "+down+"/v1/", "no answer", "GET "+b+"/v1/version: 200")

	m.ctl(exit.Refused, "", "login "+a+" "+b+with+pinA, b+" has another CA than the pinned one")
	m.ctl(exit.Unreachable, "", "login "+down+with+pinA, down+" refused the connection")
	m.ctl(exit.Usage, "", "login "+a+" "+b, pinA, pinB, "--fingerprint "+pinA+","+pinB)
	m.ctl(exit.Usage, "", "login "+a+",http://127.0.0.1:1", "http://127.0.0.1:1", "is not the URL")
	m.ctl(exit.Usage, "", "login ,", "is empty")
	stored(down+","+b+","+a, pinA+","+pinB)
}

// TestSelection expects the order of the ways to select a manager.
func TestSelection(t *testing.T) {
	m := remote(t)

	if err := contexts.Update(m.path(), func(f *contexts.File) error {
		f.Contexts = []contexts.Context{
			{Name: "a", URL: "https://a", Fingerprint: m.pin, Token: "ta"}, {Name: "b", URL: "https://b"},
			{Name: "c", URL: "https://c,https://c2", Fingerprint: "pc", Token: "tc"},
		}
		f.Current = "a"
		return nil
	}); err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		url, context, envURL, envContext, want, token, pin string
		host                                               bool
	}{
		{want: "https://a", token: "ta", pin: m.pin},
		{envContext: "b", want: "https://b"},
		{envContext: "local"},
		{context: "b", envURL: "https://e", envContext: "a", want: "https://b"},
		{context: "local"},
		// A URL has no token, and the pinned CA of its context.
		{url: "https://a", want: "https://a", pin: m.pin},
		{url: "https://c2/", want: "https://c2/", pin: "pc"},
		{url: "https://b", want: "https://b"},
		{envURL: "https://c", envContext: "local", want: "https://c", pin: "pc"},
		// Another URL has that of the selected context, beside the CAs of this host.
		{url: "https://u", envURL: "https://e", envContext: "c", want: "https://u", pin: "pc", host: true},
		{envURL: "https://e", want: "https://e", pin: m.pin, host: true},
		{envURL: "https://e", envContext: "b", want: "https://e", host: true},
		{url: "https://u", envContext: "local", want: "https://u", host: true},
		{url: "http://a", want: "http://a"},
	} {
		t.Setenv("CLUSTERM_URL", c.envURL)
		t.Setenv(envContext, c.envContext)

		url := c.url
		if url == "" {
			url = c.envURL // as the library does
		}
		o, err := place(url, c.context, urlOnCommandLine(url))
		trusts := o.Trust.Fingerprint == c.pin && o.Trust.Host == c.host
		if err != nil || o.URL != c.want || o.Token != c.token || !trusts {
			t.Errorf("%+v: %q, token %q, %+v, %v", c, o.URL, o.Token, o.Trust, err)
		}
	}

	if _, err := place("https://u", "b", true); exit.Code(err) != exit.Usage {
		t.Errorf("both: %v", err)
	}
}

// TestURLPin: a URL of another instance is reached by the pinned CA of the context in use. No token goes to a manager
// with another CA, and none of a context to any URL.
func TestURLPin(t *testing.T) {
	m := remote(t)
	file := filepath.Join(m.home, "token")
	errtest.None(t, os.WriteFile(file, []byte(goodToken), 0o600))

	none := func() []api.Instance { return nil }
	other, _ := serveTokens(t, none, "")
	with := " --token-file " + file

	// The same manager at another URL: its certificate has no other name here.
	m.ctl(exit.Done, "", "login "+m.url+" --context prod --fingerprint "+m.pin+with)
	errtest.None(t, contexts.Update(m.path(), func(f *contexts.File) error {
		f.Contexts[0].URL = "https://127.0.0.1:1"
		return nil
	}))

	m.ctl(exit.Done, "", "--url "+m.url+" status"+with)
	m.ctl(exit.Refused, "", "--url "+m.url+" status", "the bearer token is not valid")
	m.ctl(exit.Refused, "", "--url "+other+" status"+with, other+" has another CA than the pinned one",
		"clusterctl login "+other)

	t.Setenv("CLUSTERM_URL", m.url)
	m.ctl(exit.Done, "", "status"+with)
	t.Setenv("CLUSTERM_URL", other)
	m.ctl(exit.Refused, "", "status"+with, other+" has another CA than the pinned one")
}
