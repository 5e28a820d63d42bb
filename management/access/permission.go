// SPDX-License-Identifier: Apache-2.0

package access

import (
	"slices"

	"github.com/contiv/cluster/inventory"
)

// Permission says who may use a route. Each route declares its own. The zero Permission denies everybody.
type Permission struct {
	Roles []Role
	// Within: a caller with a scope sees and changes what is within it. Otherwise the route
	// concerns the manager as a whole, and only callers without a scope may use it.
	Within bool
}

// The permissions of routes.
var (
	Everyone  = Permission{Roles: []Role{RoleViewer, RoleMonitor, RoleOperator, RoleAdmin}}
	Readers   = Permission{Roles: []Role{RoleViewer, RoleOperator, RoleAdmin}}
	Reporters = Permission{Roles: []Role{RoleMonitor, RoleOperator, RoleAdmin}}
	Operators = Permission{Roles: []Role{RoleOperator, RoleAdmin}}
	Admins    = Permission{Roles: []Role{RoleAdmin}}
	Joiners   = Permission{Roles: []Role{RoleInstance}}
)

// The permissions for the configuration and the global variables, which a step of a fleet file needs as well.
var (
	ChangeConfig  = Admins
	ChangeGlobals = Operators
)

// Scoped returns the permission for a route that a scope bounds.
func (p Permission) Scoped() Permission { return Permission{p.Roles, true} }

// Authorize returns KindForbidden unless the identity may use the route, which is named in the error: its role
// must be listed, and an identity with a scope needs a route that is bounded by it.
func (p Permission) Authorize(id Identity, route string) error {
	switch known := slices.Contains(p.Roles, id.Role); {
	case known && (id.Scope.All() || p.Within):
		return nil
	case known:
		return inventory.Errorf(inventory.KindForbidden,
			"%s concerns the whole manager, and %s has the scope %s", route, id.Principal, id.Scope).
			Do("repeat the request with a credential without a scope")
	}

	refused := inventory.Errorf(inventory.KindForbidden, "the role %q may not use %s", id.Role, route)

	if lasting := reusable(p.Roles); id.Credential == CredentialPlainHTTP && len(lasting) > 0 {
		return refused.Do("use the Unix socket as root, or set plain_http_role in the configuration file to %s",
			namesOf(lasting))
	}
	return refused.Do("repeat the request with a credential of the role %s", namesOf(p.Roles))
}

// AuthorizeReach returns KindForbidden unless the identity may change how nodes are reached. As the
// configuration does for sites and groups, that decides on which machine playbooks run as root.
func AuthorizeReach(id Identity) error {
	if slices.Contains(Admins.Roles, id.Role) {
		return nil
	}

	return inventory.Errorf(inventory.KindForbidden,
		"the role %q may not change how nodes are reached: their connection and host keys", id.Role).
		Do("repeat the request with a credential of the role %s", namesOf(Admins.Roles))
}

// covers reports whether a role has every permission of another one. RoleInstance is given by RoleAdmin only, which
// could as well give itself any other.
func covers(role, other Role) bool {
	if other == RoleInstance {
		return role == RoleAdmin
	}

	all := []Permission{Everyone, Readers, Reporters, Operators, Admins}

	return !slices.ContainsFunc(all, func(p Permission) bool {
		return slices.Contains(p.Roles, other) && !slices.Contains(p.Roles, role)
	})
}
