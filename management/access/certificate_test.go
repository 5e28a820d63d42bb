// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/record/recordtest"
)

// revocations returns a store with some revocations.
func revocations(t *testing.T, all ...Revocation) *recordtest.Store {
	t.Helper()

	s := recordtest.NewStore(&RevocationKind)

	for _, r := range all {
		value, err := RevocationKind.Encode(&r)
		if err == nil {
			err = s.Write(RevocationKind.PathOf(&r), value)
		}

		errtest.None(t, err)
	}

	return s
}

// silentAudit drops records.
type silentAudit struct{}

func (silentAudit) Record(context.Context, Record) {}

// certificates returns use cases that know some certificates.
func certificates(store *recordtest.Store) *Certificates {
	return NewCertificates(store, silentAudit{}, func() ([]Certificate, []error, error) {
		return []Certificate{
			{Serial: "a1", Name: "rack1", Role: RoleMonitor},
			{Serial: "a2", Name: "rack1", Role: RoleMonitor},
			{Serial: "a3", Name: "rack10", Role: RoleMonitor},
			{Serial: "a4", Name: "a1", Role: RoleViewer},
		}, nil, nil
	})
}

// TestRevokeCertificate revokes by name, by serial number, and one of another CA.
func TestRevokeCertificate(t *testing.T) {
	t.Parallel()

	for ref, want := range map[string]string{
		"rack1":                   "a1 a2",
		"rack10":                  "a3",
		"a3":                      "a3",
		"a1":                      "a1 a4", // a serial number and a name
		"serial:a1":               "a1",
		"serial:A2":               "a2",
		"serial:00:A2":            "a2",
		"serial:0f":               "f",
		"serial:5a2b64cc0f19":     "5a2b64cc0f19",
		"rack":                    "not-found",
		"5a2b64cc0f19":            "not-found", // perhaps a name with an error in it
		"":                        "not-found",
		"serial:":                 "invalid",
		"serial:0":                "invalid",
		"serial:xyz":              "invalid",
		"serial:../tokens/x":      "invalid",
		"serial:a\n":              "invalid",
		"serial:" + long("a", 41): "invalid",
	} {
		store := revocations(t)
		c := certificates(store)

		_, _, err := c.Revoke(t.Context(), Caller{Principal: "root"}, ref)

		var serials []string

		latest, _ := store.Latest()
		for serial := range record.All(latest, &RevocationKind) {
			serials = append(serials, serial)
		}

		got := strings.Join(serials, " ")
		if err != nil {
			got += string(inventory.KindOf(err))
		}
		if got != want {
			t.Errorf("%q revokes %q, want %q: %v", ref, got, want, err)
		}

		for _, serial := range serials {
			if err := c.Check(serial); inventory.KindOf(err) != inventory.KindUnauthenticated {
				t.Errorf("%q: %s is not refused: %v", ref, serial, err)
			}
		}

		if err := c.Check("ff"); err != nil {
			t.Errorf("another certificate: %v", err)
		}
	}
}

func long(text string, count int) string { return strings.Repeat(text, count) }

// TestRevocationLimit fills the store of revocations: those that have expired make room.
func TestRevocationLimit(t *testing.T) {
	t.Parallel()

	all := make([]Revocation, MaxRevocations)
	for i := range all {
		all[i].Serial = fmt.Sprintf("f%x", i)
	}

	c := certificates(revocations(t, all...))

	_, _, err := c.Revoke(t.Context(), Caller{}, "rack10")
	if inventory.KindOf(err) != inventory.KindRefused || c.Check("a3") != nil {
		t.Errorf("beyond the limit: %v", err)
	}

	all[0].Expires = time.Now().Add(-time.Hour)
	c = certificates(revocations(t, all...))

	_, _, err = c.Revoke(t.Context(), Caller{}, "rack10")
	if err != nil || c.Check("a3") == nil || c.Check("f0") != nil || c.Check("f1") == nil {
		t.Errorf("with one that has expired: %v", err)
	}
}

// TestRevokeWithoutList revokes by serial number although the issued certificates cannot
// be read.
func TestRevokeWithoutList(t *testing.T) {
	t.Parallel()

	c := NewCertificates(revocations(t), silentAudit{}, func() ([]Certificate, []error, error) {
		return nil, nil, errors.New("disk")
	})

	if _, _, err := c.Revoke(t.Context(), Caller{}, "rack1"); err == nil {
		t.Error("a name was found")
	}

	if _, _, err := c.Revoke(t.Context(), Caller{}, "serial:a1"); err != nil || c.Check("a1") == nil {
		t.Errorf("by its number: %v", err)
	}
}

// TestRevokeBesideDamage revokes by name although another certificate, which may have that
// name, cannot be read: a warning says so.
func TestRevokeBesideDamage(t *testing.T) {
	t.Parallel()

	c := NewCertificates(revocations(t), silentAudit{}, func() ([]Certificate, []error, error) {
		return []Certificate{{Serial: "a1", Name: "rack1"}}, []error{errors.New("a2.pem is damaged")}, nil
	})

	_, warnings, err := c.Revoke(t.Context(), Caller{}, "rack1")
	if err != nil || c.Check("a1") == nil || !strings.Contains(fmt.Sprint(warnings), "a2.pem") {
		t.Errorf("by name: %q, %v", warnings, err)
	}

	_, _, err = c.Revoke(t.Context(), Caller{}, "rack2")
	if inventory.KindOf(err) != inventory.KindNotFound || !strings.Contains(err.Error(), "a2.pem") {
		t.Errorf("an unknown name: %v", err)
	}

	_, warnings, err = c.Revoke(t.Context(), Caller{}, "serial:a2")
	if err != nil || c.Check("a2") == nil || warnings != nil {
		t.Errorf("by its number: %q, %v", warnings, err)
	}

	if all, err := c.List(); err != nil || len(all) != 2 {
		t.Errorf("the list: %v, %v", all, err)
	}
}

// TestScopeOfCertificate refuses a certificate of another CA with a scope in a form that
// no credential of the manager may have.
func TestScopeOfCertificate(t *testing.T) {
	t.Parallel()

	many := make([]string, maxScopeGroups+1)
	for i := range many {
		many[i] = fmt.Sprintf("g%d", i)
	}

	for what, tt := range map[string]struct {
		scope Scope
		role  Role
		want  bool
	}{
		"none":                {Scope{}, RoleOperator, true},
		"a group":             {Scope{Groups: []string{"g"}, Selector: "rack=r1"}, RoleOperator, true},
		"a comma in a group":  {Scope{Groups: []string{"g,h"}}, RoleOperator, false},
		"a group of two":      {Scope{Groups: []string{"g, selector rack=r1"}}, RoleOperator, false},
		"a control character": {Scope{Groups: []string{"g\n"}}, RoleOperator, false},
		"a group twice":       {Scope{Groups: []string{"g", "g"}}, RoleOperator, false},
		"too many groups":     {Scope{Groups: many}, RoleOperator, false},
		"a bad selector":      {Scope{Selector: "rack in ("}, RoleViewer, false},
		"a moving selector":   {Scope{Selector: "outdated=true"}, RoleViewer, false},
		"facts of the hosts":  {Scope{Selector: "facts.memory_mb>1"}, RoleViewer, false},
		"an admin":            {Scope{Groups: []string{"g"}}, RoleAdmin, false},
		"an invitation":       {Scope{}, RoleInstance, false},
	} {
		known := Certificate{Serial: "f", Name: "ann", Role: tt.role, Scope: tt.scope}

		_, err := certificates(revocations(t)).Identity(known, "Site CA")
		if tt.want != (err == nil) || !tt.want && inventory.KindOf(err) != inventory.KindForbidden {
			t.Errorf("%s: %v", what, err)
		}
	}
}
