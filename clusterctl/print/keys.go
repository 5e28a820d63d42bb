// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"strings"

	"github.com/contiv/cluster/management/api"
)

// GossipKeyDetails are the state of the gossip key.
var GossipKeyDetails = ColumnsOf(Cells[api.GossipKey]{
	"new confirmed by": func(_ Paint, k *api.GossipKey) string { return share(k.Phase, k.Confirmed, k.Known) },
	"old removed by":   func(_ Paint, k *api.GossipKey) string { return share(k.Phase, k.Removed, k.Known) },
	"laggards":         func(_ Paint, k *api.GossipKey) string { return laggards(k.Laggards) },
}, "phase", "New key=key", "Old key=old_keys", "started", "Started by=actor", "ended", "new confirmed by",
	"old removed by", "locked_out", "laggards")

// SSHKeyDetails are the state of the manager's ssh key.
var SSHKeyDetails = ColumnsOf(Cells[api.SSHKey]{
	"old key":          func(_ Paint, k *api.SSHKey) string { return formerKey(k) },
	"started by":       func(_ Paint, k *api.SSHKey) string { return startedBy(k) },
	"new confirmed by": func(_ Paint, k *api.SSHKey) string { return share(k.Phase, k.Confirmed, k.Known) },
	"old removed by":   func(_ Paint, k *api.SSHKey) string { return share(k.Phase, k.Removed, k.Known) },
	"laggards":         func(_ Paint, k *api.SSHKey) string { return laggards(k.Laggards) },
}, "phase", "Key file=key.path", "key.fingerprint", "key.public_key", "problem", "old key", "started", "started by",
	"ended", "new confirmed by", "old removed by", "locked_out", "laggards", "Own key=own_keys")

// share returns how many of the nodes with a key have taken a step of its rotation.
func share(phase string, n, known int) string {
	if phase == api.GossipKeyNever {
		return ""
	}
	return fmt.Sprintf("%d of %d nodes", n, known)
}

// laggards returns one line for each laggard.
func laggards(all []api.Laggard) string {
	texts := make([]string, len(all))
	for i, l := range all {
		texts[i] = Line(l.Name) + ": " + Line(l.Reason)
	}

	return strings.Join(texts, "\n")
}

// formerKey returns the fingerprint of the old key, and the fate of its file.
func formerKey(k *api.SSHKey) string {
	switch {
	case k.Old == nil:
		return ""
	case k.Phase != "done":
		return Line(k.Old.Fingerprint + " in " + k.Old.Path)
	case k.Old.Generated:
		return Line(k.Old.Fingerprint + ", removed")
	}

	return Line(k.Old.Fingerprint + " in " + k.Old.Path + ", which is yours to remove")
}

// startedBy returns the actor and the purpose of the rotation.
func startedBy(k *api.SSHKey) string {
	if k.Reverts {
		return Line(k.Actor + ", to take a rotation back")
	}
	return Line(k.Actor)
}
