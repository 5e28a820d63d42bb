// SPDX-License-Identifier: Apache-2.0

package management

import (
	"context"

	"github.com/contiv/cluster/inventory"
)

// Report records the report of one observer, except for observations that it
// refuses: those are in refused, by index. In a full report, each node that the
// observer saw before and that is missing counts as lost.
func (s *Service) Report(
	ctx context.Context, observer string, full bool, observations []inventory.Observation,
) (refused map[int]error, revision int64, err error) {
	err = s.again(ctx, func(v *View) error {
		h := hearing{view: v, said: map[string]inventory.Observation{}}
		refused = map[int]error{}

		var accepted []inventory.Observation
		for i, o := range observations {
			o.Observer, o.Addr = observer, canonical(o.Addr)

			err := inventory.CheckOthers(o.Others)
			if err == nil {
				err = h.check(o)
			}

			if err != nil {
				refused[i] = err
				continue
			}

			accepted = append(accepted, o)
		}

		if full {
			accepted = append(accepted, lost(v, observer, h.said)...)
		}

		return s.putNodes(ctx, s.heard(v, accepted))
	})

	return refused, s.View().Revision, err
}

// lost are the nodes that the observer saw before and that its full report omits.
func lost(v *View, observer string, reported map[string]inventory.Observation) []inventory.Observation {
	var all []inventory.Observation
	for _, n := range v.Nodes {
		if _, ok := reported[n.Name]; n.Seen[observer] && !ok {
			all = append(all, inventory.Observation{
				Observer: observer, Label: n.Label, Serial: n.Serial, Addr: n.Addr,
			})
		}
	}

	return all
}
