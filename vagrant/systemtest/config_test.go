// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// TestReload: a changed configuration file takes effect at a reload; a file that is
// refused leaves the old configuration in force, and fails the reload. A manager that
// cannot start shows its reason.
func TestReload(t *testing.T) {
	w := newWorld(t, setup{hosts: 2})
	w.labDo("cp", "testdata/playbooks", "host1:"+testPlaybooks)
	setting := func(key string) api.Setting {
		return decode[api.Config](w, w.ctl("config", "get", key, "-o", "json"))[key]
	}
	reload := func(file, journal string) {
		t.Helper()
		w.write("host1", configFile, file)
		w.sh("host1", "journalctl --rotate; journalctl -q --vacuum-time=1us; systemctl reload clusterm")
		await(t, 10*time.Second, "the journal has "+journal, func() (bool, string) {
			out := w.sh("host1", "journalctl -o cat -u clusterm").stdout
			return strings.Contains(out, journal), out
		})
	}
	// The daemon started without a file.
	reload("jobs: {limit: 3}\nplaybooks: "+testPlaybooks+"\n", "was reloaded")

	if s := setting("jobs.limit"); s.Value != 3.0 || s.Origin != "file" {
		t.Errorf("jobs.limit is %v, from the %s", s.Value, s.Origin)
	}

	w.awaitState(inventory.Discovered, "host2")

	j := w.commission(master, "host2")
	if log := w.ctl("job", "logs", j.ID).stdout; !strings.Contains(log, "Write the file") {
		t.Errorf("the playbooks of the changed file were not used: %s", log)
	}

	refused := func(file, reason string) {
		t.Helper()
		w.write("host1", configFile, file)

		if r := w.try("host1", "systemctl reload clusterm"); r.code == 0 {
			t.Errorf("systemctl reload accepted %q", file)
		}

		if out := w.sh("host1", "systemctl status clusterm").stdout; !strings.Contains(out, "Status: \"serving with") ||
			!strings.Contains(out, reason) {
			t.Errorf("systemctl status lacks %s:\n%s", reason, out)
		}

		if r := w.tryCtl("status"); r.code == 0 || !strings.Contains(r.stdout+r.stderr, reason) {
			t.Errorf("health lacks %s: %d\n%s%s", reason, r.code, r.stdout, r.stderr)
		}
	}
	refused("jobs: {limit: 4, limmit: 4}\n", "limmit")
	refused("jobs: {limit: 4}\ndata_dir: /elsewhere\n", "data_dir cannot change")
	refused("groups: [{name: other}]\n", w.name("host2"))

	if s := setting("jobs.limit"); s.Value != 3.0 {
		t.Errorf("a refused file changed jobs.limit to %v", s.Value)
	}

	// A setting at run time overrides the file until it is unset.
	w.ctl("config", "set", "jobs.limit=5")
	reload("jobs: {limit: 6}\nplaybooks: "+testPlaybooks+"\n", "was reloaded")

	if s := setting("jobs.limit"); s.Value != 5.0 || s.Origin != "overlay" {
		t.Errorf("jobs.limit is %v, from the %s", s.Value, s.Origin)
	}

	w.ctl("config", "unset", "jobs.limit")

	if s := setting("jobs.limit"); s.Value != 6.0 || s.Origin != "file" {
		t.Errorf("jobs.limit is %v, from the %s", s.Value, s.Origin)
	}

	// A manager that starts again and again.
	w.write("host1", configFile, "jobs: {limmit: 4}\n")
	w.sh("host1", "systemctl restart --no-block clusterm")
	await(t, 10*time.Second, "systemctl status shows the cause", func() (bool, string) {
		out := w.try("host1", "systemctl status clusterm").stdout
		return strings.Contains(out, "Status: \"the configuration "+configFile+" is wrong: line 1: key limmit"), out
	})
	w.wantRefused(6, []string{"clusterm is not running; it failed at", "line 1: key limmit"}, "nodes", "get")

	w.sh("host1", "rm "+configFile)
	w.awaitHealthy()
}
