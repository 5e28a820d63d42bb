// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"path"
	"strconv"

	"github.com/klauspost/compress/zstd"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/job"
)

// A chunk of a log is kept as four bytes with the length of its content, big
// endian, and the content compressed by zstd (RFC 8878).

var (
	encoder, _ = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	decoder, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20))
)

func compress(data []byte) []byte {
	out := binary.BigEndian.AppendUint32(make([]byte, 0, len(data)/4+64), uint32(len(data)))
	return encoder.EncodeAll(data, out)
}

func expand(chunk []byte) ([]byte, error) {
	if len(chunk) < 4 {
		return nil, errors.New("a stored chunk is damaged")
	}

	return decoder.DecodeAll(chunk[4:], make([]byte, 0, min(binary.BigEndian.Uint32(chunk), 64<<20)))
}

func (s *Store) logPrefix(job string, stream job.Stream) string {
	return s.key("/x/log/%s/%s/", job, stream)
}

func (s *Store) logKey(job string, stream job.Stream, offset int64) string {
	return s.key("/x/log/%s/%s/%016x", job, stream, offset)
}

// The end of a log is kept beside its chunks, so that neither an append nor a
// follower that has read everything has to look through them.
func (s *Store) tailKey(job string, stream job.Stream) string {
	return s.key("/x/tail/%s/%s", job, stream)
}

// AppendLog stores bytes of a job's log. Repeating it is no error.
func (s *Store) AppendLog(ctx context.Context, job string, stream job.Stream, offset int64, data []byte) error {
	if len(data) == 0 {
		return nil
	}

	ctx, cancel := etcd.Bounded(ctx)
	defer cancel()
	key, tail := s.logKey(job, stream, offset), s.tailKey(job, stream)

	guard := clientv3.Compare(clientv3.Value(tail), "=", strconv.FormatInt(offset, 10))
	if offset == 0 {
		guard = atRevision(tail, 0)
	}

	resp, err := s.client.Txn(ctx).If(append(s.fence(), guard)...).
		Then(clientv3.OpPut(key, string(compress(data))),
			clientv3.OpPut(tail, strconv.FormatInt(offset+int64(len(data)), 10))).
		Else(clientv3.OpGet(key)).Commit()
	if err != nil {
		return etcd.Error(err)
	}

	if resp.Succeeded {
		return nil
	}

	if kvs := resp.Responses[0].GetResponseRange().Kvs; len(kvs) == 1 {
		if there, err := expand(kvs[0].Value); err != nil || bytes.Equal(there, data) {
			return err
		}
	}

	return inventory.Errorf(
		inventory.KindConflict,
		"the log of job %s does not end at offset %d, or is another instance's to write",
		job,
		offset,
	)
}

// ReadLog returns bytes from the offset on; none where there are none yet.
func (s *Store) ReadLog(ctx context.Context, job string, stream job.Stream, offset int64) ([]byte, error) {
	ctx, cancel := etcd.Bounded(ctx)
	defer cancel()

	exact, err := s.client.Get(ctx, s.logKey(job, stream, offset))
	if err != nil {
		return nil, etcd.Error(err)
	}

	if len(exact.Kvs) == 1 {
		return expand(exact.Kvs[0].Value)
	}

	size, err := s.LogSize(ctx, job, stream)
	if err != nil || offset >= size {
		return nil, err
	}

	// The offset is inside a chunk: the last one that does not begin after it,
	// which may be one that was appended just now.
	keys, err := s.client.Get(
		ctx,
		s.logPrefix(job, stream),
		clientv3.WithRange(s.logKey(job, stream, offset+1)),
		clientv3.WithKeysOnly(),
	)
	if err != nil {
		return nil, etcd.Error(err)
	}

	if len(keys.Kvs) == 0 {
		return nil, inventory.Errorf(inventory.KindInternal, "the log of job %s has no chunk at offset %d", job, offset)
	}

	key := string(keys.Kvs[len(keys.Kvs)-1].Key)

	start, err := strconv.ParseInt(path.Base(key), 16, 64)
	if err != nil {
		return nil, err
	}

	chunk, err := s.client.Get(ctx, key)
	if err != nil || len(chunk.Kvs) == 0 {
		return nil, etcd.Error(err)
	}

	data, err := expand(chunk.Kvs[0].Value)
	if err != nil || offset-start > int64(len(data)) {
		return nil, err
	}

	return data[offset-start:], nil
}

// LogSize is the number of bytes that a log has.
func (s *Store) LogSize(ctx context.Context, job string, stream job.Stream) (int64, error) {
	ctx, cancel := etcd.Bounded(ctx)
	defer cancel()

	resp, err := s.client.Get(ctx, s.tailKey(job, stream))
	if err != nil || len(resp.Kvs) == 0 {
		return 0, etcd.Error(err)
	}

	return strconv.ParseInt(string(resp.Kvs[0].Value), 10, 64)
}
