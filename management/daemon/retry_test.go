// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/clusterctl"
	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/job"
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

	name := filepath.Join(f.dir, "playbooks", job.PlaybookCleanup)
	text, err := os.ReadFile(name)
	f.must(err)
	f.must(os.WriteFile(name, bytes.TrimPrefix(text, []byte("# idle\n")), 0o600))
}

// idle gives cleanup.yml no play for any host, as a folder does that lacks one for a
// group.
func (f faults) idle() {
	f.t.Helper()

	name := filepath.Join(f.dir, "playbooks", job.PlaybookCleanup)
	text, err := os.ReadFile(name)
	f.must(err)
	f.must(os.WriteFile(name, append([]byte("# idle\n"), text...), 0o600))
}

// The ways in which a job of the grid ends that waits.
const (
	byCancel   = "cancel"
	bySecond   = "second cancel"
	byDeadline = "deadline"
	byKill     = "kill"
)

// The statuses in the grid of failures.
const (
	asMaster       = "Allocated service-master"
	asUnallocated  = "Unallocated"
	asQuarantined  = "Quarantined service-master"
	asDecommission = "Decommissioned"
	asForgotten    = "forgotten"
)

// failure is a row of the grid: a job that fails in one way.
type failure struct {
	verb  inventory.Verb
	from  string // the status before; empty: as reported
	fails string // the playbooks that fail on the first node
	waits string // the playbooks that wait until the job ends in the way of end
	end   string
	idle  bool // the cleanup.yml that configured the nodes has no play for them
	two   bool // the job has two nodes
	both  bool // it has two nodes, and the playbooks fail on both
	want  string

	single bool // it takes one node at a time, and goes on after a failure
}

func (c failure) String() string {
	words := []string{string(c.verb), c.fails, c.waits, c.end}
	if c.idle {
		words = append(words, "idle")
	}
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), ", ")
}

// discovered is the address of host-1, the host in the rows of discover.
const discovered = "127.0.3.9"

var failures = []failure{
	{verb: inventory.VerbCommission, fails: "site.yml", want: asMaster},
	{verb: inventory.VerbCommission, fails: "site.yml cleanup.yml", two: true, want: asMaster},
	{verb: inventory.VerbCommission, fails: "site.yml", idle: true, want: asMaster},
	{verb: inventory.VerbCommission, from: asDecommission, idle: true, want: asMaster},
	{verb: inventory.VerbCommission, waits: "site.yml", end: byCancel, want: asMaster},
	{verb: inventory.VerbCommission, waits: "site.yml cleanup.yml", end: bySecond, want: asMaster},
	{verb: inventory.VerbCommission, waits: "site.yml", end: byKill, want: asMaster},
	{verb: inventory.VerbUpdate, from: asMaster, fails: "site.yml", want: asMaster},
	{verb: inventory.VerbUpdate, from: asMaster, fails: "cleanup.yml", want: asMaster},
	{verb: inventory.VerbUpdate, from: asMaster, idle: true, want: asMaster},
	{verb: inventory.VerbUpdate, from: asMaster, waits: "site.yml", end: byCancel, want: asMaster},
	{verb: inventory.VerbUpdate, from: asMaster, waits: "site.yml", end: byKill, want: asMaster},
	{verb: inventory.VerbApply, from: asMaster, fails: "site.yml", two: true, want: asMaster},
	{verb: inventory.VerbApply, from: asMaster, fails: "site.yml", both: true, want: asMaster},
	{verb: inventory.VerbApply, from: asMaster, waits: "site.yml", end: byCancel, want: asMaster},
	{verb: inventory.VerbApply, from: asMaster, waits: "site.yml", end: byDeadline, want: asMaster},
	{verb: inventory.VerbApply, from: asMaster, waits: "site.yml", end: byKill, want: asMaster},
	{verb: inventory.VerbReapply, from: asMaster, fails: "site.yml", two: true, want: asMaster},
	{verb: inventory.VerbReapply, from: asMaster, fails: "cleanup.yml", want: asMaster},
	{verb: inventory.VerbReapply, from: asMaster, waits: "site.yml", end: byKill, want: asMaster},
	{verb: inventory.VerbReapply, from: asMaster, waits: "cleanup.yml", end: byCancel, want: asMaster},
	{verb: inventory.VerbMaintenance, from: asMaster, fails: "rolling-upgrade.yml", want: asMaster},
	{verb: inventory.VerbMaintenance, from: asMaster, waits: "rolling-upgrade.yml", end: byCancel, want: asMaster},
	{
		verb: inventory.VerbDecommission, from: asMaster, fails: "cleanup.yml", two: true, single: true,
		want: asDecommission,
	},
	{verb: inventory.VerbDecommission, from: asMaster, waits: "cleanup.yml", end: byCancel, want: asDecommission},
	{verb: inventory.VerbDecommission, from: asMaster, idle: true, want: asDecommission},
	{verb: inventory.VerbClear, from: asQuarantined, fails: "cleanup.yml", want: asUnallocated},
	{verb: inventory.VerbClear, from: asQuarantined, waits: "cleanup.yml", end: byKill, want: asUnallocated},
	{verb: inventory.VerbClear, from: asQuarantined, idle: true, want: asUnallocated},
	{verb: inventory.VerbForget, fails: "cleanup.yml", want: asForgotten},
	{verb: inventory.VerbForget, waits: "cleanup.yml", end: byCancel, want: asForgotten},
	{verb: inventory.VerbDiscover, fails: "site.yml", want: asUnallocated},
	{verb: inventory.VerbDiscover, waits: "site.yml", end: byKill, want: asUnallocated},
}

// TestRemediesLeadToSuccess lets jobs of each verb fail in each way, corrects the
// cause, and runs the command lines of clusterctl in the explanation of the job as
// printed. The nodes end as the verb wanted them, in their group.
func TestRemediesLeadToSuccess(t *testing.T) {
	t.Parallel()

	// Several daemons share the rows.
	const parts = 3

	for part := range parts {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			t.Parallel()

			f := beginFaults(t)
			for i, c := range failures {
				if i%parts == part {
					f.remedy(c, i)
				}
			}
		})
	}
}

// remedy runs the command lines in the explanation of the job of a row.
func (f faults) remedy(c failure, row int) {
	f.t.Helper()

	nodes, id := f.suffer(c, row)
	f.rule()

	f.follow(c, func() (findings []api.Finding, shown string) {
		e, err := f.Client.ExplainJob(f.ctx(), id)
		f.must(err)
		return e.Findings, f.command("job", "why", id)
	})
	f.expect(c, nodes, c.want, true)
	f.unrule()

	// The next discover takes a host that is known, and gone.
	if c.verb == inventory.VerbDiscover {
		f.lose("host", discovered)
	}
}

// TestRemediesOfNodes follows the explanation of the first node of a failed job as
// long as there is a next step. It leads into service, but for a node that
// was to be forgotten.
func TestRemediesOfNodes(t *testing.T) {
	t.Parallel()

	f := beginFaults(t)
	walked := map[string]bool{}

	for i, c := range failures {
		// Of the jobs that were ended, the node has the same to show as its job.
		kind := fmt.Sprint(c.verb, c.idle)
		if c.waits != "" || c.verb == inventory.VerbDiscover || walked[kind] {
			continue
		}
		walked[kind] = true

		nodes, _ := f.suffer(c, i)
		f.rule()

		want := asMaster
		if c.want == asForgotten {
			want = c.want
		}

		f.follow(c, func() (findings []api.Finding, shown string) {
			e, err := f.Client.Explain(f.ctx(), nodes[0])
			if inventory.KindOf(err) == inventory.KindNotFound && want == asForgotten {
				return nil, ""
			}

			f.must(err)

			return e.Findings, f.command("nodes", "explain", nodes[0])
		})
		f.expect(c, nodes[:1], want, true)
		f.unrule()
	}
}

// beginFaults starts a daemon with faulty playbooks, a node in service, and a host
// that accepts every login.
func beginFaults(t *testing.T) faults {
	t.Helper()

	s := prepareHost(t)
	f := prepareFaults(s)
	s.upWithHost()

	// From now on a commission without a group makes workers.
	f.see("first", "10.0.1.1")
	s.runJob(api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"first-1"}, Group: inventory.GroupMaster})

	// The masters have one that requires them.
	f.see("dependent", "10.0.9.9")
	s.runJob(api.JobRequest{
		Verb: inventory.VerbCommission, Nodes: []string{"dependent-1"}, Group: inventory.GroupWorker,
	})

	return f
}

// prepareHost prepares a daemon that can discover the host at the address discovered.
func prepareHost(t *testing.T) *site {
	t.Helper()

	sshd, err := net.Listen("tcp", net.JoinHostPort(discovered, "0"))
	errtest.None(t, err)

	var greeters sync.WaitGroup
	greeters.Go(func() {
		for {
			c, err := sshd.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("SSH-2.0-test\r\n"))
			_ = c.Close()
		}
	})
	t.Cleanup(func() { _ = sshd.Close(); greeters.Wait() })

	_, port, _ := net.SplitHostPort(sshd.Addr().String())

	return prepare(t, "gossip: {bind: 127.0.0.1:0}", `node: {label: manager, serial: "1", addr: 127.0.0.1}`,
		"ssh: {port: "+port+"}")
}

// upWithHost starts the daemon with an ssh to which every host is open.
func (s *site) upWithHost() {
	s.t.Helper()
	s.up()
	s.t.Cleanup(s.down)

	ssh := filepath.Join(s.dir, "ssh")
	s.must(writeProgram(ssh, "#!/bin/sh\n"))
	s.Daemon.programs.Prober.SSH = ssh
}

// see reports a node as discovered, and lose reports it as disappeared.
func (f faults) see(label, addr string)  { f.t.Helper(); f.observe("discovered", label, addr) }
func (f faults) lose(label, addr string) { f.t.Helper(); f.observe("disappeared", label, addr) }

func (f faults) observe(name, label, addr string) {
	f.t.Helper()

	event := fmt.Sprintf(`{"monitor_event":{"name":%q,"nodes":[{"label":%q,"serial":"1","addr":%q}]}}`,
		name, label, addr)
	if status, text := f.post(api.LegacyMonitorEvent, event); status != http.StatusOK {
		f.t.Fatalf("%d: %s", status, text)
	}
}

// rule gives the groups budgets, as small as they can be, and a window that is open.
func (f faults) rule() {
	f.t.Helper()

	f.set(api.Vars{
		"groups": []any{
			map[string]any{"name": inventory.GroupMaster, "budget": map[string]any{"max_unavailable": "1"}},
			map[string]any{
				"name": inventory.GroupWorker, "requires": map[string]any{inventory.GroupMaster: 1},
				"budget": map[string]any{"max_unavailable": "1"},
			},
		},
		"windows": []any{map[string]any{
			"name": "always", "cron": "0 * * * *", "duration": "60m",
			"groups": []string{inventory.GroupMaster},
		}},
	})
}

// unrule takes the rules of rule back.
func (f faults) unrule() { f.t.Helper(); f.set(api.Vars{"groups": nil, "windows": nil}) }

// set changes settings.
func (f faults) set(settings api.Vars) {
	f.t.Helper()
	_, err := f.Client.PatchConfig(f.ctx(), settings)
	f.must(err)
}

// suffer lets a job fail as the row wants it, and corrects the cause. It returns
// the nodes and the id of the job.
func (f faults) suffer(c failure, row int) (nodes []string, id string) {
	f.t.Helper()

	labels := []string{fmt.Sprintf("n%d", row)}
	if c.two || c.both {
		labels = append(labels, fmt.Sprintf("m%d", row))
	}

	r := api.JobRequest{Verb: c.verb}

	for i, label := range labels {
		if c.verb != inventory.VerbDiscover {
			f.see(label, fmt.Sprintf("10.0.%d.%d", 2+i, 1+row))
		}

		nodes = append(nodes, label+"-1")
	}

	host := nodes[0]
	if r.Nodes = nodes; c.verb == inventory.VerbDiscover {
		nodes, host = []string{"host-1"}, discovered
		r.Nodes, r.Addrs = nil, []string{discovered}
	}

	if c.idle {
		f.idle()
	}

	f.bring(c, nodes)

	if c.verb == inventory.VerbCommission {
		r.Group = inventory.GroupMaster
	}

	if c.single {
		r.Serial, r.MaxFailures = "1", 1
	}

	if c.both {
		host = strings.Join(nodes, "\n")
	}

	f.fail(host, strings.Fields(c.fails)...)

	for _, playbook := range strings.Fields(c.waits) {
		f.wait(playbook)
	}

	failed := f.end(c, r)
	f.correct()

	if failed.Status == api.Complete && failed.Message == "" {
		f.t.Fatalf("%s: job %s did not fail", c, failed.ID)
	}

	return nodes, failed.ID
}

// bring brings the nodes to the status before the job of the row.
func (f faults) bring(c failure, nodes []string) {
	f.t.Helper()

	if c.from == "" {
		return
	}

	if c.from == asQuarantined {
		f.fail(nodes[0], "site.yml", "cleanup.yml")
	}

	f.runJob(api.JobRequest{Verb: inventory.VerbCommission, Nodes: nodes, Group: inventory.GroupMaster})
	f.must(os.RemoveAll(f.path("site.yml")))
	f.must(os.RemoveAll(f.path("cleanup.yml")))

	if c.from == asDecommission {
		f.runJob(api.JobRequest{Verb: inventory.VerbDecommission, Nodes: nodes})
	}

	f.expect(c, nodes, c.from, false)
}

// end submits the job of the row, ends it where it waits, and returns it.
func (f faults) end(c failure, r api.JobRequest) api.Job {
	f.t.Helper()

	if c.end == byDeadline {
		r.Timeout = api.Duration(5 * time.Second)
	}

	j, err := f.Client.Submit(f.ctx(), r)
	f.must(err)

	cancel := func() {
		_, err := f.Client.Cancel(f.ctx(), j.ID)
		f.must(err)
	}

	switch c.end {
	case byCancel:
		f.waitOutput(j.ID, "waiting")
		cancel()
	case bySecond:
		f.waitOutput(j.ID, "waiting")
		cancel()
		cancel()
	case byKill:
		f.waitOutput(j.ID, "waiting")
		f.killRunner(j.ID)
	}

	j, err = f.Client.WaitJob(f.ctx(), j.ID)
	f.must(err)

	return j
}

// expect expects the status and group of the nodes; clean: without residue.
func (f faults) expect(c failure, nodes []string, want string, clean bool) {
	f.t.Helper()

	for _, name := range nodes {
		n, err := f.Client.Node(f.ctx(), name)
		if want == asForgotten {
			checkError(f.t, err, inventory.KindNotFound, name)
			continue
		}

		f.must(err)

		if got := strings.TrimSpace(string(n.Status) + " " + n.Group); got != want {
			f.t.Errorf("%s: %s is %s, want %s: %s", c, name, got, want, n.LastError)
		}

		if clean && len(n.Residue) > 0 {
			f.t.Errorf("%s: %s has the residue %v", c, name, n.Residue)
		}
	}
}

// follow runs the command lines of an explanation, in order, up to the first one
// that changes something, and begins again until none does. Each ends with success.
func (f faults) follow(c failure, explain func() (findings []api.Finding, shown string)) {
	f.t.Helper()

	for range 5 {
		findings, shown := explain()
		if !f.step(c, findings, shown) {
			return
		}
	}

	f.t.Fatalf("%s: the remedies do not end", c)
}

// step runs the command lines up to the first one that changes something, and
// reports whether there is one.
func (f faults) step(c failure, findings []api.Finding, shown string) bool {
	f.t.Helper()

	for _, finding := range findings {
		for _, a := range finding.Actions {
			line := api.CommandsOf(f.program(), api.RestoreActions([]api.Action{a}))
			if len(line) != 1 || strings.ContainsAny(line[0], "…<>|;'") {
				f.t.Fatalf("%s: the remedy %+v cannot be pasted: %q", c, a, line)
			}
			if !strings.Contains(shown, line[0]) {
				f.t.Errorf("%s: %q is not printed in\n%s", c, line[0], shown)
			}

			changes := a.Method != http.MethodGet
			shown := f.paste(c, line[0], changes && c.verb == inventory.VerbDiscover)

			// A question comes with several nodes only.
			if asked := strings.Contains(shown, "[y/N]"); asked != (changes && len(a.Nodes) > 1) {
				f.t.Errorf("%s: %q asks a question: %t", c, line[0], asked)
			}

			if changes {
				return true
			}
		}
	}

	return false
}

// program returns the command that reaches the daemon.
func (f faults) program() string { return "clusterctl -u unix://" + f.dir + "/s" }

// command returns the output of clusterctl at a terminal.
func (f faults) command(args ...string) string {
	f.t.Helper()
	return f.paste(failure{}, f.program()+" "+strings.Join(args, " "), false)
}

// paste runs a command line at a terminal, confirms it if it asks, and expects its
// success. The host of a discover appears while it runs.
func (f faults) paste(c failure, line string, appears bool) string {
	f.t.Helper()

	master, slave, err := pty.Open()
	f.must(err)
	defer master.Close()

	var shown bytes.Buffer

	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(&shown, master) // ends with EIO once the terminal is closed
	}()

	// A terminal keeps the line until a question is asked.
	_, err = master.WriteString("y\n")
	f.must(err)

	code := make(chan int, 1)
	go func() {
		code <- clusterctl.Run(f.ctx(), strings.Fields(line),
			clusterctl.Options{Stdin: slave, Stdout: slave, Stderr: slave})
	}()

	if appears {
		f.appear()
	}

	got := <-code
	_ = slave.Close()
	<-read

	if got != exit.Done {
		f.t.Errorf("%s: %q ends with status %d:\n%s", c, line, got, &shown)
	}

	return shown.String()
}

// appear reports the host of a discover once the newest job waits for it.
func (f faults) appear() {
	f.t.Helper()
	f.awaitAppear()
	f.see("host", discovered)
}

// awaitAppear waits until the newest job waits for its host.
func (s *site) awaitAppear() {
	s.t.Helper()
	s.eventually("the discover waits for its host", func() bool {
		jobs, err := s.Client.Jobs(s.ctx(), client.JobFilter{Limit: 1})
		s.must(err)
		return jobs.Items[0].Phase == string(job.PhaseAppear)
	})
}

// TestRemovalLeavesOut: a selector that also chooses the manager's own host, or a host that is away, is refused with
// the one that removes the others.
func TestRemovalLeavesOut(t *testing.T) {
	t.Parallel()

	f := prepareFaults(prepareHost(t))
	f.upWithHost()
	f.see("a", "10.0.2.1")
	f.see("b", "10.0.2.2")
	f.see("away", "10.0.2.3")
	f.lose("away", "10.0.2.3")

	selector := "status=Unallocated"

	for _, want := range []string{"manager-1", "nodes that are away", ""} {
		var shown bytes.Buffer

		code := clusterctl.Run(f.ctx(), append(strings.Fields(f.program()),
			"nodes", "forget", "-l", selector, "--remove-agent", "--yes"),
			clusterctl.Options{Stdin: strings.NewReader(""), Stdout: &shown, Stderr: &shown})

		if want == "" {
			if code != 0 || !strings.Contains(shown.String(), "a-1, b-1") {
				t.Errorf("%s: %d: %s", selector, code, &shown)
			}
			return
		}

		_, rest, ok := strings.Cut(shown.String(), "to leave out "+want+": -l ")
		if code != exit.Refused || !ok {
			t.Fatalf("%s: %d: %s", selector, code, &shown)
		}
		line, _, _ := strings.Cut(rest, "\n")
		selector = strings.Trim(line, "'")
	}
}
