// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/inventory/errtest"
)

func TestBounded(t *testing.T) {
	for _, tt := range []struct {
		name  string
		size  int // of the stream, in lines of 10 bytes
		piece int
		same  bool // the stream passes unchanged
		marks int
	}{
		{"under the limit", 100, 7, true, 0},
		{"at the limit", 1000, 10_000, true, 0},
		{"just over", 1001, 3, false, 2},
		{"far over", 50_000, 4096, false, 2},
		{"far over at once", 50_000, 500_000, false, 2},
	} {
		var in, out bytes.Buffer
		for i := range tt.size {
			fmt.Fprintf(&in, "%09d\n", i)
		}

		text := in.String()

		b := newBounded(&out, 10_000, "<", ">")
		for in.Len() > 0 {
			p := in.Next(tt.piece)
			if n, err := b.Write(p); n != len(p) || err != nil {
				t.Fatal(n, err)
			}
		}

		errtest.None(t, b.Close())

		got := out.String()
		if tt.same != (got == text) || strings.Count(got, ">\n") != tt.marks {
			t.Errorf("%s: %d bytes, %d marks", tt.name, len(got), strings.Count(got, ">\n"))
		}
		if last := fmt.Sprintf("%09d\n", tt.size-1); !strings.HasSuffix(got, last) || len(got) > 10_000+keptTail+200 {
			t.Errorf("%s: %d bytes that end in %q", tt.name, len(got), got[len(got)-20:])
		}

		for line := range strings.Lines(got) {
			if len(line) != 10 && !strings.HasPrefix(line, "<") && line != "\n" {
				t.Errorf("%s: torn line %q", tt.name, line)
			}
		}
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, unix.ENOSPC }

func TestBoundedAcceptsWritesOnAFullDisk(t *testing.T) {
	b := newBounded(fullDisk{}, 10, "<", ">")
	for range 100 {
		if n, err := b.Write(make([]byte, 1000)); n != 1000 || err != nil {
			t.Fatal(n, err)
		}
	}

	if err := b.Close(); !errors.Is(err, unix.ENOSPC) {
		t.Error(err)
	}
}
