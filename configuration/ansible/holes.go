// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
)

// The hostile playbook: a module that returns templates, as a host might, and tasks that
// use its facts, results and variables as playbooks do. Each template would make a file.
const (
	probeModule = `#!/usr/bin/python3
import json
t = "%s"
print(json.dumps({
    "changed": False, "text": t, "list": [t], t: t, "ansible_facts": {"evil": t, "evils": {"list": [t], t: t}},
}))
`
	probePlaybook = `- hosts: probe
  gather_facts: false
  tasks:
    - evil_module:
      register: answer
    - set_fact: {copied: "{{ evil }}", listed: "{{ evils.list }}"}
    - debug: {msg: "{{ evil }} {{ evils }} {{ copied }} {{ listed }} {{ answer }} {{ ansible_facts }}"}
    - debug: {msg: "{{ hostvars['probe'].evil }} {{ hostvars['probe'] }} {{ hostvars['probe'].ansible_facts }}"}
    - debug: {var: "hostvars['probe'].evils"}
    - debug: {msg: "{{ item }}"}
      loop: "{{ answer.list + evils.list + [given] }}"
    - debug: {msg: "{{ given }} {{ given_map }}"}
    - debug: {msg: ` + probeMark + `}
`
	probeMark = "clusterm-probe-done"
)

// probeTimeout bounds the run of the probe, which takes seconds on an idle machine.
const probeTimeout = 5 * time.Minute

// ProgramID identifies an ansible-playbook by path, time and size: a probe holds until
// one of them changes.
func ProgramID(ansiblePlaybook string) (string, error) {
	path, err := lookPath(ansiblePlaybook)
	if err != nil {
		return "", err
	}

	// A package manager may link another program to the same path.
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return "", err
	}

	st, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s %d %d", path, st.ModTime().UnixNano(), st.Size()), nil
}

// ProbeTemplates runs a small playbook with a hostile host and hostile variables, without a
// connection, and reports whether ansible-playbook evaluates their text as templates on
// this machine (CVE-2016-9587 and its kind). That is an error of kind refused. Any other
// error means that the probe was not possible. It takes seconds, and makes its files in a
// folder of its own below temp.
func ProbeTemplates(ctx context.Context, ansiblePlaybook, temp string) error {
	path, err := lookPath(ansiblePlaybook)
	if err != nil {
		return err
	}

	dir, err := os.MkdirTemp(temp, "clusterm-probe-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) // a leftover is harmless

	// A path with a quote in it would break the template.
	evaluated := filepath.Join(dir, "evaluated")
	template := "{{ lookup('pipe', 'touch " + evaluated + "') }}"

	if strings.ContainsAny(evaluated, `'"\ `) {
		return fmt.Errorf("the folder %s has quotes or spaces in its name", dir)
	}

	if err := os.Mkdir(filepath.Join(dir, "library"), 0o700); err != nil {
		return err
	}

	text := `!unsafe "` + template + `"`
	variables := "given: " + text + "\ngiven_map: {" + text + ": " + text + "}\n"

	for name, content := range map[string]string{
		"library/evil_module.py": fmt.Sprintf(probeModule, template),
		"probe.yml":              probePlaybook,
		"extra.yml":              variables,
		fileConfig: strings.Join(append([]string{
			"[defaults]", "retry_files_enabled = False", "localhost_warning = False",
		}, searchPaths(dir, dir, "")...), "\n") + "\n",
		fileInventory: "all: {hosts: {probe: {ansible_connection: local, " +
			"ansible_python_interpreter: \"{{ ansible_playbook_python }}\"}}}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return err
		}
	}

	env := []string{"ANSIBLE_CONFIG=" + filepath.Join(dir, fileConfig)}
	args := []string{
		"-i", filepath.Join(dir, fileInventory), "-e", "@" + filepath.Join(dir, "extra.yml"),
		filepath.Join(dir, "probe.yml"),
	}
	out, err := runFor(ctx, probeTimeout, dir, env, path, args...)

	// The file counts, whatever the end of the run.
	if _, statErr := os.Stat(evaluated); statErr == nil {
		return inventory.Errorf(inventory.KindRefused,
			"%s evaluates text of a host or of a variable as a template, so that a host could run commands here", path).
			Do("install a repaired version of ansible-core; to run jobs all the same, set " +
				"accept_vulnerable_ansible in the configuration file")
	}

	if err != nil {
		return fmt.Errorf("cannot probe %s for the evaluation of templates: %w", path, err)
	}

	if !strings.Contains(string(out), probeMark) {
		return fmt.Errorf("cannot probe %s for the evaluation of templates: the playbook did not reach its end", path)
	}

	return nil
}
