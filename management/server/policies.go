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
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
)

func (s *Server) policyRoutes() []rest.Route {
	return []rest.Route{
		show(s, s.getPolicies, rest.Route{
			Path: api.PathPolicies,
			Doc: &openapi.Doc{
				ID: "listPolicies", Summary: "Show what the manager decides by itself",
				Text: "Returns the policies, the brake, and the newest decisions with their evidence. A policy " +
					"acts as the principal `policy:NAME`.",
				Success: "The state of automation.",
			},
		}),
		show(s, s.getPolicy, rest.Route{
			Path: api.PathPolicy,
			Doc: &openapi.Doc{
				ID: "getPolicy", Summary: "Show a policy",
				Text: "Returns one policy and its newest decisions.", Path: []openapi.Param{policyName},
				Success: "The policy.",
			},
		}),
		act(s, s.controlPolicy(Policies.Pause), rest.Route{
			Path: api.PathPausePolicy,
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
			Path: api.PathResumePolicy,
			Doc: &openapi.Doc{
				ID: "resumePolicy", Summary: "Resume a policy",
				Text: "Ends the pause of a policy, or with the name `all` that of all. A policy goes on only when " +
					"neither itself nor all of them are paused.",
				Path:    []openapi.Param{policyName},
				Success: "The state of automation.", Revision: true,
			},
		}),
		act(s, s.enablePolicy, rest.Route{
			Path: api.PathEnablePolicy,
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
			Path: api.PathDisablePolicy,
			Doc: &openapi.Doc{
				ID: "disablePolicy", Summary: "Turn a policy off",
				Text:    "The policy decides nothing until it is turned on. Jobs that run go on.",
				Path:    []openapi.Param{policyName},
				Success: "The state of automation.", Revision: true,
			},
		}),
		act(s, s.testPolicy, rest.Route{
			Path: api.PathTestPolicy,
			Doc: &openapi.Doc{
				ID: "testPolicy", Summary: "Test a policy",
				Text: "Returns what the policy would do if it were on and nothing held it, with the inventory of " +
					"today or with a given one. It changes nothing.",
				Path:    []openapi.Param{policyName},
				Success: "What the policy would do.",
			},
		}),
		act(s, s.releaseBrake, rest.Route{
			Path: api.PathReleaseBrake,
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
	return policiesOf(s.Policies.Status()), 0, nil
}

func (s *Server) getPolicy(r *http.Request, _ *state.Scoped) (api.Policy, int64, error) {
	name := rest.Param(r, "name")

	all := s.Policies.Status().Policies
	i := slices.IndexFunc(all, func(p policy.Status) bool { return p.Name == name })

	if i < 0 {
		return api.Policy{}, 0, inventory.
			Errorf(inventory.KindNotFound, "there is no policy %q", inventory.Shorten(name, 100)).
			Do("list the policies").
			With(inventory.ListPolicies())
	}

	return policyOf(all[i]), 0, nil
}

// controlPolicy carries out an act on one policy that takes no more than a reason.
func (s *Server) controlPolicy(
	act func(m Policies, ctx context.Context, c access.Caller, name, reason string) (policy.Automation, error),
) func(*http.Request, access.Caller, api.PolicyControl) (api.Policies, error) {
	return func(r *http.Request, c access.Caller, body api.PolicyControl) (api.Policies, error) {
		status, err := act(s.Policies, r.Context(), c, rest.Param(r, "name"), body.Reason)
		return policiesOf(status), err
	}
}

func (s *Server) releaseBrake(r *http.Request, c access.Caller, body api.PolicyControl) (api.Policies, error) {
	status, err := s.Policies.Release(r.Context(), c, body.Reason)
	return policiesOf(status), err
}

func policiesOf(s policy.Automation) api.Policies {
	out := api.Policies{
		Brake: brakeOf(s.Brake, s.Problem), Paused: pauseOf(s.Paused),
		Policies: make([]api.Policy, len(s.Policies)), Decisions: decisionsOf(s.Decisions),
	}

	for i, p := range s.Policies {
		out.Policies[i] = policyOf(p)
	}

	return out
}

func brakeOf(b state.Brake, message string) api.Brake {
	return api.Brake{
		Engaged: b.On, Message: message, Since: optionalTime(b.Since), Until: optionalTime(b.Until), Lost: b.Lost,
		Vanished: b.Vanish, Visible: b.Visible, Released: optionalTime(b.Released), ReleasedBy: b.ReleasedBy,
		Reason: b.Reason,
	}
}

func policyOf(p policy.Status) api.Policy {
	return api.Policy{
		Name: p.Name, About: p.About, On: p.On, Turned: turnOf(p.Switch), Paused: pauseOf(p.Paused),
		Halted: p.Halted, Pending: p.Pending, Roles: rolesOf(p.Roles), Decisions: decisionsOf(p.Decisions),
	}
}

func rolesOf(roles []policy.RoleState) []api.PolicyRole {
	var out []api.PolicyRole

	for _, r := range roles {
		role := api.PolicyRole{
			Group: r.Group, Count: r.Count, Spread: r.Spread, Places: r.Places, InService: r.InService,
			Healthy: r.Healthy, Coming: r.Coming, Surplus: r.Surplus, Silent: r.Silent, Warnings: r.Warnings,
			Notes: r.Notes,
		}

		if r.ReplaceAfter > 0 {
			role.ReplaceAfter = r.ReplaceAfter.String()
		}

		out = append(out, role)
	}

	return out
}

func turnOf(s *state.Switch) *api.PolicyTurn {
	if s == nil {
		return nil
	}

	return &api.PolicyTurn{On: s.On, Since: s.Since, Actor: s.Actor, Reason: s.Reason}
}

func pauseOf(p *state.Pause) *api.PolicyPause {
	if p == nil {
		return nil
	}

	return &api.PolicyPause{Since: p.Since, Actor: p.Actor, Reason: p.Reason}
}

func decisionsOf(decisions []state.Decision) []api.Decision {
	out := make([]api.Decision, len(decisions))
	for i, d := range decisions {
		out[i] = decisionOf(d)
	}

	return out
}

func decisionOf(d state.Decision) api.Decision {
	return api.Decision{
		ID: d.ID, Time: d.Time, Policy: d.Policy, Node: d.Node, Nodes: d.Nodes, Action: string(d.Action),
		Group: d.Group, Replaces: d.Replaces, Case: d.Case,
		Evidence: append([]string{}, d.Evidence...), Prevent: d.Prevent, Phase: string(d.Phase), Job: d.Job,
		Result: d.Result, From: d.From, Commit: d.Commit, Rollout: d.Rollout,
	}
}
