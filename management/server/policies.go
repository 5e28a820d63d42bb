// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"
	"slices"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/policy/leader"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
)

func (s *Server) policyRoutes() []rest.Route {
	return []rest.Route{
		{Method: http.MethodGet, Path: api.PathPolicies, Serve: s.getPolicies},
		{Method: http.MethodGet, Path: api.PathPolicy, Serve: s.getPolicy},
		{Method: http.MethodPost, Path: api.PathPausePolicy, Serve: s.controlPolicy(
			func(ctx context.Context, c access.Caller, name, reason string) (leader.Status, error) {
				return s.Policies.Pause(ctx, c, name, reason)
			})},
		{Method: http.MethodPost, Path: api.PathResumePolicy, Serve: s.controlPolicy(
			func(ctx context.Context, c access.Caller, name, reason string) (leader.Status, error) {
				return s.Policies.Resume(ctx, c, name, reason)
			})},
		{Method: http.MethodPost, Path: api.PathEnablePolicy, Serve: s.enablePolicy},
		{Method: http.MethodPost, Path: api.PathDisablePolicy, Serve: s.controlPolicy(
			func(ctx context.Context, c access.Caller, name, reason string) (leader.Status, error) {
				return s.Policies.Disable(ctx, c, name, reason)
			})},
		{Method: http.MethodPost, Path: api.PathTestPolicy, Serve: s.testPolicy},
		{Method: http.MethodPost, Path: api.PathReleaseBrake, Serve: s.controlPolicy(
			func(ctx context.Context, c access.Caller, _, reason string) (leader.Status, error) {
				return s.Policies.Release(ctx, c, reason)
			})},
	}
}

func (s *Server) getPolicies(w http.ResponseWriter, r *http.Request) error {
	if _, _, err := s.read(w, r); err != nil {
		return err
	}

	return rest.WriteTagged(w, r, 0, policiesOf(s.Policies.Status()))
}

func (s *Server) getPolicy(w http.ResponseWriter, r *http.Request) error {
	if _, _, err := s.read(w, r); err != nil {
		return err
	}

	name, err := rest.Param(r, "name")
	if err != nil {
		return err
	}

	all := s.Policies.Status().Policies
	i := slices.IndexFunc(all, func(p leader.PolicyStatus) bool { return p.Name == name })

	if i < 0 {
		return inventory.Errorf(inventory.KindNotFound, "there is no policy %q", inventory.Shorten(name, 100)).
			Do("list the policies").With(inventory.ListPolicies())
	}

	return rest.WriteTagged(w, r, 0, policyOf(all[i]))
}

// controlPolicy serves a request that changes the state of automation.
func (s *Server) controlPolicy(
	change func(ctx context.Context, c access.Caller, name, reason string) (leader.Status, error),
) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := rest.NoQuery(r); err != nil {
			return err
		}

		var body api.PolicyControl
		if err := rest.ReadJSON(w, r, &body); err != nil {
			return err
		}

		name, err := named(r)
		if err != nil {
			return err
		}

		status, err := change(r.Context(), caller(r), name, body.Reason)
		if err != nil {
			return err
		}

		rest.ShowRevision(w, s.State.View().Revision)

		return rest.WriteJSON(w, http.StatusOK, policiesOf(status))
	}
}

// named returns the policy in the path of a request; empty for the brake.
func named(r *http.Request) (string, error) {
	if r.URL.Path == api.PathReleaseBrake {
		return "", nil
	}

	return rest.Param(r, "name")
}

func policiesOf(s leader.Status) api.Policies {
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

func policyOf(p leader.PolicyStatus) api.Policy {
	return api.Policy{
		Name: p.Name, About: p.About, On: p.On, Turned: turnOf(p.Switch), Paused: pauseOf(p.Paused),
		Halted: p.Halted, Pending: p.Pending, Roles: rolesOf(p.Roles), Decisions: decisionsOf(p.Decisions),
	}
}

func rolesOf(roles []leader.RoleState) []api.PolicyRole {
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
