// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory/errtest"
)

// TestCorpora expects every fuzz target to have a corpus in the repository, which every
// run of the tests tries.
func TestCorpora(t *testing.T) {
	t.Parallel()

	target := regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)
	count := 0

	everyFile(t, func(path string) {
		if !strings.HasSuffix(path, "_test.go") {
			return
		}

		content, err := os.ReadFile(filepath.Join(root, path))
		errtest.None(t, err)

		for _, found := range target.FindAllSubmatch(content, -1) {
			count++

			corpus := filepath.Join(filepath.Dir(path), "testdata", "fuzz", string(found[1]))
			if inputs, err := os.ReadDir(filepath.Join(root, corpus)); err != nil || len(inputs) == 0 {
				t.Errorf("%s of %s has no corpus in %s: %v", found[1], path, corpus, err)
			}
		}
	})

	if count < 18 {
		t.Errorf("there are %d fuzz targets only", count)
	}
}
