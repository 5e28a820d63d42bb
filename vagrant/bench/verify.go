// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/contiv/cluster/inventory"
)

// The playbooks of the row verify: on hosts as they configure them, check mode has
// nothing to change.
const (
	verifySite = `- hosts: %s
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
	verifyCheck = `- hosts: %s
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

// verify compares verifications with plain runs of the same playbooks.
func verify(ctx context.Context, b *bench) error {
	return inLab(ctx, func(key string) error {
		return b.verifyOn(ctx, "ssh: {user: root, key_file: "+key+"}\n", labHosts, labTool, "run")
	})
}

// verifyOn measures verifications of the first hosts, as jobOn does jobs.
func (b *bench) verifyOn(ctx context.Context, extra string, hosts int, through ...string) error {
	play := filepath.Join(b.dir, "playbooks-verify")
	if err := os.MkdirAll(play, 0o700); err != nil {
		return err
	}

	for file, text := range map[string]string{
		"site.yml": verifySite, "verify.yml": verifyCheck, "cleanup.yml": verifyCheck,
	} {
		if err := os.WriteFile(filepath.Join(play, file), fmt.Appendf(nil, text, "all"), 0o600); err != nil {
			return err
		}
	}

	w, err := b.world(ctx, "playbooks: "+play+"\n"+extra, through...)
	if err != nil {
		return err
	}
	defer w.discard()

	nodes, err := w.reportLab(ctx, hosts)
	if err != nil {
		return err
	}

	if _, err := w.seconds(ctx, inventory.VerbCommission, "service-master", nodes); err != nil {
		return err
	}

	models, err := w.copyModels(ctx, inventory.VerbVerify, nodes, filepath.Join(b.dir, "verify"))
	if err != nil {
		return err
	}

	return b.compare(ctx, comparison{
		name:    fmt.Sprintf("verification, %d hosts", hosts),
		unit:    "s",
		against: "ansible-playbook verify.yml, then --check --diff site.yml",
		rounds:  5,
		floor:   atMost(1.1, 0, "<= 1.1 x"),
		product: func(ctx context.Context) (float64, error) {
			return w.seconds(ctx, inventory.VerbVerify, "", nodes)
		},
		baseline: func(ctx context.Context) (float64, error) { return b.plain(ctx, models, false, through) },
	})
}
