// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/contiv/cluster/configuration"
)

const maskingPlays = `
- name: site
  hosts: job_targets
  gather_facts: false
  vars: {first: "{{ my_passwords | first }}"}
  tasks:
    - ansible.builtin.debug: {var: my_passwords}
    - ansible.builtin.debug: {msg: "the password is {{ item }}"}
      loop: "{{ my_passwords }}"
    - ansible.builtin.debug: {msg: "{{ {'a': my_passwords, 'b': my_passwords | to_json} | to_nice_json | to_json }}"}
    - ansible.builtin.debug: {msg: "{{ my_passwords | to_nice_yaml }}"}
    - ansible.builtin.debug:
        msg: "{{ first | urlencode }} {{ my_passwords | map('quote') | map('quote') | join(' ') }}"
    - ansible.builtin.debug: {msg: "{{ {'in': my_passwords}.__repr__() }}"}
    - ansible.builtin.assert: {that: "item == ''", fail_msg: "it is {{ [item] }}"}
      loop: "{{ my_passwords }}"
      ignore_errors: true
    - ansible.builtin.fail: {msg: "{{ item }}"}
      loop: ["{{ my_passwords }}", {secret: "{{ my_passwords }}"}]
      ignore_errors: true
    - ansible.builtin.template: {src: app.j2, dest: "{{ folder }}/app"}
    - ansible.builtin.shell: printf %s {{ my_passwords | map('quote') | join(' ') }} >&2; exit 3
      ignore_errors: true
    - ansible.builtin.command: "{{ first | quote }} --now"
      ignore_errors: true
    - ansible.builtin.raw: "printf %s {{ first | quote }}"
    - ansible.builtin.file: {path: "/proc/{{ first }}/x", state: directory}
      ignore_errors: true
    - ansible.builtin.get_url: {url: "{{ first }}", dest: "{{ folder }}", checksum: "{{ first }}"}
      ignore_errors: true
`

const maskingTemplate = `{{ my_passwords | to_nice_yaml }}
{{ my_passwords | to_json }}
{{ {'in': my_passwords | to_nice_json} | to_json }}
{% for p in my_passwords %}
password = {{ p }}
{% endfor %}
`

// TestLiveMasking: whatever Ansible makes of a secret, its output and events do not show it. Each secret has a word
// in its middle, which no form changes.
func TestLiveMasking(t *testing.T) {
	t.Parallel()
	needAnsible(t)

	const (
		word = "Canary"
		odd  = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ \\\\\"\"''<>&é€漢😀"
	)

	sshd, r := startSSHD(t), rand.New(rand.NewPCG(3, 4))

	half := func() string {
		var b strings.Builder
		for range 6 {
			b.WriteRune([]rune(odd)[r.IntN(len([]rune(odd)))])
		}

		return b.String()
	}

	var secrets []any
	for range 12 {
		secrets = append(secrets, "a"+half()+word+half()+"z")
	}

	for _, verbosity := range []int{0, 4} {
		t.Run(fmt.Sprint("v", verbosity), func(t *testing.T) {
			t.Parallel()

			s := limitSpec(t, fstest.MapFS{
				"cleanup.yml":      {Data: []byte(maskingPlays)},
				"templates/app.j2": {Data: []byte(maskingTemplate)},
			})
			s.Hosts = []configuration.Host{sshd.host("web-1", liveAddrs[0])}
			s.Options = configuration.AnsibleOptions{Diff: true, Verbosity: verbosity}
			s.ExtraVars = configuration.Vars{"folder": t.TempDir(), "my_passwords": secrets}
			s.Secrets = configuration.DefaultSecrets().Values(s.ExtraVars)

			run := start(t, s)

			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()

			exit, err := run.Wait(ctx)
			out, events := read(t, run.Output()), read(t, run.Events())

			if err != nil || !exit.OK() || strings.Count(out, configuration.Hidden) < 10*len(secrets) {
				t.Errorf("exit %+v, %v:\n%s", exit, err, out)
			}

			for line := range strings.Lines(out + events) {
				if strings.Contains(line, word) {
					t.Errorf("a secret is shown: %s", line)
				}
			}
		})
	}
}
