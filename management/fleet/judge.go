// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
)

// maxBlamed is the number of changes that blame tries one by one.
const maxBlamed = 50

// judge checks the settings, groups and connections that the plan writes first, and changes
// nothing. A value that is refused is an error with its position in the file, where one value
// is to blame. For a caller who may not change the configuration, the plan is unchecked.
func (m Manager) judge(ctx context.Context, by access.Identity, now Config, p *Plan) error {
	// What is removed after the jobs cannot be judged before them: it is in use until then.
	var changes []write
	for _, c := range p.changes {
		if !c.Late && kindOf(c.FleetCell) == stepConfig {
			changes = append(changes, write{c.FleetCell, c.Before, c.value})
		}
	}

	if len(changes) == 0 {
		return nil
	}

	if err := access.ChangeConfig.Authorize(by, configRoute); err != nil {
		p.Unchecked = err.Error()
		return nil
	}

	preview := func(changes []write) error {
		patch, err := now.patch(changes, p.groups)
		if err == nil {
			_, err = m.Settings.Preview(ctx, by.Caller(), patch)
		}
		return err
	}

	err := preview(changes)

	refused, ok := errors.AsType[*inventory.Error](err)
	if !ok || refused.Kind != inventory.KindInvalid && refused.Kind != inventory.KindRefused {
		return err
	}
	out := *refused
	if at, found := p.blame(changes, refused, preview); found {
		out.Message = Problem{at, refused.Message}.String()
	}
	if out.Remedy == "" {
		out.Remedy = "correct the file; nothing was changed"
	}

	return &out
}

// blame returns the position of the value that is refused for the same reason when it
// comes alone. The groups exist in each attempt: other values belong to them.
func (p *Plan) blame(changes []write, refused *inventory.Error, preview func([]write) error) (Place, bool) {
	var groups []write
	for _, c := range changes {
		if c.Part == api.PartGroup {
			groups = append(groups, c)
		}
	}

	// Each attempt may parse playbooks.
	for _, c := range changes[:min(len(changes), maxBlamed)] {
		at, inFile := p.places[c.Cell]
		if !inFile {
			continue
		}

		attempt := []write{c}
		if c.Part != api.PartGroup {
			attempt = append(attempt, groups...)
		}
		alone, ok := errors.AsType[*inventory.Error](preview(attempt))
		if ok && alone.Message == refused.Message {
			return at, true
		}
	}

	return Place{}, false
}
