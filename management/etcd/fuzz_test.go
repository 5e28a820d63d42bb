// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
)

// FuzzRecord expects each kind of stored record to be decoded or refused, within
// bounded memory, and a job to survive its own encoding.
func FuzzRecord(f *testing.F) {
	kinds := slices.Sorted(maps.Keys(decoders))
	for i := range kinds {
		f.Add(uint8(i), "a-1", []byte(`{"name":"a-1","id":"7"}`))
		f.Add(uint8(i), "7", []byte(`7`))
	}

	f.Add(uint8(0), "7", record.Compress([]byte(`{"id":"7"}`)))
	f.Add(uint8(0), "7", []byte{0, 0, 0, 1, 0xff})
	f.Add(uint8(0), "7", []byte{3, 0xff, 0xff, 0xff, 0x28, 0xb5, 0x2f, 0xfd, 0xa4, 0xff, 0xff, 0xff, 0xff})

	f.Fuzz(func(t *testing.T, kind uint8, name string, value []byte) {
		key := kinds[int(kind)%len(kinds)] + "/" + name
		_ = decodable(testKinds, key, &mvccpb.KeyValue{Value: value})

		j, err := job.Kind.Decode(name, value, 0)
		if err != nil {
			return
		}
		if j.ID != name {
			t.Fatalf("the key of %q has the job %q", name, j.ID)
		}

		put, err := job.Kind.Encode(j)
		if err != nil {
			t.Fatalf("%q: %v", value, err)
		}
		again, err := job.Kind.Decode(name, put, 0)
		if err != nil {
			t.Fatalf("%q was stored as %q: %v", value, put, err)
		}
		if second, err := job.Kind.Encode(again); err != nil || !bytes.Equal(put, second) {
			t.Fatalf("%q was stored as %q, and then as %q, %v", value, put, second, err)
		}
	})
}

// FuzzCompressed expects data to survive, and damage to be an error within memory.
func FuzzCompressed(f *testing.F) {
	f.Add([]byte("text"), 0, byte(0))
	f.Add(bytes.Repeat([]byte("ab"), 5000), 3, byte(0x80))

	f.Fuzz(func(t *testing.T, data []byte, at int, flip byte) {
		value := record.Compress(data)
		if got, err := record.Expand(value); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%d bytes became %d, %v", len(data), len(got), err)
		}
		value[max(at, -(at+1))%len(value)] ^= flip

		if got, err := record.Expand(value); err == nil && len(got) > record.MaxExpanded {
			t.Fatalf("a damaged value expands to %d bytes", len(got))
		}
	})
}
