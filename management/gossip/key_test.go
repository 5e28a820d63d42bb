// SPDX-License-Identifier: Apache-2.0

package gossip

import (
	"testing"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/management/gossipkey"
	"github.com/contiv/cluster/management/rotation"
	"github.com/contiv/cluster/monitor/serf"
)

// TestKeysOfExistingAgent: hosts get the key that the gossip has now, even if the key
// file of an existing agent still has that of several rotations ago.
func TestKeysOfExistingAgent(t *testing.T) {
	t.Parallel()

	first, second, third, set := serf.GenerateKey(), serf.GenerateKey(), serf.GenerateKey(), serf.GenerateKey()
	r := gossipkey.Rotation{
		Phase:    rotation.PhaseDone,
		Secret:   configuration.Vars{"new_gossip_key": configuration.NewSecret(third), "old_gossip_keys": second},
		Replaced: []string{gossipkey.Fingerprint(first), gossipkey.Fingerprint(second)},
	}

	for file, want := range map[string]string{first: third, second: third, third: third, set: set} {
		g := Gossip{key: file, rotation: func() gossipkey.Rotation { return r }}
		if got := g.keys(); got != want {
			t.Errorf("with the key file %s, a host gets %s, want %s", file, got, want)
		}
	}
}
