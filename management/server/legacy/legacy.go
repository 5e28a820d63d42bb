// SPDX-License-Identifier: Apache-2.0

package legacy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/merge"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/server/nodelist"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/variable"
)

// Jobs accepts jobs.
type Jobs interface {
	Submit(ctx context.Context, c access.Caller, r job.Request) (job.Job, error)
}

// Nodes records observations.
type Nodes interface {
	// Observe records all observations, or none if it refuses one.
	Observe(ctx context.Context, observer string, observations []inventory.Observation) error
}

// Variables sets and reads variables. Secrets are hidden in its results.
type Variables interface {
	Get(s state.Scope) (configuration.Vars, error)
	Set(ctx context.Context, c access.Caller, s state.Scope, v configuration.Vars) (variable.Changed, error)
	Merger(v *state.View) merge.Merger
}

// Settings shows and changes the configuration.
type Settings interface {
	Config() api.Config
	Patch(ctx context.Context, c access.Caller, patch map[string]any) (api.Config, error)
}

// Options are the use cases behind the contract. All fields are required.
type Options struct {
	View      func(ctx context.Context) *state.Scoped
	Jobs      Jobs
	Nodes     Nodes
	Variables Variables
	Settings  Settings
	// AwaitView blocks until the view shows a revision, or for some seconds.
	AwaitView func(w http.ResponseWriter, r *http.Request, revision int64)
	// Tail returns the end of the log of a job so far, of at most that many bytes.
	Tail func(ctx context.Context, job string, limit int64) (string, error)
	// StreamLog answers with the log of a job until the job ends.
	StreamLog func(w http.ResponseWriter, r *http.Request, job string) error
}

// API serves the contract of the first generation.
type API struct {
	o     Options
	infos nodelist.Cache[infoEncoder]
}

// New returns the contract on top of the use cases.
func New(o Options) *API { return &API{o: o} }

// family answers failures as the first generation did.
var family = &rest.Family{
	WriteError: writeError, Failures: map[string]string{"500": "Reason", "default": "TextProblem"},
}

// writeError answers with 500 and the reason as text. The kind is added in a
// header, which clients of the first generation ignore.
func writeError(w http.ResponseWriter, f rest.Failure) {
	w.Header().Set(api.HeaderProblem, string(f.Err.Kind))

	// The contract answers every failure with 500. Access control and its limits precede
	// it, and an error with a status of HTTP itself (405) is outside of it.
	denied := []inventory.Kind{inventory.KindUnauthenticated, inventory.KindForbidden, inventory.KindBusy}
	if !f.FixedStatus && !slices.Contains(denied, f.Err.Kind) {
		f.Problem.Status = http.StatusInternalServerError
	}

	rest.WriteTextError(w, f)
}

// Routes returns the routes of the contract. Unknown names in a body or a query
// are ignored, as the first generation did.
func (a *API) Routes() []rest.Route {
	get, post, read := http.MethodGet, http.MethodPost, access.Readers.Scoped()

	node := openapi.Param{Name: "name", Help: "The node's name, `LABEL-SERIAL`.", Example: "host2-04f4"}
	reported := openapi.Param{Name: "node", Help: node.Help, Example: "host13-e055"}
	event := openapi.Param{
		Name: "event", Help: "`discovered` or `disappeared`; case does not matter.", Example: "discovered",
	}
	job := openapi.Param{
		Name: "job", Example: "2",
		Help: "The job's number; `active` for the job accepted last of those that have not ended, or `last` for " +
			"the job that ended last.",
	}
	extra := []openapi.Param{{
		Name: "extra_vars",
		Help: "The variables, as a JSON object; refused together with `extra_vars` in the body.",
	}}

	routes := []rest.Route{
		{Method: get, Path: api.LegacyNodes, Allow: read, Serve: a.getNodes, Doc: &openapi.Doc{
			ID: "legacyNodes", Summary: "List nodes",
			Text: "An optional body selects nodes, as with POST; some clients send one.",
			Body: api.LegacyRequest{}, Optional: true, Answer: map[string]api.LegacyNodeInfo{},
			Success: "The nodes, by name.",
		}},
		{Method: post, Path: api.LegacyNodes, Allow: read, Serve: a.getNodes, ReadOnly: true, Doc: &openapi.Doc{
			ID: "legacySomeNodes", Summary: "List some nodes",
			Text: "Returns those of the named nodes that exist; an empty list selects all nodes.",
			Body: api.LegacyRequest{}, Optional: true, Answer: map[string]api.LegacyNodeInfo{},
			Success: "The nodes, by name.",
		}},
		{Method: get, Path: api.LegacyNode, Allow: read, Serve: a.getNode, Doc: &openapi.Doc{
			ID: "legacyNode", Summary: "Show one node", Path: []openapi.Param{node}, Answer: api.LegacyNodeInfo{},
			Success: "The node.",
		}},
		{Method: get, Path: api.LegacyGlobals, Allow: access.Readers, Serve: a.getGlobals, Doc: &openapi.Doc{
			ID: "legacyGlobals", Summary: "Show the globals", Answer: openapi.Ref("LegacyVars"),
			Success: "The globals.",
		}},
		{Method: get, Path: api.LegacyJob, Allow: read, Serve: a.getJob, Doc: &openapi.Doc{
			ID: "legacyJob", Summary: "Show one job", Path: []openapi.Param{job}, Answer: api.LegacyJobInfo{},
			Success: "The job.",
		}},
		{Method: get, Path: api.LegacyLogs, Allow: read, Serve: a.getLog, Streams: true, Doc: &openapi.Doc{
			ID: "legacyLogs", Summary: "Follow the output of a job to its end", Path: []openapi.Param{job},
			Answer: "", Type: api.TypeText, Success: "The output.",
		}},
		{Method: post, Path: api.LegacySetGlobals, Serve: a.setGlobals, Query: extra,
			Allow: access.ChangeGlobals, Doc: &openapi.Doc{
				ID: "legacySetGlobals", Summary: "Replace the globals",
				Text: "Requires `extra_vars`; `{}` removes all globals. What is not a JSON object changes nothing.",
				Body: api.LegacyRequest{}, Optional: true, Revision: true,
			}},
		{Method: post, Path: api.LegacyMonitorEvent, Allow: access.Reporters, Serve: a.postEvent, Doc: &openapi.Doc{
			ID: "legacyEvent", Summary: "Report that nodes appeared or disappeared",
			Text: "Records all nodes or none.", Body: openapi.Ref("LegacyReport"),
		}},
		{Method: post, Path: api.LegacyMonitorNamed, Allow: access.Reporters, Serve: a.postMembers, Doc: &openapi.Doc{
			ID: "legacyMembers", Summary: "Report that nodes appeared or disappeared, in serf's terms",
			Text: "Records all nodes or none. This path takes precedence over `/monitor/{event}/{node}`.",
			Path: []openapi.Param{event}, Body: []api.LegacyMember{},
		}},
		{Method: post, Path: api.LegacyMonitorNode, Allow: access.Reporters, Serve: a.postMember, Doc: &openapi.Doc{
			ID: "legacyMember", Summary: "Report that one node appeared or disappeared",
			Text: "The body has to name the node of the path.", Path: []openapi.Param{event, reported},
			Body: api.LegacyMember{},
		}},
		{Method: get, Path: api.LegacyConfig, Allow: access.Readers, Serve: a.getConfig, Doc: &openapi.Doc{
			ID: "legacyConfig", Summary: "Show the configuration", Answer: openapi.Ref("LegacyConfig"),
			Success: "The configuration, as a tree, with the first generation's sections `ansible` and `manager` " +
				"beside today's keys.",
		}},
		{Method: post, Path: api.LegacyConfig, Allow: access.Admins, Serve: a.setConfig, Doc: &openapi.Doc{
			ID: "legacySetConfig", Summary: "Change the configuration",
			Text: "Takes a whole configuration, as GET returns it, or a part. Unchanged keys are ignored. The first " +
				"generation's keys with an equivalent (such as `ansible.user`) set that; others are refused by name.",
			Body: api.LegacyRequest{},
		}},
	}

	for _, row := range []struct {
		verb          inventory.Verb
		many, one     string // the paths
		id            string
		summary, text string
		summaryOfOne  string
	}{
		{
			inventory.VerbDiscover, api.LegacyDiscover, "", "legacyDiscover", "Prepare hosts by address",
			"`addresses` and `addressess` are accepted as other names of `addrs`.", "",
		},
		{
			inventory.VerbUpdate, api.LegacyUpdate, "", "legacyUpdate",
			"Update nodes: move them to another group, or set them up anew",
			"Without `host_group` the nodes stay in their groups.", "",
		},
		{
			inventory.VerbCommission, api.LegacyCommission, api.LegacyCommissionOne, "legacyCommission",
			"Commission nodes",
			"Without `host_group` the manager chooses the group. An empty list or an unknown node fails the whole " +
				"request.", "Commission one node",
		},
		{
			inventory.VerbDecommission, api.LegacyDecommission, api.LegacyDecommissionOne, "legacyDecommission",
			"Decommission nodes", "", "Decommission one node",
		},
		{
			inventory.VerbMaintenance, api.LegacyMaintenance, api.LegacyMaintenanceOne, "legacyMaintenance",
			"Upgrade nodes in place", "", "Upgrade one node in place",
		},
	} {
		submit := rest.Route{
			Method: post, Path: row.many, Serve: a.submit(row.verb), Query: extra, Allow: access.Operators.Scoped(),
		}
		if row.verb == inventory.VerbDiscover {
			submit.Allow = access.Operators // it names hosts, which are in no scope
		}
		submit.Doc = &openapi.Doc{
			ID: row.id, Summary: row.summary, Text: row.text, Body: api.LegacyRequest{}, Revision: true,
		}
		routes = append(routes, submit)

		if row.one != "" {
			submit.Path, submit.Doc = row.one, &openapi.Doc{
				ID: row.id + "One", Summary: row.summaryOfOne, Text: "Does the same for the node in the path.",
				Path: []openapi.Param{node}, Body: api.LegacyRequest{}, Optional: true, Revision: true,
			}
			routes = append(routes, submit)
		}
	}

	for i := range routes {
		routes[i].Family = family

		if d := routes[i].Doc; d.Success == "" {
			d.Success = "The change is done or the job is accepted. There is no body."
		}
	}

	return routes
}

func caller(r *http.Request) access.Caller { return access.IdentityOf(r.Context()).Caller() }

// read leniently decodes an optional body into v.
func read(w http.ResponseWriter, r *http.Request, v any) error {
	if r.Method == http.MethodPost {
		if err := rest.CheckType(r); err != nil {
			return err
		}
	}

	body, err := rest.ReadBody(w, r)
	if err != nil || len(bytes.TrimSpace(body)) == 0 {
		return err
	}
	return rest.Decode(body, v, false)
}

// extraVarsOf returns the variables in the body or in the query, and whether
// the request has any, an empty object included.
func extraVarsOf(r *http.Request, body json.RawMessage) (vars configuration.Vars, given bool, err error) {
	raw := bytes.TrimSpace(body)
	if string(raw) == "null" {
		raw = nil
	}

	if asked := r.URL.Query()["extra_vars"]; len(asked) > 0 {
		if len(asked) > 1 || len(raw) > 0 {
			return nil, false, inventory.Errorf(inventory.KindInvalid, "extra_vars is given more than once").
				Do("put it into the body or into the query")
		}

		if raw, err = json.Marshal(asked[0]); err != nil {
			return nil, false, err
		}
	}

	vars, err = ExtraVars(raw, configuration.ParseJSONVars)

	return vars, !isBlank(raw), err
}

// isBlank reports whether extra_vars is absent, or a string without an object.
func isBlank(raw json.RawMessage) bool {
	if len(raw) == 0 || raw[0] != '"' {
		return len(raw) == 0
	}

	var text string

	err := json.Unmarshal(raw, &text)
	text = strings.TrimSpace(text)

	return err == nil && (text == "" || text == "null")
}

// ExtraVars parses extra_vars: an object, or a string that contains an object,
// which parse reads. The first generation reads JSON, the versioned API also YAML.
func ExtraVars(
	raw json.RawMessage, parse func([]byte) (configuration.Vars, error),
) (configuration.Vars, error) {
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return nil, nil
	case raw[0] == '"':
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, inventory.Errorf(inventory.KindInvalid, "cannot decode extra_vars: %w", err)
		}

		raw = []byte(text)
	case raw[0] != '{':
		return nil, inventory.
			Errorf(inventory.KindInvalid, "extra_vars is neither an object nor a string that contains one").
			Do(`write it like {"name": "value"}`)
	}

	vars, err := parse(raw)
	if e, ok := errors.AsType[*inventory.Error](err); ok {
		within := *e
		within.Message = "extra_vars: " + e.Message
		return nil, &within
	}

	return vars, err
}

func (a *API) submit(verb inventory.Verb) rest.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var body api.LegacyRequest
		if err := read(w, r, &body); err != nil {
			return err
		}

		name := rest.Param(r, "name")

		// Early clients put a single node into the path.
		if name != "" {
			body.Nodes = append(body.Nodes, name)
		}

		rest.Note(r, "verb", verb)
		addrs := slices.Concat(body.Addrs, body.Addresses, body.Addressess)

		request := job.Request{Verb: verb, Nodes: body.Nodes}
		switch verb { // the contract ignores fields that the verb does not have
		case inventory.VerbDiscover:
			request.Nodes, request.Addrs = nil, addrs
		case inventory.VerbCommission, inventory.VerbUpdate:
			request.Group = body.HostGroup
		}

		rest.Note(r, "nodes", slices.Concat(request.Nodes, request.Addrs))

		var err error
		if request.Extra, _, err = extraVarsOf(r, body.ExtraVars); err != nil {
			return err
		}

		j, err := a.o.Jobs.Submit(r.Context(), caller(r), request)
		if err != nil {
			return err
		}
		rest.Note(r, "job", j.ID)
		// The job is active at once.
		a.o.AwaitView(w, r, j.Revision)

		return nil
	}
}

func (a *API) getNodes(w http.ResponseWriter, r *http.Request) error {
	var body api.LegacyRequest
	if err := read(w, r, &body); err != nil {
		return err
	}

	v := a.o.View(r.Context())

	// Unknown names are ignored, as in the first generation.
	nodes := v.Nodes()
	if len(body.Nodes) > 0 {
		nodes = nil
		for _, n := range v.Nodes() {
			if slices.Contains(body.Nodes, n.Name) {
				nodes = append(nodes, n)
			}
		}
	}

	// The cache is for those who see every node.
	cache := &a.infos
	if !v.All() {
		cache = &nodelist.Cache[infoEncoder]{}
	}
	texts, err := cache.Of(v.View, nodes, infoEncoder{a.o.Variables.Merger(v.Whole())})
	if err != nil {
		return err
	}
	nodelist.Write(w, []byte("{"), texts, []byte("}\n"))

	return nil
}

func (a *API) getNode(w http.ResponseWriter, r *http.Request) error {
	name := rest.Param(r, "name")

	v := a.o.View(r.Context())

	n, err := v.Node(name)
	if err != nil {
		return err
	}
	return rest.WriteJSON(w, http.StatusOK, infoOf(a.o.Variables.Merger(v.Whole()), &n))
}

func infoOf(m merge.Merger, n *inventory.Node) api.LegacyNodeInfo {
	var out api.LegacyNodeInfo
	out.Monitoring.Label, out.Monitoring.Serial, out.Monitoring.Addr = n.Label, n.Serial, n.Addr
	out.Inventory.Name = n.Name
	out.Inventory.Status, out.Inventory.PrevStatus = statusOf(n.Status), statusOf(n.PrevStatus)

	// The first generation verified nothing: the node serves meanwhile, and its scripts rely on Allocated.
	if n.Status == inventory.Maintenance && n.Verb.Verifies() {
		out.Inventory.Status = string(inventory.Allocated)
	}

	out.Inventory.State, out.Inventory.PrevState = string(n.State), string(n.PrevState)
	out.Configuration.Name, out.Configuration.Group, out.Configuration.Addr = n.Name, n.Group, n.Addr

	out.Configuration.Vars = map[string]any{}
	for name, v := range m.Of(n) {
		out.Configuration.Vars[name] = v.Value
	}

	// The first generation listed these two among the variables.
	out.Configuration.Vars["node_name"], out.Configuration.Vars["node_addr"] = n.Name, n.Addr

	return out
}

// statusOf returns the name of a status in the contract, in which a node that is
// being decommissioned is Cancelled, and one that is not ready for use Incomplete.
func statusOf(s inventory.Status) string {
	switch s {
	case inventory.Decommissioning:
		return "Cancelled"
	case inventory.Enrolled, inventory.Verifying, inventory.Manageable, inventory.Inspecting, inventory.Installing,
		inventory.Cleaning:
		return "Incomplete"
	}

	return string(s)
}

// infoEncoder encodes nodes as members of the object that /info/nodes returns.
type infoEncoder struct{ merger merge.Merger }

func (e infoEncoder) Alike(older infoEncoder) func(*inventory.Node) bool {
	return e.merger.Alike(older.merger)
}

func (e infoEncoder) Encode(n *inventory.Node) ([]byte, error) {
	b, err := rest.EncodeJSON(map[string]api.LegacyNodeInfo{n.Name: infoOf(e.merger, n)})
	if err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(bytes.TrimPrefix(b, []byte("{")), []byte("}\n")), nil
}

func (a *API) getGlobals(w http.ResponseWriter, _ *http.Request) error {
	vars, err := a.o.Variables.Get(state.ScopeGlobal)
	if err != nil {
		return err
	}
	if vars == nil {
		vars = configuration.Vars{}
	}
	return rest.WriteJSON(w, http.StatusOK, map[string]any{"extra_vars": vars})
}

func (a *API) setGlobals(w http.ResponseWriter, r *http.Request) error {
	var body api.LegacyRequest
	if err := read(w, r, &body); err != nil {
		return err
	}

	vars, given, err := extraVarsOf(r, body.ExtraVars)
	if err != nil {
		return err
	}

	// A misspelled name would remove all globals.
	if !given {
		return inventory.Errorf(inventory.KindInvalid, "the request has no extra_vars").
			Do(`send {"extra_vars": {}} to remove all globals`)
	}

	if vars == nil {
		vars = configuration.Vars{}
	}

	rest.Note(r, "scope", state.ScopeGlobal)
	rest.Note(r, "vars", slices.Sorted(maps.Keys(vars)))

	changed, err := a.o.Variables.Set(r.Context(), caller(r), state.ScopeGlobal, vars)
	if err == nil {
		a.o.AwaitView(w, r, changed.Revision)
	}

	return err
}

// maxLogs is the size in bytes of the output in the information on a job. /info/logs has all of it.
const maxLogs = 1 << 20

func (a *API) getJob(w http.ResponseWriter, r *http.Request) error {
	j, err := a.jobOf(r)
	if err != nil {
		return err
	}
	text, err := a.o.Tail(r.Context(), j.ID, maxLogs)
	if err != nil {
		return err
	}

	out := api.LegacyJobInfo{
		ID:      j.ID,
		Task:    string(j.Verb),
		Desc:    string(j.Verb) + " of " + strings.Join(j.Names(), ", "),
		Status:  string(j.Status),
		Logs:    strings.Split(text, "\n"),
		Nodes:   j.Names(),
		Started: j.Started,
		Ended:   j.Ended,
	}
	if j.Group != "" {
		out.Desc += " in " + j.Group
	}
	if j.Status == job.Cancelled {
		out.Status = string(job.Errored) // the contract has no status Cancelled
	}

	// A job that is complete may have a message, too: residue, or the result of a check.
	if j.Status != job.Complete {
		out.Error = j.Message
	}

	return rest.WriteJSON(w, http.StatusOK, out)
}

func (a *API) jobOf(r *http.Request) (job.Job, error) {
	ref := rest.Param(r, "job")

	v := a.o.View(r.Context())
	if ref == "active" {
		if j := newest(v.Jobs()); j != nil {
			return *j, nil
		}
	}

	return v.Job(ref)
}

// newest returns the job accepted last of those that have not ended, or nil. The
// first generation knew one job at a time, which was active as soon as its
// request was answered.
func newest(jobs []*job.Job) *job.Job {
	for _, j := range slices.Backward(jobs) {
		if !j.Status.Ended() {
			return j
		}
	}

	return nil
}

func (a *API) getLog(w http.ResponseWriter, r *http.Request) error {
	j, err := a.jobOf(r)
	if err != nil {
		return err
	}

	w.Header().Set("Content-Type", api.TypeText)

	if r.Method == http.MethodHead {
		return nil
	}

	return a.o.StreamLog(w, r, j.ID)
}

func (a *API) postEvent(w http.ResponseWriter, r *http.Request) error {
	var body api.LegacyRequest
	if err := read(w, r, &body); err != nil {
		return err
	}

	if body.Event == nil {
		return inventory.Errorf(inventory.KindInvalid, "the request has no monitor_event").
			Do(`send {"monitor_event": {"name": "discovered", "nodes": [{"label": "", "serial": "", "addr": ""}]}}`)
	}

	members := make([]api.LegacyMember, len(body.Event.Nodes))
	for i, n := range body.Event.Nodes {
		members[i] = api.LegacyMember(n)
	}

	return a.observe(r, body.Event.Name, members)
}

func (a *API) postMembers(w http.ResponseWriter, r *http.Request) error {
	var members []api.LegacyMember
	if err := read(w, r, &members); err != nil {
		return err
	}

	event := rest.Param(r, "event")

	return a.observe(r, event, members)
}

func (a *API) postMember(w http.ResponseWriter, r *http.Request) error {
	var member api.LegacyMember
	if err := read(w, r, &member); err != nil {
		return err
	}

	event := rest.Param(r, "event")

	node := rest.Param(r, "node")

	// The path and the body both name the node; guessing could change the wrong one.
	if name := inventory.NodeName(member.Label, member.Serial); name != node {
		return inventory.Errorf(inventory.KindInvalid, "the path names the node %q, the body names %q", node, name).
			Do("send Node-Label and Node-Serial of that node").About(node)
	}

	return a.observe(r, event, []api.LegacyMember{member})
}

// observe records observations under the shared observer of anonymous posts.
func (a *API) observe(r *http.Request, event string, members []api.LegacyMember) error {
	var alive bool
	switch {
	case strings.EqualFold(event, string(inventory.VerbDiscovered)):
		alive = true
	case strings.EqualFold(event, string(inventory.VerbDisappeared)):
	default:
		return inventory.Errorf(inventory.KindInvalid, "there is no monitor event %q", event).
			Do("use discovered or disappeared")
	}

	if len(members) == 0 {
		return inventory.Errorf(inventory.KindInvalid, "the event names no node").Do("name at least one")
	}

	observations := make([]inventory.Observation, len(members))

	names := make([]string, len(members))
	for i, m := range members {
		observations[i] = inventory.Observation{
			Observer: inventory.ObserverPost,
			Label:    m.Label,
			Serial:   m.Serial,
			Addr:     m.Addr,
			Alive:    alive,
		}
		names[i] = inventory.NodeName(m.Label, m.Serial)
	}

	rest.Note(r, "verb", strings.ToLower(event))
	rest.Note(r, "nodes", names)

	// These events have no observer of their own, so a named monitor may not send them.
	if err := access.CheckObserver(access.IdentityOf(r.Context()), inventory.ObserverPost); err != nil {
		return err
	}

	return a.o.Nodes.Observe(r.Context(), inventory.ObserverPost, observations)
}

func (a *API) getConfig(w http.ResponseWriter, _ *http.Request) error {
	now := a.o.Settings.Config()

	config, err := withFormer(nested(now), now)
	if err != nil {
		return err
	}
	return rest.WriteJSON(w, http.StatusOK, map[string]any{"config": config})
}

// setConfig accepts a complete configuration, as GET returns it, or a part of
// one. Values that are already in force are ignored, also those of the file.
func (a *API) setConfig(w http.ResponseWriter, r *http.Request) error {
	var body api.LegacyRequest
	if err := read(w, r, &body); err != nil {
		return err
	}

	if raw := bytes.TrimSpace(body.Config); len(raw) == 0 || raw[0] != '{' {
		return inventory.Errorf(inventory.KindInvalid, "the request has no config that is an object").
			Do(`send {"config": {…}}`)
	}

	wanted, err := configuration.ParseJSONVars(body.Config)
	if err != nil {
		return err
	}

	now := a.o.Settings.Config()

	// A file of what GET /config returned has its envelope within that of the request.
	if inner, wrapped := wanted["config"].(map[string]any); wrapped && len(wanted) == 1 {
		wanted = inner
	}

	former := cutFormer(wanted)
	patch := map[string]any{}
	flatten(now, "", wanted, patch)

	// Most keys of a posted GET belong to the file and must not be set.
	for key, value := range patch {
		if have, ok := now[key]; ok && sameJSON(have.Value, value) {
			delete(patch, key)
		}
	}

	if err := translate(former, now, patch); err != nil {
		return err
	}

	rest.Note(r, "keys", slices.Sorted(maps.Keys(patch)))

	if len(patch) == 0 {
		return nil
	}

	_, err = a.o.Settings.Patch(r.Context(), caller(r), patch)

	return err
}

// nested converts dotted keys to nested objects.
func nested(c api.Config) map[string]any {
	type branch map[string]any

	// In sorted order a prefix with a value of its own precedes its longer keys.
	root := branch{}
	for _, key := range slices.Sorted(maps.Keys(c)) {
		at, rest := root, key
		for {
			head, tail, more := strings.Cut(rest, ".")
			if !more {
				break
			}
			if at[head] == nil {
				at[head] = branch{}
			}

			next, ok := at[head].(branch)
			if !ok {
				break // the prefix has a value itself, so the rest of the key stays dotted
			}
			at, rest = next, tail
		}

		at[rest] = c[key].Value
	}

	return root
}

// flatten converts nested objects to dotted keys in patch. Unknown keys are kept,
// so that the configuration refuses them.
func flatten(known api.Config, prefix string, objects map[string]any, patch map[string]any) {
	for name, value := range objects {
		key := prefix + name
		object, isObject := value.(map[string]any)

		// A key may have an object as its value, which must stay whole.
		_, isKey := known[key]
		if !isKey && isObject && isPrefix(known, key+".") {
			flatten(known, key+".", object, patch)
			continue
		}

		patch[key] = value
	}
}

func isPrefix(c api.Config, prefix string) bool {
	for key := range c {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}

	return false
}

func sameJSON(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
