// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/contiv/cluster/configuration"
)

const handlerPlay = `
- hosts: job_targets
  gather_facts: false
  force_handlers: FORCE
  tasks:
    - copy: {dest: "{{ folder }}/file", content: x}
      notify: restart
    - fail: {msg: the run ends here}
  handlers:
    - name: restart
      command: touch {{ folder }}/restarted
`

// TestLiveHandlers: a failed run loses the handlers that it has notified, unless its play
// wants them all the same. The runner leaves that to the playbook: a restart with a half
// written configuration may be worse than none.
func TestLiveHandlers(t *testing.T) {
	t.Parallel()
	needAnsible(t)

	sshd := startSSHD(t)

	for force, restarted := range map[string]bool{"false": false, "true": true} {
		t.Run(force, func(t *testing.T) {
			t.Parallel()

			folder := t.TempDir()
			s := limitSpec(t, fstest.MapFS{
				"cleanup.yml": {Data: []byte(strings.ReplaceAll(handlerPlay, "FORCE", force))},
			})
			s.Hosts = []configuration.Host{sshd.host("web-1", liveAddrs[0])}
			s.ExtraVars = configuration.Vars{"folder": folder}

			if exit := wait(t, start(t, s)); exit.OK() {
				t.Errorf("exit %+v", exit)
			}

			if _, err := os.Stat(filepath.Join(folder, "file")); err != nil {
				t.Error(err)
			}

			if _, err := os.Stat(filepath.Join(folder, "restarted")); (err == nil) != restarted {
				t.Errorf("force_handlers: %s: %v", force, err)
			}
		})
	}
}
