// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
)

// readAll reads a log from the offset on, chunk by chunk.
func readAll(t *testing.T, s *Store, id string, offset int64) []byte {
	t.Helper()

	var all []byte
	for {
		data, err := s.ReadLog(within(t, patience), id, job.StreamText, offset)
		must(t, err)

		if len(data) == 0 {
			return all
		}

		all = append(all, data...)
		offset += int64(len(data))
	}
}

// TestLog appends chunks of any size and reads from every offset.
func TestLog(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := within(t, patience)
	r := rand.New(rand.NewPCG(1, 2))

	var want []byte
	for range 30 {
		chunk := make([]byte, 1+r.IntN(50))
		for i := range chunk {
			chunk[i] = byte(r.IntN(256))
		}

		must(t, s.AppendLog(ctx, "1", job.StreamText, int64(len(want)), chunk))
		want = append(want, chunk...)
	}

	for offset := 0; offset <= len(want)+1; offset += 1 + r.IntN(9) {
		if got := readAll(t, s, "1", int64(offset)); !bytes.Equal(got, want[min(offset, len(want)):]) {
			t.Fatalf("from offset %d: got %q, want %q", offset, got, want[min(offset, len(want)):])
		}
	}

	if size, err := s.LogSize(ctx, "1", job.StreamText); err != nil || size != int64(len(want)) {
		t.Errorf("%d, %v", size, err)
	}

	for _, elsewhere := range []struct {
		job    string
		stream job.Stream
	}{{"1", job.StreamEvents}, {"10", job.StreamText}, {"2", job.StreamText}} {
		if data, err := s.ReadLog(ctx, elsewhere.job, elsewhere.stream, 0); err != nil || data != nil {
			t.Errorf("%v: %q, %v", elsewhere, data, err)
		}
	}
}

// TestReadWhileItGrows checks that a reader close to the end of the log never finds a gap.
func TestReadWhileItGrows(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := within(t, patience)
	const chunks = 200
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := range int64(chunks) {
			if err := s.AppendLog(ctx, "1", job.StreamText, 4*i, []byte("abc\n")); err != nil {
				t.Error(err)
				return
			}
		}
	})

	for offset := int64(0); offset < 4*chunks; {
		data, err := s.ReadLog(ctx, "1", job.StreamText, offset)
		must(t, err)
		offset += int64(len(data))
	}

	writer.Wait()
}

// TestAppendOnlyAtTheEnd checks that a repeated append succeeds without an effect, and
// that any other append before or after the end is refused.
func TestAppendOnlyAtTheEnd(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := within(t, patience)
	add := func(offset int64, text string) error {
		return s.AppendLog(ctx, "1", job.StreamText, offset, []byte(text))
	}
	must(t, add(0, ""))
	conflict(t, add(3, "gap"))
	must(t, add(0, "one\n"))
	must(t, add(0, "one\n"))
	must(t, add(4, "two\n"))
	must(t, add(4, "two\n"))
	must(t, add(0, "one\n")) // after a later append
	conflict(t, add(0, "other"))
	conflict(t, add(4, "two\nand more"))
	conflict(t, add(2, "inside"))
	conflict(t, add(99, "beyond"))

	if got := readAll(t, s, "1", 0); string(got) != "one\ntwo\n" {
		t.Errorf("%q", got)
	}
}

// TestLongLog appends ten megabytes in chunks of the size a runner sends. A read returns
// one chunk at most.
func TestLongLog(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := within(t, patience)
	line := bytes.Repeat([]byte("TASK [everything is alike] ok: [node-1]\n"), 64<<10/40)

	var size int64
	for size < 10<<20 {
		must(t, s.AppendLog(ctx, "1", job.StreamText, size, line))
		size += int64(len(line))
	}

	if got := readAll(t, s, "1", 0); int64(len(got)) != size || !bytes.HasPrefix(got[len(got)-len(line):], line) {
		t.Errorf("%d bytes, want %d", len(got), size)
	}

	data, err := s.ReadLog(ctx, "1", job.StreamText, size-10)
	if err != nil || string(data) != string(line[len(line)-10:]) {
		t.Errorf("%q, %v", data, err)
	}
}

// TestFirstGenerationLongLine appends a line of 3 MiB. The first cluster manager hung at
// lines over 64 KiB; this log has no notion of lines.
func TestFirstGenerationLongLine(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := within(t, patience)
	line := bytes.Repeat([]byte("x"), 3<<20)
	must(t, s.AppendLog(ctx, "1", job.StreamText, 0, line))
	must(t, s.AppendLog(ctx, "1", job.StreamText, int64(len(line)), []byte("\n")))

	if got := readAll(t, s, "1", 0); len(got) != len(line)+1 {
		t.Errorf("%d bytes", len(got))
	}
}

// TestDamagedChunk expects an internal error for a chunk that cannot be expanded.
func TestDamagedChunk(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := within(t, patience)
	must(t, s.AppendLog(ctx, "1", job.StreamText, 0, []byte("text")))

	for _, value := range []string{"", "abc", "\x00\x00\x00\x04nonsense"} {
		_, err := s.client.Put(ctx, s.logKey("1", job.StreamText, 0), value)
		must(t, err)

		if _, err := s.ReadLog(ctx, "1", job.StreamText, 0); inventory.KindOf(err) != inventory.KindInternal {
			t.Errorf("%q: %v", value, err)
		}
	}
}
