// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory/errtest"
)

// TestFenceSettings: a run with a token has the plugin that carries it, and tells it which hosts the job holds.
func TestFenceSettings(t *testing.T) {
	t.Parallel()

	s := fakeSpec(t, "floods")
	s.Hosts = append(s.Hosts,
		configuration.Host{Name: "b-1", Addr: "127.0.0.2", Role: configuration.RoleHelper},
		configuration.Host{Name: "c-1", Addr: "127.0.0.3", Role: configuration.RolePeer})
	s.ConnectionDir = "/srv/plugins"

	for _, fence := range []configuration.Fence{
		{},
		{Token: configuration.FenceToken{Epoch: 2, Revision: 40, Run: 3}, Manager: "00000000000000aa", Job: "7"},
	} {
		s.Fence = fence
		files, err := s.files()
		errtest.None(t, err)

		config, inventory := string(files[fileConfig]), string(files[fileInventory])

		parts := []string{
			"connection_plugins = /srv/plugins\n",
			"[clusterm_fence]\ntoken = 2.40.3\nmanager = 00000000000000aa\njob = 7\nclaim = false\n",
		}
		for _, part := range parts {
			if fenced := fence.Token.Revision > 0; strings.Contains(config, part) != fenced {
				t.Errorf("fenced %t: ansible.cfg:\n%s", fenced, config)
			}
		}

		want := []string{}
		if fence.Token.Revision > 0 {
			want = []string{"a-1", "b-1"}
		}

		held := []string{}
		for _, host := range []string{"a-1", "b-1", "c-1"} {
			_, vars, _ := strings.Cut(inventory, `"`+host+`":`)
			if vars, _, _ = strings.Cut(vars, `"node_serial"`); strings.Contains(vars, `"clusterm_held": true`) {
				held = append(held, host)
			}
		}

		if !slices.Equal(held, want) {
			t.Errorf("held %v, want %v:\n%s", held, want, inventory)
		}
	}
}
