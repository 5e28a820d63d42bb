// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// siteFolder is a folder of playbooks with an encrypted variable. The hosts in the
// variable broken fail after they have been changed.
var siteFolder = map[string]string{
	"site.yml": `
- name: Nodes get the release
  hosts: service-master:service-worker:&job_targets
  gather_facts: false
  tasks:
    - name: Write the release
      ansible.builtin.copy: {dest: /etc/systemtest, content: "{{ release }} {{ token }}\n", mode: "0600"}
    - name: Mount the storage
      ansible.builtin.fail: {msg: "the storage of {{ node_label }} does not answer"}
      when: node_label in broken
`,
	"cleanup.yml": `
- name: Nodes lose the release
  hosts: job_targets
  gather_facts: false
  tasks:
    - ansible.builtin.file: {path: /etc/systemtest, state: absent}
`,
	"group_vars/all/broken.yml":  "broken: []\n",
	"group_vars/all/secrets.yml": "token: s3cret\n",
}

// TestSiteFolder: a folder with an encrypted file; an apply in batches that stops at its
// limit of failures, and its retry after the correction; the undo of a variable; a
// cleanup with the folder of today, which names all hosts.
func TestSiteFolder(t *testing.T) {
	const folder, password = "/root/site/", "/etc/clusterm/vault-password"

	w := newWorld(t, setup{})
	for name, content := range siteFolder {
		w.write("host1", folder+name, content)
	}

	w.write("host1", password, "open sesame\n")
	w.sh("host1", "ansible-vault encrypt --vault-id "+password+" "+folder+"group_vars/all/secrets.yml")

	all := []string{"host2", "host3", "host4"}
	wantRelease := func(releases ...string) {
		t.Helper()

		for i, h := range all {
			if got := w.sh(h, "cat /etc/systemtest").stdout; got != releases[i]+" s3cret\n" {
				t.Errorf("%s has the release %q, want %s", h, got, releases[i])
			}
		}
	}
	request := func(verb string, args ...string) []string {
		return append(append([]string{"nodes", verb}, args...), w.nodeNames(all...)...)
	}

	w.write("host1", configFile, "playbooks: /root/site\nvault_ids: ["+password+"]\n")
	w.sh("host1", "systemctl reload clusterm")
	w.ctl("vars", "set", "--global", "release=1")
	w.commission(master, all...)
	wantRelease("1", "1", "1")

	// The second failure is beyond the limit, so the third batch does not begin.
	w.ctl("vars", "set", "--global", "release=2")
	w.write("host1", folder+"group_vars/all/broken.yml", "broken: [host2, host3]\n")

	failed, stderr := w.doFails(request("apply", "--serial", "1", "--max-failures", "1")...)
	if !strings.Contains(stderr, "the storage of host2 does not answer") || failed.Cause != "failed" {
		t.Errorf("the job failed with %q: %s", failed.Cause, stderr)
	}

	wantRelease("2", "2", "1")

	for _, h := range all {
		w.wantNode(h, inventory.Allocated, master)

		if n := w.node(h); strings.Contains(n.LastError, "the storage of "+h) != (h != "host4") {
			t.Errorf("%s has the last error %q", h, n.LastError)
		}
	}

	if got := touched(failed); strings.Contains(got, w.name("host4")) || !strings.Contains(got, w.name("host3")) {
		t.Errorf("the job names the nodes %s in its results", got)
	}

	w.write("host1", folder+"group_vars/all/broken.yml", siteFolder["group_vars/all/broken.yml"])
	w.do("job", "retry", failed.ID)
	wantRelease("2", "2", "2")

	for _, h := range all {
		if n := w.node(h); n.LastError != "" {
			t.Errorf("after the retry, %s still has the error %q", h, n.LastError)
		}
	}

	w.ctl("vars", "undo", "--global")
	w.do("nodes", "apply", w.name("host4"))
	wantRelease("2", "2", "1")

	// The masters that stay are within "all", and no play names helpers.
	w.write("host1", folder+"cleanup.yml",
		"- {hosts: all, gather_facts: false, tasks: [{name: The cleanup of today, command: touch /etc/cleaned}]}\n")

	j := w.do("nodes", "decommission", w.name("host4"), "--playbooks", "current")
	if got := touched(j); got != w.name("host4") || len(j.Helpers) > 0 {
		t.Errorf("the job acted on %s, with the helpers %v", got, j.Helpers)
	}

	if !w.hasFile("host4", "/etc/cleaned") || w.hasFile("host2", "/etc/cleaned") || w.hasFile("host3", "/etc/cleaned") {
		t.Error("the cleanup did not run on host4 alone")
	}
}

// touched lists the nodes with results, in the order of a job's runs.
func touched(j api.Job) string {
	var names []string

	for _, r := range j.Runs {
		for _, result := range r.Results {
			names = append(names, result.Host)
		}
	}

	return strings.Join(names, " ")
}

// hostilePython takes the place of the interpreter of a host. It adds facts, a warning
// and a line on standard error to the result of each module.
const hostilePython = `#!/usr/bin/python3.real
import json, subprocess, sys

run = subprocess.run(["/usr/bin/python3.real"] + sys.argv[1:], stdout=subprocess.PIPE)
out = run.stdout
try:
    result = json.loads(out)
    facts = {"node_name": "evil", "node_addr": "6.6.6.6", "node_group": "evil", "ansible_host": "6.6.6.6",
             "note": "evil", "base_known_nodes": ["evil"], "groups": {"service-master": ["evil"]}}
    result.setdefault("ansible_facts", {}).update(facts)
    result["warnings"] = ["\x1b[2J\x1b]0;evil\x07a warning"]
    out = json.dumps(result).encode()
except ValueError:
    pass
sys.stdout.buffer.write(out)
sys.stdout.flush()
sys.stderr.write("\x1b[31mevil\x1b[0m\n")
sys.exit(run.returncode)
`

// hostilePlaybook runs the role that writes values of all masters into /etc/hosts, and
// shows the variables of all masters as a play sees them.
const hostilePlaybook = `
- name: Nodes get the common base
  hosts: service-master:service-worker:&job_targets
  gather_facts: false
  roles:
    - role: base

- name: The site's own last step
  hosts: service-master:service-worker:&job_targets
  gather_facts: true
  tasks:
    - name: Write the site's file
      ansible.builtin.copy:
        dest: /etc/site
        content: |
          {% for host in groups['service-master'] | sort %}
          {{ hostvars[host].node_name }} {{ hostvars[host].node_addr }} {{ hostvars[host].note }}
          {% endfor %}
          {{ node_name }} {{ node_addr }} {{ note }}
    - name: Show a name
      ansible.builtin.debug: {msg: "I am {{ node_name }}"}
    - name: Read what the host says
      ansible.builtin.command: cat /root/says
      register: said
      changed_when: false
      failed_when: false
    - name: Show what the host says
      ansible.builtin.debug: {msg: "{{ said.stdout }} {{ ansible_local }} {{ ansible_hostname }}"}
`

// hostileText runs a command where it is evaluated, as a template or by a shell, and
// disturbs a terminal. %s is the file that the command makes.
const hostileText = "{{ lookup('pipe', 'touch %[1]s') }} " +
	"{%% for x in lookup('file', '/etc/shadow') %%}x{%% endfor %%} " +
	"$(touch %[1]s) `touch %[1]s` ; touch %[1]s # ' \" \n\r\x1b[2J\x1b]0;evil\a \u202e\u2066 \xff\xfe\xc3("

// TestHostileHost: the interpreter and the facts of a host claim other names, addresses and
// variables, and write escape sequences. Neither other hosts nor terminals receive them.
func TestHostileHost(t *testing.T) {
	w := newWorld(t, setup{hosts: 3})
	w.labDo("cp", repoFile("ansible"), "host1:/root/site")
	w.write("host1", "/root/site/site.yml", hostilePlaybook)
	w.ctl("config", "set", "playbooks=/root/site")
	w.ctl("vars", "set", "--global", "note=of-the-operator")

	w.write("host3", "/root/python", hostilePython)
	w.sh("host3", "p=$(readlink -f /usr/bin/python3) && mv $p /usr/bin/python3.real && "+
		"install -m 755 /root/python $p")
	w.write("host3", "/etc/ansible/facts.d/node.fact", `{"node_name": "evil", "node_addr": "6.6.6.6", "note": "evil"}`)

	// Three megabytes in one line, after the text that is made to be evaluated.
	w.write("host3", "/root/says", fmt.Sprintf(hostileText, "/root/pwned")+strings.Repeat("x", 3<<20))
	w.write("host3", "/etc/ansible/facts.d/text.fact", `{"text": "{{ lookup('pipe', 'touch /root/pwned') }}"}`)
	w.sh("host1", "touch /root/mark")

	j := w.commission(master, "host2", "host3")

	// Nothing ran on the controller, and nothing was written outside of the manager's own
	// folders.
	written := w.sh("host1", "find / -xdev -newer /root/mark -type f -not -path '/proc/*' -not -path '/sys/*' "+
		"-not -path '/run/*' -not -path '/var/log/*' -not -path '"+dataDir+"/*'").stdout
	if written != "" {
		t.Errorf("the job has written on the controller:\n%s", written)
	}

	lines := func(note string) string {
		return w.name("host2") + " " + addr("host2") + note + "\n" + w.name("host3") + " " + addr("host3") + note + "\n"
	}
	hosts := "# BEGIN clusterm\n" + addr("host2") + " " + w.name("host2") + "\n" +
		addr("host3") + " " + w.name("host3") + "\n# END clusterm\n"

	for _, h := range []string{"host2", "host3"} {
		if got := w.sh(h, "sed -n '/BEGIN clusterm/,/END clusterm/p' /etc/hosts").stdout; got != hosts {
			t.Errorf("/etc/hosts of %s has\n%swant\n%s", h, got, hosts)
		}

		own := w.name(h) + " " + addr(h) + " of-the-operator\n"
		if got := w.sh(h, "cat /etc/site").stdout; got != lines(" of-the-operator")+own {
			t.Errorf("the site's file on %s has\n%s", h, got)
		}
	}

	if n := w.node("host3"); n.Addr != addr("host3") || n.Group != master {
		t.Errorf("%+v", n)
	}

	// A terminal and a pipe get no control characters, --raw gets the output as it is.
	for _, command := range []string{
		"job logs " + j.ID, "job logs --events " + j.ID, "job get " + j.ID, "job why " + j.ID, "nodes get",
		"nodes history " + w.name("host3"),
	} {
		out := w.sh("host1", "script -qec 'clusterctl "+command+"' /dev/null").stdout
		if strings.Contains(out, "\x1b[2J") || strings.ContainsAny(out, "\a\u009b\u009d\u202e\u2066") || out == "" {
			t.Errorf("clusterctl %s prints escape sequences of the host: %.2000q", command, out)
		}
	}

	if out := w.ctl("job", "logs", j.ID).stdout; strings.ContainsAny(out, "\x1b\a") {
		t.Error("a pipe gets the escape sequences of the host")
	}

	out := w.ctl("job", "logs", "--raw", j.ID).stdout
	if !strings.Contains(out, "\x1b]0;evil") {
		t.Error("the log lacks the warning: the host was not hostile")
	}
	if !strings.Contains(out, "lookup('pipe', 'touch /root/pwned')") {
		t.Error("the log lacks the text of the host: the host was not hostile")
	}
}

// TestHostileMember: a holder of the gossip key announces other hosts' addresses, text
// that is made to be evaluated, and the end of others. It is held up, and nobody else.
func TestHostileMember(t *testing.T) {
	w := newWorld(t, setup{testPlaybooks: true, hosts: 4, serf: "host4"})
	w.commission(master, "host2")

	thief := w.name("host4")
	announce := func(tag, value string) {
		w.sh("host4", "serf tags -set "+tag+"='"+strings.ReplaceAll(value, "'", `'\''`)+"'")
	}

	refused := func(at string, words ...string) {
		t.Helper()

		// Before the manager has heard of it, it would commission the thief as what it was.
		await(t, 30*time.Second, "the thief is known at "+at, func() (bool, string) {
			n := w.node("host4")
			return n.Addr == at && n.AnnouncedFrom != "", fmt.Sprintf("%s, announced from %q", n.Addr, n.AnnouncedFrom)
		})
		await(t, 30*time.Second, "the thief is held up", func() (bool, string) {
			r := w.tryCtl("nodes", "commission", thief, "-g", worker, "--no-wait")
			for _, word := range words {
				if r.code != 5 || !strings.Contains(r.stderr, word) {
					return false, r.String()
				}
			}

			return true, ""
		})
	}

	// The address of a node in service, and one outside the cluster.
	announce("NodeAddr", addr("host2"))
	refused(addr("host2"), "announced at "+addr("host2"), "by a member at "+addr("host4"))
	announce("NodeAddr", "10.77.0.99")
	refused("10.77.0.99", "announced at 10.77.0.99", "nodes trust "+thief)
	announce("NodeAddr", "host2.example")
	refused("host2.example", "announced at host2.example")

	// Text in tags: the member is no node then.
	before := len(w.nodes())
	announce("NodeLabel", fmt.Sprintf(hostileText, "/root/pwned"))
	announce("NodeSerial", "$(touch /root/pwned)")
	announce("NodeAddr", "-oProxyCommand=touch /root/pwned")

	// It says that others have left: they object, and stay.
	for _, host := range []string{"host1", "host2", "host3"} {
		w.try("host4", "serf force-leave $(serf members | grep -o '^"+w.name(host)+"[^ ]*')")
	}

	w.awaitState(inventory.Discovered, "host1", "host2", "host3")
	w.wantNode("host2", inventory.Allocated, master)

	if now := len(w.nodes()); now != before {
		t.Errorf("there are %d nodes, before %d", now, before)
	}

	if w.hasFile("host1", "/root/pwned") {
		t.Error("a tag was evaluated on the controller")
	}

	out := w.sh("host1", "script -qec 'clusterctl nodes get -o wide' /dev/null; "+
		"journalctl -u clusterm --no-pager -o cat").stdout
	if strings.Contains(out, "\x1b[2J") || strings.ContainsAny(out, "\a\u202e") {
		t.Errorf("escape sequences of a tag reach a terminal: %.2000q", out)
	}

	// The others go on, and the thief may return to what it is.
	w.do("nodes", "maintenance", w.name("host2"))
	announce("NodeLabel", strings.TrimSuffix(thief, "-"+w.serial("host4")))
	announce("NodeSerial", w.serial("host4"))
	announce("NodeAddr", addr("host4"))
	w.awaitState(inventory.Discovered, "host4")
	await(t, 30*time.Second, "its own address counts again", func() (bool, string) {
		n := w.node("host4")
		return n.Addr == addr("host4") && n.AnnouncedFrom == "", fmt.Sprint(n)
	})
	w.commission(worker, "host4")
}
