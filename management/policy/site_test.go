// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/job/jobtest"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

const (
	bootA = "0b1d9b5e-33f1-4c52-9d8a-3f0d6f2a7c11"
	bootB = "f7a0c1d2-1111-2222-3333-444455556666"
)

var errCrash = errors.New("the manager was killed")

// site is a fleet with its manager: store, job engine and hosts in memory.
type site struct {
	t *testing.T

	mu       sync.Mutex
	view     *state.View
	changed  chan struct{}
	results  map[string]string // jobs by idempotency key
	boots    map[string]string // by node; "": ssh does not reach it
	foreign  map[string]bool
	settings Settings
	trail    []access.Record
	leads    bool
	verdict  inventory.VerdictResult // of every verification
	takes    time.Duration           // each job
	fails    bool                    // every commission
	failsIn  string                  // the commissions of a group
	busiest  int                     // automatic jobs at a time
	ponders  time.Duration           // each host, before it answers
	asked    map[string]int          // questions, by node
	stuck    bool                    // Submit does not answer
	hung     int                     // calls of Submit that did not
	longest  time.Duration           // of them
	refusal  error                   // of the next rollout
	forbids  func(job.Request) error // a rule that refuses jobs; nil: none
	refused  int                     // jobs
	lapses   func(*job.Job) bool     // a rule that ends jobs when their turn comes; nil: none
	stays    bool                    // no machine goes off
	log      []string                // machines that are switched, and accepted commissions to masters, in their order

	ops   int
	crash int  // the operation that fails, and all after it; 0: never
	late  bool // it takes effect before it fails
}

func newSite(t *testing.T, nodes int) *site {
	s := &site{
		t:       t,
		changed: make(chan struct{}),
		results: map[string]string{},
		boots:   map[string]string{},
		foreign: map[string]bool{},
		asked:   map[string]int{},
		leads:   true,
		verdict: inventory.Clean,
		takes:   20 * time.Second,
		settings: Settings{
			Settle: time.Minute,
			Jobs:   2,
			Rate:   20,
			Groups: inventory.DefaultGroups(),
			Limit:  4,
			Brake: BrakeSettings{
				Share:        30,
				Minimum:      3,
				Within:       5 * time.Minute,
				ReleaseAfter: 24 * time.Hour,
			},
			Connect: func(*state.View, string, string) configuration.Connection { return configuration.Connection{} },
		},
	}

	var all []*inventory.Node

	for i := range nodes {
		n, _ := inventory.NewNode(inventory.Observation{
			Observer: inventory.ObserverGossip,
			Label:    "n",
			Serial:   fmt.Sprintf("%03d", i),
			Addr:     "192.0.2.1",
			Alive:    true,
		}, nil, time.Now())
		n.Status, n.Group, n.Applied, n.Revision = inventory.Allocated, "service-worker", "0", 1
		n.HostKeys = []string{"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFirst"}
		s.boots[n.Name] = bootA
		all = append(all, &n)
	}

	s.view = &state.View{Snapshot: jobtest.With(all...), Revision: 1}

	return s
}

func name(i int) string { return fmt.Sprintf("n-%03d", i) }

// leader returns a new manager of the site.
func (s *site) leader() *Loop {
	log := logrus.New()
	log.SetOutput(io.Discard)

	return New(Options{
		State: s, Store: s, Jobs: s, Rollouts: s, Prober: s, Audit: s, Logger: log,
		Settings: func() Settings { s.mu.Lock(); defer s.mu.Unlock(); return s.settings },
		Leads:    func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.leads },
	})
}

// run runs a manager for the time.
func (s *site) run(l *Loop, d time.Duration) {
	ctx, cancel := context.WithTimeout(s.t.Context(), d)
	defer cancel()
	l.Run(ctx)
}

// operate counts an operation, and carries it out unless the manager is dead.
func (s *site) operate(effect func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.ops++

	dead := s.crash > 0 && s.ops >= s.crash
	if dead && !(s.late && s.ops == s.crash) {
		return errCrash
	}

	err := effect()

	if dead {
		return errCrash
	}

	return err
}

// publish makes the next view from a changed copy. The caller holds the lock.
func (s *site) publish(change func(*state.View)) {
	v := *s.view
	v.SetJobs(jobtest.Copies(v.Jobs())...)
	v.Revision++
	change(&v)
	s.view = &v

	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *site) View() *state.View {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.view
}

func (s *site) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

func (s *site) Wait(context.Context, int64) error { return nil }
func (s *site) Sync(context.Context) error        { return nil }

func (s *site) Record(_ context.Context, r access.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trail = append(s.trail, r)
}

func (s *site) Latest() (record.Reader, int64) {
	v := s.View()
	return v, v.Revision
}

// Commit stores the memory of the policies.
func (s *site) Commit(_ context.Context, tx *record.Tx) (revision int64, err error) {
	writes, err := tx.Writes(nil)
	if err != nil {
		return 0, err
	}

	err = s.operate(func() error {
		if tx.Revision() < state.AutomationOf(s.view).Revision {
			return inventory.Errorf(inventory.KindConflict, "changed")
		}

		s.publish(func(v *state.View) {
			revision = v.Revision

			a, err := state.Memory.Decode("", writes[0].Value, revision)
			if err != nil {
				s.t.Error(err)
				return
			}

			setMemory(v, *a)
		})

		return nil
	})

	return revision, err
}

func (s *site) PutNodes(_ context.Context, writes []state.NodeWrite) (conflicts []string, err error) {
	err = s.operate(func() error {
		s.publish(func(v *state.View) {
			for _, w := range writes {
				i := slices.IndexFunc(v.Nodes(), func(n *inventory.Node) bool { return n.Name == w.Node.Name })
				if v.Nodes()[i].Revision != w.Node.Revision {
					conflicts = append(conflicts, w.Node.Name)
					continue
				}

				w.Node.Revision = v.Revision
				v.PutNode(&w.Node)
			}
		})

		return nil
	})

	return conflicts, err
}

// await waits until the condition holds, under the lock.
func (s *site) await(holds func() bool) {
	for range 1000 {
		s.mu.Lock()
		done, changed := holds(), s.changed
		s.mu.Unlock()

		if done {
			return
		}

		select {
		case <-changed:
		case <-time.After(time.Second):
		}
	}

	s.t.Fatal("it does not happen")
}

func (s *site) Submit(ctx context.Context, c access.Caller, r job.Request) (accepted job.Job, err error) {
	s.mu.Lock()
	stuck, begun := s.stuck, time.Now()

	if stuck {
		s.hung++
	}

	s.mu.Unlock()

	if stuck {
		<-ctx.Done()

		s.mu.Lock()
		defer s.mu.Unlock()

		s.longest = max(s.longest, time.Since(begun))

		return job.Job{}, ctx.Err()
	}

	err = s.operate(func() error {
		if id, done := s.results[c.Key.ID]; done {
			accepted, err = s.view.Job(id)
			return err
		}

		if err := c.Precondition(s.view); err != nil {
			return err
		}

		if s.forbids != nil {
			if err := s.forbids(r); err != nil {
				s.refused++
				return err
			}
		}

		s.publish(func(v *state.View) {
			accepted = job.Job{
				ID:         strconv.Itoa(len(v.Jobs()) + 1),
				Verb:       r.Verb,
				Actor:      c.Principal,
				Status:     job.Running,
				JobOptions: inventory.JobOptions{SharedOptions: inventory.SharedOptions{Reason: r.Reason}},
				Group:      r.Group,
				Accepted:   time.Now(),
			}
			for _, name := range r.Nodes {
				accepted.Targets = append(accepted.Targets, job.Target{Name: name})
			}

			v.PutJob(&accepted)
			s.results[c.Key.ID] = accepted.ID
			s.busiest = max(s.busiest, automatic(v.Jobs()))

			lost := r.Verb == inventory.VerbPower || strings.Contains(r.Reason, "in the place of")
			if depends := slices.Contains(c.Depends, record.Any(&state.Powers)); depends != lost {
				s.t.Errorf("the change depends on power: %t; %+v", depends, r)
			}

			if r.Group == inventory.GroupMaster {
				s.log = append(s.log, "replaces by "+r.Nodes[0])
			}
			if r.Verb == inventory.VerbPower && (!r.Force || r.Reason == "" || r.Extra["to"] != "off") {
				s.t.Errorf("the request %+v", r)
			}
		})

		id := accepted.ID
		time.AfterFunc(s.takes, func() { s.finish(id) })

		return nil
	})

	return accepted, err
}

func automatic(jobs []*job.Job) int {
	n := 0
	for _, j := range jobs {
		if !j.Status.Ended() && state.IsPolicy(j.Actor) {
			n++
		}
	}

	return n
}

// finish ends a job.
func (s *site) finish(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.publish(func(v *state.View) {
		i, _ := strconv.Atoi(id)

		j := v.Jobs()[i-1]
		if j.Status.Ended() {
			return
		}
		j.Status, j.Ended = job.Complete, time.Now()

		if s.lapses != nil && s.lapses(j) {
			j.Status, j.Cause, j.Message = job.Errored, job.CausePrecondition, "one node is down already"
			return
		}

		switch j.Verb {
		case inventory.VerbCommission:
			s.commissioned(v, j)
			return
		case inventory.VerbPower:
			s.switched(v, j)
			return
		}

		for _, n := range v.Nodes() {
			if _, target := j.Target(n.Name); target && j.Verb == inventory.VerbVerify {
				m := n.Clone()
				m.Verification = &inventory.Verdict{Result: s.verdict, Job: id, Time: time.Now(), Differences: 1}
				m.Revision = v.Revision
				v.PutNode(&m)
			}
		}
	})
}

// switched ends a job that turns a machine off. The caller holds the lock.
func (s *site) switched(v *state.View, j *job.Job) {
	node := j.Targets[0].Name
	s.log = append(s.log, "off "+node)

	if s.stays {
		j.Status, j.Message, j.Runs = job.Errored, "the machine is still on", []job.Run{{}}
		return
	}

	v.View = record.SetAt(v.View, &state.Powers, node, &inventory.Power{Node: node, Power: "off"}, v.Revision)
}

// commissioned ends a commission. The caller holds the lock.
func (s *site) commissioned(v *state.View, j *job.Job) {
	for _, n := range v.Nodes() {
		if _, target := j.Target(n.Name); !target {
			continue
		}

		m := n.Clone()
		m.PrevStatus, m.Status, m.Group, m.Revision = inventory.Provisioning, inventory.Allocated, j.Group, v.Revision

		if s.fails || s.failsIn != "" && s.failsIn == j.Group {
			j.Status, j.Message = job.Errored, "no such package"
			m.Status, m.Group, m.LastError = inventory.Unallocated, "", j.Message
		}

		v.PutNode(&m)
	}
}

// refresh makes nodes new ones.
func (s *site) refresh(nodes ...int) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.publish(func(v *state.View) {
		for _, i := range nodes {
			n, _ := inventory.NewNode(inventory.Observation{
				Observer: inventory.ObserverGossip,
				Label:    "n",
				Serial:   v.Nodes()[i].Serial,
				Addr:     "192.0.2.1",
				Alive:    true,
			}, nil, time.Now())
			n.Revision = v.Revision
			v.PutNode(&n)
		}
	})
}

func (s *site) Cancel(_ context.Context, c access.Caller, id string) (cancelled job.Job, err error) {
	err = s.operate(func() error {
		if err := c.Precondition(s.view); err != nil {
			return err
		}

		s.publish(func(v *state.View) {
			i, _ := strconv.Atoi(id)
			v.Jobs()[i-1].Cancel++
			v.Jobs()[i-1].Status = job.Cancelled
			cancelled = *v.Jobs()[i-1]
		})

		return nil
	})

	return cancelled, err
}

func (s *site) Vitals(ctx context.Context, h configuration.Host) (configuration.Vitals, configuration.Reach) {
	answer := time.NewTimer(s.ponders)
	defer answer.Stop()

	select {
	case <-ctx.Done():
	case <-answer.C:
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	s.asked[h.Name]++

	switch {
	case s.foreign[h.Name]:
		text := "the ssh host key of it is not the one recorded at the first contact"
		return configuration.Vitals{}, configuration.Reach{Login: text}
	case s.boots[h.Name] == "":
		return configuration.Vitals{}, configuration.Reach{Port: "no route to the host", Silent: true, NoAnswer: true}
	}

	return configuration.Vitals{Boot: s.boots[h.Name], Uptime: 1000 * time.Hour, Agent: 999 * time.Hour},
		configuration.Reach{}
}

// see makes the gossip see nodes, or lose them.
func (s *site) see(alive bool, nodes ...int) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.publish(func(v *state.View) {
		for _, i := range nodes {
			m, _, _ := v.Nodes()[i].Observe(inventory.Observation{
				Observer: inventory.ObserverGossip,
				Label:    "n",
				Serial:   v.Nodes()[i].Serial,
				Addr:     "192.0.2.1",
				Alive:    alive,
			}, time.Now())
			m.Revision = v.Revision
			v.PutNode(&m)
		}
	})
}

// hold makes a job hold a node.
func (s *site) hold(i int, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.publish(func(v *state.View) {
		m := v.Nodes()[i].Clone()
		m.Job, m.Revision = id, v.Revision
		v.PutNode(&m)
	})
}

// revive ends a crash: the next manager works. It reports whether there was one.
func (s *site) revive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	dead := s.crash > 0 && s.ops >= s.crash
	s.crash = 0
	return dead
}

// killedAnywhere repeats a test for each operation at which the manager can be killed, from
// the first one on, before and after the operation took effect. The test reports whether the
// manager came that far.
func killedAnywhere(t *testing.T, first int, test func(t *testing.T, crash int, late bool) bool) {
	t.Helper()

	for _, late := range []bool{false, true} {
		for crash, reached := first, true; reached; crash++ {
			reached = false

			synctest.Test(t, func(t *testing.T) {
				reached = test(t, crash, late)

				if t.Failed() {
					t.Logf("killed at operation %d (late %t)", crash, late)
				}
			})
		}
	}
}

// completed returns the jobs that succeeded as VERB NODE.
func (s *site) completed() string {
	var all []string

	for _, j := range s.View().Jobs() {
		if j.Status == job.Complete {
			all = append(all, string(j.Verb)+" "+strings.Join(j.Names(), ","))
		}
	}

	return strings.Join(all, ", ")
}

// jobs returns the jobs as VERB NODE, in the order of their acceptance.
func (s *site) jobs() string {
	var out []string
	for _, j := range s.View().Jobs() {
		out = append(out, string(j.Verb)+" "+j.Targets[0].Name)
	}

	return strings.Join(out, ", ")
}

func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}

	return all
}

// setMemory sets the memory of the policies.
func setMemory(v *state.View, a state.Automation) { v.View = record.WithOne(v.View, &state.Memory, a) }
