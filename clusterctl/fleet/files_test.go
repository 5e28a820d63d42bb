// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/cluster/clusterctl/fleet"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
)

func TestSources(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()

	files := map[string]string{"b.yml": "b", "a.yaml": "a", "c.json": "c", "d.txt": "d", ".e.yaml": "e"}
	for name, data := range files {
		errtest.None(t, os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600))
	}

	sources, err := fleet.Sources(dir, nil)
	if err != nil || len(sources) != 3 || filepath.Base(sources[0].Name) != "a.yaml" || sources[2].Text != "c" {
		t.Errorf("%v: %v", sources, err)
	}

	for _, path := range []string{filepath.Join(dir, "none"), t.TempDir()} {
		if _, err := fleet.Sources(path, nil); inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("%s: %v", path, err)
		}
	}

	if err := os.WriteFile(
		filepath.Join(dir, "binary.yaml"),
		[]byte("fleet: 1\nvars: {a: \xff}\n"),
		0o600,
	); err != nil {
		t.Fatal(err)
	}

	_, err = fleet.Sources(filepath.Join(dir, "binary.yaml"), nil)
	if inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(err.Error(), "not UTF-8 text") {
		t.Error(err)
	}
}

// TestFillSecrets reads secrets beside the fleet file, and names the positions of those that
// have no value.
func TestFillSecrets(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	errtest.None(t, os.WriteFile(filepath.Join(dir, "pin"), []byte("1234\n"), 0o600))
	at := api.FleetPlace{File: filepath.Join(dir, "a.yaml"), Line: 2, Column: 3}
	steps := func(secrets ...api.FleetSecret) []api.FleetStep {
		apply := &api.FleetApply{}
		for _, s := range secrets {
			s.At = at
			apply.Changes = append(apply.Changes, api.FleetWrite{Secret: &s})
		}

		return []api.FleetStep{{Job: &api.JobRequest{}}, {Apply: apply}}
	}

	filled := steps(api.FleetSecret{File: "pin"})

	err := fleet.FillSecrets(filled)
	if w := filled[1].Apply.Changes[0]; err != nil || string(w.To) != `"1234"` || w.Secret != nil {
		t.Errorf("%s: %v", w.To, err)
	}

	err = fleet.FillSecrets(steps(api.FleetSecret{File: "none"}, api.FleetSecret{Env: "CLUSTERCTL_NO_SUCH_VARIABLE"}))
	if inventory.KindOf(err) != inventory.KindInvalid || strings.Count(err.Error(), at.String()+": ") != 2 {
		t.Error(err)
	}
}
