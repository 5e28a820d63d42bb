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
)

// TestFolderKeepsHostKeysLive: variables beside the playbooks, which many folders have to
// switch the check of host keys off, do not make a run accept another key than the recorded one.
func TestFolderKeepsHostKeysLive(t *testing.T) {
	t.Parallel()
	needAnsible(t)

	const off = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"

	sshd, other := startSSHD(t), otherKey(t)

	for name, vars := range map[string]string{
		"host_key_checking":     "ansible_host_key_checking: false\n",
		"ssh_host_key_checking": "ansible_ssh_host_key_checking: false\n",
		"ssh_args":              "ansible_ssh_args: " + off + "\n",
		"ssh_common_args":       "ansible_ssh_common_args: " + off + "\n",
		"ssh_extra_args":        "ansible_ssh_extra_args: " + off + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			base := t.TempDir()
			store := &repository.Store{Dir: filepath.Join(base, "playbooks")}

			digest, err := store.Keep(t.Context(), fstest.MapFS{
				"site.yml": {
					Data: []byte("- hosts: all\n  gather_facts: false\n  tasks:\n    - raw: 'true'\n"),
				},
				"group_vars/all.yml": {Data: []byte(vars)},
			})
			if err != nil {
				t.Fatal(err)
			}

			callback, err := store.Keep(t.Context(), os.DirFS("../../ansible/plugins/callback"))
			if err != nil {
				t.Fatal(err)
			}

			same, changed := sshd.host("web-1", liveAddrs[0]), sshd.host("web-2", liveAddrs[1])
			same.HostKeys, changed.HostKeys = []string{sshd.hostKey}, []string{other}

			run := start(t, Spec{
				ID: name, Dir: filepath.Join(base, "run"), Playbooks: store.Path(digest), Playbook: "site.yml",
				CallbackDir: store.Path(callback), Hosts: []configuration.Host{same, changed},
				Deadline: time.Now().Add(time.Hour),
			})
			wait(t, run)

			results := summary(t, run)
			if !results["web-1"].Good() {
				t.Errorf("the host with its recorded key: %+v", results["web-1"])
			}

			if r := results["web-2"]; r.Unreachable != 1 ||
				!strings.Contains(r.Message, "Host key verification failed") {
				t.Errorf("the host with another key: %+v\n%s", r, read(t, run.Output()))
			}
		})
	}
}
