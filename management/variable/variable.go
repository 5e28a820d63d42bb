// SPDX-License-Identifier: Apache-2.0

package variable

import (
	"context"
	"maps"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/merge"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// Store keeps variables and their history.
type Store interface {
	record.Store
	// VarsHistory returns the recorded changes of a scope, oldest first, by quorum.
	VarsHistory(ctx context.Context, s state.Scope) ([]Change, error)
}

// Recorded is the part of a transaction that adds a change to the history of a scope, see
// record.Tx.Attach.
type Recorded struct {
	Scope  state.Scope
	Change Change
}

// Options are the dependencies of Variables.
type Options struct {
	Store    Store
	Settings func() merge.Settings
	Audit    access.Auditor
	// Marked is called after a change with a secret, which may be one of that name in other
	// scopes as well. It must not block. It may be nil.
	Marked func()
}

// Variables sets and reads variables. All methods may be called at once.
type Variables struct {
	store    Store
	settings func() merge.Settings
	audit    access.Auditor
	marked   func()
}

// New returns the variables use case.
func New(o Options) *Variables {
	vs := &Variables{store: o.Store, settings: o.Settings, audit: o.Audit, marked: o.Marked}
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
	out, err := vs.change(ctx, c, action, scope,
		func(tx *record.Tx, old configuration.Vars) (configuration.Vars, error) {
			// A hidden secret that is written back keeps its value.
			restored, err := vs.settings().Secrets.Restore(given, old)
			if err != nil {
				return nil, err
			}
			return apply(old, restored.Mark(state.Marked(tx.Base()))), nil
		})
	if err != nil {
		return out, err
	}
	for _, path := range configuration.LooksLikeTemplate(given) {
		out.Warnings = append(out.Warnings, merge.TemplateWarning(path))
	}

	return out, nil
}

// change replaces the variables of a scope by those that decide returns, and records the change.
// The store guards the marks of every write of variables, so what is read of them is no guard here:
// variables of different scopes may change at once.
func (vs *Variables) change(
	ctx context.Context, c access.Caller, action string, scope state.Scope,
	decide func(tx *record.Tx, old configuration.Vars) (configuration.Vars, error),
) (out Changed, err error) {
	trail := access.Record{Action: "variables." + action, Targets: []string{string(scope)}}
	err = access.Audited(ctx, vs.audit, c, trail, func(ctx context.Context, _ *access.Record) error {
		subject := access.Variables(scope)

		made, revision, err := access.Decide(ctx, vs.store, c, subject, func(tx *record.Tx) (Change, error) {
			out.Revision = tx.Revision()
			return vs.put(tx, c, action, scope, decide)
		})
		if err != nil {
			return err
		}
		out.Revision = max(out.Revision, revision)

		if hasSecret(made.After) {
			vs.marked()
		}

		return nil
	})

	return out, err
}

func (vs *Variables) put(
	tx *record.Tx, c access.Caller, action string, scope state.Scope,
	decide func(tx *record.Tx, old configuration.Vars) (configuration.Vars, error),
) (Change, error) {
	if err := vs.checkScope(state.ViewOf(tx), scope); err != nil {
		return Change{}, err
	}

	old := state.VarsOf(tx, scope)

	vars, err := decide(tx, old)
	if err != nil {
		return Change{}, err
	}

	// Check the result, not the request: the limits apply to the whole scope.
	if err := configuration.CheckVars(vars); err != nil {
		return Change{}, err
	}

	made := newChange(old, vars)
	made.Time, made.Actor, made.Action = time.Now().UTC(), c.Principal, action

	if !made.Empty() {
		tx.Attach(Recorded{scope, made})
	}

	switch {
	case made.Empty() && action == ActionUndo: // one that is repeated has nothing left to undo
	case len(vars) == 0:
		record.Remove(tx, &state.Variables, string(scope))
	default:
		record.Put(tx, &state.Variables, &state.ScopeVars{Scope: scope, Vars: vars})
	}

	return made, nil
}

// view returns the newest view.
func (vs *Variables) view() *state.View {
	v, _ := vs.store.Latest()
	return v.(*state.View)
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
	switch kind, name := scope.Split(); kind {
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
	v := vs.view()
	if err := vs.checkScope(v, scope); err != nil {
		return nil, err
	}
	return vs.settings().Secrets.HideVars(state.VarsOf(v, scope).Mark(state.Marked(v))), nil
}

// Merged returns a node's variables as a job would get them now, without those
// of a request. Secrets are hidden.
func (vs *Variables) Merged(node string) (map[string]configuration.Var, error) {
	v := vs.view()

	n, err := v.Node(node)
	if err != nil {
		return nil, err
	}
	return vs.Merger(v).Of(&n), nil
}

// Merger returns the merger for the view with the current settings.
func (vs *Variables) Merger(v *state.View) merge.Merger { return merge.NewMerger(v, vs.settings()) }

// Hider returns a function that hides the secrets in variables.
func (vs *Variables) Hider() func(configuration.Vars) configuration.Vars {
	// A value that was set before it was marked is as secret as in the history.
	marked, secrets := state.Marked(vs.view()), vs.settings().Secrets
	return func(vars configuration.Vars) configuration.Vars { return secrets.HideVars(vars.Mark(marked)) }
}
