// SPDX-License-Identifier: Apache-2.0

package access

import (
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
)

// TestAuthorize expects every role to be denied by default.
func TestAuthorize(t *testing.T) {
	t.Parallel()

	jobs := Operators.Scoped()

	for _, tt := range []struct {
		name string
		id   Identity
		may  Permission
		want string // in the error; empty: permitted
	}{
		{"permitted", Identity{Role: RoleOperator}, jobs, ""},
		{"within a scope", Identity{Role: RoleOperator, Scope: Scope{Groups: []string{"a"}}}, jobs, ""},
		{
			"the whole manager", Identity{Principal: "token:x", Role: RoleOperator, Scope: Scope{Selector: "rack=r1"}},
			Operators, "token:x has the scope selector rack=r1",
		},
		{"no role", Identity{}, jobs, `the role "" may not use POST /v1/jobs`},
		{"an unknown role", Identity{Role: "root"}, jobs, `the role "root"`},
		{"a role that may not", Identity{Role: RoleViewer}, jobs, "of the role operator or admin"},
		{
			"plain HTTP", Identity{Role: RoleViewer, Credential: CredentialPlainHTTP}, jobs,
			"set plain_http_role in the configuration file to operator or admin",
		},
		{"no permission", Identity{Role: RoleAdmin}, Permission{}, "may not use"},
	} {
		err := tt.may.Authorize(tt.id, "POST /v1/jobs")

		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", tt.name, err)
		case tt.want == "":
		case inventory.KindOf(err) != inventory.KindForbidden || !strings.Contains(err.Error(), tt.want):
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestParseRole(t *testing.T) {
	t.Parallel()

	for _, role := range Roles {
		if got, err := ParseRole(string(role)); got != role || err != nil {
			t.Errorf("%s: got %q, %v", role, got, err)
		}
	}

	_, err := ParseRole("Admin")
	if err == nil || !strings.Contains(err.Error(), "use viewer, monitor, instance, operator or admin") {
		t.Errorf("an unknown role: %v", err)
	}
}

// TestInstanceIsForOneUse: only a token has the role of an instance that joins. An admin gives it, and the join spends
// it.
func TestInstanceIsForOneUse(t *testing.T) {
	t.Parallel()

	for _, role := range Roles {
		_, err := ParseReusable(string(role))
		if (err == nil) != (role != RoleInstance) {
			t.Errorf("%s: %v", role, err)
		}
		if covers(role, RoleInstance) != (role == RoleAdmin) {
			t.Errorf("%s gives invitations: %t", role, covers(role, RoleInstance))
		}
	}

	for _, id := range []Identity{
		{Role: RoleAdmin, Credential: CredentialSocket},
		{Role: RoleInstance, Credential: CredentialPlainHTTP},
		{Role: RoleInstance, Credential: certificateCredential("f")},
	} {
		if err := Spend(nil, id); inventory.KindOf(err) != inventory.KindUnauthenticated {
			t.Errorf("%+v joins: %v", id, err)
		}
	}
}

// TestCheckObserver: a monitor reports under the name of its credential only.
func TestCheckObserver(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		id   Identity
		want inventory.Kind
	}{
		"certificate": {Identity{Principal: "certificate:rack1", Credential: "certificate:ff"}, ""},
		"token":       {Identity{Principal: "token:rack1", Credential: "token:ff"}, ""},
		"plain HTTP":  {Identity{Principal: "http:127.0.0.1:1", Credential: CredentialPlainHTTP}, ""},
		"another":     {Identity{Principal: "token:rack10", Credential: "token:ff"}, inventory.KindForbidden},
		"prefix":      {Identity{Principal: "token:rack", Credential: "token:ff"}, inventory.KindForbidden},
		"no name":     {Identity{Principal: "rack1", Credential: "token:ff"}, inventory.KindForbidden},
		"empty name":  {Identity{Principal: "token:", Credential: "token:ff"}, inventory.KindForbidden},
		"none":        {Identity{Principal: "rack1"}, inventory.KindForbidden},
	} {
		tt.id.Role = RoleMonitor
		if err := CheckObserver(tt.id, "rack1"); inventory.KindOf(err) != tt.want {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}

		tt.id.Role = RoleOperator
		if err := CheckObserver(tt.id, "rack1"); err != nil {
			t.Errorf("%s, as operator: %v", name, err)
		}
	}
}
