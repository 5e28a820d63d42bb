// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
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

// form is how an action is carried out: by a request, and by a command of clusterctl.
type form struct {
	method, path string
	body         func(inventory.Action) any // nil: none
	// command has words in capitals for the fields of the action. The first of them is the parameter of the path.
	command string
	more    func(inventory.Action) []string // further words of the command; nil: none
}

// forms are those of all actions.
var forms = map[inventory.ActionName]form{
	inventory.ActionListNodes: {http.MethodGet, PathNodes, nil, "nodes get", nil},
	inventory.ActionSubmit:    {http.MethodPost, PathJobs, submitted, "", submitWords},
	inventory.ActionShowDiff:  {http.MethodGet, PathDifference, nil, "nodes diff NODES", nil},
	inventory.ActionForgetNodes: {http.MethodPost, PathForget, func(a inventory.Action) any {
		return Forget{Nodes: append([]string{}, a.Nodes...), Force: a.Force}
	}, "", forgetWords},
	inventory.ActionListAlerts: {http.MethodGet, PathAlerts, nil, "alert list", nil},
	inventory.ActionEndAlert: {http.MethodPost, PathEndAlert, func(a inventory.Action) any {
		return AlertEnd{ID: a.Key}
	}, "alert end KEY", nil},
	// The operator compares the fingerprints, and then puts one.
	inventory.ActionTrustHostKey: {http.MethodPost, PathScanHostKeys, nil, "nodes trust NODES", nil},
	// The operator fills the settings in.
	inventory.ActionSetConnection: {
		http.MethodPatch, PathNode, always(NodePatch{Connection: &Connection{}}), "nodes get NODES -o long", nil,
	},

	inventory.ActionListJobs:   {http.MethodGet, PathJobs, nil, "job list", nil},
	inventory.ActionShowJob:    {http.MethodGet, PathJob, nil, "job get JOB -o long", nil},
	inventory.ActionWaitForJob: {http.MethodGet, PathJob + "?wait=30s", nil, "job wait JOB", nil},
	inventory.ActionExplainJob: {http.MethodGet, PathExplainJob, nil, "job why JOB", nil},
	inventory.ActionReadLog:    {http.MethodGet, PathLog, nil, "job logs JOB", nil},
	inventory.ActionFollowLog:  {http.MethodGet, PathLog + "?follow=true", nil, "job logs -f JOB", nil},
	inventory.ActionCancelJob:  {http.MethodPost, PathCancel, nil, "job cancel JOB", nil},
	inventory.ActionRetryJob: {http.MethodPost, PathRetry, func(a inventory.Action) any {
		return Retry{
			Failed: a.Failed, Nodes: a.Nodes, Playbooks: a.Playbooks, Timeout: Duration(a.Timeout), Serial: a.Serial,
		}
	}, "job retry JOB NODES", func(a inventory.Action) []string {
		return confirmed(append(option("--failed", a.Failed), optionWords(a)...), a)
	}},

	inventory.ActionMakePlan: {http.MethodPost, PathPlans, submitted, "", func(a inventory.Action) []string {
		return confirmed(append(submitCommand(a), "--plan"), a)
	}},
	inventory.ActionListPlans: {http.MethodGet, PathPlans, nil, "plan list", nil},
	inventory.ActionShowPlan:  {http.MethodGet, PathPlan, nil, "plan show PLAN", nil},

	inventory.ActionShowSettings: {http.MethodGet, PathConfig, nil, "config get KEYS", nil},
	// The groups are one setting, which the operator changes as a whole.
	inventory.ActionSetGroup: {http.MethodGet, PathConfig, nil, "group set GROUP KEY=VALUE", nil},
	inventory.ActionSetSetting: {http.MethodPatch, PathConfig, func(a inventory.Action) any {
		return map[string]string{a.Key: a.Value}
	}, "config set KEY=VALUE", nil},
	inventory.ActionUnsetSetting: {http.MethodPatch, PathConfig, func(a inventory.Action) any {
		unset := map[string]*string{}
		for _, key := range strings.Fields(a.Key) {
			unset[key] = nil
		}

		return unset
	}, "config unset KEYS", nil},
	inventory.ActionSetVariable: {http.MethodPatch, PathNodeVars, func(a inventory.Action) any {
		return map[string]json.RawMessage{a.Key: json.RawMessage(cmp.Or(a.Value, "null"))}
	}, "vars set --node NODES KEY=VALUE", nil},

	inventory.ActionShowSSHKey:   {http.MethodGet, PathSSHKey, nil, "key status ssh", nil},
	inventory.ActionCancelSSHKey: {http.MethodPost, PathCancelSSHKey, nil, "key cancel ssh", nil},
	inventory.ActionShowHealth:   {http.MethodGet, PathHealth, nil, "status", nil},
	inventory.ActionShowVersion:  {http.MethodGet, PathVersion, nil, "status", nil},

	inventory.ActionListRollouts: {http.MethodGet, PathRollouts, nil, "rollout list", nil},
	inventory.ActionShowRollout:  {http.MethodGet, PathRollout, nil, "rollout show ROLLOUT", nil},
	inventory.ActionPromote: {
		http.MethodPost, PathPromoteRollout, always(RolloutControl{}), "rollout promote ROLLOUT", nil,
	},
	inventory.ActionApprove: {
		http.MethodPost, PathApproveRollout, always(RolloutControl{}), "rollout approve ROLLOUT", nil,
	},
	inventory.ActionResume: {
		http.MethodPost, PathResumeRollout, always(RolloutResume{}), "rollout resume ROLLOUT", nil,
	},
	inventory.ActionAbort: {http.MethodPost, PathAbortRollout, always(RolloutAbort{}), "rollout abort ROLLOUT", nil},
	inventory.ActionRetryRollout: {http.MethodPost, PathRetryRollout, func(a inventory.Action) any {
		return RolloutRetry{PlaybooksNow: a.Playbooks == inventory.PlaybooksCurrent}
	}, "rollout retry ROLLOUT", func(a inventory.Action) []string {
		return option("--playbooks-now", a.Playbooks == inventory.PlaybooksCurrent)
	}},

	inventory.ActionListWindows:  {http.MethodGet, PathWindows, nil, "windows", nil},
	inventory.ActionLiftFreeze:   {http.MethodPost, PathLiftFreeze, always(FreezeLift{}), "freeze off", nil},
	inventory.ActionListPolicies: {http.MethodGet, PathPolicies, nil, "policy list", nil},
	inventory.ActionTestPolicy:   {http.MethodPost, PathTestPolicy, always(PolicyTest{}), "policy test KEY", nil},
	inventory.ActionReleaseBrake: {http.MethodPost, PathReleaseBrake, always(PolicyControl{}), "policy release", nil},
	inventory.ActionEnablePolicy: {http.MethodPost, PathEnablePolicy, func(a inventory.Action) any {
		return PolicyEnable{All: a.Value == inventory.ForEveryNode}
	}, "policy enable KEY", func(a inventory.Action) []string {
		return option("--all", a.Value == inventory.ForEveryNode)
	}},

	inventory.ActionShowRepo: {http.MethodGet, PathRepository, nil, "repo status", nil},
	inventory.ActionSyncRepo: {http.MethodPost, PathSyncRepository, nil, "repo sync", nil},
	inventory.ActionLogRepo:  {http.MethodGet, PathRepositoryLog, nil, "repo log", nil},
}

// always is a body without fields of the action.
func always(body any) func(inventory.Action) any { return func(inventory.Action) any { return body } }

func submitted(a inventory.Action) any { return jobRequest(a) }

// request returns the request that carries the action out; all are empty for an
// unknown action. body is nil for a request without one.
func request(a inventory.Action) (method, path string, body json.RawMessage) {
	f := forms[a.Name]
	if f.body != nil {
		body = encode(f.body(a))
	}

	_, fields := f.words(a)

	return f.method, pathOf(f.path, fields...), body
}

// words returns the words of the command, and those of them that are fields of the action.
func (f form) words(a inventory.Action) (words, fields []string) {
	one := strings.NewReplacer(
		"JOB", a.Job, "PLAN", a.Plan, "ROLLOUT", a.Rollout, "GROUP", a.Group, "KEY", a.Key, "VALUE", a.Value,
	)

	for word := range strings.FieldsSeq(f.command) {
		values := []string{one.Replace(word)}

		switch word {
		case "NODES":
			values = a.Nodes
		case "KEYS":
			values = strings.Fields(a.Key)
		}

		if word == strings.ToUpper(word) {
			fields = append(fields, append(slices.Clone(values), "")[0])
		}

		words = append(words, values...)
	}

	if f.more != nil {
		words = append(words, f.more(a)...)
	}

	return words, fields
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
