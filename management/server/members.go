// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"

	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
)

// Members lets instances join and leave.
type Members interface {
	Members(ctx context.Context, r record.Reader) ([]api.Member, error)
	Invite(ctx context.Context, c access.Caller, id access.Identity, r api.InviteRequest) (api.Invite, error)
	Join(ctx context.Context, c access.Caller, id access.Identity, r api.JoinRequest) (api.JoinAnswer, error)
	Remove(ctx context.Context, c access.Caller, ref string) (revision int64, err error)
}

func (s *Server) memberRoutes() []rest.Route {
	listing := rest.ListingOf[api.Member]("id", "id", "node", "addr", "alive", "leads", "version", "joined", "etcd")
	listing.Outside = true

	return []rest.Route{
		list(s, *listing, s.getMembers, rest.Route{
			Path: api.PathMembers, Allow: access.Readers, Doc: &openapi.Doc{
				ID: "listMembers", Summary: "List the members of the manager",
				Text: "Returns every instance that belongs to the manager, alive or not, with the condition of its " +
					"etcd, which is asked now.",
				Success: "The members.",
			},
		}),
		act(s, func(r *http.Request, c access.Caller, body api.InviteRequest) (api.Invite, error) {
			return s.Members.Invite(r.Context(), c, access.IdentityOf(r.Context()), body)
		}, rest.Route{Path: api.PathInvite, Allow: access.Admins, Doc: &openapi.Doc{
			ID: "inviteMember", Summary: "Invite an instance",
			Text: "Creates a token of the role instance, with which one clusterm on another host can join, and says " +
				"where. `clusterctl instance invite` prints the command for that host.",
			Success: "The invitation.",
			Fails:   openapi.Fails{409: "The manager serves no HTTPS, or uses an existing etcd."},
		}}),
		act(s, func(r *http.Request, c access.Caller, body api.JoinRequest) (api.JoinAnswer, error) {
			rest.Note(r, "instance", body.ID)
			return s.Members.Join(r.Context(), c, access.IdentityOf(r.Context()), body)
		}, rest.Route{Path: api.PathJoin, Allow: access.Joiners, Doc: &openapi.Doc{
			ID:      "joinMember",
			Summary: "Admit an instance",
			Text: "Makes another clusterm an instance of this manager: its etcd becomes a member, and votes once " +
				"an odd number of members does. The token of the role instance is spent by it. `clusterm join` sends " +
				"this request. A request that is repeated with the same id and address is answered again.",
			Success: "The certificate and the keys of the instance. It may start now.",
			Fails: openapi.Fails{
				409: "The instance, its node or its address belongs to the manager already, the manager " +
					"has five instances, or it uses an existing etcd.",
			},
		}}),
		act(s, func(r *http.Request, c access.Caller, _ openapi.Empty) (api.Changed, error) {
			id := rest.Param(r, "id")
			rest.Note(r, "instance", id)
			revision, err := s.Members.Remove(r.Context(), c, id)
			return api.Changed{Revision: revision}, err
		}, rest.Route{Path: api.PathMember, Method: http.MethodDelete, Allow: access.Admins, Doc: &openapi.Doc{
			ID: "removeMember", Summary: "Remove an instance",
			Text: "Takes an instance away that is not alive. Its etcd is no member any more, and cannot start again " +
				"with its data.",
			Path: []openapi.Param{{
				Name: "id", Help: "The id of an instance, or the name of its node.", Example: "3f0c1d9a77be20c4",
			}},
			Success: "The instance is removed.", Revision: true,
			Fails: openapi.Fails{404: "", 409: "It is alive, or the others would be too few without it."},
		}}),
	}
}

func (s *Server) getMembers(
	r *http.Request, v *state.Scoped,
) ([]api.Member, func(api.Member) api.Member, error) {
	members, err := s.Members.Members(r.Context(), v)
	return members, func(m api.Member) api.Member { return m }, err
}
