// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/api"
)

// NodeFilter selects nodes that match every non-empty field. Within a field, any
// of the values matches.
type NodeFilter struct {
	Names  []string // unknown names fail with KindNotFound, with all of them listed
	Status []inventory.Status
	State  []inventory.State
	Group  []string
	// Selector matches fields and labels, in the syntax of Kubernetes:
	// group=service-worker,status!=Allocated,rack in (r1,r2),!old.
	Selector string
	// Sort lists fields to sort by; - before a field reverses it. Default name.
	Sort []string
	// Limit is the maximum length of the page; 0 for all items. Continue is the
	// List.Continue of the previous page.
	Limit    int
	Continue string
}

// query returns the query parameters of the filter.
func (f NodeFilter) query() url.Values {
	q := paged(f.Sort, f.Limit, f.Continue)
	q["name"], q["group"] = f.Names, f.Group

	for _, s := range f.Status {
		q.Add("status", string(s))
	}

	for _, s := range f.State {
		q.Add("state", string(s))
	}

	if f.Selector != "" {
		q.Set("selector", f.Selector)
	}

	return q
}

// namesAtOnce is how many names a request may have: they are in its head, which has 64 KiB.
const namesAtOnce = 200

// Nodes returns nodes, or a page of them. All nodes of many names take several requests, and the list has the revision
// of the oldest answer.
func (c *Client) Nodes(ctx context.Context, f NodeFilter) (api.List[api.Node], error) {
	if len(f.Names) <= namesAtOnce || len(f.Sort) > 0 || f.Limit > 0 || f.Continue != "" {
		return find[api.List[api.Node]](ctx, c, api.PathNodes, f.query())
	}

	var all api.List[api.Node]

	for names := range slices.Chunk(slices.Compact(slices.Sorted(slices.Values(f.Names))), namesAtOnce) {
		f.Names = names

		part, err := find[api.List[api.Node]](ctx, c, api.PathNodes, f.query())
		if err != nil {
			return api.List[api.Node]{}, err
		}

		if all.Items == nil {
			all.Revision = part.Revision
		}

		all.Items, all.Total = append(all.Items, part.Items...), all.Total+part.Total
		all.Revision, all.Stale = min(all.Revision, part.Revision), all.Stale || part.Stale
	}

	return all, nil
}

// Inventory returns nodes as hosts of an Ansible inventory, or a page of them.
func (c *Client) Inventory(ctx context.Context, f NodeFilter) (api.List[api.InventoryHost], error) {
	return find[api.List[api.InventoryHost]](ctx, c, api.PathInventory, f.query())
}

// EachNode yields the nodes page by page, with Limit or 1 000 nodes per page. A
// node that does not change meanwhile appears exactly once. The first error ends
// the sequence.
func (c *Client) EachNode(ctx context.Context, f NodeFilter) iter.Seq2[api.Node, error] {
	if f.Limit == 0 {
		f.Limit = 1000
	}

	return func(yield func(api.Node, error) bool) {
		for {
			page, err := c.Nodes(ctx, f)
			if err != nil {
				yield(api.Node{}, err)
				return
			}

			for _, n := range page.Items {
				if !yield(n, nil) {
					return
				}
			}

			if f.Continue = page.Continue; f.Continue == "" {
				return
			}
		}
	}
}

// Node returns one node.
func (c *Client) Node(ctx context.Context, name string) (api.Node, error) {
	return get[api.Node](ctx, c, api.PathNode, name)
}

// PatchNode changes a node's connection settings and labels.
func (c *Client) PatchNode(ctx context.Context, name string, p api.NodePatch) (api.Node, error) {
	return ask[api.Node](ctx, c, call{method: http.MethodPatch, path: api.PathNode, params: []string{name}, in: p})
}

// History returns the newest entries of a node's history, newest last; all of
// them with limit 0.
func (c *Client) History(ctx context.Context, name string, limit int) (api.List[inventory.HistoryEntry], error) {
	out, err := find[api.List[inventory.HistoryEntry]](ctx, c, api.PathHistory, paged(nil, limit, ""), name)
	slices.Reverse(out.Items)
	return out, err
}

// Explain returns the reasons that a node is, or is not, in service.
func (c *Client) Explain(ctx context.Context, name string) (api.NodeExplanation, error) {
	return get[api.NodeExplanation](ctx, c, api.PathExplain, name)
}

// Difference returns the findings of the last verification of a node, task by task.
func (c *Client) Difference(ctx context.Context, name string) (api.Difference, error) {
	return get[api.Difference](ctx, c, api.PathDifference, name)
}

// Facts returns what an inspection of a node has found; 0: the newest one.
func (c *Client) Facts(ctx context.Context, name string, inspection int) (api.NodeFacts, error) {
	q := url.Values{}
	if inspection != 0 {
		q.Set("inspection", strconv.Itoa(inspection))
	}
	return find[api.NodeFacts](ctx, c, api.PathFacts, q, name)
}

// Forget removes the records of nodes.
func (c *Client) Forget(ctx context.Context, f api.Forget) (api.Changed, error) {
	return post[api.Changed](ctx, c, api.PathForget, f)
}

// importTime is how long the manager may take for an import, beyond the time of a request.
const importTime = 2 * time.Minute

// Import registers the machines of a list.
func (c *Client) Import(ctx context.Context, r api.Import) (api.Imported, error) {
	return ask[api.Imported](ctx, c, call{method: http.MethodPost, path: api.PathImport, in: r, extra: importTime})
}

// Imports returns the imports of the last day, or a page of them, by default the newest first.
func (c *Client) Imports(ctx context.Context, page ...Page) (api.List[api.ImportRun], error) {
	return listed[api.ImportRun](ctx, c, api.PathImports, page)
}

// ImportRun returns an import, and how far its nodes came.
func (c *Client) ImportRun(ctx context.Context, id string) (api.ImportRun, error) {
	return get[api.ImportRun](ctx, c, api.PathImportRun, id)
}

// Configure changes what is registered of nodes.
func (c *Client) Configure(ctx context.Context, r api.Configure) (api.Imported, error) {
	return ask[api.Imported](ctx, c, call{method: http.MethodPost, path: api.PathConfigure, in: r, extra: importTime})
}

// Export returns the registered machines as a list that Import takes.
func (c *Client) Export(ctx context.Context) (json.RawMessage, error) {
	return get[json.RawMessage](ctx, c, api.PathExport)
}

// ScanHostKeys returns the ssh host keys of a node: the recorded ones, and those that
// its host shows now. It changes nothing.
func (c *Client) ScanHostKeys(ctx context.Context, name string) (api.HostKeys, error) {
	return ask[api.HostKeys](ctx, c, call{
		method: http.MethodPost, path: api.PathScanHostKeys, params: []string{name}, extra: scanTime,
	})
}

// TrustHostKey records an ssh host key of a node, if its host shows it now.
func (c *Client) TrustHostKey(ctx context.Context, name string, t api.HostKeyTrust) (api.Node, error) {
	return ask[api.Node](ctx, c, call{
		method: http.MethodPut, path: api.PathHostKeys, params: []string{name}, in: t, extra: scanTime,
	})
}

// scanTime is the manager's limit for one scan of host keys.
const scanTime = 30 * time.Second

// Policies returns the state of automation.
func (c *Client) Policies(ctx context.Context) (api.Policies, error) {
	return get[api.Policies](ctx, c, api.PathPolicies)
}

// Policy returns the state of one policy.
func (c *Client) Policy(ctx context.Context, name string) (api.Policy, error) {
	return get[api.Policy](ctx, c, api.PathPolicy, name)
}

// ControlPolicy carries out an act on a policy, or on api.AllPolicies. path is that of the act, as api.PathPausePolicy,
// and in is its request. api.PathReleaseBrake takes no name.
func (c *Client) ControlPolicy(ctx context.Context, path string, in any, name ...string) (api.Policies, error) {
	return post[api.Policies](ctx, c, path, in, name...)
}

// TestPolicy returns the effects that a policy would have. It changes nothing.
func (c *Client) TestPolicy(ctx context.Context, name string, in api.PolicyTest) (api.PolicyTested, error) {
	return post[api.PolicyTested](ctx, c, api.PathTestPolicy, in, name)
}

// GossipKey returns the state of the newest rotation of the gossip key.
func (c *Client) GossipKey(ctx context.Context) (api.GossipKey, error) {
	return get[api.GossipKey](ctx, c, api.PathGossipKey)
}

// SSHKey returns the state of the newest rotation of the manager's ssh key.
func (c *Client) SSHKey(ctx context.Context) (api.SSHKey, error) {
	return get[api.SSHKey](ctx, c, api.PathSSHKey)
}

// RotateSSHKey begins a rotation of the manager's ssh key, or gives nodes up.
func (c *Client) RotateSSHKey(ctx context.Context, r api.SSHKeyRotation) (api.SSHKey, error) {
	return post[api.SSHKey](ctx, c, api.PathRotateSSHKey, r)
}

// CancelSSHKey takes the running rotation of the manager's ssh key back.
func (c *Client) CancelSSHKey(ctx context.Context) (api.SSHKey, error) {
	return post[api.SSHKey](ctx, c, api.PathCancelSSHKey, nil)
}

// RotateGossipKey begins a rotation of the gossip key, or lets the running one go on.
func (c *Client) RotateGossipKey(ctx context.Context, r api.GossipKeyRotation) (api.GossipKey, error) {
	return post[api.GossipKey](ctx, c, api.PathRotateGossipKey, r)
}

// Ping tries an ssh login on nodes, at most api.MaxPing, and returns the results in
// their order. It changes nothing.
func (c *Client) Ping(ctx context.Context, nodes ...string) (api.List[api.PingResult], error) {
	return ask[api.List[api.PingResult]](ctx, c, call{
		method: http.MethodPost, path: api.PathPing, in: api.Ping{Nodes: nodes}, extra: pingTime,
	})
}

// pingTime is the manager's limit for one ping.
const pingTime = 90 * time.Second

// Report reports nodes as discovered or disappeared. The daemon records all of
// them or, after an error, none. The report belongs to no observer: it is valid
// until the next such report about the same node.
func (c *Client) Report(ctx context.Context, discovered bool, nodes []api.LegacyEventNode) error {
	event := api.LegacyEvent{Name: string(inventory.VerbDisappeared), Nodes: nodes}
	if discovered {
		event.Name = string(inventory.VerbDiscovered)
	}

	// Reports exist only in the first generation's contract.
	in := api.LegacyRequest{Event: &event}

	return c.do(ctx, call{method: http.MethodPost, path: api.LegacyMonitorEvent, in: in}, nil)
}

// SetFormerConfig sends a configuration with keys of the first generation. The
// daemon translates those with an equivalent and refuses others.
func (c *Client) SetFormerConfig(ctx context.Context, config json.RawMessage) error {
	in := api.LegacyRequest{Config: config}
	return c.do(ctx, call{method: http.MethodPost, path: api.LegacyConfig, in: in}, nil)
}

// Page selects a part of a list.
type Page struct {
	// Sort lists fields to sort by; - before a field reverses it.
	Sort []string
	// Limit is the maximum length of the page; 0 for all items. Continue is the
	// List.Continue of the previous page.
	Limit    int
	Continue string
}

// Groups returns the host groups, or a page of them, by default in the order of
// the configuration.
func (c *Client) Groups(ctx context.Context, page ...Page) (api.List[api.Group], error) {
	return listed[api.Group](ctx, c, api.PathGroups, page)
}

// listed returns a list without filters, or a page of it.
func listed[T any](ctx context.Context, c *Client, path string, page []Page) (api.List[T], error) {
	var p Page
	if len(page) > 0 {
		p = page[0]
	}
	return find[api.List[T]](ctx, c, path, paged(p.Sort, p.Limit, p.Continue))
}

// Submit submits a job and returns it as accepted, without waiting for its end.
func (c *Client) Submit(ctx context.Context, r api.JobRequest) (api.Job, error) {
	return post[api.Job](ctx, c, api.PathJobs, r)
}

// JobFilter selects jobs that match every non-empty field.
type JobFilter struct {
	Status []api.JobStatus // any of them
	Node   string          // jobs with this node or address
	// Sort lists fields to sort by; - before a field reverses it.
	Sort []string
	// Limit is the maximum length of the page; 0 for all items. Continue is the
	// List.Continue of the previous page.
	Limit    int
	Continue string
}

// Jobs returns jobs without runs, hosts and variables. By default the first page
// holds the newest jobs, and each page ends with its newest.
func (c *Client) Jobs(ctx context.Context, f JobFilter) (api.List[api.Job], error) {
	q := paged(f.Sort, f.Limit, f.Continue)
	for _, s := range f.Status {
		q.Add("status", string(s))
	}

	if f.Node != "" {
		q.Set("node", f.Node)
	}

	out, err := find[api.List[api.Job]](ctx, c, api.PathJobs, q)
	// The API lists newest first; a terminal shows the newest at the bottom.
	if len(f.Sort) == 0 {
		slices.Reverse(out.Items)
	}

	return out, err
}

// Job returns one job with all its fields; id may be "active" or "last".
func (c *Client) Job(ctx context.Context, id string) (api.Job, error) {
	out, err := get[api.Job](ctx, c, api.PathJob, id)
	for _, vars := range out.Vars {
		nativeMerged(vars)
	}

	return out, err
}

// Cancel asks a job to stop, without waiting for its end. A second cancel skips
// its cleanup.
func (c *Client) Cancel(ctx context.Context, id string) (api.Job, error) {
	return post[api.Job](ctx, c, api.PathCancel, nil, id)
}

// Retry submits an ended job again, with its pinned inputs.
func (c *Client) Retry(ctx context.Context, id string, r api.Retry) (api.Job, error) {
	return post[api.Job](ctx, c, api.PathRetry, r, id)
}

// ExplainJob returns the reasons for the status of a job; id may be "active" or
// "last".
func (c *Client) ExplainJob(ctx context.Context, id string) (api.JobExplanation, error) {
	return get[api.JobExplanation](ctx, c, api.PathExplainJob, id)
}

// waitStep is the duration of one long poll.
const waitStep = 25 * time.Second

// WaitJob blocks until the job ends and returns it without variables. It survives
// restarts of the daemon, each for up to Options.Patience. The functions each are
// called for every change of the job's record, the last one included.
func (c *Client) WaitJob(ctx context.Context, id string, each ...func(api.Job)) (api.Job, error) {
	shown := int64(-1)

	return poll(ctx, c, api.PathJob, id, url.Values{"vars": {"false"}}, func(j api.Job, q url.Values) (string, bool) {
		if j.Revision != shown {
			for _, f := range each {
				f(j)
			}
		}

		shown = j.Revision
		if len(each) > 0 {
			q.Set("after", strconv.FormatInt(shown, 10))
		}

		return j.ID, j.Status.Ended() // "active" may be another job by now
	})
}

// poll requests a record until seen reports that it is done: at once, and then by long polls, so that a lost
// connection costs little. seen gets each answer and the query of the next request, and returns the id of the record.
// poll survives restarts of the daemon, each for up to Options.Patience.
func poll[T any](
	ctx context.Context, c *Client, path, id string, q url.Values, seen func(T, url.Values) (id string, done bool),
) (T, error) {
	p := c.patience()

	for {
		var found, none T

		k := call{method: http.MethodGet, path: path, params: []string{id}, query: q, extra: waitStep}

		if err := c.do(ctx, k, &found); err != nil {
			if err := p.wait(ctx, err); err != nil {
				return none, err
			}

			continue
		}

		p.reset()
		q.Set("wait", waitStep.String())

		done := false
		if id, done = seen(found, q); done {
			return found, nil
		}
	}
}

// Scope identifies a set of variables.
type Scope struct {
	path   string
	params []string
}

// ScopeGlobal is the scope of all hosts.
var ScopeGlobal = Scope{path: api.PathGlobalVars}

// ScopeGroup is the scope of a group.
func ScopeGroup(name string) Scope { return Scope{api.PathGroupVars, []string{name}} }

// ScopeNode is the scope of a node.
func ScopeNode(name string) Scope { return Scope{api.PathNodeVars, []string{name}} }

// Vars returns the scope's own variables.
func (c *Client) Vars(ctx context.Context, s Scope) (api.Vars, error) {
	vars, _, err := c.TaggedVars(ctx, s)
	return vars, err
}

// TaggedVars returns the scope's own variables and their tag for IfMatch.
func (c *Client) TaggedVars(ctx context.Context, s Scope) (vars api.Vars, tag string, err error) {
	vars = api.Vars{}
	err = c.do(ctx, call{method: http.MethodGet, path: s.path, params: s.params, tag: &tag}, &vars)
	native(vars)
	return vars, tag, err
}

// SetVars replaces the variables of the scope.
func (c *Client) SetVars(ctx context.Context, s Scope, vars api.Vars) (api.Changed, error) {
	if vars == nil {
		vars = api.Vars{}
	}
	return ask[api.Changed](ctx, c, call{method: http.MethodPut, path: s.path, params: s.params, in: vars})
}

// PatchVars sets the variables in the patch; nil removes a variable.
func (c *Client) PatchVars(ctx context.Context, s Scope, patch api.Vars) (api.Changed, error) {
	return c.PatchSecretVars(ctx, s, patch)
}

// PatchSecretVars sets the variables in the patch and makes the named ones secret: they
// are encrypted, and no answer shows them. The value "(hidden)" keeps the one that is
// set.
func (c *Client) PatchSecretVars(ctx context.Context, s Scope, patch api.Vars, secret ...string) (api.Changed, error) {
	if patch == nil {
		patch = api.Vars{}
	}

	k := call{method: http.MethodPatch, path: s.path, params: s.params, in: patch}
	if len(secret) > 0 {
		k.query = url.Values{"secret": {strings.Join(secret, ",")}}
	}
	return ask[api.Changed](ctx, c, k)
}

// Secrets returns the state of the secret variables, without their values.
func (c *Client) Secrets(ctx context.Context) (api.Secrets, error) {
	return get[api.Secrets](ctx, c, api.PathSecrets)
}

// RotateSecrets encrypts all secrets with a new key, and removes the former one. The
// manager completes a rotation also if its client gives up. abandon: see
// api.SecretsRotation.
func (c *Client) RotateSecrets(ctx context.Context, abandon bool) (api.Secrets, error) {
	return post[api.Secrets](ctx, c, api.PathRotate, api.SecretsRotation{Abandon: abandon})
}

// VarsHistory returns the newest recorded changes of the scope's variables, newest
// last; all of them with limit 0. Secrets are hidden.
func (c *Client) VarsHistory(ctx context.Context, s Scope, limit int) (api.List[api.VarsChange], error) {
	path, q := s.path+api.SuffixHistory, paged(nil, limit, "")

	out, err := find[api.List[api.VarsChange]](ctx, c, path, q, s.params...)
	slices.Reverse(out.Items)

	for _, change := range out.Items {
		native(change.Before)
		native(change.After)
	}

	return out, err
}

// UndoVars sets the scope's variables to their values as of the revision, which
// VarsHistory lists. To undo a change, use its revision less one.
func (c *Client) UndoVars(ctx context.Context, s Scope, to int64) (api.Changed, error) {
	return post[api.Changed](ctx, c, s.path+api.SuffixUndo, api.VarsUndo{To: to}, s.params...)
}

// MergedVars returns all variables of a node with their origin.
func (c *Client) MergedVars(ctx context.Context, node string) (api.MergedVars, error) {
	out := api.MergedVars{}
	q := url.Values{"merged": {"true"}}
	err := c.do(ctx, call{method: http.MethodGet, path: api.PathNodeVars, params: []string{node}, query: q}, &out)
	nativeMerged(out)
	return out, err
}

// Config returns the effective configuration.
func (c *Client) Config(ctx context.Context) (api.Config, error) {
	return c.config(ctx, call{method: http.MethodGet, path: api.PathConfig})
}

// TaggedConfig returns the effective configuration and the tag of its overlay
// for IfMatch.
func (c *Client) TaggedConfig(ctx context.Context) (config api.Config, tag string, err error) {
	config, err = c.config(ctx, call{method: http.MethodGet, path: api.PathConfig, tag: &tag})
	return config, tag, err
}

// PatchConfig sets keys in the overlay; nil removes a key. It returns the
// effective configuration after the change.
func (c *Client) PatchConfig(ctx context.Context, patch map[string]any) (api.Config, error) {
	if patch == nil {
		patch = map[string]any{}
	}
	return c.config(ctx, call{method: http.MethodPatch, path: api.PathConfig, in: patch})
}

// PreviewConfig checks a patch as PatchConfig does, and changes nothing. It returns the
// configuration that the patch would lead to, or the error of the patch.
func (c *Client) PreviewConfig(ctx context.Context, patch map[string]any) (api.Config, error) {
	if patch == nil {
		patch = map[string]any{}
	}

	query := url.Values{"dry_run": {"true"}}
	return c.config(ctx, call{method: http.MethodPatch, path: api.PathConfig, query: query, in: patch})
}

// ReloadConfig makes the daemon read its configuration file again, and returns the
// effective configuration after that. A file that is wrong, or that changes a key
// for which the daemon must restart, is KindRefused and changes nothing.
func (c *Client) ReloadConfig(ctx context.Context) (api.Config, error) {
	return c.config(ctx, call{method: http.MethodPost, path: api.PathReload})
}

func (c *Client) config(ctx context.Context, k call) (api.Config, error) {
	out := api.Config{}

	err := c.do(ctx, k, &out)
	for key, s := range out {
		s.Value = native(s.Value)
		out[key] = s
	}

	return out, err
}

// Power returns the power of the registered machines, or a page of them, by node.
func (c *Client) Power(ctx context.Context, page ...Page) (api.List[api.Power], error) {
	return listed[api.Power](ctx, c, api.PathPower, page)
}

// Alerts returns the alerts on nodes, or a page of them, by node.
func (c *Client) Alerts(ctx context.Context, page ...Page) (api.List[api.NodeAlert], error) {
	return listed[api.NodeAlert](ctx, c, api.PathAlerts, page)
}

// SetBMCLogin has a login proven at the BMC of a node, and recorded.
func (c *Client) SetBMCLogin(ctx context.Context, name string, l api.BMCLogin) (api.Power, error) {
	return ask[api.Power](ctx, c, call{
		method: http.MethodPut, path: api.PathBMCLogin, params: []string{name}, in: l, extra: loginTime,
	})
}

// loginTime is the manager's limit for one login at a BMC, with the wait for other sessions.
const loginTime = 3 * time.Minute

// AddAlert puts an alert on nodes. A repetition changes nothing.
func (c *Client) AddAlert(ctx context.Context, r api.AlertRequest) (api.List[api.NodeAlert], error) {
	return post[api.List[api.NodeAlert]](ctx, c, api.PathAlerts, r)
}

// EndAlert ends an alert, and returns it with the nodes that had it.
func (c *Client) EndAlert(ctx context.Context, r api.AlertEnd) (api.List[api.NodeAlert], error) {
	return post[api.List[api.NodeAlert]](ctx, c, api.PathEndAlert, r)
}

// Expected compares what is registered with what is seen.
func (c *Client) Expected(ctx context.Context, page ...Page) (api.List[api.ExpectedMachine], error) {
	return listed[api.ExpectedMachine](ctx, c, api.PathExpected, page)
}

// Scan returns the newest scan for BMCs.
func (c *Client) Scan(ctx context.Context) (api.Scan, error) {
	return get[api.Scan](ctx, c, api.PathScan)
}

// StartScan asks for a scan for BMCs, and returns before it ends.
func (c *Client) StartScan(ctx context.Context) (api.Scan, error) {
	return post[api.Scan](ctx, c, api.PathScan, nil)
}

// Merge makes two nodes of one machine one.
func (c *Client) Merge(ctx context.Context, r api.Merge) (api.Changed, error) {
	return post[api.Changed](ctx, c, api.PathMerge, r)
}

// Split takes the registration of a machine from a node.
func (c *Client) Split(ctx context.Context, r api.Split) (api.Changed, error) {
	return post[api.Changed](ctx, c, api.PathSplit, r)
}

// Instances returns the live daemons, or a page of them, by default oldest first.
func (c *Client) Instances(ctx context.Context, page ...Page) (api.List[api.Instance], error) {
	return listed[api.Instance](ctx, c, api.PathInstances, page)
}

// Members returns the instances that belong to the manager, alive or not, or a page of them.
func (c *Client) Members(ctx context.Context, page ...Page) (api.List[api.Member], error) {
	return listed[api.Member](ctx, c, api.PathMembers, page)
}

// RemoveMember takes an instance away that is not alive, by its id or its node.
func (c *Client) RemoveMember(ctx context.Context, ref string) (api.Changed, error) {
	return remove(ctx, c, api.PathMember, ref)
}

// Invite makes an invitation of one instance.
func (c *Client) Invite(ctx context.Context, r api.InviteRequest) (api.Invite, error) {
	return post[api.Invite](ctx, c, api.PathInvite, r)
}

// Join asks for the admission of an instance.
func (c *Client) Join(ctx context.Context, r api.JoinRequest) (api.JoinAnswer, error) {
	return post[api.JoinAnswer](ctx, c, api.PathJoin, r)
}

// Machines returns the registered machines, or a page of them, by the names of their nodes.
func (c *Client) Machines(ctx context.Context, page ...Page) (api.List[machine.Machine], error) {
	return listed[machine.Machine](ctx, c, api.PathMachines, page)
}

// Classes returns the classes of hardware, or a page of them, by name.
func (c *Client) Classes(ctx context.Context, page ...Page) (api.List[api.Class], error) {
	return listed[api.Class](ctx, c, api.PathClasses, page)
}

// CreateClass makes a class of hardware, in the place of an earlier one with the name.
func (c *Client) CreateClass(ctx context.Context, r api.ClassRequest) (api.Class, error) {
	return post[api.Class](ctx, c, api.PathClasses, r)
}

// DeleteClass removes the class of hardware.
func (c *Client) DeleteClass(ctx context.Context, name string) (api.Changed, error) {
	return remove(ctx, c, api.PathClass, name)
}

// WhoAmI returns the caller as the manager knows it.
func (c *Client) WhoAmI(ctx context.Context) (api.Identity, error) {
	return get[api.Identity](ctx, c, api.PathWhoAmI)
}

// CanI returns whether the caller may apply the verb to the node.
func (c *Client) CanI(ctx context.Context, verb, node string) (api.Permission, error) {
	return find[api.Permission](ctx, c, api.PathCanI, url.Values{"verb": {verb}, "node": {node}})
}

// Tokens returns the bearer tokens, or a page of them, by default by name.
func (c *Client) Tokens(ctx context.Context, page ...Page) (api.List[api.Token], error) {
	return listed[api.Token](ctx, c, api.PathTokens, page)
}

// CreateToken makes a bearer token. No other answer shows its secret again.
func (c *Client) CreateToken(ctx context.Context, r api.TokenRequest) (api.NewToken, error) {
	return post[api.NewToken](ctx, c, api.PathTokens, r)
}

// RevokeToken ends the token with the id or the name, and its open requests.
func (c *Client) RevokeToken(ctx context.Context, ref string) (api.Changed, error) {
	return remove(ctx, c, api.PathToken, ref)
}

// Certificates returns the client certificates that the manager has issued, and those that
// are revoked.
func (c *Client) Certificates(ctx context.Context, page ...Page) (api.List[api.Certificate], error) {
	return listed[api.Certificate](ctx, c, api.PathCertificates, page)
}

// RevokeCertificate refuses the certificates with the name or serial number from now on,
// and ends their open requests. serial:HEX names one that the manager has not issued.
func (c *Client) RevokeCertificate(ctx context.Context, ref string) (api.Changed, error) {
	return remove(ctx, c, api.PathCertificate, ref)
}

// Health returns the health of the daemon. A degraded daemon is not an error.
func (c *Client) Health(ctx context.Context) (api.Health, error) {
	return ask[api.Health](ctx, c, call{
		method: http.MethodGet, path: api.PathHealth, also: http.StatusServiceUnavailable,
	})
}

// Metrics returns the daemon's metrics, in Prometheus' text format.
func (c *Client) Metrics(ctx context.Context) (string, error) {
	return get[string](ctx, c, api.PathMetrics)
}

// Version returns the versions of the daemon and its dependencies.
func (c *Client) Version(ctx context.Context) (api.Version, error) {
	return get[api.Version](ctx, c, api.PathVersion)
}

// paged returns the query parameters common to all lists.
func paged(sort []string, limit int, token string) url.Values {
	q := url.Values{}
	if limit != 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	if len(sort) > 0 {
		q.Set("sort", strings.Join(sort, ","))
	}

	if token != "" {
		q.Set("continue", token)
	}

	return q
}
