// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"bytes"
	"fmt"
	"io"

	"github.com/contiv/cluster/inventory"
)

// keptTail is how much of the end of a stream that is over its limit is kept.
const keptTail = 64 << 10

// bounded copies a stream of bytes up to a limit, says visibly where it stops,
// and keeps the stream's end, which Close adds. Write takes everything: a full
// disk must not stop the process that writes the stream.
type bounded struct {
	to    io.Writer
	left  int64  // until the limit
	limit int64  // bytes that pass whole
	begin string // opens a mark's line
	end   string // closes it
	tail  []byte // the last bytes beyond the limit, at most twice keptTail
	over  int64  // bytes beyond the limit so far
	err   error  // the first that writing gave
}

func newBounded(to io.Writer, limit int64, begin, end string) *bounded {
	return &bounded{to: to, left: limit, limit: limit, begin: begin, end: end}
}

func (b *bounded) Write(p []byte) (int, error) {
	whole := len(p)
	if b.left > 0 {
		n := min(int64(len(p)), b.left)
		b.put(p[:n])
		b.left -= n
		p = p[n:]
	}

	if len(p) == 0 {
		return whole, nil
	}

	if b.over == 0 {
		b.put(
			fmt.Appendf(
				nil,
				"\n%sthe limit of %d bytes is reached; what follows is left out, save its end%s\n",
				b.begin,
				b.limit,
				b.end,
			),
		)
	}

	b.over += int64(len(p))
	if b.tail = append(b.tail, p...); len(b.tail) > 2*keptTail {
		b.tail = append(b.tail[:0], b.tail[len(b.tail)-keptTail:]...)
	}

	return whole, nil
}

// Close adds the kept end. It returns the first error of any write.
func (b *bounded) Close() error {
	if b.over > 0 {
		tail := b.tail[max(0, len(b.tail)-keptTail):]
		if b.over > int64(len(tail)) {
			if i := bytes.IndexByte(tail, '\n'); i >= 0 {
				tail = tail[i+1:]
			}
		}

		b.put(
			fmt.Appendf(
				nil,
				"%s%s left out here%s\n",
				b.begin,
				inventory.Count(b.over-int64(len(tail)), "byte is", "bytes are"),
				b.end,
			),
		)
		b.put(tail)
	}

	return b.err
}

func (b *bounded) put(p []byte) {
	if _, err := b.to.Write(p); err != nil && b.err == nil {
		b.err = err
	}
}
