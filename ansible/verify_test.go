// SPDX-License-Identifier: Apache-2.0

package ansible_test

import (
	"os"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/inventory/errtest"
)

// TestVerifyGoesOn: a failed check does not hide the others of its node, and a play that loses all its hosts does
// not hide other nodes.
func TestVerifyGoesOn(t *testing.T) {
	t.Parallel()

	text, err := os.ReadFile("verify.yml")
	errtest.None(t, err)

	var plays []struct {
		Goes bool `yaml:"ignore_errors"`
	}
	errtest.None(t, yaml.Unmarshal(text, &plays))

	if len(plays) != 1 || !plays[0].Goes {
		t.Errorf("verify.yml has the plays %+v, want one that ignores errors", plays)
	}
}
