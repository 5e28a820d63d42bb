// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/variable"
)

// legacy are the routes of the first generation's contract: parse, call the
// same methods as /v1, answer. Unknown names in a body and in the query are
// passed over, as they were then.
func (s *Server) legacy() []route {
	get, post := http.MethodGet, http.MethodPost
	extra := []string{"extra_vars"}

	routes := []route{
		{method: get, path: api.LegacyNodes, serve: s.legacyNodes},
		{method: post, path: api.LegacyNodes, serve: s.legacyNodes, reads: true},
		{method: get, path: api.LegacyNode, serve: s.legacyNode},
		{method: get, path: api.LegacyGlobals, serve: s.legacyGlobals},
		{method: get, path: api.LegacyJob, serve: s.legacyJob},
		{method: get, path: api.LegacyLogs, serve: s.legacyLogs, lasts: true},
		{method: post, path: api.LegacySetGlobals, serve: s.legacySetGlobals, query: extra},
		{method: post, path: api.LegacyMonitorEvent, serve: s.legacyEvent},
		{method: post, path: api.LegacyMonitorNamed, serve: s.legacyMembers},
		{method: post, path: api.LegacyMonitorNode, serve: s.legacyMember},
		{method: get, path: api.LegacyConfig, serve: s.legacyConfig},
		{method: post, path: api.LegacyConfig, serve: s.legacySetConfig},
		{method: post, path: api.LegacyDiscover, serve: s.legacySubmit(inventory.VerbDiscover), query: extra},
		{method: post, path: api.LegacyUpdate, serve: s.legacySubmit(inventory.VerbUpdate), query: extra},
	}
	for _, verb := range []struct {
		one, many string
		verb      inventory.Verb
	}{
		{api.LegacyCommissionOne, api.LegacyCommission, inventory.VerbCommission},
		{api.LegacyDecommissionOne, api.LegacyDecommission, inventory.VerbDecommission},
		{api.LegacyMaintenanceOne, api.LegacyMaintenance, inventory.VerbMaintenance},
	} {
		routes = append(routes,
			route{method: post, path: verb.many, serve: s.legacySubmit(verb.verb), query: extra},
			route{method: post, path: verb.one, serve: s.legacySubmit(verb.verb), query: extra},
		)
	}

	for i := range routes {
		routes[i].door = doorLegacy
	}

	return routes
}

// readLegacy reads a body that may be absent into into.
func (s *Server) readLegacy(w http.ResponseWriter, r *http.Request, into any) error {
	if r.Method == http.MethodPost {
		if err := checkType(r); err != nil {
			return err
		}
	}

	body, err := s.readBody(w, r)
	if err != nil || len(bytes.TrimSpace(body)) == 0 {
		return err
	}

	return decode(body, into, false)
}

// legacyExtra are the variables of the body, or of the query. given tells
// whether there are any at all, be it none.
func legacyExtra(r *http.Request, body json.RawMessage) (vars configuration.Vars, given bool, err error) {
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

	vars, err = extraVars(raw)

	return vars, len(raw) > 0, err
}

func (s *Server) legacySubmit(verb inventory.Verb) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var body api.LegacyRequest
		if err := s.readLegacy(w, r, &body); err != nil {
			return err
		}

		name, err := param(r, "name")
		if err != nil {
			return err
		}

		if name != "" {
			body.Nodes = append(body.Nodes, name)
		}

		mention(r, "verb", verb)
		addrs := slices.Concat(body.Addrs, body.Addresses, body.Addressess)

		request := job.Request{Verb: verb, Nodes: body.Nodes}
		switch verb { // what the contract has no field for is passed over
		case inventory.VerbDiscover:
			request.Nodes, request.Addrs = nil, addrs
		case inventory.VerbCommission, inventory.VerbUpdate:
			request.Group = body.HostGroup
		}

		mention(r, "nodes", slices.Concat(request.Nodes, request.Addrs))

		if request.Extra, _, err = legacyExtra(r, body.ExtraVars); err != nil {
			return err
		}

		j, err := s.Jobs.Submit(r.Context(), caller(r), request)
		if err != nil {
			return err
		}

		mention(r, "job", j.ID)

		return nil
	}
}

func (s *Server) legacyNodes(w http.ResponseWriter, r *http.Request) error {
	var body api.LegacyRequest
	if err := s.readLegacy(w, r, &body); err != nil {
		return err
	}

	v := s.State.View()

	nodes := v.Nodes
	if len(body.Nodes) > 0 {
		nodes = nil
		for _, n := range v.Nodes {
			if slices.Contains(body.Nodes, n.Name) {
				nodes = append(nodes, n)
			}
		}
	}

	texts, err := s.infos.of(v, nodes, infoEncoder{s.Variables.Merger(v)})
	if err != nil {
		return err
	}

	writeTexts(w, []byte("{"), texts, []byte("}\n"))

	return nil
}

func (s *Server) legacyNode(w http.ResponseWriter, r *http.Request) error {
	name, err := param(r, "name")
	if err != nil {
		return err
	}

	v := s.State.View()

	n, err := v.Node(name)
	if err != nil {
		return err
	}

	return writeJSON(w, http.StatusOK, legacyInfo(s.Variables.Merger(v), &n))
}

func legacyInfo(m variable.Merger, n *inventory.Node) api.LegacyNodeInfo {
	var out api.LegacyNodeInfo
	out.Monitoring.Label, out.Monitoring.Serial, out.Monitoring.Addr = n.Label, n.Serial, n.Addr
	out.Inventory.Name = n.Name
	out.Inventory.Status, out.Inventory.PrevStatus = legacyStatus(n.Status), legacyStatus(n.PrevStatus)
	out.Inventory.State, out.Inventory.PrevState = string(n.State), string(n.PrevState)
	out.Configuration.Name, out.Configuration.Group, out.Configuration.Addr = n.Name, n.Group, n.Addr

	out.Configuration.Vars = map[string]any{}
	for name, v := range m.Of(n) {
		out.Configuration.Vars[name] = v.Value
	}

	out.Configuration.Vars["node_name"], out.Configuration.Vars["node_addr"] = n.Name, n.Addr

	return out
}

// legacyStatus is the status's name in the first generation's contract, which
// calls a node that is being decommissioned Cancelled.
func legacyStatus(s inventory.Status) string {
	if s == inventory.Decommissioning {
		return "Cancelled"
	}

	return string(s)
}

// infoEncoder encodes nodes as /info/nodes shows them: a member of an object.
type infoEncoder struct{ merger variable.Merger }

func (e infoEncoder) alike(older infoEncoder) func(*inventory.Node) bool {
	return e.merger.Alike(older.merger)
}

func (e infoEncoder) encode(n *inventory.Node) ([]byte, error) {
	b, err := encodeJSON(map[string]api.LegacyNodeInfo{n.Name: legacyInfo(e.merger, n)})
	if err != nil {
		return nil, err
	}

	return bytes.TrimSuffix(bytes.TrimPrefix(b, []byte("{")), []byte("}\n")), nil
}

func (s *Server) legacyGlobals(w http.ResponseWriter, _ *http.Request) error {
	vars, err := s.Variables.Get(state.ScopeGlobal)
	if err != nil {
		return err
	}

	if vars == nil {
		vars = configuration.Vars{}
	}

	return writeJSON(w, http.StatusOK, map[string]any{"extra_vars": vars})
}

func (s *Server) legacySetGlobals(w http.ResponseWriter, r *http.Request) error {
	var body api.LegacyRequest
	if err := s.readLegacy(w, r, &body); err != nil {
		return err
	}

	vars, given, err := legacyExtra(r, body.ExtraVars)
	if err != nil {
		return err
	}

	if !given {
		return inventory.Errorf(inventory.KindInvalid, "the request has no extra_vars").
			Do(`send {"extra_vars": {}} to remove all globals`)
	}

	if vars == nil {
		vars = configuration.Vars{}
	}

	mention(r, "scope", state.ScopeGlobal)
	mention(r, "vars", slices.Sorted(maps.Keys(vars)))

	changed, err := s.Variables.Set(r.Context(), caller(r), state.ScopeGlobal, vars)
	if err == nil {
		s.settle(w, r, changed.Revision)
	}

	return err
}

func (s *Server) legacyJob(w http.ResponseWriter, r *http.Request) error {
	j, err := s.legacyRef(r)
	if err != nil {
		return err
	}

	out := api.LegacyJobInfo{
		ID:      j.ID,
		Task:    string(j.Verb),
		Desc:    string(j.Verb) + " of " + strings.Join(j.Names(), ", "),
		Status:  string(j.Status),
		Nodes:   j.Names(),
		Started: j.Started,
		Ended:   j.Ended,
	}
	if j.Group != "" {
		out.Desc += " in " + j.Group
	}

	if j.Status == job.Cancelled {
		out.Status = string(job.Errored) // the contract knows four statuses only
	}

	if j.Status != job.Complete {
		out.Error = j.Message
	}

	return writeJSON(w, http.StatusOK, out)
}

func (s *Server) legacyRef(r *http.Request) (job.Job, error) {
	ref, err := param(r, "job")
	if err != nil {
		return job.Job{}, err
	}

	return s.State.View().Job(ref)
}

func (s *Server) legacyLogs(w http.ResponseWriter, r *http.Request) error {
	j, err := s.legacyRef(r)
	if err != nil {
		return err
	}

	w.Header().Set("Content-Type", api.TypeText)

	if r.Method == http.MethodHead {
		return nil
	}

	return s.stream(w, r, j.ID, job.StreamText, 0, true)
}

func (s *Server) legacyEvent(w http.ResponseWriter, r *http.Request) error {
	var body api.LegacyRequest
	if err := s.readLegacy(w, r, &body); err != nil {
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

	return s.observe(r, body.Event.Name, members)
}

func (s *Server) legacyMembers(w http.ResponseWriter, r *http.Request) error {
	var members []api.LegacyMember
	if err := s.readLegacy(w, r, &members); err != nil {
		return err
	}

	event, err := param(r, "event")
	if err != nil {
		return err
	}

	return s.observe(r, event, members)
}

func (s *Server) legacyMember(w http.ResponseWriter, r *http.Request) error {
	var member api.LegacyMember
	if err := s.readLegacy(w, r, &member); err != nil {
		return err
	}

	event, err := param(r, "event")
	if err != nil {
		return err
	}

	node, err := param(r, "node")
	if err != nil {
		return err
	}

	if name := inventory.NodeName(member.Label, member.Serial); name != node {
		return inventory.Errorf(inventory.KindInvalid, "the path names the node %q, the body names %q", node, name).
			Do("send Node-Label and Node-Serial of that node").About(node)
	}

	return s.observe(r, event, []api.LegacyMember{member})
}

// observe takes a report of somebody without an identity of its own.
func (s *Server) observe(r *http.Request, event string, members []api.LegacyMember) error {
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

	words := make([]inventory.Observation, len(members))

	names := make([]string, len(members))
	for i, m := range members {
		words[i] = inventory.Observation{
			Observer: inventory.ObserverPost,
			Label:    m.Label,
			Serial:   m.Serial,
			Addr:     m.Addr,
			Alive:    alive,
		}
		names[i] = inventory.NodeName(m.Label, m.Serial)
	}

	mention(r, "verb", strings.ToLower(event))
	mention(r, "nodes", names)

	return s.Nodes.Observe(r.Context(), inventory.ObserverPost, words)
}

func (s *Server) legacyConfig(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, map[string]any{"config": nested(s.Settings.Config())})
}

// legacySetConfig takes a whole configuration, as the GET answers it, or a
// part: what is already so is passed over.
func (s *Server) legacySetConfig(w http.ResponseWriter, r *http.Request) error {
	var body api.LegacyRequest
	if err := s.readLegacy(w, r, &body); err != nil {
		return err
	}

	if raw := bytes.TrimSpace(body.Config); len(raw) == 0 || raw[0] != '{' {
		return inventory.Errorf(inventory.KindInvalid, "the request has no config that is an object").
			Do(`send {"config": {…}}`)
	}

	wanted, err := configuration.ParseVars(body.Config)
	if err != nil {
		return err
	}

	now := s.Settings.Config()
	patch := map[string]any{}
	flatten(now, "", wanted, patch)

	for key, value := range patch {
		if have, ok := now[key]; ok && sameJSON(have.Value, value) {
			delete(patch, key)
		}
	}

	mention(r, "keys", slices.Sorted(maps.Keys(patch)))

	if len(patch) == 0 {
		return nil
	}

	_, err = s.Settings.Patch(r.Context(), caller(r), patch)

	return err
}

// nested makes a tree of dotted keys.
func nested(c api.Config) map[string]any {
	type branch map[string]any

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
				break // a key that has a value itself: the rest stays dotted
			}

			at, rest = next, tail
		}

		at[rest] = c[key].Value
	}

	return root
}

// flatten makes dotted keys of a tree: the values of keys that exist, and of
// those that do not, for the configuration to refuse.
func flatten(known api.Config, prefix string, tree map[string]any, into map[string]any) {
	for name, value := range tree {
		key := prefix + name
		below, isTree := value.(map[string]any)

		_, isKey := known[key]
		if !isKey && isTree && isPrefix(known, key+".") {
			flatten(known, key+".", below, into)
			continue
		}

		into[key] = value
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
