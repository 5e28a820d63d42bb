// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"encoding/json"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Domain types carry the JSON names of their stored form. A record with another shape has a type of
// this package, and a conversion to and from its domain type. TestRecordsMatchDomain compares the
// fields of both.

// key returns a key below the configured prefix.
func (s *Store) key(format string, args ...any) string {
	return s.client.Prefix + fmt.Sprintf(format, args...)
}

// below returns the part of a key below the prefix, as RemoveUnreadable takes it.
func (s *Store) below(key string) string { return strings.TrimPrefix(key, s.client.Prefix+"/") }

// put returns the operation that writes a record as JSON.
func put(key string, record any) (clientv3.Op, error) {
	b, err := json.Marshal(record)
	return clientv3.OpPut(key, string(b)), err
}

// decode parses a record.
func decode[R any](value []byte) (R, error) {
	var record R
	err := json.Unmarshal(value, &record)
	return record, err
}

// convertSlice converts each element. It returns nil for nil.
func convertSlice[A, B any](from []A, convert func(A) B) []B {
	if from == nil {
		return nil
	}

	to := make([]B, len(from))
	for i, a := range from {
		to[i] = convert(a)
	}

	return to
}
