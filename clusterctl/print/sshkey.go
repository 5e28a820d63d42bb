// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"

	"github.com/contiv/cluster/management/api"
)

// SSHKey prints the state of the manager's ssh key.
func (p *Printer) SSHKey(k api.SSHKey) {
	fields := []Field{{"Phase", Line(k.Phase)}}

	if k.Key != nil {
		fields = append(fields,
			Field{"Key file", Line(k.Key.Path)},
			Field{"Fingerprint", Line(k.Key.Fingerprint)},
			Field{"Public key", Line(k.Key.PublicKey)},
		)
	}

	fields = append(fields, Field{"Problem", Line(k.Problem)})

	if k.Phase != api.SSHKeyNever {
		share := func(n int) string { return fmt.Sprintf("%d of %d nodes", n, k.Known) }

		fields = append(fields,
			Field{"Old key", formerKey(k)},
			Field{"Started", timeOf(k.Started)},
			Field{"Started by", startedBy(k)},
			Field{"Ended", timeOf(k.Ended)},
			Field{"New confirmed by", share(k.Confirmed)},
			Field{"Old removed by", share(k.Removed)},
			Field{"Locked out", List(k.LockedOut)},
			Field{"Laggards", laggards(k.Laggards)},
		)
	}

	p.Fields(append(fields, Field{"Own key", List(k.OwnKeys)}))
}

// formerKey returns the fingerprint of the old key, and the fate of its file.
func formerKey(k api.SSHKey) string {
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
func startedBy(k api.SSHKey) string {
	if k.Reverts {
		return Line(k.Actor + ", to take a rotation back")
	}

	return Line(k.Actor)
}
