// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/configuration/repository"
	"github.com/contiv/cluster/inventory/errtest"
)

// TestFolderKeepsHostKeysLive: variables beside the playbooks, which many folders have to
// switch the check of host keys off, do not make a run accept another key than the recorded one.
func TestFolderKeepsHostKeysLive(t *testing.T) {
	t.Parallel()
	needAnsible(t)

	const off = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"

	sshd, other := startSSHD(t), otherKey(t)

	for _, c := range []struct {
		file, vars string
		fails      bool // the known host, too: the folder took its name from ssh
	}{
		{file: "group_vars/all.yml", vars: "ansible_host_key_checking: false"},
		{file: "group_vars/all.yml", vars: "ansible_ssh_host_key_checking: false"},
		{file: "group_vars/all.yml", vars: "ansible_ssh_args: " + off},
		{file: "group_vars/all.yml", vars: "ansible_ssh_common_args: " + off},
		{file: "group_vars/all.yml", vars: "ansible_ssh_extra_args: " + off},
		{file: "host_vars/web-2.yml", vars: "ansible_ssh_host_key_checking: false"},
		{file: "host_vars/web-2.yml", vars: "ansible_ssh_common_args: " + off},
		{file: "play", vars: "ansible_host_key_checking: false"},
		{file: "play", vars: "ansible_ssh_host_key_checking: false"},
		{file: "play", vars: "ansible_ssh_args: " + off},
		{file: "play", vars: "ansible_ssh_common_args: " + off, fails: true},
		{file: "play", vars: "ansible_ssh_extra_args: " + off},
	} {
		name := c.file + " " + c.vars
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			base := t.TempDir()
			store := &repository.Store{Dir: filepath.Join(base, "playbooks")}

			site, folder := "- hosts: all\n  gather_facts: false\n", fstest.MapFS{}
			if c.file == "play" {
				site += "  vars: {" + c.vars + "}\n"
			} else {
				folder[c.file] = &fstest.MapFile{Data: []byte(c.vars + "\n")}
			}

			folder["site.yml"] = &fstest.MapFile{Data: []byte(site + "  tasks:\n    - raw: 'true'\n")}

			digest, err := store.Keep(t.Context(), folder)
			errtest.None(t, err)

			callback, err := store.Keep(t.Context(), os.DirFS("../../ansible/plugins/callback"))
			errtest.None(t, err)

			same, changed := sshd.host("web-1", liveAddrs[0]), sshd.host("web-2", liveAddrs[1])
			same.HostKeys, changed.HostKeys = []string{sshd.hostKey}, []string{other}

			run := start(t, Spec{
				ID: "web", Dir: filepath.Join(base, "run"), Playbooks: store.Path(digest), Playbook: "site.yml",
				CallbackDir: store.Path(callback), Hosts: []configuration.Host{same, changed},
				Deadline: time.Now().Add(time.Hour),
			})
			wait(t, run)

			results := summary(t, run)
			if results["web-1"].Good() == c.fails {
				t.Errorf("the host with its recorded key: %+v", results["web-1"])
			}

			if r := results["web-2"]; r.Unreachable != 1 ||
				!strings.Contains(r.Message, "Host key verification failed") {
				t.Errorf("the host with another key: %+v\n%s", r, read(t, run.Output()))
			}
		})
	}
}
