// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/server/rest"
)

// Certificates lists and revokes client certificates; see access.Certificates.
type Certificates interface {
	List() ([]access.Certificate, error)
	Revoke(ctx context.Context, c access.Caller, ref string) (revision int64, warnings []string, err error)
}

func (s *Server) certificateRoutes() []rest.Route {
	return []rest.Route{
		{Method: http.MethodGet, Path: api.PathCertificates, Serve: s.getCertificates, Query: listQuery()},
		{Method: http.MethodDelete, Path: api.PathCertificate, Serve: s.deleteCertificate},
	}
}

var certificateListing = rest.Listing[access.Certificate]{
	Key: "serial", Default: "name",
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

func (s *Server) getCertificates(w http.ResponseWriter, r *http.Request) error {
	v, q, err := s.read(w, r)
	if err != nil {
		return err
	}

	if s.Certificates == nil {
		return errNoCertificates
	}

	all, err := s.Certificates.List()
	if err != nil {
		return err
	}

	// The issued ones are files, which have no revision.
	text, err := rest.EncodeJSON(all)
	if err != nil {
		return err
	}

	return rest.WriteList(w, r, q, certificateListing, rest.Contents[access.Certificate, api.Certificate]{
		At: snapshotOf(v), Tag: "W/" + rest.Tag(v.Revision, text), Items: all, Show: certificateOf,
	})
}

func (s *Server) deleteCertificate(w http.ResponseWriter, r *http.Request) error {
	if err := rest.NoQuery(r); err != nil {
		return err
	}

	ref, err := rest.Param(r, "id")
	if err != nil {
		return err
	}

	rest.Note(r, "certificate", ref)

	if s.Certificates == nil {
		return errNoCertificates
	}

	revision, warnings, err := s.Certificates.Revoke(r.Context(), caller(r), ref)
	if err != nil {
		return err
	}

	s.awaitView(w, r, revision)

	return rest.WriteJSON(w, http.StatusOK, api.Changed{Revision: revision, Warnings: warnings})
}

// certificateOf returns the wire form of a client certificate.
func certificateOf(c access.Certificate) api.Certificate {
	return api.Certificate{
		Serial: c.Serial, Name: c.Name, Role: string(c.Role), Scope: accessScopeOf(c.Scope),
		Issued: optionalTime(c.Issued), Expires: optionalTime(c.Expires), Revoked: optionalTime(c.Revoked),
		RevokedBy: c.RevokedBy,
	}
}
