// SPDX-License-Identifier: Apache-2.0

package variable

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/state"
)

// Store writes variables and their history.
type Store interface {
	// PutVars replaces the variables of a scope and records the change, unless the
	// scope was changed after the revision: then it returns KindConflict. nil
	// removes them. It returns once the view shows the write.
	PutVars(ctx context.Context, revision int64, s state.Scope, v configuration.Vars, c Change) (int64, error)
	// VarsHistory returns the recorded changes of a scope, oldest first, by quorum.
	VarsHistory(ctx context.Context, s state.Scope) ([]Change, error)
}

// Options are the dependencies of Variables.
type Options struct {
	State    state.Reader
	Store    Store
	Settings func() Settings
	Audit    access.Auditor
	// Marked is called after a change with a secret, which may be one of that name in other
	// scopes as well. It must not block. It may be nil.
	Marked func()
}

// Variables sets and reads variables. All methods may be called at once.
type Variables struct {
	state    state.Reader
	store    Store
	settings func() Settings
	audit    access.Auditor
	marked   func()
}

// New returns the variables use case.
func New(o Options) *Variables {
	vs := &Variables{state: o.State, store: o.Store, settings: o.Settings, audit: o.Audit, marked: o.Marked}
	if vs.marked == nil {
		vs.marked = func() {}
	}

	return vs
}

// Changed is the result of a change of variables.
type Changed struct {
	Revision int64
	Warnings []string
}

// Set replaces the variables of the scope. A configuration.Secret marks its variable as
// secret; one with the value configuration.Hidden marks the variable that is set.
func (vs *Variables) Set(ctx context.Context, c access.Caller, s state.Scope,
	vars configuration.Vars) (Changed, error) {
	return vs.give(ctx, c, ActionSet, s, vars, func(_, given configuration.Vars) configuration.Vars { return given })
}

// Patch sets the variables in patch, and removes those that are null in it.
func (vs *Variables) Patch(
	ctx context.Context, c access.Caller, s state.Scope, patch configuration.Vars,
) (Changed, error) {
	return vs.give(ctx, c, ActionPatch, s, patch, func(old, given configuration.Vars) configuration.Vars {
		vars := configuration.Vars{}
		maps.Copy(vars, old)

		for key, value := range given {
			if value == nil {
				delete(vars, key)
			} else {
				vars[key] = value
			}
		}

		return vars
	})
}

// give changes the variables of a scope by variables of a request.
func (vs *Variables) give(
	ctx context.Context, c access.Caller, action string, scope state.Scope, given configuration.Vars,
	apply func(old, given configuration.Vars) configuration.Vars,
) (Changed, error) {
	out, err := vs.change(
		ctx,
		c,
		action,
		scope,
		func(v *state.View, old configuration.Vars) (configuration.Vars, error) {
			// A hidden secret that is written back keeps its value.
			restored, err := vs.settings().Secrets.Restore(given, old)
			if err != nil {
				return nil, err
			}

			return apply(old, restored.Mark(v.Marked())), nil
		},
	)
	if err != nil {
		return out, err
	}

	for _, path := range configuration.LooksLikeTemplate(given) {
		out.Warnings = append(out.Warnings, TemplateWarning(path))
	}

	return out, nil
}

// change replaces the variables of a scope by those that decide returns for a view,
// and records the change.
func (vs *Variables) change(
	ctx context.Context, c access.Caller, action string, scope state.Scope,
	decide func(v *state.View, old configuration.Vars) (configuration.Vars, error),
) (Changed, error) {
	var out Changed

	record := access.Record{Action: "variables." + action, Targets: []string{string(scope)}}
	err := access.Audited(ctx, vs.audit, c, record, func(*access.Record) error {
		return state.RetryConflict(ctx, vs.state, func(v *state.View) error {
			v, err := c.Precondition.Check(ctx, vs.state, v)
			if err != nil {
				return err
			}

			if err := vs.checkScope(v, scope); err != nil {
				return err
			}

			vars, err := decide(v, v.Vars(scope))
			if err != nil {
				return err
			}

			// Check the result, not the request: the limits apply to the whole scope.
			if err := configuration.CheckVars(vars); err != nil {
				return err
			}

			made := newChange(v.Vars(scope), vars)
			made.Time, made.Actor, made.Action = time.Now().UTC(), c.Principal, action

			// An undo that is repeated has nothing left to undo.
			if action == ActionUndo && made.Empty() {
				out.Revision = v.Revision
				return nil
			}

			if out.Revision, err = vs.store.PutVars(ctx, v.Revision, scope, vars, made); err != nil {
				return err
			}

			if hasSecret(made.After) {
				vs.marked()
			}

			return nil
		})
	})

	return out, err
}

func hasSecret(vars configuration.Vars) bool {
	for _, value := range vars {
		if _, secret := value.(configuration.Secret); secret {
			return true
		}
	}

	return false
}

func (vs *Variables) checkScope(v *state.View, scope state.Scope) error {
	kind, name, _ := strings.Cut(string(scope), "/")
	switch kind {
	case "global":
		return nil
	case "node":
		_, err := v.Node(name)
		return err
	case "group":
		if name == inventory.GroupPrepare {
			return nil
		}

		_, err := vs.settings().Groups.Get(name)

		return err
	}

	return inventory.Errorf(inventory.KindInvalid, "%q is not a scope of variables", scope).
		Do("use global, group/NAME or node/NAME")
}

// Get returns the variables of the scope, secrets hidden, or KindNotFound if
// there is no such group or node.
func (vs *Variables) Get(scope state.Scope) (configuration.Vars, error) {
	v := vs.state.View()
	if err := vs.checkScope(v, scope); err != nil {
		return nil, err
	}

	return vs.settings().Secrets.HideVars(v.Vars(scope).Mark(v.Marked())), nil
}

// Merged returns a node's variables as a job would get them now, without those
// of a request. Secrets are hidden.
func (vs *Variables) Merged(node string) (map[string]configuration.Var, error) {
	v := vs.state.View()

	n, err := v.Node(node)
	if err != nil {
		return nil, err
	}

	return vs.Merger(v).Of(&n), nil
}

// Merger returns the merger for the view with the current settings.
func (vs *Variables) Merger(v *state.View) Merger { return NewMerger(v, vs.settings()) }

// Hide returns the changes with the secrets in variables hidden.
func (vs *Variables) Hide(changes []state.Change) []state.Change {
	// A value that was set before it was marked is as secret as in the history.
	marked := vs.state.View().Marked()

	// The feed shares its changes with other watchers.
	changes = slices.Clone(changes)
	for i, c := range changes {
		if c.Vars != nil {
			changes[i].Vars = vs.settings().Secrets.HideVars(c.Vars.Mark(marked))
		}
	}

	return changes
}
