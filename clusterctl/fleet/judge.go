// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// maxBlamed is the number of changes that blame tries one by one.
const maxBlamed = 50

// Judge lets the manager check the settings, groups and connections that the plan writes
// first, and changes nothing. A value that the manager refuses is an error with its
// position in the file, where one value is to blame. A caller who may not change the
// configuration gets KindForbidden.
func (p *Plan) Judge(ctx context.Context, m *client.Client) error {
	// What is removed after the jobs cannot be judged before them: it is in use until then.
	var changes []Change
	for _, c := range p.Changes {
		if !c.Late && kindOf(c.Cell) == stepConfig {
			changes = append(changes, c)
		}
	}

	if len(changes) == 0 {
		return nil
	}

	now, _, err := readConfig(ctx, m)
	if err != nil {
		return err
	}

	preview := func(changes []Change) error {
		_, err := m.PreviewConfig(ctx, now.patch(changes, p.groups))
		return err
	}

	err = preview(changes)

	refused, ok := errors.AsType[*inventory.Error](err)
	if !ok || refused.Kind != inventory.KindInvalid && refused.Kind != inventory.KindRefused {
		return err
	}

	out := *refused
	if at, found := p.blame(changes, refused, preview); found {
		out.Message = Problem{at, refused.Message}.String()
	}

	// The request was made here, so without better advice the file is what to correct.
	for _, row := range api.KindTable {
		if row.Kind == inventory.KindInvalid && row.Remedy == refused.Remedy {
			out.Remedy = "correct the file; nothing was changed"
		}
	}

	return &out
}

// blame returns the position of the value that is refused for the same reason when it
// comes alone. The groups exist in each attempt: other values belong to them.
func (p *Plan) blame(changes []Change, refused *inventory.Error, preview func([]Change) error) (Place, bool) {
	var groups []Change
	for _, c := range changes {
		if c.Part == PartGroup {
			groups = append(groups, c)
		}
	}

	// Each attempt is a request, which may parse playbooks.
	for _, c := range changes[:min(len(changes), maxBlamed)] {
		at, inFile := p.places[c.Cell]
		if !inFile {
			continue
		}

		attempt := []Change{c}
		if c.Part != PartGroup {
			attempt = append(attempt, groups...)
		}

		alone, ok := errors.AsType[*inventory.Error](preview(attempt))
		if ok && alone.Message == refused.Message {
			return at, true
		}
	}

	return Place{}, false
}
