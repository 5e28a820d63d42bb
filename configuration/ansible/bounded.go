// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"bytes"
	"fmt"
	"io"

	"github.com/contiv/cluster/inventory"
)

// keptTail is the number of bytes kept from the end of a stream that exceeds
// its limit.
const keptTail = 64 << 10

// bounded copies a stream up to a limit, marks the place where it stops with a
// line, and keeps the end of the stream for Close. Write never fails: a full
// disk must not stop the process that writes the stream.
type bounded struct {
	to        io.Writer
	left      int64  // bytes until the limit
	limit     int64  // bytes that pass unchanged
	markBegin string // first part of a mark's line
	markEnd   string // last part of a mark's line
	tail      []byte // end of the stream beyond the limit, at most twice keptTail
	excess    int64  // bytes beyond the limit so far
	err       error  // of the first failed write
}

func newBounded(to io.Writer, limit int64, markBegin, markEnd string) *bounded {
	return &bounded{to: to, left: limit, limit: limit, markBegin: markBegin, markEnd: markEnd}
}

func (b *bounded) Write(p []byte) (int, error) {
	written := len(p)
	if b.left > 0 {
		n := min(int64(len(p)), b.left)
		b.put(p[:n])
		b.left -= n
		p = p[n:]
	}

	if len(p) == 0 {
		return written, nil
	}

	if b.excess == 0 {
		b.put([]byte{'\n'})
		b.mark("the limit of %d bytes is reached; the rest is left out, except its end", b.limit)
	}

	b.excess += int64(len(p))

	// The tail is cut at twice its size, so that a byte is moved only once.
	if b.tail = append(b.tail, p...); len(b.tail) > 2*keptTail {
		b.tail = append(b.tail[:0], b.tail[len(b.tail)-keptTail:]...)
	}

	return written, nil
}

// Close writes the kept end. It returns the error of the first failed write.
func (b *bounded) Close() error {
	if b.excess == 0 {
		return b.err
	}

	tail := b.tail[max(0, len(b.tail)-keptTail):]

	// A torn first line would not parse as an event.
	if b.excess > int64(len(tail)) {
		if i := bytes.IndexByte(tail, '\n'); i >= 0 {
			tail = tail[i+1:]
		}
	}

	b.mark("%s left out here", inventory.Count(b.excess-int64(len(tail)), "byte is", "bytes are"))
	b.put(tail)

	return b.err
}

// mark writes a line that is not part of the stream.
func (b *bounded) mark(format string, args ...any) {
	b.put([]byte(b.markBegin + fmt.Sprintf(format, args...) + b.markEnd + "\n"))
}

func (b *bounded) put(p []byte) {
	if _, err := b.to.Write(p); err != nil && b.err == nil {
		b.err = err
	}
}
