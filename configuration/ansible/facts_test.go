// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/configuration/repository"
	"github.com/contiv/cluster/inventory/errtest"
)

// hostileModule is a module with facts that name variables of the inventory.
const hostileModule = `#!/bin/sh
cat <<'EOF'
{"changed": false, "ansible_facts": {
  "node_name": "evil", "node_addr": "6.6.6.6", "ntp": "evil", "clusterm_taken": "evil", "ansible_host": "6.6.6.6",
  "uptime_days": 7, "from_request": "evil"}}
EOF
`

const hostilePlaybook = `
- hosts: job_targets
  gather_facts: false
  tasks:
    - name: A hostile host answers
      hostile:
      vars: {ansible_connection: local, ansible_python_interpreter: /usr/bin/python3}
    - name: A playbook sets a variable itself
      ansible.builtin.set_fact:
        own: mine
    - ansible.builtin.debug:
        msg: "{{ node_name }} {{ node_addr }} {{ ntp }} {{ from_request }} {{ clusterm_taken | default('none') }}
          {{ ansible_host }} {{ uptime_days }} {{ own }} {{ hostvars['web-2'].node_addr }}"
    - ansible.builtin.debug:
        msg: "facts: {{ ansible_facts.keys() | sort | join(' ') }}"
`

// TestLiveHostileFacts: a host cannot change its identity, nor the variables of
// operators, by its facts. Other facts, and set_fact in playbooks, work.
func TestLiveHostileFacts(t *testing.T) {
	t.Parallel()
	needAnsible(t)

	base := t.TempDir()
	store := &repository.Store{Dir: filepath.Join(base, "playbooks")}

	digest, err := store.Keep(t.Context(), fstest.MapFS{
		"site.yml":        {Data: []byte(hostilePlaybook), Mode: 0o644},
		"library/hostile": {Data: []byte(hostileModule), Mode: 0o755},
	})
	errtest.None(t, err)

	cache, err := store.Keep(t.Context(), os.DirFS("../../ansible/plugins/cache"))
	errtest.None(t, err)

	host := func(name, addr string) configuration.Host {
		return configuration.Host{
			Name: name, Addr: addr, Role: configuration.RoleTarget,
			Vars: map[string]configuration.Var{"ntp": {Value: "10.0.0.1"}},
		}
	}

	s := fakeSpec(t, "prints-and-fails")
	s.AnsiblePlaybook, s.CacheDir = "", store.Path(cache)
	s.Playbooks = store.Path(digest)
	s.Hosts = []configuration.Host{host("web-1", "127.0.0.9"), host("web-2", "127.0.0.8")}
	s.ExtraVars = configuration.Vars{"from_request": "asked"}

	run := start(t, s)
	exit := wait(t, run)

	out := read(t, run.Output())
	if !exit.OK() {
		t.Fatalf("exit %+v:\n%s", exit, out)
	}

	expectContains(t, "the output", out,
		"web-1 127.0.0.9 10.0.0.1 asked none 127.0.0.9 7 mine 127.0.0.8",
		"facts: from_request uptime_days",
		"host web-1 returned a fact named node_name",
	)

	if n := strings.Count(out, "a fact named node_addr"); n != 2 {
		t.Errorf("%d warnings, want one for each host:\n%s", n, out)
	}
}
