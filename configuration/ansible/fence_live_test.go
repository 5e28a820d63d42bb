// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/configuration/repository"
	"github.com/contiv/cluster/inventory/errtest"
)

// fencedSpec returns a run of the plays with a token on one host.
func fencedSpec(t *testing.T, s liveSSH, token configuration.FenceToken, plays string) Spec {
	base := t.TempDir()
	store := &repository.Store{Dir: filepath.Join(base, "playbooks")}

	digest, err := store.Keep(t.Context(), fstest.MapFS{
		"site.yml":       {Data: []byte(plays)},
		"files/large":    {Data: []byte(strings.Repeat("0123456789abcdef", 1<<14))},
		"files/hello.sh": {Data: []byte("#!/bin/sh\necho hello from $1\n")},
	})
	errtest.None(t, err)

	plugins, err := filepath.Abs("../../ansible/plugins")
	errtest.None(t, err)

	return Spec{
		ID: "7-" + token.String(), Dir: filepath.Join(base, "run"), Playbooks: store.Path(digest), Playbook: "site.yml",
		CallbackDir: filepath.Join(plugins, "callback"), ConnectionDir: filepath.Join(plugins, "connection"),
		// The processes of all tests can be seen, so each has a manager of its own.
		Fence: configuration.Fence{Token: token, Manager: strconv.Itoa(s.port), Job: "7"},
		Hosts: []configuration.Host{s.host("web-1", liveAddrs[0])}, ExtraVars: configuration.Vars{"folder": base},
		Deadline: time.Now().Add(time.Hour), GraceInt: time.Second, GraceTerm: time.Second,
	}
}

func token(revision int64, run int) configuration.FenceToken {
	return configuration.FenceToken{Revision: revision, Run: run}
}

// raised has the host admit a token.
func raised(t *testing.T, s liveSSH, to configuration.FenceToken) {
	t.Helper()
	run := start(t, fencedSpec(t, s, to, "- hosts: all\n  gather_facts: false\n  tasks: [{raw: 'true'}]\n"))

	if e := wait(t, run); !e.OK() {
		t.Fatalf("exit %+v:\n%s", e, read(t, run.Output()))
	}
}

// awaitFile waits until the file has the text.
func awaitFile(t *testing.T, path, text string) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()

	for ctx := within(t, patience); ; {
		if b, _ := os.ReadFile(path); strings.Contains(string(b), text) {
			return
		}

		select {
		case <-ctx.Done():
			t.Fatalf("%s never had %q", path, text)
		case <-tick.C:
		}
	}
}

const longPlays = `
- hosts: all
  gather_facts: false
  tasks:
    - name: take long
      ansible.builtin.shell: |
        trap 'echo "5 ends" >>{{ log }}; exit 1' TERM
        echo "5 begins" >>{{ log }}
        sleep 300 & wait; echo "5 goes on" >>{{ log }}
      ignore_errors: true
    - name: go on
      ansible.builtin.command: touch {{ folder }}/went-on
`

const laterPlays = `
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.shell: echo "6 begins" >>{{ log }}
`

// TestFenceLive: a later run ends the command of an earlier one before its own first one begins, and then the host
// refuses the earlier run.
func TestFenceLive(t *testing.T) {
	t.Parallel()
	needAnsible(t)

	for name, test := range map[string]struct{ before, after configuration.FenceToken }{
		"owner": {token(5, 3), token(6, 0)},
		"run":   {token(5, 3), token(5, 4)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := startSSHD(t)
			log := filepath.Join(t.TempDir(), "log")

			first := fencedSpec(t, s, test.before, longPlays)
			folder := first.ExtraVars["folder"].(string)
			first.ExtraVars["log"] = log
			earlier := start(t, first)
			awaitFile(t, log, "5 begins")

			second := fencedSpec(t, s, test.after, laterPlays)
			second.ExtraVars["log"] = log
			later := start(t, second)

			if e := wait(t, later); !e.OK() {
				t.Errorf("the later run: %+v\n%s", e, read(t, later.Output()))
			}

			if e := wait(t, earlier); e.OK() {
				t.Errorf("the earlier run: %+v\n%s", e, read(t, earlier.Output()))
			}

			if got, want := read(t, log), "5 begins\n5 ends\n6 begins\n"; got != want {
				t.Errorf("the commands wrote %q, want %q", got, want)
			}

			if _, err := os.Stat(filepath.Join(folder, "went-on")); err == nil {
				t.Error("the earlier run went on")
			}

			message := summary(t, earlier)["web-1"].Message
			expectContains(t, "message of the earlier run", message,
				"refuses this run: ", "of job 7 has taken it over", "token 0."+test.after.String()[2:])
		})
	}
}

// TestFencePausedLive: a run that stood still while a later one came does nothing when it goes on.
func TestFencePausedLive(t *testing.T) {
	t.Parallel()
	needAnsible(t)

	s := startSSHD(t)
	spec := fencedSpec(t, s, token(5, 0), `
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.shell: echo $((n+1)) >>{{ folder }}/beats
      loop: "{{ range(0, 100000) | list }}"
`)
	run := start(t, spec)
	beats := filepath.Join(spec.ExtraVars["folder"].(string), "beats")
	awaitFile(t, beats, "1\n1\n")

	paused := marked(spec.Dir, "")
	for _, pid := range paused {
		errtest.None(t, unix.Kill(pid, unix.SIGSTOP))
	}

	raised(t, s, token(6, 0))
	before := read(t, beats)

	for _, pid := range paused {
		if err := unix.Kill(pid, unix.SIGCONT); err != nil {
			t.Log(err) // an ssh may have ended
		}
	}

	if e := wait(t, run); e.Reason != Done || e.Code == 0 {
		t.Errorf("exit %+v", e)
	}

	if after := read(t, beats); after != before {
		t.Errorf("it did %d beats, and %d after it was locked out", len(before)/2, (len(after)-len(before))/2)
	}
	expectContains(t, "output", read(t, run.Output()), "127.0.0.2 refuses this run", "has taken it over")
}

// TestFenceFilesLive: a lower token changes no file on the host, and reads none.
func TestFenceFilesLive(t *testing.T) {
	t.Parallel()
	needAnsible(t)

	s := startSSHD(t)
	raised(t, s, token(6, 0))

	for _, method := range []string{"smart", "piped"} {
		spec := fencedSpec(t, s, token(5, 0), `
- hosts: all
  gather_facts: false
  vars: {ansible_ssh_transfer_method: `+method+`}
  tasks:
    - script: hello.sh you
      ignore_errors: true
    - fetch: {src: "{{ playbook_dir }}/files/large", dest: "{{ folder }}/fetched", flat: true}
      ignore_errors: true
    - copy: {src: large, dest: "{{ folder }}/copied", mode: "0644"}
`)
		run := start(t, spec)

		if e := wait(t, run); e.OK() {
			t.Errorf("by %s: %+v", method, e)
		}

		for _, name := range []string{"copied", "fetched"} {
			if _, err := os.Stat(filepath.Join(spec.ExtraVars["folder"].(string), name)); err == nil {
				t.Errorf("by %s: there is a file %s", method, name)
			}
		}

		if n := strings.Count(read(t, run.Output()), "refuses this run"); n < 3 {
			t.Errorf("by %s: %d tasks were refused:\n%s", method, n, read(t, run.Output()))
		}
	}
}

const everyWay = `
- hosts: all
  gather_facts: false
  tasks:
    - raw: echo raw
    - script: hello.sh you
      register: said
      failed_when: "'hello from you' not in said.stdout"
    - copy: {src: large, dest: "{{ folder }}/copied", mode: "0644"}
    - fetch: {src: "{{ folder }}/copied", dest: "{{ folder }}/fetched", flat: true}
    - copy: {content: "", dest: "{{ folder }}/empty", mode: "0644"}
    - command: cat /proc/self/environ
      async: 20
      poll: 1
      register: environ
      failed_when: "('CLUSTERM_FENCE=' ~ manager ~ '/host/0/5/0/7') not in environ.stdout | default('')"
    - meta: reset_connection
    - wait_for_connection: {timeout: 20}
    - command: sh -c 'echo out; echo err >&2; exit 3'
      register: three
      failed_when: three.rc != 3 or three.stdout != 'out' or three.stderr != 'err'
    - command: cat /proc/self/environ
      become: true
      become_method: su
      become_flags: "-l"
      register: environ
      failed_when: "('CLUSTERM_FENCE=' ~ manager ~ '/host/0/5/0/7') not in environ.stdout"
    - command: cat /proc/self/environ
      delegate_to: other
      register: environ
      failed_when: "('CLUSTERM_FENCE=' ~ manager ~ '/job-7/0/5/0/7') not in environ.stdout"
- hosts: all
  connection: ssh
  gather_facts: false
  tasks:
    - raw: cat /proc/self/environ
      vars: {ansible_connection: ansible.builtin.ssh}
      register: environ
      failed_when: "('CLUSTERM_FENCE=' ~ manager ~ '/host/0/5/0/7') not in environ.stdout"
`

// TestFenceEveryWayLive: whatever way a task takes to the host, it works behind the fence.
func TestFenceEveryWayLive(t *testing.T) {
	t.Parallel()
	needAnsible(t)

	for name, vars := range map[string]string{
		"pipelining": "{ansible_ssh_transfer_method: scp}", // which is sftp behind a fence
		"files":      "{ansible_pipelining: false, ansible_ssh_transfer_method: piped}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := startSSHD(t)
			spec := fencedSpec(t, s, token(5, 0),
				strings.ReplaceAll(everyWay, "- hosts: all", "- hosts: all\n  vars: "+vars))
			spec.ExtraVars["manager"] = spec.Fence.Manager
			spec.Hosts = append(spec.Hosts, s.host("other", liveAddrs[1]))
			spec.Hosts[1].Role = configuration.RolePeer
			run := start(t, spec)

			if e := wait(t, run); !e.OK() {
				t.Errorf("exit %+v:\n%s", e, read(t, run.Output()))
			}

			if a, b := read(t, filepath.Join(spec.ExtraVars["folder"].(string), "fetched")),
				strings.Repeat("0123456789abcdef", 1<<14); a != b {
				t.Errorf("the copy of a file has %d bytes, the original %d", len(a), len(b))
			}
		})
	}
}
