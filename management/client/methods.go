// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"io"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// NodeFilter selects nodes: those that match every field that is not empty. In
// one field, any of the values matches.
type NodeFilter struct {
	Names  []string // unknown ones are KindNotFound, all of them named
	Status []inventory.Status
	State  []inventory.State
	Group  []string
	// Selector is over fields and labels, in the syntax of Kubernetes:
	// group=service-worker,status!=Allocated,rack in (r1,r2),!old.
	Selector string
	// Sort are the fields to sort by, - before one turns it round; none: name.
	Sort []string
	// Limit bounds the length of the page; 0: all. Continue is the
	// List.Continue of the page before.
	Limit    int
	Continue string
}

// Nodes lists nodes, or a page of them.
func (c *Client) Nodes(ctx context.Context, f NodeFilter) (api.List[api.Node], error) {
	q, err := paged(f.Sort, f.Limit, f.Continue)
	if err != nil {
		return api.List[api.Node]{}, err
	}

	q["name"] = f.Names

	q["group"] = f.Group
	for _, s := range f.Status {
		q.Add("status", string(s))
	}

	for _, s := range f.State {
		q.Add("state", string(s))
	}

	if f.Selector != "" {
		q.Set("selector", f.Selector)
	}

	var out api.List[api.Node]

	return out, c.do(ctx, call{method: http.MethodGet, path: api.PathNodes, query: q}, &out)
}

// EachNode goes through the nodes page by page, of Limit nodes or of 1 000. A
// node that does not change meanwhile is given exactly once. It ends with the
// first error.
func (c *Client) EachNode(ctx context.Context, f NodeFilter) iter.Seq2[api.Node, error] {
	if f.Limit == 0 {
		f.Limit = 1000
	}

	return func(yield func(api.Node, error) bool) {
		for {
			page, err := c.Nodes(ctx, f)
			if err != nil {
				yield(api.Node{}, err)
				return
			}

			for _, n := range page.Items {
				if !yield(n, nil) {
					return
				}
			}

			if f.Continue = page.Continue; f.Continue == "" {
				return
			}
		}
	}
}

// Node returns one node.
func (c *Client) Node(ctx context.Context, name string) (api.Node, error) {
	var out api.Node
	return out, c.do(ctx, call{method: http.MethodGet, path: api.PathNode, params: []string{name}}, &out)
}

// PatchNode changes what operators say of a node: how it is reached, its labels.
func (c *Client) PatchNode(ctx context.Context, name string, p api.NodePatch) (api.Node, error) {
	var out api.Node
	return out, c.do(ctx, call{method: http.MethodPatch, path: api.PathNode, params: []string{name}, in: p}, &out)
}

// History returns the newest entries of a node's history, newest last. limit 0:
// all that are kept.
func (c *Client) History(ctx context.Context, name string, limit int) (api.List[api.HistoryEntry], error) {
	q, err := paged(nil, limit, "")
	if err != nil {
		return api.List[api.HistoryEntry]{}, err
	}

	var out api.List[api.HistoryEntry]
	err = c.do(ctx, call{method: http.MethodGet, path: api.PathHistory, params: []string{name}, query: q}, &out)
	slices.Reverse(out.Items)

	return out, err
}

// Explain asks why a node is, or is not, in service.
func (c *Client) Explain(ctx context.Context, name string) (api.NodeExplanation, error) {
	var out api.NodeExplanation
	return out, c.do(ctx, call{method: http.MethodGet, path: api.PathExplain, params: []string{name}}, &out)
}

// Forget removes records of nodes.
func (c *Client) Forget(ctx context.Context, f api.Forget) (api.Changed, error) {
	var out api.Changed
	return out, c.do(ctx, call{method: http.MethodPost, path: api.PathForget, in: f, once: true}, &out)
}

// Report says of nodes that they are there (discovered), or that they are not.
// Either all of it is recorded or, after an error, nothing. It is a report
// without an identity: it counts until the next one about the same node.
func (c *Client) Report(ctx context.Context, discovered bool, nodes []api.LegacyEventNode) error {
	event := api.LegacyEvent{Name: string(inventory.VerbDisappeared), Nodes: nodes}
	if discovered {
		event.Name = string(inventory.VerbDiscovered)
	}

	return c.do(
		ctx,
		call{method: http.MethodPost, path: api.LegacyMonitorEvent, in: api.LegacyRequest{Event: &event}},
		nil,
	)
}

// Page is a part of a list.
type Page struct {
	// Sort are the fields to sort by, - before one turns it round.
	Sort []string
	// Limit bounds the length of the page; 0: all. Continue is the
	// List.Continue of the page before.
	Limit    int
	Continue string
}

// Groups lists the host groups, or a page of them; where nothing is asked of the
// order, in that of their configuration.
func (c *Client) Groups(ctx context.Context, page ...Page) (api.List[api.Group], error) {
	return listed[api.Group](ctx, c, api.PathGroups, page)
}

// listed gets a list that has no filters: all of it, or the page.
func listed[T any](ctx context.Context, c *Client, path string, page []Page) (out api.List[T], err error) {
	var p Page
	if len(page) > 0 {
		p = page[0]
	}

	q, err := paged(p.Sort, p.Limit, p.Continue)
	if err != nil {
		return out, err
	}

	return out, c.do(ctx, call{method: http.MethodGet, path: path, query: q}, &out)
}

// Submit asks for a job and returns it as it was accepted.
func (c *Client) Submit(ctx context.Context, r api.JobRequest) (api.Job, error) {
	var out api.Job
	return out, c.do(ctx, call{method: http.MethodPost, path: api.PathJobs, in: r, once: true}, &out)
}

// JobFilter selects jobs: those that match every field that is not empty.
type JobFilter struct {
	Status []api.JobStatus // any of them
	Node   string          // jobs about this node or address
	// Sort are the fields to sort by, - before one turns it round.
	Sort []string
	// Limit bounds the length of the page; 0: all. Continue is the
	// List.Continue of the page before.
	Limit    int
	Continue string
}

// Jobs lists jobs, without runs, hosts and variables. Where nothing is asked
// of the order, a page holds the newest that no earlier one held, the newest
// of them last.
func (c *Client) Jobs(ctx context.Context, f JobFilter) (api.List[api.Job], error) {
	q, err := paged(f.Sort, f.Limit, f.Continue)
	if err != nil {
		return api.List[api.Job]{}, err
	}

	for _, s := range f.Status {
		q.Add("status", string(s))
	}

	if f.Node != "" {
		q.Set("node", f.Node)
	}

	var out api.List[api.Job]

	err = c.do(ctx, call{method: http.MethodGet, path: api.PathJobs, query: q}, &out)
	if len(f.Sort) == 0 {
		slices.Reverse(out.Items)
	}

	return out, err
}

// Job returns one job with everything; id may be "active" or "last".
func (c *Client) Job(ctx context.Context, id string) (api.Job, error) {
	var out api.Job

	err := c.do(ctx, call{method: http.MethodGet, path: api.PathJob, params: []string{id}}, &out)
	for _, vars := range out.Vars {
		nativeMerged(vars)
	}

	return out, err
}

// Cancel asks a job to stop; asking again skips its cleanup.
func (c *Client) Cancel(ctx context.Context, id string) (api.Job, error) {
	var out api.Job
	return out, c.do(ctx, call{method: http.MethodPost, path: api.PathCancel, params: []string{id}, once: true}, &out)
}

// Retry asks for an ended job once more, with the inputs it was accepted with.
func (c *Client) Retry(ctx context.Context, id string, r api.Retry) (api.Job, error) {
	var out api.Job
	return out, c.do(
		ctx,
		call{method: http.MethodPost, path: api.PathRetry, params: []string{id}, in: r, once: true},
		&out,
	)
}

// ExplainJob asks why a job is as it is; id may be "active" or "last".
func (c *Client) ExplainJob(ctx context.Context, id string) (api.JobExplanation, error) {
	var out api.JobExplanation
	return out, c.do(ctx, call{method: http.MethodGet, path: api.PathExplainJob, params: []string{id}}, &out)
}

// waitStep is how long the daemon is asked to wait at a time.
const waitStep = 25 * time.Second

// WaitJob waits until the job has ended and returns it, without variables. It
// survives a restart of the daemon, as long as Options.Patience. each, where
// given, sees every change of the job's record on the way, and its end.
func (c *Client) WaitJob(ctx context.Context, id string, each ...func(api.Job)) (api.Job, error) {
	p := c.patience()
	q := url.Values{"vars": {"false"}} // the first answer is what is now

	after := int64(-1)
	for {
		var j api.Job

		err := c.do(
			ctx,
			call{method: http.MethodGet, path: api.PathJob, params: []string{id}, query: q, extra: waitStep},
			&j,
		)
		if err != nil {
			if err := p.wait(ctx, err); err != nil {
				return api.Job{}, err
			}

			continue
		}

		p.reset()

		if j.Revision != after {
			for _, f := range each {
				f(j)
			}
		}

		if j.Status.Ended() {
			return j, nil
		}

		id, after = j.ID, j.Revision // "active" may be another one by now
		q.Set("wait", waitStep.String())

		if len(each) > 0 {
			q.Set("after", strconv.FormatInt(after, 10))
		}
	}
}

// Scope is what variables apply to.
type Scope struct {
	path   string
	params []string
}

// The scopes.
var ScopeGlobal = Scope{path: api.PathGlobalVars}

// ScopeGroup is one group.
func ScopeGroup(name string) Scope { return Scope{api.PathGroupVars, []string{name}} }

// ScopeNode is one node.
func ScopeNode(name string) Scope { return Scope{api.PathNodeVars, []string{name}} }

// Vars returns the variables that are set for the scope itself.
func (c *Client) Vars(ctx context.Context, s Scope) (api.Vars, error) {
	vars, _, err := c.TaggedVars(ctx, s)
	return vars, err
}

// TaggedVars returns the variables that are set for the scope itself, and their
// tag for IfMatch.
func (c *Client) TaggedVars(ctx context.Context, s Scope) (vars api.Vars, tag string, err error) {
	vars = api.Vars{}
	err = c.do(ctx, call{method: http.MethodGet, path: s.path, params: s.params, tag: &tag}, &vars)
	native(vars)

	return vars, tag, err
}

// SetVars replaces the variables of the scope.
func (c *Client) SetVars(ctx context.Context, s Scope, vars api.Vars) (api.Changed, error) {
	if vars == nil {
		vars = api.Vars{}
	}

	var out api.Changed

	return out, c.do(ctx, call{method: http.MethodPut, path: s.path, params: s.params, in: vars}, &out)
}

// PatchVars sets the variables that the patch names and unsets those that it
// gives as nil.
func (c *Client) PatchVars(ctx context.Context, s Scope, patch api.Vars) (api.Changed, error) {
	if patch == nil {
		patch = api.Vars{}
	}

	var out api.Changed

	return out, c.do(ctx, call{method: http.MethodPatch, path: s.path, params: s.params, in: patch}, &out)
}

// MergedVars returns the variables that a node gets, with their origin.
func (c *Client) MergedVars(ctx context.Context, node string) (api.MergedVars, error) {
	out := api.MergedVars{}
	err := c.do(
		ctx,
		call{
			method: http.MethodGet,
			path:   api.PathNodeVars,
			params: []string{node},
			query:  url.Values{"merged": {"true"}},
		},
		&out,
	)
	nativeMerged(out)

	return out, err
}

// Config returns the configuration in force.
func (c *Client) Config(ctx context.Context) (api.Config, error) {
	return c.config(ctx, call{method: http.MethodGet, path: api.PathConfig})
}

// TaggedConfig returns the configuration in force, and the tag of what of it
// can be changed here, for IfMatch.
func (c *Client) TaggedConfig(ctx context.Context) (config api.Config, tag string, err error) {
	config, err = c.config(ctx, call{method: http.MethodGet, path: api.PathConfig, tag: &tag})
	return config, tag, err
}

// PatchConfig sets keys in the configuration's overlay, and takes those out
// that the patch gives as nil. It returns the configuration then in force.
func (c *Client) PatchConfig(ctx context.Context, patch map[string]any) (api.Config, error) {
	if patch == nil {
		patch = map[string]any{}
	}

	return c.config(ctx, call{method: http.MethodPatch, path: api.PathConfig, in: patch})
}

func (c *Client) config(ctx context.Context, k call) (api.Config, error) {
	out := api.Config{}

	err := c.do(ctx, k, &out)
	for key, s := range out {
		s.Value = native(s.Value)
		out[key] = s
	}

	return out, err
}

// Instances lists the daemons that are alive, or a page of them; where nothing is
// asked of the order, the oldest first.
func (c *Client) Instances(ctx context.Context, page ...Page) (api.List[api.Instance], error) {
	return listed[api.Instance](ctx, c, api.PathInstances, page)
}

// Health asks the daemon how it is. A degraded daemon is no error.
func (c *Client) Health(ctx context.Context) (api.Health, error) {
	var out api.Health
	return out, c.do(ctx, call{method: http.MethodGet, path: api.PathHealth, also: http.StatusServiceUnavailable}, &out)
}

// Metrics returns the daemon's metrics, in Prometheus' text format.
func (c *Client) Metrics(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opt.Timeout)
	defer cancel()

	res, err := c.send(ctx, call{method: http.MethodGet, path: api.PathMetrics})
	if err != nil {
		return "", c.explain(ctx, err)
	}
	defer drain(res.Body)

	text, err := io.ReadAll(res.Body)
	if err != nil {
		return "", c.explain(ctx, err)
	}

	return string(text), nil
}

// Version asks what the daemon is.
func (c *Client) Version(ctx context.Context) (api.Version, error) {
	var out api.Version
	return out, c.do(ctx, call{method: http.MethodGet, path: api.PathVersion}, &out)
}

// paged is the part of a query that all lists have in common.
func paged(sort []string, limit int, token string) (url.Values, error) {
	if limit < 0 {
		return nil, inventory.Errorf(inventory.KindInvalid, "the limit is negative: %d", limit)
	}

	q := url.Values{}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}

	if len(sort) > 0 {
		q.Set("sort", strings.Join(sort, ","))
	}

	if token != "" {
		q.Set("continue", token)
	}

	return q, nil
}
