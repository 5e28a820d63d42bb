// SPDX-License-Identifier: Apache-2.0

package server

import (
	"iter"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/plan"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/sshkey"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/window"
)

// Resources are the kinds of record that the API shows, in the order of a watch. The watch
// of all kinds, their lists and their reads are written once, over this table. The order is
// that of api.WatchKinds.
var Resources = []Resource{
	// The wire form counts what a job has by thousands.
	&ResourceOf[job.Job, api.Job]{
		Kind: &job.Kind, Path: api.PathJobs,
		Show: func(_ *state.View, j *job.Job) api.Job { return jobOf(*j) },
	},
	&ResourceOf[window.Freeze, api.Freeze]{
		Kind: &window.FreezeKind, Path: api.PathFreeze, One: api.PathFreeze, Allow: access.Readers.Scoped(),
		// The wire form shows whether it is active now: it may end by itself.
		Show: func(_ *state.View, f *window.Freeze) api.Freeze { return freezeOf(*f, time.Now()) },
		Doc: openapi.Doc{
			ID: "getFreeze", Summary: "Show the freeze",
			Text:    "Returns whether changes of hosts are frozen, until when, by whom and why.",
			Success: "The freeze.",
		},
	},
	&ResourceOf[state.Instance, api.Instance]{
		Kind: &state.Instances, Path: api.PathInstances, Allow: access.Readers.Scoped(),
		List: rest.ListingOf[api.Instance]("started", "id", "node", "addr", "version", "started"),
		// The identity of an instance is two fields on the wire.
		Show: func(_ *state.View, in *state.Instance) api.Instance { return instanceOf(in) },
		Doc: openapi.Doc{
			ID: "listInstances", Summary: "List the instances of the manager",
			Text: "Returns every live clusterm, oldest first. An instance that crashes stays in the list for " +
				"15 seconds.",
			Success: "The instances.",
		},
	},
	// The wire form lacks the secrets of a request, and shows whether the plan is still open.
	&ResourceOf[plan.Plan, api.Plan]{
		Kind: &plan.Kind, Path: api.PathPlans, Allow: access.Readers.Scoped(),
		List: rest.ListingOf[api.Plan]("-created", "id", "actor", "created", "expires").
			By("verb", func(p api.Plan) string { return string(p.Request.Verb) }),
		Show: func(_ *state.View, p *plan.Plan) api.Plan { return planOf(*p, time.Now()) },
		Doc: openapi.Doc{
			ID: "listPlans", Tag: aboutJobs, Summary: "List plans",
			Text:    "Returns plans, newest first, without targets, variables and checks.",
			Success: "The plans, newest first.",
		},
	},
	// GET shows what the policies judge at that moment; a watch shows their memory.
	&ResourceOf[state.Automation, *state.Automation]{
		Kind: &state.Memory, Name: "policies", Path: api.PathPolicies, Show: itself[state.Automation],
	},
	// The wire form counts the nodes, of which there may be thousands. The time that is left is
	// an estimate of its moment, for GET.
	&ResourceOf[rollout.Record, api.Rollout]{
		Kind: &rollout.Kind, Path: api.PathRollouts,
		Show: func(_ *state.View, r *rollout.Record) api.Rollout { return rolloutRecordOf(*r) },
	},
	// GET shows which nodes are left to do; a watch shows the record of the rotation.
	&ResourceOf[sshkey.Rotation, *sshkey.Rotation]{
		Kind: &sshkey.Kind, Path: api.PathSSHKey, Show: itself[sshkey.Rotation],
	},
	&ResourceOf[access.Token, api.Token]{
		Kind: &access.TokenKind, Path: api.PathTokens, Allow: access.Admins,
		List: rest.ListingOf[api.Token]("name", "id", "name", "role", "created", "expires", "used"),
		// The wire form has no hash, and the last use, which is a record of its own.
		Show: func(v *state.View, t *access.Token) api.Token { return tokenOf(t.WithUse(v)) },
		Doc: openapi.Doc{
			ID: "listTokens", Summary: "List the bearer tokens",
			Text:    "Returns every token without its secret, by name, those that have expired included.",
			Success: "The tokens.",
		},
	},
}

// itself shows a record as it is.
func itself[T any](_ *state.View, r *T) *T { return r }

// Resource is a kind of record that the API shows: a ResourceOf.
type Resource interface {
	// name is that of the kind in the API.
	name() api.WatchKind
	// kind is the name of the kind of record.
	kind() string
	// path is that of the GET whose callers may see the records.
	path() string
	// objects returns what callers see of the records of a view, with their keys.
	objects(v *state.View) iter.Seq2[string, any]
	// object returns what callers see of a record, or nil. former, unless nil, is an earlier form of
	// the record, in place of that of the view.
	object(v *state.View, key string, former any) any
	routes(s *Server) []rest.Route
}

// ResourceOf shows the records of type T as objects of type W.
type ResourceOf[T, W any] struct {
	Kind *record.Kind[T]
	// Name is that of the kind in the API; empty: that of Kind.
	Name string
	// Path is the path of the list, or that of the only record. Whoever may GET it may watch
	// the records.
	Path string
	// Show returns the wire form of a record of the view.
	Show func(v *state.View, r *T) W
	// List makes GET of Path a list in this order. The key of the records is its Key.
	List *rest.Listing[W]
	// One is the path of a single record, with {name} for its key unless the kind is Single.
	// A GET without List and One has a handler of its own.
	One string
	// Allow says who may GET Path and One.
	Allow access.Permission
	// Doc describes GET of Path or One, whichever is set.
	Doc openapi.Doc
}

func (o *ResourceOf[T, W]) kind() string { return o.Kind.Name }

func (o *ResourceOf[T, W]) path() string { return o.Path }

func (o *ResourceOf[T, W]) name() api.WatchKind {
	if o.Name != "" {
		return api.WatchKind(o.Name)
	}
	return api.WatchKind(o.Kind.Name)
}

func (o *ResourceOf[T, W]) objects(v *state.View) iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for key, r := range record.All(v, o.Kind) {
			if !yield(key, o.Show(v, r)) {
				return
			}
		}
	}
}

func (o *ResourceOf[T, W]) object(v *state.View, key string, former any) any {
	r, ok := former.(*T)
	if !ok {
		r = record.Get(v, o.Kind, key)
	}
	if r != nil {
		return o.Show(v, r)
	}
	return nil
}

func (o *ResourceOf[T, W]) routes(s *Server) []rest.Route {
	var routes []rest.Route

	doc := o.Doc // a copy, which the route completes

	if o.List != nil {
		routes = append(routes, list(s, *o.List, o.getList, rest.Route{Path: o.Path, Allow: o.Allow, Doc: &doc}))
	}

	if o.One != "" {
		routes = append(routes, show(s, o.getOne, rest.Route{Path: o.One, Allow: o.Allow, Doc: &doc}))
	}

	return routes
}

func (o *ResourceOf[T, W]) getList(_ *http.Request, v *state.Scoped) ([]W, func(W) W, error) {
	// A listing expects its items in the order of the key.
	all := maps.Collect(record.All(v.View, o.Kind))

	items := make([]W, 0, len(all))
	for _, key := range slices.Sorted(maps.Keys(all)) {
		items = append(items, o.Show(v.View, all[key]))
	}

	return items, func(item W) W { return item }, nil
}

// getOne answers with a record. The only one of a kind may be zero, because it was never
// written.
func (o *ResourceOf[T, W]) getOne(r *http.Request, v *state.Scoped) (shown W, revision int64, err error) {
	if o.Kind.Single {
		only := record.One(v.View, o.Kind)
		return o.Show(v.View, &only), 0, nil
	}

	key := rest.Param(r, "name")

	found := record.Get(v.View, o.Kind, key)
	if found == nil {
		return shown, 0, inventory.
			Errorf(inventory.KindNotFound, "there is no %q among the %s", inventory.Shorten(key, 100), o.name()).
			Do("GET %s lists them", o.Path)
	}

	return o.Show(v.View, found), 0, nil
}

// resourceRoutes returns the routes that read records.
func (s *Server) resourceRoutes() []rest.Route {
	var routes []rest.Route
	for _, o := range Resources {
		routes = append(routes, o.routes(s)...)
	}

	return routes
}

// resourceOf returns the resource of a kind of record, or nil if the API does not show it.
func resourceOf(kind string) Resource {
	return resource(func(o Resource) bool { return o.kind() == kind })
}

// resourceNamed returns the resource with that name in the API, or nil.
func resourceNamed(kind api.WatchKind) Resource {
	return resource(func(o Resource) bool { return o.name() == kind })
}

func resource(match func(Resource) bool) Resource {
	if i := slices.IndexFunc(Resources, match); i >= 0 {
		return Resources[i]
	}
	return nil
}
