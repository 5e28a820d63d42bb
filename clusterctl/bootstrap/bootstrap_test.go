// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/inventory/errtest"
)

// localSSH makes this machine the host: an ssh that hands its last argument to a shell, as sshd does.
func localSSH(t *testing.T, script string) {
	t.Helper()

	dir := t.TempDir()
	errtest.None(t, os.WriteFile(filepath.Join(dir, "ssh"), []byte("#!/bin/sh\n"+script), 0o700))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// TestStep hands arguments and input over as they are, whatever a shell would make of them.
func TestStep(t *testing.T) {
	localSSH(t, `for last; do :; done; exec sh -c "$last"`)

	h := &Host{o: Options{Target: "host"}, dir: t.TempDir()}
	path := filepath.Join(t.TempDir(), "a 'file' $(exit 7)")

	_, err := h.step(t.Context(), shortStep, strings.NewReader("its text\n"), "put", path)
	errtest.None(t, err)

	text, err := os.ReadFile(path)
	if err != nil || string(text) != "its text\n" {
		t.Errorf("the file has %q, %v", text, err)
	}

	_, err = h.step(t.Context(), shortStep, nil, "fail", "the", "reason")
	if exit.Code(err) != exit.Failed || exit.Message(err) != "host: the reason" {
		t.Errorf("got %v", err)
	}
}

// TestIdentity tells an instance from an interrupted join, which has the same id in two files.
func TestIdentity(t *testing.T) {
	for _, c := range []struct {
		files map[string]string
		want  string
	}{
		{nil, ""},
		{map[string]string{"instance.id": "a"}, "a"}, // with an etcd that is not inside
		{map[string]string{"instance.id": "a", "etcd/data/x": ""}, "a"},
		{map[string]string{"instance.id": "a", "instance/joining.id": "a"}, ""},
		{map[string]string{"instance.id": "a", "instance/joining.id": "a", "etcd/member.json": "{}"}, "a"},
		{map[string]string{"instance.id": "a", "instance/joining.id": "b"}, "a"},
		{map[string]string{"etcd/data/x": ""}, "without an id"},
		{map[string]string{"instance/joining.id": "a"}, ""},
	} {
		dir := t.TempDir()
		for name, text := range c.files {
			path := filepath.Join(dir, name)
			errtest.None(t, os.MkdirAll(filepath.Dir(path), 0o700))
			errtest.None(t, os.WriteFile(path, []byte(text+"\n"), 0o600))
		}

		out, err := exec.CommandContext(t.Context(), "sh", "-c",
			strings.Replace(steps, "data=/var/lib/clusterm", "data="+dir, 1)+"\nidentity").CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != c.want {
			t.Errorf("%v: got %q, %v, want %q", c.files, got, err, c.want)
		}
	}
}

// TestRefusals changes nothing for what cannot work.
func TestRefusals(t *testing.T) {
	localSSH(t, "echo 'no route' >&2; exit 255")

	dir := t.TempDir()
	pkg := filepath.Join(dir, "clusterm.deb")
	errtest.None(t, os.WriteFile(pkg, nil, 0o600))

	for _, c := range []struct {
		o    Options
		code int
		want string
	}{
		{Options{Target: "-oProxyCommand=x", Package: pkg}, exit.Usage, "is no host"},
		{Options{Target: "host", Package: "clusterm.tar"}, exit.Usage, "is no package"},
		{Options{Target: "host"}, exit.Usage, "is no package"},
		{Options{Target: "host", Package: filepath.Join(dir, "missing.deb")}, exit.Usage, "there is no file"},
		{Options{Target: "host", Package: pkg, Config: dir}, exit.Usage, "there is no file"},
		{Options{Target: "host", Package: pkg}, exit.Failed, "no route"},
	} {
		_, err := Dial(t.Context(), c.o)
		if exit.Code(err) != c.code || !strings.Contains(exit.Message(err), c.want) {
			t.Errorf("%+v: got %v, want %q", c.o, err, c.want)
		}
	}
}
