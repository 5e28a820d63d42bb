// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/klauspost/compress/zstd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Every kind of record has a type of this package with the JSON names in etcd, and
// a conversion to and from its domain type. A rename in the domain therefore cannot
// change the stored format. TestRecordsMatchDomain compares the fields of both.

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

// convertMap converts each value. It returns nil for nil.
func convertMap[K comparable, A, B any](from map[K]A, convert func(A) B) map[K]B {
	if from == nil {
		return nil
	}

	to := make(map[K]B, len(from))
	for k, a := range from {
		to[k] = convert(a)
	}

	return to
}

// maxExpanded bounds the memory for one compressed value, in bytes.
const maxExpanded = 64 << 20

var (
	encoder, _ = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	decoder, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxExpanded))
)

// lengthBytes is the size of the length in front of a compressed value.
const lengthBytes = 4

// compress returns the length of data, four bytes big endian, followed by data
// compressed with zstd (RFC 8878).
func compress(data []byte) []byte {
	//nolint:gosec // a value is below 4 GiB
	out := binary.BigEndian.AppendUint32(make([]byte, 0, len(data)/4+64), uint32(len(data)))
	return encoder.EncodeAll(data, out)
}

// expand returns the data that compress encoded.
func expand(value []byte) ([]byte, error) {
	if len(value) < lengthBytes {
		return nil, errors.New("a compressed value in etcd is damaged: it is shorter than its header")
	}

	// The length is a hint for the allocation, so a damaged one must not be trusted.
	size := min(binary.BigEndian.Uint32(value), maxExpanded)

	return decoder.DecodeAll(value[lengthBytes:], make([]byte, 0, size))
}
