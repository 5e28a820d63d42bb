// SPDX-License-Identifier: Apache-2.0

package server

import (
	"iter"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/boot"
	"github.com/contiv/cluster/management/gossipkey"
	"github.com/contiv/cluster/management/image"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/notify"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/plan"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/scan"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/sshkey"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/window"
)

// Resources are what the API shows, in the order of a watch. The watch of all kinds, their lists
// and their reads are written once, over this table. The order is that of api.WatchKinds.
var Resources = []Resource{
	// The wire form has what depends on other records: the connection and the desired configuration.
	&ResourceOf[inventory.Node, api.Node]{
		Kind: &job.Nodes, Path: api.PathNodes,
		Show: func(v *Seen, n *inventory.Node) api.Node { return v.nodes().of(*n) },
	},
	// The wire form counts what a job has by thousands.
	&ResourceOf[job.Job, api.Job]{
		Kind: &job.Kind, Path: api.PathJobs,
		Show: func(_ *Seen, j *job.Job) api.Job { return jobOf(*j) },
	},
	// The wire form hides secrets. A scope without variables is not shown.
	&ResourceOf[state.ScopeVars, any]{
		Kind: &state.Variables, Path: api.PathNodeVars,
		Show: func(v *Seen, set *state.ScopeVars) any {
			if len(set.Vars) == 0 {
				return nil
			}
			return v.hide()(set.Vars)
		},
	},
	effectiveConfig{},
	&ResourceOf[window.Freeze, api.Freeze]{
		Kind: &window.FreezeKind, Path: api.PathFreeze, One: api.PathFreeze, Allow: access.Readers.Scoped(),
		// The wire form shows whether it is active now: it may end by itself.
		Show: func(_ *Seen, f *window.Freeze) api.Freeze { return freezeOf(*f, time.Now()) },
		Doc: openapi.Doc{
			ID: "getFreeze", Summary: "Show the freeze",
			Text:    "Returns whether changes of hosts are frozen, until when, by whom and why.",
			Success: "The freeze.",
		},
	},
	&ResourceOf[gossipkey.Rotation, api.GossipKey]{
		Kind: &gossipkey.Kind, Path: api.PathGossipKey, One: api.PathGossipKey, Allow: access.Readers,
		// The wire form has fingerprints, and no key.
		Show: func(v *Seen, r *gossipkey.Rotation) api.GossipKey {
			return gossipKeyOf(gossipkey.StatusOf(v.View, *r))
		},
		Doc: openapi.Doc{
			ID: "getGossipKey", Summary: "Show the rotation of the gossip key",
			Text: "Returns the newest rotation of the key that encrypts the gossip, and what it waits for. " +
				"Keys are shown as fingerprints only.",
			Success: "The state of the rotation.",
		},
	},
	&ResourceOf[state.Instance, api.Instance]{
		Kind: &state.Instances, Path: api.PathInstances, Allow: access.Readers.Scoped(),
		List: rest.ListingOf[api.Instance]("started", "id", "node", "addr", "version", "started", "leads"),
		// The identity of an instance is two fields on the wire.
		Show: func(v *Seen, in *state.Instance) api.Instance { return instanceOf(in, record.One(v, &state.Lead)) },
		Doc: openapi.Doc{
			ID: "listInstances", Summary: "List the instances of the manager",
			Text: "Returns every live clusterm, oldest first. An instance that crashes stays in the list for " +
				"15 seconds.",
			Success: "The instances.",
		},
	},
	// The wire form lacks the secrets.
	&ResourceOf[state.Machine, machine.Machine]{
		Kind: &state.Machines, Path: api.PathMachines, Allow: access.Readers.Scoped(),
		List: rest.ListingOf[machine.Machine](
			"node", "node", "uuid", "arch", "cpus", "memory_mb", "disk_gb", "registered",
		),
		Show: func(_ *Seen, m *state.Machine) machine.Machine { return m.Machine },
		Doc: openapi.Doc{
			ID: "listMachines", Tag: aboutNodes, Summary: "List the registered machines",
			Text: "Returns what was imported of machines: their BMC, network ports and expected hardware. A node " +
				"that appeared by its agent alone has none. Passwords are never shown.",
			Success: "The machines, by the names of their nodes.",
		},
	},
	&ResourceOf[api.Class, api.Class]{
		Kind: &state.Classes, Path: api.PathClasses, Allow: access.Readers,
		List: rest.ListingOf[api.Class]("name", "name", "from", "created"),
		Show: func(_ *Seen, c *api.Class) api.Class { return *c },
		Doc: openapi.Doc{
			ID:      "listClasses",
			Tag:     aboutNodes,
			Summary: "List the classes of hardware",
			Text:    "Returns each class with its shape. `GET /v1/nodes/{name}/facts` compares a node with them.",
			Success: "The classes, by name.",
		},
	},
	// GET of a single one shows also what has come of its content.
	&ResourceOf[api.Image, api.Image]{
		Kind: &image.Kind, Path: api.PathImages, Allow: access.Readers,
		Show: func(_ *Seen, i *api.Image) api.Image { return *i },
		List: rest.ListingOf[api.Image]("name", "name", "kind", "arch", "state", "created"),
		Doc: openapi.Doc{
			ID: "listImages", Tag: aboutImages, Summary: "List the images",
			Text:    "Returns the images of the repository, and which instances have their content.",
			Success: "The images, by name.",
		},
	},
	&ResourceOf[api.Address, api.Address]{
		Kind: &boot.Kind, Path: api.PathAddresses, Allow: access.Readers,
		Show: func(_ *Seen, a *api.Address) api.Address { return *a },
		List: rest.ListingOf[api.Address]("addr", "addr", "node", "mac", "since"),
		Doc: openapi.Doc{
			ID: "listAddresses", Tag: aboutBoot, Summary: "List the addresses of registered machines",
			Text: "Returns the addresses that the manager gives, those that are reserved, and those that cannot be " +
				"used because another host has them.",
			Success: "The addresses.",
		},
	},
	// The wire form lacks the secrets of a request, and shows whether the plan is still open.
	&ResourceOf[plan.Plan, api.Plan]{
		Kind: &plan.Kind, Path: api.PathPlans, Allow: access.Readers.Scoped(),
		List: rest.ListingOf[api.Plan]("-created", "id", "actor", "created", "expires").
			By("verb", func(p api.Plan) string { return string(p.Request.Verb) }),
		Show: func(_ *Seen, p *plan.Plan) api.Plan { return planOf(*p, time.Now()) },
		Doc: openapi.Doc{
			ID: "listPlans", Tag: aboutJobs, Summary: "List plans",
			Text:    "Returns plans, newest first, without targets, variables and checks.",
			Success: "The plans, newest first.",
		},
	},
	// GET marks those that a bundle contains; a watch shows each delivery as it was made.
	&ResourceOf[notify.Delivery, api.Delivery]{
		Kind: &notify.DeliveryKind, Name: "notifications", Path: api.PathDeliveries,
		Show: func(_ *Seen, d *notify.Delivery) api.Delivery { return d.Delivery },
	},
	// GET shows what the policies judge at that moment; a watch shows their memory.
	&ResourceOf[state.Automation, *state.Automation]{
		Kind: &state.Memory, Name: "policies", Path: api.PathPolicies, Show: itself[state.Automation],
	},
	&ResourceOf[inventory.Power, api.Power]{
		Kind: &state.Powers, Path: api.PathPower, Allow: access.Readers.Scoped(),
		Show: func(_ *Seen, p *inventory.Power) api.Power { return *p },
		List: rest.ListingOf[api.Power]("node", "node", "power", "since"),
		Doc: openapi.Doc{
			ID: "listPower", Tag: aboutNodes, Summary: "List the power of the nodes",
			Text: "Returns whether the nodes with a registered BMC are on, as their BMCs said when the manager last " +
				"asked: every 5 minutes, and after each job that switches them. A BMC that does not answer is a fact " +
				"about the BMC: it changes no status.",
			Success: "The power of each node, by name.",
		},
	},
	// The wire form counts the nodes, of which there may be thousands. The time that is left is
	// an estimate of its moment, for GET.
	&ResourceOf[rollout.Record, api.Rollout]{
		Kind: &rollout.Kind, Path: api.PathRollouts,
		Show: func(_ *Seen, r *rollout.Record) api.Rollout { return rolloutRecordOf(*r) },
	},
	&ResourceOf[api.Scan, *api.Scan]{
		Kind: &scan.Kind, Path: api.PathScan, One: api.PathScan, Allow: access.Readers.Scoped(), Show: itself[api.Scan],
		Doc: openapi.Doc{
			ID: "getScan", Tag: aboutNodes, Summary: "Show the newest scan for BMCs",
			Text:    "Returns when BMCs were looked for in the ranges of the site, and how many answers there were.",
			Success: "The scan.",
		},
	},
	// GET shows which nodes are left to do; a watch shows the record of the rotation.
	&ResourceOf[sshkey.Rotation, *sshkey.Rotation]{
		Kind: &sshkey.Kind, Path: api.PathSSHKey, Show: itself[sshkey.Rotation],
	},
	&ResourceOf[access.Token, api.Token]{
		Kind: &access.TokenKind, Path: api.PathTokens, Allow: access.Admins,
		List: rest.ListingOf[api.Token]("name", "id", "name", "role", "created", "expires", "used"),
		// The wire form has no hash, and the last use, which is a record of its own.
		Show: func(v *Seen, t *access.Token) api.Token { return tokenOf(t.WithUse(v)) },
		Doc: openapi.Doc{
			ID: "listTokens", Summary: "List the bearer tokens",
			Text:    "Returns every token without its secret, by name, those that have expired included.",
			Success: "The tokens.",
		},
	},
}

// itself shows a record as it is.
func itself[T any](_ *Seen, r *T) *T { return r }

// Seen is what a caller sees of a view, with what the wire forms of its records depend on.
type Seen struct {
	*state.Scoped

	server *Server
	nodes  func() nodeForms
	hide   func() func(configuration.Vars) configuration.Vars
}

func (s *Server) seen(v *state.Scoped) *Seen {
	return &Seen{
		Scoped: v, server: s, nodes: sync.OnceValue(func() nodeForms { return s.forms(v) }),
		hide: sync.OnceValue(func() func(configuration.Vars) configuration.Vars { return s.Variables.Hider() }),
	}
}

// Resource is what the API shows of a kind of record: a ResourceOf, or the configuration.
type Resource interface {
	// name is that of the kind in the API.
	name() api.WatchKind
	// kind is the name of the kind of record.
	kind() string
	// path is that of the GET whose callers may see the records.
	path() string
	// objects returns what callers see of the accepted records of a view, with their keys.
	objects(v *Seen, accepts func(record any) bool) iter.Seq2[string, any]
	// object returns what callers see of a record after a change, or nil.
	object(v *Seen, c state.Change) any
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
	// Show returns the wire form of a record of the view. An untyped nil is not shown.
	Show func(v *Seen, r *T) W
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

func (o *ResourceOf[T, W]) objects(v *Seen, accepts func(any) bool) iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for key, r := range record.All(v, o.Kind) {
			if !accepts(r) {
				continue
			}

			if shown := any(o.Show(v, r)); shown != nil && !yield(key, shown) {
				return
			}
		}
	}
}

func (o *ResourceOf[T, W]) object(v *Seen, c state.Change) any {
	r, ok := c.Record.(*T)
	if !ok && !o.Kind.Every {
		r = record.Get(v, o.Kind, c.Key)
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
		routes = append(routes, list(s, *o.List, o.getList(s), rest.Route{Path: o.Path, Allow: o.Allow, Doc: &doc}))
	}

	if o.One != "" {
		routes = append(routes, show(s, o.getOne(s), rest.Route{Path: o.One, Allow: o.Allow, Doc: &doc}))
	}

	return routes
}

func (o *ResourceOf[T, W]) getList(s *Server) func(*http.Request, *state.Scoped) ([]W, func(W) W, error) {
	return func(_ *http.Request, v *state.Scoped) ([]W, func(W) W, error) {
		seen := s.seen(v)
		// A listing expects its items in the order of the key.
		all := maps.Collect(record.All(v, o.Kind))

		items := make([]W, 0, len(all))
		for _, key := range slices.Sorted(maps.Keys(all)) {
			items = append(items, o.Show(seen, all[key]))
		}

		return items, func(item W) W { return item }, nil
	}
}

// getOne answers with a record. The only one of a kind may be zero, because it was never
// written.
func (o *ResourceOf[T, W]) getOne(s *Server) func(*http.Request, *state.Scoped) (W, int64, error) {
	return func(r *http.Request, v *state.Scoped) (shown W, revision int64, err error) {
		if o.Kind.Single {
			only := record.One(v, o.Kind)
			return o.Show(s.seen(v), &only), 0, nil
		}

		key := rest.Param(r, "name")

		found := record.Get(v, o.Kind, key)
		if found == nil {
			return shown, 0, inventory.
				Errorf(inventory.KindNotFound, "there is no %q among the %s", inventory.Shorten(key, 100), o.name()).
				Do("GET %s lists them", o.Path)
		}

		return o.Show(s.seen(v), found), 0, nil
	}
}

// effectiveConfig is the configuration, which is made of the overlay and the file of an instance.
type effectiveConfig struct{}

func (effectiveConfig) name() api.WatchKind { return api.WatchConfig }

func (effectiveConfig) kind() string { return state.Config.Kind }

func (effectiveConfig) path() string { return api.PathConfig }

func (effectiveConfig) routes(*Server) []rest.Route { return nil }

func (effectiveConfig) objects(v *Seen, _ func(any) bool) iter.Seq2[string, any] {
	return maps.All(map[string]any{"": v.server.Settings.Config()})
}

func (effectiveConfig) object(v *Seen, _ state.Change) any { return v.server.Settings.Config() }

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
	i := slices.IndexFunc(Resources, func(o Resource) bool { return o.kind() == kind })
	if i < 0 {
		return nil
	}
	return Resources[i]
}
