// SPDX-License-Identifier: Apache-2.0

package sshkey

import (
	"fmt"

	"github.com/contiv/cluster/inventory"
)

// Warning returns the warning about an unfinished rotation, or "".
func (k *Keeper) Warning() string {
	if !k.Rotation().Phase.Running() {
		return ""
	}

	s := k.Status()

	switch {
	case s.Problem != "":
		return "the rotation of the ssh key is held up: " + s.Problem + "; see clusterctl key status ssh"
	case len(s.Laggards) == 0:
		return ""
	}

	first := s.Laggards[0]

	return fmt.Sprintf("the rotation of the ssh key waits for %s, such as %s (%s); until then the old key stays "+
		"valid; see clusterctl key status ssh", inventory.Count(len(s.Laggards), "node", "nodes"),
		first.Name, inventory.Shorten(first.Reason, 200))
}
