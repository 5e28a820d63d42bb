// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

const labTool = "vagrant/lab/lab"

// labPlay is the playbook of the job rows. Like an installation of packages or a
// restart of services, it keeps the hosts busy for a moment. Its argument is the
// number of output lines.
const labPlay = `- hosts: all
  gather_facts: false
  tasks:
    - name: the host is busy
      ansible.builtin.command: sleep 1
      changed_when: true
    - name: a file
      ansible.builtin.copy: {content: "{{ node_name }}\n", dest: /tmp/bench, mode: "0644"}
    - name: the host is busy again
      ansible.builtin.command: sleep 1
      changed_when: true
    - name: output
      ansible.builtin.debug: {msg: "{{ range(%d) | list }}"}
`

// The playbooks of the row verify: on hosts as they configure them, check mode has
// nothing to change.
const (
	verifySite = `- hosts: all
  gather_facts: false
  tasks:
    - name: a file
      ansible.builtin.copy: {content: "{{ node_name }}\n", dest: /root/bench, mode: "0644"}
    - name: a folder
      ansible.builtin.file: {path: /root/benches, state: directory, mode: "0755"}
    - name: a line
      ansible.builtin.lineinfile: {path: /root/bench.conf, line: "a=1", create: true, mode: "0644"}
    - name: a service
      ansible.builtin.systemd: {name: ssh.service, state: started, enabled: true}
    - name: a command that check mode skips
      ansible.builtin.command: "true"
      changed_when: false
`
	verifyCheck = `- hosts: all
  gather_facts: false
  tasks:
    - name: read the file
      ansible.builtin.command: cat /root/bench
      register: bench
      changed_when: false
    - name: the file has the name
      ansible.builtin.assert: {that: bench.stdout == node_name}
`
)

// job compares jobs with plain ansible-playbook. The manager and the baselines run on
// this machine, in the lab's network.
func job(ctx context.Context, b *bench) []row {
	l := b.lab(ctx)

	// One manager after the other.
	for _, lines := range []int{10, 10_000} {
		for _, hosts := range []int{1, b.hosts} {
			b.measureAll(func() []row { return b.jobOn(ctx, l, hosts, lines) })
		}
	}

	return nil
}

// verify compares verifications with plain runs of the same playbooks.
func verify(ctx context.Context, b *bench) []row { return b.verifyOn(ctx, b.lab(ctx), b.hosts) }

// place is where a manager and plain runs reach the hosts.
type place struct {
	playbook string   // the path of ansible-playbook
	settings string   // of the manager
	through  []string // the command that runs a program there
	key      string   // the path of the private key for ssh
}

// lab boots the lab's hosts, until the rows of the group are measured.
func (b *bench) lab(ctx context.Context) place {
	if os.Geteuid() != 0 {
		fail("the lab needs root")
	}

	if os.Getenv("LAB") == "" {
		check(os.Setenv("LAB", "bench"))
	}

	tool := must(filepath.Abs(filepath.Join(b.top, labTool)))
	lab := func(ctx context.Context, args ...string) string {
		cmd := exec.CommandContext(ctx, tool, args...)
		cmd.Stderr = os.Stderr
		cmd.WaitDelay = 5 * time.Second // the hosts hold its output

		out, err := cmd.Output()
		if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
			fail("lab %s: %w", strings.Join(args, " "), err)
		}
		return strings.TrimSpace(string(out))
	}

	b.cleanup(func() {
		// Without the end of ctx.
		if err := try(func() { lab(context.WithoutCancel(ctx), "down") }); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
	})
	lab(ctx, "up", fmt.Sprint(b.hosts))

	key := lab(ctx, "key")

	return place{
		playbook: must(exec.LookPath("ansible-playbook")), through: []string{tool, "run"}, key: key,
		settings: "ssh: {user: root, key_file: " + key + "}\n",
	}
}

// managed is a manager with playbooks and some hosts in service.
type managed struct {
	*world
	place
	nodes []string
	runs  []run // of the job that plain runs repeat
}

// run is the input of a run of ansible-playbook.
type run struct {
	dir, cwd string
	args     []string
	files    map[string]string // the content of each in dir
}

// manage starts a manager of the first hosts at a place, and repeats the job of a verb later.
func (b *bench) manage(
	ctx context.Context, p place, hosts int, verb inventory.Verb, playbooks map[string]string,
) *managed {
	m := &managed{place: p, nodes: firstNodes(hosts)}
	dir := must(os.MkdirTemp(b.dir, "playbooks"))
	kept := filepath.Join(dir, "kept")

	for file, text := range playbooks {
		check(os.MkdirAll(filepath.Join(dir, "site"), 0o700))
		check(os.WriteFile(filepath.Join(dir, "site", file), []byte(text), 0o600))
	}

	// The manager removes the input of a run at its end, so this keeps it at its start.
	script := filepath.Join(dir, "ansible-playbook")
	text := fmt.Sprintf(`#!/bin/sh
if [ -n "$CLUSTERM_EVENTS" ] && [ -d %[1]s ]; then
	dir=${ANSIBLE_CONFIG%%/*} kept=%[1]s/$(ls %[1]s | wc -l)
	mkdir "$kept"
	find "$dir" -maxdepth 1 -type f -exec cp -t "$kept" {} +
	printf '%%s\n' "$dir" "$PWD" "$@" >"$kept/command"
fi
exec %[2]s "$@"
`, kept, p.playbook)

	check(os.WriteFile(script, []byte(text), 0o700))

	m.world = b.world(ctx, fmt.Sprintf("playbooks: %s/site\nansible_playbook: %s\n%s", dir, script, p.settings),
		p.through...)

	// This process is outside the lab's network, so it uses the API's Unix socket.
	m.url, m.http = socketURL, m.overSocket(ctx)

	check(m.report(ctx, "discovered", 0, hosts, func(i int) string { return fmt.Sprintf("10.77.0.%d", 11+i) }))

	// The commission records host keys and checks the syntax, outside the measurement.
	m.seconds(ctx, inventory.VerbCommission, "service-master")
	check(os.Mkdir(kept, 0o700))
	m.seconds(ctx, verb, "")

	for _, folder := range must(os.ReadDir(kept)) {
		m.runs = append(m.runs, keptRun(filepath.Join(kept, folder.Name())))
	}

	check(os.RemoveAll(kept))

	return m
}

// keptRun reads the copy of the input of a run.
func keptRun(folder string) run {
	r := run{files: map[string]string{}}
	for _, file := range must(os.ReadDir(folder)) {
		r.files[file.Name()] = string(must(os.ReadFile(filepath.Join(folder, file.Name()))))
	}

	command := strings.Split(strings.TrimSpace(r.files["command"]), "\n")
	r.dir, r.cwd, r.args = command[0], command[1], command[2:]

	return r
}

// seconds runs a job and returns the seconds from its claim to its end: waiting in the
// queue is not part of it.
func (m *managed) seconds(ctx context.Context, verb inventory.Verb, group string) float64 {
	j := m.carryOut(ctx, api.JobRequest{Verb: verb, Nodes: m.nodes, Group: group})
	if j.Started == nil || j.Ended == nil {
		fail("the job has no times")
	}
	return j.Ended.Sub(*j.Started).Seconds()
}

// plain runs ansible-playbook with the input of the kept runs, one after the other, and
// returns the seconds they took. They share connections of their own, and use none of
// the manager's plugins. With defaults, they use Ansible's own settings.
func (m *managed) plain(ctx context.Context, defaults bool) (seconds float64) {
	// No run starts with open connections of another side. Paths of sockets must be
	// short.
	sockets := must(os.MkdirTemp("/tmp", "cp"))
	defer closeConnections(sockets)

	for _, r := range m.runs {
		seconds += m.plainRun(ctx, r, sockets, defaults)
	}

	return seconds
}

// plainRun runs ansible-playbook with the input of one run.
func (m *managed) plainRun(ctx context.Context, r run, sockets string, defaults bool) float64 {
	dir := must(os.MkdirTemp(m.bench.dir, "plain"))
	defer os.RemoveAll(dir)

	moved := strings.NewReplacer(r.dir, dir)

	for file, text := range r.files {
		if file == "ansible.cfg" {
			text = plainConfig(text)
		}

		check(os.WriteFile(filepath.Join(dir, file), []byte(moved.Replace(text)), 0o600))
	}

	if defaults {
		// Except for the keys of the hosts.
		text := "[defaults]\nhome = " + filepath.Join(dir, "home") + "\nhost_key_checking = False\n"
		check(os.WriteFile(filepath.Join(dir, "ansible.cfg"), []byte(text), 0o600))
	}

	command := slices.Concat(m.through, []string{
		"env",
		"ANSIBLE_CONFIG=" + filepath.Join(dir, "ansible.cfg"),
		"ANSIBLE_SSH_CONTROL_PATH_DIR=" + sockets,
		m.playbook,
	}, r.args)
	for i := range command {
		command[i] = moved.Replace(command[i])
	}

	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = r.cwd

	out := must(os.Create(filepath.Join(dir, "out")))
	defer out.Close()

	cmd.Stdout, cmd.Stderr = out, out
	// Connections stay open for a while after the run and hold its output.
	cmd.WaitDelay = 2 * time.Minute

	return timed(func() {
		if err := cmd.Run(); err != nil {
			text := must(os.ReadFile(out.Name()))
			fail("plain ansible-playbook: %w\n%s", err, text[max(0, len(text)-1000):])
		}
	})
}

// plainConfig returns Ansible's settings without the manager's plugins.
func plainConfig(text string) (out string) {
	plugins := []string{
		"callback_plugins", "callbacks_enabled", "cache_plugins", "fact_caching", "connection_plugins",
	}
	own := false // in a section of the manager

	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "[") {
			own = strings.HasPrefix(line, "[clusterm_")
		}

		if !own &&
			!slices.ContainsFunc(plugins, func(setting string) bool { return strings.HasPrefix(line, setting) }) {
			out += line
		}
	}

	return out
}

// closeConnections ends the ssh connections with sockets in the directory, and removes
// the directory.
func closeConnections(dir string) {
	sockets, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, socket := range sockets {
		// It fails for a connection that has ended already.
		_ = exec.Command("ssh", "-o", "ControlPath="+socket, "-O", "exit", "any").Run()
	}

	_ = os.RemoveAll(dir)
}

// jobOn returns the rows for jobs on the first hosts.
func (b *bench) jobOn(ctx context.Context, p place, hosts, lines int) []row {
	// Every host prints, so the lines of a run do not depend on their number.
	play := fmt.Sprintf(labPlay, max(1, lines/hosts))
	m := b.manage(ctx, p, hosts, inventory.VerbMaintenance, map[string]string{
		"site.yml": play, "cleanup.yml": play, "rolling-upgrade.yml": play, "verify.yml": play,
	})

	settings := row{
		Name: fmt.Sprintf("job, %d hosts, %d lines", hosts, lines), Unit: "s", Rounds: 3,
		Against:  "ansible-playbook, same settings",
		floor:    atMost(1.03, 0.3, "<= 1.03 x + 0.3 s"),
		product:  func() float64 { return m.seconds(ctx, inventory.VerbMaintenance, "") },
		baseline: func() float64 { return m.plain(ctx, false) },
	}
	if hosts == 1 {
		return []row{settings}
	}
	defaults := settings
	defaults.Against, defaults.floor = "ansible-playbook, its own defaults", atMost(0.25, 0, "<= 0.25 x")
	defaults.baseline = func() float64 { return m.plain(ctx, true) }

	return []row{settings, defaults}
}

// verifyOn returns the row for verifications of the first hosts.
func (b *bench) verifyOn(ctx context.Context, p place, hosts int) []row {
	m := b.manage(ctx, p, hosts, inventory.VerbVerify, map[string]string{
		"site.yml": verifySite, "verify.yml": verifyCheck, "cleanup.yml": verifyCheck,
	})

	return []row{{
		Name: fmt.Sprintf("verification, %d hosts", hosts), Unit: "s", Rounds: 5,
		Against:  "ansible-playbook verify.yml, then --check --diff site.yml",
		floor:    atMost(1.1, 0, "<= 1.1 x"),
		product:  func() float64 { return m.seconds(ctx, inventory.VerbVerify, "") },
		baseline: func() float64 { return m.plain(ctx, false) },
	}}
}

// inspected compares inspections of lab hosts with a plain run of Ansible's module that finds facts.
func inspected(ctx context.Context, b *bench) []row {
	l := b.lab(ctx)
	m := &managed{place: l, nodes: make([]string, b.hosts), world: b.world(ctx, l.settings, l.through...)}
	addrs := make([]string, b.hosts)
	list := []map[string]any{}

	for i := range b.hosts {
		m.nodes[i], addrs[i] = machineName(1, i), fmt.Sprintf("10.77.0.%d", 11+i)
		list = append(list, map[string]any{"name": m.nodes[i], "addr": addrs[i]})
	}

	// The first login records the host key, outside the measurement.
	_ = must(m.Import(ctx, api.Import{File: string(must(json.Marshal(map[string]any{"nodes": list})))}))
	m.seconds(ctx, inventory.VerbManage, "")

	config := filepath.Join(m.dir, "ansible.cfg")
	check(os.WriteFile(config, []byte("[defaults]\nhost_key_checking = False\n"), 0o600))

	return []row{{
		Name: fmt.Sprintf("inspection, %d hosts", b.hosts), Unit: "s", Rounds: 5,
		Against: "ansible -m setup, all hosts at a time",
		floor:   atMost(1.2, 0, "<= 1.2 x"),
		product: func() float64 { return m.seconds(ctx, inventory.VerbInspect, "") },
		baseline: func() float64 {
			sockets := must(os.MkdirTemp("/tmp", "cp"))
			defer closeConnections(sockets)

			cmd := exec.CommandContext(ctx, l.through[0], slices.Concat(l.through[1:], []string{
				"env", "ANSIBLE_CONFIG=" + config, "ANSIBLE_SSH_CONTROL_PATH_DIR=" + sockets,
				filepath.Join(filepath.Dir(l.playbook), "ansible"), "all", "-i", strings.Join(addrs, ",") + ",",
				"-u", "root", "--private-key", l.key, "-f", fmt.Sprint(b.hosts), "-m", "setup",
			})...)

			out := must(os.Create(filepath.Join(m.dir, "setup")))
			defer out.Close()

			cmd.Stdout, cmd.Stderr = out, out
			cmd.WaitDelay = 2 * time.Minute // see plainRun

			seconds := timed(func() { check(cmd.Run()) })

			text := string(must(os.ReadFile(out.Name())))
			if n := strings.Count(text, "| SUCCESS"); n != b.hosts {
				fail("ansible found facts of %d hosts:\n%.2000s", n, text)
			}

			return seconds
		},
	}}
}
