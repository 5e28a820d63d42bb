// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"context"
	"path"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
)

// A log is a series of chunks. Each is compressed and stored under the offset of its
// first byte. The size of the log, in decimal, has a key of its own: an append tests
// it, and a reader at the end of the log needs no search through the chunks.

func (s *Store) logPrefix(job string, stream job.Stream) string {
	return s.key("/x/log/%s/%s/", job, stream)
}

func (s *Store) logKey(job string, stream job.Stream, offset int64) string {
	return s.key("/x/log/%s/%s/%016x", job, stream, offset)
}

func (s *Store) logSizeKey(job string, stream job.Stream) string {
	return s.key("/x/tail/%s/%s", job, stream)
}

// dropLogOps returns the operations that remove the logs of a job.
func (s *Store) dropLogOps(job string) []clientv3.Op {
	return []clientv3.Op{
		clientv3.OpDelete(s.key("/x/log/%s/", job), clientv3.WithPrefix()),
		clientv3.OpDelete(s.key("/x/tail/%s/", job), clientv3.WithPrefix()),
	}
}

// AppendLog stores bytes of a job's log. offset must be the size of the log, or of an
// earlier append of the same bytes, which succeeds again. It is KindConflict
// otherwise, and if another instance has the right to run jobs.
func (s *Store) AppendLog(ctx context.Context, job string, stream job.Stream, offset int64, data []byte) error {
	if len(data) == 0 {
		return nil
	}

	ctx, cancel := s.bounded(ctx)
	defer cancel()

	key, sizeKey := s.logKey(job, stream, offset), s.logSizeKey(job, stream)
	newSize := strconv.FormatInt(offset+int64(len(data)), 10)

	atEnd := clientv3.Compare(clientv3.Value(sizeKey), "=", strconv.FormatInt(offset, 10))
	if offset == 0 {
		atEnd = atRevision(sizeKey, 0)
	}

	result := s.write(ctx, etcd.Ops{
		If:   append(s.fence(ctx), atEnd),
		Then: []clientv3.Op{clientv3.OpPut(key, string(record.Compress(data))), clientv3.OpPut(sizeKey, newSize)},
	})
	if result.err != nil || result.succeeded {
		return result.err
	}

	resp, err := s.client.Get(ctx, key)
	if err != nil {
		return s.failure(ctx, err)
	}

	// The answer to an earlier attempt may have been lost. The chunk is then stored.
	if kvs := resp.Kvs; len(kvs) == 1 {
		if stored, err := record.Expand(kvs[0].Value); err != nil || bytes.Equal(stored, data) {
			return err
		}
	}

	return inventory.Errorf(inventory.KindConflict,
		"cannot append to the log of job %s: it does not end at offset %d, or another instance runs the job now",
		job, offset)
}

// ReadLog returns bytes from the offset on, up to the end of a stored chunk; none at
// the end of the log.
func (s *Store) ReadLog(ctx context.Context, job string, stream job.Stream, offset int64) ([]byte, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()

	// A reader that follows the log asks for the start of a chunk: one small read.
	exact, err := s.client.Get(ctx, s.logKey(job, stream, offset))
	if err != nil {
		return nil, s.failure(ctx, err)
	}
	if len(exact.Kvs) == 1 {
		return record.Expand(exact.Kvs[0].Value)
	}

	size, err := s.LogSize(ctx, job, stream)
	if err != nil || offset >= size {
		return nil, err
	}

	return s.readInsideChunk(ctx, job, stream, offset)
}

// readInsideChunk returns bytes from an offset below the size of the log.
func (s *Store) readInsideChunk(ctx context.Context, job string, stream job.Stream, offset int64) ([]byte, error) {
	// The range includes the offset itself: an append since the first read may have
	// stored a chunk there.
	upToOffset := clientv3.WithRange(s.logKey(job, stream, offset+1))

	keys, err := s.client.Get(ctx, s.logPrefix(job, stream), upToOffset, clientv3.WithKeysOnly())
	if err != nil {
		return nil, s.failure(ctx, err)
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
		return nil, s.failure(ctx, err)
	}
	data, err := record.Expand(chunk.Kvs[0].Value)
	if err != nil || offset-start > int64(len(data)) {
		return nil, err
	}
	return data[offset-start:], nil
}

// LogSize returns the size of a log in bytes.
func (s *Store) LogSize(ctx context.Context, job string, stream job.Stream) (int64, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()

	resp, err := s.client.Get(ctx, s.logSizeKey(job, stream))
	if err != nil || len(resp.Kvs) == 0 {
		return 0, s.failure(ctx, err)
	}
	return strconv.ParseInt(string(resp.Kvs[0].Value), 10, 64)
}
