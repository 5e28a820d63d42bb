// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/job"
)

func (s *Store) jobKey(id string) string { return s.key("/v/jobs/%s", id) }
func (s *Store) seqKey() string          { return s.key("/v/seq") }

func (s *Store) putJob(j job.Job) (clientv3.Op, error) {
	b, err := job.Kind.Encode(&j)
	return clientv3.OpPut(s.jobKey(j.ID), string(b)), err
}

// acceptOps returns the operations that store a Queued job with its inputs. It is a conflict if its number is not
// the next one. The caller holds the secrets until it has committed.
func (s *Store) acceptOps(j job.Job, in job.Inputs) (etcd.Ops, error) {
	record, err := s.putJob(j)
	if err != nil {
		return etcd.Ops{}, err
	}

	in, marks := s.markInputs(in)

	inputs, err := s.putInputs(j.ID, in)
	if err != nil {
		return etcd.Ops{}, err
	}

	// Two requests decided on the same queue must not both be accepted.
	seq := j.Seq() - 1

	newest := clientv3.Compare(clientv3.Value(s.seqKey()), "=", strconv.FormatUint(seq, 10))
	if seq == 0 {
		newest = atRevision(s.seqKey(), 0)
	}

	return etcd.Ops{
		If:   []clientv3.Cmp{newest, marks},
		Then: []clientv3.Op{clientv3.OpPut(s.seqKey(), j.ID), record, inputs},
	}, nil
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
		clientv3.OpPut(s.removedKey(job.Kind.Name), ""),
		clientv3.OpDelete(s.key("/x/log/%s/", id), clientv3.WithPrefix()),
		clientv3.OpDelete(s.key("/x/tail/%s/", id), clientv3.WithPrefix()),
		clientv3.OpDelete(s.inputsKey(id)),
		clientv3.OpDelete(s.jobKey(id)),
	}
}
