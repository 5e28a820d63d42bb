// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// ActionName identifies an operation that a remedy recommends. Names cross the
// API and never change their meaning.
type ActionName string

// The names of actions. Actions has the meaning of each.
const (
	ActionListNodes     ActionName = "list-nodes"
	ActionSubmit        ActionName = "submit"
	ActionShowDiff      ActionName = "show-difference"
	ActionForgetNodes   ActionName = "forget-nodes"
	ActionListAlerts    ActionName = "list-alerts"
	ActionEndAlert      ActionName = "end-alert"
	ActionTrustHostKey  ActionName = "trust-host-key"
	ActionSetConnection ActionName = "set-connection"
	ActionListJobs      ActionName = "list-jobs"
	ActionShowJob       ActionName = "show-job"
	ActionWaitForJob    ActionName = "wait-for-job"
	ActionExplainJob    ActionName = "explain-job"
	ActionReadLog       ActionName = "read-log"
	ActionFollowLog     ActionName = "follow-log"
	ActionCancelJob     ActionName = "cancel-job"
	ActionRetryJob      ActionName = "retry-job"
	ActionMakePlan      ActionName = "make-plan"
	ActionListPlans     ActionName = "list-plans"
	ActionShowPlan      ActionName = "show-plan"
	ActionShowSettings  ActionName = "show-settings"
	ActionSetSetting    ActionName = "set-setting"
	ActionUnsetSetting  ActionName = "unset-setting"
	ActionSetGroup      ActionName = "set-group"
	ActionSetVariable   ActionName = "set-variable"
	ActionShowSSHKey    ActionName = "show-ssh-key"
	ActionCancelSSHKey  ActionName = "cancel-ssh-key"
	ActionShowHealth    ActionName = "show-health"
	ActionListPolicies  ActionName = "list-policies"
	ActionTestPolicy    ActionName = "test-policy"
	ActionEnablePolicy  ActionName = "enable-policy"
	ActionListWindows   ActionName = "list-windows"
	ActionLiftFreeze    ActionName = "lift-freeze"
	ActionListRollouts  ActionName = "list-rollouts"
	ActionShowRollout   ActionName = "show-rollout"
	ActionPromote       ActionName = "promote-rollout"
	ActionApprove       ActionName = "approve-rollout"
	ActionResume        ActionName = "resume-rollout"
	ActionRetryRollout  ActionName = "retry-rollout"
	ActionAbort         ActionName = "abort-rollout"
	ActionReleaseBrake  ActionName = "release-brake"
	ActionShowVersion   ActionName = "show-version"
	ActionShowRepo      ActionName = "show-repository"
	ActionSyncRepo      ActionName = "sync-repository"
	ActionLogRepo       ActionName = "log-repository"
)

// Actions lists every action with its meaning, in the order of the documentation.
var Actions = []struct {
	Name    ActionName
	Meaning string
}{
	{ActionListNodes, "list the nodes"},
	{
		ActionSubmit,
		"submit a job: verb with nodes or addrs, group and playbooks, and in the body further options; without " +
			"nodes, the operator names them",
	},
	{ActionShowDiff, "show what the last verification of a node found"},
	{ActionForgetNodes, "remove the records of nodes; without nodes, the operator names them"},
	{ActionListAlerts, "list the alerts"},
	{ActionEndAlert, "end the alert key on all nodes that have it"},
	{ActionTrustHostKey, "compare the ssh host key that a node shows with the recorded one, and record it"},
	{ActionSetConnection, "change the ssh parameters of nodes; the operator enters them"},
	{ActionListJobs, "list the jobs"},
	{ActionShowJob, "show a job"},
	{ActionWaitForJob, "follow a job until it ends"},
	{ActionExplainJob, "explain why a job waits, runs on or failed"},
	{ActionReadLog, "read the output of a job"},
	{ActionFollowLog, "read the output of a job until it ends"},
	{ActionCancelJob, "cancel a job"},
	{
		ActionRetryJob,
		"submit a job again, with the playbooks and variables of today; failed: only for the nodes that did not " +
			"succeed; nodes: only for these; playbooks: of its cleanup; timeout: its time limit; " +
			"in the body serial: the size of a batch",
	},
	{ActionMakePlan, "plan a job, and do nothing: as submit"},
	{ActionListPlans, "list the plans"},
	{ActionShowPlan, "show a plan"},
	{ActionShowSettings, "show the settings with a key that begins with key; without key, all"},
	{ActionSetSetting, "set the setting key to value"},
	{ActionUnsetSetting, "remove the values of the settings in key, separated by spaces, that were set at run time"},
	{
		ActionSetGroup,
		"set the field key of a host group to value, or remove it without value; the request reads the setting " +
			"groups, which the operator changes",
	},
	{ActionSetVariable, "set the variable key of a node to value, a JSON text"},
	{ActionShowSSHKey, "show the rotation of the manager's ssh key"},
	{ActionCancelSSHKey, "take the running rotation of the manager's ssh key back"},
	{ActionShowHealth, "show the health of the manager"},
	{ActionListPolicies, "list the policies and what they decided"},
	{ActionTestPolicy, "show what the policy key would do"},
	{ActionEnablePolicy, "turn the policy key on; value all: it is for every node"},
	{ActionListWindows, "list the maintenance windows and the freeze"},
	{ActionLiftFreeze, "end the freeze"},
	{ActionListRollouts, "list the rollouts"},
	{ActionShowRollout, "show a rollout with its nodes"},
	{ActionPromote, "let a rollout go on after its canary"},
	{ActionApprove, "approve a rollout of somebody else"},
	{ActionResume, "let a paused or stopped rollout go on"},
	{
		ActionRetryRollout,
		"begin the failed nodes of a rollout once more; playbooks: with the configured ones as they are now",
	},
	{ActionAbort, "end a rollout before it has begun all of its nodes"},
	{ActionReleaseBrake, "release the brake of automation"},
	{ActionShowVersion, "show the version of the manager"},
	{ActionShowRepo, "show the state of the repository of playbooks"},
	{ActionSyncRepo, "fetch the repository of playbooks now"},
	{ActionLogRepo, "list the commits of the repository of playbooks"},
}

// Action is one operation that a remedy recommends, with its arguments. Each
// client renders it in its own form: a command line, a request, a button.
type Action struct {
	Name    ActionName
	Verb    Verb     // of a job to submit
	Nodes   []string // by name; empty where the operator names them
	Addrs   []string // in place of nodes, for VerbDiscover
	Ranges  []string // of further addresses
	Group   string   // that the nodes are to join
	Job     string   // the id
	Plan    string   // the id
	Rollout string   // the id
	Failed  bool     // only the nodes on which the job did not succeed
	Key     string   // of a setting
	Value   string   // of a setting
	// Confirmed: the operator has confirmed the job already. Only a client knows it, so it is on no wire.
	Confirmed bool

	// JobOptions are those of a job to submit or to plan. Force also belongs to the removal of records, and Serial
	// and Playbooks to a job to submit again.
	JobOptions

	Timeout  time.Duration       // of the job; 0: the configured one, or as before
	HostKeys map[string][]string // by address
	// Extra are the variables of the request, with values of JSON. Some may have Hidden in
	// place of a secret, which a manager refuses.
	Extra map[string]any
}

// Hidden stands for the value of a secret variable in everything that is shown.
const Hidden = "(hidden)"

// SplitExtra returns the variables of the request that are shown whole, and the names of the
// others, sorted: the operator gives their values again.
func (a Action) SplitExtra() (shown map[string]any, withheld []string) {
	shown = maps.Clone(a.Extra)

	maps.DeleteFunc(shown, func(name string, value any) bool {
		text, err := json.Marshal(value)
		hides := err != nil || strings.Contains(string(text), `"`+Hidden+`"`)

		if hides {
			withheld = append(withheld, name)
		}
		return hides
	})

	slices.Sort(withheld)

	return shown, withheld
}

// ExtraText returns variables of a request as a JSON object, or "" for none.
func ExtraText(extra map[string]any) string {
	if len(extra) == 0 {
		return ""
	}

	text, err := json.Marshal(extra)
	if err != nil {
		return ""
	}
	return string(text)
}

// ListNodes returns the action that lists the nodes.
func ListNodes() Action { return Action{Name: ActionListNodes} }

// Submit returns the action that submits a job of a verb that takes nodes.
func Submit(v Verb, nodes ...string) Action { return Action{Name: ActionSubmit, Verb: v, Nodes: nodes} }

// Discover returns the action that prepares the hosts at the addresses.
func Discover(addrs ...string) Action {
	return Action{Name: ActionSubmit, Verb: VerbDiscover, Addrs: addrs}
}

// ShowDifference returns the action that shows what the last verification of a node
// found.
func ShowDifference(node string) Action { return Action{Name: ActionShowDiff, Nodes: []string{node}} }

// Joining returns a with the group that its nodes are to join.
func (a Action) Joining(group string) Action {
	a.Group = group
	return a
}

// Within returns a with the time limit of its job.
func (a Action) Within(timeout time.Duration) Action {
	a.Timeout = timeout
	return a
}

// With returns a with the options of its job.
func (a Action) With(o JobOptions) Action {
	a.JobOptions = o
	return a
}

// Cleaning returns a with the playbooks of the cleanup.
func (a Action) Cleaning(playbooks string) Action {
	a.Playbooks = playbooks
	return a
}

// ForgetNodes returns the action that removes the records of nodes.
func ForgetNodes(nodes ...string) Action { return Action{Name: ActionForgetNodes, Nodes: nodes} }

// ListAlerts returns the action that lists the alerts.
func ListAlerts() Action { return Action{Name: ActionListAlerts} }

// EndAlert returns the action that ends an alert on all nodes that have it.
func EndAlert(id string) Action { return Action{Name: ActionEndAlert, Key: id} }

// Forced returns a without the check of the node's state.
func (a Action) Forced() Action {
	a.Force = true
	return a
}

// TrustHostKey returns the action that records the ssh host key that a node shows.
func TrustHostKey(node string) Action {
	return Action{Name: ActionTrustHostKey, Nodes: []string{node}}
}

// SetConnection returns the action that changes the ssh parameters of a node.
func SetConnection(node string) Action {
	return Action{Name: ActionSetConnection, Nodes: []string{node}}
}

// ListPolicies returns the action that lists the policies.
func ListPolicies() Action { return Action{Name: ActionListPolicies} }

// TestPolicy returns the action that shows what a policy would do.
func TestPolicy(name string) Action { return Action{Name: ActionTestPolicy, Key: name} }

// ForEveryNode is Action.Value to turn on a policy that is for every node.
const ForEveryNode = "all"

// EnableForAll returns the action that turns on a policy that is for every node.
func EnableForAll(name string) Action {
	return Action{Name: ActionEnablePolicy, Key: name, Value: ForEveryNode}
}

// ListRollouts returns the action that lists the rollouts.
func ListRollouts() Action { return Action{Name: ActionListRollouts} }

// PromoteRollout returns the action that lets a rollout go on after its canary.
func PromoteRollout(id string) Action { return Action{Name: ActionPromote, Rollout: id} }

// ApproveRollout returns the action that approves a rollout of somebody else.
func ApproveRollout(id string) Action { return Action{Name: ActionApprove, Rollout: id} }

// ResumeRollout returns the action that lets a paused or stopped rollout go on.
func ResumeRollout(id string) Action { return Action{Name: ActionResume, Rollout: id} }

// RetryRollout returns the action that begins the failed nodes of a rollout once more. Its playbooks are those of
// the start of the rollout, or with playbooks PlaybooksCurrent the configured ones.
func RetryRollout(id, playbooks string) Action {
	return Action{Name: ActionRetryRollout, Rollout: id, JobOptions: JobOptions{Playbooks: playbooks}}
}

// AbortRollout returns the action that ends a rollout before it has begun all of its nodes.
func AbortRollout(id string) Action { return Action{Name: ActionAbort, Rollout: id} }

// ShowRollout returns the action that shows a rollout.
func ShowRollout(id string) Action { return Action{Name: ActionShowRollout, Rollout: id} }

// ListWindows returns the action that lists the maintenance windows.
func ListWindows() Action { return Action{Name: ActionListWindows} }

// LiftFreeze returns the action that ends the freeze.
func LiftFreeze() Action { return Action{Name: ActionLiftFreeze} }

// ListJobs returns the action that lists the jobs.
func ListJobs() Action { return Action{Name: ActionListJobs} }

// ShowJob returns the action that shows a job.
func ShowJob(id string) Action { return Action{Name: ActionShowJob, Job: id} }

// WaitForJob returns the action that follows a job until it ends.
func WaitForJob(id string) Action { return Action{Name: ActionWaitForJob, Job: id} }

// ExplainJob returns the action that explains the status of a job.
func ExplainJob(id string) Action { return Action{Name: ActionExplainJob, Job: id} }

// ReadLog returns the action that reads the output of a job.
func ReadLog(id string) Action { return Action{Name: ActionReadLog, Job: id} }

// FollowLog returns the action that reads the output of a job until it ends.
func FollowLog(id string) Action { return Action{Name: ActionFollowLog, Job: id} }

// CancelJob returns the action that cancels a job.
func CancelJob(id string) Action { return Action{Name: ActionCancelJob, Job: id} }

// RetryJob returns the action that submits a job again. With failed it leaves
// out the nodes that succeeded.
func RetryJob(id string, failed bool) Action {
	return Action{Name: ActionRetryJob, Job: id, Failed: failed}
}

// Planned returns the action that plans the job of a, which submits one.
func (a Action) Planned() Action {
	a.Name = ActionMakePlan
	return a
}

// ListPlans returns the action that lists the plans.
func ListPlans() Action { return Action{Name: ActionListPlans} }

// ShowPlan returns the action that shows a plan.
func ShowPlan(id string) Action { return Action{Name: ActionShowPlan, Plan: id} }

// On returns a for the named nodes only.
func (a Action) On(nodes ...string) Action {
	a.Nodes = nodes
	return a
}

// ShowSettings returns the action that shows the settings whose key begins with
// the given one, or all.
func ShowSettings(key string) Action { return Action{Name: ActionShowSettings, Key: key} }

// SetSetting returns the action that sets one setting.
func SetSetting(key, value string) Action {
	return Action{Name: ActionSetSetting, Key: key, Value: value}
}

// UnsetSetting returns the action that removes the values of settings that were set at run time, all at once.
func UnsetSetting(keys ...string) Action {
	return Action{Name: ActionUnsetSetting, Key: strings.Join(keys, " ")}
}

// SetGroup returns the action that sets one field of a host group; an empty value removes it.
func SetGroup(group, field, value string) Action {
	return Action{Name: ActionSetGroup, Group: group, Key: field, Value: value}
}

// SetVariable sets a variable of a node; value is a JSON text.
func SetVariable(node, key, value string) Action {
	return Action{Name: ActionSetVariable, Nodes: []string{node}, Key: key, Value: value}
}

// ShowSSHKey returns the action that shows the rotation of the manager's ssh key.
func ShowSSHKey() Action { return Action{Name: ActionShowSSHKey} }

// CancelSSHKey returns the action that takes the running rotation of the manager's ssh
// key back.
func CancelSSHKey() Action { return Action{Name: ActionCancelSSHKey} }

// ShowHealth returns the action that shows the health of the manager.
func ShowHealth() Action { return Action{Name: ActionShowHealth} }

// ShowVersion returns the action that shows the version of the manager.
func ShowVersion() Action { return Action{Name: ActionShowVersion} }

// ShowRepository returns the action that shows the state of the repository of playbooks.
func ShowRepository() Action { return Action{Name: ActionShowRepo} }

// SyncRepository returns the action that fetches the repository of playbooks now.
func SyncRepository() Action { return Action{Name: ActionSyncRepo} }

// LogRepository returns the action that lists the commits of the repository of playbooks.
func LogRepository() Action { return Action{Name: ActionLogRepo} }

// String returns the name and the arguments of the action, for logs and tests.
func (a Action) String() string {
	words := []string{string(a.Name)}
	for _, argument := range []struct{ name, value string }{
		{"verb", string(a.Verb)},
		{"nodes", strings.Join(a.Nodes, ",")},
		{"addrs", strings.Join(a.Addrs, ",")},
		{"ranges", strings.Join(a.Ranges, ",")},
		{"group", a.Group},
		{"job", a.Job},
		{"plan", a.Plan},
		{"rollout", a.Rollout},
		{"key", a.Key},
		{"value", a.Value},
	} {
		if argument.value != "" {
			words = append(words, argument.name+"="+argument.value)
		}
	}

	for _, o := range Options {
		if text, set := o.Text(a.JobOptions); set {
			words = append(words, string(o.Field)+"="+text)
		}
	}

	if len(a.HostKeys) > 0 {
		words = append(words, fmt.Sprintf("host_keys=%v", a.HostKeys))
	}

	if len(a.Extra) > 0 {
		words = append(words, "extra_vars="+ExtraText(a.Extra))
	}

	if a.Timeout != 0 {
		words = append(words, "timeout="+ShortDuration(a.Timeout))
	}

	if a.Failed {
		words = append(words, "failed")
	}

	return strings.Join(words, " ")
}

// Equal reports whether both actions do the same.
func (a Action) Equal(b Action) bool { return a.String() == b.String() }

// MergeActions returns the actions of both lists, each once. Actions that differ
// only in their nodes or addresses become one.
func MergeActions(first, second []Action) []Action {
	merged := slices.Clone(first)
	for _, a := range second {
		i := slices.IndexFunc(merged, a.combines)
		if i < 0 {
			merged = append(merged, a)
			continue
		}

		merged[i].Nodes = union(merged[i].Nodes, a.Nodes)
		merged[i].Addrs = union(merged[i].Addrs, a.Addrs)
	}

	return merged
}

// combines reports whether the two actions can be one action on the nodes and
// addresses of both.
func (a Action) combines(b Action) bool {
	// The operator names the nodes of an action without any: names would narrow it.
	if (len(a.Nodes) == 0) != (len(b.Nodes) == 0) || (len(a.Addrs) == 0) != (len(b.Addrs) == 0) {
		return false
	}

	// These requests concern a single node.
	single := a.Name == ActionTrustHostKey || a.Name == ActionSetConnection || a.Name == ActionShowDiff
	if single && !slices.Equal(a.Nodes, b.Nodes) {
		return false
	}

	a.Nodes, a.Addrs, b.Nodes, b.Addrs = nil, nil, nil, nil

	return a.Equal(b)
}

func union(first, second []string) []string {
	all := slices.Clone(first)
	for _, name := range second {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}

	return all
}
