// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
)

func (s *Store) jobKey(id string) string { return s.key("/v/jobs/%s", id) }
func (s *Store) seqKey() string          { return s.key("/v/seq") }

func (s *Store) putJob(j job.Job) (clientv3.Op, error) {
	b, err := job.Kind.Encode(&j)
	return clientv3.OpPut(s.jobKey(j.ID), string(b)), err
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
