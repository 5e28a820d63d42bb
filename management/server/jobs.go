// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/server/legacy"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
)

const (
	// maxWait limits the query parameter wait of a job.
	maxWait = time.Minute
	// listedWaits is the number of Queued jobs of a list with the jobs ahead of
	// them: computing those takes time for each job.
	listedWaits = 100
)

func (s *Server) jobRoutes() []rest.Route {
	return []rest.Route{
		{Method: http.MethodGet, Path: api.PathJobs, Serve: s.getJobs, Query: listQuery("status", "node")},
		{Method: http.MethodPost, Path: api.PathJobs, Serve: s.postJob, Idempotent: true},
		{
			Method: http.MethodGet, Path: api.PathJob, Serve: s.getJob,
			Query: []string{"vars", "wait", "after"}, Streams: true,
		},
		{
			Method: http.MethodPost, Path: api.PathCancel, Serve: s.postCancel,
			Conditional: true, Idempotent: true,
		},
		{Method: http.MethodPost, Path: api.PathRetry, Serve: s.postRetry, Idempotent: true},
		{Method: http.MethodGet, Path: api.PathExplainJob, Serve: s.getJobExplanation},
	}
}

var jobListing = rest.Listing[*job.Job]{
	Key: "id", Default: "-id",
	Fields: map[string]func(*job.Job) string{
		"id":       func(j *job.Job) string { return rest.SortNumber(j.ID) },
		"verb":     func(j *job.Job) string { return string(j.Verb) },
		"status":   func(j *job.Job) string { return string(j.Status) },
		"group":    func(j *job.Job) string { return j.Group },
		"actor":    func(j *job.Job) string { return j.Actor },
		"accepted": func(j *job.Job) string { return rest.SortTime(j.Accepted) },
		"started":  func(j *job.Job) string { return rest.SortTime(j.Started) },
		"ended":    func(j *job.Job) string { return rest.SortTime(j.Ended) },
	},
}

func (s *Server) getJobs(w http.ResponseWriter, r *http.Request) error {
	v, q, err := s.read(w, r)
	if err != nil {
		return err
	}

	const remedy = "the statuses of jobs are Queued, Running, Complete, Errored, Cancelled"

	statuses, err := rest.ParseEach(q["status"], parseJobStatus, remedy)
	if err != nil {
		return err
	}

	node, err := rest.Single(q, "node")
	if err != nil {
		return err
	}

	onNode := func(t job.Target) bool { return t.Name == node || t.Addr == node }

	var found []*job.Job
	for _, j := range v.Jobs {
		if emptyOrContains(statuses, j.Status) && (node == "" || slices.ContainsFunc(j.Targets, onNode)) {
			found = append(found, j)
		}
	}

	queued := 0
	show := func(j *job.Job) api.Job {
		item := jobOf(*j)
		if j.Status == job.Queued {
			if queued++; queued <= listedWaits {
				s.addWaits(v, *j, &item)
			}
		}

		return item
	}

	at := snapshotOf(v)

	return rest.WriteList(w, r, q, jobListing, rest.Contents[*job.Job, api.Job]{
		At: at, Tag: at.Tag(), Items: found, Show: show,
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
	request, c, err := s.jobRequest(w, r)
	if err != nil {
		return err
	}

	j, err := s.Jobs.Submit(r.Context(), c, request)
	if err != nil {
		return err
	}

	showReplayed(w, r, c)

	return s.writeAccepted(w, r, j)
}

// expectedFrom returns what a request expects of its nodes.
func expectedFrom(expect map[string]api.Expected) map[string]job.Expected {
	out := make(map[string]job.Expected, len(expect))
	for name, e := range expect {
		out[name] = job.Expected(e)
	}

	return out
}

// writeAccepted answers with an accepted job.
func (s *Server) writeAccepted(w http.ResponseWriter, r *http.Request, j job.Job) error {
	rest.Note(r, "job", j.ID)

	location, err := api.Path(api.PathJob, j.ID)
	if err != nil {
		return err
	}

	// The job is accepted, not done: clients follow it at its location.
	w.Header().Set("Location", location)
	rest.ShowRevision(w, j.Revision)

	out := jobOf(j)
	s.addWaits(s.State.View(), j, &out)

	return rest.WriteJSON(w, http.StatusAccepted, out)
}

func (s *Server) postRetry(w http.ResponseWriter, r *http.Request) error {
	ref, err := changeOne(r, "id")
	if err != nil {
		return err
	}

	var body api.Retry
	if err := rest.ReadJSON(w, r, &body); err != nil {
		return err
	}

	c := caller(r)
	if c.Key, err = idempotencyKey(r, body); err != nil {
		return err
	}

	switch old, err := s.State.View().Job(ref); {
	case err == nil:
		ref = old.ID // "last" may be another job by the time of the retry

		rest.Note(r, "verb", old.Verb)
		rest.Note(r, "nodes", old.Names())
	case c.Key == nil:
		return err
	default:
		// The job may have been removed since the first attempt with this key, and
		// the stored result of that attempt is still the answer.
	}

	rest.Note(r, "retry_of", ref)

	extra, err := legacy.ExtraVars(body.ExtraVars, configuration.ParseVars)
	if err != nil {
		return err
	}

	j, err := s.Jobs.Retry(r.Context(), c, ref, job.RetryRequest{
		Extra: extra, Serial: body.Serial,
		Failed: body.Failed, All: body.All, Nodes: body.Nodes, Pinned: body.Pinned,
		Playbooks: body.Playbooks, Timeout: time.Duration(body.Timeout),
	})
	if err != nil {
		return err
	}

	showReplayed(w, r, c)

	return s.writeAccepted(w, r, j)
}

// jobWait is the long poll that the query of a job asks for.
type jobWait struct {
	limit   time.Duration // 0 answers at once
	changes bool          // answer at the first change after the revision
	after   int64
}

func jobWaitOf(q url.Values) (wait jobWait, err error) {
	if wait.after, wait.changes, err = rest.Number(q, "after"); err != nil {
		return wait, err
	}

	text, err := rest.Single(q, "wait")
	if err != nil || text == "" {
		return wait, err
	}

	if wait.limit, err = time.ParseDuration(text); err != nil || wait.limit < 0 || wait.limit > maxWait {
		return wait, inventory.Errorf(inventory.KindInvalid, "the query parameter wait is %q", text).
			Do("write a duration from 0s to %s", inventory.ShortDuration(maxWait))
	}

	return wait, nil
}

// getJob answers with a job: at once, or after the long poll that the query asks
// for.
func (s *Server) getJob(w http.ResponseWriter, r *http.Request) error {
	v, q, ref, err := s.readOne(w, r, "id")
	if err != nil {
		return err
	}

	withVars, err := rest.Bool(q, "vars", true)
	if err != nil {
		return err
	}

	wait, err := jobWaitOf(q)
	if err != nil {
		return err
	}

	j, err := v.Job(ref)
	if err != nil {
		return err
	}

	if v, j, err = s.awaitJob(r.Context(), v, j, wait); err != nil {
		return err
	}

	out, err := s.wholeJob(r.Context(), v, j, withVars)
	if err != nil {
		return err
	}

	out.CancelledByYou = j.CancelledBy(rest.Principal(r))

	rest.ShowRevision(w, v.Revision)

	return rest.WriteTagged(w, r, j.Revision, out)
}

// awaitJob blocks until the job has ended or, if the client waits for changes, has
// changed. When the time is over or the server stops, it returns the latest state.
func (s *Server) awaitJob(
	request context.Context,
	v *state.View,
	j job.Job,
	wait jobWait,
) (*state.View, job.Job, error) {
	if wait.limit == 0 {
		return v, j, nil
	}

	ctx, cancel := context.WithTimeout(request, wait.limit)
	defer cancel()
	defer context.AfterFunc(s.draining, cancel)()

	for !j.Status.Ended() && (!wait.changes || j.Revision <= wait.after) {
		if s.State.Wait(ctx, v.Revision+1) != nil {
			break
		}

		v = s.State.View()

		var err error
		if j, err = v.Job(j.ID); err != nil {
			return nil, job.Job{}, err
		}
	}

	return v, j, nil
}

func (s *Server) postCancel(w http.ResponseWriter, r *http.Request) error {
	ref, err := changeOne(r, "id")
	if err != nil {
		return err
	}

	if err := rest.ReadEmpty(w, r); err != nil {
		return err
	}

	rest.Note(r, "verb", "cancel")
	rest.Note(r, "job", ref)

	c := caller(r)
	if c.Key, err = idempotencyKey(r, nil); err != nil {
		return err
	}

	switch j, err := s.State.View().Job(ref); {
	case err == nil:
		ref = j.ID // "active" may be another job by the time of the cancel

		rest.Note(r, "job", ref)
	case c.Key == nil:
		return err
	default:
		// The job may have been active at the first attempt with this key, and the
		// stored result of that attempt is still the answer.
	}

	c.Precondition, err = precondition(r, "job "+ref, func(v *state.View) (int64, error) {
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
	rest.ShowRevision(w, j.Revision)
	w.Header().Set("ETag", rest.RecordTag(j.Revision))

	return rest.WriteJSON(w, http.StatusOK, jobOf(j))
}
