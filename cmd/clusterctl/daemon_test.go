// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration/ansible"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/contract"
	"github.com/contiv/cluster/management/daemon"
)

// runnerCommand makes the test binary the runner process of the daemon.
func runnerCommand() {
	if len(os.Args) == 3 && os.Args[1] == "runner" {
		os.Exit(ansible.Main(os.Args[2]))
	}
}

// startDaemon starts a daemon in this process, with a script in place of
// ansible-playbook, and returns the path of its socket.
func startDaemon(t *testing.T) string {
	t.Helper()

	dir, err := os.MkdirTemp("", "ctl")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = os.RemoveAll(dir) })

	testdata, err := filepath.Abs("../../management/daemon/testdata")
	if err != nil {
		t.Fatal(err)
	}

	socket, config := filepath.Join(dir, "s"), filepath.Join(dir, "clusterm.yaml")
	text := fmt.Sprintf(`data_dir: %s/d
socket: %s
plain_http: 127.0.0.1:0
gossip: off
node: {label: manager, serial: "1"}
playbooks: %s/playbooks
ansible_playbook: %[3]s/fake/ansible-playbook
jobs: {timeout: 1h}
`, dir, socket, testdata)

	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	logger := logrus.New()
	logger.SetOutput(io.Discard)

	d, err := daemon.New(daemon.Options{
		ConfigPath: config,
		Command:    []string{"/usr/bin/env", "GORACE=atexit_sleep_ms=0", os.Args[0]},
		InProcess:  true,
		StaleAfter: patience,
		Logger:     logger,
		Version:    api.Version{Version: "test"},
	})
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	if err := d.Start(ctx); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := d.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})

	return socket
}

// front is a proxy between one script and the daemon. It records the requests,
// and checks them and their answers against openapi.yaml.
type front struct {
	server *http.Server
	proxy  *httputil.ReverseProxy
	client *http.Client

	mu       sync.Mutex
	requests []string
	wrong    []string
}

func newFront(socket string) *front {
	f := &front{}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	transport := contract.Transport{Base: &http.Transport{DialContext: dial}, Report: f.violation}

	f.client = &http.Client{Transport: transport}
	f.proxy = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "clusterm"}) },
		Transport:     transport,
		FlushInterval: -1,
	}
	f.server = &http.Server{Handler: f}

	return f
}

func (f *front) violation(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wrong = append(f.wrong, fmt.Sprintf(format, args...))
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}

	if r.Method != http.MethodGet {
		f.mu.Lock()
		f.requests = append(f.requests, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+string(body)))
		f.mu.Unlock()
	}

	r.Body = io.NopCloser(bytes.NewReader(body))
	f.proxy.ServeHTTP(w, r)
}

// discover reports nodes to the daemon, as an observer does.
func (f *front) discover(labels []string) error {
	for i, label := range labels {
		body := fmt.Sprintf(`{"Node-Label":%q,"Node-Serial":"1","Node-Mgmt-Address":"10.0.0.%d"}`, label, i+1)

		resp, err := f.client.Post(
			"http://clusterm/monitor/discovered/"+label+"-1",
			"application/json",
			strings.NewReader(body),
		)
		if err != nil {
			return err
		}

		_ = resp.Body.Close()

		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("the daemon answered %s to the report of %s", resp.Status, label)
		}
	}

	return nil
}

// TestDaemonScripts runs the scripts in testdata/daemon against one real daemon.
// The scripts share its nodes and variables: each uses labels and keys of its own.
func TestDaemonScripts(t *testing.T) {
	t.Parallel()

	socket := startDaemon(t)

	// The subtests of testscript are parallel: this group ends before the daemon does.
	t.Run("daemon", func(t *testing.T) {
		testscript.Run(t, testscript.Params{
			Dir:           "testdata/daemon",
			UpdateScripts: os.Getenv("UPDATE_GOLDEN") != "",
			Setup:         func(e *testscript.Env) error { return setUpFront(e, socket) },
			Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
				"exits":    cmdExits,
				"discover": cmdDiscover,
				"requests": cmdRequests,
			},
		})
	})
}

func setUpFront(e *testscript.Env, socket string) error {
	dir, err := os.MkdirTemp("", "ctl")
	if err != nil {
		return err
	}

	f := newFront(socket)

	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		return err
	}

	go func() { _ = f.server.Serve(l) }()

	e.Defer(func() {
		_ = f.server.Close()
		_ = os.RemoveAll(dir)

		f.mu.Lock()
		defer f.mu.Unlock()

		if len(f.wrong) > 0 {
			e.T().Fatal(strings.Join(f.wrong, "\n"))
		}
	})
	e.Values["front"] = f
	e.Setenv("CLUSTERM_URL", "unix://"+filepath.Join(dir, "s"))
	e.Setenv("TZ", "UTC")
	e.Setenv("GORACE", "atexit_sleep_ms=0")

	return nil
}

func frontOf(ts *testscript.TestScript) *front { return ts.Value("front").(*front) }

// cmdDiscover is `discover LABEL…`: it reports the nodes LABEL-1.
func cmdDiscover(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(frontOf(ts).discover(args))
}

// cmdRequests is `requests`: it writes the requests since the last call, except GET,
// to $WORK/requests.
func cmdRequests(ts *testscript.TestScript, _ bool, _ []string) {
	f := frontOf(ts)
	f.mu.Lock()
	text := strings.Join(append(f.requests, ""), "\n")
	f.requests = nil
	f.mu.Unlock()
	ts.Check(os.WriteFile(ts.MkAbs("requests"), []byte(text), 0o644))
}
