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

	"github.com/contiv/cluster/inventory/errtest"
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
			errtest.None(t, err)
			got := f(t, input)
			if *update {
				errtest.None(t, os.WriteFile(base+ext, got, 0o644))
			}

			want, err := os.ReadFile(base + ext)
			errtest.None(t, err)
			if !bytes.Equal(got, want) {
				t.Errorf("the result differs from %s (go test -update rewrites it):\n%s", base+ext, got)
			}
		})
	}
}

func TestInventoryGolden(t *testing.T) {
	golden(t, "inventory", ".yml", func(t *testing.T, input []byte) []byte {
		var hosts []Host
		errtest.None(t, json.Unmarshal(input, &hosts))

		got, err := Inventory(hosts)
		errtest.None(t, err)
		return got
	})
}

func TestMergeGolden(t *testing.T) {
	golden(t, "merge", ".golden", func(t *testing.T, input []byte) []byte {
		var layers []Layer
		errtest.None(t, json.Unmarshal(input, &layers))

		got, err := json.MarshalIndent(Merge(layers...), "", "  ")
		errtest.None(t, err)
		return append(got, '\n')
	})
}
