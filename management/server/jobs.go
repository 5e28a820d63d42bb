// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/openapi"
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
		list(s, jobListing, s.getJobs, rest.Route{
			Path: api.PathJobs, Allow: access.Readers.Scoped(),
			Query: []openapi.Param{
				{
					Name: "status", Type: openapi.Texts,
					Help: "Job statuses; case does not matter. A repeated parameter matches any of its values.",
				},
				{Name: "node", Help: "Only jobs with this node or address."},
			},
			Doc: &openapi.Doc{
				ID: "listJobs", Tag: aboutJobs, Summary: "List jobs",
				Text: "Returns jobs, newest first, without runs, hosts and variables. Only the first 100 queued " +
					"jobs show their position and the jobs ahead of them.",
				Success: "The jobs, newest first.",
			},
		}),
		act(s, s.postJob, rest.Route{
			Path: api.PathJobs, Allow: access.Operators.Scoped(), Idempotent: true,
			Doc: &openapi.Doc{
				ID: "submitJob", Tag: aboutJobs, Summary: "Submit a job",
				Text: "The manager checks the job against the status of its nodes after all jobs ahead of it. When " +
					"it accepts the job, it pins the inputs (nodes in order, playbooks, variables). The job runs " +
					"as soon as no job ahead of it holds one of its nodes. `GET /v1/jobs/{id}?wait=…` waits for " +
					"its end.\n\n" +
					"| verb | needs | does |\n" +
					"|---|---|---|\n" +
					"| `manage` | `nodes` | checks the credentials of nodes, by ssh and at their BMCs |\n" +
					"| `inspect` | `nodes` | finds the hardware facts of nodes over ssh |\n" +
					"| `install` | `nodes` | boots nodes from the network, writes an image to their disk, and waits for their agents |\n" + //nolint:lll // a row is one line
					"| `provide` | `nodes` | cleans nodes and offers them for use; with `erase` it erases their " +
					"disks |\n" +
					"| `commission` | `nodes` | configures nodes and brings them into service, in `group` or a group " +
					"of the manager's choice |\n" +
					"| `update` | `nodes` | takes nodes out of service to move them to another `group`, or to set " +
					"them up anew |\n" +
					"| `apply` | `nodes` | configures nodes in service again in place, without a cleanup first |\n" +
					"| `reapply` | `nodes` | cleans nodes in service and configures them again in their own " +
					"group |\n" +
					"| `maintenance` | `nodes` | upgrades nodes in place |\n" +
					"| `verify` | `nodes` | compares nodes with their configuration, and changes nothing |\n" +
					"| `decommission` | `nodes` | takes nodes out of service and cleans them up, best effort; also " +
					"cleans a node with `residue` again |\n" +
					"| `clear` | `nodes` | cleans up quarantined nodes and trusts them again; `force` with a " +
					"`reason` skips the cleanup |\n" +
					"| `power` | `nodes` | switches nodes, or sets what they boot from, by their BMCs: `extra_vars` " +
					"has `to` or `boot`; nodes in service need `force` with a `reason` |\n" +
					"| `forget` | `nodes` | removes the agent from nodes, then their records |\n" +
					"| `discover` | `addrs` | prepares hosts to appear as nodes |",
				Status: 202, Success: "The accepted job.", Revision: true,
				Location: "job",
				Fails: openapi.Fails{
					404: "A requested node or group does not exist.",
					409: "A rule, a status or a state forbids the job.",
					412: "A node is not in the status and group that `expect` gives.",
				},
			},
		}),
		{
			Method: http.MethodGet, Path: api.PathJob,
			Allow: access.Readers.Scoped(), Serve: s.reading(s.getJob), Streams: true,
			Query: []openapi.Param{
				{
					Name: "wait", Type: openapi.Duration, Max: int64(maxWait), Example: "30s",
					Help: "How long to wait for the job to end, at most `1m`.",
				},
				{
					Name: "after", Type: openapi.Number,
					Help: "A revision of the job's record. With `wait`, the request returns as soon as the record " +
						"is newer.",
				},
				{
					Name: "vars", Type: openapi.Flag, Default: "true",
					Help: "Whether to include the pinned variables. Default `true`.",
				},
			},
			Doc: &openapi.Doc{
				ID: "getJob", Tag: aboutJobs, Summary: "Show one job, or wait for a change",
				Text: "Returns the current job at once, or with `wait` when the job ends or the time is over. With " +
					"`after` as well, it returns as soon as the record is newer than that revision.",
				Path: []openapi.Param{jobID}, Answer: api.Job{}, Success: "The job with all its fields.",
			},
		},
		act(s, s.postCancel, rest.Route{
			Path: api.PathCancel, Allow: access.Operators.Scoped(), Conditional: true, Idempotent: true, Ends: true,
			Doc: &openapi.Doc{
				ID: "cancelJob", Tag: aboutJobs, Summary: "Cancel a job",
				Text: "A queued job ends at once. A running job stops its playbook and cleans up as after a " +
					"failure. A second cancel skips the cleanup and leaves the nodes `Quarantined`.",
				Path:     []openapi.Param{jobID},
				Success:  "The cancel is recorded; the job ends after its current step and its cleanup.",
				Revision: true, Tagged: true, Fails: openapi.Fails{409: "The job has already ended."},
			},
		}),
		act(s, s.postRetry, rest.Route{
			Path: api.PathRetry, Allow: access.Operators.Scoped(), Idempotent: true,
			Doc: &openapi.Doc{
				ID: "retryJob", Tag: aboutJobs, Summary: "Retry an ended job",
				Text: "The new job has the verb, the group, the extra variables and the options of the old one, " +
					"with the playbooks and merged variables of today: they are often the correction. " +
					"`differences` lists how both jobs differ, with names of variables only. Nodes that no verb of " +
					"the retry fits any more are left out and listed. Nodes that a failed update has taken out of " +
					"service are commissioned into the group of the update. Nodes on which an update succeeded are " +
					"left out and listed, because it would take them out of service again; `all` or `nodes` " +
					"includes them. `pinned` takes the playbooks, merged variables and tags of groups of the old " +
					"job.",
				Path: []openapi.Param{jobID}, Status: 202,
				Success: "The new job.", Revision: true, Location: "job",
				Fails: openapi.Fails{
					409: "A rule, a status or a state forbids the new job, or the old job has not ended.",
				},
			},
		}),
		show(s, s.getJobExplanation, rest.Route{
			Path: api.PathExplainJob, Allow: access.Readers.Scoped(),
			Doc: &openapi.Doc{
				ID: "explainJob", Tag: aboutJobs,
				Summary: "Explain why a job is queued, is still running, or has failed", Path: []openapi.Param{jobID},
				Success: "The explanation.",
			},
		}),
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

func (s *Server) getJobs(r *http.Request, v *state.Scoped) ([]*job.Job, func(*job.Job) api.Job, error) {
	q := rest.Query(r)

	const remedy = "the statuses of jobs are Queued, Running, Complete, Errored, Cancelled"

	statuses, err := rest.ParseEach(q.Texts("status"), parseJobStatus, remedy)
	if err != nil {
		return nil, nil, err
	}

	node := q.Text("node")
	onNode := func(t job.Target) bool { return t.Name == node || t.Addr == node }

	var found []*job.Job
	for _, j := range v.Jobs() {
		if emptyOrContains(statuses, j.Status) && (node == "" || slices.ContainsFunc(j.Targets, onNode)) {
			found = append(found, j)
		}
	}

	queued := 0

	return found, func(j *job.Job) api.Job {
		item := jobOf(*j)
		if j.Status == job.Queued {
			if queued++; queued <= listedWaits {
				s.addWaits(v, *j, &item)
			}
		}

		return item
	}, nil
}

func parseJobStatus(text string) (job.Status, error) {
	for _, status := range []job.Status{job.Queued, job.Running, job.Complete, job.Errored, job.Cancelled} {
		if strings.EqualFold(text, string(status)) {
			return status, nil
		}
	}

	return "", inventory.Errorf(inventory.KindInvalid, "%q is not a status of a job", text)
}

func (s *Server) postJob(r *http.Request, c access.Caller, body api.JobRequest) (api.Job, error) {
	request, err := jobRequest(r, body)
	if err != nil {
		return api.Job{}, err
	}
	j, err := s.Jobs.Submit(r.Context(), c, request)
	return s.accepted(r, j, err)
}

// expectedFrom returns what a request expects of its nodes.
func expectedFrom(expect map[string]api.Expected) map[string]job.Expected {
	out := make(map[string]job.Expected, len(expect))
	for name, e := range expect {
		out[name] = job.Expected(e)
	}

	return out
}

// accepted returns an accepted job, which clients follow at its location.
func (s *Server) accepted(r *http.Request, j job.Job, err error) (api.Job, error) {
	if err != nil {
		return api.Job{}, err
	}

	rest.Note(r, "job", j.ID)

	v := s.view(r.Context())
	j = v.ShowJob(j)
	out := jobOf(j)
	s.addWaits(v, j, &out)

	return out, nil
}

func (s *Server) postRetry(r *http.Request, c access.Caller, body api.Retry) (api.Job, error) {
	ref := rest.Param(r, "id")

	switch old, err := s.view(r.Context()).Job(ref); {
	case err == nil:
		ref = old.ID // "last" may be another job by the time of the retry
		rest.Note(r, "verb", old.Verb)
		rest.Note(r, "nodes", old.Names())
	case c.Key == nil:
		return api.Job{}, err
	default:
		// The job may have been removed since the first attempt with this key, and
		// the stored result of that attempt is still the answer.
	}

	rest.Note(r, "retry_of", ref)

	extra, err := legacy.ExtraVars(body.ExtraVars, configuration.ParseVars)
	if err != nil {
		return api.Job{}, err
	}

	j, err := s.Jobs.Retry(r.Context(), c, ref, job.RetryRequest{
		Extra: extra, Serial: body.Serial,
		Failed: body.Failed, All: body.All, Nodes: body.Nodes, Pinned: body.Pinned,
		Playbooks: body.Playbooks, Timeout: time.Duration(body.Timeout),
	})

	return s.accepted(r, j, err)
}

// await returns what find finds in the view: at once or, if the query asks to wait, when that has ended, or has changed
// after the revision of the query. When the time is over or the server stops, it is the latest state.
func await[T any](
	s *Server, r *http.Request, v *state.Scoped,
	find func(*state.Scoped) (T, error), at func(T) (revision int64, ended bool),
) (*state.Scoped, T, error) {
	q := rest.Query(r)

	found, err := find(v)
	if err != nil || q.Duration("wait") == 0 {
		return v, found, err
	}

	ctx, cancel := context.WithTimeout(r.Context(), q.Duration("wait"))
	defer cancel()
	defer context.AfterFunc(s.draining, cancel)()

	for {
		revision, ended := at(found)
		if ended || q.Has("after") && revision > q.Number("after") || s.State.Wait(ctx, v.Revision+1) != nil {
			return v, found, nil
		}

		v = s.view(ctx)
		if found, err = find(v); err != nil {
			return v, found, err
		}
	}
}

// getJob answers with a job: at once, or after the long poll that the query asks
// for.
func (s *Server) getJob(w http.ResponseWriter, r *http.Request, v *state.Scoped) error {
	ref := rest.Param(r, "id")

	v, j, err := await(s, r, v, func(v *state.Scoped) (job.Job, error) {
		j, err := v.Job(ref)
		if err == nil {
			ref = j.ID // "active" may be another job by then
		}
		return j, err
	}, func(j job.Job) (int64, bool) { return j.Revision, j.Status.Ended() })
	if err != nil {
		return err
	}

	out, err := s.wholeJob(r.Context(), v, j, rest.Query(r).Flag("vars"))
	if err != nil {
		return err
	}
	out.CancelledByYou = j.CancelledBy(rest.Principal(r))

	rest.ShowRevision(w, v.Revision)

	return rest.WriteTagged(w, r, j.Revision, out)
}

func (s *Server) postCancel(r *http.Request, c access.Caller, _ openapi.Empty) (api.Job, error) {
	ref := rest.Param(r, "id")

	rest.Note(r, "verb", "cancel")
	rest.Note(r, "job", ref)

	switch j, err := s.view(r.Context()).Job(ref); {
	case err == nil:
		ref = j.ID // "active" may be another job by the time of the cancel
		rest.Note(r, "job", ref)
	case c.Key == nil:
		return api.Job{}, err
	default:
		// The job may have been active at the first attempt with this key, and the
		// stored result of that attempt is still the answer.
	}

	var err error

	c.Precondition, err = precondition(r, "job "+ref, func(v *state.View) (int64, error) {
		j, err := v.Job(ref)
		return j.Revision, err
	})
	if err != nil {
		return api.Job{}, err
	}

	j, err := s.Jobs.Cancel(r.Context(), c, ref)

	return jobOf(s.view(r.Context()).ShowJob(j)), err
}
