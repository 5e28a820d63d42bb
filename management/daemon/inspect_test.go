// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/bmc"
	"github.com/contiv/cluster/inventory/bmc/bmctest"
	"github.com/contiv/cluster/inventory/facts"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/hardware"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/step"
	"github.com/contiv/cluster/management/step/inspect"
	"github.com/contiv/cluster/management/step/power"
)

// inspected are hosts that answer an inspection, by name.
type inspected struct {
	mu      sync.Mutex
	outputs map[string]string
	silent  map[string]int // how often a host is silent yet
	stuck   string         // a host that answers when its context ends
	calls   map[string]int
	rules   []hardware.Rule
	blocks  atomic.Bool // what does not fit its class is not provided
	begun   chan string
	store   chan record.Store // has that of the manager while it runs
}

// site returns the rules of the site.
func (i *inspected) site() hardware.Site {
	return hardware.Site{Rules: i.rules, Groups: inventory.DefaultGroups(), ClassBlocks: i.blocks.Load()}
}

// Keep implements inspect.Keep. A job may go on before the start of its manager has returned.
func (i *inspected) Keep(ctx context.Context, node, job string, found facts.Found) ([]string, error) {
	select {
	case store := <-i.store:
		i.store <- store
		return inspect.KeepIn(store, i.site)(ctx, node, job, found)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// RunProgram implements inspect.Hosts.
func (i *inspected) RunProgram(
	ctx context.Context, h configuration.Host, p configuration.Program,
) ([]byte, configuration.Reach, error) {
	i.mu.Lock()
	i.calls[h.Name]++
	silent := i.silent[h.Name] > 0
	i.silent[h.Name]--
	output, stuck := i.outputs[h.Name], i.stuck == h.Name
	i.mu.Unlock()

	switch {
	case p.Limit != 1<<20:
		return nil, configuration.Reach{}, errors.New("the output has no bound")
	case stuck:
		i.begun <- h.Name
		<-ctx.Done()
		return nil, configuration.Reach{}, ctx.Err()
	case silent:
		return nil, configuration.Reach{Port: "no route to the host", Silent: true}, errors.New("no route to the host")
	case output == "":
		return nil, configuration.Reach{Login: "denied"}, errors.New("the host denied the login")
	}

	return []byte(output), configuration.Reach{}, nil
}

// set changes what a host answers.
func (i *inspected) set(name string, f facts.Facts) {
	i.mu.Lock()
	defer i.mu.Unlock()

	f.Schema = facts.Schema
	b, _ := json.Marshal(f)
	i.outputs[name] = string(b)
}

// inspectors begins a manager whose inspections reach the hosts, with nodes that are Manageable.
func inspectors(t *testing.T, hosts *inspected, labels string) *site {
	t.Helper()

	hosts.outputs, hosts.calls, hosts.store = map[string]string{}, map[string]int{}, make(chan record.Store, 1)
	if hosts.silent == nil {
		hosts.silent = map[string]int{}
	}

	s := prepare(t)
	s.breaksLifecycle = true // below, which the watch of the lifecycle may see on a slow machine
	executor := inspect.New(inspect.Options{
		Hosts: hosts, BMCs: power.Registered{Pool: bmc.New()}, Keep: hosts.Keep, Retry: time.Millisecond,
		Settings: func() step.Settings { return step.Settings{} },
	})
	s.tune = func(o *Options) {
		o.Executors = func(record.Store) step.Executors { return step.Executors{job.StepInspect: executor} }
	}
	s.up()
	t.Cleanup(s.down)

	hosts.store <- s.store
	s.report(labels)

	for label := range strings.FieldsSeq(labels) {
		_, _, err := record.Decide(s.ctx(), s.store, func(tx *record.Tx) (any, error) {
			n, _ := state.ViewOf(tx).Lookup(label + "-1")
			n.Status = inventory.Manageable
			tx.Attach(state.NodeWrite{Node: n})
			return nil, nil
		})
		s.must(err)
	}

	return s
}

// machineOf is a machine with memory and disks.
func machineOf(memory int, disks ...string) facts.Facts {
	f := facts.Facts{
		Arch: "x86_64", System: facts.System{Vendor: "Dell Inc.", Product: "R640"},
		Memory: facts.Memory{TotalMB: memory}, CPU: facts.CPU{Threads: 32},
	}
	for _, d := range disks {
		f.Disks = append(f.Disks, facts.Disk{Name: "sd" + d, Serial: d, SizeBytes: 480_000_000_000})
	}

	return f
}

// TestInspect: what is found of each node is kept, in short in its record, and a node that fails keeps none of the
// others from that.
func TestInspect(t *testing.T) {
	t.Parallel()

	hosts := &inspected{silent: map[string]int{"db-1": 2, "dead-1": 1000}}
	s := inspectors(t, hosts, "web db old dead")
	hosts.set("web-1", machineOf(65536, "a"))
	hosts.set("db-1", machineOf(32768, "b"))
	hosts.set("dead-1", machineOf(1))
	hosts.outputs["old-1"] = "bash: \x1b[2J: no such file"

	all := []string{"web-1", "db-1", "old-1", "dead-1"}

	j := s.runJob(api.JobRequest{Verb: inventory.VerbInspect, Nodes: all})
	if j.Status != api.Errored {
		t.Errorf("job %s is %s: %s", j.ID, j.Status, j.Message)
	}

	if hosts.calls["db-1"] != 3 || hosts.calls["dead-1"] != 3 || hosts.calls["old-1"] != 1 {
		t.Errorf("calls: %v", hosts.calls)
	}

	for name, problem := range map[string]string{
		"web-1": "", "db-1": "", "old-1": "not answered with facts", "dead-1": "no route to the host",
	} {
		n, err := s.Node(s.ctx(), name)
		s.must(err)

		if n.Status != inventory.Manageable || (n.Hardware == nil) != (problem != "") ||
			!strings.Contains(n.LastError, problem) || (n.LastError == "") != (problem == "") {
			t.Errorf("%s: %s, %q, %+v", name, n.Status, n.LastError, n.Hardware)
		}
	}

	for selector, want := range map[string]string{
		"facts.memory_mb>64000":                  "web-1",
		"facts.memory_mb<64000":                  "db-1",
		"facts.vendor=Dell-Inc,facts.threads=32": "db-1 web-1",
		"!facts.memory_mb,status=Manageable":     "dead-1 old-1",
		"facts.disk_gb in (480,481),name!=db-1":  "web-1",
		"facts.arch=aarch64":                     "",
	} {
		list, err := s.Nodes(s.ctx(), client.NodeFilter{Selector: selector})
		s.must(err)

		var names []string
		for _, n := range list.Items {
			names = append(names, n.Name)
		}

		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: %q, want %q", selector, got, want)
		}
	}

	if _, err := s.Facts(s.ctx(), "old-1", 0); inventory.KindOf(err) != inventory.KindNotFound {
		t.Errorf("facts of old-1: %v", err)
	}
}

// TestInspectAgain: the newest inspections are kept, and each says what has changed.
func TestInspectAgain(t *testing.T) {
	t.Parallel()

	hosts := &inspected{}
	s := inspectors(t, hosts, "web")

	const times = 12

	for i := range times {
		f := machineOf(65536, "a")
		if i == times-1 {
			f = machineOf(65536, "a", "b")
		}

		hosts.set("web-1", f)

		j := s.runJob(api.JobRequest{Verb: inventory.VerbInspect, Nodes: []string{"web-1"}})
		if j.Status != api.Complete {
			t.Fatalf("job %s is %s: %s", j.ID, j.Status, j.Message)
		}
	}

	f, err := s.Facts(s.ctx(), "web-1", 0)
	s.must(err)

	if f.Inspection.Number != times || len(f.Inspections) != 10 || f.Inspections[0].Number != 3 ||
		!slices.Equal(f.Changes, []string{"disk sdb of 480 GB (serial b) was added"}) || len(f.Facts.Disks) != 2 {
		t.Errorf("%+v", f)
	}

	f, err = s.Facts(s.ctx(), "web-1", times-1)
	s.must(err)

	if len(f.Changes) != 0 || len(f.Facts.Disks) != 1 {
		t.Errorf("%+v", f)
	}

	if _, err := s.Facts(s.ctx(), "web-1", 2); inventory.KindOf(err) != inventory.KindNotFound {
		t.Errorf("a pruned inspection: %v", err)
	}
}

// TestInspectionRules: a rule labels a node, another one fails it and keeps it from being provided, until an inspection
// fits.
func TestInspectionRules(t *testing.T) {
	t.Parallel()

	hosts := &inspected{rules: []hardware.Rule{
		{Name: "dell", When: "facts.vendor=Dell-Inc", Labels: map[string]string{"vendor": "dell"}},
		{Name: "small", When: "vendor=dell,facts.memory_mb<64000", Fail: "it has too little memory"},
	}}
	s := inspectors(t, hosts, "web db")
	hosts.set("web-1", machineOf(65536, "a"))
	hosts.set("db-1", machineOf(32768, "b"))

	inspectBoth := func(want string) {
		t.Helper()

		j := s.runJob(api.JobRequest{Verb: inventory.VerbInspect, Nodes: []string{"web-1", "db-1"}})
		if string(j.Status) != want {
			t.Fatalf("job %s is %s: %s", j.ID, j.Status, j.Message)
		}
	}
	nodeOf := func(name string) api.Node {
		n, err := s.Node(s.ctx(), name)
		s.must(err)

		return n
	}
	labelled := func(name string) int {
		h, err := s.History(s.ctx(), name, 0)
		s.must(err)

		count := 0
		for _, e := range h.Items {
			if e.Reason == "the rule dell set the label vendor=dell" {
				count++
			}
		}

		return count
	}

	inspectBoth("Errored")

	if n := nodeOf("web-1"); n.Labels["vendor"] != "dell" || n.LastError != "" || len(n.Alerts) != 0 {
		t.Errorf("%+v", n)
	}

	n := nodeOf("db-1")
	if !strings.Contains(n.LastError, "the rule small fails it: it has too little memory") || len(n.Alerts) != 1 ||
		n.Status != inventory.Manageable || n.Hardware == nil || n.Alerts[0].Source != "rule small" {
		t.Fatalf("%+v", n)
	}

	provide := api.JobRequest{Verb: inventory.VerbProvide, Nodes: []string{"db-1"}}
	if _, err := s.Submit(s.ctx(), provide); inventory.KindOf(err) != inventory.KindRefused ||
		!strings.Contains(err.Error(), "db-1 has an alert that refuses provide: it has too little memory") {
		t.Errorf("provide: %v", err)
	}

	// Nothing has changed: there is no second alert, and no second entry of the label.
	inspectBoth("Errored")

	if again := nodeOf("db-1"); len(again.Alerts) != 1 || !again.Alerts[0].Since.Equal(n.Alerts[0].Since) {
		t.Errorf("%+v", again.Alerts)
	}

	hosts.set("db-1", machineOf(65536, "b"))
	inspectBoth("Complete")

	if n := nodeOf("db-1"); n.LastError != "" || len(n.Alerts) != 0 || labelled("db-1") != 1 || labelled("web-1") != 1 {
		t.Errorf("%q, %+v, %d, %d", n.LastError, n.Alerts, labelled("db-1"), labelled("web-1"))
	}
}

// TestClasses: an inspection compares a node with its class. What differs is an alert, which keeps the node from being
// provided where the site says so, until an inspection fits.
func TestClasses(t *testing.T) {
	t.Parallel()

	hosts := &inspected{}
	s := inspectors(t, hosts, "web db")

	modules := func(f facts.Facts, slots string) facts.Facts {
		for slot := range strings.FieldsSeq(slots) {
			f.Memory.Modules = append(f.Memory.Modules, facts.Module{Slot: slot, SizeMB: 16384})
		}

		return f
	}
	hosts.set("web-1", modules(machineOf(32768, "a"), "B2 B3"))

	short := modules(machineOf(16384, "b"), "B2")
	hosts.set("db-1", short)

	_, err := s.CreateClass(s.ctx(), api.ClassRequest{Name: "r640", From: "web-1"})
	if inventory.KindOf(err) != inventory.KindNotFound {
		t.Errorf("a class of a node without facts: %v", err)
	}

	look := func(names ...string) {
		t.Helper()

		if j := s.runJob(api.JobRequest{Verb: inventory.VerbInspect, Nodes: names}); j.Status != api.Complete {
			t.Fatalf("job %s is %s: %s", j.ID, j.Status, j.Message)
		}
	}
	look("web-1", "db-1")

	for _, wrong := range []api.ClassRequest{
		{Name: "R 640", From: "web-1"}, {Name: "r640", From: "web-1", Nodes: "facts.disks>many"},
		{Name: "r640", From: "web-1", Nodes: "group=none"},
	} {
		if _, err := s.CreateClass(s.ctx(), wrong); inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("%+v: %v", wrong, err)
		}
	}

	class, err := s.CreateClass(s.ctx(), api.ClassRequest{Name: "r640", From: "web-1"})
	s.must(err)

	if class.Nodes != "facts.vendor=Dell-Inc,facts.product=R640" || len(class.Shape.Modules) != 2 {
		t.Errorf("%+v", class)
	}

	alerts := func() (all []string) {
		l, err := s.Alerts(s.ctx())
		s.must(err)

		for _, a := range l.Items {
			all = append(all, fmt.Sprint(a.Node, " ", a.Source, ": ", a.Reason, " ", a.Effects))
		}

		return all
	}
	provide := api.JobRequest{Verb: inventory.VerbProvide, Nodes: []string{"db-1"}}

	look("web-1", "db-1")

	if got := alerts(); !slices.Equal(got, []string{"db-1 class r640: DIMM B3 missing []"}) {
		t.Errorf("alerts: %q", got)
	}

	// The same alert blocks once the site says so.
	hosts.blocks.Store(true)
	look("db-1")

	if got := alerts(); !slices.Equal(got, []string{"db-1 class r640: DIMM B3 missing [blocks-provide]"}) {
		t.Errorf("alerts: %q", got)
	}

	if _, err := s.Submit(s.ctx(), provide); inventory.KindOf(err) != inventory.KindRefused ||
		!strings.Contains(err.Error(), "db-1 has an alert that refuses provide: DIMM B3 missing") {
		t.Errorf("provide: %v", err)
	}

	// Among several nodes it is the one that is named, and a chain of verbs goes on without it.
	both := []string{"db-1", "web-1"}
	_, err = s.Submit(s.ctx(), api.JobRequest{Verb: inventory.VerbProvide, Nodes: both})

	if e, _ := errors.AsType[*inventory.Error](err); e == nil || !slices.Equal(e.Nodes, both[:1]) {
		t.Errorf("provide of both: %v", err)
	}

	chain, err := s.Import(s.ctx(), api.Import{Nodes: both, Then: []inventory.Verb{inventory.VerbProvide}})
	s.must(err)

	s.eventually("the chain has ended", func() bool {
		run, err := s.ImportRun(s.ctx(), chain.ID)
		return err == nil && run.Done
	})

	run, err := s.ImportRun(s.ctx(), chain.ID)
	s.must(err)

	if n := run.Nodes[0]; len(run.Jobs) != 1 || n.Node != "db-1" || n.Status != inventory.Manageable || n.Job != "" ||
		!strings.Contains(n.Error, "db-1 has an alert that refuses provide: DIMM B3 missing") {
		t.Errorf("%+v", run)
	}

	if n := run.Nodes[1]; n.Node != "web-1" || n.Job != "" && n.Job != run.Jobs[0] {
		t.Errorf("%+v", n)
	}

	f, err := s.Facts(s.ctx(), "db-1", 0)
	s.must(err)

	if len(f.Classes) != 1 || f.Classes[0].Class != "r640" ||
		!slices.Equal(f.Classes[0].Differences, []string{"DIMM B3 missing"}) {
		t.Errorf("%+v", f.Classes)
	}

	hosts.set("db-1", modules(machineOf(32768, "b"), "B2 B3"))
	look("db-1")

	if got := alerts(); len(got) != 0 {
		t.Errorf("alerts: %q", got)
	}

	hosts.set("db-1", short)
	look("db-1")

	if got := alerts(); len(got) != 1 {
		t.Errorf("alerts: %q", got)
	}

	// Without the class, nothing is compared, and no alert stays.
	_, err = s.DeleteClass(s.ctx(), "r640")
	s.must(err)

	if got := alerts(); len(got) != 0 {
		t.Errorf("alerts: %q", got)
	}

	look("db-1")

	if got := alerts(); len(got) != 0 {
		t.Errorf("alerts: %q", got)
	}

	if _, err := s.DeleteClass(s.ctx(), "r640"); inventory.KindOf(err) != inventory.KindNotFound {
		t.Errorf("deleted twice: %v", err)
	}
}

// TestInspectCrash: a manager that stops while it inspects does it again, and what the job had found of the other node
// counts once.
func TestInspectCrash(t *testing.T) {
	t.Parallel()

	hosts := &inspected{stuck: "db-1", begun: make(chan string, 10)}
	s := inspectors(t, hosts, "web db")
	hosts.set("web-1", machineOf(65536, "a"))
	hosts.set("db-1", machineOf(32768, "b"))

	j, err := s.Submit(s.ctx(), api.JobRequest{Verb: inventory.VerbInspect, Nodes: []string{"web-1", "db-1"}})
	s.must(err)
	<-hosts.begun

	// The result of one is there while the other hangs.
	s.eventually("the facts of web-1", func() bool {
		_, err := s.Facts(s.ctx(), "web-1", 0)
		return err == nil
	})

	if got := s.status("web-1"); !strings.HasPrefix(got, string(inventory.Inspecting)) {
		t.Errorf("web-1 is %s", got)
	}

	s.down()
	<-hosts.store
	hosts.mu.Lock()
	hosts.stuck = ""
	hosts.mu.Unlock()
	s.up()

	hosts.store <- s.store

	s.until(j.ID, "complete", func(j api.Job) bool { return j.Status == api.Complete })

	f, err := s.Facts(s.ctx(), "web-1", 0)
	s.must(err)

	if len(f.Inspections) != 1 || f.Inspection.Number != 1 || f.Inspection.Job != j.ID {
		t.Errorf("%+v", f.Inspections)
	}
}

// change changes the record of a node.
func (s *site) change(name string, f func(*inventory.Node)) {
	s.t.Helper()

	_, _, err := record.Decide(s.ctx(), s.store, func(tx *record.Tx) (any, error) {
		n, _ := state.ViewOf(tx).Lookup(name)
		f(&n)
		tx.Attach(state.NodeWrite{Node: n})

		return nil, nil
	})
	s.must(err)
}

// TestInspectOutOfBand: a node is inspected over ssh and by its BMC, or by what it has of the two. A BMC that fails is
// a problem, and a machine that fails is the failure.
func TestInspectOutOfBand(t *testing.T) {
	t.Parallel()

	hosts := &inspected{}
	s := inspectors(t, hosts, "both console wrong dead quiet")

	withBMC, alone, unused := bmctest.NewRedfish(t, 1), bmctest.NewRedfish(t, 1), bmctest.NewRedfish(t, 1)
	wrong := bmctest.NewRedfish(t, 1).BMC
	wrong.Password = "wrong"

	s.register("both-1", withBMC.BMC)
	s.register("console-1", alone.BMC)
	s.register("wrong-1", wrong)
	s.register("dead-1", unused.BMC)
	s.register("quiet-1", bmctest.NewIPMI(t, 0).BMC)

	for _, name := range []string{"console-1", "quiet-1"} {
		s.change(name, func(n *inventory.Node) { n.Addr = "" })
	}

	machine := machineOf(32000, "1")
	machine.Disks[0].Serial = "D11" // the BMC has it in small letters
	hosts.set("both-1", machine)
	hosts.set("wrong-1", machine)

	_, err := s.Submit(s.ctx(), api.JobRequest{Verb: inventory.VerbInspect, Nodes: []string{"both-1", "quiet-1"}})
	checkError(t, err, inventory.KindRefused, "BMC with Redfish", "quiet-1")

	if e, _ := errors.AsType[*inventory.Error](err); e == nil || !slices.Equal(e.Nodes, []string{"quiet-1"}) {
		t.Errorf("the refusal is about %+v", e)
	}

	// With IPMI alone a chain ends with the reason, and the machine is offered without an inspection.
	chain, err := s.Import(s.ctx(), api.Import{
		Nodes: []string{"quiet-1"}, Then: []inventory.Verb{inventory.VerbInspect, inventory.VerbProvide},
	})
	s.must(err)

	if said := strings.Join(
		chain.Warnings,
		" ",
	); len(chain.Jobs) > 0 ||
		!strings.Contains(said, "IPMI tells no facts") {
		t.Errorf("a chain on IPMI alone: %+v", chain)
	}

	j := s.runJob(api.JobRequest{Verb: inventory.VerbProvide, Nodes: []string{"quiet-1"}})
	if n, err := s.Node(s.ctx(), "quiet-1"); err != nil || n.Status != inventory.Unallocated || n.Hardware != nil {
		t.Errorf("provide without an inspection: %+v, %v, %s %s", n, err, j.Status, j.Message)
	}

	all := []string{"both-1", "console-1", "wrong-1", "dead-1"}

	j = s.runJob(api.JobRequest{Verb: inventory.VerbInspect, Nodes: all})
	if j.Status != api.Errored {
		t.Errorf("job %s is %s: %s", j.ID, j.Status, j.Message)
	}

	for name, want := range map[string]struct {
		sources string
		modules int
		disk    string // its name and place
		problem string
		err     string
	}{
		"both-1":    {"ssh redfish", 3, "sd1 Bay.0", "", ""},
		"console-1": {"redfish", 3, " Bay.0", "", ""},
		"wrong-1":   {"ssh", 0, "sd1 ", "BMC: the BMC refused the login", ""},
		"dead-1":    {"", 0, "", "", "the host denied the login"},
	} {
		n, err := s.Node(s.ctx(), name)
		s.must(err)

		if n.Status != inventory.Manageable || !strings.Contains(n.LastError, want.err) ||
			(n.LastError == "") != (want.err == "") {
			t.Errorf("%s: %s, %q", name, n.Status, n.LastError)
		}

		f, err := s.Facts(s.ctx(), name, 0)
		if want.err != "" {
			checkError(t, err, inventory.KindNotFound)
			continue
		}
		s.must(err)

		sources, problems := strings.Join(f.Facts.Sources, " "), strings.Join(f.Facts.Problems, "\n")
		if sources != want.sources || len(f.Facts.Memory.Modules) != want.modules ||
			f.Facts.Disks[0].Name+" "+f.Facts.Disks[0].Place != want.disk ||
			!strings.Contains(problems, want.problem) || (problems != "") != (want.problem != "") {
			t.Errorf("%s: %+v", name, f.Facts)
		}
	}

	// The disk of an installation is in the output, in the facts and in the explanation.
	const root = "sd1, 480 GB, the smallest disk, without a hint"

	if f, err := s.Facts(s.ctx(), "both-1", 0); err != nil || f.RootDevice != root {
		t.Errorf("root device: %v, %q", err, f.RootDevice)
	}

	log, err := s.Log(s.ctx(), j.ID, 0, false)
	s.must(err)

	defer log.Close()

	output, err := io.ReadAll(log)
	if s.must(err); !strings.Contains(string(output), "both-1: root device: "+root) {
		t.Errorf("output: %s", output)
	}

	e, err := s.Explain(s.ctx(), "both-1")
	if s.must(err); !strings.Contains(fmt.Sprint(e.Findings), "root device: "+root) {
		t.Errorf("explanation: %+v", e.Findings)
	}

	// Now by the BMC alone: what it never tells is not gone. Then a module is.
	again := func(want ...string) {
		t.Helper()

		if j := s.runJob(api.JobRequest{Verb: inventory.VerbInspect, Nodes: all[:1]}); j.Status != api.Complete {
			t.Fatalf("job %s is %s: %s", j.ID, j.Status, j.Message)
		}

		f, err := s.Facts(s.ctx(), "both-1", 0)
		if s.must(err); !slices.Equal(f.Changes, want) {
			t.Errorf("changes: %q, want %q", f.Changes, want)
		}
	}

	s.change("both-1", func(n *inventory.Node) { n.Addr = "" })
	again()
	withBMC.Put("/redfish/v1/Systems/1/Memory/DIMM.A2", nil)
	again("one DIMM of 16 GiB is gone (DIMM A2)")
}
