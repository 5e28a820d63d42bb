// SPDX-License-Identifier: Apache-2.0

package git

import (
	"strings"
	"sync"

	"github.com/contiv/cluster/inventory"
)

// firstBytes keeps the first bytes that are written to it. Its methods may be called at
// once.
type firstBytes struct {
	limit int

	mu   sync.Mutex
	text []byte
}

func (b *firstBytes) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.text = append(b.text, p[:min(len(p), b.limit-len(b.text))]...)
	return len(p), nil
}

// String returns the bytes as one line of text.
func (b *firstBytes) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return plain(string(b.text), b.limit)
}

// plain returns untrusted text as one line without control characters, shortened.
func plain(text string, limit int) string {
	// A part is enough: a message may be as large as an object.
	text = text[:min(len(text), 4*limit)]
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")

	text = strings.Map(func(r rune) rune {
		if !printable(string(r)) {
			return '?'
		}
		return r
	}, text)

	return inventory.Shorten(text, limit)
}
