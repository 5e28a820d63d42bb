// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/management/job"
)

func (s *Store) jobKey(id string) string { return s.key("/v/jobs/%s", id) }

func (s *Store) putJob(j job.Job) (clientv3.Op, error) {
	b, err := job.Kind.Encode(&j)
	return clientv3.OpPut(s.jobKey(j.ID), string(b)), err
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
