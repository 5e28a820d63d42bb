// SPDX-License-Identifier: Apache-2.0

package access

import (
	"slices"
	"strings"

	"github.com/contiv/cluster/inventory"
)

// Role is a set of permissions; see Permission.
type Role string

// The roles.
const (
	RoleViewer   Role = "viewer"   // reads everything, changes nothing
	RoleMonitor  Role = "monitor"  // reports observations, and reads the health
	RoleInstance Role = "instance" // joins the manager as a further instance, once
	RoleOperator Role = "operator" // also changes nodes, variables and jobs
	RoleAdmin    Role = "admin"    // also changes the configuration and the access itself
)

// Roles lists every role, in the order of the documentation.
var Roles = []Role{RoleViewer, RoleMonitor, RoleInstance, RoleOperator, RoleAdmin}

// ParseRole returns the role with the name, or KindInvalid.
func ParseRole(name string) (Role, error) {
	if !slices.Contains(Roles, Role(name)) {
		return "", inventory.Errorf(inventory.KindInvalid, "there is no role %q", name).
			Do("use %s", namesOf(Roles))
	}

	return Role(name), nil
}

// ParseReusable is ParseRole for what may be used again and again: a certificate, a group of an issuer, plain HTTP. It
// refuses RoleInstance, which a token has for one use.
func ParseReusable(name string) (Role, error) {
	if Role(name) == RoleInstance {
		return "", inventory.Errorf(inventory.KindInvalid, "the role %q is for one use, by a token", name).
			Do("invite an instance, or use %s", namesOf(reusable(Roles)))
	}
	return ParseRole(name)
}

// reusable returns the roles that ParseReusable accepts.
func reusable(roles []Role) []Role {
	return slices.DeleteFunc(slices.Clone(roles), func(r Role) bool { return r == RoleInstance })
}

// namesOf returns the names of roles as a list in words: "viewer, operator or admin".
func namesOf(roles []Role) string {
	names := make([]string, len(roles))
	for i, r := range roles {
		names[i] = string(r)
	}

	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
