// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/selector"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/variable"
)

const (
	// revisionTime bounds how long a read waits for min_revision, and a change
	// for the view to show it.
	revisionTime = 10 * time.Second
	// lostTime bounds how long a linearizable read waits for a store that is
	// known to be silent; it is enough for one that is just back. Where that comes
	// to be known while a read waits, it is looked at after noticeTime.
	lostTime   = time.Second
	noticeTime = 5 * time.Second
	// maxWait bounds ?wait= of a job.
	maxWait = time.Minute
	// listedWaits is for how many Queued jobs a list says what they wait for.
	listedWaits = 100
)

// v1 are the routes of the versioned API.
func (s *Server) v1() []route {
	routes := []route{
		{
			method: http.MethodGet,
			path:   api.PathNodes,
			serve:  s.getNodes,
			query:  append([]string{"name", "status", "state", "group", "selector"}, listQuery...),
		},
		{method: http.MethodGet, path: api.PathNode, serve: s.getNode},
		{method: http.MethodPatch, path: api.PathNode, serve: s.patchNode, tagged: true},
		{method: http.MethodGet, path: api.PathHistory, serve: s.getHistory, query: slices.Clone(listQuery)},
		{method: http.MethodGet, path: api.PathExplain, serve: s.getExplanation},
		{method: http.MethodPost, path: api.PathForget, serve: s.postForget, once: true},
		{method: http.MethodPost, path: api.PathObservations, serve: s.postObservations},
		{method: http.MethodGet, path: api.PathGroups, serve: s.getGroups, query: slices.Clone(listQuery)},
		{
			method: http.MethodGet,
			path:   api.PathJobs,
			serve:  s.getJobs,
			query:  append([]string{"status", "node"}, listQuery...),
		},
		{method: http.MethodPost, path: api.PathJobs, serve: s.postJob, once: true},
		{
			method: http.MethodGet,
			path:   api.PathJob,
			serve:  s.getJob,
			query:  []string{"vars", "wait", "after"},
			lasts:  true,
		},
		{method: http.MethodPost, path: api.PathCancel, serve: s.postCancel, tagged: true, once: true},
		{method: http.MethodPost, path: api.PathRetry, serve: s.postRetry, once: true},
		{method: http.MethodGet, path: api.PathExplainJob, serve: s.getJobExplanation},
		{
			method: http.MethodGet,
			path:   api.PathLog,
			serve:  s.getLog(job.StreamText, api.TypeText),
			query:  []string{"offset", "follow"},
			lasts:  true,
		},
		{
			method: http.MethodGet,
			path:   api.PathEvents,
			serve:  s.getLog(job.StreamEvents, api.TypeLines),
			query:  []string{"offset", "follow"},
			lasts:  true,
		},
		{method: http.MethodGet, path: api.PathConfig, serve: s.getConfig},
		{method: http.MethodPatch, path: api.PathConfig, serve: s.patchConfig, tagged: true},
		{method: http.MethodGet, path: api.PathInstances, serve: s.getInstances, query: slices.Clone(listQuery)},
		{
			method: http.MethodGet,
			path:   api.PathWatch,
			serve:  s.getWatch,
			query:  []string{"kinds", "name", "group", "selector", "since"},
			lasts:  true,
		},
		{method: http.MethodGet, path: api.PathHealth, serve: s.getHealth, asIs: true},
		{method: http.MethodGet, path: api.PathVersion, serve: s.getVersion, asIs: true},
		{
			method: http.MethodGet,
			path:   api.PathOpenAPI,
			serve:  s.getReference(api.PathOpenAPI, api.TypeYAML),
			asIs:   true,
		},
		{
			method: http.MethodGet,
			path:   api.PathOpenAPIJSON,
			serve:  s.getReference(api.PathOpenAPIJSON, api.TypeJSON),
			asIs:   true,
		},
		{method: http.MethodGet, path: api.PathDocs, serve: s.getReference(api.PathDocs, api.TypeHTML), asIs: true},
	}
	for _, vars := range []struct {
		path  string
		scope func(*http.Request) (state.Scope, error)
		query []string
	}{
		{api.PathGlobalVars, func(*http.Request) (state.Scope, error) { return state.ScopeGlobal, nil }, nil},
		{api.PathGroupVars, named(state.ScopeGroup), nil},
		{api.PathNodeVars, named(state.ScopeNode), []string{"merged"}},
	} {
		routes = append(
			routes,
			route{method: http.MethodGet, path: vars.path, serve: s.getVars(vars.scope), query: vars.query},
			route{
				method: http.MethodPut,
				path:   vars.path,
				serve:  s.changeVars(vars.scope, s.Variables.Set),
				tagged: true,
			},
			route{
				method: http.MethodPatch,
				path:   vars.path,
				serve:  s.changeVars(vars.scope, s.Variables.Patch),
				tagged: true,
			},
		)
	}

	for i := range routes {
		routes[i].door = doorV1
		if routes[i].method == http.MethodGet && !routes[i].asIs {
			routes[i].query = append(routes[i].query, viewQuery...)
		}
	}

	if s.Metrics != nil {
		routes = append(
			routes,
			route{
				method: http.MethodGet,
				path:   api.PathMetrics,
				door:   doorPlain,
				serve: func(w http.ResponseWriter, r *http.Request) error {
					s.Metrics.ServeHTTP(w, r)
					return nil
				},
			},
		)
	}

	return routes
}

// viewQuery are the query parameters that say how new the view has to be.
var viewQuery = []string{"min_revision", "consistency"}

// linearizable is the one value of the query parameter consistency.
const linearizable = "linearizable"

// read begins a read: it checks the query and waits until the view is as new
// as it asks for.
func (s *Server) read(w http.ResponseWriter, r *http.Request) (*state.View, url.Values, error) {
	q, err := query(r)
	if err != nil {
		return nil, nil, err
	}

	least, _, err := number(q, "min_revision")
	if err != nil {
		return nil, nil, err
	}

	consistency, err := single(q, "consistency")
	if err != nil {
		return nil, nil, err
	}

	switch consistency {
	case "":
	case linearizable:
		if err := s.newest(r.Context()); err != nil {
			return nil, nil, err
		}
	default:
		return nil, nil, inventory.Errorf(inventory.KindInvalid, "the query parameter consistency is %q", consistency).
			Do("write %s, or leave it out", linearizable)
	}

	if least > s.State.View().Revision {
		ctx, cancel := context.WithTimeout(r.Context(), revisionTime)
		defer cancel()

		if err := s.State.Wait(ctx, least); err != nil {
			if ctx.Err() == nil || r.Context().Err() != nil {
				return nil, nil, err
			}

			return nil, nil, inventory.Errorf(inventory.KindUnavailable,
				"the view has not reached revision %d within %s; it is at %d",
				least, revisionTime, s.State.View().Revision).
				Do("repeat without min_revision to see what is known")
		}
	}

	v := s.State.View()
	showRevision(w, v.Revision)

	if v.Stale {
		w.Header().Set(api.HeaderStale, "true")
	}

	return v, q, nil
}

// newest waits until the view shows everything that was acknowledged before.
func (s *Server) newest(request context.Context) error {
	patience := revisionTime
	if s.State.View().Stale {
		patience = lostTime
	}

	ctx, cancel := context.WithTimeout(request, patience)
	defer cancel()
	defer time.AfterFunc(noticeTime, func() {
		if s.State.View().Stale {
			cancel()
		}
	}).Stop()

	err := s.State.Sync(ctx)
	if err == nil || request.Err() != nil {
		return err
	}

	why := "does not answer in time"
	if s.State.View().Stale {
		why = "has said nothing for more than 3 s"
	}

	e := inventory.Errorf(inventory.KindUnavailable, "nobody can say now what is the newest: a quorum of the store %s",
		why).
		Do("repeat without consistency=linearizable to see what was known last; GET /v1/health (clusterctl health) " +
			"says what is wrong")
	e.Err = err

	return e
}

// readOne begins a read of what a parameter of the path names.
func (s *Server) readOne(
	w http.ResponseWriter,
	r *http.Request,
	parameter string,
) (*state.View, url.Values, string, error) {
	v, q, err := s.read(w, r)
	if err != nil {
		return nil, nil, "", err
	}

	name, err := param(r, parameter)

	return v, q, name, err
}

// settle waits until the view shows a change, and says its revision. That it
// takes too long changes nothing about the change.
func (s *Server) settle(w http.ResponseWriter, r *http.Request, revision int64) {
	if revision > s.State.View().Revision {
		ctx, cancel := context.WithTimeout(r.Context(), revisionTime)
		defer cancel()

		if err := s.State.Wait(ctx, revision); err != nil {
			s.Logger.WithError(err).WithField("revision", revision).Warn("the view does not show a change yet")
		}
	}

	showRevision(w, revision)
}

func showRevision(w http.ResponseWriter, revision int64) {
	w.Header().Set(api.HeaderRevision, strconv.FormatInt(revision, 10))
}

func (s *Server) getNodes(w http.ResponseWriter, r *http.Request) error {
	v, q, err := s.read(w, r)
	if err != nil {
		return err
	}

	statuses, err := parsed(
		q["status"],
		inventory.ParseStatus,
		"the statuses are "+words(
			inventory.Statuses,
			func(i int) string { return string(inventory.Statuses[i].Status) },
		),
	)
	if err != nil {
		return err
	}

	states, err := parsed(
		q["state"],
		inventory.ParseState,
		"the states are "+words(inventory.States, func(i int) string { return string(inventory.States[i].State) }),
	)
	if err != nil {
		return err
	}

	text, chosen, err := s.selected(v, q)
	if err != nil {
		return err
	}

	wanted := map[string]bool{}

	var missing []string
	for _, name := range q["name"] {
		if _, err := v.Node(name); err != nil && !slices.Contains(missing, name) {
			missing = append(missing, name)
		}

		wanted[name] = true
	}

	if len(missing) > 0 {
		return inventory.Errorf(inventory.KindNotFound, "no such node: %s", strings.Join(missing, ", ")).
			Do("see clusterctl nodes get").About(missing...)
	}

	nodes := v.Nodes
	if len(statuses)+len(states)+len(q["group"])+len(wanted) > 0 || text != "" {
		nodes = nil
		for _, n := range v.Nodes {
			if (len(wanted) == 0 || wanted[n.Name]) && oneOf(n.Status, statuses) && oneOf(n.State, states) &&
				oneOf(n.Group, q["group"]) &&
				chosen.Matches(n) {
				nodes = append(nodes, n)
			}
		}
	}

	if q.Has("fields") {
		return writeList(
			w,
			r,
			v,
			q,
			nodeList,
			viewTag(v),
			nodes,
			func(n *inventory.Node) api.Node { return nodeOf(v, *n) },
		)
	}

	page, head, err := pageOf[*inventory.Node, api.Node](r, v, q, nodeList, nodes)
	if err != nil {
		return err
	}

	if done, err := unchanged(w, r, viewTag(v)); done || err != nil {
		return err
	}

	return s.writeNodes(w, v, page, head)
}

// selected reads the query parameters group and selector: the selector's text,
// and what it means.
func (s *Server) selected(v *state.View, q url.Values) (string, selector.Selector, error) {
	checkGroup := func(g string) error {
		_, err := s.Settings.Groups().Get(g)
		// A group that is no longer configured may still have nodes.
		if err != nil && slices.ContainsFunc(v.Nodes, func(n *inventory.Node) bool { return n.Group == g }) {
			return nil
		}

		return err
	}
	for _, g := range q["group"] {
		if err := checkGroup(g); err != nil {
			return "", selector.Selector{}, err
		}
	}

	text, err := single(q, "selector")
	if err != nil {
		return "", selector.Selector{}, err
	}

	chosen, err := selector.Parse(text, checkGroup)

	return text, chosen, err
}

// oneOf tells whether there is nothing to choose from, or the value is in it.
func oneOf[T comparable](value T, of []T) bool { return len(of) == 0 || slices.Contains(of, value) }

func parsed[T any](texts []string, parse func(string) (T, error), remedy string) ([]T, error) {
	var out []T
	for _, text := range texts {
		value, err := parse(text)
		if err != nil {
			return nil, inventory.Errorf(inventory.KindInvalid, "%w", err).Do("%s", remedy)
		}

		out = append(out, value)
	}

	return out, nil
}

func words[T any](rows []T, name func(int) string) string {
	names := make([]string, len(rows))
	for i := range rows {
		names[i] = name(i)
	}

	return strings.Join(names, ", ")
}

func (s *Server) getNode(w http.ResponseWriter, r *http.Request) error {
	v, _, name, err := s.readOne(w, r, "name")
	if err != nil {
		return err
	}

	n, err := v.Node(name)
	if err != nil {
		return err
	}

	return writeTagged(w, r, n.Revision, nodeOf(v, n))
}

func (s *Server) patchNode(w http.ResponseWriter, r *http.Request) error {
	name, err := s.change(r, "name")
	if err != nil {
		return err
	}

	mention(r, "nodes", []string{name})

	var body api.NodePatch
	if err := s.readJSON(w, r, &body); err != nil {
		return err
	}

	patch := node.Patch{ForgetHostKey: body.ForgetHostKey, Labels: body.Labels}
	if body.Connection != nil {
		c := connectionFrom(*body.Connection)
		patch.Connection = &c
	}

	c := caller(r)

	c.Precondition, err = condition(r, name, func(v *state.View) (int64, error) {
		n, err := v.Node(name)
		return n.Revision, err
	})
	if err != nil {
		return err
	}

	n, err := s.Nodes.Patch(r.Context(), c, name, patch)
	if err != nil {
		return err
	}

	v := s.State.View()
	showRevision(w, v.Revision)
	w.Header().Set("ETag", recordTag(n.Revision))

	return writeJSON(w, http.StatusOK, nodeOf(v, n))
}

// change begins a request that changes something: it has no query. It returns
// the parameter of the path, "" where there is none.
func (s *Server) change(r *http.Request, parameter string) (string, error) {
	if _, err := query(r); err != nil {
		return "", err
	}

	return param(r, parameter)
}

func (s *Server) getHistory(w http.ResponseWriter, r *http.Request) error {
	v, q, name, err := s.readOne(w, r, "name")
	if err != nil {
		return err
	}

	entries, err := s.Nodes.History(r.Context(), name, 0)
	if err != nil {
		return err
	}

	return writeList(w, r, v, q, historyList, viewTag(v), entries, historyEntryOf)
}

func (s *Server) postForget(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}

	var body api.Forget
	if err := s.readJSON(w, r, &body); err != nil {
		return err
	}

	mention(r, "verb", inventory.VerbForget)
	mention(r, "nodes", body.Nodes)

	key, err := idempotencyKey(r, body)
	if err != nil {
		return err
	}

	c := caller(r)
	c.Key = key

	revision, err := s.Nodes.Forget(r.Context(), c, node.ForgetRequest{
		Nodes: body.Nodes, Force: body.Force, Reason: body.Reason,
	})
	if err != nil {
		return err
	}

	showReplayed(w, r, c)
	s.settle(w, r, revision)

	return writeJSON(w, http.StatusOK, api.Changed{Revision: revision})
}

func (s *Server) getGroups(w http.ResponseWriter, r *http.Request) error {
	v, q, err := s.read(w, r)
	if err != nil {
		return err
	}

	groups := s.Settings.Groups()

	body, err := encodeJSON(groups)
	if err != nil {
		return err
	}

	placed := make([]placedGroup, len(groups))
	for i, g := range groups {
		placed[i] = placedGroup{i, g}
	}

	// They belong to the configuration: the view's revision says nothing of them.
	return writeList(
		w,
		r,
		v,
		q,
		groupList,
		"W/"+tagOf(0, body),
		placed,
		func(g placedGroup) api.Group { return groupOf(g.group) },
	)
}

func (s *Server) getJobs(w http.ResponseWriter, r *http.Request) error {
	v, q, err := s.read(w, r)
	if err != nil {
		return err
	}

	statuses, err := parsed(
		q["status"],
		parseJobStatus,
		"the statuses of jobs are Queued, Running, Complete, Errored, Cancelled",
	)
	if err != nil {
		return err
	}

	node, err := single(q, "node")
	if err != nil {
		return err
	}

	var found []*job.Job
	for i := range v.Jobs {
		j := &v.Jobs[i]
		if !oneOf(j.Status, statuses) {
			continue
		}

		if node != "" &&
			!slices.ContainsFunc(
				j.Targets,
				func(t job.Target) bool { return t.Name == node || t.Addr == node },
			) {
			continue
		}

		found = append(found, j)
	}

	queued := 0

	return writeList(w, r, v, q, jobList, viewTag(v), found, func(j *job.Job) api.Job {
		item := jobOf(*j)
		if j.Status == job.Queued {
			if queued++; queued <= listedWaits {
				s.waits(v, *j, &item)
			}
		}

		return item
	})
}

func parseJobStatus(text string) (job.Status, error) {
	for _, status := range []job.Status{job.Queued, job.Running, job.Complete, job.Errored, job.Cancelled} {
		if strings.EqualFold(text, string(status)) {
			return status, nil
		}
	}

	return "", inventory.Errorf(inventory.KindInvalid, "%q is not a status of a job", text)
}

func (s *Server) postJob(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}

	var body api.JobRequest
	if err := s.readJSON(w, r, &body); err != nil {
		return err
	}

	mention(r, "verb", body.Verb)
	mention(r, "nodes", slices.Concat(body.Nodes, body.Addrs))

	extra, err := extraVars(body.ExtraVars)
	if err != nil {
		return err
	}

	c := caller(r)
	if c.Key, err = idempotencyKey(r, body); err != nil {
		return err
	}

	j, err := s.Jobs.Submit(r.Context(), c, job.Request{
		Verb: body.Verb, Nodes: body.Nodes, Addrs: body.Addrs, Group: body.Group, Extra: extra,
		OnFailure: body.OnFailure, Timeout: time.Duration(body.Timeout), Force: body.Force, Reason: body.Reason,
	})
	if err != nil {
		return err
	}

	showReplayed(w, r, c)

	return s.accepted(w, r, j)
}

// accepted answers a request for a job.
func (s *Server) accepted(w http.ResponseWriter, r *http.Request, j job.Job) error {
	mention(r, "job", j.ID)

	location, err := api.Path(api.PathJob, j.ID)
	if err != nil {
		return err
	}

	w.Header().Set("Location", location)
	showRevision(w, j.Revision)
	out := jobOf(j)
	s.waits(s.State.View(), j, &out)

	return writeJSON(w, http.StatusAccepted, out)
}

func (s *Server) postRetry(w http.ResponseWriter, r *http.Request) error {
	ref, err := s.change(r, "id")
	if err != nil {
		return err
	}

	var body api.Retry
	if err := s.readJSON(w, r, &body); err != nil {
		return err
	}

	c := caller(r)
	if c.Key, err = idempotencyKey(r, body); err != nil {
		return err
	}

	switch old, err := s.State.View().Job(ref); {
	case err == nil:
		ref = old.ID // "last" may be another one soon
		mention(r, "verb", old.Verb)
		mention(r, "nodes", old.Names())
	case c.Key == nil:
		return err // else it may have been there when this was asked for first
	}

	mention(r, "retry_of", ref)

	j, err := s.Jobs.Retry(r.Context(), c, ref, body.Failed)
	if err != nil {
		return err
	}

	showReplayed(w, r, c)

	return s.accepted(w, r, j)
}

func (s *Server) getExplanation(w http.ResponseWriter, r *http.Request) error {
	v, _, name, err := s.readOne(w, r, "name")
	if err != nil {
		return err
	}

	e, err := s.Explain.Node(r.Context(), v, name)
	if err != nil {
		return err
	}

	out := api.NodeExplanation{
		Node: nodeOf(
			v,
			e.Node,
		),
		Ready:       e.Ready,
		Summary:     e.Summary,
		StatusSince: when(e.StatusSince),
		StatusBy:    e.StatusBy,
		StateSince: when(
			e.StateSince,
		),
		Rule:     e.Rule,
		Failures: failuresOf(e.Failures),
		Findings: findingsOf(e.Findings),
		Next:     e.Next,
	}
	for _, j := range e.Jobs {
		item := jobOf(j)
		s.waits(v, j, &item)
		out.Jobs = append(out.Jobs, item)
	}

	return writeTagged(w, r, e.Node.Revision, out)
}

func (s *Server) getJobExplanation(w http.ResponseWriter, r *http.Request) error {
	v, _, ref, err := s.readOne(w, r, "id")
	if err != nil {
		return err
	}

	j, err := v.Job(ref)
	if err != nil {
		return err
	}

	e := s.Explain.Job(v, j)
	out := api.JobExplanation{
		Job: jobOf(
			j,
		),
		Summary:  e.Summary,
		Failures: failuresOf(e.Failures),
		Steps:    e.Steps,
		Findings: findingsOf(e.Findings),
		Next:     e.Next,
	}
	s.waits(v, j, &out.Job)

	return writeTagged(w, r, j.Revision, out)
}

// extraVars reads an object, or a string that holds one as JSON or YAML.
func extraVars(raw json.RawMessage) (configuration.Vars, error) {
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return nil, nil
	case raw[0] == '"':
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, inventory.Errorf(inventory.KindInvalid, "extra_vars cannot be read: %w", err)
		}

		raw = []byte(text)
	case raw[0] != '{':
		return nil, inventory.Errorf(inventory.KindInvalid,
			"extra_vars is neither an object nor a string that holds one").
			Do(`write it like {"name": "value"}`)
	}

	vars, err := configuration.ParseVars(raw)
	if e, ok := errors.AsType[*inventory.Error](err); ok {
		within := *e
		within.Message = "extra_vars: " + e.Message

		return nil, &within
	}

	return vars, err
}

// getJob answers with a job. With wait it does so when the job has ended, or
// with after as soon as its record is newer than that, or when the time is
// over, whatever comes first.
func (s *Server) getJob(w http.ResponseWriter, r *http.Request) error {
	v, q, ref, err := s.readOne(w, r, "id")
	if err != nil {
		return err
	}

	withVars, err := truth(q, "vars", true)
	if err != nil {
		return err
	}

	after, reportsChanges, err := number(q, "after")
	if err != nil {
		return err
	}

	wait, err := single(q, "wait")
	if err != nil {
		return err
	}

	var patience time.Duration
	if wait != "" {
		if patience, err = time.ParseDuration(wait); err != nil || patience < 0 || patience > maxWait {
			return inventory.Errorf(inventory.KindInvalid, "the query parameter wait is %q", wait).
				Do("write a duration from 0s to %s", maxWait)
		}
	}

	j, err := v.Job(ref)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	defer context.AfterFunc(s.draining, cancel)()

	for patience > 0 && !j.Status.Ended() && (!reportsChanges || j.Revision <= after) {
		if s.State.Wait(ctx, v.Revision+1) != nil {
			break // the time is over; what is known is the answer
		}

		v = s.State.View()
		if j, err = v.Job(j.ID); err != nil {
			return err
		}
	}

	out, err := s.wholeJob(r.Context(), v, j, withVars)
	if err != nil {
		return err
	}

	showRevision(w, v.Revision)

	return writeTagged(w, r, j.Revision, out)
}

func (s *Server) postCancel(w http.ResponseWriter, r *http.Request) error {
	ref, err := s.change(r, "id")
	if err != nil {
		return err
	}

	if err := s.readNothing(w, r); err != nil {
		return err
	}

	mention(r, "verb", "cancel")
	mention(r, "job", ref)

	c := caller(r)
	if c.Key, err = idempotencyKey(r, nil); err != nil {
		return err
	}

	switch j, err := s.State.View().Job(ref); {
	case err == nil:
		ref = j.ID // "active" may be another one soon
		mention(r, "job", ref)
	case c.Key == nil:
		return err // else it may have been active when this was asked for first
	}

	c.Precondition, err = condition(r, "job "+ref, func(v *state.View) (int64, error) {
		j, err := v.Job(ref)
		return j.Revision, err
	})
	if err != nil {
		return err
	}

	j, err := s.Jobs.Cancel(r.Context(), c, ref)
	if err != nil {
		return err
	}

	showReplayed(w, r, c)
	showRevision(w, j.Revision)
	w.Header().Set("ETag", recordTag(j.Revision))

	return writeJSON(w, http.StatusOK, jobOf(j))
}

// named makes scopes of the path's name.
func named(scope func(string) state.Scope) func(*http.Request) (state.Scope, error) {
	return func(r *http.Request) (state.Scope, error) {
		name, err := param(r, "name")
		if err != nil {
			return "", err
		}

		return scope(name), nil
	}
}

func (s *Server) getVars(scopeOf func(*http.Request) (state.Scope, error)) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		v, q, err := s.read(w, r)
		if err != nil {
			return err
		}

		merged, err := truth(q, "merged", false)
		if err != nil {
			return err
		}

		if merged {
			name, err := param(r, "name")
			if err != nil {
				return err
			}

			n, err := v.Node(name)
			if err != nil {
				return err
			}

			return writeTagged(w, r, 0, mergedOf(s.Variables.Merger(v).Of(&n)))
		}

		scope, err := scopeOf(r)
		if err != nil {
			return err
		}

		vars, err := s.Variables.Get(scope)
		if err != nil {
			return err
		}

		if vars == nil {
			vars = configuration.Vars{}
		}

		// Whoever reads meanwhile gets a tag that is too old for what it sees; a
		// change that depends on it is refused, and no more.
		return writeTagged(w, r, v.VariablesAt[scope], vars)
	}
}

// varsChange is one way to change the variables of a scope.
type varsChange func(
	ctx context.Context, c access.Caller, s state.Scope, v configuration.Vars,
) (variable.Changed, error)

func (s *Server) changeVars(scopeOf func(*http.Request) (state.Scope, error), change varsChange) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if _, err := query(r); err != nil {
			return err
		}

		scope, err := scopeOf(r)
		if err != nil {
			return err
		}

		mention(r, "scope", scope)

		vars, err := s.readObject(w, r)
		if err != nil {
			return err
		}

		// Names only: values may be secrets.
		mention(r, "vars", slices.Sorted(maps.Keys(vars)))

		c := caller(r)

		c.Precondition, err = condition(r, "the variables of "+string(scope), func(v *state.View) (int64, error) {
			return v.VariablesAt[scope], nil
		})
		if err != nil {
			return err
		}

		changed, err := change(r.Context(), c, scope, vars)
		if err != nil {
			return err
		}

		s.settle(w, r, changed.Revision)

		return writeJSON(w, http.StatusOK, api.Changed{Revision: changed.Revision, Warnings: changed.Warnings})
	}
}

// readObject reads a body that is an object of anything, in the normal form of
// variables.
func (s *Server) readObject(w http.ResponseWriter, r *http.Request) (configuration.Vars, error) {
	var body map[string]json.RawMessage
	if err := s.readJSON(w, r, &body); err != nil {
		return nil, err
	}

	if body == nil {
		return nil, inventory.Errorf(inventory.KindInvalid, "the body has to be an object, not null").
			Do("send {} for none")
	}

	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}

	return configuration.ParseVars(raw)
}

func (s *Server) getConfig(w http.ResponseWriter, r *http.Request) error {
	v, _, err := s.read(w, r)
	if err != nil {
		return err
	}

	return writeTagged(w, r, v.ConfigAt, s.Settings.Config())
}

func (s *Server) patchConfig(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}

	patch, err := s.readObject(w, r)
	if err != nil {
		return err
	}

	mention(r, "keys", slices.Sorted(maps.Keys(patch)))

	c := caller(r)

	c.Precondition, err = condition(r, "the configuration",
		func(v *state.View) (int64, error) { return v.ConfigAt, nil })
	if err != nil {
		return err
	}

	config, err := s.Settings.Patch(r.Context(), c, patch)
	if err != nil {
		return err
	}

	showRevision(w, s.State.View().Revision)

	return writeJSON(w, http.StatusOK, config)
}

func (s *Server) getInstances(w http.ResponseWriter, r *http.Request) error {
	v, q, err := s.read(w, r)
	if err != nil {
		return err
	}

	byID := slices.SortedFunc(
		slices.Values(v.Instances),
		func(a, b state.Instance) int { return strings.Compare(a.ID, b.ID) },
	)

	return writeList(w, r, v, q, instanceList, viewTag(v), byID, instanceOf)
}

func (s *Server) getHealth(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}

	h := s.Health(r.Context())

	status := http.StatusOK
	if h.Status != api.HealthOK {
		status = http.StatusServiceUnavailable
	}

	return writeJSON(w, status, h)
}

func (s *Server) getVersion(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}

	return writeTagged(w, r, 0, s.Version(r.Context()))
}
