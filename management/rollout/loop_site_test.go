// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/job/jobtest"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/record/recordtest"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
)

var errCrash = errors.New("the manager was killed")

// site is a store and an engine in memory. Its jobs take a time, and end as scripted.
type site struct {
	t testing.TB

	mu      sync.Mutex
	view    *state.View
	changed chan struct{}
	extra   map[string]configuration.Vars
	// policies are the settings of policies of now.
	policies policy.Settings
	trail    []access.Record
	leads    bool

	takes time.Duration
	fails func(node string, attempt int) bool
	tries map[string]int // jobs of the action by node
	tasks sync.WaitGroup

	refuse error // of every job
	// refuses returns why the job of a node is not accepted; nil: no other is refused.
	refuses func(node string) error
	status  map[string]int // of HTTP checks by URL
	asked   map[string]int
	allow   func(n *inventory.Node, now time.Time) rollout.Permission
	ops     int
	crash   int  // the operation that fails, and all after it; 0: never
	late    bool // it takes effect before it fails
}

func newSite(t testing.TB, nodes int) *site {
	t.Helper()

	s := &site{
		t: t, changed: make(chan struct{}), extra: map[string]configuration.Vars{}, leads: true, takes: time.Minute,
		fails: func(string, int) bool { return false }, tries: map[string]int{},
		status: map[string]int{}, asked: map[string]int{},
		view: &state.View{Revision: 1},
	}

	for i := range nodes {
		s.view.PutNode(&inventory.Node{
			Name: fmt.Sprintf("w-%04d", i), Label: "w", Serial: fmt.Sprintf("%04d", i),
			Addr:   fmt.Sprintf("10.0.0.%d", i%250+1),
			Status: inventory.Allocated, State: inventory.Discovered, Group: inventory.GroupWorker, Applied: "1",
			Playbooks: map[string]string{inventory.GroupWorker: "former"},
		})
	}

	return s
}

func (s *site) names() (names []string) {
	for _, n := range s.View().Nodes() {
		names = append(names, n.Name)
	}

	return names
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

// publish shows the next view. The caller holds the lock.
func (s *site) publish(change func(v *state.View)) {
	v := *s.view
	v.Revision++
	v.SetJobs(jobtest.Copies(v.Jobs())...)
	change(&v)
	s.view = &v

	close(s.changed)
	s.changed = make(chan struct{})
}

// operate carries out an operation of the manager, unless it was killed.
func (s *site) operate(do func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.ops++

	// A late death carries the operation out, and loses only its answer.
	dies := s.crash > 0 && s.ops >= s.crash
	if dies && (!s.late || s.ops > s.crash) {
		return errCrash
	}
	if err := do(); err != nil || !dies {
		return err
	}

	return errCrash
}

// put replaces the record, if it is at its revision. The caller holds the lock.
func (s *site) put(r rollout.Record) (rollout.Record, error) {
	is := record.Get(s.view, &rollout.Kind, r.ID)
	if is == nil || is.Revision != r.Revision {
		return r, inventory.Errorf(inventory.KindConflict, "it was changed")
	}

	r.Revision = s.view.Revision + 1
	s.publish(func(v *state.View) { setRollout(v, r) })

	return r, nil
}

// setRollout shows the rollout in the view.
func setRollout(v *state.View, r rollout.Record) {
	v.View = record.Set(v.View, &rollout.Kind, r.ID, &r)
}

// rollouts returns those of the newest view.
func (s *site) rollouts() []*rollout.Record { return record.List(s.View(), &rollout.Kind) }

func (s *site) Latest() (record.Reader, int64) {
	v := s.View()
	return v, v.Revision
}

// Commit carries out a transaction on rollouts.
func (s *site) Commit(_ context.Context, tx *record.Tx) (revision int64, err error) {
	writes, err := tx.Writes(nil)
	if err != nil {
		return 0, err
	}

	err = s.operate(func() error {
		if s.isOvertaken(tx) {
			return inventory.Errorf(inventory.KindConflict, "it was changed")
		}

		written := s.written(tx, writes)
		revision = s.view.Revision + 1

		s.publish(func(v *state.View) {
			for id, r := range written {
				v.View = record.Set(v.View, &rollout.Kind, id, r)
			}
		})

		for _, part := range tx.Parts() {
			if in, ok := part.(state.PutInputs); ok {
				s.extra[in.Name] = in.Inputs.Extra
			}
		}

		return nil
	})

	return revision, err
}

// isOvertaken reports whether something that the transaction is guarded by has changed. The caller
// holds the lock.
func (s *site) isOvertaken(tx *record.Tx) bool {
	base := state.ViewOf(tx)
	guards, kinds := tx.Guards()

	for path, revision := range guards {
		id := strings.TrimPrefix(path, "rollouts/")
		was, is := record.Get(base, &rollout.Kind, id), record.Get(s.view, &rollout.Kind, id)

		// Records of the views here have no other revision than 1, see record.Set.
		if was != is || revision > 1 && (is == nil || is.Revision != revision) {
			return true
		}
	}

	return kinds[rollout.Kind.Name] && !record.Same(base, s.view, &rollout.Kind) ||
		kinds[job.Nodes.Name] && !record.Same(base, s.view, &job.Nodes)
}

// written returns the rollouts as the writes of a transaction leave them. The caller holds the lock.
func (s *site) written(tx *record.Tx, writes []record.Write) map[string]*rollout.Record {
	tables := record.NewTables([]record.Any{&rollout.Kind})
	apply := func(writes []record.Write) {
		for _, w := range writes {
			if err := tables.Apply(w.Path, w.Value, s.view.Revision+1); err != nil {
				s.t.Error(err)
			}
		}
	}

	written := map[string]*rollout.Record{}
	guards, _ := tx.Guards()

	// A write has only the nodes that changed.
	for path := range guards {
		id := strings.TrimPrefix(path, "rollouts/")
		written[id] = nil

		if r := record.Get(s.view, &rollout.Kind, id); r != nil {
			stored := record.NewTx(recordtest.NewStore(&rollout.Kind))
			record.Put(stored, &rollout.Kind, r)

			all, err := stored.Writes(nil)
			if err != nil {
				s.t.Error(err)
			}
			apply(all)
		}
	}

	apply(writes)

	for id := range written {
		written[id] = record.Get(tables.View(), &rollout.Kind, id)
	}

	return written
}

func (s *site) PutNodes(_ context.Context, writes []state.NodeWrite) (conflicts []string, err error) {
	err = s.operate(func() error {
		for _, w := range writes {
			i := slices.IndexFunc(s.view.Nodes(), func(n *inventory.Node) bool { return n.Name == w.Node.Name })
			if i < 0 || s.view.Nodes()[i].Revision != w.Node.Revision {
				conflicts = append(conflicts, w.Node.Name)
				continue
			}

			n := w.Node
			n.Revision = s.view.Revision + 1
			s.publish(func(v *state.View) { v.PutNode(&n) })
		}

		return nil
	})

	return conflicts, err
}

func (s *site) Inputs(_ context.Context, name string) (job.Inputs, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return job.Inputs{Extra: s.extra[name]}, nil
}

func (s *site) Result(context.Context, string) (*access.Result, error) { return nil, nil }

// SubmitRollout accepts a job with the record, and lets it end after its time.
func (s *site) SubmitRollout(
	_ context.Context, c access.Caller, r rollout.Record, b rollout.Begin, extra configuration.Vars,
) (begun rollout.Record, err error) {
	if s.refuse != nil {
		return r, s.refuse
	}

	if s.refuses != nil {
		if err := s.refuses(b.Node); err != nil {
			return r, err
		}
	}

	err = s.operate(func() error {
		request := r.RequestOf(b, extra)
		n, _ := s.view.Lookup(b.Node)

		// The view of now is read by others, so only the next one has the new number.
		seq := s.view.Newest() + 1
		j := job.Job{
			ID:         strconv.FormatUint(seq, 10),
			Verb:       request.Verb,
			Status:     job.Running,
			Actor:      c.Principal,
			JobOptions: inventory.JobOptions{SharedOptions: inventory.SharedOptions{Reason: request.Reason}},
			Rollout:    r.ID,
			Targets:    []job.Target{{Name: b.Node, From: n.Status, FromGroup: n.Group}},
		}

		if begun, err = s.put(r.Begun(b, j, time.Now())); err != nil {
			return inventory.Errorf(inventory.KindPrecondition, "it was changed")
		}

		// Of two deciders, one decides by an older record, which was refused above.
		if n.Job != "" {
			s.t.Errorf("%s is begun while job %s holds it", n.Name, n.Job)
		}

		if !b.Gate {
			s.tries[b.Node]++
		}

		fails := !b.Gate && s.fails(b.Node, s.tries[b.Node])
		s.publish(func(v *state.View) {
			jobtest.SetNewest(&v.Snapshot, seq)
			v.PutJob(&j)
			hold(v, b.Node, j.ID)
		})
		s.tasks.Go(func() { s.end(j.ID, b.Node, fails) })

		return nil
	})

	return begun, err
}

// hold lets the job hold the node, or nobody.
func hold(v *state.View, name, id string) {
	i := slices.IndexFunc(v.Nodes(), func(n *inventory.Node) bool { return n.Name == name })
	n := *v.Nodes()[i]

	n.Job, n.Status = id, inventory.Allocated
	if id != "" {
		n.Status = inventory.Maintenance
	}

	v.PutNode(&n)
}

// end ends the job after its time, or its cancel.
func (s *site) end(id, node string, fails bool) {
	for left, over := time.After(s.takes), false; !over; {
		changed := s.Changed()

		if j, err := s.View().Job(id); err == nil && j.Cancel > 0 {
			break
		}

		select {
		case <-changed:
		case <-left:
			over = true
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	s.publish(func(v *state.View) {
		i := slices.IndexFunc(v.Jobs(), func(j *job.Job) bool { return j.ID == id })
		j := v.Jobs()[i]

		switch j.Status = job.Complete; {
		case j.Cancel > 0:
			j.Status, j.Cause = job.Cancelled, job.CauseCancelled
		case fails:
			j.Status, j.Cause, j.Message = job.Errored, job.CauseFailed, "a task failed"
		case j.Verb == inventory.VerbVerify:
			j.Outcomes = map[string]inventory.Outcome{node: {Verdict: &inventory.Verdict{Result: inventory.Clean}}}
		}

		hold(v, node, "")
	})
}

func (s *site) Cancel(_ context.Context, c access.Caller, id string) (job.Job, error) {
	return job.Job{}, s.operate(func() error {
		if err := c.Precondition(s.view); err != nil {
			return err
		}

		s.publish(func(v *state.View) {
			v.Jobs()[slices.IndexFunc(v.Jobs(), func(j *job.Job) bool { return j.ID == id })].Cancel++
		})

		return nil
	})
}

func (s *site) PrepareRollout(context.Context, access.Caller, job.Request) (digest, commit string, err error) {
	return "now", "c0ffee", s.refuse
}

func (s *site) PinPlaybooks(context.Context) (digest, commit string, err error) {
	return "later", "", nil
}
func (s *site) KeptPlaybooks(_ context.Context, digest string) (bool, error) {
	return digest == "former", nil
}

func (s *site) Record(_ context.Context, r access.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trail = append(s.trail, r)
}

func (s *site) ask(_ context.Context, target string) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.asked[target]++

	if status, ok := s.status[target]; ok {
		return status, nil
	}

	return 0, errors.New("connection refused")
}

// leader returns another decider.
func (s *site) leader() *rollout.Loop {
	log := logrus.New()
	log.SetOutput(io.Discard)

	o := rollout.Options{
		State: s, Records: s, Store: s, Jobs: s, Leads: func() bool { return s.leads },
		Ask: s.ask, Audit: s, Logger: log,
		Settings: func() rollout.Settings { return rollout.Settings{Groups: inventory.DefaultGroups(), JobLimit: 10} },
		Halted:   func(a state.Automation, r rollout.Record) string { return policy.HaltedRollout(s.policies, a, r) },
	}
	if s.allow != nil {
		o.Allowed = func(_ *state.View, _ rollout.Record, n *inventory.Node, now time.Time) rollout.Permission {
			return s.allow(n, now)
		}
	}

	return rollout.New(o)
}

// run lets the decider decide until the rollout meets the condition, for so long at most.
func (s *site) run(l *rollout.Loop, id string, limit time.Duration, until func(rollout.Record) bool) rollout.Record {
	s.t.Helper()

	ctx, cancel := context.WithTimeout(s.t.Context(), limit)

	ended := make(chan struct{})
	go func() { defer close(ended); l.Run(ctx) }()
	defer func() { cancel(); <-ended }()

	for {
		changed := s.Changed()

		var r rollout.Record
		if found := record.Get(s.View(), &rollout.Kind, id); found != nil {
			r = *found
		}

		if until(r) {
			return r
		}

		select {
		case <-changed:
		case <-ctx.Done():
			return r
		}
	}
}

// reasons returns the reasons of the audit records of an action, oldest first.
func (s *site) reasons(action string) []string {
	var reasons []string

	for _, r := range s.trail {
		if r.Action == action {
			reasons = append(reasons, r.Reason)
		}
	}

	return reasons
}

// attempts describes how often each node was begun: "w-0000:1 w-0001:2".
func (s *site) attempts() (text string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, name := range slices.Sorted(maps.Keys(s.tries)) {
		text += fmt.Sprintf("%s:%d ", name, s.tries[name])
	}

	return text
}

func ended(r rollout.Record) bool { return r.Status.Ended() }
