// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden applies f to every testdata/DIR/*.json and compares the result with the
// file of the same name with the extension ext.
func golden(t *testing.T, dir, ext string, f func(t *testing.T, input []byte) []byte) {
	inputs, err := filepath.Glob(filepath.Join("testdata", dir, "*.json"))
	if err != nil || len(inputs) == 0 {
		t.Fatalf("no inputs in testdata/%s: %v", dir, err)
	}

	for _, in := range inputs {
		base := strings.TrimSuffix(in, ".json")
		t.Run(filepath.Base(base), func(t *testing.T) {
			input, err := os.ReadFile(in)
			if err != nil {
				t.Fatal(err)
			}
			got := f(t, input)
			if *update {
				if err := os.WriteFile(base+ext, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}

			want, err := os.ReadFile(base + ext)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("the result differs from %s (go test -update rewrites it):\n%s", base+ext, got)
			}
		})
	}
}

func TestInventoryGolden(t *testing.T) {
	golden(t, "inventory", ".yml", func(t *testing.T, input []byte) []byte {
		var hosts []Host
		if err := json.Unmarshal(input, &hosts); err != nil {
			t.Fatal(err)
		}

		got, err := Inventory(hosts)
		if err != nil {
			t.Fatal(err)
		}
		return got
	})
}

func TestMergeGolden(t *testing.T) {
	golden(t, "merge", ".golden", func(t *testing.T, input []byte) []byte {
		var layers []Layer
		if err := json.Unmarshal(input, &layers); err != nil {
			t.Fatal(err)
		}

		got, err := json.MarshalIndent(Merge(layers...), "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		return append(got, '\n')
	})
}
