// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/binary"
	"encoding/json"
	"errors"

	"github.com/klauspost/compress/zstd"
)

// Compressed is the codec of records that are stored as compressed JSON, because they may have
// thousands of nodes.
type Compressed[T any] struct{}

// Encode implements Codec.
func (Compressed[T]) Encode(r *T) ([]byte, error) {
	b, err := json.Marshal(r)
	return Compress(b), err
}

// Decode implements Codec.
func (Compressed[T]) Decode(_ string, value []byte) (*T, error) {
	b, err := Expand(value)
	if err != nil {
		return nil, err
	}

	r := new(T)

	return r, json.Unmarshal(b, r)
}

// MaxExpanded bounds the memory for one compressed value, in bytes.
const MaxExpanded = 64 << 20

var (
	encoder    = newEncoder()
	decoder, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(MaxExpanded))
)

// newEncoder returns an encoder whose channel exists: made at the first use, it would belong to the
// synctest bubble of some test.
func newEncoder() *zstd.Encoder {
	e, _ := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	e.EncodeAll([]byte("a"), nil)
	return e
}

// lengthBytes is the size of the length in front of a compressed value.
const lengthBytes = 4

// Compress returns the length of data, four bytes big endian, followed by data
// compressed with zstd (RFC 8878).
func Compress(data []byte) []byte {
	//nolint:gosec // a value is below 4 GiB
	out := binary.BigEndian.AppendUint32(make([]byte, 0, len(data)/4+64), uint32(len(data)))
	return encoder.EncodeAll(data, out)
}

// Expand returns the data that Compress encoded.
func Expand(value []byte) ([]byte, error) {
	if len(value) < lengthBytes {
		return nil, errors.New("a compressed value in the store is damaged: it is shorter than its header")
	}

	// The length is a hint for the allocation, so a damaged one must not be trusted.
	size := min(binary.BigEndian.Uint32(value), MaxExpanded)

	return decoder.DecodeAll(value[lengthBytes:], make([]byte, 0, size))
}
