// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/cluster/clusterctl/contexts"
	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
)

// fakeHost puts an ssh first in the PATH that does nothing but record the steps, and give their answers.
type fakeHost struct {
	*remoteManager
	dir, pkg string
}

func newFakeHost(m *remoteManager) fakeHost {
	m.Helper()

	h := fakeHost{m, m.TempDir(), filepath.Join(m.TempDir(), "clusterm.deb")}
	errtest.None(m, os.WriteFile(h.pkg, nil, 0o600))
	errtest.None(m, os.WriteFile(filepath.Join(h.dir, "ssh"), []byte(`#!/bin/sh
for last; do :; done
case " $* " in
*" -O exit "*) exit ;;
*" -G "*) echo hostname 127.0.0.1; exit ;;
esac
[ "$last" != "id -u" ] || { echo 0; exit; }
step=${last##*" clusterctl "}
step=${step%% *}
echo "$step" >>"$0.steps"
case $step in put | join) cat >/dev/null ;; esac
[ ! -e "$0.$step" ] || cat "$0.$step"
`), 0o700))
	m.Setenv("PATH", h.dir+":"+os.Getenv("PATH"))

	return h
}

// answers sets the output of a step.
func (h fakeHost) answers(step, text string) {
	h.Helper()
	errtest.None(h, os.WriteFile(filepath.Join(h.dir, "ssh."+step), []byte(text+"\n"), 0o600))
}

// took returns the steps since the last call.
func (h fakeHost) took() string {
	h.Helper()

	path := filepath.Join(h.dir, "ssh.steps")
	text, err := os.ReadFile(path)
	errtest.None(h, err)
	errtest.None(h, os.Remove(path))

	return strings.Join(strings.Fields(string(text)), " ")
}

// TestBootstrapKeepsToken: the token of a new manager is not lost if the login to it, or its storage, fails.
func TestBootstrapKeepsToken(t *testing.T) {
	m := remote(t)
	h := newFakeHost(m)
	h.answers("fingerprint", m.pin)
	h.answers("token", goodToken)
	h.answers("first", "ssh-ed25519 key")

	at, err := url.Parse(m.url)
	errtest.None(t, err)

	line := "bootstrap root@127.0.0.1 --package " + h.pkg + " --context new --port "

	// The port is closed: a listener that has ended had it.
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	errtest.None(t, err)
	_, closed, err := net.SplitHostPort(l.Addr().String())
	errtest.None(t, err)
	errtest.None(t, l.Close())

	m.ctl(exit.Unreachable, "", line+closed, "the login failed", "open its port", "clusterctl context use new")

	f, err := contexts.Load(m.path())
	errtest.None(t, err)

	want := contexts.Context{
		Name: "new", URL: "https://127.0.0.1:" + closed, Fingerprint: m.pin, Token: goodToken,
	}
	if got, err := f.Get("new"); err != nil || got != want || f.Current != "" {
		t.Fatalf("%+v, %v; in use: %q", got, err, f.Current)
	}

	// The remedy works once the port is open, which is another one here.
	errtest.None(t, contexts.Update(m.path(), func(f *contexts.File) error {
		f.Contexts[0].URL = m.url
		return nil
	}))
	m.ctl(exit.Done, "", "context use new")
	m.ctl(exit.Done, "", "status")

	// Where nothing can be stored, the remedy makes another token.
	t.Setenv("XDG_CONFIG_HOME", h.pkg)
	m.ctl(exit.Unreachable, "", line+at.Port(), "its token cannot be stored", "repeat the command",
		"clusterctl token create --role admin")
	t.Setenv("XDG_CONFIG_HOME", m.home)
	m.ctl(exit.Done, "", line+at.Port(), "logged in to", "ssh-ed25519 key")

	// A name that no context may have is refused before anything is done.
	h.took()
	m.ctl(exit.Usage, "", "bootstrap root@local --package "+h.pkg, "the manager on this host", "--context NAME")

	if _, err := os.Stat(filepath.Join(h.dir, "ssh.steps")); err == nil {
		t.Errorf("the refused bootstrap took the steps %s", h.took())
	}
}

// TestInstanceAddKnowsInstances: a host that is an instance already is neither installed nor joined.
func TestInstanceAddKnowsInstances(t *testing.T) {
	m := remote(t)
	h := newFakeHost(m)

	instances := []api.Instance{{ID: "3f0c1d9a77be20c4", Node: "m-2"}}
	url, pin := serveTokens(t, func() []api.Instance { return instances }, "")
	m.ctl(exit.Done, goodToken, "login "+url+" --fingerprint "+pin+" --token-file -")

	line := "instance add root@m-2 --package " + h.pkg

	for id, c := range map[string]struct {
		code int
		want []string
	}{
		"3f0c1d9a77be20c4": {exit.Done, []string{"of this manager already; nothing was changed"}},
		"1111111111111111": {exit.Refused, []string{
			"root@m-2 is an instance already (1111111111111111)", "another manager", "nothing was changed",
			"mv /var/lib/clusterm",
		}},
		"without an id": {exit.Refused, []string{"is an instance already (without an id)"}},
	} {
		h.answers("identity", id)
		m.ctl(c.code, "", line, c.want...)

		if got := h.took(); got != "check identity" {
			t.Errorf("%s: the steps are %s", id, got)
		}
	}
}
