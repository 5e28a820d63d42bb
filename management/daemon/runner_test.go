// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	bundled "github.com/contiv/cluster/ansible"
	"github.com/contiv/cluster/configuration/ansible"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/engine"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/setting"
)

// TestRunExit: not begun is only what is known not to have begun.
func TestRunExit(t *testing.T) {
	for _, tt := range []struct {
		exit       ansible.Exit
		cause      job.Cause
		notBegun   bool
		incomplete bool
	}{
		{ansible.Exit{Reason: ansible.Done}, "", false, false},
		{ansible.Exit{Reason: ansible.Done, Code: 2}, "", false, false},
		{ansible.Exit{Reason: ansible.Done, Code: 2, Error: "no space left"}, "", false, true},
		{ansible.Exit{Reason: ansible.Done, Signal: "SIGKILL"}, job.CauseInterrupted, false, false},
		{ansible.Exit{Reason: ansible.Cancelled}, job.CauseCancelled, false, false},
		{ansible.Exit{Reason: ansible.DeadlineExceeded}, job.CauseDeadline, false, false},
		{ansible.Exit{Reason: ansible.LeaseLost}, job.CauseInterrupted, false, false},
		{ansible.Exit{Reason: ansible.NotStarted, Error: "exec format error"}, job.CauseInternal, true, false},
		{ansible.Exit{Reason: ansible.GivenUp, Error: "no permit"}, job.CauseInterrupted, true, false},
		{ansible.Exit{Reason: ansible.Vanished}, job.CauseInterrupted, false, true},
		{ansible.Exit{Reason: "of the next version"}, job.CauseInterrupted, false, true},
		{ansible.Exit{}, job.CauseInterrupted, false, true},
	} {
		got := runExit(tt.exit, os.DevNull)
		if got.Cause != tt.cause || got.NotBegun != tt.notBegun || got.Incomplete != tt.incomplete {
			t.Errorf("%+v: %+v", tt.exit, got)
		}

		if got.Cause != "" && got.Cause != job.CauseCancelled && got.Message == "" {
			t.Errorf("%+v: no message", tt.exit)
		}
	}
}

func TestStartError(t *testing.T) {
	fault := errors.New("a fault")

	for err, want := range map[error]job.Cause{
		fault:                              "",
		&ansible.NotBegunError{Err: fault}: job.CauseInternal,
		&ansible.NotBegunError{Err: fault, Interrupted: true}: job.CauseInterrupted,
	} {
		got := startError(err)

		e, ok := errors.AsType[*engine.NotBegunError](got)
		if ok != (want != "") || ok && e.Cause != want || !errors.Is(got, fault) {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// TestBundledFolder: the undo of a discover comes from the program, also where the
// configured folder has a file of that name, and after an edit of the copy.
func TestBundledFolder(t *testing.T) {
	t.Parallel()

	site := t.TempDir()
	for _, file := range []string{job.PlaybookCleanup, job.PlaybookDiscoverUndo} {
		if err := os.WriteFile(filepath.Join(site, file), []byte("- hosts: all\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	r, err := newRunner(t.Context(), runnerOptions{
		dataDir: t.TempDir(), config: func() setting.Config { return setting.Config{Playbooks: site} },
	})
	if err != nil {
		t.Fatal(err)
	}

	want, err := fs.ReadFile(bundled.FS(), job.PlaybookDiscoverUndo)
	if err != nil {
		t.Fatal(err)
	}

	for range 2 {
		folder, err := r.folder(t.Context(), job.PlaybooksBundled)
		if err != nil {
			t.Fatal(err)
		}

		file := filepath.Join(folder, job.PlaybookDiscoverUndo)
		if got, err := os.ReadFile(file); err != nil || string(got) != string(want) {
			t.Fatalf("%s has %q (%v)", file, got, err)
		}

		_ = os.Remove(file)
		if err := os.WriteFile(file, []byte("- hosts: all\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestParseEncrypted: variables that no password opens are refused before a job is
// accepted, whatever the cached syntax check found, and accepted with vault_ids.
func TestParseEncrypted(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	if err := writeProgram(dir+"/ansible-playbook", listingPlaybook); err != nil {
		t.Fatal(err)
	}

	c := setting.Config{Ansible: dir + "/ansible-playbook", Playbooks: folderOf(t, map[string]string{
		"site.yml":           "- hosts: web",
		"group_vars/web.yml": "$ANSIBLE_VAULT;1.1;AES256\n",
		"host_vars/m-1":      "$ANSIBLE_VAULT;",
	})}

	r, err := newRunner(t.Context(), runnerOptions{dataDir: t.TempDir(), config: func() setting.Config { return c }})
	if err != nil {
		t.Fatal(err)
	}

	digest, err := r.playbooks.KeepDir(t.Context(), c.Playbooks)
	if err != nil {
		t.Fatal(err)
	}

	parse := func(group, host string) error {
		return r.Parse(t.Context(), digest, []string{"site.yml"}, []string{group}, []string{host})
	}

	if err := parse("db", "m-2"); err != nil {
		t.Error(err)
	}

	checkError(t, parse("web", "m-2"), inventory.KindRefused, "group_vars/web.yml", "set vault_ids")
	checkError(t, parse("db", "m-1"), inventory.KindRefused, "host_vars/m-1", "set vault_ids")

	c.VaultIDs = []string{"/etc/password"}

	if err := parse("web", "m-1"); err != nil {
		t.Error(err)
	}
}

// killRunner kills the runner of the job's newest run, and returns the folder of its
// sockets.
func (s *site) killRunner(id string) (sockets string) {
	s.t.Helper()

	j, err := s.Job(s.ctx(), id)
	s.must(err)

	run := fmt.Sprintf("%s-%d", id, len(j.Runs)-1)

	b, err := os.ReadFile(filepath.Join(s.dir, "d", "runs", run, "runner.json"))
	s.must(err)

	var info struct {
		PID     int
		Sockets string
	}

	s.must(json.Unmarshal(b, &info))
	s.must(unix.Kill(info.PID, unix.SIGKILL))

	return info.Sockets
}

// TestKilledRunner checks that the job of a killed runner is interrupted, that its
// node is cleaned up, and that no folder is left.
func TestKilledRunner(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.report("a")

	fifo := s.fifo("gate")
	dead := filepath.Join(s.dir, "d", "tmp", "clusterm-check-dead")

	j, err := s.Client.Submit(s.ctx(), api.JobRequest{
		Verb: inventory.VerbCommission, Nodes: []string{"a-1"}, ExtraVars: []byte(`{"waits_at":"` + fifo + `"}`),
	})
	s.must(err)
	s.waitOutput(j.ID, "waiting\n")

	sockets := s.killRunner(j.ID)
	s.until(j.ID, "the cleanup waits", func(j api.Job) bool { return j.Phase == "undo" })
	s.release(fifo) // of the cleanup

	j, err = s.Client.WaitJob(s.ctx(), j.ID)
	s.must(err)

	if j.Cause != string(job.CauseInterrupted) || s.status("a-1") != "Unallocated" || len(j.Runs) != 2 {
		t.Errorf("%+v", j)
	}

	if _, err := os.Stat(sockets); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the sockets are left: %v", err)
	}

	s.must(os.MkdirAll(dead, 0o700))
	s.restart()

	if _, err := os.Stat(dead); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", strings.TrimPrefix(dead, s.dir), err)
	}
}
