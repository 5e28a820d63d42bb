// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
)

// tagPlaybooks write a file for each tag, check those of base and app, and remove all.
var tagPlaybooks = map[string]string{
	"site.yml": `---
- name: Nodes get files
  hosts: service-master:service-worker:&job_targets
  gather_facts: false
  tasks:
    - name: Base
      ansible.builtin.copy: {dest: /etc/systemtest, content: "base\n", mode: "0644"}
      tags: [base]
    - name: App
      ansible.builtin.copy: {dest: /etc/systemtest-app, content: "app\n", mode: "0644"}
      tags: [app]
    - name: Slow
      ansible.builtin.copy: {dest: /etc/systemtest-slow, content: "slow\n", mode: "0644"}
      tags: [slow]
`,
	"verify.yml": `---
- name: Nodes have files
  hosts: job_targets
  gather_facts: false
  tasks:
    - name: Base
      ansible.builtin.command: {argv: [cat, /etc/systemtest]}
      changed_when: false
      tags: [base]
    - name: App
      ansible.builtin.command: {argv: [cat, /etc/systemtest-app]}
      changed_when: false
      tags: [app]
`,
	"cleanup.yml": `---
- name: Nodes lose the files
  hosts: job_targets
  gather_facts: false
  tasks:
    - name: Remove
      ansible.builtin.file: {path: "{{ item }}", state: absent}
      loop: [/etc/systemtest, /etc/systemtest-app, /etc/systemtest-slow]
`,
}

// wantTagFiles requires exactly these of the files of tagPlaybooks on the host.
func (w *world) wantTagFiles(host string, want ...string) {
	w.t.Helper()

	var got []string
	for _, name := range []string{"systemtest", "systemtest-app", "systemtest-slow"} {
		if w.hasFile(host, "/etc/"+name) {
			got = append(got, name)
		}
	}

	if !slices.Equal(got, want) {
		w.t.Errorf("%s has %v, want %v", host, got, want)
	}
}

// TestGroupTags: two groups get different tasks of one site.yml, and are verified by them. A
// change of the tags makes the nodes of that group outdated, and an apply brings them up to
// date. A cleanup removes everything.
func TestGroupTags(t *testing.T) {
	w := newWorld(t, setup{hosts: 3, testPlaybooks: true})
	for name, text := range tagPlaybooks {
		w.write("host1", testPlaybooks+"/"+name, text)
	}

	w.ctl("config", "set", `groups=[{"name":"service-master","tags":["base"]},`+
		`{"name":"service-worker","requires":{"service-master":1},"skip_tags":["slow"]}]`)

	if text := w.ctl("groups").stdout; !strings.Contains(text, "tags base") ||
		!strings.Contains(text, "skip_tags slow") {
		t.Errorf("the groups: %s", text)
	}

	w.commission(master, "host2")
	w.commission(worker, "host3")
	w.wantTagFiles("host2", "systemtest")
	w.wantTagFiles("host3", "systemtest", "systemtest-app")
	w.wantOutdated("after the commission")

	both := w.nodeNames("host2", "host3")
	w.do(append([]string{"nodes", "verify"}, both...)...)
	w.wantRefused(5, []string{"different tags", "service-worker (skip_tags slow)"},
		append([]string{"nodes", "apply"}, both...)...)
	w.wantRefused(2, []string{`"app" is not among the tags of group service-master`},
		"nodes", "apply", w.name("host2"), "--tags", "app")

	w.ctl("config", "set", `groups=[{"name":"service-master","tags":["base","app"]},`+
		`{"name":"service-worker","requires":{"service-master":1},"skip_tags":["slow"]}]`)
	w.awaitOutdated("host2")

	n := w.node("host2")
	if !slices.Equal(n.Differs, []inventory.Part{inventory.PartTags}) || n.Configured.Tags != "tags base" ||
		n.Desired.Tags != "tags app, base" {
		t.Errorf("%+v", n)
	}

	if text := w.ctl("nodes", "explain", w.name("host2")).stdout; !strings.Contains(text,
		"the tags of group service-master have changed: tags app, base now, tags base then") {
		t.Errorf("explain: %s", text)
	}

	w.do("nodes", "apply", "-l", "outdated=true")
	w.wantOutdated("after apply")
	w.wantTagFiles("host2", "systemtest", "systemtest-app")
	w.do(append([]string{"nodes", "verify"}, both...)...)

	// Whatever the tags, nothing is left behind.
	w.sh("host3", "touch /etc/systemtest-slow")
	w.do("nodes", "decommission", w.name("host3"))
	w.wantTagFiles("host3")
}
