// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
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

const (
	labTool  = "vagrant/lab/lab"
	labHosts = 20
)

// labPlay is the playbook of the job rows. Like an installation of packages or a
// restart of services, it keeps the hosts busy for a moment. Its arguments are the
// hosts and the number of output lines.
const labPlay = `- hosts: %s
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

// job compares jobs with plain ansible-playbook. The manager and the baselines run on
// this machine, in the lab's network.
func job(ctx context.Context, b *bench) error {
	return inLab(ctx, func(key string) error {
		for _, lines := range []int{10, 10_000} {
			for _, hosts := range []int{1, labHosts} {
				extra := "ssh: {user: root, key_file: " + key + "}\n"
				if err := b.jobOn(ctx, extra, hosts, lines, labTool, "run"); err != nil {
					return err
				}
			}
		}

		return nil
	})
}

// inLab boots the lab's hosts, calls do with the key file that they accept, and removes
// them.
func inLab(ctx context.Context, do func(key string) error) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("the lab needs root")
	}

	if os.Getenv("LAB") == "" {
		if err := os.Setenv("LAB", "bench"); err != nil {
			return err
		}
	}

	lab := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, labTool, args...)

		var stdout, stderr bytes.Buffer

		cmd.Stdout, cmd.Stderr = &stdout, &stderr

		cmd.WaitDelay = 5 * time.Second
		if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
			return "", fmt.Errorf("lab %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
		}

		return strings.TrimSpace(stdout.String()), nil
	}
	if _, err := lab("up", fmt.Sprint(labHosts)); err != nil {
		return err
	}

	defer func() {
		// Without ctx, which may have ended.
		cmd := exec.Command(labTool, "down")
		if out, derr := cmd.CombinedOutput(); derr != nil {
			err = errors.Join(err, fmt.Errorf("lab down: %w\n%s", derr, out))
		}
	}()

	key, err := lab("key")
	if err != nil {
		return err
	}

	return do(key)
}

// jobOn measures jobs on the first hosts. extra is added to the configuration of
// clusterm; through is a command that runs it, and the baseline.
func (b *bench) jobOn(ctx context.Context, extra string, hosts, lines int, through ...string) error {
	play := filepath.Join(b.dir, fmt.Sprintf("playbooks-%d-%d", hosts, lines))
	if err := os.MkdirAll(play, 0o700); err != nil {
		return err
	}

	for _, file := range []string{"site.yml", "cleanup.yml", "rolling-upgrade.yml", "verify.yml"} {
		// Every host prints, so the lines of a run do not depend on their number.
		text := fmt.Sprintf(labPlay, "all", max(1, lines/hosts))
		if err := os.WriteFile(filepath.Join(play, file), []byte(text), 0o600); err != nil {
			return err
		}
	}

	// This process is outside the lab's network, so it uses the API's Unix socket.
	w, err := b.world(ctx, "playbooks: "+play+"\n"+extra, through...)
	if err != nil {
		return err
	}
	defer w.discard()

	nodes, err := w.reportLab(ctx, hosts)
	if err != nil {
		return err
	}

	// The commission records host keys and checks the syntax, outside the measurement.
	if _, err := w.seconds(ctx, inventory.VerbCommission, "service-master", nodes); err != nil {
		return err
	}

	// The baseline repeats the run of a job without the manager's plugin.
	keep := filepath.Join(b.dir, "model")

	models, err := w.copyModels(ctx, inventory.VerbMaintenance, nodes, keep)
	if err != nil {
		return err
	}

	product := func(ctx context.Context) (float64, error) {
		return w.seconds(ctx, inventory.VerbMaintenance, "", nodes)
	}
	plain := func(ctx context.Context, defaults bool) (float64, error) {
		return b.plain(ctx, models, defaults, through)
	}

	title := fmt.Sprintf("job, %d hosts, %d lines", hosts, lines)

	err = b.compare(ctx, comparison{
		name:     title,
		unit:     "s",
		against:  "ansible-playbook, same settings",
		rounds:   3,
		floor:    atMost(1.03, 0.3, "<= 1.03 x + 0.3 s"),
		product:  product,
		baseline: func(ctx context.Context) (float64, error) { return plain(ctx, false) },
	})
	if err != nil || hosts == 1 {
		return err
	}

	return b.compare(ctx, comparison{
		name:     title,
		unit:     "s",
		against:  "ansible-playbook, its own defaults",
		rounds:   3,
		floor:    atMost(0.25, 0, "<= 0.25 x"),
		product:  product,
		baseline: func(ctx context.Context) (float64, error) { return plain(ctx, true) },
	})
}

// seconds runs a job and returns the seconds from its claim to its end: waiting in the
// queue is not part of it.
func (w *world) seconds(ctx context.Context, verb inventory.Verb, group string, nodes []string) (float64, error) {
	j, err := w.Submit(ctx, api.JobRequest{Verb: verb, Nodes: nodes, Group: group})
	if err != nil {
		return 0, err
	}

	j, err = w.WaitJob(ctx, j.ID)

	switch {
	case err != nil:
		return 0, err
	case j.Status != api.Complete:
		return 0, fmt.Errorf("job %s is %s: %s", j.ID, j.Status, j.Message)
	case j.Started == nil || j.Ended == nil:
		return 0, errors.New("the job has no times")
	}

	return j.Ended.Sub(*j.Started).Seconds(), nil
}

// reportLab reports the first hosts of the lab as discovered, and returns their nodes.
func (w *world) reportLab(ctx context.Context, hosts int) (nodes []string, err error) {
	for i := range hosts {
		nodes = append(nodes, name(i))
	}

	return nodes, w.reportHosts(ctx, hosts, func(i int) string { return fmt.Sprintf("10.77.0.%d", 11+i) })
}

// reportHosts reports the lab's hosts as discovered, over the Unix socket.
func (w *world) reportHosts(ctx context.Context, hosts int, addr func(int) string) error {
	w.url = "http://clusterm"
	w.http = w.overSocket()

	return w.event(ctx, "discovered", 0, hosts, addr)
}

// model is the input of a run of a job: its folder, and a copy.
type model struct{ dir, kept string }

// copyModels runs a job, and copies the input of each of its runs before the end of the
// run removes it.
func (w *world) copyModels(ctx context.Context, verb inventory.Verb, nodes []string, to string) ([]model, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()

	j, err := w.Submit(ctx, api.JobRequest{Verb: verb, Nodes: nodes})
	if err != nil {
		return nil, err
	}

	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()

	for models := []model(nil); ; {
		next := fmt.Sprint("-", len(models))

		m := model{filepath.Join(w.dir, "data/runs", j.ID+next), to + next}
		if err = errors.Join(os.RemoveAll(m.kept), copyRun(m.dir, m.kept)); err == nil {
			models = append(models, m)
			continue
		}

		// On a busy disk, the store may be away for a moment.
		now, jobErr := w.Job(ctx, j.ID)
		switch {
		case jobErr != nil || now.Ended == nil:
		case now.Status == api.Complete && len(now.Runs) == len(models):
			return models, nil
		default:
			return nil, fmt.Errorf("job %s is %s (%s), and the input of %d runs is kept: %w",
				now.ID, now.Status, now.Message, len(models), err)
		}

		select {
		case <-ctx.Done():
			return nil, errors.Join(err, jobErr, ctx.Err())
		case <-tick.C:
		}
	}
}

// copyRun copies the input files of a run.
func copyRun(from, to string) error {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}

	files := []string{"spec.json", "inventory.yml", "extra-vars.yml", "ansible.cfg", "ssh_config", "known_hosts"}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(from, file))
		if err != nil {
			return fmt.Errorf("input of the run: %w", err)
		}

		if err := os.WriteFile(filepath.Join(to, file), text, 0o600); err != nil {
			return err
		}
	}

	return nil
}

// plain runs ansible-playbook with the input of copied runs, one after the other, and
// returns the seconds they took. They share connections of their own, and use none of
// the manager's plugins.
func (b *bench) plain(ctx context.Context, models []model, defaults bool, through []string) (float64, error) {
	// No run starts with open connections of another side. Paths of sockets must be
	// short.
	sockets, err := os.MkdirTemp("/tmp", "cp")
	if err != nil {
		return 0, err
	}
	defer closeConnections(sockets)

	var all float64

	for _, m := range models {
		took, err := b.plainRun(ctx, m, sockets, defaults, through)
		if err != nil {
			return 0, err
		}

		all += took
	}

	return all, nil
}

// plainRun runs ansible-playbook with the input of one run.
func (b *bench) plainRun(
	ctx context.Context, m model, sockets string, defaults bool, through []string,
) (float64, error) {
	dir, err := os.MkdirTemp(b.dir, "plain")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)

	if err := copyRun(m.kept, dir); err != nil {
		return 0, err
	}

	// move replaces the run's paths in a file and drops lines with these prefixes.
	move := func(file string, drop ...string) error {
		path := filepath.Join(dir, file)

		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}

		var out strings.Builder
		for line := range strings.Lines(strings.ReplaceAll(string(text), m.dir, dir)) {
			dropped := slices.ContainsFunc(drop, func(prefix string) bool { return strings.HasPrefix(line, prefix) })
			if !dropped {
				out.WriteString(line)
			}
		}

		return os.WriteFile(path, []byte(out.String()), 0o600)
	}
	if err := errors.Join(
		move("ansible.cfg", "callback_plugins", "callbacks_enabled", "cache_plugins", "fact_caching"),
		move("spec.json"),
		move("inventory.yml"),
		move("ssh_config"),
	); err != nil {
		return 0, err
	}

	var spec struct {
		Path, Cwd string
		Args      []string
	}

	text, err := os.ReadFile(filepath.Join(dir, "spec.json"))
	if err == nil {
		err = json.Unmarshal(text, &spec)
	}

	if err != nil {
		return 0, err
	}

	config := filepath.Join(dir, "ansible.cfg")
	if defaults {
		// Ansible's own defaults, except for the keys of the hosts.
		config = filepath.Join(dir, "defaults.cfg")

		text := "[defaults]\nhome = " + filepath.Join(dir, "home") + "\nhost_key_checking = False\n"
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			return 0, err
		}
	}

	command := slices.Concat(through, []string{
		"env", "ANSIBLE_CONFIG=" + config, "ANSIBLE_SSH_CONTROL_PATH_DIR=" + sockets, spec.Path,
	}, spec.Args)

	// The command runs in the folder of the playbooks.
	program, err := exec.LookPath(command[0])
	if err == nil {
		program, err = filepath.Abs(program)
	}

	if err != nil {
		return 0, err
	}

	cmd := exec.CommandContext(ctx, program, command[1:]...)
	cmd.Dir = spec.Cwd

	out, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		return 0, err
	}
	defer out.Close()

	cmd.Stdout, cmd.Stderr = out, out
	// Connections stay open for a while after the run and hold its output.
	cmd.WaitDelay = 2 * time.Minute
	begun := time.Now()
	err = cmd.Run()
	took := time.Since(begun)

	if err != nil {
		text, _ := os.ReadFile(out.Name())
		return 0, fmt.Errorf("plain ansible-playbook: %w\n%s", err, text[max(0, len(text)-1000):])
	}

	return took.Seconds(), nil
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
