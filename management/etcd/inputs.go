// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"encoding/json"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/secret"
)

// inputsRecord holds the variables and connections of a job, compressed in etcd.
// The free-form values have the codec of package configuration.
type inputsRecord struct {
	Vars        map[string]map[string]configuration.Var `json:"vars"`
	Connections map[string]configuration.Connection     `json:"connections"`
	Extra       configuration.Vars                      `json:"extra,omitempty"`

	Groups             map[string]string                                  `json:"groups,omitempty"`
	CleanupVars        map[string]map[string]map[string]configuration.Var `json:"cleanup_vars,omitempty"`
	CleanupConnections map[string]map[string]configuration.Connection     `json:"cleanup_connections,omitempty"`
}

func newInputsRecord(in job.Inputs) inputsRecord {
	return inputsRecord{
		Vars:        in.Vars,
		Connections: in.Connections,
		Extra:       in.Extra,

		Groups:             in.Groups,
		CleanupVars:        in.CleanupVars,
		CleanupConnections: in.CleanupConnections,
	}
}

func (r inputsRecord) inputs() job.Inputs {
	return job.Inputs{
		Vars:        r.Vars,
		Connections: r.Connections,
		Extra:       r.Extra,

		Groups:             r.Groups,
		CleanupVars:        r.CleanupVars,
		CleanupConnections: r.CleanupConnections,
	}
}

func (s *Store) inputsKey(job string) string { return s.key("/x/inputs/%s", job) }

// sealedInputs are the inputs of a job with their secrets in a box.
type sealedInputs struct {
	inputsRecord

	Sealed secret.Box `json:"sealed,omitempty"`
}

// putInputs returns the operation that stores the inputs of a job. The caller holds
// the secrets until it has committed.
func (s *Store) putInputs(job string, in job.Inputs) (clientv3.Op, error) {
	stored, box, err := s.secrets.sealInputs(job, in)
	if err != nil {
		return clientv3.Op{}, err
	}
	b, err := json.Marshal(sealedInputs{newInputsRecord(stored), box})

	return clientv3.OpPut(s.inputsKey(job), string(record.Compress(b))), err
}

// ownerOfInputs names the job, the plan or the rollout with the inputs of that name.
func ownerOfInputs(name string) string {
	if kind, id, ok := strings.Cut(name, "-"); ok {
		return kind + " " + id
	}
	return "job " + name
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
		return in, inventory.Errorf(inventory.KindNotFound, "the inputs of %s are no longer stored", ownerOfInputs(id))
	}

	record, err := decodeInputs(resp.Kvs[0])
	if err != nil {
		return in, job.UnreadableRecord("x/inputs/"+id, err.Error())
	}
	return s.secrets.openInputs(id, record.inputs(), record.Sealed), nil
}

func decodeInputs(kv *mvccpb.KeyValue) (sealedInputs, error) {
	b, err := record.Expand(kv.Value)
	if err != nil {
		return sealedInputs{}, err
	}
	return decode[sealedInputs](b)
}
