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
	// TailChunk is the most that Tail delivers at once, in bytes.
	TailChunk = 64 << 10
	tailPause = 100 * time.Millisecond
)

// Tail reads a growing file from offset on and delivers it in chunks of up to
// TailChunk bytes, each with the offset of its first byte. Chunks are bytes:
// they end anywhere, in the middle of lines too. It returns once ended has
// answered true and everything written before that is delivered, or with the
// error of ctx or deliver. A file that is not there yet is empty. The offset
// returned is where to go on. deliver must not keep the chunk.
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
			f.Close() //nolint:errcheck // only read
		}
	}()

	pause := time.NewTimer(tailPause)
	defer pause.Stop()

	buf := make([]byte, TailChunk)
	for {
		last := ended() // before reading: what was written until now is read below

		if f == nil {
			var err error
			if f, err = os.Open(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return offset, err
			} else if err != nil {
				f = nil
			}
		}

		for f != nil {
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
				break
			}

			if err != nil {
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
