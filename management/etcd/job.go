// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/management/job"
)

func (s *Store) jobKey(id string) string { return s.key("/v/jobs/%s", id) }

func (s *Store) putJob(j job.Job) (clientv3.Op, error) {
	b, err := job.Kind.Encode(&j)
	return clientv3.OpPut(s.jobKey(j.ID), string(b)), err
}

// dropJobOps returns the operations that remove a job with its inputs and logs.
func (s *Store) dropJobOps(id string) []clientv3.Op {
	return append(s.dropLogOps(id),
		clientv3.OpPut(s.removedKey(job.Kind.Name), ""),
		clientv3.OpDelete(s.inputsKey(id)),
		clientv3.OpDelete(s.jobKey(id)),
	)
}
