// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"
)

const (
	// TailChunk is the size of the largest chunk that Tail delivers, in bytes.
	TailChunk = 64 << 10
	tailPause = 100 * time.Millisecond
)

// Tail reads a growing file from an offset and delivers it in chunks of up to
// TailChunk bytes, each with the offset of its first byte. A chunk may end
// anywhere, also within a line or a character. A missing file counts as empty.
//
// Tail blocks. It returns once ended reports true and everything written before
// is delivered, or with the error of ctx or deliver. The returned offset
// continues the stream. deliver must not retain the chunk.
func Tail(
	ctx context.Context,
	path string,
	offset int64,
	ended func() bool,
	deliver func(offset int64, chunk []byte) error,
) (int64, error) {
	var f *os.File
	defer func() {
		if f != nil {
			f.Close()
		}
	}()

	pause := time.NewTimer(tailPause)
	defer pause.Stop()

	buf := make([]byte, TailChunk)
	for {
		// Ask before reading: everything written until then is read below.
		last := ended()

		if f == nil {
			opened, err := os.Open(path)
			if err == nil {
				f = opened
			} else if !errors.Is(err, fs.ErrNotExist) {
				return offset, err
			}
		}

		if f != nil {
			var err error
			if offset, err = deliverRest(ctx, f, offset, buf, deliver); err != nil {
				return offset, err
			}
		}

		if last {
			return offset, nil
		}

		pause.Reset(tailPause)

		select {
		case <-ctx.Done():
			return offset, ctx.Err()
		case <-pause.C:
		}
	}
}

// deliverRest delivers the file from an offset to its current end.
func deliverRest(
	ctx context.Context,
	f *os.File,
	offset int64,
	buf []byte,
	deliver func(offset int64, chunk []byte) error,
) (int64, error) {
	for {
		if err := ctx.Err(); err != nil {
			return offset, err
		}

		n, err := f.ReadAt(buf, offset)
		if n > 0 {
			if err := deliver(offset, buf[:n]); err != nil {
				return offset, err
			}

			offset += int64(n)
		}

		if errors.Is(err, io.EOF) {
			return offset, nil
		}

		if err != nil {
			return offset, err
		}
	}
}
