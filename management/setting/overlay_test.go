// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/monitor"
)

// settable has a value for every key that the overlay may contain, none of them
// the default.
var settable = map[string]any{
	"groups": []any{
		map[string]any{"name": "service-master", "on_return": "repair", "budget": map[string]any{"min_available": 2}},
		map[string]any{
			"name": "service-worker", "requires": map[string]any{"service-master": 2},
			"strategy": map[string]any{"max_unavailable": "10%", "max_failures": 0, "soak": "5m"},
		},
	},
	"playbooks":         "/srv/playbooks",
	"vars":              map[string]any{"a": "b"},
	"secret_vars":       []any{"*_pin"},
	"ssh.user":          "root",
	"ssh.key_file":      "/etc/key",
	"ssh.port":          2222,
	"ssh.become":        true,
	"ssh.become_user":   "admin",
	"ssh.jump":          "gate",
	"ssh.python":        "/usr/bin/python3",
	"ssh.host_ca":       []any{"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDIhz2GK/XCUj4i6Q5yQJNL1MDC4Qo5Gf9dTcQZ3d9vV ca"},
	"group_ssh":         map[string]any{"service-worker": map[string]any{"user": "worker"}},
	"jobs.limit":        9,
	"jobs.timeout":      "2h",
	"jobs.forks":        5,
	"jobs.appear":       "5m",
	"jobs.runner_lease": "20m",
	"jobs.keep":         10,
	"jobs.keep_for":     "24h",
	"jobs.keep_bytes":   1 << 21,
	"jobs.output_limit": 1 << 17,
	"jobs.plan_for":     "2h",
	"jobs.plans":        7,

	"policies.commission": map[string]any{
		"workers": map[string]any{"match": "label=host", "group": "service-worker", "maximum": 5, "quiet": "1m"},
	},
	"policies.upgrade": map[string]any{
		"follow": map[string]any{"match": "label=host", "mode": "plan", "canary": 1, "max_unavailable": "10%"},
	},
	"policies.verify": map[string]any{
		"nightly": map[string]any{"match": "label=host", "cron": "0 3 * * *", "time_zone": "Europe/Berlin"},
	},
	"windows": []any{map[string]any{
		"name": "nightly", "cron": "0 2 * * *", "duration": "3h", "time_zone": "Europe/Berlin",
		"groups": []any{"service-worker"},
	}},
	"policies.settle":              "2m",
	"policies.jobs":                4,
	"policies.rate":                40,
	"policies.brake.share":         50,
	"policies.brake.minimum":       9,
	"policies.brake.within":        "1m",
	"policies.brake.release_after": "0s",

	"max_body":                4096,
	"monitor_timeout":         "10m",
	"discovered":              "manageable",
	"inspection.class_blocks": true,
	"inspection.rules": []any{map[string]any{
		"name": "small", "when": "facts.memory_mb<64000", "labels": map[string]any{"size": "small"},
		"fail": "it has too little memory",
	}},
	"max_requests": 100,
	"max_streams":  20,
	"log_level":    "debug",
}

// noOverlay is a store without an overlay.
type noOverlay struct{ state.Reader }

func (noOverlay) View() *state.View { return &state.View{} }

// TestOverlay sets every settable key, alone and together. The value is in
// force, the file's configuration is unchanged, and without the overlay it is
// back.
func TestOverlay(t *testing.T) {
	t.Parallel()

	no := false
	file := Default()
	file.SSH.Become = &no
	file.Vars = map[string]any{"file": "x"}
	file.GroupSSH["service-master"] = file.SSH.Connection

	before := fmt.Sprintf("%+v", entries(file))
	unchanged := func() bool { return fmt.Sprintf("%+v", entries(file)) == before && !no }

	for _, e := range entries(file) {
		if isFileKey(e.key) {
			// An older version may have stored it.
			stored := map[string]any{e.key: "x", "jobs.limit": 9}

			c, err := overlaid(file, stored)
			if err != nil || c.Jobs.Limit != 9 || !slices.Equal(misplaced(stored), []string{e.key}) {
				t.Errorf("%s: %v, %d, %v", e.key, err, c.Jobs.Limit, misplaced(stored))
			}
			c.Jobs.Limit = file.Jobs.Limit
			if !reflect.DeepEqual(c, file) {
				t.Errorf("%s of the overlay is in force", e.key)
			}

			v := values(c, nil, stored, monitor.Identity{})
			if v[e.key].Origin == OriginOverlay || v["jobs.limit"].Origin != OriginOverlay {
				t.Errorf("%s: %+v, %+v", e.key, v[e.key], v["jobs.limit"])
			}

			_, err = (&Settings{opts: Options{State: noOverlay{}}, current: file}).patched(nil, stored)
			checkError(t, err, inventory.KindRefused, e.key+" belongs to the configuration file")

			continue
		}

		value, ok := settable[e.key]
		if !ok {
			t.Errorf("the test has no value for %s", e.key)
			continue
		}

		c, err := overlaid(file, map[string]any{e.key: value})
		if err != nil {
			t.Errorf("%s: %v", e.key, err)
			continue
		}

		for i, got := range entries(c) {
			if changed := !reflect.DeepEqual(got.value, entries(file)[i].value); changed != (got.key == e.key) {
				t.Errorf("with %s set, %s is %v", e.key, got.key, got.value)
			}
		}

		if !unchanged() {
			t.Fatalf("setting %s changed the file's configuration", e.key)
		}
	}

	c, err := overlaid(file, settable)
	errtest.None(t, err)

	// Maps are replaced, not merged.
	if c.Vars["file"] != nil || len(c.GroupSSH) != 1 || c.GroupSSH["service-worker"].User != "worker" {
		t.Errorf("vars %v, group_ssh %v", c.Vars, c.GroupSSH)
	}

	if !*c.SSH.Become || c.DataDir != file.DataDir {
		t.Errorf("ssh.become is %v, data_dir %s", *c.SSH.Become, c.DataDir)
	}

	if !unchanged() {
		t.Error("setting all keys changed the file's configuration")
	}

	if again, err := overlaid(file, nil); err != nil || fmt.Sprintf("%+v", entries(again)) != before {
		t.Errorf("without the overlay: %v, %v", again, err)
	}
}

// TestOverlayRefuses checks that an invalid overlay changes nothing.
func TestOverlayRefuses(t *testing.T) {
	t.Parallel()

	no := false
	file := Default()
	file.SSH.Become = &no
	before := fmt.Sprintf("%+v", entries(file))

	for key, value := range map[string]any{
		"nope":       1,
		"jobs":       map[string]any{"limit": 1},
		"jobs.nope":  1,
		"jobs.limit": "many",
		"jobs.keep":  0,
		"groups":     []any{},
		"vars":       map[string]any{"ansible_user": "x"},
		"ssh.become": "perhaps",
		"group_ssh":  map[string]any{"nope": map[string]any{"user": "x"}},
		"log_level":  "loud",
		"max_body":   -1,
		"ssh":        map[string]any{"user": "x"},
	} {
		_, err := overlaid(file, map[string]any{key: value, "jobs.forks": 7, "ssh.become": value})
		checkError(t, err, inventory.KindInvalid)

		if fmt.Sprintf("%+v", entries(file)) != before || no {
			t.Fatalf("refusing %s changed the file's configuration", key)
		}
	}
}

// TestUnfit: the policy of an own group fits the file only with the groups, and stays.
func TestUnfit(t *testing.T) {
	t.Parallel()

	file := Default()
	file.Repository.URL = "https://git.example.com/playbooks"

	overlay := map[string]any{
		"groups":              []any{map[string]any{"name": "db"}},
		"group_ssh":           map[string]any{"db": map[string]any{"user": "x"}},
		"policies.commission": map[string]any{"db": map[string]any{"match": "label=db", "group": "db", "maximum": 5}},
		"playbooks":           "/srv/playbooks",
	}

	if got := unfit(file, overlay); !slices.Equal(got, []string{"playbooks"}) {
		t.Errorf("%v", got)
	}
}
