// SPDX-License-Identifier: Apache-2.0

package access

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/contiv/cluster/inventory"
)

// Route identifies an operation of the API: a method, and a path with its
// parameters in braces.
type Route struct{ Method, Path string }

func (r Route) String() string { return r.Method + " " + r.Path }

// Permission lists the roles that may use a route.
type Permission struct {
	Route
	Roles []Role
	// Reach decides about a caller with a scope.
	Reach Reach
}

// Reach decides whether a caller with a scope may use a route.
type Reach bool

// The reaches of a route. The zero Reach denies.
const (
	// Whole: the route concerns the manager as a whole, so only callers without a
	// scope may use it.
	Whole Reach = false
	// Within: a caller with a scope sees and changes what is within it.
	Within Reach = true
)

// The sets of roles in the table.
var (
	everyone  = []Role{RoleViewer, RoleMonitor, RoleOperator, RoleAdmin}
	readers   = []Role{RoleViewer, RoleOperator, RoleAdmin}
	reporters = []Role{RoleMonitor, RoleOperator, RoleAdmin}
	operators = []Role{RoleOperator, RoleAdmin}
	admins    = []Role{RoleAdmin}
)

// Permissions is the one table of routes and roles. A route without a row is
// denied to every role, and the server does not start with it.
var Permissions = []Permission{
	{Route{http.MethodGet, "/v1/nodes"}, readers, Within},
	{Route{http.MethodGet, "/v1/nodes/{name}"}, readers, Within},
	{Route{http.MethodPatch, "/v1/nodes/{name}"}, operators, Within},
	{Route{http.MethodGet, "/v1/nodes/{name}/history"}, readers, Within},
	{Route{http.MethodGet, "/v1/nodes/{name}/explanation"}, readers, Within},
	{Route{http.MethodGet, "/v1/nodes/{name}/diff"}, readers, Within},
	{Route{http.MethodPut, "/v1/nodes/{name}/host-keys"}, admins, Whole},
	{Route{http.MethodPost, "/v1/nodes/{name}/host-keys/scan"}, operators, Within},
	{Route{http.MethodGet, "/v1/inventory"}, readers, Within},
	{Route{http.MethodPost, "/v1/forget"}, operators, Within},
	{Route{http.MethodPost, "/v1/ping"}, operators, Within},
	{Route{http.MethodPost, "/v1/observations"}, reporters, Whole},
	{Route{http.MethodGet, "/v1/groups"}, readers, Within},

	{Route{http.MethodGet, "/v1/jobs"}, readers, Within},
	{Route{http.MethodPost, "/v1/jobs"}, operators, Within},
	{Route{http.MethodGet, "/v1/jobs/{id}"}, readers, Within},
	{Route{http.MethodPost, "/v1/jobs/{id}/cancel"}, operators, Within},
	{Route{http.MethodPost, "/v1/jobs/{id}/retry"}, operators, Within},
	{Route{http.MethodGet, "/v1/jobs/{id}/explanation"}, readers, Within},
	{Route{http.MethodGet, "/v1/jobs/{id}/log"}, readers, Within},
	{Route{http.MethodGet, "/v1/jobs/{id}/events"}, readers, Within},

	{Route{http.MethodGet, "/v1/plans"}, readers, Within},
	{Route{http.MethodPost, "/v1/plans"}, operators, Within},
	{Route{http.MethodGet, "/v1/plans/{id}"}, readers, Within},
	{Route{http.MethodDelete, "/v1/plans/{id}"}, operators, Within},
	{Route{http.MethodPost, "/v1/plans/{id}/apply"}, operators, Within},

	{Route{http.MethodGet, "/v1/rollouts"}, readers, Within},
	{Route{http.MethodPost, "/v1/rollouts"}, operators, Within},
	{Route{http.MethodPost, "/v1/rollout-preview"}, operators, Within},
	{Route{http.MethodGet, "/v1/rollouts/{id}"}, readers, Within},
	{Route{http.MethodPost, "/v1/rollouts/{id}/pause"}, operators, Within},
	{Route{http.MethodPost, "/v1/rollouts/{id}/resume"}, operators, Within},
	{Route{http.MethodPost, "/v1/rollouts/{id}/abort"}, operators, Within},
	{Route{http.MethodPost, "/v1/rollouts/{id}/retry"}, operators, Within},
	{Route{http.MethodPost, "/v1/rollouts/{id}/undo"}, operators, Within},
	{Route{http.MethodPost, "/v1/rollouts/{id}/promote"}, operators, Within},
	{Route{http.MethodPost, "/v1/rollouts/{id}/approve"}, operators, Within},

	{Route{http.MethodGet, "/v1/vars/global"}, readers, Whole},
	{Route{http.MethodPut, "/v1/vars/global"}, operators, Whole},
	{Route{http.MethodPatch, "/v1/vars/global"}, operators, Whole},
	{Route{http.MethodGet, "/v1/vars/global/history"}, readers, Whole},
	{Route{http.MethodPost, "/v1/vars/global/undo"}, operators, Whole},
	{Route{http.MethodGet, "/v1/vars/groups/{name}"}, readers, Within},
	{Route{http.MethodPut, "/v1/vars/groups/{name}"}, operators, Within},
	{Route{http.MethodPatch, "/v1/vars/groups/{name}"}, operators, Within},
	{Route{http.MethodGet, "/v1/vars/groups/{name}/history"}, readers, Within},
	{Route{http.MethodPost, "/v1/vars/groups/{name}/undo"}, operators, Within},
	{Route{http.MethodGet, "/v1/vars/nodes/{name}"}, readers, Within},
	{Route{http.MethodPut, "/v1/vars/nodes/{name}"}, operators, Within},
	{Route{http.MethodPatch, "/v1/vars/nodes/{name}"}, operators, Within},
	{Route{http.MethodGet, "/v1/vars/nodes/{name}/history"}, readers, Within},
	{Route{http.MethodPost, "/v1/vars/nodes/{name}/undo"}, operators, Within},

	// The configuration names the playbooks and the account that runs them.
	{Route{http.MethodGet, "/v1/config"}, readers, Whole},
	{Route{http.MethodPatch, "/v1/config"}, admins, Whole},
	{Route{http.MethodPost, "/v1/config/reload"}, admins, Whole},
	// Each step of a fleet file also needs the permission for what it changes.
	{Route{http.MethodGet, "/v1/fleet"}, readers, Within},
	{Route{http.MethodPost, "/v1/fleet/diff"}, readers, Within},
	{Route{http.MethodPost, "/v1/fleet/apply"}, operators, Within},
	{Route{http.MethodGet, "/v1/gossip-key"}, readers, Whole},
	{Route{http.MethodPost, "/v1/gossip-key/rotate"}, admins, Whole},
	{Route{http.MethodGet, "/v1/ssh-key"}, readers, Whole},
	{Route{http.MethodPost, "/v1/ssh-key/rotate"}, admins, Whole},
	{Route{http.MethodPost, "/v1/ssh-key/cancel"}, admins, Whole},
	{Route{http.MethodGet, "/v1/policies"}, readers, Whole},
	{Route{http.MethodGet, "/v1/policies/{name}"}, readers, Whole},
	{Route{http.MethodPost, "/v1/policies/{name}/pause"}, operators, Whole},
	{Route{http.MethodPost, "/v1/policies/{name}/resume"}, operators, Whole},
	{Route{http.MethodPost, "/v1/policies/{name}/enable"}, operators, Whole},
	{Route{http.MethodPost, "/v1/policies/{name}/disable"}, operators, Whole},
	{Route{http.MethodPost, "/v1/policies/{name}/test"}, operators, Whole},
	{Route{http.MethodPost, "/v1/brake/release"}, operators, Whole},
	{Route{http.MethodGet, "/v1/windows"}, readers, Whole},
	{Route{http.MethodGet, "/v1/freeze"}, readers, Within},
	{Route{http.MethodPost, "/v1/freeze"}, operators, Whole},
	{Route{http.MethodPost, "/v1/freeze/lift"}, operators, Whole},
	// The state names nodes. The files of playbooks concern all of them, and may contain
	// values that variables show to nobody.
	{Route{http.MethodGet, "/v1/repository"}, readers, Within},
	{Route{http.MethodPost, "/v1/repository/sync"}, operators, Whole},
	{Route{http.MethodGet, "/v1/repository/log"}, readers, Whole},
	{Route{http.MethodGet, "/v1/repository/diff"}, operators, Whole},
	{Route{http.MethodGet, "/v1/instances"}, readers, Within},
	{Route{http.MethodGet, "/v1/watch"}, readers, Within},
	{Route{http.MethodGet, "/v1/tokens"}, admins, Whole},
	{Route{http.MethodPost, "/v1/tokens"}, admins, Whole},
	{Route{http.MethodDelete, "/v1/tokens/{id}"}, admins, Whole},
	{Route{http.MethodGet, "/v1/certificates"}, admins, Whole},
	{Route{http.MethodDelete, "/v1/certificates/{id}"}, admins, Whole},
	{Route{http.MethodGet, "/v1/secrets"}, readers, Whole},
	{Route{http.MethodPost, "/v1/secrets/rotate"}, admins, Whole},

	{Route{http.MethodGet, "/v1/audit"}, admins, Whole},
	{Route{http.MethodGet, "/v1/audit/export"}, admins, Whole},
	{Route{http.MethodGet, "/v1/audit/verification"}, admins, Whole},

	{Route{http.MethodGet, "/v1/notifications"}, readers, Whole},
	{Route{http.MethodGet, "/v1/notifications/{name}/deliveries"}, readers, Whole},
	{Route{http.MethodPost, "/v1/notifications/{name}/test"}, admins, Whole},
	{Route{http.MethodPost, "/v1/notifications/{name}/retry"}, operators, Whole},

	{Route{http.MethodGet, "/v1/auth/whoami"}, everyone, Within},
	{Route{http.MethodGet, "/v1/auth/can-i"}, everyone, Within},
	{Route{http.MethodGet, "/v1/health"}, everyone, Within},
	{Route{http.MethodGet, "/v1/version"}, everyone, Within},
	{Route{http.MethodGet, "/v1/openapi.yaml"}, everyone, Within},
	{Route{http.MethodGet, "/v1/openapi.json"}, everyone, Within},
	{Route{http.MethodGet, "/v1/docs"}, everyone, Within},
	{Route{http.MethodGet, "/metrics"}, readers, Whole},

	// The contract of the first generation.
	{Route{http.MethodGet, "/info/nodes"}, readers, Within},
	{Route{http.MethodPost, "/info/nodes"}, readers, Within},
	{Route{http.MethodGet, "/info/node/{name}"}, readers, Within},
	{Route{http.MethodGet, "/info/globals"}, readers, Whole},
	{Route{http.MethodGet, "/info/job/{job}"}, readers, Within},
	{Route{http.MethodGet, "/info/logs/{job}"}, readers, Within},
	{Route{http.MethodPost, "/globals"}, operators, Whole},
	{Route{http.MethodPost, "/monitor/event"}, reporters, Whole},
	{Route{http.MethodPost, "/monitor/event/{event}"}, reporters, Whole},
	{Route{http.MethodPost, "/monitor/{event}/{node}"}, reporters, Whole},
	{Route{http.MethodGet, "/config"}, readers, Whole},
	{Route{http.MethodPost, "/config"}, admins, Whole},
	{Route{http.MethodPost, "/discover/nodes"}, operators, Whole},
	{Route{http.MethodPost, "/update/nodes"}, operators, Within},
	{Route{http.MethodPost, "/commission/nodes"}, operators, Within},
	{Route{http.MethodPost, "/commission/node/{name}"}, operators, Within},
	{Route{http.MethodPost, "/decommission/nodes"}, operators, Within},
	{Route{http.MethodPost, "/decommission/node/{name}"}, operators, Within},
	{Route{http.MethodPost, "/maintenance/nodes"}, operators, Within},
	{Route{http.MethodPost, "/maintenance/node/{name}"}, operators, Within},
}

// permitted returns the permission of each route. It reads the table at its first use.
var permitted = sync.OnceValue(func() map[Route]Permission {
	table := map[Route]Permission{}
	for _, p := range Permissions {
		table[p.Route] = p
	}

	return table
})

// RolesFor returns the roles that may use the route; none for an unknown route.
func RolesFor(r Route) []Role { return permitted()[r].Roles }

// ReachOf returns the reach of the route; Whole for an unknown route.
func ReachOf(r Route) Reach { return permitted()[r].Reach }

// Authorize returns KindForbidden unless the identity may use the route: its role
// must be listed, and an identity with a scope needs a route that is bounded by it.
func Authorize(id Identity, r Route) error {
	p := permitted()[r]
	roles := p.Roles

	switch known := slices.Contains(roles, id.Role); {
	case known && (id.Scope.All() || p.Reach == Within):
		return nil
	case known:
		return inventory.Errorf(inventory.KindForbidden,
			"%s concerns the whole manager, and %s has the scope %s", r, id.Principal, id.Scope).
			Do("repeat the request with a credential without a scope")
	}

	refused := inventory.Errorf(inventory.KindForbidden, "the role %q may not use %s", id.Role, r)

	switch {
	case len(roles) == 0:
		return refused
	case id.Credential == CredentialPlainHTTP:
		return refused.Do("use the Unix socket as root, or set plain_http_role in the configuration file to %s",
			namesOf(roles))
	default:
		return refused.Do("repeat the request with a credential of the role %s", namesOf(roles))
	}
}

// AuthorizeReach returns KindForbidden unless the identity may change how nodes are reached. As the
// configuration does for sites and groups, that decides on which machine playbooks run as root.
func AuthorizeReach(id Identity) error {
	if slices.Contains(admins, id.Role) {
		return nil
	}

	return inventory.Errorf(inventory.KindForbidden,
		"the role %q may not change how nodes are reached: their connection and host keys", id.Role).
		Do("repeat the request with a credential of the role %s", namesOf(admins))
}

// CheckRoutes compares the served routes with the table. It returns an error
// that names each served route without a row, and each row without a served
// route.
func CheckRoutes(served []Route) error {
	var errs []error

	for _, r := range served {
		if len(permitted()[r].Roles) == 0 {
			errs = append(errs, fmt.Errorf("the route %s has no row in the table of permissions", r))
		}
	}

	for _, p := range Permissions {
		if !slices.Contains(served, p.Route) {
			errs = append(errs, fmt.Errorf("the table of permissions has a row for %s, which is not served", p.Route))
		}
	}

	return errors.Join(errs...)
}
