// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/variable"
)

// State reads the view.
type State interface {
	View() *state.View
}

// Settings shows and changes the configuration.
type Settings interface {
	Config() api.Config
	Groups() inventory.Groups
	Patch(ctx context.Context, c access.Caller, patch map[string]any) (api.Config, error)
	// Preview checks a patch as Patch does, and changes nothing.
	Preview(ctx context.Context, c access.Caller, patch map[string]any) (api.Config, error)
}

// Variables hides the secrets of variables, and changes them.
type Variables interface {
	Hider() func(configuration.Vars) configuration.Vars
	Patch(ctx context.Context, c access.Caller, s state.Scope, patch configuration.Vars) (variable.Changed, error)
}

// Nodes changes the labels and connections of nodes.
type Nodes interface {
	Patch(ctx context.Context, c access.Caller, name string, p node.Patch) (inventory.Node, error)
}

// Manager compares fleet files with a manager and carries steps out, by its use cases.
type Manager struct {
	State     State
	Settings  Settings
	Variables Variables
	Nodes     Nodes
}

// Diff compares fleet files with the view. It changes nothing. An error about a value of the
// files has its position.
func (m Manager) Diff(
	ctx context.Context, v *state.Scoped, by access.Identity, r api.FleetRequest,
) (api.FleetDiff, error) {
	d, err := Read(r.Files...)
	if err != nil {
		return api.FleetDiff{}, err
	}

	s, err := m.load(v, by.Scope)
	if err != nil {
		return api.FleetDiff{}, err
	}
	plan, err := Compare(d, s, Options{r.Prune, r.IgnoreMissing, r.RewriteSecrets})
	if err != nil {
		return api.FleetDiff{}, err
	}
	return plan.FleetDiff, m.judge(ctx, by, s.Config, plan)
}

// Export returns the fleet file of the view.
func (m Manager) Export(v *state.Scoped, by access.Identity) (*Mapping, error) {
	s, err := m.load(v, by.Scope)
	if err != nil {
		return nil, err
	}
	return Export(s), nil
}
