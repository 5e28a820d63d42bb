// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"maps"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/configuration/repository"
	"github.com/contiv/cluster/inventory/errtest"
)

// outlineFiles are playbooks with the ways in which a task runs in spite of check mode.
// Tasks whose names begin with "Run" do.
var outlineFiles = map[string]string{
	"site.yml": `
- hosts: job_targets
  gather_facts: false
  vars: {ansible_connection: local, which: dynamic, really: false}
  pre_tasks:
    - name: Run false
      command: "true"
      check_mode: false
      notify: Run the handler
    - name: Run no
      shell: "true"
      check_mode: no
    - {name: Run quoted, command: "true", check_mode: "no"}
    - {name: checked yes, command: "true", check_mode: "yes"}
    - {name: checked on, command: "true", check_mode: on}
    - name: Run old
      action: command true
      check_mode: False
    - name: Run local
      local_action: {module: command, cmd: "true"}
      check_mode: false
    - &probe
      name: Run merged
      command: "true"
      check_mode: false
      changed_when: false
    - <<: *probe
      name: Run merged too
    - name: maybe
      command: "true"
      check_mode: "{{ really }}"
  tasks:
    - check_mode: no
      block:
        - name: Run in the block
          command: "true"
        - {name: checked in the block, command: "true", check_mode: true}
        - include_tasks: tasks/inherits.yml
        - include_role: {name: inherits}
        - command: "false"
      rescue:
        - name: Run in the rescue
          command: "true"
      always:
        - name: Run always
          command: "true"
    - import_tasks: tasks/import.yml
      check_mode: false
    - import_tasks: file=tasks/plain.yml
    - include_tasks: {file: tasks/applied.yml, apply: {check_mode: false}}
    - include_tasks: tasks/own.yml
    - include_role: {name: applied, tasks_from: other.yml, apply: {check_mode: no}}
    - include_role: name=own
    - import_role: {name: imported}
      check_mode: no
    - include_tasks: "tasks/{{ which }}.yml"
    - include_role: {name: "{{ which }}"}
    - import_role: name=site.tools.role
  roles:
    - {role: listed, check_mode: false}
    - plain
  handlers:
    - {name: Run the handler, command: "true", check_mode: false}
- import_playbook: more/second.yml
`,
	"more/second.yml": `
- hosts: job_targets
  gather_facts: false
  check_mode: no
  vars: {ansible_connection: local}
  tasks:
    - name: Run in the play
      command: "true"
    - include_tasks: near.yml
    - include_role: {name: near}
    - {name: checked in the play, command: "true", check_mode: yes}
`,
	"more/near.yml":                  "- {name: Run near, command: 'true'}\n",
	"more/roles/near/tasks/main.yml": "- {name: Run near in a role, command: 'true'}\n",
	"tasks/inherits.yml":             "- {name: Run inherits, command: 'true'}\n",
	"tasks/import.yml":               "- {name: Run imported, command: 'true'}\n- include_tasks: nested.yml\n",
	"tasks/nested.yml":               "- {name: Run nested, command: 'true'}\n",
	"tasks/plain.yml":                "- {name: checked plain, command: 'true'}\n",
	"tasks/applied.yml":              "- {name: Run applied, command: 'true'}\n",
	"tasks/own.yml":                  "- {name: Run own, command: 'true', check_mode: false}\n",
	"tasks/dynamic.yml":              "- {name: Run dynamic, command: 'true', check_mode: false}\n",
	"roles/inherits/tasks/main.yml":  "- {name: Run in an included role, command: 'true'}\n",
	"roles/applied/tasks/other.yml":  "- {name: Run applied to a role, command: 'true'}\n",
	"roles/own/tasks/main.yaml":      "- {name: Run own in a role, command: 'true', check_mode: false}\n",
	"roles/imported/tasks/main.yml":  "- {name: Run in an imported role, command: 'true'}\n",
	"roles/imported/meta/main.yml":   "dependencies: [needed]\n",
	"roles/needed/tasks/main.yml":    "- {name: Run needed, command: 'true'}\n",
	"roles/listed/tasks/main.yml": "- {name: Run listed, command: 'true', changed_when: true, " +
		"notify: Run listed handler}\n",
	"roles/listed/handlers/main.yml": "- {name: Run listed handler, command: 'true'}\n",
	"roles/plain/tasks/main.yml":     "- {name: checked role, command: 'true'}\n",
	"roles/dynamic/tasks/main.yml":   "- {name: Run dynamic role, command: 'true', check_mode: false}\n",
	"action_plugins/own.py":          "",
	"collections/ansible_collections/site/tools/roles/role/tasks/main.yml": "" +
		"- {name: Run collected, command: 'true', check_mode: false}\n",
}

// TestLiveOutline: the outline of playbooks names the tasks that the real Ansible executes
// in spite of check mode, and its own limits.
func TestLiveOutline(t *testing.T) {
	t.Parallel()
	needAnsible(t)

	files := fstest.MapFS{}
	for name, text := range outlineFiles {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}

	s := limitSpec(t, files)
	s.Playbook, s.Options = "site.yml", configuration.AnsibleOptions{Check: true}

	store := &repository.Store{Dir: t.TempDir()}

	digest, err := store.Keep(t.Context(), files)
	errtest.None(t, err)

	named, dynamic := map[string]string{}, []string{}

	for _, p := range store.Outline(digest, "site.yml", t.TempDir()).Plays {
		for _, task := range p.Executed {
			if task.Dynamic {
				dynamic = append(dynamic, task.Name)
			} else {
				named[task.Name] = task.Path
			}
		}
	}

	run := start(t, s)
	if e := wait(t, run); !e.OK() {
		t.Fatalf("exit %+v:\n%s", e, read(t, run.Output()))
	}

	var stream configuration.EventStream

	executed := map[string]string{}
	for _, e := range stream.Write([]byte(read(t, run.Events()))) {
		if e.Executed && e.Host != "" && e.Action != "include_tasks" && e.Action != "include_role" {
			executed[e.Task] = e.Path
		}
	}

	// Only Ansible can resolve these.
	for _, name := range []string{"Run dynamic", "Run dynamic role", "maybe"} {
		if executed[name] == "" {
			t.Errorf("%s was not executed", name)
		}

		delete(executed, name)
	}

	if !maps.Equal(named, executed) {
		for _, name := range slices.Sorted(maps.Keys(executed)) {
			if named[name] != executed[name] {
				t.Errorf("%s at %s was executed, and is named at %q", name, executed[name], named[name])
			}

			delete(named, name)
		}

		t.Errorf("not executed: %v\n%s", named, read(t, run.Output()))
	}

	want := []string{
		"maybe, whose check_mode is an expression", "tasks/{{ which }}.yml", "the role {{ which }}",
	}
	if !slices.Equal(dynamic, want) {
		t.Errorf("what cannot be known is %q", dynamic)
	}
}
