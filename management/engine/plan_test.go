// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	. "github.com/contiv/cluster/management/engine"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/plan"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// planner is a bench whose manager has an identity and makes plans.
func planner(t *testing.T, change ...func(*bench)) *bench {
	t.Helper()

	return newBench(t, append(change, func(b *bench) {
		b.settings.Manager, b.settings.PlanFor, b.settings.PlanLimit = "3f9a1c207b1e44d2", time.Hour, 10
	})...)
}

func (b *bench) plan(r job.Request) plan.Plan {
	b.t.Helper()
	p, err := b.Engine.Plan(b.within(patience), anna(), r)
	b.must(err)
	return p
}

func (b *bench) applyPlan(id string) (job.Job, error) {
	b.t.Helper()
	return b.Engine.ApplyPlan(b.within(patience), access.Caller{Principal: "ben"}, id)
}

// pin changes what the folder of playbooks has from now on.
func (b *bench) pin(tree string, changed ...string) {
	b.books.mu.Lock()
	defer b.books.mu.Unlock()
	b.books.pinned, b.books.changed = tree, changed
}

// TestPlanAndApply: a plan does nothing, and applying it does what it says, once.
func TestPlanAndApply(t *testing.T) {
	t.Parallel()
	b := planner(t)
	b.see("a b c")
	b.do(commission, "a", master, "Complete")
	b.do(commission, "b c", worker, "Complete")

	_, _, err := b.SetVars(t.Context(), state.ScopeGlobal, configuration.Vars{"db_password": "s3cret"}, "anna", nil)
	b.must(err)
	b.set(func(s *Settings) { s.Secrets = configuration.DefaultSecrets() })

	jobs, nodes := len(b.View().Jobs()), records(b.View())
	b.audit.take()

	p := b.plan(job.Request{
		Verb:       update,
		Nodes:      names("c b"),
		JobOptions: inventory.JobOptions{Serial: "1", SharedOptions: inventory.SharedOptions{Reason: "why not"}},
		Extra:      configuration.Vars{"release": "2"},
	})

	if len(b.View().Jobs()) != jobs || !reflect.DeepEqual(records(b.View()), nodes) {
		t.Error("the plan has done something")
	}

	if got := b.audit.take(); !slices.Equal(got, []string{"anna plans.create.update " + p.ID + ",c-1,b-1"}) {
		t.Errorf("the audit has %q", got)
	}

	// What it shows.
	wantService := []api.PlanService{{Group: worker, Nodes: []string{"c-1", "b-1"}, AtOnce: 1, Before: 2}}
	if !slices.Equal(p.Job.Names(), []string{"c-1", "b-1"}) || p.Job.PlaybookDigest != "tree-1" ||
		!reflect.DeepEqual(p.Service, wantService) || len(p.Rules) != 1 || p.Rules[0].Left != 1 || p.Waits != "" ||
		p.Expected != nil || p.Actor != "anna" || !p.Open(time.Now()) || p.Applied != "" {
		t.Errorf("%+v", p)
	}

	in, err := b.Engine.Inputs(t.Context(), plan.InputsOf(p.ID))
	b.must(err)

	if got := fmt.Sprint(in.Vars["b-1"]["db_password"], in.Extra); got != "{(hidden) global false} map[release:2]" {
		t.Errorf("the inputs are %s", got)
	}

	// A restart is between a plan and its application.
	b.restart()

	j, err := b.applyPlan(p.ID)
	b.must(err)
	j = b.end(j.ID, "Complete")

	if j.Plan != p.ID || j.PlannedBy != "anna" || j.Actor != "ben" || j.Serial != "1" || j.Reason != "why not" ||
		!slices.Equal(j.Names(), p.Job.Names()) || j.PlaybookDigest != "tree-1" || j.Timeout != p.Job.Timeout {
		t.Errorf("%+v", j)
	}

	specs := b.books.started()
	if got := specs[len(specs)-1]; got.Extra["release"] != "2" || got.Hosts[0].Vars["db_password"].Value == nil {
		t.Errorf("the last run is %+v", got)
	}

	applied := record.Get(b.View(), &plan.Kind, p.ID)
	if applied.Applied != j.ID || applied.AppliedBy != "ben" || applied.AppliedAt.IsZero() || applied.Open(time.Now()) {
		t.Errorf("%+v", applied)
	}

	_, err = b.applyPlan(p.ID)
	b.refused(err, inventory.KindRefused, "was applied already, as job "+j.ID, "show-job job="+j.ID)

	// The next plan knows how long it takes.
	if next := b.plan(
		job.Request{Verb: update, Nodes: names("b")},
	); next.Expected == nil || next.Expected.Jobs != 1 ||
		next.Expected.Total == 0 {
		t.Errorf("%+v", next.Expected)
	}

	// The job remembers its plan, when that is gone.
	_, err = b.Engine.DeletePlan(t.Context(), anna(), p.ID)
	b.must(err)
	_, err = b.applyPlan(p.ID)
	b.refused(err, inventory.KindRefused, "was applied already, as job "+j.ID)
}

// TestPlanRefusesChange: after each change of the world the plan is refused, and the
// refusal names it.
func TestPlanRefusesChange(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		change func(b *bench)
		words  []string
	}{
		"a variable": {func(b *bench) {
			_, _, err := b.SetVars(b.t.Context(), state.ScopeNode("b-1"), configuration.Vars{"port": "2"}, "anna", nil)
			b.must(err)
		}, []string{"b-1: variables changed: port"}},
		"a variable of the configuration": {func(b *bench) {
			b.set(func(s *Settings) { s.Vars = configuration.Vars{"site": "x"} })
		}, []string{"a-1: variables changed: site", "b-1: variables changed: site"}},
		"ssh parameters": {func(b *bench) {
			c := configuration.Connection{Port: 2222, User: "x"}
			_, err := b.PatchNode(b.t.Context(), "a-1", node.Patch{Connection: &c}, "anna", nil)
			b.must(err)
		}, []string{"a-1: ssh parameters changed: port, user"}},
		"the playbooks": {func(b *bench) { b.pin("tree-2", "site.yml", "roles/web/main.yml") },
			[]string{"the playbooks have changed (digest tree-2 now, and tree-1 then): site.yml, roles/web/main.yml"}},
		"a commit": {func(b *bench) { b.pin("git-0123456789abcdef", "site.yml") },
			[]string{"the playbooks have changed (commit 0123456789ab now, and digest tree-1 then): site.yml"}},
		"a node is lost": {func(b *bench) { b.lose("b") },
			[]string{"b-1 is Disappeared, and apply needs it Discovered"}},
		"a node is out of service": {func(b *bench) { b.do(decommission, "b", "", "Complete") },
			[]string{"b-1 is Decommissioned; apply takes nodes that are Allocated"}},
		"a node is in another group": {func(b *bench) { b.do(update, "b", worker, "Complete") },
			[]string{
				"b-1: its group is service-worker now, and was service-master", "b-1: job 2 has configured it since",
			}},
		"a node was configured": {func(b *bench) { b.do(apply, "b", "", "Complete") },
			[]string{"b-1: job 2 has configured it since"}},
		"a node was configured in part": {func(b *bench) {
			b.books.on(job.PlaybookSite, failsOn("b-1"))
			b.do(apply, "b", "", "Errored failed")
		}, []string{"b-1: its configuration is not known any more, and was that of job 1"}},
		"a job is ahead": {func(b *bench) {
			g := newGate()
			b.books.on(job.PlaybookUpgrade, g.script)
			b.ask(maintenance, "b", "")
			b.begun(g)
		}, []string{"job 2 has come before it"}},
		"a rule": {func(b *bench) {
			b.set(func(s *Settings) {
				s.Groups = inventory.Groups{{Name: master}, {Name: worker}}
			})
		}, []string{"the requirement of group service-worker is none now, and was 1 of service-master"}},
		"a CA for host certificates": {func(b *bench) { b.set(func(s *Settings) { s.HostCAs = []string{"x"} }) },
			[]string{"the setting ssh.host_ca was changed"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := planner(t)
			b.see("a b")
			b.do(commission, "a b", master, "Complete")

			p := b.plan(job.Request{Verb: apply, Nodes: names("a b")})
			c.change(b)

			jobs := len(b.View().Jobs())
			_, err := b.applyPlan(p.ID)
			b.refused(err, inventory.KindRefused, append(c.words, "plan "+p.ID+" does not fit any more",
				"make a new plan", "make-plan verb=apply nodes=a-1,b-1")...)

			if len(b.View().Jobs()) != jobs {
				t.Error("a job was accepted")
			}
		})
	}
}

// TestPlanRemedyIsWhole: the remedy of a plan that is refused is the whole request again,
// without the values of secrets, and the text that it shows in place of one is refused.
func TestPlanRemedyIsWhole(t *testing.T) {
	t.Parallel()
	b := planner(t)
	b.set(func(s *Settings) { s.Secrets = configuration.DefaultSecrets() })
	b.see("a b")
	b.do(commission, "a b", master, "Complete")

	p := b.plan(job.Request{
		Verb:  apply,
		Nodes: names("b a"),
		JobOptions: inventory.JobOptions{
			Serial:      "1",
			MaxFailures: 2,
			Diff:        true,
			Verbosity:   2,
			SharedOptions: inventory.SharedOptions{
				Reason:   "it's time",
				Tags:     []string{"web", "db"},
				SkipTags: []string{"slow"},
			},
		},
		Timeout: 90 * time.Minute,
		Extra:   configuration.Vars{"release": "2.1", "db_password": "s3cret"},
	})

	b.pin("tree-2")
	_, err := b.applyPlan(p.ID)
	b.refused(err, inventory.KindRefused, "the playbooks have changed",
		"make a new plan with the same options, with the values of its variables db_password, which are not shown")

	e, ok := errors.AsType[*inventory.Error](err)
	if !ok || strings.Contains(fmt.Sprintf("%+v", e), "s3cret") {
		t.Fatalf("%+v", err)
	}

	const want = "[make-plan verb=apply nodes=b-1,a-1 serial=1 max_failures=2 diff=true tags=web,db skip_tags=slow " +
		`verbosity=2 reason=it's time extra_vars={"db_password":"(hidden)","release":"2.1"} timeout=1h30m]`
	if got := fmt.Sprint(e.Actions); got != want {
		t.Errorf("%s, want %s", got, want)
	}

	_, err = b.Engine.Plan(t.Context(), anna(), job.Request{
		Verb: apply, Nodes: names("a"), Extra: configuration.Vars{"release": []any{"(hidden)"}},
	})
	b.refused(err, inventory.KindInvalid, `the value of release has "(hidden)", which stands for a secret`)

	// The configured time limit needs no option, and a plan with a check gets one again.
	p = b.plan(job.Request{Verb: apply, Nodes: names("a"), JobOptions: inventory.JobOptions{Check: true}})
	b.lose("a")
	_, err = b.applyPlan(p.ID)
	b.refused(err, inventory.KindRefused, "a-1 is Disappeared", "[make-plan verb=apply nodes=a-1 check=true]")
}

// TestPlanOfRange: the plan of a range of addresses can be applied, and its remedy has the
// range.
func TestPlanOfRange(t *testing.T) {
	t.Parallel()
	b := planner(t)

	p := b.plan(job.Request{Verb: discover, Addrs: []string{"10.9.0.77"}, Ranges: []string{"10.9.0.0/24"}})
	if len(p.Job.Targets) != 254 {
		t.Fatalf("%d targets", len(p.Job.Targets))
	}
	j, err := b.applyPlan(p.ID)
	b.must(err)

	if !slices.Equal(j.Names(), p.Job.Names()) {
		t.Errorf("%v, planned %v", j.Names(), p.Job.Names())
	}

	b.set(func(s *Settings) { s.PlanFor = time.Nanosecond })
	over := b.plan(job.Request{Verb: discover, Addrs: []string{"10.8.0.7"}, Ranges: []string{"10.8.0.1-10.8.0.9"}})
	_, err = b.applyPlan(over.ID)
	b.refused(err, inventory.KindRefused, "has expired at",
		"[make-plan verb=discover addrs=10.8.0.7 ranges=10.8.0.1-10.8.0.6,10.8.0.8-10.8.0.9]")
}

// TestPlanIsCheckedAsRequest: each fault for which a request would be refused also refuses its
// plan when it is applied.
func TestPlanIsCheckedAsRequest(t *testing.T) {
	t.Parallel()
	b := planner(t)
	b.see("a b")

	discovered := b.plan(job.Request{Verb: discover, Addrs: []string{"10.9.0.1"}})
	forgotten := b.plan(job.Request{Verb: forget, Nodes: names("a")})

	b.set(func(s *Settings) {
		s.AgentVars, s.NoAgents = nil, inventory.Errorf(inventory.KindRefused, "gossip is off")
		s.Own = "a-1"
	})

	_, err := b.applyPlan(discovered.ID)
	b.refused(err, inventory.KindRefused, "gossip is off")
	_, err = b.applyPlan(forgotten.ID)
	b.refused(err, inventory.KindRefused, "a-1 is the manager's own host")

	b.set(func(s *Settings) { s.Incomplete = errors.New("jobs.keep does not fit") })
	_, err = b.applyPlan(forgotten.ID)
	b.refused(err, inventory.KindRefused, "no job is accepted")

	if jobs := b.View().Jobs(); len(jobs) != 0 {
		t.Errorf("accepted %+v", jobs)
	}
}

// TestPlanExpectedChange: what was ahead when the plan was made does not refuse it.
func TestPlanExpectedChange(t *testing.T) {
	t.Parallel()
	b := planner(t)
	b.see("a b")
	b.do(commission, "a b", master, "Complete")

	ahead, g := b.held(job.PlaybookUpgrade, maintenance, "a", "")

	p := b.plan(job.Request{Verb: apply, Nodes: names("a b")})
	if !slices.Equal(p.Ahead, []string{ahead.ID}) || p.Waits != "a-1 needed by job 2" {
		t.Errorf("ahead %v, waits %q", p.Ahead, p.Waits)
	}

	g.open <- succeeds
	b.end(ahead.ID, "Complete")

	// Somebody else may do what they like to other nodes.
	b.see("c")
	b.do(commission, "c", master, "Complete")

	j, err := b.applyPlan(p.ID)
	b.must(err)
	b.end(j.ID, "Complete")
}

// TestPlanCheck: a plan with a check has what Ansible foresees, and can be applied after
// it.
func TestPlanCheck(t *testing.T) {
	t.Parallel()
	b := planner(t)
	b.see("a")
	b.do(commission, "a", master, "Complete")

	g := newGate()
	b.books.on(job.PlaybookSite, g.script)

	p := b.plan(job.Request{Verb: apply, Nodes: names("a"), JobOptions: inventory.JobOptions{Check: true}})
	run := b.begun(g)

	if p.Check == "" || p.Job.Check || !run.spec.Ansible.Check || !run.spec.Ansible.Diff {
		t.Fatalf("%+v checks with %+v", p, run.spec.Ansible)
	}

	g.open <- func(r *scriptedRun) {
		r.says(job.StreamEvents, "%s\n", `{"event":"ok","host":"a-1","task":"Write","path":"site.yml:3",`+
			`"changed":true,"foreseen":true,"diff":"-x\n+y"}`)
		resultsOn(RunExit{}, job.HostResult{Begun: true, Done: true, Changed: 1, Foreseen: 1})(r)
	}
	b.end(p.Check, "Complete")

	found, err := b.Engine.Foreseen(t.Context(), b.View(), p)
	b.must(err)

	if len(found.Nodes) != 1 || len(found.Nodes[0].Tasks) != 1 || found.Nodes[0].Tasks[0].Diff != "-x\n+y" ||
		found.Truncated || found.Status != api.Complete {
		t.Errorf("%+v", found)
	}

	b.books.on(job.PlaybookSite, succeeds)
	j, err := b.applyPlan(p.ID)
	b.must(err)

	if j = b.end(j.ID, "Complete"); j.Check || j.Diff {
		t.Errorf("%+v", j.JobOptions)
	}
}

// TestPlanOnce: of two who apply a plan at once, on two instances, one gets a job, and
// the other the refusal that names it. A request that is repeated gets its own job.
func TestPlanOnce(t *testing.T) {
	t.Parallel()
	b := planner(t)
	b.see("a")
	b.do(commission, "a", master, "Complete")

	p := b.plan(job.Request{Verb: apply, Nodes: names("a")})

	other := New(b.options(b.store))

	var (
		all  sync.WaitGroup
		mu   sync.Mutex
		ids  []string
		errs []error
	)

	key := access.Key{ID: "k", Request: "r"}

	for i, e := range []*Engine{b.Engine, other, b.Engine, other} {
		all.Go(func() {
			c := access.Caller{Principal: "ben"}
			if i < 2 {
				own := key
				c.Key = &own
			}

			j, err := e.ApplyPlan(b.within(patience), c, p.ID)

			mu.Lock()
			defer mu.Unlock()

			if err != nil {
				errs = append(errs, err)
			} else {
				ids = append(ids, j.ID)
			}
		})
	}

	all.Wait()

	// The two with the key are one request.
	slices.Sort(ids)

	if ids = slices.Compact(ids); len(ids) != 1 || len(b.View().Jobs()) != 2 || len(errs) < 2 {
		t.Fatalf("jobs %v, errors %v", ids, errs)
	}

	for _, err := range errs {
		b.refused(err, inventory.KindRefused, "was applied already, as job 2")
	}

	b.end("2", "Complete")
}

// TestPlanNoGap: a change between the comparison and the acceptance is found as well.
func TestPlanNoGap(t *testing.T) {
	t.Parallel()

	var once sync.Once

	b := planner(t, func(b *bench) {
		b.before = func(tx *record.Tx) {
			if _, kinds := tx.Guards(); !kinds[state.Variables.Name] { // it applies no plan
				return
			}

			once.Do(func() {
				vars := configuration.Vars{"late": "1"}
				_, _, err := b.SetVars(t.Context(), state.ScopeGroup(master), vars, "anna", nil)
				b.must(err)
			})
		}
	})
	b.see("a")
	b.do(commission, "a", master, "Complete")

	p := b.plan(job.Request{Verb: apply, Nodes: names("a")})
	_, err := b.applyPlan(p.ID)
	b.refused(err, inventory.KindRefused, "a-1: variables changed: late")

	if len(b.View().Jobs()) != 1 {
		t.Error("a job was accepted")
	}
}

// TestPlanOfAnother: the id of another manager, of none, and of no plan are refused.
func TestPlanOfAnother(t *testing.T) {
	t.Parallel()
	b := planner(t)

	_, err := b.applyPlan("0a0b0c0d-7b1e44d2")
	b.refused(err, inventory.KindRefused, "plan 0a0b0c0d-7b1e44d2 is of another manager", "3f9a1c20", "list-plans")

	for _, id := range []string{"", "7", "../x", "3f9a1c20-7b1e44d", "3F9A1C20-7B1E44D2", strings.Repeat("x", 1000)} {
		_, err = b.applyPlan(id)
		b.refused(err, inventory.KindNotFound, "is not the id of a plan")
	}

	_, err = b.applyPlan("3f9a1c20-7b1e44d2")
	b.refused(err, inventory.KindNotFound, "there is no plan 3f9a1c20-7b1e44d2; it may have expired or was deleted")
	_, err = b.Engine.DeletePlan(t.Context(), anna(), "3f9a1c20-7b1e44d2")
	b.refused(err, inventory.KindNotFound, "there is no plan")
}

// TestPlanExpires: a plan keeps its playbooks until it expires; then it is refused, and
// removed with its inputs.
func TestPlanExpires(t *testing.T) {
	t.Parallel()
	b := planner(t)
	b.see("a")
	b.do(commission, "a", master, "Complete")
	b.pin("tree-2")

	p := b.plan(job.Request{Verb: apply, Nodes: names("a")})
	b.must(b.Prune(t.Context()))

	if kept := b.books.kept[1]; !slices.Equal(kept, []string{"tree-1", "tree-2"}) {
		t.Errorf("the playbooks kept are %v", kept)
	}

	// The limit counts plans that can be applied.
	b.set(func(s *Settings) { s.PlanLimit, s.PlanFor = 1, time.Nanosecond })
	_, err := b.Engine.Plan(t.Context(), anna(), job.Request{Verb: apply, Nodes: names("a")})
	b.refused(err, inventory.KindRefused, "1 plan is kept that can be applied", "jobs.plans", "list-plans")
	b.set(func(s *Settings) { s.PlanLimit = 2 })

	over := b.plan(job.Request{Verb: apply, Nodes: names("a")})
	_, err = b.applyPlan(over.ID)
	b.refused(err, inventory.KindRefused, "plan "+over.ID+" has expired at", "make-plan verb=apply nodes=a-1")

	b.audit.take()
	b.must(b.Prune(t.Context()))

	if got := b.audit.take(); !slices.Equal(got, []string{"clusterm plans.expire " + over.ID}) {
		t.Errorf("the audit has %q", got)
	}

	if plans := record.List(b.View(), &plan.Kind); len(plans) != 1 || plans[0].ID != p.ID {
		t.Errorf("%+v", plans)
	}

	_, err = b.Engine.Inputs(t.Context(), plan.InputsOf(over.ID))
	b.refused(err, inventory.KindNotFound, "the inputs of plan "+over.ID)

	// Without its plan nothing needs the tree.
	_, err = b.Engine.DeletePlan(t.Context(), anna(), p.ID)
	b.must(err)
	b.must(b.Prune(t.Context()))

	if kept := b.books.kept[1]; !slices.Equal(kept, []string{"tree-1"}) {
		t.Errorf("the playbooks kept are %v", kept)
	}
}

// TestPlanOfEveryVerb: each verb can be planned where it is legal, and is refused as its
// job is where it is not.
func TestPlanOfEveryVerb(t *testing.T) {
	t.Parallel()
	b := planner(t)
	b.see("a b q u v w")
	b.do(commission, "a b", master, "Complete")
	b.books.on(job.PlaybookSite, failsOn("q-1"))
	b.books.on(job.PlaybookCleanup, failsOn("q-1"))
	b.do(commission, "q", master, "Errored failed")
	b.books.on(job.PlaybookSite, succeeds)
	b.books.on(job.PlaybookCleanup, succeeds)
	b.set(func(s *Settings) { s.PlanLimit = 100 })

	requests := map[inventory.Verb]job.Request{
		commission:   {Nodes: names("u")},
		discover:     {Addrs: []string{"10.9.0.1"}, Ranges: []string{"10.9.0.2-10.9.0.3"}},
		clearing:     {Nodes: names("q")},
		forget:       {Nodes: names("v")},
		decommission: {Nodes: names("b")},

		inventory.VerbManage:  {Nodes: names("w")},
		inventory.VerbInspect: {Nodes: names("w")},
		inventory.VerbInstall: {Nodes: names("w")},
		inventory.VerbProvide: {Nodes: names("w")},
	}

	for _, row := range inventory.Lifecycle {
		r, ok := requests[row.Verb]
		if !ok {
			r = job.Request{Nodes: names("a")}
		}
		r.Verb = row.Verb
		p := b.plan(r)

		j, err := b.applyPlan(p.ID)
		if err != nil {
			t.Errorf("%s: %v", row.Verb, err)
			continue
		}

		if !slices.Equal(j.Names(), p.Job.Names()) || j.Group != p.Job.Group || j.Verb != row.Verb {
			t.Errorf("%s: %+v, planned %+v", row.Verb, j, p.Job)
		}

		if row.TakesAddrs {
			_, err = b.Cancel(t.Context(), j.ID, "anna", nil, nil)
			b.must(err)
		}

		b.until("the end", func(v *state.View) bool { j, _ := v.Job(j.ID); return j.Status.Ended() })

		r.Nodes = slices.DeleteFunc([]string{"z-9"}, func(string) bool { return row.TakesAddrs })
		if _, err = b.Engine.Plan(t.Context(), anna(), r); !row.TakesAddrs {
			b.refused(err, inventory.KindNotFound, "no such node: z-9")
		}
	}
}
