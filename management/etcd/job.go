// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
)

// jobRecord is a job without its inputs and logs, which have keys of their own.
type jobRecord struct {
	// Without those in Ansible.
	inventory.JobOptions

	Ansible ansibleRecord `json:"ansible,omitzero"`

	ID             string                   `json:"id"`
	Verb           inventory.Verb           `json:"verb"`
	Status         job.Status               `json:"status"`
	Cause          job.Cause                `json:"cause,omitempty"`
	Message        string                   `json:"message,omitempty"`
	Targets        []targetRecord           `json:"targets"`
	Helpers        []string                 `json:"helpers,omitempty"`
	Group          string                   `json:"group,omitempty"`
	Actor          string                   `json:"actor,omitempty"`
	Note           string                   `json:"note,omitempty"`
	RetryOf        string                   `json:"retry_of,omitempty"`
	Plan           string                   `json:"plan,omitempty"`
	PlannedBy      string                   `json:"planned_by,omitempty"`
	Rollout        string                   `json:"rollout,omitempty"`
	Differences    []string                 `json:"differences,omitempty"`
	Warnings       []string                 `json:"warnings,omitempty"`
	PlaybookDigest string                   `json:"playbook_digest,omitempty"`
	Commit         string                   `json:"commit,omitempty"`
	WithoutVerify  []string                 `json:"without_verify,omitempty"`
	WithoutHelpers bool                     `json:"without_helpers,omitempty"`
	ExtraNames     []string                 `json:"extra_names,omitempty"`
	ExtraSums      []string                 `json:"extra_sums,omitempty"`
	GroupTags      map[string]tagsRecord    `json:"group_tags,omitempty"`
	Timeout        time.Duration            `json:"timeout"` // nanoseconds
	Instance       string                   `json:"instance,omitempty"`
	Accepted       time.Time                `json:"accepted"`
	Started        time.Time                `json:"started,omitzero"`
	Ended          time.Time                `json:"ended,omitzero"`
	Deadline       time.Time                `json:"deadline,omitzero"`
	Cancel         int                      `json:"cancel,omitempty"`
	CancelBy       string                   `json:"cancel_by,omitempty"`
	Runs           []runRecord              `json:"runs,omitempty"`
	Outcomes       map[string]outcomeRecord `json:"outcomes,omitempty"`
	LogBytes       int64                    `json:"log_bytes,omitempty"`
}

// ansibleRecord has those options of a job that are stored in an object of their own. An earlier version that found
// them elsewhere would take a check for a job that changes its nodes.
type ansibleRecord struct {
	inventory.Selection

	Check     bool `json:"check,omitempty"`
	Diff      bool `json:"diff,omitempty"`
	Verbosity int  `json:"verbosity,omitempty"`
}

// takeAnsible moves the options out of o.
func takeAnsible(o *inventory.JobOptions) ansibleRecord {
	r := ansibleRecord{o.Selection(), o.Check, o.Diff, o.Verbosity}
	o.Tags, o.SkipTags, o.Check, o.Diff, o.Verbosity = nil, nil, false, false, 0

	return r
}

// giveTo moves the options into o.
func (r ansibleRecord) giveTo(o *inventory.JobOptions) {
	o.Tags, o.SkipTags, o.Check, o.Diff, o.Verbosity = r.Tags, r.SkipTags, r.Check, r.Diff, r.Verbosity
}

// tagsRecord are the tags of a group.
type tagsRecord struct {
	Tags     []string `json:"tags,omitempty"`
	SkipTags []string `json:"skip_tags,omitempty"`
}

// targetRecord is a node as the job found it.
type targetRecord struct {
	Name           string            `json:"name"`
	Addr           string            `json:"addr"`
	Label          string            `json:"label,omitempty"`
	Serial         string            `json:"serial,omitempty"`
	From           inventory.Status  `json:"from,omitempty"`
	FromGroup      string            `json:"from_group,omitempty"`
	Group          string            `json:"group,omitempty"`
	Residue        []string          `json:"residue,omitempty"`
	Applied        string            `json:"applied,omitempty"`
	Playbooks      map[string]string `json:"playbooks,omitempty"`
	Variables      string            `json:"variables,omitempty"`
	Configured     string            `json:"configured,omitempty"`
	ConfiguredTags string            `json:"configured_tags,omitempty"`

	ConfiguredMasters string   `json:"configured_masters,omitempty"`
	Ranged            bool     `json:"ranged,omitempty"`
	HostKeys          []string `json:"host_keys,omitempty"`
}

// runRecord is one step of a job that was begun.
type runRecord struct {
	Kind           job.StepKind                `json:"kind,omitempty"`
	Phase          job.Phase                   `json:"phase"`
	Playbook       string                      `json:"playbook"`
	PlaybookDigest string                      `json:"playbook_digest,omitempty"`
	Hosts          []string                    `json:"hosts"`
	Groups         []string                    `json:"groups,omitempty"`
	Started        time.Time                   `json:"started"`
	Ended          time.Time                   `json:"ended,omitzero"`
	Exit           string                      `json:"exit,omitempty"`
	Code           int                         `json:"code,omitempty"`
	Message        string                      `json:"message,omitempty"`
	Results        map[string]hostResultRecord `json:"results,omitempty"`
	NotBegun       bool                        `json:"not_begun,omitempty"`
	TakenOver      bool                        `json:"taken_over,omitempty"`
	Masters        string                      `json:"masters,omitempty"`
	MasterNames    []string                    `json:"master_names,omitempty"`
	Text           int64                       `json:"text"`
	Events         int64                       `json:"events"`
}

// hostResultRecord is the result of one run on one host.
type hostResultRecord struct {
	Begun       bool   `json:"begun,omitempty"`
	OK          int    `json:"ok,omitempty"`
	Changed     int    `json:"changed,omitempty"`
	Failed      int    `json:"failed,omitempty"`
	Ignored     int    `json:"ignored,omitempty"`
	Unreachable bool   `json:"unreachable,omitempty"`
	Done        bool   `json:"done,omitempty"`
	Selected    bool   `json:"selected,omitempty"`
	Executed    int    `json:"executed,omitempty"`
	Foreseen    int    `json:"foreseen,omitempty"`
	Unjudged    int    `json:"unjudged,omitempty"`
	Judged      int    `json:"judged,omitempty"`
	Doubt       string `json:"doubt,omitempty"`
	Task        string `json:"task,omitempty"`
	Message     string `json:"message,omitempty"`
}

// outcomeRecord is the result of the job for one node.
type outcomeRecord struct {
	Status     inventory.Status  `json:"status"`
	Group      string            `json:"group,omitempty"`
	Applied    string            `json:"applied,omitempty"`
	Configured *configuredRecord `json:"configured,omitempty"`
	Playbooks  map[string]string `json:"playbooks,omitempty"`
	Residue    []string          `json:"residue,omitempty"`
	Cleaned    bool              `json:"cleaned,omitempty"`
	AsBefore   bool              `json:"as_before,omitempty"`
	Untouched  bool              `json:"untouched,omitempty"`
	Verdict    *verdictRecord    `json:"verdict,omitempty"`
	Error      string            `json:"error,omitempty"`
	Reason     string            `json:"reason,omitempty"`
}

func newTagsRecord(s inventory.Selection) tagsRecord        { return tagsRecord(s) }
func (r tagsRecord) selection() inventory.Selection         { return inventory.Selection(r) }
func newTargetRecord(t job.Target) targetRecord             { return targetRecord(t) }
func (r targetRecord) target() job.Target                   { return job.Target(r) }
func newHostResultRecord(h job.HostResult) hostResultRecord { return hostResultRecord(h) }
func (r hostResultRecord) hostResult() job.HostResult       { return job.HostResult(r) }

func newOutcomeRecord(o inventory.Outcome) outcomeRecord {
	return outcomeRecord{
		Status:     o.Status,
		Group:      o.Group,
		Applied:    o.Applied,
		Configured: newConfiguredRecord(o.Configured),
		Playbooks:  o.Playbooks,
		Residue:    o.Residue,
		Cleaned:    o.Cleaned,
		AsBefore:   o.AsBefore,
		Untouched:  o.Untouched,
		Verdict:    (*verdictRecord)(o.Verdict),
		Error:      o.Error,
		Reason:     o.Reason,
	}
}

func (r outcomeRecord) outcome() inventory.Outcome {
	return inventory.Outcome{
		Status:     r.Status,
		Group:      r.Group,
		Applied:    r.Applied,
		Configured: r.Configured.configured(),
		Playbooks:  r.Playbooks,
		Residue:    r.Residue,
		Cleaned:    r.Cleaned,
		AsBefore:   r.AsBefore,
		Untouched:  r.Untouched,
		Verdict:    (*inventory.Verdict)(r.Verdict),
		Error:      r.Error,
		Reason:     r.Reason,
	}
}

func newRunRecord(r job.Run) runRecord {
	return runRecord{
		Kind:           r.Kind,
		Phase:          r.Phase,
		Playbook:       r.Playbook,
		PlaybookDigest: r.PlaybookDigest,
		Hosts:          r.Hosts,
		Groups:         r.Groups,
		Started:        r.Started,
		Ended:          r.Ended,
		Exit:           r.Exit,
		Code:           r.Code,
		Message:        r.Message,
		Results:        convertMap(r.Results, newHostResultRecord),
		NotBegun:       r.NotBegun,
		TakenOver:      r.TakenOver,
		Masters:        r.Masters,
		MasterNames:    r.MasterNames,
		Text:           r.Text,
		Events:         r.Events,
	}
}

func (r runRecord) run() job.Run {
	return job.Run{
		Kind:           r.Kind,
		Phase:          r.Phase,
		Playbook:       r.Playbook,
		PlaybookDigest: r.PlaybookDigest,
		Hosts:          r.Hosts,
		Groups:         r.Groups,
		Started:        r.Started,
		Ended:          r.Ended,
		Exit:           r.Exit,
		Code:           r.Code,
		Message:        r.Message,
		Results:        convertMap(r.Results, hostResultRecord.hostResult),
		NotBegun:       r.NotBegun,
		TakenOver:      r.TakenOver,
		Masters:        r.Masters,
		MasterNames:    r.MasterNames,
		Text:           r.Text,
		Events:         r.Events,
	}
}

func newJobRecord(j job.Job) jobRecord {
	ansible := takeAnsible(&j.JobOptions)

	return jobRecord{
		JobOptions:     j.JobOptions,
		Ansible:        ansible,
		ID:             j.ID,
		Verb:           j.Verb,
		Status:         j.Status,
		Cause:          j.Cause,
		Message:        j.Message,
		Targets:        convertSlice(j.Targets, newTargetRecord),
		Helpers:        j.Helpers,
		Group:          j.Group,
		Actor:          j.Actor,
		Note:           j.Note,
		RetryOf:        j.RetryOf,
		Plan:           j.Plan,
		PlannedBy:      j.PlannedBy,
		Rollout:        j.Rollout,
		Differences:    j.Differences,
		Warnings:       j.Warnings,
		PlaybookDigest: j.PlaybookDigest,
		Commit:         j.Commit,
		WithoutVerify:  j.WithoutVerify,
		WithoutHelpers: j.WithoutHelpers,
		ExtraNames:     j.ExtraNames,
		ExtraSums:      j.ExtraSums,
		GroupTags:      convertMap(j.GroupTags, newTagsRecord),
		Timeout:        j.Timeout,

		Instance: j.Instance,
		Accepted: j.Accepted,
		Started:  j.Started,
		Ended:    j.Ended,
		Deadline: j.Deadline,

		Cancel:   j.Cancel,
		CancelBy: j.CancelBy,
		Runs:     convertSlice(j.Runs, newRunRecord),
		Outcomes: convertMap(j.Outcomes, newOutcomeRecord),
		LogBytes: j.LogBytes,
	}
}

func (r *jobRecord) job(revision int64) job.Job {
	options := r.JobOptions
	r.Ansible.giveTo(&options)

	return job.Job{
		JobOptions:     options,
		ID:             r.ID,
		Verb:           r.Verb,
		Status:         r.Status,
		Cause:          r.Cause,
		Message:        r.Message,
		Targets:        convertSlice(r.Targets, targetRecord.target),
		Helpers:        r.Helpers,
		Group:          r.Group,
		Actor:          r.Actor,
		Note:           r.Note,
		RetryOf:        r.RetryOf,
		Plan:           r.Plan,
		PlannedBy:      r.PlannedBy,
		Rollout:        r.Rollout,
		Differences:    r.Differences,
		Warnings:       r.Warnings,
		PlaybookDigest: r.PlaybookDigest,
		Commit:         r.Commit,
		WithoutVerify:  r.WithoutVerify,
		WithoutHelpers: r.WithoutHelpers,
		ExtraNames:     r.ExtraNames,
		ExtraSums:      r.ExtraSums,
		GroupTags:      convertMap(r.GroupTags, tagsRecord.selection),
		Timeout:        r.Timeout,

		Instance: r.Instance,
		Accepted: r.Accepted,
		Started:  r.Started,
		Ended:    r.Ended,
		Deadline: r.Deadline,

		Cancel:   r.Cancel,
		CancelBy: r.CancelBy,
		Runs:     convertSlice(r.Runs, runRecord.run),
		Outcomes: convertMap(r.Outcomes, outcomeRecord.outcome),
		LogBytes: r.LogBytes,

		Revision: revision,
	}
}

func (s *Store) jobKey(id string) string { return s.key("/v/jobs/%s", id) }
func (s *Store) seqKey() string          { return s.key("/v/seq") }

// compressJobAt is the size of a job's record, in bytes, above which it is stored
// compressed. With thousands of nodes it would exceed etcd's limit of a request.
const compressJobAt = 64 << 10

func (s *Store) putJob(j job.Job) (clientv3.Op, error) {
	b, err := encodeJob(j)
	return clientv3.OpPut(s.jobKey(j.ID), string(b)), err
}

// encodeJob returns the stored value of a job.
func encodeJob(j job.Job) ([]byte, error) {
	b, err := json.Marshal(newJobRecord(j))
	if len(b) > compressJobAt {
		b = compress(b)
	}

	return b, err
}

// decodeJob parses the record under the key of the job.
func decodeJob(id string, kv *mvccpb.KeyValue) (job.Job, error) {
	value := kv.Value

	// A compressed record starts with its length. Below maxExpanded, the first byte of a
	// length is never '{'.
	if len(value) > 0 && value[0] != '{' {
		var err error
		if value, err = expand(value); err != nil {
			return job.Job{}, err
		}
	}

	record, err := decode[jobRecord](value)
	if err != nil {
		return job.Job{}, err
	}

	if record.ID != id {
		return job.Job{}, fmt.Errorf("the record names job %q", record.ID)
	}

	return record.job(kv.ModRevision), nil
}

// Accept stores a Queued job and its inputs under the number seq+1. It is
// KindConflict if seq is no longer the newest number.
func (s *Store) Accept(
	ctx context.Context, seq uint64, j job.Job, in job.Inputs, key *access.Key,
) (job.Job, error) {
	defer s.secrets.hold()()

	j, ops, err := s.acceptOps(seq, j, in)
	if err != nil {
		return j, err
	}

	if err := s.addResult(&ops, key, j.ID); err != nil {
		return j, err
	}

	j.Revision, err = s.commit(ctx, ops)

	return j, err
}

// acceptOps returns the job with its number, and the operations that store it with its
// inputs. The caller holds the secrets until it has committed.
func (s *Store) acceptOps(seq uint64, j job.Job, in job.Inputs) (job.Job, etcd.Ops, error) {
	j.ID = strconv.FormatUint(seq+1, 10)

	record, err := s.putJob(j)
	if err != nil {
		return j, etcd.Ops{}, err
	}

	in, marks := s.markInputs(in)

	inputs, err := s.putInputs(j.ID, in)
	if err != nil {
		return j, etcd.Ops{}, err
	}

	// Two requests decided on the same queue must not both be accepted.
	newest := clientv3.Compare(clientv3.Value(s.seqKey()), "=", strconv.FormatUint(seq, 10))
	if seq == 0 {
		newest = atRevision(s.seqKey(), 0)
	}

	return j, etcd.Ops{
		If:   []clientv3.Cmp{newest, marks},
		Then: []clientv3.Op{clientv3.OpPut(s.seqKey(), j.ID), record, inputs},
	}, nil
}

// PutJob stores the job if it is still at j.Revision.
func (s *Store) PutJob(ctx context.Context, j job.Job) (job.Job, error) {
	record, err := s.putJob(j)
	if err != nil {
		return j, err
	}

	revision, err := s.commit(ctx, etcd.Ops{
		If:   append(s.fence(ctx), atRevision(s.jobKey(j.ID), j.Revision)),
		Then: []clientv3.Op{record},
	})
	if err == nil {
		j.Revision = revision
	}

	return j, err
}

// Cancel stores a job with a cancel request, or one cancelled in the queue, if it is
// still at j.Revision.
func (s *Store) Cancel(ctx context.Context, j job.Job, key *access.Key) (job.Job, error) {
	var ops etcd.Ops
	if err := s.addResult(&ops, key, j.ID); err != nil {
		return j, err
	}

	return s.commitJob(ctx, j, ops)
}

// DropJobs removes ended jobs with their inputs and logs.
func (s *Store) DropJobs(ctx context.Context, ids []string) error {
	for _, id := range ids {
		// The record goes in the same transaction, so no job remains without its log.
		if err := s.delete(ctx, s.dropJobOps(id)...); err != nil {
			return err
		}
	}

	return nil
}

// dropJobOps returns the operations that remove a job with its inputs and logs.
func (s *Store) dropJobOps(id string) []clientv3.Op {
	return []clientv3.Op{
		clientv3.OpDelete(s.key("/x/log/%s/", id), clientv3.WithPrefix()),
		clientv3.OpDelete(s.key("/x/tail/%s/", id), clientv3.WithPrefix()),
		clientv3.OpDelete(s.inputsKey(id)),
		clientv3.OpDelete(s.jobKey(id)),
	}
}
