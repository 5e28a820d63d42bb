// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/contiv/cluster/clusterctl/bundle"
	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/server"
)

// canary is part of every secret of a site with leaks.
const canary = "canary-93be0d"

// leakingSite begins a site with secrets of every kind, whose playbooks show all of
// them.
func leakingSite(t *testing.T) *site {
	t.Helper()

	playbook, err := filepath.Abs("testdata/fake/leaking-playbook")
	errtest.None(t, err)
	s := prepare(t, "ansible_playbook: "+playbook)
	file, command := filepath.Join(s.dir, "outside"), filepath.Join(s.dir, "get-secret")
	s.must(os.WriteFile(file, []byte(canary+"-file\n"), 0o600))
	s.must(os.WriteFile(command, []byte("#!/bin/sh\necho "+canary+"-command\n"), 0o700))
	s.write("ansible_playbook: "+playbook, fmt.Sprintf(
		"secrets: {sources: {from_file: {file: %s}, from_command: {command: [%s, %s-argument]}}}",
		file, command, canary,
	), fmt.Sprintf(
		"notifications: [{name: chat, events: [job.failed, node.status], url: 'http://127.0.0.1:1/%s', "+
			"allow_local: true}]", canary,
	))
	s.up()
	t.Cleanup(s.down)
	s.report("a")

	patch := func(scope client.Scope, vars api.Vars, secret ...string) {
		t.Helper()
		s.must(second(s.Client.PatchSecretVars(s.ctx(), scope, vars, secret...)))
	}
	patch(client.ScopeGlobal, api.Vars{"pin": canary + "-pin", "global_password": canary + "-old"}, "pin")
	patch(client.ScopeGlobal, api.Vars{"global_password": canary + "-global"})
	patch(client.ScopeGroup(inventory.GroupMaster), api.Vars{"env": map[string]any{"api_key": canary + "-group"}})
	patch(client.ScopeNode("a-1"), api.Vars{"pin": canary + "-node", "note": "not-a-" + canary[:6]})
	s.must(second(s.Client.PatchConfig(s.ctx(), map[string]any{
		"vars": map[string]any{"config_token": canary + "-config", "motd": "shown"},
	})))

	return s
}

// commissionLeaking submits a job whose playbook fails or waits.
func (s *site) commissionLeaking(extra map[string]any) api.Job {
	s.t.Helper()

	extra["request_password"] = canary + "-request"
	extra["pin"] = canary + "-request-pin"

	encoded, err := json.Marshal(extra)
	s.must(err)

	j, err := s.Client.Submit(s.ctx(), api.JobRequest{
		Verb: inventory.VerbCommission, Nodes: []string{"a-1"}, ExtraVars: encoded,
	})
	s.must(err)

	return j
}

// planLeaking makes a plan with secrets of every kind. The refusal to apply it after a
// change of one shows no value.
func (s *site) planLeaking() (id string) {
	s.t.Helper()

	p, err := s.Client.Plan(s.ctx(), api.JobRequest{
		Verb: inventory.VerbCommission, Nodes: []string{"a-1"},
		ExtraVars: []byte(`{"request_password": "` + canary + `-planned", "pin": "` + canary + `-planned-pin"}`),
	})
	s.must(err)

	answer, err := json.Marshal(p)
	s.must(err)
	s.check("the answer with the plan", answer)

	patch := api.Vars{"global_password": canary + "-since"}
	s.must(second(s.Client.PatchSecretVars(s.ctx(), client.ScopeGlobal, patch)))

	_, err = s.Client.ApplyPlan(s.ctx(), p.ID)
	if inventory.KindOf(err) != inventory.KindRefused || !strings.Contains(err.Error(), "global_password") {
		s.t.Errorf("the plan was not refused: %v", err)
	}

	s.check("the refusal of the plan", []byte(fmt.Sprint(err)))

	return p.ID
}

// rolloutLeaking carries out a rollout with secrets in its extra variables.
func (s *site) rolloutLeaking() (id string) {
	s.t.Helper()

	r, err := s.Client.StartRollout(s.ctx(), api.RolloutRequest{
		Spec: api.RolloutSpec{
			Action: inventory.VerbCommission, Group: inventory.GroupMaster, Gate: &api.RolloutGate{SkipVerify: true},
		},
		Nodes:     []string{"a-1"},
		ExtraVars: []byte(`{"request_password": "` + canary + `-rollout", "pin": "` + canary + `-rollout-pin"}`),
	})
	s.must(err)

	r, err = s.Client.WatchRollout(s.ctx(), r.ID, func(api.Rollout) bool { return true })
	s.must(err)

	if r.Status != "Done" || r.Count.Done != 1 {
		s.t.Errorf("the rollout did not end as planned: %+v", r)
	}

	answer, err := json.Marshal(r)
	s.must(err)
	s.check("the answer with the rollout", answer)

	if text := s.output(r.Nodes[0].Job); !strings.Contains(text, configuration.Hidden) {
		s.t.Errorf("the job of the rollout showed nothing: %s", text)
	}

	s.check("the output of the rollout", []byte(s.output(r.Nodes[0].Job)))

	return r.ID
}

// TestCanary runs a job with secrets of every kind, from every place, and with playbooks
// that show them. The secrets are found nowhere but in the files that Ansible reads, and
// not even there after the run.
func TestCanary(t *testing.T) {
	t.Parallel()

	s := leakingSite(t)
	gate := s.fifo("gate")

	j := s.commissionLeaking(map[string]any{"waits_at": gate, "fails_on": "a-1"})
	s.waitOutput(j.ID, "waiting")
	s.checkProcesses()
	s.checkRunFiles(j.ID)
	s.release(gate)

	j, err := s.Client.WaitJob(s.ctx(), j.ID)
	s.must(err)

	if j.Status != api.Errored || !strings.Contains(s.output(j.ID), configuration.Hidden) {
		t.Errorf("the job did not fail as planned, or showed nothing: %+v\n%s", j, s.output(j.ID))
	}

	s.checkFolder("the directory of the run", filepath.Join(s.dir, "d", "runs"))

	// A retry of the job takes its variables from the store.
	again, err := s.Client.Retry(s.ctx(), j.ID, api.Retry{})
	s.must(err)
	s.waitOutput(again.ID, "waiting")
	s.checkRunFiles(again.ID)
	s.release(gate)
	s.must(second(s.Client.WaitJob(s.ctx(), again.ID)))

	s.checkAnswers(s.planLeaking(), s.rolloutLeaking())
	s.checkBundle()
	s.check("the crash output", stacks())
	s.check("the log", []byte(s.log.String()))

	s.must(second(s.Client.RotateSecrets(s.ctx(), false)))
	s.down()
	s.checkFolder("the data directory", filepath.Join(s.dir, "d"))

	// What is not secret is in the clear, so the search would have found a secret.
	if !s.inFolder(filepath.Join(s.dir, "d", "etcd"), "not-a-"+canary[:6]) {
		t.Error("the files of etcd have no value in the clear")
	}
}

// inFolder reports whether a file below the folder contains the text.
func (s *site) inFolder(folder, text string) (found bool) {
	s.t.Helper()

	s.must(filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}

		content, err := os.ReadFile(path)
		found = found || bytes.Contains(content, []byte(text))

		return err
	}))

	return found
}

// check reports a canary in a text.
func (s *site) check(where string, text []byte) {
	s.t.Helper()

	if i := bytes.Index(text, []byte(canary)); i >= 0 {
		s.t.Errorf("%s has a secret: …%q…", where, text[max(0, i-100):min(len(text), i+40)])
	}
}

// checkFolder reads every byte of every file: the log and the snapshots of etcd as well.
func (s *site) checkFolder(what, folder string) {
	s.t.Helper()

	files := 0

	s.must(filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}

		files++
		content, err := os.ReadFile(path)
		s.check(what+": "+path, content)

		return err
	}))

	if files == 0 {
		s.t.Errorf("%s has no file", what)
	}
}

// checkProcesses reads the arguments and the environment of every process.
func (s *site) checkProcesses() {
	s.t.Helper()

	entries, err := os.ReadDir("/proc")
	s.must(err)

	read := 0
	for _, e := range entries {
		for _, file := range []string{"cmdline", "environ"} {
			// Threads of the kernel, and processes that have ended, have none.
			if content, err := os.ReadFile(filepath.Join("/proc", e.Name(), file)); err == nil && len(content) > 0 {
				read++
				s.check("/proc/"+e.Name()+"/"+file, content)
			}
		}
	}

	if read < 10 {
		s.t.Errorf("only %d files of processes could be read", read)
	}
}

// checkRunFiles expects the secrets in files of the run that only their owner can read.
func (s *site) checkRunFiles(id string) {
	s.t.Helper()

	var found []string

	runs := filepath.Join(s.dir, "d", "runs", id+"-0")
	s.must(filepath.WalkDir(runs, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		info, err := d.Info()
		if err == nil && d.IsDir() && path == runs && info.Mode().Perm() != 0o700 {
			s.t.Errorf("%s has the mode %v", path, info.Mode())
		}

		if !d.Type().IsRegular() {
			return err
		}

		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte(canary)) {
			found = append(found, filepath.Base(path))
		}

		return err
	}))

	want := "[extra-vars.yml rendered inventory.yml secrets.json rendered]"
	if got := fmt.Sprint(found); got != want {
		s.t.Errorf("during the run the secrets are in %s, want %s", got, want)
	}

	inventory, err := os.ReadFile(filepath.Join(runs, "inventory.yml"))
	s.must(err)

	for _, part := range []string{"-node", "-global", "-group", "-config", "-file", "-command"} {
		if !bytes.Contains(inventory, []byte(canary+part)) {
			s.t.Errorf("Ansible does not get %s%s:\n%s", canary, part, inventory)
		}
	}
}

// checkAnswers reads every GET route, as root on the socket.
func (s *site) checkAnswers(plan, rollout string) {
	s.t.Helper()

	imported, err := s.Client.Import(s.ctx(), api.Import{File: `[{"name":"m-1","pm_type":"ipmi",
		"pm_addr":"127.9.0.5","pm_user":"root","pm_password":"` + canary + `-bmc"}]`})
	s.must(err)

	params := strings.NewReplacer(
		"/imports/{id}", "/imports/"+imported.ID,
		"/plans/{id}", "/plans/"+plan, "/rollouts/{id}", "/rollouts/"+rollout,
		"/policies/{name}", "/policies/returns", "/notifications/{name}", "/notifications/chat",
		"/vars/groups/{name}", "/vars/groups/"+inventory.GroupMaster, "{name}", "a-1", "{id}", "1", "{job}", "1",
		"/can-i", "/can-i?verb=get&node=a-1",
	)
	answered := 0

	for _, p := range server.Routes() {
		if p.Method != http.MethodGet {
			continue
		}

		path := params.Replace(p.Path)
		code, text := s.read(path)
		s.check(path, text)

		switch {
		case code == http.StatusOK:
			answered++
		case strings.HasSuffix(p.Path, "/diff") && code == http.StatusNotFound: // a-1 is not in service
		case p.Path == api.PathFacts && code == http.StatusNotFound: // a-1 was not inspected
		case strings.HasPrefix(p.Path, api.PathImage) && code == http.StatusNotFound: // there is none
		case p.Path == api.PathRepositoryDiff && code == http.StatusConflict: // it has no repository
		case strings.HasPrefix(p.Path, pathLamps) && code == http.StatusNotFound: // there are none
		default:
			s.t.Errorf("%s: %d %s", path, code, text)
		}
	}

	for _, path := range []string{
		"/v1/vars/nodes/a-1?merged=true", "/v1/jobs/1?vars=true", "/v1/nodes?fields=name,vars",
	} {
		_, text := s.read(path)
		s.check(path, text)
	}

	if answered < 30 {
		s.t.Errorf("only %d routes answered", answered)
	}
}

// read returns the answer to a GET over the socket; of a stream its first part.
func (s *site) read(path string) (int, []byte) {
	s.t.Helper()

	ctx, cancel := context.WithCancel(s.ctx())
	defer cancel()

	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", s.dir+"/s")
	}

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://socket"+path, nil)
	s.must(err)

	resp, err := (&http.Client{Transport: &http.Transport{DialContext: dial}}).Do(req)
	s.must(err)
	defer resp.Body.Close()

	if path != api.PathWatch {
		text, err := io.ReadAll(resp.Body)
		s.must(err)
		return resp.StatusCode, text
	}

	var text []byte
	for part := make([]byte, 4096); !bytes.Contains(text, []byte("event: sync")); {
		n, err := resp.Body.Read(part)
		s.must(err)
		text = append(text, part[:n]...)
	}

	return resp.StatusCode, text
}

// checkBundle reads every file of a support bundle.
func (s *site) checkBundle() {
	s.t.Helper()

	path := filepath.Join(s.dir, "bundle.tar.gz")
	_, err := bundle.Write(s.ctx(), path, bundle.Options{Manager: s.Client, Say: func(string, ...any) {}})
	s.must(err)

	f, err := os.Open(path)
	s.must(err)
	defer f.Close()

	unzipped, err := gzip.NewReader(f)
	s.must(err)

	files := 0

	for archive := tar.NewReader(unzipped); ; files++ {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}

		s.must(err)

		content, err := io.ReadAll(archive)
		s.must(err)
		s.check("the support bundle: "+header.Name, content)
	}

	if files < 10 {
		s.t.Errorf("the support bundle has %d files", files)
	}
}

// output returns the output of a job.
func (s *site) output(id string) string {
	s.t.Helper()

	var text []byte

	s.must(s.Engine().Log(s.ctx(), id, "text", 0, false, func(_ int64, data []byte) error {
		text = append(text, data...)
		return nil
	}))

	return string(text)
}

// stacks returns what a crash of this process would print.
func stacks() []byte {
	text := make([]byte, 16<<20)
	return text[:runtime.Stack(text, true)]
}
