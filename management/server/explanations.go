// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"

	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/explain"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
)

func (s *Server) getNodeExplanation(r *http.Request, v *state.Scoped) (api.NodeExplanation, int64, error) {
	name := rest.Param(r, "name")

	if _, err := v.Node(name); err != nil {
		return api.NodeExplanation{}, 0, err
	}

	e, err := s.Explain.Node(r.Context(), v.Whole(), name, explain.Reader{Name: rest.Principal(r), Sees: v})
	if err != nil {
		return api.NodeExplanation{}, 0, v.Error(err)
	}

	out := api.NodeExplanation{
		Node: s.forms(v).of(e.Node), Ready: e.Ready, Summary: e.Summary,
		StatusSince: optionalTime(e.StatusSince), StatusBy: e.StatusBy, StateSince: optionalTime(e.StateSince),
		Rule: e.Rule, Failures: e.Failures, Findings: findingsOf(e.Findings), Wait: waitOf(e.Wait), Next: e.Next,
	}

	for _, j := range e.Jobs {
		item := jobOf(j)
		s.addWaits(v, j, &item)
		out.Jobs = append(out.Jobs, item)
	}

	return out, e.Node.Revision, nil
}

func waitOf(w *explain.Wait) *api.Wait {
	if w == nil {
		return nil
	}
	return &api.Wait{For: w.For, Since: w.Since, Until: optionalTime(w.Until), Origin: w.Origin}
}

func (s *Server) getDifference(r *http.Request, v *state.Scoped) (api.Difference, int64, error) {
	name := rest.Param(r, "name")

	n, err := v.Node(name)
	if err != nil {
		return api.Difference{}, 0, err
	}

	// Its job may be one of several nodes, and the findings are those of this one.
	found, err := s.Logs.Difference(r.Context(), v.Whole(), name)
	if err != nil {
		return api.Difference{}, 0, v.Error(err)
	}
	found = found.Within(v)

	out := api.Difference{
		Node:         found.Node,
		Verification: found.Verdict,
		Tasks:        found.Tasks,
		Truncated:    found.Truncated,
	}

	return out, n.Revision, nil
}

func (s *Server) getJobExplanation(r *http.Request, v *state.Scoped) (api.JobExplanation, int64, error) {
	ref := rest.Param(r, "id")

	j, err := v.Job(ref)
	if err != nil {
		return api.JobExplanation{}, 0, err
	}
	e := s.Explain.Job(v.Whole(), v.WholeJob(j), explain.Reader{Name: rest.Principal(r), Sees: v})
	out := api.JobExplanation{
		Job: jobOf(j), Summary: e.Summary, Failures: e.Failures, Steps: e.Steps,
		Findings: findingsOf(e.Findings), Wait: waitOf(e.Wait), Next: e.Next,
	}
	s.addWaits(v, j, &out.Job)
	out.Job.CancelledByYou = j.CancelledBy(rest.Principal(r))

	return out, j.Revision, nil
}
