// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/x509"
	"net/url"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
)

// Grant is what a client certificate gives to its holder. It is stored in URIs among the
// subject alternative names: one clusterm:role:ROLE, and for a scope clusterm:group:NAME,
// which may be repeated, and one clusterm:selector:SELECTOR, percent-encoded.
type Grant struct {
	Name     string // the common name of the subject
	Role     string
	Groups   []string // the scope, see access.Scope
	Selector string
}

// scheme is that of the URIs.
const scheme = "clusterm"

// The kinds of URIs, up to the value.
const (
	kindRole     = "role"
	kindGroup    = "group"
	kindSelector = "selector"
)

// uris returns the URIs of the grant.
func (g Grant) uris() []*url.URL {
	uri := func(kind, value string) *url.URL {
		return &url.URL{Scheme: scheme, Opaque: kind + ":" + url.PathEscape(value)}
	}

	all := []*url.URL{uri(kindRole, g.Role)}
	for _, group := range g.Groups {
		all = append(all, uri(kindGroup, group))
	}

	if g.Selector != "" {
		all = append(all, uri(kindSelector, g.Selector))
	}

	return all
}

// GrantOf returns the grant of a client certificate that the handshake has verified. It
// returns KindUnauthenticated for a certificate that has expired since, and KindForbidden
// for one without exactly one role, or with a URI of the manager that it does not know:
// that may be a limit. The caller checks role and scope.
func GrantOf(c *x509.Certificate, now time.Time) (Grant, error) {
	if now.After(c.NotAfter) || now.Before(c.NotBefore) {
		return Grant{}, inventory.Errorf(inventory.KindUnauthenticated,
			"the client certificate is valid from %s to %s only", c.NotBefore.UTC().Format(time.RFC3339),
			c.NotAfter.UTC().Format(time.RFC3339)).Do("renew the certificate, and check the clock of the client")
	}

	g := Grant{Name: c.Subject.CommonName}
	for _, u := range c.URIs {
		if u.Scheme != scheme {
			continue
		}

		if err := g.add(u); err != nil {
			return Grant{}, err
		}
	}

	if g.Role == "" {
		return Grant{}, errGrant("has no role")
	}

	if inventory.CheckObserver(g.Name) != nil {
		return Grant{}, errGrant("has no valid name: its subject needs a common name of letters, digits, dots, " +
			"underscores and hyphens")
	}

	return g, nil
}

// add adds the value of a URI to the grant.
func (g *Grant) add(u *url.URL) error {
	kind, text, _ := strings.Cut(u.Opaque, ":")

	value, err := url.PathUnescape(text)
	if err != nil || value == "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return errGrant("has a malformed URI among its subject alternative names")
	}

	switch {
	case kind == kindRole && g.Role == "":
		g.Role = value
	case kind == kindRole:
		return errGrant("has several roles")
	case kind == kindGroup:
		g.Groups = append(g.Groups, value)
	case kind == kindSelector && g.Selector == "":
		g.Selector = value
	case kind == kindSelector:
		return errGrant("has several selectors")
	default:
		return errGrant("has an unknown URI among its subject alternative names")
	}

	return nil
}

func errGrant(problem string) error {
	return inventory.Errorf(inventory.KindForbidden, "the client certificate %s", problem).
		Do("use a certificate with one URI %s:%s:ROLE among its subject alternative names", scheme, kindRole)
}
