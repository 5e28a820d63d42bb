// SPDX-License-Identifier: Apache-2.0

package print

import (
	"bytes"
	"io"
	"regexp"
	"unicode/utf8"
)

// Terminal returns a writer for text of hosts that ends at a terminal. It writes
// what Text returns, so no control sequence reaches the terminal. A sequence may be
// split over several writes.
func Terminal(w io.Writer) io.Writer { return &terminal{w: w} }

type terminal struct {
	w    io.Writer
	held []byte // the beginning of a sequence or of a character
}

// unfinished matches the end of a text that may be the beginning of a sequence. Its
// length is limited, so that little is held back.
var unfinished = regexp.MustCompile(`\x1b(\[[0-?]{0,30}[ -/]{0,2})?$`)

func (t *terminal) Write(p []byte) (int, error) {
	text := append(t.held, p...)
	end := len(text)

	if at := unfinished.FindIndex(text); at != nil {
		end = at[0]
	} else {
		end -= partialRune(text)
	}

	if _, err := io.WriteString(t.w, Text(string(text[:end]))); err != nil {
		return 0, err
	}

	t.held = bytes.Clone(text[end:])

	return len(p), nil
}

// partialRune returns the length of an incomplete character at the end of the text.
func partialRune(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if tail := text[len(text)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}

	return 0
}
