// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"encoding/json"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
)

// inputsRecord holds the variables and connections of a job, compressed in etcd.
// The free-form values have the codec of package configuration.
type inputsRecord struct {
	Vars        map[string]map[string]configuration.Var `json:"vars"`
	Connections map[string]connectionRecord             `json:"connections"`
	Extra       configuration.Vars                      `json:"extra,omitempty"`
}

func newInputsRecord(in job.Inputs) inputsRecord {
	return inputsRecord{
		Vars:        in.Vars,
		Connections: convertMap(in.Connections, newConnectionRecord),
		Extra:       in.Extra,
	}
}

func (r inputsRecord) inputs() job.Inputs {
	return job.Inputs{
		Vars:        r.Vars,
		Connections: convertMap(r.Connections, connectionRecord.connection),
		Extra:       r.Extra,
	}
}

func (s *Store) inputsKey(job string) string { return s.key("/x/inputs/%s", job) }

func (s *Store) putInputs(job string, in job.Inputs) (clientv3.Op, error) {
	b, err := json.Marshal(newInputsRecord(in))
	return clientv3.OpPut(s.inputsKey(job), string(compress(b))), err
}

// Inputs returns the inputs a job was accepted with, or KindNotFound.
func (s *Store) Inputs(ctx context.Context, id string) (in job.Inputs, err error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()

	resp, err := s.client.Get(ctx, s.inputsKey(id))
	if err != nil {
		return in, s.failure(ctx, err)
	}

	if len(resp.Kvs) == 0 {
		return in, inventory.Errorf(inventory.KindNotFound, "the inputs of job %s are no longer stored", id)
	}

	if in, err = decodeInputs(resp.Kvs[0]); err != nil {
		return in, job.UnreadableRecord("x/inputs/"+id, err.Error())
	}

	return in, nil
}

func decodeInputs(kv *mvccpb.KeyValue) (job.Inputs, error) {
	b, err := expand(kv.Value)
	if err != nil {
		return job.Inputs{}, err
	}

	record, err := decode[inputsRecord](b)

	return record.inputs(), err
}
