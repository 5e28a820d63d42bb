// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/contiv/cluster/ansible"
	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory/errtest"
)

// describe returns the hosts of plays, and whether they are unknown.
func describe(plays []configuration.Play) string {
	type play struct {
		Hosts   []string
		Unknown bool
	}

	short := []play{}
	for _, p := range plays {
		short = append(short, play{p.Hosts, p.Unknown})
	}

	return fmt.Sprint(short)
}

func TestPlays(t *testing.T) {
	t.Parallel()

	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

	store := &Store{Dir: filepath.Join(t.TempDir(), "playbooks")}
	digest, err := store.Keep(t.Context(), fstest.MapFS{
		"site.yml": file(`
- name: one
  hosts: &masters service-master:&job_targets
  vars: {secret: !vault "x"}
- hosts: [a, b]
- {hosts: *masters, roles: [x]}
- import_playbook: parts/more.yml
- ansible.builtin.import_playbook: "{{ which }}.yml"
- import_playbook: company.collection.site
- nothing: here
`),
		"parts/more.yml": file("- import_playbook: last.yml\n"),
		"parts/last.yml": file("- hosts: '{{ x }}'\n"),
		"loop.yml":       file("- import_playbook: loop.yml\n"),
		"vault.yml":      file("$ANSIBLE_VAULT;1.1;AES256\n6162\n"),
		"broken.yml":     file("- hosts: [a\n"),
		"empty.yml":      file("[]\n"),
	})
	errtest.None(t, err)

	const masters = "{[service-master:&job_targets] false}"

	const dynamic = "{[] true}"

	for playbook, want := range map[string]string{
		"site.yml": "[" + masters + " {[a b] false} " + masters + " {[{{ x }}] false} " +
			dynamic + " " + dynamic + " " + dynamic + "]",
		"loop.yml":    "[" + dynamic + "]",
		"vault.yml":   "[" + dynamic + "]",
		"broken.yml":  "[" + dynamic + "]",
		"missing.yml": "[" + dynamic + "]",
		"empty.yml":   "[]",
	} {
		if got := describe(store.Plays(digest, playbook)); got != want {
			t.Errorf("%s: got %s, want %s", playbook, got, want)
		}
	}

	// The bundled playbooks have no dynamic parts.
	bundled, err := store.Keep(t.Context(), ansible.FS())
	errtest.None(t, err)

	for _, playbook := range []string{"site.yml", "cleanup.yml", "rolling-upgrade.yml", "discover-undo.yml"} {
		for _, p := range store.Plays(bundled, playbook) {
			if p.Unknown || len(p.Hosts) != 1 {
				t.Errorf("%s has the play %v", playbook, p)
			}
		}
	}
}

// TestPlaysAsk: variables of a prompt without a default are asked for.
func TestPlaysAsk(t *testing.T) {
	t.Parallel()

	store := &Store{Dir: filepath.Join(t.TempDir(), "playbooks")}
	digest, err := store.Keep(t.Context(), fstest.MapFS{"site.yml": {Data: []byte(`
- hosts: all
  vars_prompt:
    - {name: release, prompt: which one}
    - {name: sure, default: "no"}
    - {name: empty, default: ""}
    - {name: nothing, default: ~}
    - {prompt: without a name}
    - text
- {hosts: all, vars_prompt: {old: form}}
- hosts: all
`)}})
	errtest.None(t, err)

	var got []string
	for _, p := range store.Plays(digest, "site.yml") {
		got = append(got, fmt.Sprint(p.Asks))
	}

	if want := []string{"[release nothing]", "[]", "[]"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
