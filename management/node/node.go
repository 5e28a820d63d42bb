// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// Store writes nodes. A write returns once the view shows it.
type Store interface {
	access.Results
	record.Store
	// PutNodes writes nodes in chunks; each chunk is written as a whole or not
	// at all. It returns the nodes of the chunks that conflicted.
	PutNodes(ctx context.Context, writes []state.NodeWrite) (conflicts []string, err error)
	// Forget removes nodes, given as writes with a tombstone. It returns KindConflict
	// if a job or a removal has changed a node of the groups in uses after the
	// revision of the decision.
	Forget(
		ctx context.Context, decided int64, uses []string, writes []state.NodeWrite, key *access.Key,
	) (int64, error)
	// History returns the newest entries of a node, oldest first.
	History(ctx context.Context, node string, limit int) ([]inventory.HistoryEntry, error)
}

// Settings is the part of the configuration that nodes depend on.
type Settings struct {
	Groups inventory.Groups
	// Own is the name of the manager's own node; empty: it has none.
	Own string
	// MonitorTimeout is the silence after which the reports of a monitor are void.
	MonitorTimeout time.Duration
	// Discovered is the status of a node whose agent speaks for the first time; empty: Unallocated.
	Discovered inventory.Status
	// Connect merges the ssh parameters of site, group and node.
	Connect func(v *state.View, group, node string) configuration.Connection
	// HostCAs are the keys of the CAs for host certificates, see configuration.Host.
	HostCAs []string
}

// Options are the dependencies of Nodes.
type Options struct {
	State state.Reader
	Store Store
	// Prober returns the Prober for a caller, which other callers do not delay.
	Prober   func(caller string) Prober
	Settings func() Settings
	// Yield makes room for a change of nodes: it ends what the manager does on them by
	// itself and may be interrupted. It may block for some seconds. nil: nothing does.
	Yield func(ctx context.Context, who string, nodes []string) error
	// Leads reports whether this instance records the reports of monitors, its own among them; nil: it does.
	Leads  func() bool
	Audit  access.Auditor
	Logger logrus.FieldLogger
}

// Nodes carries out the use cases. All methods may be called at once.
type Nodes struct {
	state    state.Reader
	store    Store
	prober   func(caller string) Prober
	settings func() Settings
	yield    func(ctx context.Context, who string, nodes []string) error
	leads    func() bool
	audit    access.Auditor
	log      logrus.FieldLogger
	monitors monitors
	names    atomic.Pointer[names] // of the newest view with a report
}

// New returns the node use cases.
func New(o Options) *Nodes {
	if o.Yield == nil {
		o.Yield = func(context.Context, string, []string) error { return nil }
	}

	if o.Settings == nil {
		o.Settings = func() Settings { return Settings{} }
	}

	if o.Leads == nil {
		o.Leads = func() bool { return true }
	}

	return &Nodes{
		yield: o.Yield, leads: o.Leads,
		state: o.State, store: o.Store, prober: o.Prober, settings: o.Settings, audit: o.Audit, log: o.Logger,
		monitors: monitors{silent: map[string]int{}, full: map[string]bool{}},
	}
}

// CheckNotOwn refuses to forget the manager's own node. own is its name.
func CheckNotOwn(name, own string) *inventory.Error {
	if own == "" || name != own {
		return nil
	}

	return inventory.Errorf(
		inventory.KindRefused, "%s is the manager's own host, which has no agent but the manager", name).
		Do("leave it out: the manager is ended last, on its host, with systemctl disable --now clusterm").About(name)
}

// ForgetRequest asks for the records of nodes to be removed.
type ForgetRequest struct {
	Nodes  []string
	Force  bool   // also nodes that are still seen
	Reason string // the operator's, kept in the tombstone
}

// Forget removes the records of nodes and leaves tombstones: of all the nodes
// or of none.
func (ns *Nodes) Forget(ctx context.Context, c access.Caller, r ForgetRequest) (revision int64, err error) {
	if err := job.CheckNames("node", r.Nodes, inventory.CheckName); err != nil {
		return 0, err
	}

	if err := inventory.CheckReason(r.Reason); err != nil {
		return 0, err
	}

	f := forgetting{ForgetRequest: r, caller: c, begun: time.Now(), left: r.Nodes}

	record := access.Record{Action: "nodes.forget", Targets: r.Nodes, Reason: r.Reason}
	err = access.Audited(ctx, ns.audit, c, record, func(recording context.Context, _ *access.Record) error {
		// A request that will be refused must not end anything on nodes that the caller does not see.
		sees := c.Scope.View(ns.state.View()).HasNode
		seen := slices.DeleteFunc(slices.Clone(r.Nodes), func(name string) bool { return !sees(name) })

		if err := ns.yield(ctx, c.Principal, seen); err != nil {
			return err
		}

		return state.RetryConflict(ctx, ns.state, func(v *state.View) error {
			// After a success, a retry would find no node to forget.
			result, err := c.Replay(ctx, ns.store, ns.state)
			if err != nil {
				return err
			}

			if result != nil {
				revision = result.Revision
				return nil
			}

			if v, err = c.Check(ctx, ns.state, v, f.subject); err != nil {
				return err
			}

			writes, err := ns.tombstones(v, &f)
			if err != nil {
				return err
			}

			// An earlier attempt of this call removed them all.
			if len(writes) == 0 {
				revision = v.Revision
				return nil
			}

			revision, err = ns.store.Forget(recording, v.Revision, ns.rulesOf(writes), writes, c.Key)

			return err
		})
	})

	return revision, err
}

// rulesOf returns the groups with rules for the removal of the nodes.
func (ns *Nodes) rulesOf(writes []state.NodeWrite) []string {
	var groups []string
	for _, w := range writes {
		groups = append(append(groups, w.Node.Group), w.Node.Residue...)
	}

	return ns.settings().Groups.Related(groups)
}

// forgetting is the progress of one Forget over several attempts.
type forgetting struct {
	ForgetRequest
	caller access.Caller
	begun  time.Time
	left   []string
}

// subject finds the nodes that are left. An earlier attempt may have removed some of them before it
// failed.
func (f *forgetting) subject(s *state.Scoped) error {
	f.left = slices.DeleteFunc(slices.Clone(f.left), func(name string) bool {
		t := record.Get(s.Whole(), &state.Tombstones, name)
		_, exists := s.Whole().Lookup(name)
		return t != nil && !exists && t.Actor == f.caller.Principal && !t.Time.Before(f.begun)
	})

	return s.CheckNodes(f.left)
}

// tombstones returns the writes that replace the nodes left by tombstones, or a
// refusal that names every node that must stay.
func (ns *Nodes) tombstones(v *state.View, f *forgetting) ([]state.NodeWrite, error) {
	if len(f.left) == 0 {
		return nil, nil
	}

	var (
		writes   []state.NodeWrite
		refusals []*inventory.Error
	)

	// Collect every refusal, so that the operator corrects the request once.
	own := ns.settings().Own
	for _, name := range f.left {
		n, _ := v.Lookup(name)
		if err := CheckNotOwn(name, own); err != nil {
			refusals = append(refusals, err)
			continue
		}

		if e, refused := errors.AsType[*inventory.Error](n.CheckForget(f.Force)); refused {
			refusals = append(refusals, e)
		}

		refusals = append(refusals, checkNotHelper(v, name)...)
		writes = append(writes, Tombstone(n, f.caller.Principal, f.Reason, time.Now()))
	}

	if err := job.Combine(refusals); err != nil {
		return nil, err
	}

	return writes, ns.settings().Groups.CheckLeave(v.Nodes(), f.Nodes)
}

// checkNotHelper refuses a node that helps a running job.
func checkNotHelper(v *state.View, name string) []*inventory.Error {
	var refusals []*inventory.Error
	for _, j := range v.Jobs() {
		if j.Status == job.Running && slices.Contains(j.Helpers, name) {
			refusals = append(refusals, inventory.Errorf(inventory.KindRefused, "%s helps job %s", name, j.ID).
				Do("wait for the job").With(inventory.WaitForJob(j.ID)).About(name))
		}
	}

	return refusals
}

// Tombstone returns the write that replaces the node by its tombstone.
func Tombstone(n inventory.Node, actor, reason string, at time.Time) state.NodeWrite {
	return state.NodeWrite{Node: n, Tombstone: &inventory.Tombstone{
		Name:      n.Name,
		Label:     n.Label,
		Serial:    n.Serial,
		HostKeys:  n.HostKeys,
		Residue:   n.Carries(),
		Playbooks: n.Playbooks,
		Uncleaned: n.Uncleaned,
		Time:      at,
		Actor:     actor,
		Reason:    reason,
	}}
}

// Patch changes the values that operators set on a node.
type Patch struct {
	Connection    *configuration.Connection // replaces all ssh parameters; nil: unchanged
	ForgetHostKey bool
	Labels        map[string]*string // set; nil removes a label
}

// Patch changes a node, entirely or not at all. It is no transition, so it adds
// nothing to the history.
func (ns *Nodes) Patch(ctx context.Context, c access.Caller, name string, p Patch) (inventory.Node, error) {
	if err := p.check(); err != nil {
		return inventory.Node{}, err
	}

	var patched inventory.Node

	record := access.Record{Action: "nodes.patch", Targets: []string{name}}
	err := access.Audited(ctx, ns.audit, c, record, func(recording context.Context, _ *access.Record) error {
		if p.ForgetHostKey {
			if err := ns.yield(ctx, c.Principal, []string{name}); err != nil {
				return err
			}
		}

		return state.RetryConflict(ctx, ns.state, func(v *state.View) error {
			v, err := c.Check(ctx, ns.state, v, Patching(name, p))
			if err != nil {
				return err
			}
			n, err := v.Node(name)
			if err != nil {
				return err
			}
			if n, err = p.apply(n); err != nil {
				return err
			}

			writes := []state.NodeWrite{{Node: n, Connection: p.Connection}}
			if err := PutNodes(recording, ns.store, writes); err != nil {
				return err
			}

			patched, err = ns.state.View().Node(name)

			return err
		})
	})

	return patched, err
}

func (p Patch) check() error {
	if p.Connection == nil && !p.ForgetHostKey && len(p.Labels) == 0 {
		return inventory.Errorf(inventory.KindInvalid, "nothing is to be changed").
			Do("set connection, labels or forget_host_key")
	}

	if p.Connection != nil {
		return p.Connection.Check()
	}

	return nil
}

// Patching returns the subject of a patch: the node, unless that would leave the scope by it.
func Patching(name string, p Patch) access.Subject {
	return func(s *state.Scoped) error {
		n, err := s.Node(name)
		if err != nil {
			return err
		}
		if n, err = n.Relabel(p.Labels); err != nil {
			return err
		}
		return s.CheckRetains(n, "with these labels")
	}
}

// apply returns the node with the patch applied to its record.
func (p Patch) apply(n inventory.Node) (inventory.Node, error) {
	n, err := n.Relabel(p.Labels)
	if err != nil {
		return n, err
	}

	// A running playbook relies on the recorded key.
	if p.ForgetHostKey {
		if n.Job != "" {
			return n, inventory.Errorf(inventory.KindRefused, "%s is held by job %s", n.Name, n.Job).
				Do("wait for the job").About(n.Name)
		}

		n.HostKeys = nil
	}

	n.Updated = time.Now()

	return n, nil
}

// History returns the newest entries of a node's history, oldest first. A limit
// of 0 returns all that are kept.
func (ns *Nodes) History(ctx context.Context, name string, limit int) ([]inventory.HistoryEntry, error) {
	// A wrong name is an error, not an empty history.
	if _, err := ns.state.View().Node(name); err != nil {
		return nil, err
	}

	if limit <= 0 || limit > inventory.HistoryLimit {
		limit = inventory.HistoryLimit
	}
	return ns.store.History(ctx, name, limit)
}

// Putter writes nodes, see Store.
type Putter interface {
	PutNodes(ctx context.Context, writes []state.NodeWrite) (conflicts []string, err error)
}

// PutNodes writes nodes and returns KindConflict if any of them was changed
// since it was read. No writes are no error.
func PutNodes(ctx context.Context, p Putter, writes []state.NodeWrite) error {
	if len(writes) == 0 {
		return nil
	}

	conflicts, err := p.PutNodes(ctx, writes)
	if err == nil && len(conflicts) > 0 {
		err = inventory.Errorf(inventory.KindConflict, "%s changed meanwhile", strings.Join(conflicts, ", ")).
			Do("repeat the request").About(conflicts...)
	}

	return err
}
