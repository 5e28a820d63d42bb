// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
)

// rolloutRecord is the head of a rollout: without its nodes, see rolloutChunkRecord, and
// without its extra variables, which have a key of their own.
type rolloutRecord struct {
	ID         string         `json:"id"`
	Status     rollout.Status `json:"status"`
	Reason     string         `json:"reason,omitempty"`
	Waits      string         `json:"waits,omitempty"`
	WaitsUntil time.Time      `json:"waits_until,omitzero"`
	Spec       specRecord     `json:"spec"`
	ExtraNames []string       `json:"extra_names,omitempty"`
	Nodes      int            `json:"nodes"` // their number
	Playbooks  string         `json:"playbooks,omitempty"`
	Commit     string         `json:"commit,omitempty"`
	Actor      string         `json:"actor,omitempty"`
	Created    time.Time      `json:"created"`
	Started    time.Time      `json:"started,omitzero"`
	Ended      time.Time      `json:"ended,omitzero"`
	Approved   *markRecord    `json:"approved,omitempty"`
	Promoted   *markRecord    `json:"promoted,omitempty"`
	CanaryDone time.Time      `json:"canary_done,omitzero"`
	Cancel     bool           `json:"cancel,omitempty"`
	UndoOf     string         `json:"undo_of,omitempty"`
	Events     []stepRecord   `json:"events,omitempty"`
	Estimate   paceRecord     `json:"estimate,omitzero"`
}

// specRecord is the specification of a rollout; times in nanoseconds.
type specRecord struct {
	// Without the tags, which are in Ansible, as those of a job are.
	inventory.SharedOptions

	Ansible inventory.Selection `json:"ansible,omitzero"`

	Action          inventory.Verb            `json:"action"`
	Selector        string                    `json:"selector,omitempty"`
	Group           string                    `json:"group,omitempty"`
	MaxUnavailable  string                    `json:"max_unavailable,omitempty"`
	MaxFailures     int                       `json:"max_failures,omitempty"`
	Canary          int                       `json:"canary,omitempty"`
	Promote         bool                      `json:"promote,omitempty"`
	Soak            time.Duration             `json:"soak,omitempty"`
	Order           orderRecord               `json:"order,omitzero"`
	Strategies      map[string]strategyRecord `json:"strategies,omitempty"`
	Gate            gateRecord                `json:"gate,omitzero"`
	RequireApproval bool                      `json:"require_approval,omitempty"`
	Timeout         time.Duration             `json:"timeout,omitempty"`
}

// orderRecord is the order of the nodes of a rollout.
type orderRecord struct {
	By    rollout.By `json:"by,omitempty"`
	Label string     `json:"label,omitempty"`
}

// strategyRecord has the bounds of one group.
type strategyRecord struct {
	MaxUnavailable string         `json:"max_unavailable,omitempty"`
	MaxFailures    *int           `json:"max_failures,omitempty"`
	Soak           *time.Duration `json:"soak,omitempty"`
}

// gateRecord is the gate of a rollout.
type gateRecord struct {
	SkipVerify bool                `json:"skip_verify,omitempty"`
	HTTP       *httpCheckRecord    `json:"http,omitempty"`
	Command    *commandCheckRecord `json:"command,omitempty"`
}

// commandCheckRecord is the command of a gate.
type commandCheckRecord struct {
	Name    string        `json:"name"`
	Timeout time.Duration `json:"timeout,omitempty"`
}

// httpCheckRecord is the HTTP check of a gate.
type httpCheckRecord struct {
	TLS     bool          `json:"tls,omitempty"`
	Port    int           `json:"port"`
	Path    string        `json:"path,omitempty"`
	Status  int           `json:"status,omitempty"`
	Timeout time.Duration `json:"timeout,omitempty"`
}

// rolloutNodeRecord is the progress of a node.
type rolloutNodeRecord struct {
	Name      string        `json:"name"`
	Group     string        `json:"group,omitempty"`
	Rack      string        `json:"rack,omitempty"`
	State     rollout.State `json:"state"`
	Attempt   int           `json:"attempt,omitempty"`
	Job       string        `json:"job,omitempty"`
	Gate      string        `json:"gate,omitempty"`
	Since     time.Time     `json:"since,omitzero"`
	Begun     time.Time     `json:"begun,omitzero"`
	Reason    string        `json:"reason,omitempty"`
	Excused   bool          `json:"excused,omitempty"`
	Playbooks string        `json:"playbooks,omitempty"`
	Former    string        `json:"former,omitempty"`
	Applied   string        `json:"applied,omitempty"`
	Changed   string        `json:"changed,omitempty"`
}

// markRecord is an act of a person on a rollout.
type markRecord struct {
	By     string    `json:"by,omitempty"`
	At     time.Time `json:"at"`
	Reason string    `json:"reason,omitempty"`
}

// stepRecord is an event of a rollout.
type stepRecord struct {
	Time  time.Time         `json:"time"`
	Kind  rollout.EventKind `json:"kind"`
	Node  string            `json:"node,omitempty"`
	Actor string            `json:"actor,omitempty"`
	Text  string            `json:"text,omitempty"`
}

// paceRecord is the expected duration of a node.
type paceRecord struct {
	Jobs int           `json:"jobs,omitempty"`
	Node time.Duration `json:"node,omitempty"`
}

func newRolloutNodeRecord(n rollout.Node) rolloutNodeRecord    { return rolloutNodeRecord(n) }
func (r rolloutNodeRecord) node() rollout.Node                 { return rollout.Node(r) }
func newStrategyRecord(s rollout.Strategy) strategyRecord      { return strategyRecord(s) }
func (r strategyRecord) strategy() rollout.Strategy            { return rollout.Strategy(r) }
func newStepRecord(e rollout.Event) stepRecord                 { return stepRecord(e) }
func (r stepRecord) event() rollout.Event                      { return rollout.Event(r) }
func newHTTPCheckRecord(c *rollout.HTTPCheck) *httpCheckRecord { return (*httpCheckRecord)(c) }

func newGateRecord(g rollout.Gate) gateRecord {
	return gateRecord{g.SkipVerify, newHTTPCheckRecord(g.HTTP), (*commandCheckRecord)(g.Command)}
}

func (r gateRecord) gate() rollout.Gate {
	return rollout.Gate{
		SkipVerify: r.SkipVerify, HTTP: (*rollout.HTTPCheck)(r.HTTP), Command: (*rollout.CommandCheck)(r.Command),
	}
}

func newSpecRecord(s rollout.Spec) specRecord {
	ansible := s.Selection()
	s.Tags, s.SkipTags = nil, nil

	return specRecord{
		SharedOptions: s.SharedOptions, Ansible: ansible,
		Action: s.Action, Selector: s.Selector, Group: s.Group, MaxUnavailable: s.MaxUnavailable,
		MaxFailures: s.MaxFailures, Canary: s.Canary, Promote: s.Promote, Soak: s.Soak, Order: orderRecord(s.Order),
		Strategies:      convertMap(s.Strategies, newStrategyRecord),
		Gate:            newGateRecord(s.Gate),
		RequireApproval: s.RequireApproval, Timeout: s.Timeout,
	}
}

func (r specRecord) spec() rollout.Spec {
	shared := r.SharedOptions
	shared.Tags, shared.SkipTags = r.Ansible.Tags, r.Ansible.SkipTags

	return rollout.Spec{
		SharedOptions: shared,
		Action:        r.Action, Selector: r.Selector, Group: r.Group, MaxUnavailable: r.MaxUnavailable,
		MaxFailures: r.MaxFailures, Canary: r.Canary, Promote: r.Promote, Soak: r.Soak, Order: rollout.Order(r.Order),
		Strategies:      convertMap(r.Strategies, strategyRecord.strategy),
		Gate:            r.Gate.gate(),
		RequireApproval: r.RequireApproval, Timeout: r.Timeout,
	}
}

func newRolloutRecord(r rollout.Record) rolloutRecord {
	return rolloutRecord{
		ID: r.ID, Status: r.Status, Reason: r.Reason, Waits: r.Waits, WaitsUntil: r.WaitsUntil,
		Spec: newSpecRecord(r.Spec), ExtraNames: r.ExtraNames, Nodes: len(r.Nodes),
		Playbooks: r.Playbooks, Commit: r.Commit, Actor: r.Actor,
		Created: r.Created, Started: r.Started, Ended: r.Ended,
		Approved: (*markRecord)(r.Approved), Promoted: (*markRecord)(r.Promoted), CanaryDone: r.CanaryDone,
		Cancel: r.Cancel, UndoOf: r.UndoOf, Events: convertSlice(r.Events, newStepRecord),
		Estimate: paceRecord(r.Estimate),
	}
}

// rollout returns the rollout without its nodes.
func (r *rolloutRecord) rollout(revision int64) rollout.Record {
	return rollout.Record{
		ID: r.ID, Status: r.Status, Reason: r.Reason, Waits: r.Waits, WaitsUntil: r.WaitsUntil,
		Spec: r.Spec.spec(), ExtraNames: r.ExtraNames,
		Playbooks: r.Playbooks, Commit: r.Commit, Actor: r.Actor,
		Created: r.Created, Started: r.Started, Ended: r.Ended,
		Approved: (*rollout.Mark)(r.Approved), Promoted: (*rollout.Mark)(r.Promoted), CanaryDone: r.CanaryDone,
		Cancel: r.Cancel, UndoOf: r.UndoOf, Events: convertSlice(r.Events, stepRecord.event),
		Estimate: rollout.Pace(r.Estimate), Revision: revision,
	}
}

func (s *Store) rolloutKey(id string) string { return s.key("/v/rollouts/%s", id) }

// rolloutInputs begins the names of the extra variables of rollouts, among the inputs of jobs.
const rolloutInputs = "rollout-"

// putRollout returns the operations that store a rollout, if it is still at r.Revision. A
// new one has the revision 0.
func (s *Store) putRollout(r rollout.Record) (etcd.Ops, error) {
	b, err := json.Marshal(newRolloutRecord(r))
	if err != nil {
		return etcd.Ops{}, err
	}

	nodes, err := s.putRolloutNodes(r, s.view.nodesOf(r.ID, r.Revision))
	head := clientv3.OpPut(s.rolloutKey(r.ID), string(record.Compress(b)))

	return etcd.Ops{
		If:   []clientv3.Cmp{atRevision(s.rolloutKey(r.ID), r.Revision)},
		Then: append(nodes, head),
	}, err
}

// decodeRollout parses the head under the key of the rollout.
func decodeRollout(id string, kv *mvccpb.KeyValue) (rolloutHead, error) {
	b, err := record.Expand(kv.Value)
	if err != nil {
		return rolloutHead{}, err
	}

	record, err := decode[rolloutRecord](b)

	switch {
	case err != nil:
		return rolloutHead{}, err
	case record.ID != id:
		return rolloutHead{}, fmt.Errorf("the record names rollout %q", record.ID)
	case record.Nodes < 0 || record.Nodes > rollout.MaxNodes:
		return rolloutHead{}, fmt.Errorf("the record names %d nodes", record.Nodes)
	}

	return rolloutHead{record.rollout(kv.ModRevision), record.Nodes}, nil
}

// sortedRollouts returns the rollouts, the oldest first. The caller holds the lock.
func (v *view) sortedRollouts() []rollout.Record {
	if v.rolloutList != nil {
		return v.rolloutList
	}

	v.joinRollouts()

	v.rolloutList = make([]rollout.Record, 0, len(v.rollouts))
	for _, r := range v.rollouts {
		if r.whole != nil {
			v.rolloutList = append(v.rolloutList, *r.whole)
		}
	}

	slices.SortFunc(v.rolloutList, func(a, b rollout.Record) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID))
	})

	return v.rolloutList
}

// AddRollout stores a new rollout with its extra variables. It is KindConflict if the
// rollout exists, or if any record of the view was changed after the revision.
func (s *Store) AddRollout(
	ctx context.Context, revision int64, r rollout.Record, extra configuration.Vars, key *access.Key,
) (rollout.Record, error) {
	defer s.secrets.hold()()

	r.Revision = 0

	ops, err := s.putRollout(r)
	if err != nil {
		return r, err
	}

	inputs, err := s.putInputs(rolloutInputs+r.ID, job.Inputs{Extra: extra})
	if err != nil {
		return r, err
	}

	// Two rollouts decided on the same view may share nodes.
	ops.Add(etcd.Ops{
		If:   []clientv3.Cmp{unchanged(headKey(s.client.Prefix), revision)},
		Then: []clientv3.Op{inputs},
	})

	if err := s.addResultOf(&ops, key, access.Result{Rollout: r.ID}); err != nil {
		return r, err
	}

	r.Revision, err = s.commit(ctx, ops)

	return r, err
}

// PutRollout replaces a rollout, if it is still at r.Revision. Else it is KindConflict and
// changes nothing. With a revision it is so too if any record of the view was changed after it.
func (s *Store) PutRollout(
	ctx context.Context, revision int64, r rollout.Record, key *access.Key,
) (rollout.Record, error) {
	ops, err := s.putRollout(r)
	if err != nil {
		return r, err
	}

	if revision > 0 {
		ops.If = append(ops.If, unchanged(headKey(s.client.Prefix), revision))
	}

	if err := s.addResultOf(&ops, key, access.Result{Rollout: r.ID}); err != nil {
		return r, err
	}

	revision, err = s.commit(ctx, ops)
	if err == nil {
		r.Revision = revision
	}

	return r, err
}

// AcceptRollout stores the job of a node as Accept does, and in the same transaction the
// rollout that has begun it, if that is still at r.Revision.
func (s *Store) AcceptRollout(
	ctx context.Context, seq uint64, r rollout.Record, j job.Job, in job.Inputs,
) (job.Job, rollout.Record, error) {
	defer s.secrets.hold()()

	j, ops, err := s.acceptOps(seq, j, in)
	if err != nil {
		return j, r, err
	}

	record, err := s.putRollout(r)
	if err != nil {
		return j, r, err
	}

	ops.Add(record)

	revision, err := s.commit(ctx, ops)
	if err == nil {
		j.Revision, r.Revision = revision, revision
	}

	return j, r, err
}

// RolloutExtra returns the extra variables of a rollout, or KindNotFound.
func (s *Store) RolloutExtra(ctx context.Context, id string) (configuration.Vars, error) {
	in, err := s.Inputs(ctx, rolloutInputs+id)
	return in.Extra, err
}

// DropRollouts removes rollouts with their extra variables. A full store accepts it as well.
func (s *Store) DropRollouts(ctx context.Context, ids []string) error {
	for _, id := range ids {
		if err := s.delete(ctx, s.dropRolloutOps(id)...); err != nil {
			return err
		}
	}

	return nil
}

// dropRolloutOps returns the operations that remove a rollout with its extra variables.
func (s *Store) dropRolloutOps(id string) []clientv3.Op {
	return []clientv3.Op{
		clientv3.OpDelete(s.inputsKey(rolloutInputs + id)),
		clientv3.OpDelete(s.rolloutNodesPrefix(id), clientv3.WithPrefix()),
		clientv3.OpDelete(s.rolloutKey(id)),
	}
}
