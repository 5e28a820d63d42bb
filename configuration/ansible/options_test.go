// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

const optionPlays = `
- name: site
  hosts: job_targets
  gather_facts: true
  tasks:
    - name: write the file
      ansible.builtin.copy: {dest: "{{ folder }}/file", content: "the password is {{ db_password }}\n"}
      tags: [web]
    - name: look
      ansible.builtin.command: "touch {{ folder }}/executed"
      check_mode: false
      tags: [look]
    - name: always
      ansible.builtin.debug: {msg: in any case}
      tags: [always]
`

// TestLiveOptions runs the options of ansible-playbook with the real one.
func TestLiveOptions(t *testing.T) {
	t.Parallel()
	needAnsible(t)

	const secret = "correct-horse"

	sshd := startSSHD(t)

	ofGroup, err := configuration.AnsibleOptions{}.Within("g", inventory.Selection{
		Tags: []string{"web", "look"}, SkipTags: []string{"look"},
	})
	errtest.None(t, err)

	for _, c := range []struct {
		name     string
		options  configuration.AnsibleOptions
		written  string // files in the folder of the run, afterwards
		changed  int
		executed int
		selected bool
		output   string
	}{
		{
			name:    "check and diff",
			options: configuration.AnsibleOptions{Check: true, Diff: true, SkipTags: []string{"look"}},
			changed: 1, selected: true, output: "+the password is (hidden)",
		},
		{
			name: "a check that executes", options: configuration.AnsibleOptions{Check: true},
			written: "executed", changed: 2, executed: 1, selected: true,
		},
		{name: "tags of a group", options: ofGroup, written: "file", changed: 1, selected: true},
		{name: "unknown tag", options: configuration.AnsibleOptions{Tags: []string{"nothing"}}},
		{
			name:    "every task skipped",
			options: configuration.AnsibleOptions{SkipTags: []string{"web", "look", "always"}},
		},
		{
			name:    "tag and verbosity",
			options: configuration.AnsibleOptions{Diff: true, Tags: []string{"web"}, Verbosity: 3},
			written: "file", changed: 1, selected: true, output: `"invocation": `,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			folder := t.TempDir()
			s := limitSpec(t, fstest.MapFS{"cleanup.yml": {Data: []byte(optionPlays)}})
			s.Hosts = []configuration.Host{sshd.host("web-1", liveAddrs[0])}
			s.Options, s.Secrets = c.options, []string{secret}
			s.ExtraVars = configuration.Vars{"folder": folder, "db_password": secret}

			run := start(t, s)
			exit, out, events := wait(t, run), read(t, run.Output()), read(t, run.Events())

			if !exit.OK() || !strings.Contains(out, c.output) || strings.Contains(out+events, secret) {
				t.Errorf("exit %+v:\n%s\n%s", exit, out, events)
			}

			files, err := os.ReadDir(folder)
			errtest.None(t, err)

			var written []string
			for _, f := range files {
				written = append(written, f.Name())
			}

			if got := strings.Join(written, " "); got != c.written {
				t.Errorf("the run has written %q", got)
			}

			var stream configuration.EventStream

			r := configuration.Summarize(stream.Write([]byte(events)))["web-1"]
			if r.Changed != c.changed || r.Executed != c.executed || r.Selected != c.selected ||
				!r.Good() && c.selected {
				t.Errorf("%+v:\n%s", r, events)
			}
		})
	}
}

// TestOptionsOfASpec: a tag is checked again where it becomes an argument.
func TestOptionsOfASpec(t *testing.T) {
	t.Parallel()

	s := fakeSpec(t, "prints-and-fails")
	s.Options = configuration.AnsibleOptions{
		Check: true, Diff: true, Tags: []string{"web", "db"}, SkipTags: []string{"slow"}, Verbosity: 2,
	}

	errtest.None(t, prepare(s))

	want := " --limit job_targets --check --diff --tags=web,db --skip-tags=slow -vv " + s.Playbooks
	if l, err := readLaunch(s.Dir); err != nil || !strings.Contains(strings.Join(l.Args, " "), want) {
		t.Errorf("%q, %v", l.Args, err)
	}

	s.Dir = filepath.Join(t.TempDir(), "run")
	s.Options.Tags = []string{"--become"}

	err := prepare(s)
	if inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(err.Error(), "is not a tag") {
		t.Errorf("%v", err)
	}
}
