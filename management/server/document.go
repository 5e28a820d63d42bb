// SPDX-License-Identifier: Apache-2.0

package server

import (
	"maps"
	"net/http"
	"sync"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/facts"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/server/legacy"
	"github.com/contiv/cluster/management/server/rest"
)

// Document returns the document of the API: the head, the routes with the types of their bodies and answers, and the
// examples.
var Document = sync.OnceValues(func() ([]byte, error) {
	types, err := openapi.NewTypes(fieldValues, api.Source, inventory.Source, machine.Source, facts.Source)
	if err != nil {
		return nil, err
	}

	var routes []openapi.Route

	add := func(tag string, all []rest.Route) {
		for _, rt := range all {
			r := openapi.Route{
				Method: rt.Method, Path: rt.Path, Query: rt.Query, Conditional: rt.Conditional,
				Keyed: rt.Keyed(), Failures: rt.Family.Failures, Doc: rt.Doc,
			}

			if r.Doc != nil && r.Doc.Tag == "" {
				doc := *r.Doc
				doc.Tag, r.Doc = tag, &doc
			}

			if rt.Keyed() && !replays(rt) {
				doc := *r.Doc
				doc.Fails = maps.Clone(doc.Fails)
				if doc.Fails == nil {
					doc.Fails = openapi.Fails{}
				}
				doc.Fails[http.StatusGone] = "It was carried out under this `Idempotency-Key`; its answer is not kept."
				r.Doc = &doc
			}

			for _, role := range rt.Allow.Roles {
				r.Roles = append(r.Roles, string(role))
			}

			routes = append(routes, r)
		}
	}

	add("Manager", (&Server{}).versioned())
	add("First generation", legacy.New(legacy.Options{}).Routes())

	// Types that only schemas of the head name.
	return types.Build(api.OpenAPI, api.Examples, routes, api.Problem{}, api.MergedVar{}, api.Setting{})
})

// fieldValues are the values of fields that are plain strings in Go.
var fieldValues = map[string][]string{
	"api.Action.Action": actionNames(),
	"api.Problem.Type":  problemTypes(),
	"api.Decision.Action": {
		"verify", "repair", "quarantine", "record", "commission", "upgrade", "supersede", "stop", "yield", "brake",
		"release",
	},
	"api.Change.Kind": watchKinds(),
	"api.Job.Cause": {
		"failed", "cancelled", "deadline", "interrupted", "precondition", "absent", "drifted", "internal",
	},
	"api.Rollout.Status": {
		"Planned",
		"AwaitingApproval",
		"Running",
		"Paused",
		"AwaitingPromotion",
		"Stopped",
		"Aborting",
		"Aborted",
		"Done",
		"Failed",
	},
	"api.Run.Exit": {
		"done", "failed", "cancelled", "deadline", "interrupted", "precondition", "absent", "internal",
	},
	"api.RolloutEvent.Kind": {
		"started", "approved", "promoted", "paused", "resumed", "retried", "playbooks", "stopped", "abort", "canary",
		"failed", "skipped", "ended",
	},
}

// The tags of routes about other nouns than the manager itself.
const (
	aboutNodes     = "Nodes"
	aboutJobs      = "Jobs"
	aboutVariables = "Variables"
	aboutImages    = "Images"
	aboutBoot      = "Boot"
)

// refused is what 409 means where the kind of the problem does not say it all.
const refused = "A rule, a status or a state forbids the change, or a concurrent change came first."

// The parameters of paths that several routes share.
var (
	nodeName = openapi.Param{
		Name: "name", Help: "The node's name, `LABEL-SERIAL`.", Example: "host3-35a0",
		Missing: "The node does not exist.",
	}
	policyName = openapi.Param{
		Name: "name", Help: "The name of a policy.", Example: "returns", Missing: "The policy does not exist.",
	}
	groupName = openapi.Param{
		Name: "name", Help: "The group's name.", Example: "service-worker", Missing: "The group does not exist.",
	}
	jobID = openapi.Param{
		Name: "id", Example: "2", Missing: "The job does not exist.",
		Help: "The job's number; `active` for the running job that started last, or `last` for the job that ended " +
			"last.",
	}
	rolloutID = openapi.Param{
		Name: "id", Help: "The id of a rollout.", Example: "r7b1e44d2", Missing: "The rollout does not exist.",
	}
	planID = openapi.Param{
		Name: "id", Help: "The id of a plan.", Example: "3f9a1c20-7b1e44d2", Missing: "The plan does not exist.",
	}
)

// actionNames are the names of the actions that a remedy recommends.
func actionNames() []string {
	var out []string
	for _, row := range inventory.Actions {
		out = append(out, string(row.Name))
	}

	return out
}

// watchKinds are the kinds of object in a watch.
func watchKinds() []string {
	var out []string
	for _, kind := range api.WatchKinds {
		out = append(out, string(kind))
	}

	return out
}

// problemTypes are the types of problems, one for each kind of failure.
func problemTypes() []string {
	var out []string
	for _, row := range api.KindTable {
		out = append(out, api.ProblemBase+string(row.Kind))
	}

	return out
}
