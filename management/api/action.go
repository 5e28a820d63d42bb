// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
)

// Action is an operation that a remedy recommends: its name with its arguments, and the request that carries it
// out.
//
// A client with commands or buttons of its own renders the name and the arguments.
type Action struct {
	// The name; stable. Clients should ignore actions with an unknown name, or show their request.
	Action string         `json:"action"`
	Verb   inventory.Verb `json:"verb,omitempty"`
	Nodes  []string       `json:"nodes,omitempty"` // the nodes; absent where the operator names them
	Addrs  []string       `json:"addrs,omitempty"` // the addresses to discover
	Group  string         `json:"group,omitempty"` // the group that the nodes are to join
	// The playbooks of the cleanup; retry-rollout: of the failed nodes.
	Playbooks string   `json:"playbooks,omitempty" enum:"current"`
	Job       string   `json:"job,omitempty"`     // the job
	Plan      string   `json:"plan,omitempty"`    // the plan
	Rollout   string   `json:"rollout,omitempty"` // the rollout
	Failed    bool     `json:"failed,omitempty"`  // only the nodes on which the job did not succeed
	Force     bool     `json:"force,omitempty"`   // without the check of the node's state
	Timeout   Duration `json:"timeout,omitempty"` // the time limit of the job
	Key       string   `json:"key,omitempty"`     // the key of a setting
	Value     string   `json:"value,omitempty"`   // the value of the setting

	Method string `json:"method"` // the method of the request
	Path   string `json:"path"`   // the path of the request, with its query
	// The body of the request, for a job with all its options. Where it has no nodes, no connection settings, or
	// the text `(hidden)` for a variable, the operator completes it.
	Body json.RawMessage `json:"body,omitempty"`
}

// ActionsOf returns the wire form of actions, with the request of each.
func ActionsOf(actions []inventory.Action) []Action {
	var out []Action
	for _, a := range actions {
		method, path, body := request(a)
		out = append(out, Action{
			Action:    string(a.Name),
			Verb:      a.Verb,
			Nodes:     a.Nodes,
			Addrs:     a.Addrs,
			Group:     a.Group,
			Playbooks: a.Playbooks,
			Job:       a.Job,
			Plan:      a.Plan,
			Rollout:   a.Rollout,
			Failed:    a.Failed,
			Force:     a.Force,
			Timeout:   Duration(a.Timeout),
			Key:       a.Key,
			Value:     a.Value,
			Method:    method,
			Path:      path,
			Body:      body,
		})
	}

	return out
}

// RestoreActions returns the actions behind their wire form. It keeps names that
// this version does not have, for they have a request.
func RestoreActions(actions []Action) []inventory.Action {
	var out []inventory.Action
	for _, a := range actions {
		action := inventory.Action{
			Name:    inventory.ActionName(a.Action),
			Verb:    a.Verb,
			Nodes:   a.Nodes,
			Addrs:   a.Addrs,
			Group:   a.Group,
			Job:     a.Job,
			Plan:    a.Plan,
			Rollout: a.Rollout,
			Failed:  a.Failed,
			Timeout: time.Duration(a.Timeout),
			Key:     a.Key,
			Value:   a.Value,
		}
		action.Playbooks, action.Force = a.Playbooks, a.Force
		out = append(out, a.withRequest(action))
	}

	return out
}

// jobRequest returns the request for the job of an action.
func jobRequest(a inventory.Action) JobRequest {
	return JobRequest{
		Verb: a.Verb, Nodes: a.Nodes, Addrs: a.Addrs, Ranges: a.Ranges, Group: a.Group, JobOptions: a.JobOptions,
		Timeout: Duration(a.Timeout), HostKeys: a.HostKeys, ExtraVars: json.RawMessage(inventory.ExtraText(a.Extra)),
	}
}

// withRequest adds to the action behind a wire form what only the request of its job has.
func (a Action) withRequest(to inventory.Action) inventory.Action {
	var r JobRequest
	if to.Name == inventory.ActionRetryJob && json.Unmarshal(a.Body, &r) == nil {
		to.Serial = r.Serial
		return to
	}

	if to.Name != inventory.ActionSubmit && to.Name != inventory.ActionMakePlan || json.Unmarshal(a.Body, &r) != nil {
		return to
	}

	// Numbers keep every digit.
	dec := json.NewDecoder(bytes.NewReader(r.ExtraVars))
	dec.UseNumber()

	var extra map[string]any
	if len(r.ExtraVars) > 0 && dec.Decode(&extra) != nil {
		return to
	}

	to.JobOptions, to.Ranges, to.HostKeys, to.Extra = r.JobOptions, r.Ranges, r.HostKeys, extra

	return to
}

// request returns the request that carries the action out; all are empty for an
// unknown action. body is nil for a request without one.
func request(a inventory.Action) (method, path string, body json.RawMessage) {
	switch a.Name {
	// Nodes
	case inventory.ActionListNodes:
		return http.MethodGet, PathNodes, nil
	case inventory.ActionSubmit:
		return http.MethodPost, PathJobs, encode(jobRequest(a))
	case inventory.ActionShowDiff:
		return http.MethodGet, pathOf(PathDifference, a.Nodes...), nil
	case inventory.ActionForgetNodes:
		return http.MethodPost, PathForget, encode(Forget{Nodes: append([]string{}, a.Nodes...), Force: a.Force})
	case inventory.ActionTrustHostKey:
		// The operator compares the fingerprints, and then puts one.
		return http.MethodPost, pathOf(PathScanHostKeys, a.Nodes...), nil
	case inventory.ActionSetConnection:
		// The operator fills the settings in.
		return http.MethodPatch, pathOf(PathNode, a.Nodes...), encode(NodePatch{Connection: &Connection{}})

	// Jobs
	case inventory.ActionListJobs:
		return http.MethodGet, PathJobs, nil
	case inventory.ActionShowJob:
		return http.MethodGet, pathOf(PathJob, a.Job), nil
	case inventory.ActionWaitForJob:
		return http.MethodGet, pathOf(PathJob, a.Job) + "?wait=30s", nil
	case inventory.ActionExplainJob:
		return http.MethodGet, pathOf(PathExplainJob, a.Job), nil
	case inventory.ActionReadLog:
		return http.MethodGet, pathOf(PathLog, a.Job), nil
	case inventory.ActionFollowLog:
		return http.MethodGet, pathOf(PathLog, a.Job) + "?follow=true", nil
	case inventory.ActionCancelJob:
		return http.MethodPost, pathOf(PathCancel, a.Job), nil
	case inventory.ActionRetryJob:
		return http.MethodPost, pathOf(PathRetry, a.Job), encode(Retry{
			Failed:    a.Failed,
			Nodes:     a.Nodes,
			Playbooks: a.Playbooks,
			Timeout:   Duration(a.Timeout),
			Serial:    a.Serial,
		})

	// Plans
	case inventory.ActionMakePlan:
		return http.MethodPost, PathPlans, encode(jobRequest(a))
	case inventory.ActionListPlans:
		return http.MethodGet, PathPlans, nil
	case inventory.ActionShowPlan:
		return http.MethodGet, pathOf(PathPlan, a.Plan), nil

	// The manager
	case inventory.ActionShowSettings, inventory.ActionSetGroup:
		// The groups are one setting, which the operator changes as a whole.
		return http.MethodGet, PathConfig, nil
	case inventory.ActionSetSetting:
		return http.MethodPatch, PathConfig, encode(map[string]string{a.Key: a.Value})
	case inventory.ActionUnsetSetting:
		unset := map[string]*string{}
		for _, key := range strings.Fields(a.Key) {
			unset[key] = nil
		}

		return http.MethodPatch, PathConfig, encode(unset)
	case inventory.ActionSetVariable:
		return http.MethodPatch, pathOf(PathNodeVars, a.Nodes...), encode(map[string]json.RawMessage{
			a.Key: json.RawMessage(cmp.Or(a.Value, "null")),
		})
	case inventory.ActionShowSSHKey:
		return http.MethodGet, PathSSHKey, nil
	case inventory.ActionCancelSSHKey:
		return http.MethodPost, PathCancelSSHKey, nil
	case inventory.ActionShowHealth:
		return http.MethodGet, PathHealth, nil
	case inventory.ActionListRollouts:
		return http.MethodGet, PathRollouts, nil
	case inventory.ActionShowRollout:
		return http.MethodGet, pathOf(PathRollout, a.Rollout), nil
	case inventory.ActionPromote:
		return http.MethodPost, pathOf(PathPromoteRollout, a.Rollout), encode(RolloutControl{})
	case inventory.ActionApprove:
		return http.MethodPost, pathOf(PathApproveRollout, a.Rollout), encode(RolloutControl{})
	case inventory.ActionResume:
		return http.MethodPost, pathOf(PathResumeRollout, a.Rollout), encode(RolloutResume{})
	case inventory.ActionRetryRollout:
		return http.MethodPost, pathOf(PathRetryRollout, a.Rollout), encode(RolloutRetry{
			PlaybooksNow: a.Playbooks == inventory.PlaybooksCurrent,
		})
	case inventory.ActionAbort:
		return http.MethodPost, pathOf(PathAbortRollout, a.Rollout), encode(RolloutAbort{})
	case inventory.ActionListWindows:
		return http.MethodGet, PathWindows, nil
	case inventory.ActionListPolicies:
		return http.MethodGet, PathPolicies, nil
	case inventory.ActionTestPolicy:
		return http.MethodPost, pathOf(PathTestPolicy, a.Key), encode(PolicyTest{})
	case inventory.ActionEnablePolicy:
		return http.MethodPost, pathOf(PathEnablePolicy, a.Key), encode(PolicyEnable{
			All: a.Value == inventory.ForEveryNode,
		})
	case inventory.ActionLiftFreeze:
		return http.MethodPost, PathLiftFreeze, encode(FreezeLift{})
	case inventory.ActionReleaseBrake:
		return http.MethodPost, PathReleaseBrake, encode(PolicyControl{})
	case inventory.ActionShowVersion:
		return http.MethodGet, PathVersion, nil
	case inventory.ActionShowRepo:
		return http.MethodGet, PathRepository, nil
	case inventory.ActionSyncRepo:
		return http.MethodPost, PathSyncRepository, nil
	case inventory.ActionLogRepo:
		return http.MethodGet, PathRepositoryLog, nil
	}

	return "", "", nil
}

// pathOf returns the path of an action. An empty parameter leaves the pattern.
func pathOf(pattern string, params ...string) string {
	path, err := Path(pattern, params...)
	if err != nil {
		return pattern
	}
	return path
}

// encode returns the body of a request, all of whose types have an encoding.
func encode(body any) json.RawMessage {
	b, err := json.Marshal(body)
	if err != nil {
		return nil
	}
	return b
}
