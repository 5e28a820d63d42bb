// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// The routes that change the configuration and the variables of every node. A step needs their permission.
const (
	configRoute     = "PATCH " + api.PathConfig
	globalVarsRoute = "PATCH " + api.PathGlobalVars
)

// maxConflicts bounds the attempts of a step whose record others change, in other places.
const maxConflicts = 20

// Apply carries out one step of a difference, and returns the revision of the record. A value
// that is neither as it was compared nor as it is to be is KindPrecondition, by name; other
// values of the record may change meanwhile.
func (m Manager) Apply(ctx context.Context, by access.Identity, a api.FleetApply) (int64, error) {
	s, err := m.readStep(by, a)
	if err != nil {
		return 0, err
	}
	attempt := s.node

	switch kindOf(s.changes[0].Cell) {
	case stepConfig:
		attempt = s.config
	case stepVars:
		attempt = s.vars
	}

	for conflicts := 0; ; conflicts++ {
		s.moved = false

		revision, err := attempt(ctx, by.Filter.View(m.State.View()))
		if !s.moved && inventory.KindOf(err) != inventory.KindConflict || conflicts == maxConflicts {
			return revision, err
		}
	}
}

// step is one write with its preconditions.
type step struct {
	Manager
	caller  access.Caller
	changes []write
	groups  []string
	again   bool // an earlier attempt may have been carried out
	moved   bool // the record has changed since it was read
}

// write is one change of a step.
type write struct {
	Cell
	from, to any
}

// readStep checks a step and whether the caller may carry it out.
func (m Manager) readStep(by access.Identity, a api.FleetApply) (*step, error) {
	s := &step{Manager: m, caller: by.Caller(), groups: a.Groups, again: a.Again}

	for _, c := range a.Changes {
		known := slices.Contains(levels, c.Level) && slices.Contains(parts, c.Part)
		if !known || recordOf(c.FleetCell) != recordOf(a.Changes[0].FleetCell) {
			return nil, inventory.Errorf(inventory.KindInvalid, "%q is not of the record of this step", c.String()).
				Do("send a step of the difference as it is")
		}

		from, err := valueOf(c.From)
		if err != nil {
			return nil, err
		}

		to, err := valueOf(c.To)
		if err != nil {
			return nil, err
		}
		s.changes = append(s.changes, write{c.FleetCell, from, to})

		if err := mayWrite(by, c.FleetCell); err != nil {
			return nil, err
		}
	}

	if len(s.changes) == 0 {
		return nil, inventory.Errorf(inventory.KindInvalid, "the step has no changes").
			Do("send a step of the difference as it is")
	}

	return s, nil
}

// mayWrite returns KindForbidden unless the caller may change the cell.
func mayWrite(by access.Identity, c Cell) error {
	switch kind := kindOf(c); {
	case kind == stepConfig:
		return access.ChangeConfig.Authorize(by, configRoute)
	case kind == stepVars && c.Level == api.LevelManager:
		return access.ChangeGlobals.Authorize(by, globalVarsRoute)
	case kind == stepNode && c.Part == api.PartConnection:
		return access.AuthorizeReach(by)
	}

	return nil
}

// valueOf returns a value on the wire in the normal form; nil for none.
func valueOf(raw json.RawMessage) (any, error) {
	if raw == nil {
		return nil, nil
	}
	return normal(raw)
}

// unmoved returns the caller with the condition that the revision of the record is the one
// at which it was read.
func (s *step) unmoved(at int64, revision func(*state.View) (int64, error)) access.Caller {
	c := s.caller
	c.Precondition = func(v *state.View) error {
		now, err := revision(v)
		if err != nil || now == at {
			return err
		}

		s.moved = true

		return inventory.Errorf(inventory.KindPrecondition, "%s has changed", recordOf(s.changes[0].Cell))
	}

	return c
}

// pending returns the changes that are not made yet. has returns the value of a cell as
// it is now; a cell that is neither as it was compared nor as it is to be is refused.
func (s *step) pending(has func(write) any) ([]write, error) {
	var left []write

	for _, w := range s.changes {
		now := has(w)

		as := func(v any) bool {
			return sameAsRead(now, v) || absent(w.Cell, now) && absent(w.Cell, v) || same(w.Cell, now, v)
		}

		done := as(w.to)
		if w.to == nil {
			done = now == nil // an empty value is still there
		}

		// A secret shows no value, so it is written again if in doubt.
		secret := w.Part == api.PartSecrets && w.to != nil && w.to != configuration.Hidden

		switch {
		case !secret && done:
		case as(w.from), secret && s.again:
			left = append(left, w)
		default:
			return nil, w.changedMeanwhile(now)
		}
	}

	return left, nil
}

// inBrief returns a value in words.
func inBrief(v any) string {
	switch v := v.(type) {
	case nil:
		return "not set"
	case string:
		return inventory.Shorten(v, 80)
	}

	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return inventory.Shorten(string(text), 80)
}

// changedMeanwhile returns the refusal of a change.
func (w write) changedMeanwhile(now any) error {
	was := w.from
	if w.Part == api.PartSecrets && was != nil && was != configuration.Hidden {
		was = shownBefore
	}

	return inventory.Errorf(
		inventory.KindPrecondition,
		"%s was changed meanwhile: it was %s when the difference was made, and is %s now",
		w.Cell,
		inBrief(was),
		inBrief(now),
	).
		Do("look at the difference again, then decide again")
}

// config writes settings, groups and connections of groups in one request.
func (s *step) config(ctx context.Context, v *state.Scoped) (int64, error) {
	// The configuration may be newer than v: its revision is then too old, which is safe.
	now, err := s.Manager.config(v)
	if err != nil {
		return 0, err
	}
	left, err := s.pending(now.value)
	if err != nil || len(left) == 0 {
		return state.ConfigAt(v), err
	}
	patch, err := now.patch(left, s.groups)
	if err != nil {
		return 0, err
	}

	c := s.unmoved(state.ConfigAt(v), func(v *state.View) (int64, error) { return state.ConfigAt(v), nil })
	_, err = s.Settings.Patch(ctx, c, patch)

	return s.State.View().Revision, err
}

// vars writes the variables of one scope.
func (s *step) vars(ctx context.Context, v *state.Scoped) (int64, error) {
	scope := scopeOf(s.changes[0].Cell)
	vars := s.Variables.Hider()(state.VarsOf(v, scope))

	revision := func(v *state.View) (int64, error) {
		return record.Revision(v, &state.Variables, string(scope)), nil
	}
	at, _ := revision(v.View)

	left, err := s.pending(func(w write) any { return vars[w.Key] })
	if err != nil || len(left) == 0 {
		return at, err
	}

	patch, secret := configuration.Vars{}, map[string]bool{}
	for _, w := range left {
		patch[w.Key] = w.to
		secret[w.Key] = w.Part == api.PartSecrets && w.to != nil
	}

	c := s.unmoved(at, revision)
	changed, err := s.Variables.Patch(ctx, c, scope, patch.Mark(func(name string) bool { return secret[name] }))

	return changed.Revision, err
}

// node writes labels and connection of a node.
func (s *step) node(ctx context.Context, v *state.Scoped) (int64, error) {
	name := s.changes[0].Name

	n, err := v.Node(name)
	if err != nil {
		return 0, err
	}
	cells := nodeCells(&n, v.Connection(name))

	left, err := s.pending(func(w write) any { return cells[w.Cell] })
	if err != nil || len(left) == 0 {
		return n.Revision, err
	}

	patch, connection := node.Patch{Labels: map[string]*string{}}, map[string]any{}
	maps.Copy(connection, connectionValues(v.Connection(name)))

	for _, w := range left {
		if w.Part == api.PartLabels {
			patch.Labels[w.Key] = nil
			if text, ok := w.to.(string); ok {
				patch.Labels[w.Key] = &text
			}

			continue
		}

		connection[w.Key] = w.to

		whole, err := connectionOf(connection)
		if err != nil {
			return 0, inventory.Errorf(inventory.KindInvalid, "%s: %w", w.Cell, err)
		}
		patch.Connection = &whole
	}

	changed, err := s.Nodes.Patch(ctx, s.unmoved(n.Revision, func(v *state.View) (int64, error) {
		n, err := v.Node(name)
		return n.Revision, err
	}), name, patch)

	return changed.Revision, err
}

// value returns the value that a change replaces, as it is now; nil for none.
func (c Config) value(w write) any {
	at := w.Cell

	switch ofManager := at.Level == api.LevelManager; {
	case ofManager && at.Part == api.PartGroup:
		return c.orderOf(w.from)
	case ofManager && w.to == nil && !c.removable(at):
		return nil // the removal is done
	case ofManager:
		return c.Settings[settingOf(at)].Value
	}

	return c.cells()[at]
}

// orderOf returns the order of the groups that are in the list.
func (c Config) orderOf(list any) any {
	names, _ := list.([]any)

	var order []any
	for _, name := range c.names() {
		if slices.Contains(names, any(name)) {
			order = append(order, name)
		}
	}

	return order
}

// patch returns the settings to change for the changes. order is that of the groups.
func (c Config) patch(changes []write, order []string) (map[string]any, error) {
	patch := map[string]any{}

	for _, change := range changes {
		switch at := change.Cell; {
		case at.Level == api.LevelManager && at.Part != api.PartGroup:
			patch[settingOf(at)] = change.to
		case at.Part == api.PartConnection:
			patch[settingGroupSSH] = c.groupSSH(changes)
		default:
			patch[settingGroups] = c.withGroups(changes, order)
		}
	}

	v, err := normal(patch)
	patch, _ = v.(map[string]any)

	return patch, err
}

// groupSSH returns the connections of the groups after the changes.
func (c Config) groupSSH(changes []write) map[string]map[string]any {
	out := map[string]map[string]any{}
	for name, connection := range c.GroupSSH {
		out[name] = maps.Clone(connection)
	}

	for _, change := range changes {
		if change.Part != api.PartConnection || change.Level != api.LevelGroup {
			continue
		}

		if out[change.Name] == nil {
			out[change.Name] = map[string]any{}
		}

		if out[change.Name][change.Key] = change.to; isZero(change.to) {
			delete(out[change.Name], change.Key)
		}
	}

	maps.DeleteFunc(out, func(_ string, connection map[string]any) bool { return len(connection) == 0 })

	return out
}

// withGroups returns the groups with their rules after the changes.
func (c Config) withGroups(changes []write, order []string) []map[string]any {
	var out []map[string]any
	for _, g := range c.Groups {
		out = append(out, maps.Clone(g))
	}

	find := func(name string) int {
		return slices.IndexFunc(out, func(g map[string]any) bool { return g["name"] == name })
	}

	for _, change := range changes {
		i := find(change.Name)

		switch {
		case change.Level != api.LevelGroup || change.Part == api.PartConnection:
		case change.Part == api.PartGroup && change.to == nil && i >= 0:
			out = slices.Delete(out, i, i+1)
		case change.Part == api.PartGroup && i < 0:
			out = append(out, map[string]any{"name": change.Name})
		case change.Part == api.PartRules && i >= 0:
			if out[i][change.Key] = change.to; isZero(change.to) {
				delete(out[i], change.Key)
			}
		}
	}

	// Groups that the file does not order come last, as they were.
	place := func(g map[string]any) int {
		for i, name := range order {
			if g["name"] == name {
				return i
			}
		}

		return len(order)
	}
	slices.SortStableFunc(out, func(a, b map[string]any) int { return place(a) - place(b) })

	return out
}
