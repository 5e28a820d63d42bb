// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/secret"
	"github.com/contiv/cluster/management/secret/keyring"
	"github.com/contiv/cluster/management/state"
)

func (s *site) keyFile() string { return filepath.Join(s.dir, "d", keyring.FileName) }

func (s *site) writeRing(ring secret.Ring) error {
	return os.WriteFile(s.keyFile(), ring.Encode(), 0o600)
}

func (s *site) ring() secret.Ring {
	s.t.Helper()

	content, err := os.ReadFile(s.keyFile())
	s.must(err)

	ring, err := secret.Parse(content)
	s.must(err)

	return ring
}

// encrypted waits until everything is encrypted with the only key of the file.
func (s *site) encrypted() {
	s.t.Helper()

	s.eventually("everything is encrypted with one key", func() bool {
		status, err := s.Client.Secrets(s.ctx())
		s.must(err)
		return status.Plain == 0 && !status.Rotating && len(status.Keys) == 1 && status.Key == s.ring().Active()
	})
}

// value returns a global variable as playbooks get it.
func (s *site) value(name string) any {
	s.t.Helper()

	value := state.VarsOf(s.View(), state.ScopeGlobal)[name]
	if hidden, ok := value.(configuration.Secret); ok {
		value, _ = hidden.Reveal()
	}
	return value
}

func (s *site) setSecret(name, value string) {
	s.t.Helper()
	s.must(second(s.Client.PatchSecretVars(s.ctx(), client.ScopeGlobal, api.Vars{name: value}, name)))
}

// TestMarkedSecret marks variables as secret: they stay secret at every level until they
// are removed, and a client can write back what it has read.
func TestMarkedSecret(t *testing.T) {
	t.Parallel()

	s := begin(t)
	s.report("a")
	s.must(second(s.Client.PatchVars(s.ctx(), client.ScopeGlobal, api.Vars{"pin": "old-1234", "note": "shown"})))

	// An existing value becomes secret, and its change in the history with it.
	s.setSecret("pin", configuration.Hidden)

	if got := s.value("pin"); got != "old-1234" {
		t.Errorf("the marked value is %v", got)
	}

	// A new value, another level and a request inherit the mark.
	s.must(second(s.Client.PatchVars(s.ctx(), client.ScopeGlobal, api.Vars{"pin": "new-1234"})))
	s.must(second(s.Client.SetVars(s.ctx(), client.ScopeNode("a-1"), api.Vars{"pin": "node-1234"})))

	all, err := s.Client.Vars(s.ctx(), client.ScopeGlobal)
	s.must(err)
	s.must(second(s.Client.SetVars(s.ctx(), client.ScopeGlobal, all)))

	if got := s.value("pin"); got != "new-1234" || all["pin"] != configuration.Hidden || all["note"] != "shown" {
		t.Errorf("written back: %v, shown %v", got, all)
	}

	j := s.runJob(api.JobRequest{
		Verb: inventory.VerbCommission, Nodes: []string{"a-1"}, ExtraVars: []byte(`{"pin": "request-1234"}`),
	})
	if j.Status != api.Complete {
		t.Errorf("%+v", j)
	}

	for _, path := range []string{
		"/v1/vars/global", "/v1/vars/nodes/a-1", "/v1/vars/nodes/a-1?merged=true", "/v1/jobs/1?vars=true",
		"/info/globals", "/info/nodes",
	} {
		if code, text := s.get(path); code != 200 || strings.Contains(text, "-1234") {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}

	history, err := s.Client.VarsHistory(s.ctx(), client.ScopeGlobal, 2)
	s.must(err)

	if text := fmt.Sprint(history.Items); strings.Contains(text, "1234") || len(history.Items) != 2 {
		t.Errorf("the history shows %s", text)
	}

	// An undo restores the secret.
	s.must(second(s.Client.UndoVars(s.ctx(), client.ScopeGlobal, history.Items[1].Revision-1)))

	if got := s.value("pin"); got != "old-1234" {
		t.Errorf("after the undo it is %v", got)
	}

	for _, patch := range []api.Vars{{"none": configuration.Hidden}, {"other": "1"}} {
		_, err = s.Client.PatchSecretVars(s.ctx(), client.ScopeGlobal, patch, "none")
		checkError(t, err, inventory.KindInvalid, "none")
	}
}

// TestSecretKey starts the daemon with its key, without, with another one, with one that
// others can read, and with a damaged one. Without its key only secrets are locked.
func TestSecretKey(t *testing.T) {
	t.Parallel()

	s := begin(t)
	s.report("a")
	s.setSecret("pin", "1234-secret")

	info, err := os.Stat(s.keyFile())
	s.must(err)

	if info.Mode().Perm() != 0o600 {
		t.Errorf("the key file has the mode %v", info.Mode())
	}

	key, err := os.ReadFile(s.keyFile())
	s.must(err)

	restart := func(content []byte, mode os.FileMode) {
		t.Helper()
		s.down()
		s.must(os.RemoveAll(s.keyFile()))

		if content != nil {
			s.must(os.WriteFile(s.keyFile(), content, mode))
			s.must(os.Chmod(s.keyFile(), mode))
		}

		s.up()
	}

	for _, c := range []struct {
		name    string
		content []byte
		mode    os.FileMode
		want    string
	}{
		{"missing", nil, 0, "does not exist; restore the key file"},
		{"another", secret.NewRing(secret.NewKey()).Encode(), 0o600, "has other keys"},
		{"readable", key, 0o644, "others can read the key file"},
		{"damaged", key[:len(key)-10], 0o600, "is damaged"},
	} {
		restart(c.content, c.mode)

		health, err := s.Client.Health(s.ctx())
		s.must(err)

		if health.Status != api.HealthDegraded || !strings.Contains(health.Checks["secrets"], c.want) {
			t.Errorf("%s: the health is %q", c.name, health.Checks["secrets"])
		}

		s.must(second(s.Client.PatchVars(s.ctx(), client.ScopeGlobal, api.Vars{"note": c.name})))

		_, err = s.Client.PatchVars(s.ctx(), client.ScopeGlobal, api.Vars{"new_token": "x"})
		if err == nil || !strings.Contains(err.Error(), "new_token") {
			t.Errorf("%s: a secret was stored: %v", c.name, err)
		}

		if c.mode == 0o644 {
			continue // the key is there, but not used
		}

		_, err = s.Client.Submit(s.ctx(), api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}})
		checkError(t, err, inventory.KindRefused, `"pin"`)

		_, err = s.Client.RotateSecrets(s.ctx(), false)
		if err == nil {
			t.Errorf("%s: a rotation began", c.name)
		}
	}

	restart(key, 0o600)

	if got := s.value("pin"); got != "1234-secret" || s.value("note") != "damaged" {
		t.Errorf("with the key again it is %v, note %v", got, s.value("note"))
	}

	_, err = s.Client.RotateSecrets(s.ctx(), true)
	checkError(t, err, inventory.KindRefused, "is there")

	// The key is lost for good.
	restart(nil, 0)

	status, err := s.Client.RotateSecrets(s.ctx(), true)
	s.must(err)

	if status.Problem != "" || !slices.Contains(status.Locked, "pin (global)") {
		t.Errorf("after the key was abandoned: %+v", status)
	}

	s.setSecret("pin", "anew")
	s.restart()

	if got := s.value("pin"); got != "anew" {
		t.Errorf("set anew, it is %v", got)
	}
}

// TestRotation rotates the key, and lets a rotation be killed after each of its steps:
// the next start continues it, and no secret is lost.
func TestRotation(t *testing.T) {
	t.Parallel()

	s := begin(t)
	s.setSecret("one", "first")
	s.setSecret("two", "second")

	old := s.ring().Active()
	status, err := s.Client.RotateSecrets(s.ctx(), false)
	s.must(err)

	if status.Key == old || status.Rotating || len(status.Keys) != 1 || status.Keys[0].Secrets == 0 {
		t.Errorf("after the rotation: %+v", status)
	}

	steps := []func(ring secret.Ring, named string) error{
		func(ring secret.Ring, _ string) error { return s.writeRing(ring) },
		func(ring secret.Ring, named string) error {
			s.store.Secrets().Use(ring, nil)
			return s.store.NoteSecretsKey(s.ctx(), named, ring.Active(), true)
		},
		func(secret.Ring, string) error {
			s.setSecret("one", "first") // some are encrypted with the new key
			return nil
		},
		func(secret.Ring, string) error { return second(s.store.EncryptSecrets(s.ctx())) },
		func(ring secret.Ring, _ string) error { return s.writeRing(ring.OnlyActive()) },
	}

	for killedAfter := range steps {
		// As a rotation does, once the encryption of the start is over.
		s.secrets.Stop()

		named := s.ring().Active()
		ring := s.ring().With(secret.NewKey())

		for _, step := range steps[:killedAfter+1] {
			s.must(step(ring, named))
		}

		s.restart()
		s.encrypted()

		if s.value("one") != "first" || s.value("two") != "second" || s.ring().Active() != ring.Active() {
			t.Errorf("killed after step %d: %v, %v", killedAfter, s.value("one"), s.value("two"))
		}
	}
}

// TestPlainSecretsAreEncrypted makes a stored variable secret by the configuration: it
// is encrypted at once, and after a change of the file at the next start.
func TestPlainSecretsAreEncrypted(t *testing.T) {
	t.Parallel()

	s := begin(t)
	s.must(second(s.Client.PatchVars(s.ctx(), client.ScopeGlobal, api.Vars{"pin": "1234"})))
	s.must(second(s.Client.PatchConfig(s.ctx(), map[string]any{"secret_vars": []any{"pin"}})))

	s.encrypted()

	s.must(second(s.Client.PatchVars(s.ctx(), client.ScopeGlobal, api.Vars{"code": "5678"})))
	s.must(second(s.Client.PatchConfig(s.ctx(), map[string]any{"secret_vars": nil})))
	s.down()
	s.write("secret_vars: [pin, code]")
	s.up()
	s.encrypted()

	if s.value("pin") != "1234" || s.value("code") != "5678" {
		t.Errorf("they are %v and %v", s.value("pin"), s.value("code"))
	}

	s.down()

	if etcd := filepath.Join(s.dir, "d", "etcd"); !s.inFolder(etcd, "sealed") {
		t.Error("nothing in the store is encrypted")
	}
}

// TestSecretFromOutside runs jobs with a secret from a command and from a file, that
// succeed and that fail. A failure names the secret, and never has a value.
func TestSecretFromOutside(t *testing.T) {
	t.Parallel()

	s := prepare(t)
	program, file := filepath.Join(s.dir, "get"), filepath.Join(s.dir, "value")
	source := fmt.Sprintf("secrets: {sources: {outside: {command: [%s]}, other: {file: %s}}}", program, file)

	writeProgram := func(script string, mode os.FileMode) {
		s.must(os.WriteFile(program, []byte("#!/bin/sh\n"+script+"\n"), mode))
		s.must(os.Chmod(program, mode))
	}
	writeProgram("echo value-1234", 0o755)
	s.must(os.WriteFile(file, []byte("other-1234\n"), 0o600))
	s.write(source)
	s.up()
	t.Cleanup(s.down)
	s.report("a")

	for _, c := range []struct {
		name   string
		script string
		mode   os.FileMode
		file   os.FileMode
		want   string // of the message; empty: the job succeeds
	}{
		{"both answer", "echo value-1234", 0o755, 0o600, ""},
		{
			"the command fails", "echo value-1234; echo no value-1234 here >&2; exit 3", 0o755, 0o600,
			`"outside" is not available: ` + program + " failed: exit status 3: no (hidden) here",
		},
		{"the command is silent", "true", 0o755, 0o600, `"outside" is not available: the value is empty`},
		{"others can change the command", "echo value-1234", 0o777, 0o600, "others than its owner can write"},
		{"others can read the file", "echo value-1234", 0o755, 0o644, `"other" is not available: others can read`},
	} {
		writeProgram(c.script, c.mode)
		s.must(os.Chmod(file, c.file))

		verb := inventory.VerbCommission
		if s.status("a-1") != "Unallocated" {
			verb = inventory.VerbMaintenance
		}
		j := s.runJob(api.JobRequest{Verb: verb, Nodes: []string{"a-1"}})
		code, text := s.get("/v1/jobs/" + j.ID + "?vars=true")

		if (j.Status == api.Complete) != (c.want == "") || !strings.Contains(j.Runs[0].Message, c.want) {
			t.Errorf("%s: %s: %+v", c.name, j.Status, j.Runs[0])
		}

		if code != 200 || strings.Contains(text, "-1234") || !strings.Contains(text, configuration.Hidden) {
			t.Errorf("%s: %d %s", c.name, code, text)
		}
	}

	// Whoever may change settings must not choose a program that root runs.
	_, err := s.Client.PatchConfig(s.ctx(), map[string]any{"secrets.sources": map[string]any{}})
	checkError(t, err, inventory.KindRefused, "secrets.sources belongs to the configuration file")

	code, text := s.post("/config", `{"config": {"secrets": {"sources": {"x": {"command": ["/bin/true"]}}}}}`)
	if code == http.StatusOK && strings.Contains(text, "/bin/true") {
		t.Errorf("the first generation's way: %d %s", code, text)
	}

	// A variable of a higher level needs no source.
	writeProgram("exit 1", 0o755)
	s.must(os.Chmod(file, 0o600))
	s.setSecret("outside", "inside-1234")

	j := s.runJob(api.JobRequest{Verb: inventory.VerbMaintenance, Nodes: []string{"a-1"}})
	if j.Status != api.Complete {
		t.Errorf("with a value inside: %+v", j)
	}
}

// TestSecretCredential reads the key from the credentials of systemd, and writes no file.
func TestSecretCredential(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("CREDENTIALS_DIRECTORY", dir)

	ring := secret.NewRing(secret.NewKey())
	path := filepath.Join(dir, keyring.FileName)

	errtest.None(t, os.WriteFile(path, ring.Encode(), 0o440))

	s := begin(t)
	s.setSecret("pin", "1234")

	status, err := s.Client.Secrets(s.ctx())
	s.must(err)

	if status.KeyFile != path || status.Key != ring.Active() {
		t.Errorf("%+v", status)
	}

	if _, err := os.Stat(s.keyFile()); err == nil {
		t.Error("another key file was made")
	}

	_, err = s.Client.RotateSecrets(s.ctx(), false)
	checkError(t, err, inventory.KindRefused, "systemd credential")

	// A new first line rotates; the old one stays until root removes it.
	now := ring.With(secret.NewKey())
	s.down()

	errtest.None(t, os.WriteFile(path, now.Encode(), 0o440))

	s.up()
	s.eventually("the secrets have the new key", func() bool {
		status, err := s.Client.Secrets(s.ctx())
		s.must(err)
		return status.Key == now.Active() && status.Keys[0].Secrets > 0 && status.Keys[1].Secrets == 0
	})

	if s.value("pin") != "1234" {
		t.Errorf("it is %v", s.value("pin"))
	}
}
