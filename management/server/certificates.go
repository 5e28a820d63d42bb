// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
)

// Certificates lists and revokes client certificates; see access.Certificates.
type Certificates interface {
	List() ([]access.Certificate, error)
	Revoke(ctx context.Context, c access.Caller, ref string) (revision int64, warnings []string, err error)
}

func (s *Server) certificateRoutes() []rest.Route {
	return []rest.Route{
		list(s, certificateListing, s.getCertificates, rest.Route{
			Path: api.PathCertificates, Allow: access.Admins,
			Doc: &openapi.Doc{
				ID: "listCertificates", Summary: "List the client certificates",
				Text: "Returns the certificates that the CA of this manager has issued, and all that are revoked, " +
					"by name. One of a site's own CA is known once it is revoked. A damaged copy of an issued one " +
					"is left out; the health names it.",
				Success: "The certificates.",
			},
		}),
		act(s, s.deleteCertificate, rest.Route{
			Method: http.MethodDelete, Path: api.PathCertificate, Allow: access.Admins,
			Doc: &openapi.Doc{
				ID: "revokeCertificate", Summary: "Revoke client certificates",
				Text: "The certificates are refused from now on, on open connections as well, and their open " +
					"streams end. A name stands for all certificates with it; one that is issued later is valid. A " +
					"revocation is for good. A warning names a certificate that cannot be read and may have the " +
					"name.",
				Path: []openapi.Param{{
					Name: "id", Example: "serial:5a2b64cc0f19",
					Help: "The name of certificates, or the serial number of one; for one of a site's own CA " +
						"`serial:` and the hexadecimal digits.",
				}},
				Success: "The certificates are revoked.", Revision: true,
				Fails: openapi.Fails{404: ""},
			},
		}),
	}
}

var certificateListing = rest.Listing[access.Certificate]{
	Key: "serial", Default: "name", Outside: true,
	Fields: map[string]func(access.Certificate) string{
		"serial":  func(c access.Certificate) string { return c.Serial },
		"name":    func(c access.Certificate) string { return c.Name },
		"role":    func(c access.Certificate) string { return string(c.Role) },
		"issued":  func(c access.Certificate) string { return rest.SortTime(c.Issued) },
		"expires": func(c access.Certificate) string { return rest.SortTime(c.Expires) },
		"revoked": func(c access.Certificate) string { return rest.SortTime(c.Revoked) },
	},
}

// errNoCertificates is the error of a manager that serves no HTTPS.
var errNoCertificates = inventory.Errorf(inventory.KindUnavailable, "this manager checks no client certificates").
	Do("set listen in clusterm.yaml and restart clusterm")

func (s *Server) getCertificates(
	*http.Request, *state.Scoped,
) ([]access.Certificate, func(access.Certificate) api.Certificate, error) {
	if s.Certificates == nil {
		return nil, nil, errNoCertificates
	}

	all, err := s.Certificates.List()

	return all, certificateOf, err
}

func (s *Server) deleteCertificate(r *http.Request, c access.Caller, _ openapi.Empty) (api.Changed, error) {
	ref := rest.Param(r, "id")

	rest.Note(r, "certificate", ref)

	if s.Certificates == nil {
		return api.Changed{}, errNoCertificates
	}

	revision, warnings, err := s.Certificates.Revoke(r.Context(), c, ref)

	return api.Changed{Revision: revision, Warnings: warnings}, err
}

// certificateOf returns the wire form of a client certificate.
func certificateOf(c access.Certificate) api.Certificate {
	return api.Certificate{
		Serial: c.Serial, Name: c.Name, Role: string(c.Role), Scope: accessScopeOf(c.Scope),
		Issued: optionalTime(c.Issued), Expires: optionalTime(c.Expires), Revoked: optionalTime(c.Revoked),
		RevokedBy: c.RevokedBy,
	}
}
