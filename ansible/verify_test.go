// SPDX-License-Identifier: Apache-2.0

package ansible_test

import (
	"os"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestVerifyGoesOn: a failed check does not hide the others of its node, and a play that loses all its hosts does
// not hide other nodes.
func TestVerifyGoesOn(t *testing.T) {
	t.Parallel()

	text, err := os.ReadFile("verify.yml")
	if err != nil {
		t.Fatal(err)
	}

	var plays []struct {
		Goes bool `yaml:"ignore_errors"`
	}
	if err := yaml.Unmarshal(text, &plays); err != nil {
		t.Fatal(err)
	}

	if len(plays) != 1 || !plays[0].Goes {
		t.Errorf("verify.yml has the plays %+v, want one that ignores errors", plays)
	}
}
