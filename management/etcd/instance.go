// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"encoding/json"
	"time"

	"github.com/contiv/cluster/management/cluster"
	"github.com/contiv/cluster/management/state"
)

// instanceRecord is a live daemon. The keys of all instances and of the holder have
// this form.
type instanceRecord struct {
	ID      string    `json:"id"`
	Node    string    `json:"node"`
	Addr    string    `json:"addr"`
	API     []string  `json:"api"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
}

func newInstanceRecord(i state.Instance) instanceRecord {
	return instanceRecord{
		ID: i.ID, Node: i.Node, Addr: i.Addr, API: i.API, Version: i.Version, Started: i.Started,
	}
}

func (r instanceRecord) instance() state.Instance {
	return state.Instance{
		Identity: cluster.Identity{ID: r.ID, Node: r.Node}, Addr: r.Addr, API: r.API, Version: r.Version,
		Started: r.Started,
	}
}

func encodeInstance(i state.Instance) ([]byte, error) { return json.Marshal(newInstanceRecord(i)) }

func decodeInstance(value []byte) (state.Instance, error) {
	record, err := decode[instanceRecord](value)
	return record.instance(), err
}
