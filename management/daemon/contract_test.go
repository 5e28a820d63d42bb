// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// TestContract drives a whole daemon by the first generation's contract alone,
// as its clients do: any success is 200, any failure 500 with the reason.
func TestContract(t *testing.T) {
	t.Parallel()
	s := begin(t, "plain_http_role: admin")
	ok := func(path, body string) {
		t.Helper()

		if code, text := s.post(path, body); code != http.StatusOK || text != "" {
			t.Fatalf("POST %s: %d %q", path, code, text)
		}
	}
	fails := func(path, body string, words ...string) {
		t.Helper()

		code, text := s.post(path, body)
		if code != http.StatusInternalServerError {
			t.Errorf("POST %s %s: %d %q", path, body, code, text)
		}

		for _, w := range words {
			if !strings.Contains(text, w) {
				t.Errorf("POST %s %s: %q is not in %q", path, body, w, text)
			}
		}
	}
	read := func(path string, into any) {
		t.Helper()

		code, text := s.get(path)
		if code != http.StatusOK {
			t.Fatalf("GET %s: %d %q", path, code, text)
		}
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatalf("GET %s: %v in %q", path, err, text)
		}
	}
	nodes := func() string {
		t.Helper()
		all := map[string]api.LegacyNodeInfo{}
		read(api.LegacyNodes, &all)

		var out []string
		for _, name := range []string{"a-1", "b-1", "c-1"} {
			if n, ok := all[name]; ok {
				out = append(
					out,
					strings.TrimSpace(
						fmt.Sprintf("%s %s %s %s", name, n.Inventory.Status, n.Inventory.State, n.Configuration.Group),
					),
				)
			}
		}

		return strings.Join(out, ", ")
	}
	want := func(expected string) {
		t.Helper()

		if got := nodes(); got != expected {
			t.Errorf("nodes are\n%s, want\n%s", got, expected)
		}
	}
	// ended follows the newest job's log to its end, and returns the job.
	ended := func() (api.LegacyJobInfo, string) {
		t.Helper()
		jobs := s.View().Jobs()
		id := jobs[len(jobs)-1].ID

		code, log := s.get("/info/logs/" + id)
		if code != http.StatusOK {
			t.Fatalf("%d %s", code, log)
		}

		var j api.LegacyJobInfo
		read("/info/job/"+id, &j)

		return j, log
	}

	// Discovered, in each of the three forms.
	ok(
		"/monitor/event",
		`{"monitor_event":{"name":"DISCOVERED","nodes":[{"label":"a","serial":"1","addr":"10.0.0.1"}]}}`,
	)
	ok("/monitor/event/discovered", `[{"Node-Label":"b","Node-Serial":"1","Node-Mgmt-Address":"10.0.0.2"}]`)
	ok("/monitor/discovered/c-1", `{"Node-Label":"c","Node-Serial":"1","Node-Mgmt-Address":"10.0.0.3"}`)
	fails("/monitor/discovered/x-1", `{"Node-Label":"c","Node-Serial":"1","Node-Mgmt-Address":"10.0.0.3"}`, "x-1")
	fails("/monitor/event", `{"monitor_event":{"name":"discovered","nodes":[]}}`)
	fails(
		"/monitor/event",
		`{"monitor_event":{"name":"exploded","nodes":[{"label":"a","serial":"1","addr":"10.0.0.1"}]}}`,
		"exploded",
	)
	want("a-1 Unallocated Discovered, b-1 Unallocated Discovered, c-1 Unallocated Discovered")

	ok("/globals", `{"extra_vars":"{\"env\": \"prod\"}"}`)

	code, text := s.get("/info/globals")
	if code != 200 || !strings.Contains(text, `"env"`) {
		t.Errorf("%d %s", code, text)
	}

	// Commission: the default group first, then workers.
	fails("/commission/nodes", `{"nodes":["b-1"],"host_group":"service-worker"}`, "b-1 cannot join service-worker")
	fails("/commission/nodes", `{"nodes":["x-1","y-1","a-1"]}`, "x-1, y-1")
	fails("/commission/nodes", `{"nodes":[]}`)
	fails("/commission/nodes", `{"nodes":["a-1"],"extra_vars":"[1]"}`)
	fails("/commission/nodes", `{"nodes":["a-1"],"extra_vars":{"ansible_connection":"local"}}`, "ansible_connection")
	fails("/commission/nodes", `{"nodes":["a-1"],`)

	if len(s.View().Jobs()) != 0 {
		t.Error("a refused request left a job")
	}

	ok("/commission/nodes", `{"nodes":["a-1"]}`)

	job, log := ended()
	if job.Status != "Complete" || job.Error != "" || !strings.Contains(log, "PLAY [site.yml]") ||
		!strings.Contains(log, "changed: [a-1]") {
		t.Errorf("%+v\n%s", job, log)
	}

	ok("/commission/nodes", `{"nodes":["b-1","c-1"],"host_group":"service-worker","extra_vars":{"fails_on":"c-1"}}`)

	if job, log = ended(); job.Status != "Errored" ||
		!strings.Contains(job.Error, "c-1: task \"Install\": no such package") ||
		!strings.Contains(log, "PLAY [cleanup.yml]") {
		t.Errorf("%+v\n%s", job, log)
	}

	want("a-1 Allocated Discovered service-master, b-1 Unallocated Discovered, c-1 Unallocated Discovered")
	ok("/commission/nodes?extra_vars=%7B%22x%22%3A%22y%22%7D", `{"nodes":["b-1","c-1"],"host_group":"service-worker"}`)
	ended()
	want(
		"a-1 Allocated Discovered service-master, b-1 Allocated Discovered service-worker, c-1 Allocated Discovered " +
			"service-worker",
	)

	fails("/decommission/nodes", `{"nodes":["a-1"]}`, "without a-1", "b-1, c-1")
	ok("/maintenance/nodes", `{"nodes":["a-1","b-1"]}`)

	if job, log = ended(); job.Status != "Complete" || !strings.Contains(log, "PLAY [rolling-upgrade.yml]") {
		t.Errorf("%+v\n%s", job, log)
	}

	ok("/update/nodes", `{"nodes":["c-1"],"host_group":"service-master"}`)
	ended()
	ok("/decommission/nodes", `{"nodes":["a-1"]}`)
	ended()
	want(
		"a-1 Decommissioned Discovered, b-1 Allocated Discovered service-worker, c-1 Allocated Discovered " +
			"service-master",
	)
	ok(
		"/monitor/event/disappeared",
		`[{"Node-Label":"b","Node-Serial":"1","Node-Mgmt-Address":"10.0.0.2"},{"Node-Label":"z","Node-Serial":"1",`+
			`"Node-Mgmt-Address":"10.0.0.9"}]`,
	)
	want(
		"a-1 Decommissioned Discovered, b-1 Allocated Disappeared service-worker, c-1 Allocated Discovered " +
			"service-master",
	)
	fails("/discover/nodes", `{"addrs":["10.0.0.9"]}`, "gossip: off")

	var one api.LegacyNodeInfo
	read("/info/node/c-1", &one)

	if one.Monitoring.Label != "c" || one.Monitoring.Serial != "1" || one.Monitoring.Addr != "10.0.0.3" ||
		one.Inventory.Name != "c-1" ||
		one.Inventory.PrevStatus != string(inventory.Maintenance) ||
		one.Configuration.Addr != "10.0.0.3" ||
		fmt.Sprint(one.Configuration.Vars["env"]) != "prod" {
		t.Errorf("%+v", one)
	}

	if code, _ = s.get("/info/node/x-1"); code != http.StatusInternalServerError {
		t.Errorf("an unknown node: %d", code)
	}

	if code, _ = s.get("/info/job/active"); code != http.StatusInternalServerError {
		t.Errorf("no active job: %d", code)
	}

	read("/info/job/last", &job)

	if job.Status != "Complete" {
		t.Errorf("%+v", job)
	}

	ok("/config", `{"config":{"jobs.limit":2}}`)

	if got := s.settings.Engine().JobLimit; got != 2 {
		t.Errorf("jobs.limit is %d", got)
	}

	fails("/config", `{"config":{"data_dir":"/x"}}`, "data_dir")
}

// TestLogOfLargeRequests: a request fills no more than a page of the log, however
// large it is.
func TestLogOfLargeRequests(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.report("a")

	large := strings.Repeat("x", 900<<10)
	names := `["` + strings.Repeat("a-1\",\"b", 100_000) + `"]`

	for _, r := range []struct{ path, body string }{
		{"/commission/nodes", `{"nodes":["` + large + `"]}`},
		{"/commission/nodes", `{"nodes":` + names + `}`},
		{"/commission/nodes", `{"nodes":["a-1"],"host_group":"` + large + `"}`},
		{"/commission/nodes", `{"nodes":["a-1"],"extra_vars":{"` + large + `":1}}`},
		{"/commission/nodes", `{"nodes":["a-1"],"extra_vars":"` + large + `"}`},
		{"/globals", `{"extra_vars":{"` + large + `":1}}`},
		{"/discover/nodes", `{"addrs":["` + large + `"]}`},
		{"/monitor/event", `{"monitor_event":{"name":"` + large + `"}}`},
		{"/monitor/event", `{"monitor_event":{"name":"discovered","nodes":[{"label":"` + large + `","serial":"1"}]}}`},
		{"/config", `{"config":{"` + large + `":1}}`},
		{"/v1/jobs", `{"verb":"` + large + `","nodes":["a-1"]}`},
		{"/v1/jobs", `{"verb":"clear","nodes":["a-1"],"force":true,"reason":"` + large + `"}`},
		{"/v1/jobs", `{"` + large + `":1}`},
		{"/v1/observations", `{"observer":"` + large + `","observations":[]}`},
		{"/commission/node/" + large[:60<<10], ``},
		{"/" + large[:60<<10], ``},
		{"/globals?extra_vars=" + large[:60<<10], ``},
	} {
		if code, text := s.post(r.path, r.body); code < 400 {
			t.Errorf("%.40s %.60s: %d %s", r.path, r.body, code, text)
		}
	}

	s.log.mu.Lock()
	defer s.log.mu.Unlock()

	if limit := 16 << 10; s.log.longest > limit {
		t.Errorf("a line of the log has %d bytes, more than %d", s.log.longest, limit)
	}
}
