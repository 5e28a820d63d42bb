// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/state"
)

// automationRecord is the memory of the policies.
type automationRecord struct {
	Brake     brakeRecord               `json:"brake"`
	Paused    map[string]pauseRecord    `json:"paused,omitempty"`
	Resumed   pauseRecord               `json:"resumed,omitzero"`
	Switches  map[string]switchRecord   `json:"switches,omitempty"`
	Schedules map[string]scheduleRecord `json:"schedules,omitempty"`
	Decisions []decisionRecord          `json:"decisions,omitempty"`
	Fenced    []string                  `json:"fenced,omitempty"`
	Count     uint64                    `json:"count,omitempty"`
}

// brakeRecord is the state of the brake.
type brakeRecord struct {
	On         bool      `json:"on,omitempty"`
	Since      time.Time `json:"since,omitzero"`
	Until      time.Time `json:"until,omitzero"`
	Counted    time.Time `json:"counted,omitzero"`
	Lost       []string  `json:"lost,omitempty"`
	Vanish     int       `json:"vanished,omitempty"`
	Visible    int       `json:"visible,omitempty"`
	Released   time.Time `json:"released,omitzero"`
	ReleasedBy string    `json:"released_by,omitempty"`
	Reason     string    `json:"reason,omitempty"`
}

// pauseRecord is a pause of a policy.
type pauseRecord struct {
	Since  time.Time `json:"since"`
	Actor  string    `json:"actor,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// switchRecord turns a policy on or off.
type switchRecord struct {
	On       bool      `json:"on,omitempty"`
	Since    time.Time `json:"since"`
	Actor    string    `json:"actor,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Kind     string    `json:"kind,omitempty"`
	Selector string    `json:"selector,omitempty"`
	All      bool      `json:"all,omitempty"`
}

// scheduleRecord is the schedule of a policy.
type scheduleRecord struct {
	Times string    `json:"times"`
	Since time.Time `json:"since,omitzero"`
	Run   time.Time `json:"run,omitzero"`
	Began time.Time `json:"began,omitzero"`
}

// decisionRecord is a decision of a policy.
type decisionRecord struct {
	ID        string       `json:"id"`
	Time      time.Time    `json:"time"`
	Policy    string       `json:"policy"`
	Node      string       `json:"node,omitempty"`
	Nodes     []string     `json:"nodes,omitempty"`
	Action    state.Action `json:"action"`
	Case      string       `json:"case,omitempty"`
	Evidence  []string     `json:"evidence,omitempty"`
	Prevent   []string     `json:"prevent,omitempty"`
	Cancel    string       `json:"cancel,omitempty"`
	Group     string       `json:"group,omitempty"`
	Replaces  string       `json:"replaces,omitempty"`
	Lost      []string     `json:"lost,omitempty"`
	From      string       `json:"from,omitempty"`
	Commit    string       `json:"commit,omitempty"`
	Playbooks string       `json:"playbooks,omitempty"`
	Rollout   string       `json:"rollout,omitempty"`
	Phase     state.Phase  `json:"phase"`
	Job       string       `json:"job,omitempty"`
	Result    string       `json:"result,omitempty"`
}

func newPauseRecord(p state.Pause) pauseRecord          { return pauseRecord(p) }
func (r pauseRecord) pause() state.Pause                { return state.Pause(r) }
func newSwitchRecord(s state.Switch) switchRecord       { return switchRecord(s) }
func (r switchRecord) toggle() state.Switch             { return state.Switch(r) }
func newScheduleRecord(s state.Schedule) scheduleRecord { return scheduleRecord(s) }
func (r scheduleRecord) schedule() state.Schedule       { return state.Schedule(r) }
func newDecisionRecord(d state.Decision) decisionRecord { return decisionRecord(d) }
func (r decisionRecord) decision() state.Decision       { return state.Decision(r) }

func newAutomationRecord(a state.Automation) automationRecord {
	return automationRecord{
		Brake: brakeRecord(a.Brake), Paused: convertMap(a.Paused, newPauseRecord),
		Switches:  convertMap(a.Switches, newSwitchRecord),
		Schedules: convertMap(a.Schedules, newScheduleRecord),
		Resumed:   newPauseRecord(a.Resumed),
		Decisions: convertSlice(a.Decisions, newDecisionRecord), Fenced: a.Fenced, Count: a.Count,
	}
}

func (r automationRecord) automation(revision int64) state.Automation {
	return state.Automation{
		Brake: state.Brake(r.Brake), Paused: convertMap(r.Paused, pauseRecord.pause),
		Switches:  convertMap(r.Switches, switchRecord.toggle),
		Schedules: convertMap(r.Schedules, scheduleRecord.schedule),
		Resumed:   r.Resumed.pause(),
		Decisions: convertSlice(r.Decisions, decisionRecord.decision), Fenced: r.Fenced, Count: r.Count,
		Revision: revision,
	}
}

func (s *Store) automationKey() string { return s.key("/v/automation") }

// PutAutomation stores the memory of the policies, if it is still at a.Revision. Else it is
// KindConflict and changes nothing.
func (s *Store) PutAutomation(ctx context.Context, a state.Automation) error {
	op, err := put(s.automationKey(), newAutomationRecord(a))
	if err != nil {
		return err
	}

	_, err = s.commit(ctx, etcd.Ops{
		If:   []clientv3.Cmp{atRevision(s.automationKey(), a.Revision)},
		Then: []clientv3.Op{op},
	})

	return err
}
