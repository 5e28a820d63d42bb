// SPDX-License-Identifier: Apache-2.0

package variable

import (
	"context"
	"maps"
	"reflect"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// The limits of the history of one scope. The oldest changes are dropped first; the
// newest is always kept.
const (
	HistoryLimit = 50
	HistoryBytes = 64 << 10
)

// The actions of a Change.
const (
	ActionSet   = "set"
	ActionPatch = "patch"
	ActionUndo  = "undo"
)

// Change is one recorded change of the variables of a scope. It holds the changed
// variables only.
type Change struct {
	Seq      uint64 // counts the changes of the scope from 1
	Revision int64  // of the store after the change
	Time     time.Time
	Actor    string
	Action   string
	Before   configuration.Vars // without the variables that the change added
	After    configuration.Vars // without the variables that the change removed
}

// newChange returns the difference between two sets of variables.
func newChange(old, now configuration.Vars) Change {
	c := Change{Before: configuration.Vars{}, After: configuration.Vars{}}

	for name, value := range old {
		if other, ok := now[name]; !ok || !reflect.DeepEqual(value, other) {
			c.Before[name] = value
		}
	}

	for name, value := range now {
		if other, ok := old[name]; !ok || !reflect.DeepEqual(value, other) {
			c.After[name] = value
		}
	}

	// A value that becomes secret was the same secret before.
	for name := range c.After {
		if _, secret := c.After[name].(configuration.Secret); secret && c.Before[name] != nil {
			c.Before[name] = configuration.NewSecret(c.Before[name])
		}
	}

	return c
}

// Empty reports whether no variable changed.
func (c Change) Empty() bool { return len(c.Before) == 0 && len(c.After) == 0 }

// Secrets returns a function that reports whether the change has a secret of that name.
func (c Change) Secrets() func(name string) bool {
	return func(name string) bool {
		_, before := c.Before[name].(configuration.Secret)
		_, after := c.After[name].(configuration.Secret)
		return before || after
	}
}

// Mark returns the change with the named variables secret, and reports whether one of
// them was not.
func (c Change) Mark(secret func(name string) bool) (Change, bool) {
	wasClear := false

	for _, vars := range []configuration.Vars{c.Before, c.After} {
		for name, value := range vars {
			_, marked := value.(configuration.Secret)
			wasClear = wasClear || value != nil && !marked && secret(name)
		}
	}

	c.Before, c.After = c.Before.Mark(secret), c.After.Mark(secret)

	return c, wasClear
}

// revert returns the variables without the change.
func (c Change) revert(vars configuration.Vars) configuration.Vars {
	out := configuration.Vars{}
	maps.Copy(out, vars)

	for name := range c.After {
		delete(out, name)
	}

	maps.Copy(out, c.Before)

	return out
}

// stateAt returns the variables as of a revision, by a reversal of the later changes.
// history is complete from its first change on, oldest first.
func stateAt(vars configuration.Vars, history []Change, revision int64) (configuration.Vars, error) {
	for i := len(history) - 1; i >= 0 && history[i].Revision > revision; i-- {
		vars = history[i].revert(vars)
	}

	// Changes before the oldest that is kept are unknown.
	if len(history) > 0 && history[0].Seq > 1 && revision < history[0].Revision-1 {
		return nil, inventory.Errorf(inventory.KindExpired,
			"the variables as of revision %d are no longer kept; the oldest kept change is of revision %d",
			revision, history[0].Revision).
			Do("choose a revision of the history")
	}

	return vars, nil
}

// History returns the recorded changes of the scope, oldest first, secrets hidden.
func (vs *Variables) History(ctx context.Context, scope state.Scope) ([]Change, error) {
	v := vs.view()
	if err := vs.checkScope(v, scope); err != nil {
		return nil, err
	}

	history, err := vs.store.VarsHistory(ctx, scope)
	if err != nil {
		return nil, err
	}

	secrets, isMarked := vs.settings().Secrets, state.Marked(v)
	for i := range history {
		// The store may not yet have encrypted what another scope has marked.
		history[i], _ = history[i].Mark(isMarked)
		history[i].Before = secrets.HideVars(history[i].Before)
		history[i].After = secrets.HideVars(history[i].After)
	}

	return history, nil
}

// Undo sets the variables of the scope to their values as of the revision, secrets
// included. What is secret now remains so. If they have these values already, it changes nothing.
func (vs *Variables) Undo(ctx context.Context, c access.Caller, scope state.Scope, to int64) (Changed, error) {
	return vs.change(ctx, c, ActionUndo, scope,
		func(tx *record.Tx, old configuration.Vars) (configuration.Vars, error) {
			if to < 0 || to > tx.Revision() {
				return nil, inventory.Errorf(inventory.KindInvalid, "the store has no revision %d yet", to).
					Do("choose a revision of the history")
			}

			// A history newer than the transaction makes the write conflict, and the next attempt reads newer
			// variables.
			history, err := vs.store.VarsHistory(ctx, scope)
			if err != nil {
				return nil, err
			}
			vars, err := stateAt(old, history, to)

			return vars.Mark(state.Marked(tx.Base())), err
		})
}
