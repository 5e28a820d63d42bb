// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// faults are playbooks that fail on the hosts of a file, or wait at a FIFO.
type faults struct {
	*site
}

// path returns the file of the playbook with the hosts on which it fails.
func (f faults) path(playbook string) string { return filepath.Join(f.dir, playbook+".fault") }

// prepareFaults adds the file of faults to each playbook.
func prepareFaults(s *site) faults {
	f := faults{s}

	for _, playbook := range []string{"site.yml", "cleanup.yml", "rolling-upgrade.yml"} {
		name := filepath.Join(s.dir, "playbooks", playbook)
		text, err := os.ReadFile(name)
		s.must(err)
		s.must(os.WriteFile(name, append([]byte("# fault: "+f.path(playbook)+"\n"), text...), 0o600))
	}

	return f
}

// fail makes the playbooks fail on the node.
func (f faults) fail(node string, playbooks ...string) {
	f.t.Helper()

	for _, playbook := range playbooks {
		f.must(os.WriteFile(f.path(playbook), []byte(node+"\n"), 0o600))
	}
}

// wait makes the playbook wait at its end.
func (f faults) wait(playbook string) {
	f.t.Helper()
	f.must(unix.Mkfifo(f.path(playbook)+".wait", 0o600))
}

// correct removes every cause.
func (f faults) correct() {
	f.t.Helper()

	causes, err := filepath.Glob(filepath.Join(f.dir, "*.fault*"))
	f.must(err)

	for _, cause := range causes {
		f.must(os.Remove(cause))
	}
}

// TestRemediesLeadToSuccess lets jobs of each verb fail in each way, corrects the
// cause, and carries out the remedies in the explanations as printed. The nodes
// end as the verb wanted them, in their group.
func TestRemediesLeadToSuccess(t *testing.T) {
	t.Parallel()

	const (
		master    = "Allocated service-master"
		site      = "site.yml"
		cleanup   = "cleanup.yml"
		upgrade   = "rolling-upgrade.yml"
		quarantee = "Quarantined"
	)

	s := prepare(t)
	f := prepareFaults(s)
	s.up()
	t.Cleanup(s.down)

	// From now on a commission without a group makes workers.
	s.report("a")
	s.runJob(api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}, Group: inventory.GroupMaster})

	for i, tt := range []struct {
		verb  inventory.Verb
		from  string // the status before: Unallocated, or service-master, or Quarantined
		fails string // the playbooks that fail on the first node
		waits string // the playbook that waits until the job is cancelled
		want  string
	}{
		{inventory.VerbCommission, "", site, "", master},
		{inventory.VerbCommission, "", site + " " + cleanup, "", master},
		{inventory.VerbCommission, "", "", site, master},
		{inventory.VerbUpdate, master, site, "", master},
		{inventory.VerbUpdate, master, cleanup, "", master},
		{inventory.VerbUpdate, master, "", site, master},
		{inventory.VerbApply, master, site, "", master},
		{inventory.VerbApply, master, "", site, master},
		{inventory.VerbMaintenance, master, upgrade, "", master},
		{inventory.VerbMaintenance, master, "", upgrade, master},
		{inventory.VerbClear, quarantee, cleanup, "", "Unallocated"},
	} {
		label := string(rune('b' + i))
		name := label + "-1"
		what := strings.Join([]string{string(tt.verb), tt.fails, tt.waits}, " ")
		s.report(label)

		group := ""
		if tt.verb == inventory.VerbCommission {
			group = inventory.GroupMaster
		}

		if tt.from == master || tt.from == quarantee {
			request := api.JobRequest{
				Verb: inventory.VerbCommission, Nodes: []string{name}, Group: inventory.GroupMaster,
			}
			if tt.from == quarantee {
				f.fail(name, site, cleanup)
			}

			s.runJob(request)
			f.correct()
		}

		f.fail(name, strings.Fields(tt.fails)...)

		if tt.waits != "" {
			f.wait(tt.waits)
		}

		failed := f.begin(api.JobRequest{Verb: tt.verb, Nodes: []string{name}, Group: group}, tt.waits != "")
		f.correct()

		if failed.Status == api.Complete {
			t.Fatalf("%s: job %s did not fail", what, failed.ID)
		}

		f.follow(what, failed.ID)

		if got := s.status(name); got != tt.want {
			t.Errorf("%s: after its remedies %s is %s, want %s", what, name, got, tt.want)
		}
	}
}

// begin submits a job that fails, or is cancelled while it waits, and returns its
// end.
func (f faults) begin(r api.JobRequest, cancel bool) api.Job {
	f.t.Helper()

	if !cancel {
		return f.runJob(r)
	}

	j, err := f.Client.Submit(f.ctx(), r)
	f.must(err)
	f.waitOutput(j.ID, "waiting")

	_, err = f.Client.Cancel(f.ctx(), j.ID)
	f.must(err)

	j, err = f.Client.WaitJob(f.ctx(), j.ID)
	f.must(err)

	return j
}

// follow carries out the first remedy of the job until it has none.
func (f faults) follow(what, id string) {
	f.t.Helper()

	for range 4 {
		action := f.remedy(id)
		if action == nil {
			return
		}

		status, text := f.post(action.Path, string(action.Body))

		var j api.Job
		if err := json.Unmarshal([]byte(text), &j); status != http.StatusAccepted || err != nil {
			f.t.Fatalf("%s: %s %s is answered with %d: %s", what, action.Path, action.Body, status, text)
		}

		j, err := f.Client.WaitJob(f.ctx(), j.ID)
		f.must(err)

		if j.Status != api.Complete {
			f.t.Fatalf("%s: the remedy %s %s ended %s: %s", what, action.Path, action.Body, j.Status, j.Message)
		}
	}

	f.t.Fatalf("%s: the remedies of job %s do not end", what, id)
}

// remedy returns the first action of the job's explanation that changes something,
// or nil.
func (f faults) remedy(id string) *api.Action {
	f.t.Helper()

	e, err := f.Client.ExplainJob(f.ctx(), id)
	f.must(err)

	for _, finding := range e.Findings {
		for _, a := range finding.Actions {
			line := api.CommandsOf("clusterctl", api.RestoreActions([]api.Action{a}))
			if len(line) != 1 || strings.ContainsAny(line[0], "…<>|;'") {
				f.t.Errorf("the remedy %+v cannot be pasted: %q", a, line)
			}

			if a.Method == http.MethodPost && (a.Path == api.PathJobs || strings.HasSuffix(a.Path, "/retry")) {
				return &a
			}
		}
	}

	return nil
}
