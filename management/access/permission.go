// SPDX-License-Identifier: Apache-2.0

package access

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

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
}

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
	{Route{http.MethodGet, "/v1/nodes"}, readers},
	{Route{http.MethodGet, "/v1/nodes/{name}"}, readers},
	{Route{http.MethodPatch, "/v1/nodes/{name}"}, operators},
	{Route{http.MethodGet, "/v1/nodes/{name}/history"}, readers},
	{Route{http.MethodGet, "/v1/nodes/{name}/explanation"}, readers},
	{Route{http.MethodPut, "/v1/nodes/{name}/host-keys"}, operators},
	{Route{http.MethodPost, "/v1/nodes/{name}/host-keys/scan"}, operators},
	{Route{http.MethodPost, "/v1/forget"}, operators},
	{Route{http.MethodPost, "/v1/ping"}, operators},
	{Route{http.MethodPost, "/v1/observations"}, reporters},
	{Route{http.MethodGet, "/v1/groups"}, readers},

	{Route{http.MethodGet, "/v1/jobs"}, readers},
	{Route{http.MethodPost, "/v1/jobs"}, operators},
	{Route{http.MethodGet, "/v1/jobs/{id}"}, readers},
	{Route{http.MethodPost, "/v1/jobs/{id}/cancel"}, operators},
	{Route{http.MethodPost, "/v1/jobs/{id}/retry"}, operators},
	{Route{http.MethodGet, "/v1/jobs/{id}/explanation"}, readers},
	{Route{http.MethodGet, "/v1/jobs/{id}/log"}, readers},
	{Route{http.MethodGet, "/v1/jobs/{id}/events"}, readers},

	{Route{http.MethodGet, "/v1/vars/global"}, readers},
	{Route{http.MethodPut, "/v1/vars/global"}, operators},
	{Route{http.MethodPatch, "/v1/vars/global"}, operators},
	{Route{http.MethodGet, "/v1/vars/global/history"}, readers},
	{Route{http.MethodPost, "/v1/vars/global/undo"}, operators},
	{Route{http.MethodGet, "/v1/vars/groups/{name}"}, readers},
	{Route{http.MethodPut, "/v1/vars/groups/{name}"}, operators},
	{Route{http.MethodPatch, "/v1/vars/groups/{name}"}, operators},
	{Route{http.MethodGet, "/v1/vars/groups/{name}/history"}, readers},
	{Route{http.MethodPost, "/v1/vars/groups/{name}/undo"}, operators},
	{Route{http.MethodGet, "/v1/vars/nodes/{name}"}, readers},
	{Route{http.MethodPut, "/v1/vars/nodes/{name}"}, operators},
	{Route{http.MethodPatch, "/v1/vars/nodes/{name}"}, operators},
	{Route{http.MethodGet, "/v1/vars/nodes/{name}/history"}, readers},
	{Route{http.MethodPost, "/v1/vars/nodes/{name}/undo"}, operators},

	// The configuration names the playbooks and the account that runs them.
	{Route{http.MethodGet, "/v1/config"}, readers},
	{Route{http.MethodPatch, "/v1/config"}, admins},
	{Route{http.MethodPost, "/v1/config/reload"}, admins},
	{Route{http.MethodGet, "/v1/instances"}, readers},
	{Route{http.MethodGet, "/v1/watch"}, readers},
	{Route{http.MethodGet, "/v1/tokens"}, admins},
	{Route{http.MethodPost, "/v1/tokens"}, admins},
	{Route{http.MethodDelete, "/v1/tokens/{id}"}, admins},

	{Route{http.MethodGet, "/v1/audit"}, admins},
	{Route{http.MethodGet, "/v1/audit/export"}, admins},
	{Route{http.MethodGet, "/v1/audit/verification"}, admins},

	{Route{http.MethodGet, "/v1/health"}, everyone},
	{Route{http.MethodGet, "/v1/version"}, everyone},
	{Route{http.MethodGet, "/v1/openapi.yaml"}, everyone},
	{Route{http.MethodGet, "/v1/openapi.json"}, everyone},
	{Route{http.MethodGet, "/v1/docs"}, everyone},
	{Route{http.MethodGet, "/metrics"}, readers},

	// The contract of the first generation.
	{Route{http.MethodGet, "/info/nodes"}, readers},
	{Route{http.MethodPost, "/info/nodes"}, readers},
	{Route{http.MethodGet, "/info/node/{name}"}, readers},
	{Route{http.MethodGet, "/info/globals"}, readers},
	{Route{http.MethodGet, "/info/job/{job}"}, readers},
	{Route{http.MethodGet, "/info/logs/{job}"}, readers},
	{Route{http.MethodPost, "/globals"}, operators},
	{Route{http.MethodPost, "/monitor/event"}, reporters},
	{Route{http.MethodPost, "/monitor/event/{event}"}, reporters},
	{Route{http.MethodPost, "/monitor/{event}/{node}"}, reporters},
	{Route{http.MethodGet, "/config"}, readers},
	{Route{http.MethodPost, "/config"}, admins},
	{Route{http.MethodPost, "/discover/nodes"}, operators},
	{Route{http.MethodPost, "/update/nodes"}, operators},
	{Route{http.MethodPost, "/commission/nodes"}, operators},
	{Route{http.MethodPost, "/commission/node/{name}"}, operators},
	{Route{http.MethodPost, "/decommission/nodes"}, operators},
	{Route{http.MethodPost, "/decommission/node/{name}"}, operators},
	{Route{http.MethodPost, "/maintenance/nodes"}, operators},
	{Route{http.MethodPost, "/maintenance/node/{name}"}, operators},
}

// permitted holds the roles of each route.
var permitted = func() map[Route][]Role {
	table := map[Route][]Role{}
	for _, p := range Permissions {
		table[p.Route] = p.Roles
	}

	return table
}()

// RolesFor returns the roles that may use the route; none for an unknown route.
func RolesFor(r Route) []Role { return permitted[r] }

// Authorize returns KindForbidden unless the role of the identity may use the route.
func Authorize(id Identity, r Route) error {
	roles := permitted[r]
	if slices.Contains(roles, id.Role) && id.Scope.All() {
		return nil
	}

	// Nothing enforces a scope yet, so a limited identity must not pass for an
	// unlimited one.
	if slices.Contains(roles, id.Role) {
		return inventory.Errorf(inventory.KindForbidden, "the scope of %s cannot be enforced", id.Principal)
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

// CheckRoutes compares the served routes with the table. It returns an error
// that names each served route without a row, and each row without a served
// route.
func CheckRoutes(served []Route) error {
	var errs []error

	for _, r := range served {
		if len(permitted[r]) == 0 {
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
