// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"strings"

	"github.com/contiv/cluster/management/api"
)

// GossipKey prints the state of the gossip key.
func (p *Printer) GossipKey(k api.GossipKey) {
	share := func(n int) string { return fmt.Sprintf("%d of %d nodes", n, k.Known) }

	fields := []Field{{"Phase", Line(k.Phase)}}
	if k.Phase != api.GossipKeyNever {
		fields = append(fields,
			Field{"New key", Line(k.Key)},
			Field{"Old key", List(k.OldKeys)},
			Field{"Started", timeOf(k.Started)},
			Field{"Started by", Line(k.Actor)},
			Field{"Ended", timeOf(k.Ended)},
			Field{"New confirmed by", share(k.Confirmed)},
			Field{"Old removed by", share(k.Removed)},
			Field{"Locked out", List(k.LockedOut)},
			Field{"Laggards", laggards(k.Laggards)},
		)
	}

	p.Fields(fields)
}

// laggards returns one line for each laggard.
func laggards(all []api.Laggard) string {
	lines := make([]string, len(all))
	for i, l := range all {
		lines[i] = Line(l.Name) + ": " + Line(l.Reason)
	}

	return strings.Join(lines, "\n")
}
