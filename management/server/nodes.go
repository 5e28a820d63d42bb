// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/selector"
	"github.com/contiv/cluster/management/server/nodelist"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
)

func (s *Server) nodeRoutes() []rest.Route {
	return []rest.Route{
		{
			Method: http.MethodGet,
			Path:   api.PathNodes, Allow: access.Readers.Scoped(),
			Serve: s.reading(s.getNodes),
			Query: nodeListing.Query(nodeQuery...),
			Doc: &openapi.Doc{
				ID: "listNodes", Tag: aboutNodes, Summary: "List nodes",
				Text: "Returns the nodes that match all given parameters; all nodes without parameters. A repeated " +
					"parameter matches any of its values.",
				Answer: api.List[api.Node]{}, Success: "The nodes, by name.",
				Fails: openapi.Fails{404: "A requested node or group does not exist."},
			},
		},
		show(s, s.getNode, rest.Route{
			Path: api.PathNode, Allow: access.Readers.Scoped(), Verb: "get",
			Doc: &openapi.Doc{
				ID: "getNode", Tag: aboutNodes, Summary: "Show one node", Path: []openapi.Param{nodeName},
				Success: "The node.",
			},
		}),
		act(s, s.patchNode, rest.Route{
			Shows:  api.PathNode,
			Method: http.MethodPatch, Path: api.PathNode, Conditional: true,
			Allow: access.Operators.Scoped(), Verb: "set",
			Doc: &openapi.Doc{
				ID: "patchNode", Tag: aboutNodes, Summary: "Change a node's connection settings and labels",
				Text: "Absent fields stay as they are. `connection` and `forget_host_key` need the role admin: " +
					"they decide on which machine playbooks run as root.",
				Path:    []openapi.Param{nodeName},
				Success: "The changed node.", Revision: true, Tagged: true,
				Fails: openapi.Fails{409: refused, 412: "The node no longer matches `If-Match`."},
			},
		}),
		list(s, *rest.ListingOf[inventory.HistoryEntry]("-seq", "seq", "time", "verb", "to"), s.getHistory, rest.Route{
			Path: api.PathHistory, Allow: access.Readers.Scoped(), Verb: "history",
			Doc: &openapi.Doc{
				ID: "getHistory", Tag: aboutNodes, Summary: "Show a node's history",
				Text: "Returns every status transition and every change of state, newest first. The manager keeps " +
					"the newest 1 000.",
				Path: []openapi.Param{nodeName}, Success: "The entries, newest first.",
			},
		}),
		show(s, s.getNodeExplanation, rest.Route{
			Path: api.PathExplain, Allow: access.Readers.Scoped(), Verb: "explain",
			Doc: &openapi.Doc{
				ID: "explainNode", Tag: aboutNodes, Summary: "Explain why a node is, or is not, in service",
				Path: []openapi.Param{nodeName}, Success: "The explanation.",
			},
		}),
		show(s, s.getDifference, rest.Route{
			Path: api.PathDifference, Allow: access.Readers.Scoped(),
			Doc: &openapi.Doc{
				ID: "diffNode", Tag: aboutNodes, Summary: "Show what the last verification of a node found",
				Text: "The findings are those of the job in `verification`. They are gone with it: then verify the " +
					"node again.",
				Path: []openapi.Param{nodeName}, Success: "The findings.",
				Fails: openapi.Fails{404: "The node does not exist, or the findings of no verification are kept."},
			},
		}),
		act(s, s.postForget, rest.Route{
			Path: api.PathForget, Allow: access.Operators.Scoped(), Verb: "forget", Idempotent: true,
			Doc: &openapi.Doc{
				ID: "forgetNodes", Tag: aboutNodes, Summary: "Forget nodes",
				Text: "Removes the records of disappeared nodes with their history and variables, and leaves a " +
					"tombstone for each: if a forgotten node appears again, it is `Quarantined` instead of new. " +
					"Either all nodes are forgotten or none.",
				Success: "The nodes are forgotten.", Revision: true,
				Fails: openapi.Fails{
					404: "The node does not exist.",
					409: "The monitor still sees one of the nodes, or a job holds it.",
				},
			},
		}),
		act(s, s.postPing, rest.Route{
			Path: api.PathPing, Allow: access.Operators.Scoped(), Verb: "ping",
			Doc: &openapi.Doc{
				ID: "pingNodes", Tag: aboutNodes, Summary: "Try an ssh login on nodes",
				Text: "Tries an ssh login on each node, from the manager, with the node's connection settings and " +
					"its recorded host key. It changes nothing, neither on the nodes nor in their records; nodes " +
					"that a job holds are no exception. The results are in the order of the request. The answer " +
					"comes once every node has answered or has run into a timeout, after at most 90 seconds.",
				Success:  "The result of each node.",
				Revision: true, Fails: openapi.Fails{404: "The node does not exist."},
			},
		}),
		act(s, s.postScanHostKeys, rest.Route{
			Path: api.PathScanHostKeys, Allow: access.Operators.Scoped(),
			Doc: &openapi.Doc{
				ID: "scanHostKeys", Tag: aboutNodes, Summary: "Show the ssh host keys of a node",
				Text: "Asks the host of the node for its ssh host keys, with the node's connection settings, and " +
					"returns them beside those recorded. It offers no credential and changes nothing. The answer " +
					"comes after at most 30 seconds.",
				Path:    []openapi.Param{nodeName},
				Success: "The recorded keys, and those that the host shows now.",
			},
		}),
		act(s, s.putHostKeys, rest.Route{
			Shows:  api.PathNode,
			Method: http.MethodPut, Path: api.PathHostKeys, Allow: access.Admins, Conditional: true,
			Doc: &openapi.Doc{
				ID: "trustHostKey", Tag: aboutNodes, Summary: "Record another ssh host key of a node",
				Text: "Records an ssh host key in place of those recorded, after a legitimate change. The manager " +
					"asks the host for its keys first, and refuses a key that the host does not show now. The " +
					"change is in the history of the node and in the audit log. A node that a job holds keeps its " +
					"key. The answer comes after at most 30 seconds.",
				Path:    []openapi.Param{nodeName},
				Success: "The changed node.", Revision: true, Tagged: true, Fails: openapi.Fails{409: refused},
			},
		}),
		act(s, s.putBMCLogin, rest.Route{
			Method: http.MethodPut, Path: api.PathBMCLogin, Allow: access.Operators.Scoped(),
			Doc: &openapi.Doc{
				ID: "setBMCLogin", Tag: aboutNodes, Summary: "Replace the login of a node's BMC",
				Text: "Logs in at the BMC with the user and the password, and records them once the BMC has taken " +
					"them; otherwise nothing changes. Without both, the recorded login is tried once more: so a BMC " +
					"is asked again that has refused it. The node may have any status. The change is in the audit " +
					"trail, without the password. The answer comes after at most three minutes.",
				Path:    []openapi.Param{nodeName},
				Success: "The power of the node, as its BMC says.",
				Fails: openapi.Fails{
					400: "The user, the password or the reason is invalid.",
					409: "The node has no BMC, the BMC refuses the login, or a job switches the node.",
				},
			},
		}),
		act(s, s.postObservations, rest.Route{
			Path: api.PathObservations, Allow: access.Reporters,
			Doc: &openapi.Doc{
				ID: "reportObservations", Tag: aboutNodes, Summary: "Report observations of nodes",
				Text: "Records the view of one observer, such as `clusterm monitor`. The manager keeps the views " +
					"of observers apart: a node is `Discovered` while any of them sees it alive. A full report " +
					"replaces the observer's view, so that each node that it saw before and omits now counts as " +
					"lost. A view of more than 5000 nodes consists of several full reports, each limited to the " +
					"names after `after` and up to `until`. A caller with the role `monitor` reports under the " +
					"name of its token or certificate only, except over `plain_http`. An observation that is " +
					"refused does not affect the others. Repeating a report changes no node. Report at least every " +
					"minute: the reports of an observer that has been silent for `monitor_timeout` (5 minutes by " +
					"default) are void. The names `post` (reports by `POST /monitor/event`) and `gossip` (the " +
					"manager's own) are reserved.",
				Success: "The report is recorded, except for the observations in refused.", Revision: true,
				Fails: openapi.Fails{400: "The report is invalid."},
			},
		}),
	}
}

var nodeListing = rest.Listing[*inventory.Node]{
	Key: "name", Default: "name",
	Fields: map[string]func(*inventory.Node) string{
		"name":     func(n *inventory.Node) string { return n.Name },
		"label":    func(n *inventory.Node) string { return n.Label },
		"serial":   func(n *inventory.Node) string { return n.Serial },
		"addr":     func(n *inventory.Node) string { return rest.SortAddr(n.Addr) },
		"status":   func(n *inventory.Node) string { return string(n.Status) },
		"state":    func(n *inventory.Node) string { return string(n.State) },
		"group":    func(n *inventory.Node) string { return n.Group },
		"job":      func(n *inventory.Node) string { return rest.SortNumber(n.Job) },
		"verb":     func(n *inventory.Node) string { return string(n.Verb) },
		"created":  func(n *inventory.Node) string { return rest.SortTime(n.Created) },
		"updated":  func(n *inventory.Node) string { return rest.SortTime(n.Updated) },
		"revision": func(n *inventory.Node) string { return rest.SortNumber(strconv.FormatInt(n.Revision, 10)) },
	},
}

// nodeQuery are the query parameters of a nodeFilter.
var nodeQuery = []openapi.Param{
	{
		Name: "name", Type: openapi.Texts,
		Help: "Names of nodes. The error lists all names that do not exist.",
	},
	{Name: "status", Type: openapi.Texts, Help: "Statuses; case does not matter."},
	{Name: "state", Type: openapi.Texts, Help: "States; case does not matter."},
	{Name: "group", Type: openapi.Texts, Help: "Groups."},
	{
		Name: "selector",
		Help: "A selector over fields and labels, in the syntax of Kubernetes label selectors, e.g. " +
			"`group=service-worker,status!=Allocated,rack in (r1,r2)`.",
	},
}

// nodeFilter selects nodes of a list. Empty fields accept every node.
type nodeFilter struct {
	names    []string
	statuses []inventory.Status
	states   []inventory.State
	groups   []string
	selector selector.Selector
	all      bool // no filter is set
}

func (f nodeFilter) accepts(n *inventory.Node) bool {
	return emptyOrContains(f.names, n.Name) && emptyOrContains(f.statuses, n.Status) &&
		emptyOrContains(f.states, n.State) && emptyOrContains(f.groups, n.Group) && f.selector.Matches(n)
}

// of returns the selected nodes of the view. The whole list is passed on as it is: the
// cache recognizes it.
func (f nodeFilter) of(v *state.Scoped) []*inventory.Node {
	if f.all {
		return v.Nodes()
	}

	var nodes []*inventory.Node
	for _, n := range v.Nodes() {
		if f.accepts(n) {
			nodes = append(nodes, n)
		}
	}

	return nodes
}

// emptyOrContains reports whether the list is empty or contains the value.
func emptyOrContains[T comparable](list []T, value T) bool {
	return len(list) == 0 || slices.Contains(list, value)
}

func (s *Server) nodeFilterOf(v *state.Scoped, q rest.Values) (nodeFilter, error) {
	f := nodeFilter{names: q.Texts("name"), groups: q.Texts("group")}

	statuses := rest.Names(inventory.Statuses, func(i int) string { return string(inventory.Statuses[i].Status) })
	states := rest.Names(inventory.States, func(i int) string { return string(inventory.States[i].State) })

	var err error
	if f.statuses, err = rest.ParseEach(
		q.Texts("status"),
		inventory.ParseStatus,
		"the statuses are "+statuses,
	); err != nil {
		return f, err
	}

	if f.states, err = rest.ParseEach(q.Texts("state"), inventory.ParseState, "the states are "+states); err != nil {
		return f, err
	}

	var text string
	if text, f.selector, err = s.parseSelector(v, q); err != nil {
		return f, err
	}

	f.all = len(f.names)+len(f.statuses)+len(f.states)+len(f.groups) == 0 && text == ""

	return f, checkNames(v, f.names)
}

// checkNames returns KindNotFound with every name that is not a node's.
func checkNames(v *state.Scoped, names []string) error {
	var missing []string
	for _, name := range names {
		if _, err := v.Node(name); err != nil && !slices.Contains(missing, name) {
			missing = append(missing, name)
		}
	}

	if len(missing) == 0 {
		return nil
	}

	return v.MissingNodes(missing)
}

// parseSelector checks the query parameter group, and returns the text of the
// parameter selector with its parsed form.
func (s *Server) parseSelector(v *state.Scoped, q rest.Values) (string, selector.Selector, error) {
	checkGroup := func(group string) error {
		_, err := v.Groups(s.Settings.Groups()).Get(group)
		inGroup := func(n *inventory.Node) bool { return n.Group == group }

		// A group that was removed from the configuration may still have nodes.
		if err != nil && slices.ContainsFunc(v.Nodes(), inGroup) {
			return nil
		}
		return err
	}

	for _, group := range q.Texts("group") {
		if err := checkGroup(group); err != nil {
			return "", selector.Selector{}, err
		}
	}

	text := q.Text("selector")

	parsed, err := selector.Parse(text, checkGroup)
	if parsed.Judged() != "" {
		parsed = parsed.Judging(s.judge(v))
	}
	return text, parsed, err
}

// judge returns the values of fields that are not in the records of nodes.
func (s *Server) judge(v *state.Scoped) selector.Judge {
	configurations := s.Desired.Of(v.Whole())

	return func(field string, n *inventory.Node) string {
		if field == "power" {
			return v.PowerOf(n.Name)
		}
		return configurations.Word(n)
	}
}

func (s *Server) getNodes(w http.ResponseWriter, r *http.Request, v *state.Scoped) error {
	q := rest.Query(r)

	filter, err := s.nodeFilterOf(v, q)
	if err != nil {
		return err
	}
	nodes, at := filter.of(v), snapshotOf(v)
	forms := s.forms(v)

	// The cache holds complete nodes, so a choice of fields cannot use it.
	if q.Has("fields") {
		return rest.WriteList(w, r, nodeListing, rest.Contents[*inventory.Node, api.Node]{
			At: at, Tag: at.Tag(), Items: nodes, Show: func(n *inventory.Node) api.Node { return forms.of(*n) },
		})
	}

	page, list, err := rest.Page[*inventory.Node, api.Node](r, q, nodeListing, at, nodes)
	if err != nil {
		return err
	}

	if done, err := rest.NotModified(w, r, at.Tag()); done || err != nil {
		return err
	}

	return s.writeNodes(w, v, page, list)
}

// nodeEncoder encodes nodes for /v1.
type nodeEncoder struct{ nodeForms }

// Encode returns the wire form of a node.
func (e nodeEncoder) Encode(n *inventory.Node) ([]byte, error) {
	b, err := rest.EncodeJSON(e.of(*n))
	return bytes.TrimSuffix(b, []byte("\n")), err
}

// Alike compares the connection settings, the power and the desired configurations, the only parts outside the record.
func (e nodeEncoder) Alike(older nodeEncoder) func(*inventory.Node) bool {
	if older.view == nil {
		return func(*inventory.Node) bool { return false }
	}

	judged := e.desired.Alike(older.desired)
	if record.Same(e.view, older.view, &state.Connections) && record.Same(e.view, older.view, &state.Powers) {
		return judged
	}

	return func(n *inventory.Node) bool {
		a, b := e.view.Connection(n.Name), older.view.Connection(n.Name)
		connected := a == nil && b == nil || a != nil && b != nil && *a == *b

		power, problem := e.view.BMCOf(n.Name)
		former, before := older.view.BMCOf(n.Name)

		return connected && power == former && problem == before && (judged == nil || judged(n))
	}
}

// writeNodes answers with list, filled with these nodes of the view.
func (s *Server) writeNodes(
	w http.ResponseWriter, v *state.Scoped, nodes []*inventory.Node, list api.List[api.Node],
) error {
	// The cache is for those who see every node.
	cache := &s.nodes
	if !v.All() {
		cache = &nodelist.Cache[nodeEncoder]{}
	}
	texts, err := cache.Of(v.View, nodes, nodeEncoder{s.forms(v)})
	if err != nil {
		return err
	}

	frame, err := rest.EncodeJSON(list)
	if err != nil {
		return err
	}

	// The empty list is the frame: the nodes belong between its brackets.
	const items = `"items":[`
	at := bytes.Index(frame, []byte(items)) + len(items)
	nodelist.Write(w, frame[:at], texts, frame[at:])

	return nil
}

func (s *Server) getNode(r *http.Request, v *state.Scoped) (api.Node, int64, error) {
	name := rest.Param(r, "name")

	n, err := v.Node(name)
	if err != nil {
		return api.Node{}, 0, err
	}
	return s.forms(v).one(n), n.Revision, nil
}

func (s *Server) patchNode(r *http.Request, c access.Caller, body api.NodePatch) (api.Node, error) {
	name := rest.Param(r, "name")

	rest.Note(r, "nodes", []string{name})

	if body.Connection != nil || body.ForgetHostKey {
		if err := access.AuthorizeReach(access.IdentityOf(r.Context())); err != nil {
			return api.Node{}, err
		}
	}

	patch := node.Patch{ForgetHostKey: body.ForgetHostKey, Labels: body.Labels}
	if body.Connection != nil {
		connection := connectionFrom(*body.Connection)
		patch.Connection = &connection
	}

	c, err := guarded(r, c, name, func(v *state.View) (int64, error) {
		n, err := v.Node(name)
		return n.Revision, err
	})
	if err != nil {
		return api.Node{}, err
	}
	n, err := s.Nodes.Patch(r.Context(), c, name, patch)
	if err != nil {
		return api.Node{}, err
	}

	v := s.view(r.Context())

	return s.forms(v).one(*v.Show(&n)), nil
}

func (s *Server) putBMCLogin(r *http.Request, c access.Caller, body api.BMCLogin) (api.Power, error) {
	name := rest.Param(r, "name")

	rest.Note(r, "nodes", []string{name})

	return s.BMCLogins.SetLogin(r.Context(), c, name, body.User, body.Password, body.Reason)
}

func (s *Server) getHistory(
	r *http.Request, v *state.Scoped,
) ([]inventory.HistoryEntry, func(inventory.HistoryEntry) inventory.HistoryEntry, error) {
	name := rest.Param(r, "name")

	if _, err := v.Node(name); err != nil {
		return nil, nil, err
	}

	entries, err := s.Nodes.History(r.Context(), name, 0)
	if err != nil {
		return nil, nil, v.Error(err)
	}

	return entries, func(e inventory.HistoryEntry) inventory.HistoryEntry {
		e.Reason = v.Text(e.Reason)
		return e
	}, nil
}

func (s *Server) postForget(r *http.Request, c access.Caller, body api.Forget) (api.Changed, error) {
	rest.Note(r, "verb", inventory.VerbForget)
	rest.Note(r, "nodes", body.Nodes)

	revision, err := s.Nodes.Forget(r.Context(), c, node.ForgetRequest{
		Nodes: body.Nodes, Force: body.Force, Reason: body.Reason,
	})

	return api.Changed{Revision: revision}, err
}

func (s *Server) postPing(r *http.Request, c access.Caller, body api.Ping) (api.List[api.PingResult], error) {
	rest.Note(r, "nodes", body.Nodes)

	v := s.view(r.Context())

	results, err := s.Ping.Ping(r.Context(), c, body.Nodes)
	if err != nil {
		return api.List[api.PingResult]{}, v.Error(err)
	}
	out := api.List[api.PingResult]{
		Items: make([]api.PingResult, len(results)), Total: len(results), Revision: v.Revision, Stale: v.Stale,
	}

	for i, p := range results {
		p.Message, p.Remedy, p.Actions = v.Text(p.Message), v.Text(p.Remedy), v.Actions(p.Actions)
		out.Items[i] = pingOf(p)
	}

	return out, nil
}
