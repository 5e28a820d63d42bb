// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// TestVulnerableAnsible: an ansible-playbook that evaluates text of hosts runs no job,
// and the health names it; the configuration may accept it, which the health names, too.
func TestVulnerableAnsible(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.report("a")

	original, err := os.ReadFile("testdata/fake/ansible-playbook")
	s.must(err)

	// It carries out the lookup of the probe, and counts its probes.
	probes := filepath.Join(s.dir, "probes")
	evaluates := `	echo once >>` + probes + `
	sed -n "s/.*'touch \([^']*\)'.*/\1/p" "$extra" | head -n 1 | xargs touch
	echo clusterm-probe-done`
	vulnerable := filepath.Join(s.dir, "vulnerable-playbook")
	s.must(writeProgram(vulnerable, strings.Replace(string(original), "	echo clusterm-probe-done", evaluates, 1)))

	s.write("ansible_playbook: " + vulnerable)
	s.must(s.Reload())

	request := api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}}
	for range 2 {
		_, err := s.Client.Submit(s.ctx(), request)
		if inventory.KindOf(err) != inventory.KindRefused ||
			!strings.Contains(err.Error(), "accept_vulnerable_ansible") {
			t.Errorf("a job is accepted: %v", err)
		}
	}

	h, err := s.Health(s.ctx())
	if err != nil || !strings.Contains(h.Checks["ansible"], "as a template") || h.Status == api.HealthOK {
		t.Errorf("%+v, %v", h, err)
	}

	if _, err = s.Client.PatchConfig(s.ctx(), map[string]any{"accept_vulnerable_ansible": true}); err == nil {
		t.Error("the API accepts a vulnerable Ansible")
	}

	s.write("ansible_playbook: "+vulnerable, "accept_vulnerable_ansible: true")
	s.must(s.Reload())
	s.runJob(request)

	h, err = s.Health(s.ctx())
	if err != nil || h.Checks["ansible"] != "ok" ||
		!strings.Contains(strings.Join(h.Warnings, "\n"), "accept_vulnerable_ansible is set") {
		t.Errorf("%+v, %v", h, err)
	}

	if text, err := os.ReadFile(probes); err != nil || string(text) != "once\n" {
		t.Errorf("the program was probed %q, %v", text, err)
	}
}
