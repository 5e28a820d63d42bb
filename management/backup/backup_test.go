// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/contiv/cluster/inventory"
)

var header = Header{
	Manager: "00112233445566ff", Time: time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC), Version: "v1.2.3", Schema: "3",
	Revision: 4711, Epoch: 2, SecretsKey: "c4d20e6b91a83f05",
}

// some are records of all shapes: empty ones, one that fills a part, and bytes that look like those of the format.
func some() map[string][]byte {
	records := map[string][]byte{
		"identity":   []byte("00112233445566ff"),
		"v/head":     {},
		"v/nodes/a":  []byte(`{"name":"a"}`),
		"x/log/1/0":  bytes.Repeat([]byte{0, 1, 2, 255}, partSize/2),
		"x/log/1/1":  []byte("\n\n{\"records\":1}\n"),
		"x/results/": {0, 0, 0, 0},
	}
	for i := range 500 {
		records[fmt.Sprintf("x/history/a/%03d", i)] = fmt.Appendf(nil, "entry %d", i)
	}

	return records
}

// few are records of a small backup.
func few() map[string][]byte {
	return map[string][]byte{"v/head": {}, "v/nodes/a": []byte(`{"name":"a"}`), "x/results/": {0, 0, 0, 0}}
}

// write returns the backup of records.
func write(t *testing.T, records map[string][]byte) []byte {
	t.Helper()

	var file bytes.Buffer

	w, err := NewWriter(&file, header, bytes.Clone)
	if err != nil {
		t.Fatal(err)
	}

	for _, key := range slices.Sorted(maps.Keys(records)) {
		if err := w.Add(key, records[key]); err != nil {
			t.Fatal(err)
		}
	}

	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}

	return file.Bytes()
}

// read returns the records of a backup.
func read(r io.Reader) (h Header, records map[string][]byte, end Trailer, err error) {
	records = map[string][]byte{}
	end, err = Scan(r, func(found Header) error { h = found; return nil }, func(part []byte) error {
		return Records(part, func(key string, value []byte) error {
			records[key] = append([]byte{}, value...)
			return nil
		})
	})

	return h, records, end, err
}

func TestRoundTrip(t *testing.T) {
	records := some()
	file := write(t, records)

	size := int64(0)
	for key, value := range records {
		size += int64(len(key) + len(value))
	}

	// A reader that gives one byte at a time must not matter.
	for _, r := range []io.Reader{bytes.NewReader(file), iotest.OneByteReader(bytes.NewReader(file))} {
		h, got, end, err := read(r)
		if err != nil {
			t.Fatal(err)
		}

		if h != header || !reflect.DeepEqual(got, records) {
			t.Errorf("%+v, %d records of %d", h, len(got), len(records))
		}

		if end.Records != int64(len(records)) || end.Bytes != size {
			t.Errorf("%+v, want %d records of %d bytes", end, len(records), size)
		}

		at := bytes.LastIndex(file, []byte("sha256:"))
		if want := fmt.Sprintf("sha256:%x", sha256.Sum256(file[:at])); end.Checksum != want {
			t.Errorf("the checksum is %s, want %s", end.Checksum, want)
		}
	}
}

// TestTruncated refuses each beginning of a backup, and says that it is incomplete.
func TestTruncated(t *testing.T) {
	file := write(t, few())

	for end := range len(file) {
		_, _, _, err := read(bytes.NewReader(file[:end]))
		if inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(err.Error(), "incomplete") {
			t.Fatalf("of %d bytes the first %d are read with %v", len(file), end, err)
		}
	}

	if _, _, _, err := read(bytes.NewReader(append(file, '\n'))); inventory.KindOf(err) != inventory.KindInvalid {
		t.Errorf("with one byte more: %v", err)
	}
}

// TestFlipped refuses a backup with one wrong bit, wherever that is.
func TestFlipped(t *testing.T) {
	file := write(t, few())

	for at := range file {
		for bit := range 8 {
			flipped := bytes.Clone(file)
			flipped[at] ^= 1 << bit

			_, _, _, err := read(bytes.NewReader(flipped))
			if kind := inventory.KindOf(err); kind != inventory.KindInvalid && kind != inventory.KindRefused {
				t.Fatalf("with bit %d of byte %d flipped: %v", bit, at, err)
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	file := string(write(t, some()))

	for name, c := range map[string]struct {
		file string
		kind inventory.Kind
		says string
	}{
		"nothing":      {"", inventory.KindInvalid, "incomplete"},
		"another file": {strings.Repeat("no backup\n", 10), inventory.KindInvalid, "no backup of clusterm"},
		"a long line":  {strings.Repeat("x", 3*maxLine), inventory.KindInvalid, "damaged"},
		"a newer format": {
			strings.Replace(file, "clusterm-backup 1\n", "clusterm-backup 2\n", 1), inventory.KindRefused, `"2"`,
		},
		"a huge part": {
			strings.SplitAfterN(file, "\n", 3)[0] + strings.SplitAfterN(file, "\n", 3)[1] + "\xff\xff\xff\xff",
			inventory.KindInvalid, "4294967295 bytes",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, _, err := read(strings.NewReader(c.file))
			if inventory.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %s with %q", err, c.kind, c.says)
			}
		})
	}
}

// TestErrorsPass: an error of the reader and of the consumer are their own.
func TestErrorsPass(t *testing.T) {
	file, own := write(t, some()), errors.New("own")

	broken := io.MultiReader(bytes.NewReader(file[:len(file)/2]), iotest.ErrReader(own))
	if _, err := Scan(broken, nil, nil); !errors.Is(err, own) {
		t.Errorf("of a broken connection: %v", err)
	}

	for _, fails := range []struct {
		begin func(Header) error
		take  func([]byte) error
	}{
		{func(Header) error { return own }, nil}, {nil, func([]byte) error { return own }},
	} {
		if _, err := Scan(bytes.NewReader(file), fails.begin, fails.take); !errors.Is(err, own) {
			t.Errorf("of a consumer: %v", err)
		}
	}
}

// FuzzScan: whatever a file holds, it ends with an answer, and what is accepted is what was written.
func FuzzScan(f *testing.F) {
	f.Add([]byte("clusterm-backup 1\n{}\n\x00\x00\x00\x00{}\n"))
	f.Add([]byte("clusterm-backup 1\n{}\n\x00\x00\x00\x04\x01a\x01b\x00\x00\x00\x00"))

	f.Fuzz(func(t *testing.T, file []byte) {
		h, records, end, err := read(bytes.NewReader(file))
		if err != nil {
			return
		}

		if !bytes.HasSuffix(file, []byte(end.Checksum+"\n")) || len(records) > len(file) {
			t.Errorf("accepted %+v with %d records and %+v", h, len(records), end)
		}
	})
}
