// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/etcd/tool"
)

const testQuota = 8 << 20

// fill writes new revisions of a key outside the manager's view until the store is full.
func (s *site) fill() {
	s.t.Helper()

	value := strings.Repeat("x", testQuota/64)
	for range 1000 {
		if _, err := s.etcd.Put(s.ctx(), "/filler", value); etcd.IsFull(err) {
			return
		}
	}

	s.t.Fatal("the store is not full")
}

// managerID returns the identity that prepared hosts would get.
func (s *site) managerID() string { return s.gossip.Manager() }

func (s *site) space() string {
	s.t.Helper()
	h, err := s.Health(s.ctx())
	s.must(err)
	return h.Checks["space"]
}

// TestFullStore fills the store. Reads continue, also after a restart; each refusal and
// the health name the reason; jobs outside the retention can be removed; and once the
// upkeep has made room, everything continues without another restart.
func TestFullStore(t *testing.T) {
	t.Parallel()
	s := prepare(t)
	s.tune = func(o *Options) { o.Quota, o.UpkeepEvery = testQuota, -1 }
	s.up()
	t.Cleanup(s.down)
	s.report("a")
	j := s.runJob(api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}})
	s.runJob(api.JobRequest{Verb: inventory.VerbMaintenance, Nodes: []string{"a-1"}})
	s.fill()

	checkRefused := func() {
		t.Helper()

		_, err := s.Client.SetVars(s.ctx(), client.ScopeGlobal, api.Vars{"one": "1"})
		if inventory.KindOf(err) != inventory.KindUnavailable || !strings.Contains(err.Error(), "the store is full") {
			t.Errorf("got %v, want a refusal with the reason", err)
		}

		if got := s.space(); !strings.Contains(got, "clusterm store disarm") || !strings.Contains(got, "NOSPACE") {
			t.Errorf("the health reports %q", got)
		}

		status, text := s.get(api.PathNodes + "/a-1")
		if status != http.StatusOK || !strings.Contains(text, "Allocated") {
			t.Errorf("a read is answered with %d: %s", status, text)
		}
	}
	checkRefused()

	_, text := s.get(api.PathMetrics)
	if !strings.Contains(text, `clusterm_etcd_alarm{alarm="NOSPACE"`) {
		t.Error("no metric of the alarm")
	}

	// Without the identity, the next start has to write one.
	_, err := s.etcd.Delete(s.ctx(), s.etcd.Prefix+"/identity")
	s.must(err)

	s.restart()
	checkRefused()

	if s.managerID() != "" {
		t.Error("a full store has accepted an identity")
	}

	if s.member.Leads() {
		t.Error("an instance without a lease leads")
	}

	if h, err := s.Health(s.ctx()); err != nil || !strings.Contains(h.Checks["instance"], "reads only") {
		t.Errorf("%+v, %v", h, err)
	}

	// Retention from the configuration file: it needs no write.
	s.write("jobs: {keep: 1}")
	s.must(s.Reload())
	s.must(s.engine.Prune(s.ctx()))

	if _, err := s.Job(s.ctx(), j.ID); inventory.KindOf(err) != inventory.KindNotFound {
		t.Errorf("got %v, want no such job: it is outside the retention", err)
	}

	s.down()
	s.tune = func(o *Options) { o.Quota, o.UpkeepEvery = testQuota, 20*time.Millisecond }
	s.up()
	s.eventually("a change", func() bool {
		_, err := s.Client.SetVars(s.ctx(), client.ScopeGlobal, api.Vars{"one": "1"})
		return err == nil
	})
	s.eventually("the right to run jobs", s.member.Leads)
	s.eventually("the identity of the manager", func() bool { return s.managerID() != "" })

	if got := s.space(); got != "ok" {
		t.Errorf("the health reports %q", got)
	}

	j = s.runJob(api.JobRequest{Verb: inventory.VerbDecommission, Nodes: []string{"a-1"}})
	if j.Status != api.Complete {
		t.Errorf("%+v", j)
	}
}

// tool opens the tool for the store of the site.
func (s *site) tool() *tool.Tool {
	s.t.Helper()
	t, err := OpenStoreTool(s.ctx(), s.options())
	s.must(err)
	return t
}

// TestStoreTool runs the printed remedies for a full store beside the daemon, and the
// check without it.
func TestStoreTool(t *testing.T) {
	t.Parallel()
	s := prepare(t)
	s.tune = func(o *Options) { o.Quota, o.UpkeepEvery = testQuota, -1 }
	s.up()
	t.Cleanup(s.down)
	s.report("a")
	s.fill()

	tool := s.tool()

	r, err := tool.Check(s.ctx())
	s.must(err)

	p := r.Problem()
	if p == nil || !strings.Contains(p.Error(), "NOSPACE") || r.Records == 0 || len(r.Unreadable) > 0 {
		t.Errorf("%+v: %v", r, p)
	}

	before := r.Spaces[0]

	s.must(tool.Compact(s.ctx()))
	s.must(tool.Defragment(s.ctx()))

	if after := tool.Spaces(s.ctx())[0]; after.File > before.File/2 {
		t.Errorf("before %s, now %s", before, after)
	}

	cleared, err := tool.Disarm(s.ctx())
	if err != nil || !slices.Equal(cleared, []etcd.Alarm{etcd.AlarmNoSpace}) {
		t.Errorf("%v, %v", cleared, err)
	}

	s.must(tool.Close())

	_, err = s.Client.SetVars(s.ctx(), client.ScopeGlobal, api.Vars{"one": "1"})
	s.must(err)

	s.down()
	tool = s.tool()

	r, err = tool.Check(s.ctx())
	if err != nil || r.Problem() != nil || !strings.Contains(r.Where, "no daemon runs") {
		t.Errorf("%+v, %v, %v", r, err, r.Problem())
	}

	s.checkSettings(tool)
	s.must(tool.Close())
	s.must(os.RemoveAll(filepath.Join(s.dir, "d", "etcd")))

	if _, err := OpenStoreTool(s.ctx(), s.options()); err == nil || !strings.Contains(err.Error(), "is missing") {
		t.Errorf("got %v, want the missing store", err)
	}
}

// checkSettings stores settings that do not fit. A zero of the former version stood for the
// default, and is left out when an instance takes the store over.
func (s *site) checkSettings(tool *tool.Tool) {
	s.t.Helper()

	const zero = `{"keys":{"policies.verify":{"v":{"all":true,"cron":"0 3 * * *","batch":0}}}}`

	for _, c := range []struct{ schema, overlay, problem string }{
		{"3", zero, "policies.verify.v: batch: 0 is not within"},
		{"2", zero, ""},
		{"2", `{"keys":{"jobs.limit":0}}`, "jobs.limit"},
		{"3", `{"keys":{"jobs.limit":3,"vars":{"password":{"$sealed":"v1.x"}}}}`, ""},
	} {
		for key, value := range map[string]string{"schema": c.schema, "v/overlay": c.overlay} {
			_, err := tool.Client.Put(s.ctx(), tool.Client.Prefix+"/"+key, value)
			s.must(err)
		}

		r, err := tool.Check(s.ctx())
		s.must(err)

		problem := r.Problem()
		if (problem != nil) != (c.problem != "") || (r.Settings != nil) != (c.problem != "") ||
			c.problem != "" && !strings.Contains(r.Settings.Error(), c.problem) {
			s.t.Errorf("version %s of %s: %v, %v", c.schema, c.overlay, r.Settings, problem)
		}
	}
}

// TestUnreadableRecords damages records. Each is an error with its name, never a
// missing thing; reports about it are refused for good; and the printed remedy works.
func TestUnreadableRecords(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.report("a b")
	j := s.runJob(api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"b-1"}})
	s.down()

	tool := s.tool()
	keys := []string{"v/nodes/a-1", "v/jobs/" + j.ID, "v/vars/global"}

	for _, key := range keys {
		_, err := tool.Client.Put(s.ctx(), tool.Client.Prefix+"/"+key, "{damaged")
		s.must(err)
	}

	s.must(tool.Close())
	s.up()

	h, err := s.Health(s.ctx())
	s.must(err)

	for i, path := range []string{api.PathNodes + "/a-1", api.PathJobs + "/" + j.ID} {
		status, text := s.get(path)
		if status != http.StatusInternalServerError || !strings.Contains(text, keys[i]) ||
			!strings.Contains(text, "clusterm store remove "+keys[i]) {
			t.Errorf("%s: %d: %s", path, status, text)
		}

		if !strings.Contains(h.Checks["records"], keys[i]) {
			t.Errorf("the health reports %q", h.Checks["records"])
		}
	}

	// With a part of its variables, no job is accepted.
	_, err = s.Client.Submit(s.ctx(), api.JobRequest{Verb: inventory.VerbMaintenance, Nodes: []string{"b-1"}})
	checkError(t, err, inventory.KindInternal, "v/vars/global")

	report := api.Report{Observer: "elsewhere", Observations: []api.Observation{
		{Label: "a", Serial: "1", Addr: "10.0.0.1", Alive: true},
		{Label: "c", Serial: "1", Addr: "10.0.0.3", Alive: true},
	}}

	reported, err := s.Client.Observe(s.ctx(), report)
	if err != nil || len(reported.Refused) != 1 || !strings.Contains(reported.Refused[0].Message, "v/nodes/a-1") {
		t.Errorf("%+v, %v", reported, err)
	}

	const event = `{"monitor_event":{"name":"discovered","nodes":[{"label":"a","serial":"1","addr":"10.0.0.1"}]}}`

	status, text := s.post(api.LegacyMonitorEvent, event)
	if status != http.StatusInternalServerError || !strings.Contains(text, "v/nodes/a-1") {
		t.Errorf("%d: %s", status, text)
	}

	tool = s.tool()

	r, err := tool.Check(s.ctx())
	if err != nil || len(r.Unreadable) != len(keys) || r.Problem() == nil {
		t.Errorf("%+v, %v", r, err)
	}

	checkError(t, tool.Remove(s.ctx(), "v/nodes/b-1"), inventory.KindRefused, "can be read")

	for _, key := range keys {
		s.must(tool.Remove(s.ctx(), key))
	}

	s.must(tool.Close())
	s.eventually("readable records", func() bool {
		h, err := s.Health(s.ctx())
		return err == nil && h.Checks["records"] == "ok"
	})

	if status, text := s.get(api.PathNodes + "/a-1"); status != http.StatusNotFound {
		t.Errorf("%d: %s", status, text)
	}

	s.report("a")

	status, text = s.get(api.PathNodes + "/a-1")
	if status != http.StatusOK || !strings.Contains(text, string(inventory.Quarantined)) {
		t.Errorf("%d: %s", status, text)
	}
}

// TestStoreFillsUp expects a warning, and then a failed check, before the store is full.
func TestStoreFillsUp(t *testing.T) {
	t.Parallel()
	s := prepare(t)
	s.tune = func(o *Options) { o.Quota, o.UpkeepEvery = testQuota/2, -1 }
	s.up()
	t.Cleanup(s.down)

	share := func() float64 { return s.etcd.Spaces(s.ctx())[0].Share() }
	grow := func(to float64) {
		t.Helper()

		// The size lags behind the writes, so small ones keep it from growing too far.
		for share() < to {
			_, err := s.etcd.Put(s.ctx(), "/filler", strings.Repeat("x", testQuota/4096))
			s.must(err)
		}
	}

	grow(etcd.WarnShare)

	h, err := s.Health(s.ctx())
	s.must(err)

	if h.Status != api.HealthOK || len(h.Warnings) != 1 || !strings.Contains(h.Warnings[0], "the store fills up") {
		t.Errorf("%+v", h)
	}

	grow(etcd.CheckShare)

	if got := s.space(); !strings.Contains(got, "the store is almost full") {
		t.Errorf("the health reports %q", got)
	}
}

// TestMissingStore removes parts of the store of a manager. It does not start on an
// empty store unless that is asked for.
func TestMissingStore(t *testing.T) {
	t.Parallel()

	for _, part := range []string{"etcd", "etcd/data", "etcd/data/member"} {
		t.Run(strings.ReplaceAll(part, "/", "-"), func(t *testing.T) {
			t.Parallel()
			s := prepare(t)
			s.up()
			s.report("a")

			identity := s.managerID()

			s.down()

			kept := filepath.Join(s.dir, "kept")
			s.must(os.Rename(filepath.Join(s.dir, "d", part), kept))

			err := s.try(patience)
			checkError(t, err, inventory.KindRefused, "the store is missing", "etcd/data", "instance.id",
				"--accept-empty-store", "backup")

			// The refusal leaves the place to what belongs there.
			s.must(os.RemoveAll(filepath.Join(s.dir, "d", part)))
			s.must(os.Rename(kept, filepath.Join(s.dir, "d", part)))
			s.up()

			if status, text := s.get(api.PathNodes + "/a-1"); status != http.StatusOK {
				t.Errorf("%d: %s", status, text)
			}

			s.down()
			s.must(os.RemoveAll(filepath.Join(s.dir, "d", part)))

			s.tune = func(o *Options) { o.AcceptEmptyStore = true }
			s.up()

			// The hosts of the lost store carry its identity, and are its hosts.
			if now := s.managerID(); now != identity {
				t.Errorf("the identity was %s and is %s", identity, now)
			}

			if status, text := s.get(api.PathNodes + "/a-1"); status != http.StatusNotFound {
				t.Errorf("%d: %s", status, text)
			}

			s.report("b")

			// From then on it is a store like any other.
			s.tune = nil
			s.restart()

			if status, text := s.get(api.PathNodes + "/b-1"); status != http.StatusOK {
				t.Errorf("%d: %s", status, text)
			}

			s.down()
		})
	}
}

// TestDamagedStore starts on damaged files of the store.
func TestDamagedStore(t *testing.T) {
	t.Parallel()

	s := prepare(t)
	s.up()
	s.report("a")
	s.down()

	logs, err := filepath.Glob(filepath.Join(s.dir, "d/etcd/data/member/wal/*.wal"))
	if err != nil || len(logs) == 0 {
		t.Fatal(logs, err)
	}

	for _, file := range []string{logs[len(logs)-1], filepath.Join(s.dir, "d/etcd/data/member/snap/db")} {
		whole, err := os.ReadFile(file)
		s.must(err)
		s.must(os.Truncate(file, 1000))

		err = s.try(patience)
		checkError(t, err, inventory.KindUnavailable, "the store is damaged", "clusterm restore FILE")

		if err == nil || strings.Contains(fmt.Sprint(err), "\n") {
			t.Errorf("got %v, want one line", err)
		}

		s.must(os.WriteFile(file, whole, 0o600))
	}

	s.up()
	s.down()
}
