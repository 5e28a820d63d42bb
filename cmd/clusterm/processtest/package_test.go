// SPDX-License-Identifier: Apache-2.0

package processtest

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/configuration/ansible"
	"github.com/contiv/cluster/inventory/errtest"
)

// TestPackageDescription: the packages depend on the same version of ansible-core
// as the program, and their files exist.
func TestPackageDescription(t *testing.T) {
	t.Parallel()

	data, err := os.ReadFile("../package/nfpm.yaml")
	errtest.None(t, err)

	var d struct {
		Contents []struct {
			Src string `yaml:"src"`
		} `yaml:"contents"`
		Overrides map[string]struct {
			Depends []string          `yaml:"depends"`
			Scripts map[string]string `yaml:"scripts"`
		} `yaml:"overrides"`
	}
	errtest.None(t, yaml.Unmarshal(data, &d))

	oldest := fmt.Sprintf(">= %d.%d", ansible.MinVersion.Major, ansible.MinVersion.Minor)
	for _, packager := range []string{"deb", "rpm"} {
		o := d.Overrides[packager]

		depends := strings.Join(o.Depends, "; ")
		if !strings.Contains(depends, "ansible-core") || !strings.Contains(depends, oldest) {
			t.Errorf("%s: depends on %s, the program on ansible-core %s", packager, depends, oldest)
		}

		if len(o.Scripts) != 3 {
			t.Errorf("%s: %d scripts", packager, len(o.Scripts))
		}

		for _, path := range o.Scripts {
			if _, err := os.Stat("../../../" + path); err != nil {
				t.Error(err)
			}
		}
	}

	for _, c := range d.Contents {
		if c.Src != "" && !strings.HasPrefix(c.Src, "$") {
			if _, err := os.Stat("../../../" + c.Src); err != nil {
				t.Error(err)
			}
		}
	}
}
