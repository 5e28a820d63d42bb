// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"
	"slices"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
)

func (s *Server) policyRoutes() []rest.Route {
	return []rest.Route{
		show(s, s.getPolicies, rest.Route{
			Path: api.PathPolicies, Allow: access.Readers,
			Doc: &openapi.Doc{
				ID: "listPolicies", Summary: "Show what the manager decides by itself",
				Text: "Returns the policies, the brake, and the newest decisions with their evidence. A policy " +
					"acts as the principal `policy:NAME`.",
				Success: "The state of automation.",
			},
		}),
		show(s, s.getPolicy, rest.Route{
			Path: api.PathPolicy, Allow: access.Readers,
			Doc: &openapi.Doc{
				ID: "getPolicy", Summary: "Show a policy",
				Text: "Returns one policy and its newest decisions.", Path: []openapi.Param{policyName},
				Success: "The policy.",
			},
		}),
		act(s, s.controlPolicy(Policies.Pause), rest.Route{
			Shows: api.PathPolicies,
			Path:  api.PathPausePolicy, Allow: access.Operators,
			Doc: &openapi.Doc{
				ID: "pausePolicy", Summary: "Pause a policy",
				Text: "The policy decides nothing until it is resumed. Jobs that run go on, and what it decided " +
					"and has not begun waits. The name `all` pauses every policy. A pause is stored, so it " +
					"survives a restart.",
				Path:    []openapi.Param{policyName},
				Success: "The state of automation.", Revision: true,
			},
		}),
		act(s, s.controlPolicy(Policies.Resume), rest.Route{
			Shows: api.PathPolicies,
			Path:  api.PathResumePolicy, Allow: access.Operators,
			Doc: &openapi.Doc{
				ID: "resumePolicy", Summary: "Resume a policy",
				Text: "Ends the pause of a policy, or with the name `all` that of all. A policy goes on only when " +
					"neither itself nor all of them are paused.",
				Path:    []openapi.Param{policyName},
				Success: "The state of automation.", Revision: true,
			},
		}),
		act(s, s.enablePolicy, rest.Route{
			Shows: api.PathPolicies,
			Path:  api.PathEnablePolicy, Allow: access.Operators,
			Doc: &openapi.Doc{
				ID: "enablePolicy", Summary: "Turn a policy on",
				Text: "A policy with a selector is off until it is turned on, and again once its kind or its nodes " +
					"are others. One that is for every node needs `all`. A policy that stopped after failures goes " +
					"on, and those count no more. One that is on stays as it is.",
				Path:    []openapi.Param{policyName},
				Success: "The state of automation.", Revision: true,
				Fails: openapi.Fails{409: "The policy is for every node, and `all` is missing."},
			},
		}),
		act(s, s.controlPolicy(Policies.Disable), rest.Route{
			Shows: api.PathPolicies,
			Path:  api.PathDisablePolicy, Allow: access.Operators,
			Doc: &openapi.Doc{
				ID: "disablePolicy", Summary: "Turn a policy off",
				Text:    "The policy decides nothing until it is turned on. Jobs that run go on.",
				Path:    []openapi.Param{policyName},
				Success: "The state of automation.", Revision: true,
			},
		}),
		act(s, s.testPolicy, rest.Route{
			Path: api.PathTestPolicy, Allow: access.Operators,
			Doc: &openapi.Doc{
				ID: "testPolicy", Summary: "Test a policy",
				Text: "Returns what the policy would do if it were on and nothing held it, with the inventory of " +
					"today or with a given one. It changes nothing.",
				Path:    []openapi.Param{policyName},
				Success: "What the policy would do.",
			},
		}),
		act(s, s.releaseBrake, rest.Route{
			Shows: api.PathPolicies,
			Path:  api.PathReleaseBrake, Allow: access.Operators,
			Doc: &openapi.Doc{
				ID: "releaseBrake", Summary: "Release the brake",
				Text: "Lets automation go on after many nodes vanished at once. Absences from before the release " +
					"do not set the brake off again.",
				Success: "The state of automation.", Revision: true,
				Fails: openapi.Fails{409: "The brake is off."},
			},
		}),
	}
}

func (s *Server) getPolicies(r *http.Request, _ *state.Scoped) (api.Policies, int64, error) {
	return s.Policies.Status(), 0, nil
}

func (s *Server) getPolicy(r *http.Request, _ *state.Scoped) (api.Policy, int64, error) {
	name := rest.Param(r, "name")

	all := s.Policies.Status().Policies
	i := slices.IndexFunc(all, func(p api.Policy) bool { return p.Name == name })

	if i < 0 {
		return api.Policy{}, 0, inventory.
			Errorf(inventory.KindNotFound, "there is no policy %q", inventory.Shorten(name, 100)).
			Do("list the policies").
			With(inventory.ListPolicies())
	}

	return all[i], 0, nil
}

// controlPolicy carries out an act on one policy that takes no more than a reason.
func (s *Server) controlPolicy(
	act func(m Policies, ctx context.Context, c access.Caller, name, reason string) (api.Policies, error),
) func(*http.Request, access.Caller, api.PolicyControl) (api.Policies, error) {
	return func(r *http.Request, c access.Caller, body api.PolicyControl) (api.Policies, error) {
		return act(s.Policies, r.Context(), c, rest.Param(r, "name"), body.Reason)
	}
}

func (s *Server) releaseBrake(r *http.Request, c access.Caller, body api.PolicyControl) (api.Policies, error) {
	return s.Policies.Release(r.Context(), c, body.Reason)
}
