// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/clusterctl"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/pki"
)

// TestPrintMissing: a join names what it does not bring, and what the configuration lacks here.
func TestPrintMissing(t *testing.T) {
	t.Parallel()

	var ready, not strings.Builder

	printMissing(&ready, nil)
	printMissing(&not, errors.New("playbooks: /srv/playbooks is missing"))

	for _, want := range []string{"the configuration file", "playbooks", "notifications"} {
		if !strings.Contains(ready.String(), want) {
			t.Errorf("no %q in: %s", want, ready.String())
		}
	}

	if strings.Contains(ready.String(), "not ready") || !strings.Contains(not.String(), "/srv/playbooks is missing") {
		t.Errorf("it prints\n%s\nand\n%s", ready.String(), not.String())
	}
}

// TestInvitationRuns: what clusterctl instance invite prints is a command of clusterm without the token, and the token
// that this reads from stdin.
func TestInvitationRuns(t *testing.T) {
	t.Parallel()

	const token = "clusterm-0123456789abcdef-secret"

	k, err := pki.Open(pki.Options{
		Dir: filepath.Join(t.TempDir(), "pki"), Names: func() []string { return []string{"127.0.0.1"} },
	})
	errtest.None(t, err)

	var (
		url    string
		joined = make(chan string, 1)
	)

	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", api.TypeJSON)

		switch r.URL.Path {
		case api.PathInvite:
			_ = json.NewEncoder(w).Encode(api.Invite{
				Token: token, Expires: time.Now().Add(time.Hour), Fingerprint: k.Fingerprint(), URLs: []string{url},
			})
		case api.PathJoin:
			joined <- r.Header.Get("Authorization")
			http.Error(w, "{}", http.StatusConflict)
		default:
			http.Error(w, "{}", http.StatusNotFound)
		}
	})
	local := httptest.NewServer(answer)
	t.Cleanup(local.Close)

	manager := httptest.NewUnstartedServer(answer)
	url = "https://" + manager.Listener.Addr().String()
	manager.Listener = tls.NewListener(manager.Listener, k.ServerConfig())
	manager.Start()
	t.Cleanup(manager.Close)

	var out, problems bytes.Buffer
	code := clusterctl.Run(t.Context(), []string{"clusterctl", "--url", local.URL, "instance", "invite"},
		clusterctl.Options{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &problems})
	if code != 0 {
		t.Fatal(code, problems.String())
	}

	command, rest, _ := strings.Cut(out.String(), "\n")
	if strings.Contains(command, "secret") || strings.TrimSpace(rest) != token {
		t.Fatalf("it prints %q", out.String())
	}

	port := func() int {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		errtest.None(t, err)
		defer l.Close()
		return l.Addr().(*net.TCPAddr).Port
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "clusterm.yaml")
	errtest.None(t, os.WriteFile(config, fmt.Appendf(nil,
		"data_dir: %s/d\nnode: {label: b, serial: \"1\", addr: 127.0.0.1}\n"+
			"instances: {client_port: %d, peer_port: %d}\n", dir, port(), port()), 0o600))

	root := rootCommand(func(int) error { return nil })
	root.Reader = strings.NewReader(rest)

	err = root.Run(t.Context(), append(strings.Fields(command), "--config", config))
	if len(joined) != 1 || err == nil {
		t.Fatalf("no request arrived: %v", err)
	}
	if sent := <-joined; sent != "Bearer "+token {
		t.Errorf("it sends %q", sent)
	}
}
