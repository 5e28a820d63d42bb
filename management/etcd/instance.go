// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"encoding/json"
	"time"

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

func newInstanceRecord(i state.Instance) instanceRecord { return instanceRecord(i) }
func (r instanceRecord) instance() state.Instance       { return state.Instance(r) }

func encodeInstance(i state.Instance) ([]byte, error) { return json.Marshal(newInstanceRecord(i)) }

func decodeInstance(value []byte) (state.Instance, error) {
	record, err := decode[instanceRecord](value)
	return record.instance(), err
}
