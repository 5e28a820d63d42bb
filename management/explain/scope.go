// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"

	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

// within returns what the reader may see of the explanation, without the names of other nodes.
func (e NodeExplanation) within(s *state.Scoped) NodeExplanation {
	if s == nil || s.All() {
		return e
	}

	e.Node, e.Summary, e.Next = *s.Show(&e.Node), s.Text(e.Summary), s.Text(e.Next)
	e.StateReason, e.Wait = s.Text(e.StateReason), e.Wait.within(s)
	e.Failures, e.Findings = failuresWithin(s, e.Failures), findingsWithin(s, e.Findings)

	var jobs []job.Job

	for i := range e.Jobs {
		if e.Jobs[i].In(s) {
			jobs = append(jobs, s.ShowJob(e.Jobs[i]))
		}
	}

	e.Jobs = jobs

	return e
}

// within is the same for a job.
func (e JobExplanation) within(s *state.Scoped) JobExplanation {
	if s == nil || s.All() {
		return e
	}

	e.Job, e.Summary, e.Next, e.Steps = s.ShowJob(e.Job), s.Text(e.Summary), s.Text(e.Next), s.Texts(e.Steps)
	e.Wait = e.Wait.within(s)
	e.Failures, e.Findings = failuresWithin(s, e.Failures), findingsWithin(s, e.Findings)

	return e
}

func (w *Wait) within(s *state.Scoped) *Wait {
	if w == nil {
		return nil
	}
	return &Wait{For: s.Text(w.For), Since: w.Since, Until: w.Until, Origin: s.Text(w.Origin)}
}

func failuresWithin(s *state.Scoped, failures []api.Failure) []api.Failure {
	shown := slices.Clone(failures)
	for i, f := range failures {
		shown[i].Host, shown[i].Task, shown[i].Message = s.Text(f.Host), s.Text(f.Task), s.Text(f.Message)
	}

	return shown
}

func findingsWithin(s *state.Scoped, findings []Finding) []Finding {
	shown := slices.Clone(findings)
	for i, f := range findings {
		shown[i].Message, shown[i].Remedy = s.Text(f.Message), s.Text(f.Remedy)
		shown[i].Nodes, shown[i].Actions = s.Names(f.Nodes), s.Actions(f.Actions)
	}

	return shown
}
