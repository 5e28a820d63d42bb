// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/contiv/cluster/configuration"
)

// cutPlays differs in its first task, and has more events than the limit after it.
const cutPlays = `
- name: early
  hosts: job_targets
  gather_facts: false
  vars: {ansible_connection: local}
  tasks:
    - name: differs
      ansible.builtin.copy: {dest: "{{ folder }}/new", content: "x", mode: "0644"}
    - name: not judged
      ansible.builtin.command: "true"
    - name: loud
      ansible.builtin.fail: {msg: "{{ 'x' * 4000 }}"}
      ignore_errors: true
      check_mode: false
      loop: "{{ range(0, 40) | list }}"
`

// TestLiveCut: the result of a check counts its findings, although the events of these
// are left out.
func TestLiveCut(t *testing.T) {
	t.Parallel()
	needAnsible(t)

	s := limitSpec(t, fstest.MapFS{"cleanup.yml": {Data: []byte(cutPlays)}})
	s.OutputLimit = 300
	s.Options = configuration.AnsibleOptions{Check: true, Diff: true}
	s.ExtraVars = configuration.Vars{"folder": t.TempDir()}
	run := start(t, s)

	if e := wait(t, run); !e.OK() || !run.Truncated(run.Events()) {
		t.Fatalf("exit %+v:\n%s", e, read(t, run.Output()))
	}

	if text := read(t, run.Events()); strings.Contains(text, `"diff"`) || !strings.Contains(text, `"truncated"`) {
		t.Fatalf("the difference is kept: %s", text[:4096])
	}

	got := summary(t, run)["web-1"]
	if !got.Good() || got.Foreseen != 1 || got.Unjudged != 1 || got.Executed != 1 || got.Judged != 1 ||
		got.Doubt != "" {
		t.Errorf("%+v\n%s", got, read(t, run.Output()))
	}
}
