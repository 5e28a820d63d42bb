// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/selector"
	"github.com/contiv/cluster/management/server/legacy"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
)

// Rollouts starts and changes rollouts. The changes return when they are stored.
type Rollouts interface {
	// Preview returns the rollout that Start would start. It stores nothing.
	Preview(ctx context.Context, c access.Caller, r rollout.Request) (rollout.Record, error)
	Start(ctx context.Context, c access.Caller, r rollout.Request) (rollout.Record, error)
	// Undo starts the rollout that takes another one back.
	Undo(ctx context.Context, c access.Caller, id, reason string) (rollout.Record, error)
	Control(ctx context.Context, c access.Caller, id string, act rollout.Act, o rollout.ActOptions) (
		rollout.Record, error)
	// Remaining returns how long a rollout is expected to take from now on, if that is known.
	Remaining(r rollout.Record) (left time.Duration, known bool)
	// Held returns why the maintenance windows of a node hold it back now, or "".
	Held(v *state.View, r rollout.Record, node string) string
}

func (s *Server) rolloutRoutes() []rest.Route {
	routes := []rest.Route{
		list(s, rolloutListing, s.getRollouts, rest.Route{
			Path: api.PathRollouts, Allow: access.Readers.Scoped(),
			Doc: &openapi.Doc{
				ID: "listRollouts", Tag: aboutJobs, Summary: "List rollouts",
				Text: "Returns the rollouts, the newest first, without their nodes and events. A token with a " +
					"scope sees those of which all nodes are in its scope.",
				Success: "The rollouts.",
			},
		}),
		act(s, s.postRollout, rest.Route{
			Path: api.PathRollouts, Allow: access.Operators.Scoped(), Idempotent: true,
			Doc: &openapi.Doc{
				ID: "startRollout", Tag: aboutJobs, Summary: "Start a rollout",
				Text: "Starts an operation over many nodes: a job for each, in order. The nodes and the playbooks " +
					"are fixed from then on. It goes on over restarts, and stops when more than `max_failures` " +
					"nodes fail, or one of the canary.",
				Status: 201, Success: "The rollout.",
				Revision: true, Location: "rollout", Fails: openapi.Fails{404: "", 409: "", 412: ""},
			},
		}),
		act(s, s.previewRollout, rest.Route{
			Path: api.PathPreviewRollout, Allow: access.Operators.Scoped(),
			Doc: &openapi.Doc{
				ID: "previewRollout", Tag: aboutJobs, Summary: "Preview a rollout",
				Text: "Returns the rollout that the same request would start, with the status `Planned`. It shows " +
					"the order of the nodes, the estimate, who would be skipped, and whom a maintenance window " +
					"holds. Nothing is stored.",
				Success: "The rollout as it would be.",
				Fails:   openapi.Fails{404: "", 409: ""},
			},
		}),
		{
			Method: http.MethodGet, Path: api.PathRollout,
			Allow: access.Readers.Scoped(), Serve: s.reading(s.getRollout), Streams: true,
			Query: []openapi.Param{
				{
					Name: "wait", Type: openapi.Duration, Max: int64(maxWait),
					Help: "The longest time to wait, at most 1m.",
				},
				{Name: "after", Type: openapi.Number, Help: "Wait for a change after this revision of the rollout."},
			},
			Doc: &openapi.Doc{
				ID: "getRollout", Tag: aboutJobs, Summary: "Show a rollout",
				Text: "Returns one rollout with its nodes and events. With `wait` it answers when the rollout has " +
					"ended, or with `after` at its next change, at the latest after that time.",
				Path: []openapi.Param{rolloutID}, Answer: api.Rollout{}, Success: "The rollout.",
			},
		},
	}

	plain := func(b api.RolloutControl) rollout.ActOptions { return rollout.ActOptions{Reason: b.Reason} }

	acts := []rest.Route{
		controlRollout(s, rollout.ActPause, plain, rest.Route{Path: api.PathPauseRollout, Doc: &openapi.Doc{
			ID: "pauseRollout", Summary: "Pause a rollout",
			Text: "Begins no further node. Those in progress go on.",
		}}),
		controlRollout(s, rollout.ActResume, func(b api.RolloutResume) rollout.ActOptions {
			return rollout.ActOptions{PlaybooksNow: b.PlaybooksNow, Reason: b.Reason}
		}, rest.Route{Path: api.PathResumeRollout, Doc: &openapi.Doc{
			ID: "resumeRollout", Summary: "Resume a rollout",
			Text: "Goes on with a paused rollout, or with one that failures have stopped; those count no more.",
		}}),
		controlRollout(s, rollout.ActAbort, func(b api.RolloutAbort) rollout.ActOptions {
			return rollout.ActOptions{Cancel: b.Cancel, Reason: b.Reason}
		}, rest.Route{Path: api.PathAbortRollout, Ends: true, Doc: &openapi.Doc{
			ID: "abortRollout", Summary: "Abort a rollout",
			Text: "Ends the rollout. Its queued jobs are cancelled, and its running jobs finish, or are cancelled " +
				"with `cancel`.",
		}}),
		controlRollout(s, rollout.ActRetry, func(b api.RolloutRetry) rollout.ActOptions {
			return rollout.ActOptions{Nodes: b.Nodes, PlaybooksNow: b.PlaybooksNow, Reason: b.Reason}
		}, rest.Route{Path: api.PathRetryRollout, Doc: &openapi.Doc{
			ID: "retryRollout", Summary: "Retry nodes of a rollout",
			Text: "Begins the nodes that failed once more, or the named ones.",
		}}),
		act(s, func(r *http.Request, c access.Caller, body api.RolloutControl) (api.Rollout, error) {
			one, err := s.Rollouts.Undo(r.Context(), c, rest.Param(r, "id"), body.Reason)
			return s.changedRollout(r, one, err)
		}, rest.Route{Path: api.PathUndoRollout, Idempotent: true, Doc: &openapi.Doc{
			ID: "undoRollout", Summary: "Take a rollout back",
			Text: "Starts the rollout that brings each changed node back to the playbooks before, and " +
				"returns it.",
			Status: http.StatusCreated, Location: "rollout",
		}}),
		controlRollout(s, rollout.ActPromote, plain, rest.Route{Path: api.PathPromoteRollout, Doc: &openapi.Doc{
			ID: "promoteRollout", Summary: "Promote a rollout",
			Text: "Goes on with a rollout whose canary is done.",
		}}),
		controlRollout(s, rollout.ActApprove, plain, rest.Route{Path: api.PathApproveRollout, Doc: &openapi.Doc{
			ID: "approveRollout", Summary: "Approve a rollout",
			Text: "Lets a rollout begin that another person started with `require_approval`.",
		}}),
	}

	for _, rt := range acts {
		d := rt.Doc
		rt.Allow = access.Operators.Scoped()
		d.Tag, d.Path, d.Success = aboutJobs, []openapi.Param{rolloutID}, "The rollout."
		d.Revision, d.Fails = true, openapi.Fails{409: "", 412: ""}
		routes = append(routes, rt)
	}

	return routes
}

var rolloutListing = rest.Listing[*rollout.Record]{
	Key: "id", Default: "-created",
	Fields: map[string]func(*rollout.Record) string{
		"id":      func(r *rollout.Record) string { return r.ID },
		"action":  func(r *rollout.Record) string { return string(r.Spec.Action) },
		"status":  func(r *rollout.Record) string { return string(r.Status) },
		"actor":   func(r *rollout.Record) string { return r.Actor },
		"created": func(r *rollout.Record) string { return rest.SortTime(r.Created) },
	},
}

func (s *Server) getRollouts(
	_ *http.Request, v *state.Scoped,
) ([]*rollout.Record, func(*rollout.Record) api.Rollout, error) {
	show := func(one *rollout.Record) api.Rollout { return s.rolloutOf(*one) }
	return record.List(v, &rollout.Kind), show, nil
}

// getRollout answers with a rollout: at once, or after the long poll that the query asks for.
func (s *Server) getRollout(w http.ResponseWriter, r *http.Request, v *state.Scoped) error {
	v, one, err := await(s, r, v, func(v *state.Scoped) (rollout.Record, error) {
		return rollout.Get(v.View, rest.Param(r, "id"))
	}, func(r rollout.Record) (int64, bool) { return r.Revision, r.Status.Ended() })
	if err != nil {
		return err
	}

	rest.ShowRevision(w, v.Revision)

	return rest.WriteTagged(w, r, one.Revision, s.wholeRollout(v, one))
}

// rolloutRequest returns the request for a rollout. A selector without names chooses the nodes
// that the caller sees.
func (s *Server) rolloutRequest(r *http.Request, body api.RolloutRequest) (rollout.Request, error) {
	extra, err := legacy.ExtraVars(body.ExtraVars, configuration.ParseVars)
	if err != nil {
		return rollout.Request{}, err
	}
	out := rollout.Request{Spec: rolloutSpecFrom(body.Spec), Nodes: body.Nodes, Extra: extra}
	if out.Selector == "" {
		return out, nil
	}

	v := s.view(r.Context())

	chosen, err := selector.Parse(out.Selector, func(name string) error {
		_, err := v.Groups(s.Settings.Groups()).Get(name)
		return err
	})
	if err != nil || len(out.Nodes) > 0 {
		return out, err
	}
	chosen = chosen.Judging(s.judge(v))

	for _, n := range v.Nodes() {
		if chosen.Matches(n) {
			out.Nodes = append(out.Nodes, n.Name)
		}
	}

	if len(out.Nodes) == 0 {
		return out, inventory.Errorf(inventory.KindNotFound, "no node matches the selector %q",
			inventory.Shorten(out.Selector, 200)).Do("list the nodes with their labels").With(inventory.ListNodes())
	}

	return out, nil
}

func (s *Server) previewRollout(
	r *http.Request, c access.Caller, body api.RolloutRequest,
) (api.Rollout, error) {
	request, err := s.rolloutRequest(r, body)
	if err != nil {
		return api.Rollout{}, err
	}

	v := s.view(r.Context())

	one, err := s.Rollouts.Preview(r.Context(), c, request)
	if err != nil {
		return api.Rollout{}, v.Error(err)
	}
	one = one.Within(v)
	out := s.wholeRollout(v, one)

	if row, _ := inventory.TransitionOf(one.Spec.Action); row.Success == inventory.Allocated && !row.Verifies {
		for _, n := range one.Nodes {
			if text := s.Desired.Of(v.Whole()).TakenBack(v.Find(n.Name), one.ExtraNames); text != "" {
				out.Warnings = append(out.Warnings, v.Text(text))
			}
		}
	}

	return out, nil
}

func (s *Server) postRollout(r *http.Request, c access.Caller, body api.RolloutRequest) (api.Rollout, error) {
	request, err := s.rolloutRequest(r, body)
	if err != nil {
		return api.Rollout{}, err
	}
	one, err := s.Rollouts.Start(r.Context(), c, request)
	return s.changedRollout(r, one, err)
}

// controlRollout returns the route of an act on one rollout, with a body of type B that has the options.
func controlRollout[B any](
	s *Server, what rollout.Act, options func(B) rollout.ActOptions, rt rest.Route,
) rest.Route {
	rt.Idempotent = true

	return act(s, func(r *http.Request, c access.Caller, body B) (api.Rollout, error) {
		one, err := s.Rollouts.Control(r.Context(), c, rest.Param(r, "id"), what, options(body))
		return s.changedRollout(r, one, err)
	}, rt)
}

// changedRollout returns a rollout that was started or changed.
func (s *Server) changedRollout(r *http.Request, one rollout.Record, err error) (api.Rollout, error) {
	if id := cmp.Or(one.ID, rest.Param(r, "id")); id != "" {
		rest.Note(r, "rollout", id)
	}

	if err != nil {
		return api.Rollout{}, err
	}

	v := s.view(r.Context())

	return s.wholeRollout(v, one.Within(v)), nil
}

// rolloutSpecFrom returns the specification behind its wire form.
func rolloutSpecFrom(in api.RolloutSpec) rollout.Spec {
	out := rollout.Spec{
		Action: in.Action, Selector: in.Selector, Group: in.Group, MaxUnavailable: in.MaxUnavailable,
		MaxFailures: in.MaxFailures, Canary: in.Canary, Promote: in.Promote, Soak: time.Duration(in.Soak),
		RequireApproval: in.RequireApproval, SharedOptions: in.SharedOptions, Timeout: time.Duration(in.Timeout),
	}

	if in.Order != nil {
		out.Order = rollout.Order{By: rollout.By(in.Order.By), Label: in.Order.Label}
	}

	for group, one := range in.Strategies {
		if out.Strategies == nil {
			out.Strategies = map[string]rollout.Strategy{}
		}

		out.Strategies[group] = rollout.Strategy{
			MaxUnavailable: one.MaxUnavailable, MaxFailures: one.MaxFailures, Soak: (*time.Duration)(one.Soak),
		}
	}

	if in.Gate != nil {
		out.Gate = rolloutGateFrom(*in.Gate)
	}

	return out
}

// rolloutGateFrom returns the gate behind its wire form.
func rolloutGateFrom(in api.RolloutGate) rollout.Gate {
	out := rollout.Gate{SkipVerify: in.SkipVerify}

	if h := in.HTTP; h != nil {
		out.HTTP = &rollout.HTTPCheck{
			TLS: h.TLS, Port: h.Port, Path: h.Path, Status: h.Status, Timeout: time.Duration(h.Timeout),
		}
	}

	if c := in.Command; c != nil {
		out.Command = &rollout.CommandCheck{Name: c.Name, Timeout: time.Duration(c.Timeout)}
	}

	return out
}

// rolloutGateOf returns the wire form of a gate; nil: the usual one.
func rolloutGateOf(in rollout.Gate) *api.RolloutGate {
	if in == (rollout.Gate{}) {
		return nil
	}

	out := &api.RolloutGate{SkipVerify: in.SkipVerify}

	if h := in.HTTP; h != nil {
		out.HTTP = &api.RolloutHTTPCheck{
			TLS: h.TLS, Port: h.Port, Path: h.Path, Status: h.Status, Timeout: api.Duration(h.Timeout),
		}
	}

	if c := in.Command; c != nil {
		out.Command = &api.RolloutCommand{Name: c.Name, Timeout: api.Duration(c.Timeout)}
	}

	return out
}

// rolloutSpecOf returns the wire form of a specification.
func rolloutSpecOf(in rollout.Spec) api.RolloutSpec {
	out := api.RolloutSpec{
		Action: in.Action, Selector: in.Selector, Group: in.Group, MaxUnavailable: in.MaxUnavailable,
		MaxFailures: in.MaxFailures, Canary: in.Canary, Promote: in.Promote, Soak: api.Duration(in.Soak),
		RequireApproval: in.RequireApproval, SharedOptions: in.SharedOptions, Timeout: api.Duration(in.Timeout),
	}

	if in.Order.By != "" {
		out.Order = &api.RolloutOrder{By: string(in.Order.By), Label: in.Order.Label}
	}

	for group, one := range in.Strategies {
		if out.Strategies == nil {
			out.Strategies = map[string]api.RolloutStrategy{}
		}

		out.Strategies[group] = api.RolloutStrategy{
			MaxUnavailable: one.MaxUnavailable, MaxFailures: one.MaxFailures, Soak: (*api.Duration)(one.Soak),
		}
	}

	out.Gate = rolloutGateOf(in.Gate)

	return out
}

// rolloutOf returns the wire form of a rollout in a list.
func (s *Server) rolloutOf(r rollout.Record) api.Rollout {
	out := rolloutRecordOf(r)

	if left, known := s.Rollouts.Remaining(r); known && !r.Status.Ended() {
		remaining := api.Duration(left.Round(time.Second))
		out.Remaining = &remaining
	}

	return out
}

// rolloutRecordOf returns the wire form of the record of a rollout, without its nodes.
func rolloutRecordOf(r rollout.Record) api.Rollout {
	count := r.Count()

	return api.Rollout{
		ID: r.ID, Status: api.RolloutStatus(r.Status), Reason: r.Reason, Waits: r.Waits,
		WaitsUntil: optionalTime(r.WaitsUntil), Spec: rolloutSpecOf(r.Spec), ExtraNames: r.ExtraNames,
		Count: api.RolloutCount{
			Total: count.Total, Waiting: count.Waiting, InProgress: count.InProgress, Done: count.Succeeded,
			Failed: count.Failed, Skipped: count.Skipped,
		},
		PlaybookDigest: r.Playbooks, Commit: r.Commit, Actor: r.Actor, Created: r.Created,
		Started: optionalTime(r.Started), Ended: optionalTime(r.Ended), Approved: rolloutMarkOf(r.Approved),
		Promoted: rolloutMarkOf(r.Promoted), CanaryDone: optionalTime(r.CanaryDone), UndoOf: r.UndoOf,
		Revision: r.Revision,
	}
}

func rolloutMarkOf(m *rollout.Mark) *api.RolloutMark {
	if m == nil {
		return nil
	}
	return &api.RolloutMark{By: m.By, At: m.At, Reason: m.Reason}
}

// wholeRollout returns the wire form of a single rollout.
func (s *Server) wholeRollout(v *state.Scoped, r rollout.Record) api.Rollout {
	out := s.rolloutOf(r)

	out.Nodes = make([]api.RolloutNode, len(r.Nodes))
	for i, n := range r.Nodes {
		out.Nodes[i] = api.RolloutNode{
			Name: n.Name, Group: n.Group, Label: n.Rack, State: string(n.State), Attempt: n.Attempt, Job: n.Job,
			Gate: n.Gate, Since: optionalTime(n.Since), Begun: optionalTime(n.Begun), Reason: n.Reason,
		}

		if n.State == rollout.Waiting && !r.Status.Ended() {
			out.Nodes[i].Window = v.Text(s.Rollouts.Held(v.Whole(), r, n.Name))
		}

		// The estimate knows no windows.
		if out.Nodes[i].Window != "" {
			out.Remaining = nil
		}
	}

	for _, e := range r.Events {
		out.Events = append(out.Events, api.RolloutEvent{
			Time: e.Time, Kind: string(e.Kind), Node: e.Node, Actor: e.Actor, Text: e.Text,
		})
	}

	slices.Reverse(out.Events)

	remedy, actions := r.Remedy(s.Desired.Of(v.Whole()).Playbooks())
	out.Remedy, out.Actions = remedy, api.ActionsOf(actions)

	return out
}
