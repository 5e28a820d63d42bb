// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/configuration/repository"
	"github.com/contiv/cluster/inventory/errtest"
)

// limitPlays are plays by the hosts on which each acts. web-1 is the target,
// master-1 the helper and master-2 a peer.
const limitPlays = `
- name: only a template can be resolved late
  hosts: job_targets
  gather_facts: false
  tasks:
    - ansible.builtin.set_fact: {chosen: service-master, listed: "{{ groups['all'] }}"}
- {name: "all: web-1", hosts: all, gather_facts: false, tasks: &act [{ansible.builtin.debug: {msg: acted}}]}
- {name: "names: master-1", hosts: job_helpers, gather_facts: false, tasks: *act}
- {name: "every host after a play of the helper: web-1", hosts: "*", gather_facts: false, tasks: *act}
- {name: "group: ", hosts: service-master, gather_facts: false, tasks: *act}
- {name: "both: master-1 web-1", hosts: "job_targets:job_helpers", gather_facts: false, tasks: *act}
- name: "both in batches: master-1 web-1"
  hosts: [job_targets, job_helpers]
  serial: 1
  gather_facts: false
  tasks: *act
- {name: "first: master-1", hosts: "job_helpers[0]", gather_facts: false, tasks: *act}
- {name: "intersection: master-1", hosts: "service-master:&job_helpers", gather_facts: false, tasks: *act}
- {name: "excluded: web-1", hosts: "all:!job_helpers", gather_facts: false, tasks: *act}
- {name: "others: ", hosts: "all:!job_targets", gather_facts: false, tasks: *act}
- {name: "name of the node: ", hosts: master-1, gather_facts: false, tasks: *act}
- {name: "glob: web-1", hosts: "job_*", gather_facts: false, tasks: *act}
- {name: "regular expression: web-1", hosts: "~job_(targets|helpers)", gather_facts: false, tasks: *act}
- {name: "local: ", hosts: localhost, gather_facts: false, tasks: *act}
- {name: "template of a group: ", hosts: "{{ hostvars['web-1'].chosen }}", gather_facts: false, tasks: *act}
- {name: "template of a list: web-1", hosts: "{{ hostvars['web-1'].listed }}", gather_facts: false, tasks: *act}
- {name: "template that names: master-1", hosts: "{{ groups['job_helpers'] }}", gather_facts: false, tasks: *act}
- name: "delegated: web-1"
  hosts: job_targets
  gather_facts: false
  tasks:
    - ansible.builtin.debug: {msg: acted}
      delegate_to: "{{ groups['job_helpers'] | first }}"
- name: "after a new inventory: web-1"
  hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.meta: refresh_inventory
    - ansible.builtin.debug: {msg: acted}
- import_playbook: parts/imported.yml
`

const limitImported = `
- {name: "imported: web-1", hosts: all, gather_facts: false, tasks: &act [{ansible.builtin.debug: {msg: acted}}]}
- {name: "imported that names: master-1", hosts: job_helpers, gather_facts: false, tasks: *act}
- {name: "imported group: ", hosts: service-master, gather_facts: false, tasks: *act}
- {name: "last: web-1", hosts: all, gather_facts: false, tasks: *act}
`

// limitSpec describes a run of the playbooks with a target, a helper and a peer.
func limitSpec(t *testing.T, files fstest.MapFS) Spec {
	t.Helper()
	base := t.TempDir()
	store := &repository.Store{Dir: filepath.Join(base, "playbooks")}

	digest, err := store.Keep(t.Context(), files)
	errtest.None(t, err)

	callback, err := store.Keep(t.Context(), os.DirFS("../../ansible/plugins/callback"))
	errtest.None(t, err)

	host := func(name, group string, role configuration.Role) configuration.Host {
		return configuration.Host{Name: name, Addr: "127.0.0.9", Group: group, Role: role}
	}

	return Spec{
		ID: "limit", Dir: filepath.Join(base, "run"), Playbooks: store.Path(digest), Playbook: "cleanup.yml",
		CallbackDir: store.Path(callback), Deadline: time.Now().Add(time.Hour),
		Hosts: []configuration.Host{
			host("web-1", "service-worker", configuration.RoleTarget),
			host("master-1", "service-master", configuration.RoleHelper),
			host("master-2", "service-master", configuration.RolePeer),
		},
	}
}

// actedOn returns the hosts with results by play.
func actedOn(t *testing.T, run *Run) map[string]string {
	t.Helper()

	var stream configuration.EventStream

	hosts := map[string][]string{}
	for _, e := range stream.Write([]byte(read(t, run.Events()))) {
		if e.Event == configuration.EventPlay {
			hosts[e.Play] = append(hosts[e.Play], "")
		}

		if e.Host != "" && e.Action == "ansible.builtin.debug" {
			hosts[e.Play] = append(hosts[e.Play], e.Host)
		}
	}

	acted := map[string]string{}
	for play, names := range hosts {
		slices.Sort(names)
		acted[play] = strings.TrimSpace(strings.Join(slices.Compact(names), " "))
	}

	return acted
}

// TestLiveLimit: only plays that name the helpers act on them, and no play acts on a peer.
func TestLiveLimit(t *testing.T) {
	t.Parallel()
	needAnsible(t)

	s := limitSpec(t, fstest.MapFS{
		"cleanup.yml":        {Data: []byte(limitPlays)},
		"parts/imported.yml": {Data: []byte(limitImported)},
	})
	run := start(t, s)

	if e := wait(t, run); !e.OK() {
		t.Fatalf("exit %+v:\n%s", e, read(t, run.Output()))
	}

	acted := actedOn(t, run)
	if len(acted) < 23 {
		t.Errorf("%d plays began", len(acted))
	}

	for play, got := range acted {
		_, want, ok := strings.Cut(play, ": ")
		if !ok && strings.HasSuffix(play, ":") {
			ok = true // the event's name has no space at its end
		}
		if ok && got != want {
			t.Errorf("%q acted on %q", play, got)
		}
	}
}

// limitTwoPlays act on the helper, and on every host within the limit.
const limitTwoPlays = `
- name: helper
  hosts: job_helpers
  gather_facts: false
  tasks: &act
    - ansible.builtin.debug: {msg: "acted on {{ inventory_hostname }}"}
- {name: all, hosts: all, gather_facts: false, tasks: *act}
`

// TestLiveLimitWithoutPlugin: without the callback plugin no play acts on a helper.
func TestLiveLimitWithoutPlugin(t *testing.T) {
	t.Parallel()
	needAnsible(t)

	broken := t.TempDir()
	errtest.None(t, os.WriteFile(filepath.Join(broken, "clusterm_events.py"), []byte("import nothing\n"), 0o600))

	for _, dir := range []string{"", broken} {
		s := limitSpec(t, fstest.MapFS{"cleanup.yml": {Data: []byte(limitTwoPlays)}})
		s.CallbackDir = dir
		run := start(t, s)
		exit := wait(t, run)
		out := read(t, run.Output())

		// Ansible ends by itself if a plugin cannot be imported.
		if strings.Contains(out, "acted on master") || exit.OK() != strings.Contains(out, "acted on web-1") {
			t.Errorf("plugin in %q, %+v:\n%s", dir, exit, out)
		}
	}
}

// TestLiveLimitEndsTheRun: a limit without effect ends the run before a play acts
// on a helper that it does not name. Code of the folder defeats the limit here.
func TestLiveLimitEndsTheRun(t *testing.T) {
	t.Parallel()
	needAnsible(t)

	s := limitSpec(t, fstest.MapFS{
		"cleanup.yml": {Data: []byte(limitTwoPlays)},
		"callback_plugins/defeat.py": {Data: []byte(`
from ansible.inventory.manager import InventoryManager
from ansible.plugins.callback import CallbackBase
InventoryManager.subset = lambda self, pattern: setattr(self, "_subset", ["job_targets", "job_helpers"])
class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "defeat"
`)},
	})
	run := start(t, s)
	exit := wait(t, run)
	out := read(t, run.Output())

	if exit.Code != 97 || !strings.Contains(out, "acted on master-1") || strings.Contains(out, "acted on web-1") {
		t.Errorf("exit %+v:\n%s", exit, out)
	}

	expectContains(t, "the output", out, "the play 'all' would act on master-1, and its hosts do not name job_helpers")
}
