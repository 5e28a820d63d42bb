// SPDX-License-Identifier: Apache-2.0

// The tests follow the verb from its command to the history of its nodes, on a manager without Ansible and playbooks.
package power_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/clusterctl"
	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/bmc"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/daemon"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/step"
	"github.com/contiv/cluster/management/step/power"
)

// patience bounds every wait; one that is fulfilled ends at once.
const patience = time.Minute

// site is a manager with the verb, and its nodes a-1 to c-1.
type site struct {
	*testing.T
	dir    string
	bmcs   *bmcs
	daemon *daemon.Daemon
	client *client.Client
}

func newSite(t *testing.T) *site {
	t.Helper()

	dir, err := os.MkdirTemp("", "cm")
	errtest.None(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })

	s := &site{T: t, dir: dir, bmcs: newBMCs("a-1", "b-1", "c-1")}
	s.must(os.WriteFile(s.file(), []byte(`data_dir: `+dir+`/d
socket: `+dir+`/s
gossip: off
node: {label: manager, serial: "1"}
ansible_playbook: `+dir+`/no-ansible
playbooks: `+dir+`/no-playbooks
`), 0o600))
	s.up()
	t.Cleanup(s.down)

	_, err = s.client.Observe(s.Context(), api.Report{Observer: "rack", Observations: []api.Observation{
		{Label: "a", Serial: "1", Addr: "10.0.0.1", Alive: true},
		{Label: "b", Serial: "1", Addr: "10.0.0.2", Alive: true},
		{Label: "c", Serial: "1", Addr: "10.0.0.3", Alive: true},
	}})
	s.must(err)

	return s
}

func (s *site) file() string { return filepath.Join(s.dir, "clusterm.yaml") }

func (s *site) up() {
	s.Helper()

	log := logrus.New()
	log.SetOutput(io.Discard)

	d, err := daemon.New(daemon.Options{
		ConfigPath: s.file(), Command: []string{os.Args[0]}, InProcess: true, Logger: log,
		Executors: func(record.Store) step.Executors {
			return step.Executors{job.StepPower: power.New(s.bmcs, s.bmcs.record, nil)}
		},
	})
	s.must(err)

	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()

	s.must(d.Start(ctx))
	s.daemon = d
	s.client, err = client.New(client.Options{Socket: s.dir + "/s", Patience: patience})
	s.must(err)
}

func (s *site) down() { s.must(s.daemon.Stop(context.WithoutCancel(s.Context()))) }

func (s *site) must(err error) {
	s.Helper()
	errtest.None(s, err)
}

// clusterctl runs a command, and returns its exit code and its output.
func (s *site) clusterctl(args ...string) (int, string) {
	s.Helper()

	var out bytes.Buffer

	args = append([]string{"clusterctl", "--url", "unix://" + s.dir + "/s"}, args...)
	o := clusterctl.Options{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out}

	return clusterctl.Run(s.Context(), args, o), out.String()
}

// says runs a command, and checks its exit code and what is in its output.
func (s *site) says(code int, words []string, args ...string) {
	s.Helper()

	got, text := s.clusterctl(args...)
	if got != code {
		s.Errorf("%s: exit code %d, want %d: %s", args, got, code, text)
	}

	for _, w := range words {
		if !strings.Contains(text, w) {
			s.Errorf("%s: %q is not in:\n%s", args, w, text)
		}
	}
}

// power submits a job that switches nodes off.
func (s *site) power(nodes ...string) string {
	s.Helper()

	j, err := s.client.Submit(s.Context(), api.JobRequest{
		Verb: inventory.VerbPower, Nodes: nodes, ExtraVars: json.RawMessage(`{"to":"off"}`),
	})
	s.must(err)

	return j.ID
}

// end waits for the end of a job and checks its status.
func (s *site) end(id, status string) {
	s.Helper()

	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()

	j, err := s.client.WaitJob(ctx, id)
	s.must(err)

	if string(j.Status) != status {
		s.Errorf("job %s ended %s, want %s: %s", id, j.Status, status, j.Message)
	}
}

// are checks the power of the machines a-1, b-1 and c-1.
func (s *site) are(want string) {
	s.Helper()

	is := s.bmcs.is()
	if got := strings.Join([]string{is["a-1"], is["b-1"], is["c-1"]}, " "); got != want {
		s.Errorf("the machines are %s, want %s", got, want)
	}
}

// TestPower: the verb from its command to the history of its nodes.
func TestPower(t *testing.T) {
	t.Parallel()
	s := newSite(t)

	s.says(0, []string{"switch nodes on or off"}, "nodes", "power", "--help")
	s.says(0, []string{"job 1", "power off", "Complete"}, "nodes", "power", "a-1", "b-1", "-e", "to=off", "--yes")
	s.are("off off on")

	s.says(
		0,
		[]string{"power of a-1, b-1", "a-1: power off: ok", "ended Complete"},
		"job",
		"logs",
		"1",
	)
	s.says(0, []string{`"event":"ok"`, `"host":"b-1"`, `"task":"power off"`}, "job", "logs", "1", "--events")
	s.says(0, []string{"power", "Maintenance", "Unallocated"}, "nodes", "history", "a-1")
	s.says(0, []string{"Complete", "power succeeded on a-1, b-1"}, "job", "why", "1")
	s.says(0, []string{"power", "power on"}, "nodes", "power", "a-1", "-e", "to=on", "--plan")

	s.says(0, []string{"Complete"}, "nodes", "power", "a-1", "-e", "boot=pxe", "-e", "mode=uefi", "--yes")

	if got, want := s.bmcs.boots["a-1"], (bmc.Boot{Device: bmc.PXE, Mode: bmc.UEFI}); got != want {
		t.Errorf("a-1 boots from %+v, want %+v", got, want)
	}

	// What it cannot do is refused, with every node.
	s.says(2, []string{"does not say what to do"}, "nodes", "power", "a-1", "--yes")
	s.says(2, []string{"power takes no variable too"}, "nodes", "power", "a-1", "-e", "too=off", "--yes")
	s.says(2, []string{"not from what"}, "nodes", "power", "a-1", "-e", "to=off", "-e", "mode=bios", "--yes")
	s.says(
		2,
		[]string{"the variable to is up", "on, off, cycle, reset, soft"},
		"nodes",
		"power",
		"a-1",
		"-e",
		"to=up",
		"--yes",
	)

	// The limits of many at once.
	s.says(0, []string{"power on; at most 10000 a minute; at most 2 of a rack at a time"},
		"power", "on", "a-1", "b-1", "--ramp", "10000/min", "--per-rack", "2", "--yes", "-o", "long")
	s.says(
		2,
		[]string{"the variable ramp is 20/h", "1/min to 10000/min"},
		"power",
		"on",
		"a-1",
		"--ramp",
		"20/h",
		"--yes",
	)
	s.says(2, []string{"the variable per_rack is 0", "1 to 1000"}, "power", "on", "a-1", "--per-rack", "0", "--yes")
	s.says(2, []string{"with 1 a minute, 3 nodes take 2m0s, and the job has 1m30s"},
		"power", "on", "a-1", "b-1", "c-1", "--ramp", "1/min", "--timeout", "90s", "--yes")

	s.bmcs.change(func() { delete(s.bmcs.power, "b-1"); delete(s.bmcs.power, "c-1") })
	s.says(5, []string{"no BMC is known of b-1, c-1"}, "nodes", "power", "a-1", "b-1", "c-1", "-e", "to=on", "--yes")

	// A verb with a playbook needs what the others do not.
	s.says(5, []string{"no job can run"}, "nodes", "commission", "a-1", "-g", inventory.GroupMaster, "--yes")
}

// TestPowerInService: what interrupts a node in service needs force, and nothing else does.
func TestPowerInService(t *testing.T) {
	t.Parallel()

	x := power.New(newBMCs("a-1", "b-1"), nil, nil)

	for _, test := range []struct {
		vars       configuration.Vars
		interrupts bool
	}{
		{configuration.Vars{"to": "on"}, false},
		{configuration.Vars{"to": "off"}, true},
		{configuration.Vars{"to": "soft"}, true},
		{configuration.Vars{"to": "cycle"}, true},
		{configuration.Vars{"to": "reset"}, true},
		{configuration.Vars{"to": "off", "boot": "pxe"}, true},
		{configuration.Vars{"boot": "pxe"}, false},
		{configuration.Vars{"rotate_password": true}, false},
	} {
		for _, status := range []inventory.Status{inventory.Allocated, inventory.Unallocated, inventory.Quarantined} {
			for _, force := range []bool{false, true} {
				j := job.Job{
					Verb: inventory.VerbPower, Timeout: time.Hour,
					Targets: []job.Target{{Name: "a-1", From: inventory.Unallocated}, {Name: "b-1", From: status}},
				}
				j.Force = force

				_, err := x.Prepare(t.Context(), step.Request{View: &state.View{}, Job: j, Extra: test.vars})

				want := test.interrupts && status == inventory.Allocated && !force
				if refused := inventory.KindOf(err) == inventory.KindRefused; refused != want || !want && err != nil {
					t.Errorf("%v of a node that is %s, force %t: %v", test.vars, status, force, err)
				}

				if want && !strings.Contains(err.Error(), "in service: b-1; power ") {
					t.Errorf("the refusal does not name the node: %v", err)
				}
			}
		}
	}
}

// TestPowerOff: the request by which a policy turns a lost node off is accepted also in service and while nobody sees
// the node. The reason is in the history of the node and in the audit trail.
func TestPowerOff(t *testing.T) {
	t.Parallel()
	s := newSite(t)

	r := job.PowerOff("a-1", "it is lost")
	serving := job.Job{
		Verb: r.Verb, Timeout: time.Hour, Targets: []job.Target{{Name: "a-1", From: inventory.Allocated}},
	}
	serving.Force = r.Force

	x := power.New(s.bmcs, nil, nil)
	if _, err := x.Prepare(t.Context(), step.Request{View: &state.View{}, Job: serving, Extra: r.Extra}); err != nil {
		t.Error(err)
	}

	_, err := s.client.Observe(s.Context(), api.Report{Observer: "rack", Observations: []api.Observation{
		{Label: "a", Serial: "1", Addr: "10.0.0.1"},
	}})
	s.must(err)

	vars, err := json.Marshal(r.Extra)
	s.must(err)

	j, err := s.client.Submit(s.Context(), api.JobRequest{
		Verb: r.Verb, Nodes: r.Nodes, ExtraVars: vars, JobOptions: r.JobOptions,
	})
	s.must(err)
	s.end(j.ID, "Complete")
	s.are("off on on")
	s.says(0, []string{"power", "it is lost"}, "nodes", "history", "a-1", "-o", "json")
	s.says(0, []string{"jobs.submit.power", "it is lost"}, "audit", "-o", "json")
}

// TestPowerFails: a BMC that does not answer is the failure of its node alone.
func TestPowerFails(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.bmcs.change(func() { s.bmcs.dead = []string{"b-1"} })

	id := s.power("a-1", "b-1", "c-1")
	s.end(id, "Errored")
	s.are("off on off")
	s.says(0, []string{
		`power failed on b-1: the BMC does not answer`, "job retry " + id + " --failed",
	}, "job", "why", id)

	s.bmcs.change(func() { s.bmcs.dead = nil })
	s.says(0, []string{"Complete"}, "job", "retry", id, "--failed")
	s.are("off off off")
}

// TestPowerGoesOn: a manager that ends in the middle of a step has its successor take it to its end.
func TestPowerGoesOn(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.bmcs.change(func() { s.bmcs.slow["b-1"] = true })

	id := s.power("a-1", "b-1", "c-1")
	s.reached("b-1")
	s.down()
	s.bmcs.change(func() { s.bmcs.slow["b-1"] = false })
	s.up()

	s.end(id, "Complete")
	s.are("off off off")

	if calls := s.bmcs.calls["b-1"]; calls != 2 {
		t.Errorf("b-1 was switched %d times", calls)
	}
}

// TestPowerRepeatsNoCycle: a manager that ends during a cycle has its successor report it as unknown, until a person
// repeats it.
func TestPowerRepeatsNoCycle(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.bmcs.change(func() { s.bmcs.slow["b-1"] = true })

	j, err := s.client.Submit(s.Context(), api.JobRequest{
		Verb: inventory.VerbPower, Nodes: []string{"b-1"}, ExtraVars: json.RawMessage(`{"to":"cycle"}`),
	})
	s.must(err)
	s.reached("b-1")
	s.down()
	s.bmcs.change(func() { s.bmcs.slow["b-1"] = false })
	s.up()

	s.end(j.ID, "Errored")
	s.are("on on on")
	s.says(0, []string{
		"it may or may not have happened", "look at the node", "job retry " + j.ID,
	}, "job", "why", j.ID)

	s.says(0, []string{"Complete"}, "job", "retry", j.ID)
	s.are("on cycle on")

	if calls := s.bmcs.calls["b-1"]; calls != 2 {
		t.Errorf("b-1 was reached %d times", calls)
	}
}

// TestPowerIsCancelled: a cancel ends what goes on, and begins nothing more.
func TestPowerIsCancelled(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.bmcs.change(func() { s.bmcs.slow["a-1"], s.bmcs.slow["b-1"], s.bmcs.slow["c-1"] = true, true, true })

	const atOnce = 2

	j, err := s.client.Submit(s.Context(), api.JobRequest{
		Verb: inventory.VerbPower, Nodes: []string{"a-1", "b-1", "c-1"}, ExtraVars: json.RawMessage(`{"to":"off"}`),
		JobOptions: inventory.JobOptions{Serial: "2"},
	})
	s.must(err)

	id := j.ID
	for range atOnce {
		s.reached("")
	}

	_, err = s.client.Cancel(s.Context(), id)
	s.must(err)
	s.end(id, "Cancelled")
	s.are("on on on")

	called := 0
	for _, n := range s.bmcs.calls {
		called += n
	}

	if called != atOnce {
		t.Errorf("%d machines were reached, want %d", called, atOnce)
	}

	s.says(0, []string{"Unallocated"}, "nodes", "get", "a-1")
}

// reached waits until a slow BMC is called; "": any.
func (s *site) reached(node string) {
	s.Helper()

	select {
	case got := <-s.bmcs.reached:
		if node != "" && got != node {
			s.Fatalf("%s was called, not %s", got, node)
		}
	case <-time.After(patience):
		s.Fatal("no BMC was called")
	}
}
