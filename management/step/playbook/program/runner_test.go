// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	bundled "github.com/contiv/cluster/ansible"
	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/configuration/ansible"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/step/playbook"
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
		{ansible.Exit{Reason: ansible.LeaseLost}, job.CauseInterrupted, false, true},
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

		e, ok := errors.AsType[*playbook.NotBegunError](got)
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
		errtest.None(t, os.WriteFile(filepath.Join(site, file), []byte("- hosts: all\n"), 0o600))
	}

	r := open(t, t.TempDir(), &playbook.Config{Playbooks: site})

	want, err := fs.ReadFile(bundled.FS(), job.PlaybookDiscoverUndo)
	errtest.None(t, err)

	for range 2 {
		folder, err := r.folder(t.Context(), job.PlaybooksBundled)
		errtest.None(t, err)
		file := filepath.Join(folder, job.PlaybookDiscoverUndo)
		if got, err := os.ReadFile(file); err != nil || string(got) != string(want) {
			t.Fatalf("%s has %q (%v)", file, got, err)
		}
		_ = os.Remove(file)
		errtest.None(t, os.WriteFile(file, []byte("- hosts: all\n"), 0o600))
	}
}

// TestRolesOfTheirTime: after an upgrade of the program, playbooks that were kept before
// run and parse with the bundled roles of then.
func TestRolesOfTheirTime(t *testing.T) {
	t.Parallel()

	dataDir := t.TempDir()

	// It prints the first line of the role that a playbook would get.
	const shows = `#!/bin/sh
case "$*" in
*--version*) echo "ansible-playbook [core 2.16.3]"; exit ;;
esac
role=$(sed -n 's/^roles_path = .*://p' "$ANSIBLE_CONFIG")/agent/tasks/main.yml
case "$*" in
*--syntax-check*) grep -q "of then" "$role" || { echo "not the role of then" >&2; exit 4; } ;;
*) head -1 "$role" ;;
esac
`
	c := playbook.Config{
		Ansible: program(t, shows), Playbooks: folderOf(t, map[string]string{"cleanup.yml": "- hosts: all\n"}),
	}

	before := open(t, dataDir, &c)
	before.Copies.Roles = fstest.MapFS{"agent/tasks/main.yml": {Data: []byte("# of then\n")}}

	digest, err := before.Pin(t.Context())
	errtest.None(t, err)

	after := open(t, dataDir, &c)

	if now, err := after.Pin(t.Context()); err != nil || now == digest {
		t.Errorf("the same folder with other roles has the digest %s, %v", now, err)
	}

	if !after.Kept(t.Context(), digest) {
		t.Error("the playbooks of then are not kept")
	}

	if err := after.Parse(t.Context(), digest, []string{job.PlaybookCleanup}, nil, nil); err != nil {
		t.Error(err)
	}

	run, err := after.Start(t.Context(), playbook.RunSpec{
		ID: "1-0", PlaybookDigest: digest, Playbook: job.PlaybookCleanup, Deadline: time.Now().Add(patience),
		Hosts: []configuration.Host{{
			Name: "a-1", Addr: "127.0.0.1", Label: "a", Serial: "1", Group: "web", Role: configuration.RoleTarget,
		}},
	})
	errtest.None(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	exit, err := run.Wait(ctx)
	if err != nil || exit.Code != 0 {
		t.Errorf("%+v, %v", exit, err)
	}

	var out strings.Builder
	if err := run.Tail(
		ctx,
		job.StreamText,
		0,
		func(b []byte) error { _, err := out.Write(b); return err },
	); err != nil {
		t.Error(err)
	}

	if !strings.Contains(out.String(), "# of then") {
		t.Errorf("the run printed %q", out.String())
	}
}

// TestJumpKeyFile: runs and probes record the keys of jump hosts in the data directory, where they stay.
func TestJumpKeyFile(t *testing.T) {
	t.Parallel()

	c := playbook.Config{
		Ansible: program(t, succeeds), Playbooks: folderOf(t, map[string]string{job.PlaybookSite: "- hosts: all\n"}),
	}
	dataDir := t.TempDir()

	r := open(t, dataDir, &c)

	file := filepath.Join(dataDir, "ssh", "known_hosts")
	if st, err := os.Stat(filepath.Dir(file)); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", st, err)
	}
	if r.Prober.JumpKeys != file || r.Pinger.JumpKeys != file {
		t.Errorf("probes record in %q and %q", r.Prober.JumpKeys, r.Pinger.JumpKeys)
	}

	digest, err := r.Pin(t.Context())
	errtest.None(t, err)

	run, err := r.Start(t.Context(), playbook.RunSpec{
		ID: "1-0", PlaybookDigest: digest, Playbook: job.PlaybookSite, Deadline: time.Now().Add(patience),
		Hosts: []configuration.Host{{
			Name: "a-1", Addr: "127.0.0.1", Label: "a", Serial: "1", Group: "web", Role: configuration.RoleTarget,
		}},
	})
	errtest.None(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	if _, err := run.Wait(ctx); err != nil {
		t.Error(err)
	}

	text, err := os.ReadFile(filepath.Join(r.dir("1-0"), "ssh_config"))
	if err != nil || !strings.Contains(string(text), "UserKnownHostsFile "+file+" ") {
		t.Errorf("%v:\n%s", err, text)
	}
}

// TestParseEncrypted: variables that no password opens are refused before a job is
// accepted, whatever the cached syntax check found, and accepted with vault_ids.
func TestParseEncrypted(t *testing.T) {
	t.Parallel()

	c := playbook.Config{Ansible: program(t, succeeds), Playbooks: folderOf(t, map[string]string{
		"site.yml":           "- hosts: web",
		"group_vars/web.yml": "$ANSIBLE_VAULT;1.1;AES256\n",
		"host_vars/m-1":      "$ANSIBLE_VAULT;",
	})}

	r := open(t, t.TempDir(), &c)

	digest, err := r.Copies.KeepDir(t.Context(), c.Playbooks)
	errtest.None(t, err)
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

// TestRunnerFolderVars: the variables are those of the copy with the digest, and of the configured
// folder before there is a copy.
func TestRunnerFolderVars(t *testing.T) {
	t.Parallel()

	folder := folderOf(t, map[string]string{"site.yml": "- hosts: web", "host_vars/m-1.yml": "color: blue"})
	c := playbook.Config{Playbooks: folder}

	r := open(t, t.TempDir(), &c)

	digest, err := r.Copies.DigestDir(t.Context(), folder)
	errtest.None(t, err)

	check := func(when, want string) {
		t.Helper()

		vars, _ := r.FolderVars(digest, "m-1", "web")
		if got := vars.Host["color"]; got.Value != want || got.File != "host_vars/m-1.yml" {
			t.Errorf("%s: %+v, want %s", when, got, want)
		}
	}

	check("no copy", "blue")

	if _, err := r.Copies.KeepDir(t.Context(), folder); err != nil {
		t.Fatal(err)
	}

	errtest.None(t, os.WriteFile(filepath.Join(folder, "host_vars", "m-1.yml"), []byte("color: red"), 0o600))

	check("a copy", "blue")

	if got, known := r.FolderVars(digest, "m-2", "web"); len(got.Host) > 0 || !known {
		t.Errorf("%v", got)
	}
}
