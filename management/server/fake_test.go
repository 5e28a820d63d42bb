// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/facts"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/backup"
	"github.com/contiv/cluster/management/desired"
	"github.com/contiv/cluster/management/enroll"
	"github.com/contiv/cluster/management/explain"
	"github.com/contiv/cluster/management/gossipkey"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/job/jobtest"
	"github.com/contiv/cluster/management/merge"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/notify"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/record/recordtest"
	"github.com/contiv/cluster/management/rotation"
	"github.com/contiv/cluster/management/server"
	"github.com/contiv/cluster/management/sshkey"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/state/statetest"
	"github.com/contiv/cluster/management/variable"
)

// fakeManager implements the use cases in memory. It accepts every job on known
// nodes and runs none: tests change jobs and logs themselves.
type fakeManager struct {
	mu           sync.Mutex
	view         *state.View
	feed         *state.Feed
	changed      chan struct{} // closed when view or logs change
	inputs       map[string]job.Inputs
	logs         map[string][]byte // job/stream
	calls        []string
	observations []inventory.Observation
	results      map[string]access.Result
	tokens       *recordtest.Store // of the access.Tokens; they are not in the view
	// sync replaces Sync, if set.
	sync func(ctx context.Context) error
	// fail is the error of every change; a string panics.
	fail any
	// onEmit receives the errors of the readers of logs.
	onEmit func(error)
}

func aNode(label string) *inventory.Node {
	return &inventory.Node{
		Name:       label + "-1",
		Label:      label,
		Serial:     "1",
		Addr:       "10.0.0." + strconv.Itoa(len(label)),
		Revision:   7,
		Status:     inventory.Unallocated,
		PrevStatus: inventory.Decommissioned,
		State:      inventory.Discovered,
		PrevState:  inventory.Unknown,
	}
}

func newFakeManager() *fakeManager {
	m := &fakeManager{
		view: &state.View{
			Revision: 10,
			Snapshot: jobtest.With(aNode("a"), aNode("bb"), aNode("ccc")),
		},
		feed:    state.NewFeed(10, 10_000, 10_000_000),
		changed: make(chan struct{}), inputs: map[string]job.Inputs{}, logs: map[string][]byte{},
		results: map[string]access.Result{},
	}
	connection := &configuration.Connection{User: "admin", Port: 2222}
	m.view.View = record.Set(m.view.View, &state.Connections, "a-1", connection)
	m.view.View = record.WithList(m.view.View, &state.Facts, inspected("a-1"))
	m.view.View = record.Set(m.view.View, &enroll.Kind, "first", &enroll.Import{
		ID:      "first",
		Actor:   "anna",
		Started: time.Unix(1, 0),
		Ended:   time.Unix(2, 0),
		Nodes:   []string{"a-1"},
		Secrets: configuration.Vars{"passwords": configuration.NewSecret("secret-of-bmc")},
		Verbs: []inventory.Verb{
			inventory.VerbManage,
		},
		Refused: map[string]string{"a-1": "manage was refused: not now"},
	})
	statetest.SetVars(m.view, state.ScopeGlobal, configuration.Vars{"motd": "hello", "port": int64(8080)})

	return m
}

// change replaces the view by a newer one.
func (m *fakeManager) change(f func(v *state.View)) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := *m.view
	v.SetJobs(jobtest.Copies(v.Jobs())...)
	v.Revision++
	f(&v)
	m.feed.Publish(v.Revision, changesOf(m.view, &v))
	m.view = &v
	m.wake()

	return v.Revision
}

// changesOf returns the differences between two views.
func changesOf(old, v *state.View) []state.Change {
	var out []state.Change
	add := func(ref record.Ref, was, now any, c state.Change) {
		if !reflect.DeepEqual(was, now) {
			c.Ref, c.Revision, c.Size = ref, v.Revision, 1000
			out = append(out, c)
		}
	}

	nodes := map[string][2]*inventory.Node{}
	for i, list := range [][]*inventory.Node{old.Nodes(), v.Nodes()} {
		for _, n := range list {
			pair := nodes[n.Name]
			pair[i] = n
			nodes[n.Name] = pair
		}
	}

	for name, pair := range nodes {
		was, now := old.Connection(name), v.Connection(name)
		add(
			record.Ref{Kind: job.Nodes.Name, Key: name},
			[]any{pair[0], was},
			[]any{pair[1], now},
			state.Change{Former: untyped(pair[0]), Record: untyped(pair[1])},
		)
	}

	for _, j := range v.Jobs() {
		was, _ := old.Job(j.ID)
		add(record.Ref{Kind: job.Kind.Name, Key: j.ID}, was, *j, state.Change{Record: j})
	}

	record.Differences(old.View, v.View, func(ref record.Ref, before any) {
		if ref.Kind == state.Variables.Name {
			scope := state.Scope(ref.Key)
			vars := state.VarsOf(v, scope)
			add(ref, state.VarsOf(old, scope), vars, state.Change{Record: &state.ScopeVars{Scope: scope, Vars: vars}})
		} else if !slices.Contains([]string{state.Connections.Name, job.Kind.Name, job.Nodes.Name}, ref.Kind) {
			out = append(out, state.Change{
				Ref: ref, Revision: v.Revision, Former: before, Size: 1000,
			})
		}
	})

	return out
}

// untyped returns a node, or an untyped nil.
func untyped(n *inventory.Node) any {
	if n == nil {
		return nil
	}
	return n
}

func (m *fakeManager) Changes(revision int64, limit int) (state.Changes, error) {
	m.mu.Lock()
	feed := m.feed
	m.mu.Unlock()
	return feed.Since(revision, limit)
}

func (m *fakeManager) wake() {
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *fakeManager) called(format string, args ...any) error {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.calls = append(m.calls, fmt.Sprintf(format, args...))
	switch fail := m.fail.(type) {
	case string:
		panic(fail)
	case error:
		return fail
	}

	return nil
}

// last returns the latest call.
func (m *fakeManager) last() string {
	m.mu.Lock()
	defer m.mu.Unlock()

	if len(m.calls) == 0 {
		return ""
	}
	return m.calls[len(m.calls)-1]
}

func (m *fakeManager) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.calls)
}

func (m *fakeManager) View() *state.View {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.view
}

func (m *fakeManager) Wait(ctx context.Context, revision int64) error {
	for {
		m.mu.Lock()
		reached, changed := m.view.Revision >= revision, m.changed
		m.mu.Unlock()

		if reached {
			return nil
		}

		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (m *fakeManager) Sync(ctx context.Context) error {
	if m.sync != nil {
		return m.sync(ctx)
	}
	return nil
}

func (m *fakeManager) Waits(*state.View, job.Job) ([]string, string, time.Time) {
	return []string{"99"}, "job 99 holds a-1", time.Time{}
}

func (m *fakeManager) History(_ context.Context, name string, limit int) ([]inventory.HistoryEntry, error) {
	if _, err := m.View().Node(name); err != nil {
		return nil, err
	}

	all := []inventory.HistoryEntry{
		{Seq: 1, Verb: inventory.VerbDiscovered, To: inventory.Unallocated, State: inventory.Discovered},
		{
			Seq:   2,
			Verb:  inventory.VerbCommission,
			From:  inventory.Unallocated,
			To:    inventory.Provisioning,
			State: inventory.Discovered,
		},
	}
	if limit > 0 && limit < len(all) {
		all = all[len(all)-limit:]
	}
	return all, nil
}

// fakeExplainer explains with fixed settings.
type fakeExplainer struct{ *fakeManager }

func (m fakeExplainer) facts(v *state.View, reader explain.Reader) explain.Facts {
	return explain.Facts{
		View: v, Groups: inventory.DefaultGroups(), JobLimit: 4, Now: time.Unix(1700000000, 0), Reader: reader,
	}
}

func (m fakeExplainer) Node(
	ctx context.Context, v *state.View, name string, reader explain.Reader,
) (explain.NodeExplanation, error) {
	n, err := v.Node(name)
	if err != nil {
		return explain.NodeExplanation{}, err
	}

	history, err := m.History(ctx, name, 0)

	return explain.ExplainNode(m.facts(v, reader), n, history), err
}

func (m fakeExplainer) Job(v *state.View, j job.Job, reader explain.Reader) explain.JobExplanation {
	return explain.ExplainJob(m.facts(v, reader), j)
}

func (m *fakeManager) Retry(ctx context.Context, c access.Caller, id string, r job.RetryRequest) (job.Job, error) {
	if _, err := c.Check(ctx, m, m.View(), access.Retry(id, r)); err != nil {
		return job.Job{}, err
	}

	if err := m.called("retry %s failed=%t actor=%s", id, r.Failed, c.Principal); err != nil {
		return job.Job{}, err
	}

	old, err := m.View().Job(id)
	if err != nil {
		return job.Job{}, err
	}
	j, err := m.Submit(ctx, access.Caller{Principal: c.Principal}, job.Request{
		Verb: old.Verb, Nodes: old.Names(), Group: old.Group,
	})
	m.setJob(j.ID, func(j *job.Job) { j.RetryOf = id })

	if err == nil {
		j, err = m.View().Job(j.ID)
	}

	return j, err
}

// fakeVariables implements Variables on the fake manager.
type fakeVariables struct{ *fakeManager }

func (m fakeVariables) Hider() func(configuration.Vars) configuration.Vars {
	return func(vars configuration.Vars) configuration.Vars { return vars }
}

func (m fakeVariables) Get(scope state.Scope) (configuration.Vars, error) {
	if scope == state.ScopeGroup("nosuch") || scope == state.ScopeNode("nosuch-1") {
		return nil, inventory.Errorf(inventory.KindNotFound, "there is no %s", scope)
	}
	return state.VarsOf(m.View(), scope), nil
}

func (m fakeVariables) Merger(v *state.View) merge.Merger {
	return merge.NewMerger(v, merge.Settings{})
}

func (m *fakeManager) Inputs(_ context.Context, id string) (job.Inputs, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.inputs[id], nil
}

func (m *fakeManager) Submit(_ context.Context, c access.Caller, r job.Request) (job.Job, error) {
	if err := m.called(
		"submit %s %v %v group=%q extra=%v actor=%s",
		r.Verb,
		r.Nodes,
		r.Addrs,
		r.Group,
		r.Extra,
		c.Principal,
	); err != nil {
		return job.Job{}, err
	}

	if c.Key != nil {
		m.mu.Lock()
		d, ok := m.results[c.Key.ID]
		m.mu.Unlock()

		if ok && d.Request != c.Key.Request {
			return job.Job{}, inventory.Errorf(inventory.KindKeyReused, "the key is of another request").
				Do("make a new one")
		}

		if c.Key.Replayed = ok; ok {
			return m.View().Job(d.Job)
		}
	}

	if _, err := c.Check(context.Background(), m, m.View(), access.Request(r, inventory.DefaultGroups())); err != nil {
		return job.Job{}, err
	}

	names := slices.Concat(r.Nodes, r.Addrs)
	if len(names) == 0 {
		return job.Job{}, inventory.Errorf(inventory.KindInvalid, "no node is named")
	}

	v := m.View()

	var missing []string
	for _, n := range r.Nodes {
		if _, err := v.Node(n); err != nil {
			missing = append(missing, n)
		}
	}

	if len(missing) > 0 {
		return job.Job{}, inventory.Errorf(inventory.KindNotFound, "no such node: %v", missing).
			Do("check the name").
			With(inventory.ListNodes()).
			About(missing...)
	}

	var j job.Job
	m.change(func(v *state.View) {
		j = job.Job{
			ID: strconv.Itoa(len(v.Jobs()) + 1), Verb: r.Verb, Status: job.Queued, Group: r.Group, Actor: c.Principal,
			Accepted: time.Unix(1700000000, 0).UTC(), Revision: v.Revision,
		}
		for _, n := range names {
			j.Targets = append(j.Targets, job.Target{Name: n})
		}

		v.PutJob(&j)
	})
	m.mu.Lock()
	defer m.mu.Unlock()

	if c.Key != nil {
		m.results[c.Key.ID] = access.Result{Request: c.Key.Request, Job: j.ID}
	}

	m.inputs[j.ID] = job.Inputs{Extra: r.Extra, Vars: map[string]map[string]configuration.Var{
		names[0]: {"motd": {Value: "hello", Origin: configuration.OriginGlobal}},
	}}

	return j, nil
}

// setJob changes a job.
func (m *fakeManager) setJob(id string, f func(*job.Job)) {
	m.change(func(v *state.View) {
		for i := range v.Jobs() {
			if v.Jobs()[i].ID == id {
				f(v.Jobs()[i])
				v.Jobs()[i].Revision = v.Revision
			}
		}
	})
}

func (m *fakeManager) Cancel(ctx context.Context, c access.Caller, id string) (job.Job, error) {
	if _, err := c.Check(ctx, m, m.View(), access.Job(id)); err != nil {
		return job.Job{}, err
	}

	if err := m.called("cancel %s actor=%s", id, c.Principal); err != nil {
		return job.Job{}, err
	}

	m.setJob(id, func(j *job.Job) {
		j.Status, j.Cause, j.Cancel, j.CancelBy = job.Cancelled, job.CauseCancelled, 1, c.Principal
		j.Message = job.CancelledWhileQueued(c.Principal)
	})

	return m.View().Job(id)
}

// shownKey is the ssh host key that every node of the fake shows.
const shownKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDIhz2GK/XCUj4i6Q5yQJNL1MDC4Qo5Gf9dTcQZ3d9vV"

func (m *fakeManager) ScanHostKeys(ctx context.Context, c access.Caller, name string) (node.HostKeys, error) {
	if _, err := c.Check(ctx, m, m.View(), access.Node(name)); err != nil {
		return node.HostKeys{}, err
	}

	n, err := m.View().Node(name)
	if err != nil {
		return node.HostKeys{}, err
	}
	return node.HostKeys{Node: name, Addr: n.Addr, Recorded: n.HostKeys, Shown: []string{shownKey}}, nil
}

func (m *fakeManager) TrustHostKey(
	_ context.Context, c access.Caller, name string, t node.Trust,
) (inventory.Node, error) {
	if _, err := m.View().Node(name); err != nil {
		return inventory.Node{}, err
	}

	err := m.called(
		"trust %s key=%q fingerprint=%q reason=%q actor=%s",
		name,
		t.Key,
		t.Fingerprint,
		t.Reason,
		c.Principal,
	)
	if err != nil {
		return inventory.Node{}, err
	}

	m.change(func(v *state.View) {
		for _, n := range v.Nodes() {
			if n.Name == name {
				changed := n.Clone()
				changed.HostKeys = []string{shownKey}
				v.PutNode(&changed)
			}
		}
	})

	return m.View().Node(name)
}

// fakePolicies has a policy, and a decision of it.
type fakePolicies struct{ m *fakeManager }

func (fakePolicies) Status() api.Policies {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	d := api.Decision{
		ID: "returns/a-1/1/verify", Time: at, Policy: "returns", Node: "a-1", Action: "verify",
		Case: "the host was rebooted", Evidence: []string{"its boot id changed"}, Phase: "done", Job: "1",
		Replaces: "a-9",
	}

	return api.Policies{
		Brake: api.Brake{
			Engaged: true, Message: "nodes vanished", Since: at, Lost: []string{"a-1"}, Vanished: 3, Visible: 4,
		},
		Policies: []api.Policy{{
			Name: "returns", About: "verifies", Paused: &api.PolicyPause{Since: at, Actor: "ann", Reason: "a move"},
			Halted: "ann paused it", Pending: 2, Decisions: []api.Decision{d},
			Roles: []api.PolicyRole{{
				Group: "service-master", Count: 3, Spread: "rack", ReplaceAfter: "1h0m0s", Fence: "power",
				InService: 3, Healthy: 2, Coming: 1, Surplus: 1, Places: map[string]int{"r1": 2},
				Silent: []string{"a-1"}, Warnings: []string{"one too many"}, Notes: []string{"a-1 is silent"},
			}},
		}},
		Decisions: []api.Decision{d},
	}
}

func (p fakePolicies) Pause(_ context.Context, c access.Caller, name, reason string) (api.Policies, error) {
	return p.Status(), p.m.called("pause %s reason=%s actor=%s", name, reason, c.Principal)
}

func (p fakePolicies) Resume(_ context.Context, c access.Caller, name, reason string) (api.Policies, error) {
	return p.Status(), p.m.called("resume %s reason=%s actor=%s", name, reason, c.Principal)
}

func (p fakePolicies) Release(_ context.Context, c access.Caller, reason string) (api.Policies, error) {
	return p.Status(), p.m.called("release reason=%s actor=%s", reason, c.Principal)
}

func (p fakePolicies) Enable(
	_ context.Context, c access.Caller, name string, all bool, reason string,
) (api.Policies, error) {
	return p.Status(), p.m.called("enable %s all=%t reason=%s actor=%s", name, all, reason, c.Principal)
}

func (p fakePolicies) Disable(_ context.Context, c access.Caller, name, reason string) (api.Policies, error) {
	return p.Status(), p.m.called("disable %s reason=%s actor=%s", name, reason, c.Principal)
}

func (fakePolicies) Test(name string, given []inventory.Node) (api.PolicyTested, error) {
	if name != "returns" {
		return api.PolicyTested{}, inventory.Errorf(inventory.KindNotFound, "there is no policy")
	}

	t := api.PolicyTested{
		Policy:   name,
		Nodes:    len(given),
		Outlooks: []api.PolicyOutlook{{Node: "a-1", Message: "none is given"}},
	}
	for _, n := range given {
		t.Outlooks[0] = api.PolicyOutlook{
			Node: n.Name, Action: "verify", Now: n.State == inventory.Discovered, Message: n.Label + " " + n.Serial,
			Until: n.Presence.Since,
		}

		if !n.Updated.IsZero() {
			t.Roles = []api.PolicyRole{{Notes: []string{n.Updated.String()}}}
		}
	}

	return t, nil
}

func (m *fakeManager) Rotate(_ context.Context, c access.Caller, r gossipkey.Request) (gossipkey.Status, error) {
	status := gossipkey.StatusOf(m.View(), record.One(m.View(), &gossipkey.Kind))
	return status, m.called("rotate force=%t lock_out=%v actor=%s", r.Force, r.LockOut, c.Principal)
}

// fakeSSHKey has a rotation that waits for one node.
type fakeSSHKey struct{ *fakeManager }

func (m fakeSSHKey) Status() sshkey.Status {
	return sshkey.Status{Known: 2, OwnKeys: []string{"c-1"}, Rotation: sshkey.Rotation{
		Phase: rotation.PhaseRemove, New: sshkey.Key{Path: "/k", Public: shownKey, Generated: true},
		Confirmed: []string{"b-1"}, Started: time.Unix(0, 0),
	}, Laggards: []rotation.Laggard{{Name: "a-1", Reason: "it does not answer"}}}
}

func (m fakeSSHKey) Rotate(_ context.Context, c access.Caller, r sshkey.Request) (sshkey.Status, error) {
	return m.Status(), m.called("rotate to=%q force=%t lock_out=%v actor=%s", r.To, r.Force, r.LockOut, c.Principal)
}

func (m fakeSSHKey) Cancel(_ context.Context, c access.Caller) (sshkey.Status, error) {
	return m.Status(), m.called("cancel ssh key actor=%s", c.Principal)
}

func (m *fakeManager) Merge(ctx context.Context, c access.Caller, _ error, r api.Merge) (int64, error) {
	_, err := c.Check(ctx, m, m.View(), nil)
	return m.View().Revision, cmp.Or(err, m.called("merge %s %s", r.Machine, r.Node))
}

func (m *fakeManager) Split(ctx context.Context, c access.Caller, r api.Split) (int64, error) {
	_, err := c.Check(ctx, m, m.View(), nil)
	return m.View().Revision, cmp.Or(err, m.called("split %s %s", r.Node, r.As))
}

func (m *fakeManager) Alert(
	ctx context.Context, c access.Caller, r node.AlertRequest,
) ([]node.Alerted, error) {
	subject := func(s *state.Scoped) error { return s.CheckNodes(r.Nodes) }
	if _, err := c.Check(ctx, m, m.View(), subject); err != nil {
		return nil, err
	}

	alert, err := inventory.NewAlert(r.Reason, r.Source, r.Effects, r.Until, c.Principal, time.Now())
	if err != nil {
		return nil, err
	}

	for _, name := range r.Nodes {
		m.change(func(v *state.View) {
			n, _ := v.Lookup(name)
			n.Alerts, n.Revision = []inventory.Alert{alert}, v.Revision
			v.PutNode(&n)
		})
	}

	return node.Alerts(m.View().Nodes()), nil
}

func (m *fakeManager) SetLogin(
	ctx context.Context, c access.Caller, node, _, _, _ string,
) (inventory.Power, error) {
	_, err := c.Check(ctx, m, m.View(), func(s *state.Scoped) error { return s.CheckNodes([]string{node}) })
	return inventory.Power{Node: node, Power: "on"}, err
}

func (m *fakeManager) EndAlert(
	ctx context.Context, c access.Caller, r node.AlertEnd,
) ([]node.Alerted, error) {
	subject := func(s *state.Scoped) error { return s.CheckNodes(r.Nodes) }
	if _, err := c.Check(ctx, m, m.View(), subject); err != nil {
		return nil, err
	}

	ended := node.Alerts(m.View().Nodes())
	for _, a := range ended {
		m.change(func(v *state.View) {
			n, _ := v.Lookup(a.Node)
			n.Alerts, n.Revision = nil, v.Revision
			v.PutNode(&n)
		})
	}

	return ended, nil
}

func (m *fakeManager) Request(_ context.Context, c access.Caller) (api.Scan, error) {
	return api.Scan{Requested: time.Unix(1, 0), Actor: c.Principal, Addresses: 4}, nil
}

func (m *fakeManager) Import(
	ctx context.Context, c access.Caller, _ error, r api.Import,
) (api.Imported, error) {
	if _, err := c.Check(ctx, m, m.View(), nil); err != nil {
		return api.Imported{}, err
	}

	return api.Imported{
		Machines: []api.ImportedMachine{
			{Node: r.File, Action: api.ImportCreated},
		},
		DryRun:   r.DryRun,
		Revision: m.View().Revision,
	}, nil
}

func (m *fakeManager) Configure(
	ctx context.Context, c access.Caller, _ error, r api.Configure, _ configuration.Connection,
) (api.Imported, error) {
	if _, err := c.Check(ctx, m, m.View(), nil); err != nil {
		return api.Imported{}, err
	}

	return api.Imported{
		Machines: []api.ImportedMachine{{Node: r.Nodes[0], Action: api.ImportSame}}, Revision: m.View().Revision,
	}, nil
}

// Ping answers for every known node but the second one of a request.
func (m *fakeManager) Ping(ctx context.Context, c access.Caller, names []string) ([]node.PingResult, error) {
	if _, err := c.Check(ctx, m, m.View(), access.Nodes(names...)); err != nil {
		return nil, err
	}

	var results []node.PingResult
	for i, name := range names {
		r := node.PingResult{
			Node:            name,
			Addr:            "10.0.0.1",
			Answered:        true,
			HostKeyVerified: true,
			Took:            12 * time.Millisecond,
		}
		if i == 1 {
			r = node.PingResult{
				Node: name, Addr: "10.0.0.2", Message: "port 22 refuses connections", Remedy: "check the host",
				Actions: []inventory.Action{inventory.SetConnection(name)},
			}
		}

		results = append(results, r)
	}

	return results, nil
}

func (m *fakeManager) Forget(ctx context.Context, c access.Caller, r node.ForgetRequest) (int64, error) {
	if _, err := c.Check(ctx, m, m.View(), access.Nodes(r.Nodes...)); err != nil {
		return 0, err
	}

	err := m.called("forget %v force=%t reason=%q actor=%s", r.Nodes, r.Force, r.Reason, c.Principal)
	if err != nil {
		return 0, err
	}

	return m.change(func(v *state.View) {
		forgotten := func(n *inventory.Node) bool { return slices.Contains(r.Nodes, n.Name) }
		v.SetNodes(slices.DeleteFunc(slices.Clone(v.Nodes()), forgotten)...)
	}), nil
}

func (m *fakeManager) Patch(
	ctx context.Context, c access.Caller, name string, p node.Patch,
) (inventory.Node, error) {
	if _, err := c.Check(ctx, m, m.View(), node.Patching(name, p)); err != nil {
		return inventory.Node{}, err
	}

	if err := m.called("patch %s %+v forget=%t actor=%s", name, p.Connection, p.ForgetHostKey,
		c.Principal); err != nil {
		return inventory.Node{}, err
	}

	if p.Connection != nil {
		m.change(func(v *state.View) { v.View = record.Set(v.View, &state.Connections, name, p.Connection) })
	}

	for _, n := range m.View().Nodes() {
		if n.Name == name && p.Labels != nil {
			n, err := n.Relabel(p.Labels)
			if err != nil {
				return inventory.Node{}, err
			}
			m.change(func(v *state.View) { n.Revision = v.Revision; v.PutNode(&n) })
		}
	}

	return m.View().Node(name)
}

func (m fakeVariables) Set(
	ctx context.Context, c access.Caller, scope state.Scope, vars configuration.Vars,
) (variable.Changed, error) {
	if _, err := c.Check(ctx, m, m.View(), access.Variables(scope)); err != nil {
		return variable.Changed{}, err
	}

	if err := m.called("set %s %v actor=%s", scope, vars, c.Principal); err != nil {
		return variable.Changed{}, err
	}

	var warnings []string
	for _, path := range configuration.LooksLikeTemplate(vars) {
		warnings = append(warnings, path+" looks like a template")
	}

	revision := m.change(func(v *state.View) { statetest.SetVars(v, scope, vars) })

	return variable.Changed{Revision: revision, Warnings: warnings}, nil
}

func (m fakeVariables) Patch(
	ctx context.Context, c access.Caller, scope state.Scope, patch configuration.Vars,
) (variable.Changed, error) {
	vars := configuration.Vars{}
	maps.Copy(vars, state.VarsOf(m.View(), scope))

	for k, v := range patch {
		if vars[k] = v; v == nil {
			delete(vars, k)
		}
	}

	return m.Set(ctx, c, scope, vars)
}

func (m fakeVariables) History(_ context.Context, scope state.Scope) ([]variable.Change, error) {
	if _, err := m.Get(scope); err != nil {
		return nil, err
	}

	return []variable.Change{
		{Seq: 1, Revision: 5, Actor: "ann", Action: "set", After: configuration.Vars{"motd": "hello"}},
		{Seq: 2, Revision: 7, Actor: "bob", Action: "patch", Before: configuration.Vars{"port": int64(80)}},
	}, nil
}

func (m fakeVariables) Undo(
	ctx context.Context, c access.Caller, scope state.Scope, to int64,
) (variable.Changed, error) {
	return m.Set(ctx, c, scope, configuration.Vars{"undone": to})
}

func (m *fakeManager) Report(
	_ context.Context, observer string, full *inventory.NameRange, observations []inventory.Observation,
) (map[int]error, int64, error) {
	if err := m.called("report %s full=%t %d", observer, full != nil, len(observations)); err != nil {
		return nil, 0, err
	}

	refused := map[int]error{}
	for i, o := range observations {
		if err := inventory.CheckLabel(o.Label); err != nil {
			refused[i] = err
			continue
		}

		m.mu.Lock()
		m.observations = append(m.observations, o)
		m.mu.Unlock()
	}

	return refused, m.View().Revision, nil
}

func (m *fakeManager) Observe(_ context.Context, observer string, observations []inventory.Observation) error {
	if err := m.called("observe %s %d", observer, len(observations)); err != nil {
		return err
	}

	for _, w := range observations {
		if err := inventory.CheckLabel(w.Label); err != nil {
			return err
		}
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	m.observations = append(m.observations, observations...)

	return nil
}

func logKey(job string, s job.Stream) string { return job + "/" + string(s) }

// write appends to a job's log.
func (m *fakeManager) write(job string, s job.Stream, data string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.logs[logKey(job, s)] = append(m.logs[logKey(job, s)], data...)
	m.wake()
}

func (m *fakeManager) Difference(_ context.Context, v *state.View, name string) (job.Difference, error) {
	n, err := v.Node(name)
	if err != nil {
		return job.Difference{}, err
	}

	verdict := inventory.Verdict{Result: inventory.Drifted, Time: time.Unix(1e9, 0), Job: "1", Differences: 1}

	finding := api.TaskFinding{
		Kind: api.FindingDiffers, Playbook: "site.yml", Task: "Write", Path: "site.yml:3", Diff: "-x\n+y",
	}

	// A task may be named for another node.
	for _, other := range v.Nodes() {
		if name != other.Name && other.Name == outside {
			finding.Play, finding.Role, finding.Task = "for "+other.Name, other.Name, "Write_"+other.Name+".conf"
			finding.Path, finding.Message = other.Name+".yml:3", "asked "+other.Name
		}
	}

	return job.Difference{Node: n.Name, Verdict: verdict, Tasks: []api.TaskFinding{finding}}, nil
}

func (m *fakeManager) LogSize(_ context.Context, job string, s job.Stream) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return int64(len(m.logs[logKey(job, s)])), nil
}

func (m *fakeManager) Log(
	ctx context.Context,
	job string,
	s job.Stream,
	offset int64,
	follow bool,
	emit func(int64, []byte) error,
) error {
	const piece = 32 << 10
	for {
		m.mu.Lock()
		data, changed := m.logs[logKey(job, s)], m.changed
		j, err := m.view.Job(job)
		m.mu.Unlock()

		if err != nil {
			return err
		}

		if offset < int64(len(data)) {
			data = data[offset:min(int64(len(data)), offset+piece)]
			if err := emit(offset, data); err != nil {
				if m.onEmit != nil {
					m.onEmit(err)
				}
				return err
			}

			offset += int64(len(data))
			continue
		}

		if !follow || j.Status.Ended() {
			return nil
		}

		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// fakeSettings has four keys, two of them settable.
type fakeSettings struct {
	mu     sync.Mutex
	config api.Config
}

func newFakeSettings() *fakeSettings {
	return &fakeSettings{config: api.Config{
		"data_dir":    {Value: "/var/lib/clusterm", Origin: "default"},
		"jobs.limit":  {Value: 4, Origin: "default", Settable: true},
		"jobs.groups": {Value: map[string]any{"x": "y"}, Origin: "file", Settable: true},
		"gossip":      {Value: "on", Origin: "file"},
	}}
}

func (c *fakeSettings) Config() api.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.config)
}

func (c *fakeSettings) Groups() inventory.Groups { return inventory.DefaultGroups() }

func (c *fakeSettings) Reload(context.Context, access.Caller) (api.Config, error) {
	return c.Config(), nil
}

func (c *fakeSettings) Patch(ctx context.Context, caller access.Caller, patch map[string]any) (api.Config, error) {
	next, err := c.Preview(ctx, caller, patch)
	if err != nil {
		return nil, err
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	c.config = next

	return maps.Clone(next), nil
}

func (c *fakeSettings) Preview(_ context.Context, caller access.Caller, patch map[string]any) (api.Config, error) {
	if caller.Precondition != nil {
		v := &state.View{}
		statetest.SetConfigAt(v, 5)

		if err := caller.Precondition(v); err != nil {
			return nil, err
		}
	}

	next := c.Config()
	for key, value := range patch {
		s, ok := next[key]
		switch {
		case !ok:
			return nil, inventory.Errorf(inventory.KindInvalid, "there is no key %q", key)
		case !s.Settable:
			return nil, inventory.Errorf(inventory.KindRefused, "%s belongs to the file", key)
		case value == nil:
			s.Value, s.Origin = 4, "default"
		default:
			s.Value, s.Origin = value, "overlay"
		}

		next[key] = s
	}

	return next, nil
}

// patience limits every wait of a test.
const patience = time.Minute

// testCtx returns a context that ends when a test has waited for too long.
func testCtx(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// options returns the options of a server on the fake manager.
// Result implements access.Results.
func (m *fakeManager) Result(_ context.Context, key string) (*access.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()

	if result, ok := m.results[key]; ok {
		return &result, nil
	}
	return nil, nil
}

func (m *fakeManager) options(config *fakeSettings) server.Options {
	store := newTokens()
	m.tokens = store

	return server.Options{
		State:      m,
		Jobs:       m,
		Plans:      m,
		PlanReader: m,
		Logs:       m,
		Nodes:      m,
		Ping:       m,
		Alerts:     m,
		BMCLogins:  m,
		Importer:   m,
		Scanner:    m,
		Classes:    fakeClasses{},
		Images:     fakeImages{},
		Contents:   fakeImages{},
		Boot:       fakeBoot{},
		Members:    fakeMembers{},
		Variables:  fakeVariables{m},
		VarsPast:   fakeVariables{m},
		Explain:    fakeExplainer{m},
		Desired: desired.New("i", func() merge.Settings {
			return merge.Settings{Groups: inventory.DefaultGroups()}
		}),
		Settings: config,
		Backup: func(_ context.Context, version string, w io.Writer) (backup.Trailer, error) {
			out, err := backup.NewWriter(w, backup.Header{Version: version}, bytes.Clone)
			if err != nil {
				return backup.Trailer{}, err
			}
			return out.Close()
		},
		Automation: server.Automation{
			Policies: fakePolicies{m}, Windows: fakeWindows{m}, Rollouts: fakeRollouts{m},
			Repository: fakeRepository{}, Notifier: fakeNotifier{},
		},
		Keys: server.Keys{HostKeys: m, GossipKey: m, SSHKey: fakeSSHKey{m}, Secrets: fakeSecrets{}},
		Access: server.Access{
			Tokens:       access.NewTokens(store, noAudit{}, inventory.DefaultGroups),
			Certificates: access.NewCertificates(store, noAudit{}, fakeIssued),
			Results:      m,
		},
		Limits: server.Limits{StreamGrace: 100 * time.Millisecond},
	}
}

// fakeNotifier has the target chat, with a delivery that it refused.
type fakeNotifier struct{}

func (fakeNotifier) Status() []api.Notification {
	return []api.Notification{{
		Name: "chat", To: "https://chat.example.com", Events: []string{notify.KindHealth}, Dead: 1,
	}}
}

func (f fakeNotifier) List(target string) ([]api.Delivery, error) {
	if target != "chat" {
		return nil, inventory.Errorf(inventory.KindNotFound, "there is no notification target %q", target).
			Do("the targets are chat")
	}

	return []api.Delivery{{
		ID: "chat/1-health", Target: "chat", Status: notify.Dead, Created: time.Unix(1, 0), Attempts: 1,
		Event: api.NotifiedEvent{ID: "1-health", Kind: notify.KindHealth, Time: time.Unix(1, 0), Summary: "degraded"},
	}}, nil
}

func (f fakeNotifier) Test(ctx context.Context, _ access.Caller, target string) error {
	_, err := f.List(target)
	return err
}

func (f fakeNotifier) Retry(ctx context.Context, _ access.Caller, target string) (int, error) {
	_, err := f.List(target)
	return 1, err
}

func fakeIssued() ([]access.Certificate, []error, error) {
	return []access.Certificate{{Serial: "1a", Name: "rack1", Role: access.RoleMonitor}}, nil, nil
}

// fakeSecrets has one key. A rotation that abandons it is refused.
type fakeSecrets struct{}

func (fakeSecrets) Status(context.Context) (api.Secrets, error) {
	return api.Secrets{
		KeyFile: "/secrets.key", Key: "5a1f0c8be2d94477", Keys: []api.SecretKey{{ID: "5a1f0c8be2d94477", Secrets: 2}},
		Sources: []string{"outside"}, Locked: []string{"db (global)"},
	}, nil
}

func (f fakeSecrets) Rotate(ctx context.Context, _ access.Caller, abandon bool) (api.Secrets, error) {
	if abandon {
		return api.Secrets{}, inventory.Errorf(inventory.KindRefused, "the key is not missing").Do("leave out abandon")
	}
	return f.Status(ctx)
}

// Changed and Narrow complete state.Reader, which preconditions need.
func (m *fakeManager) Changed() <-chan struct{} { return nil }

// inspected returns an inspection of a node.
func inspected(node string) *state.Inspections {
	var none *state.Inspections

	found := facts.Found{Facts: facts.Facts{Schema: facts.Schema, Arch: "x86_64"}}

	i, err := none.With(node, "", found, time.Unix(1, 0))
	if err != nil {
		panic(err)
	}

	return i
}

// fakeMembers is a manager with one instance, that every other one may join.
type fakeMembers struct{}

func (fakeMembers) Members(context.Context, record.Reader) ([]api.Member, error) {
	return []api.Member{{ID: "0b1327509c41c84f", Node: "a-1", Alive: true, Etcd: api.EtcdAlone}}, nil
}

func (fakeMembers) Invite(
	context.Context, access.Caller, access.Identity, api.InviteRequest,
) (api.Invite, error) {
	return api.Invite{Token: "t", URLs: []string{"https://a:9443"}}, nil
}

func (fakeMembers) Join(
	_ context.Context, _ access.Caller, _ access.Identity, r api.JoinRequest,
) (api.JoinAnswer, error) {
	return api.JoinAnswer{Members: map[string]string{r.ID: r.Addr}, Endpoints: []string{}}, nil
}

func (fakeMembers) Remove(context.Context, access.Caller, string) (int64, error) { return 7, nil }

// fakeClasses makes classes without a shape, and keeps none.
type fakeClasses struct{}

func (fakeClasses) Create(_ context.Context, _ access.Caller, name, from, nodes string) (api.Class, error) {
	return api.Class{Name: name, From: from, Nodes: nodes}, nil
}

func (fakeClasses) Delete(context.Context, access.Caller, string) error { return nil }

// fakeBoot takes every reservation.
type fakeBoot struct{}

func (fakeBoot) Reserve(_ context.Context, _ access.Caller, r api.AddressRequest) (api.Address, error) {
	return api.Address{Addr: r.Addr, Node: r.Node, MAC: r.MAC, Reserved: true}, nil
}

func (fakeBoot) Release(context.Context, access.Caller, string) error { return nil }

func (fakeBoot) Status() api.BootStatus {
	return api.BootStatus{
		Instance: "host1", Interfaces: []api.BootInterface{}, Waiting: []string{}, Queries: []api.BootQuery{},
	}
}

// fakeImages has one image, and no content.
type fakeImages struct{}

func (fakeImages) Create(_ context.Context, _ access.Caller, r api.ImageRequest) (api.Image, error) {
	return api.Image{Name: r.Name, Kind: r.Kind, Files: []api.ImageFile{}, State: api.ImageIncomplete}, nil
}

func (fakeImages) Verify(_ context.Context, _ access.Caller, name string) (api.ImageCheck, error) {
	return api.ImageCheck{Image: name, Files: []api.ImageFileCheck{}}, nil
}

func (fakeImages) Delete(context.Context, access.Caller, string) error { return nil }

func (fakeImages) Received(string) int64 { return 0 }

func (fakeImages) Upload(
	_ context.Context, _ access.Caller, name, _ string, _ int64, content io.Reader,
) (api.Image, error) {
	if _, err := io.Copy(io.Discard, content); err != nil {
		return api.Image{}, inventory.Errorf(inventory.KindInvalid, "the content broke off: %w", err)
	}

	return api.Image{
		Name: name, Kind: api.ImageDisk, Files: []api.ImageFile{}, State: api.ImageComplete,
	}, nil
}

func (fakeImages) Open(record.Reader, string, string) (*os.File, api.ImageFile, error) {
	return nil, api.ImageFile{}, inventory.Errorf(inventory.KindRefused, "the content has not come yet")
}
