// SPDX-License-Identifier: Apache-2.0

package server

import (
	"slices"
	"sync"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/server/legacy"
)

// Document returns the document of the API: what the routes and the types of their bodies and answers say about
// themselves, and the examples and texts of api.OpenAPI.
var Document = sync.OnceValues(func() ([]byte, error) {
	types, err := openapi.NewTypes(fieldValues, api.Source, inventory.Source)
	if err != nil {
		return nil, err
	}

	var routes []openapi.Route

	for _, rt := range slices.Concat((&Server{}).versioned(), legacy.New(legacy.Options{}).Routes()) {
		r := openapi.Route{
			Method: rt.Method, Path: rt.Path, Query: rt.Query, Conditional: rt.Conditional, Idempotent: rt.Idempotent,
			Doc: rt.Doc,
		}

		for _, role := range access.RolesFor(routeOf(rt)) {
			r.Roles = append(r.Roles, string(role))
		}

		routes = append(routes, r)
	}

	return types.Build(api.OpenAPI, routes, bodies...)
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

// bodies are the types of bodies and answers of routes that do not name them yet.
var bodies = []any{
	api.AuditEntry{}, api.AuditEvent{}, api.AuditList{}, api.AuditReport{}, api.List[api.Certificate]{}, api.Change{},
	api.Changed{}, api.Difference{}, api.Forget{}, api.GossipKey{}, api.GossipKeyRotation{}, api.List[api.Group]{},
	api.Health{}, api.List[api.HistoryEntry]{}, api.HostKeyTrust{}, api.HostKeys{}, api.Identity{},
	api.List[api.Instance]{}, api.List[api.InventoryHost]{}, api.Job{}, api.JobExplanation{}, api.List[api.Job]{},
	api.JobRequest{}, api.MergedVar{}, api.Node{}, api.NodeExplanation{}, api.List[api.Node]{}, api.NodePatch{},
	api.Permission{}, api.Ping{}, api.List[api.PingResult]{}, api.Plan{}, api.List[api.Plan]{}, api.Policies{},
	api.Policy{}, api.PolicyControl{}, api.PolicyEnable{}, api.PolicyTest{}, api.PolicyTested{}, api.Problem{},
	api.Report{}, api.Reported{}, api.Repository{}, api.RepositoryDiff{}, api.RepositoryLog{}, api.Retry{},
	api.Rollout{}, api.RolloutAbort{}, api.RolloutControl{}, api.List[api.Rollout]{}, api.RolloutRequest{},
	api.RolloutResume{}, api.RolloutRetry{}, api.SSHKey{}, api.SSHKeyRotation{}, api.Secrets{}, api.SecretsRotation{},
	api.Freeze{}, api.Setting{}, api.List[api.Token]{}, api.List[api.VarsChange]{}, api.VarsUndo{}, api.Version{},
}

// aboutManager is the tag of the routes that concern the manager itself.
const aboutManager = "Manager"

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
