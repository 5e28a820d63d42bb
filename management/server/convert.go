// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/desired"
	"github.com/contiv/cluster/management/explain"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/variable"
)

// nodeForms makes the wire form of nodes: a record with fields that depend on others.
type nodeForms struct {
	view    *state.View
	desired *desired.Configurations
}

// forms returns the wire forms of the view's nodes.
func (s *Server) forms(v *state.Scoped) nodeForms { return nodeForms{v.View, s.Desired.Of(v.Whole())} }

// one returns the wire form of a node in an answer about it alone.
func (f nodeForms) one(n inventory.Node) api.Node {
	out := f.of(n)
	out.AddrRivals = f.view.AddrRivals(n.Name)[n.Name]
	return out
}

// of returns the wire form of a node.
func (f nodeForms) of(n inventory.Node) api.Node {
	out := nodeWith(n, f.view.Connection(n.Name))
	out.Power, out.BMCProblem = f.view.BMCOf(n.Name)

	judged := f.desired.Judge(&n)
	if judged.Known {
		out.Outdated, out.Differs = &judged.Outdated, judged.Differs
	}
	out.RequestVars = judged.Undone

	// The applied configuration is on the wire already.
	if judged.InService && (n.Configured == nil || judged.Desired != n.Configured.Configuration) {
		out.Desired = &judged.Desired
	}

	return out
}

// nodeWith returns the wire form of a record. It shares slices and maps with the
// record, which is copy-on-write.
func nodeWith(n inventory.Node, c *configuration.Connection) api.Node {
	return api.Node{
		Name: n.Name, Label: n.Label, Serial: n.Serial, Addr: n.Addr,
		Status: n.Status, PrevStatus: n.PrevStatus, State: n.State, PrevState: n.PrevState,
		Group: n.Group, Residue: n.Residue, Uncleaned: n.Uncleaned, Applied: n.Applied, Cleaned: n.Cleaned,
		Configured: configuredOf(n.Configured),
		Playbooks:  n.Playbooks, LastError: n.LastError,
		Verification: n.Verification, Job: n.Job, Verb: n.Verb, Before: n.Before,
		Labels: n.Labels, Alerts: n.Alerts, Seen: n.Seen, Sightings: n.Sightings, Duplicates: n.Duplicates,
		SetAside: n.SetAside, HostKeys: n.HostKeys,
		AnnouncedFrom: n.AnnouncedFrom,
		Entries:       n.Entries, Created: n.Created, Updated: n.Updated,
		Connection: connectionOf(c), Hardware: n.Hardware, Installed: n.Installed, Revision: n.Revision,
	}
}

func configuredOf(c *inventory.Configured) *api.Configured {
	if c == nil {
		return nil
	}
	return &api.Configured{Configuration: c.Configuration, Time: c.Time, ExtraVars: c.Extra}
}

func connectionOf(c *configuration.Connection) *api.Connection {
	if c == nil {
		return nil
	}

	return &api.Connection{
		User: c.User, KeyFile: c.KeyFile, Port: c.Port, Become: c.Become, BecomeUser: c.BecomeUser,
		Jump: c.Jump, Python: c.Python,
	}
}

func connectionFrom(c api.Connection) configuration.Connection {
	return configuration.Connection{
		User: c.User, KeyFile: c.KeyFile, Port: c.Port, Become: c.Become, BecomeUser: c.BecomeUser,
		Jump: c.Jump, Python: c.Python,
	}
}

func varsChangeOf(c variable.Change) api.VarsChange {
	return api.VarsChange{
		Seq:      c.Seq,
		Revision: c.Revision,
		Time:     c.Time,
		Actor:    c.Actor,
		Action:   c.Action,
		Before:   c.Before,
		After:    c.After,
	}
}

// tokenOf returns the wire form of a token.
func tokenOf(t access.Token) api.Token {
	return api.Token{
		ID: t.ID, Name: t.Name, Role: string(t.Role), Scope: accessScopeOf(t.Scope),
		Created: t.Created, CreatedBy: t.CreatedBy, Expires: t.Expires, Used: optionalTime(t.Used),
	}
}

// identityOf returns the wire form of the identity behind a request.
func identityOf(id access.Identity) api.Identity {
	kind, _, _ := strings.Cut(id.Credential, ":")

	return api.Identity{
		Principal: id.Principal, Role: string(id.Role), Scope: accessScopeOf(id.Scope), Credential: kind,
		Issuer: id.Issuer, Expires: optionalTime(id.Expires),
	}
}

// accessScopeOf returns the wire form of the scope of a credential; nil for every node.
func accessScopeOf(s access.Scope) *api.Scope {
	if s.All() {
		return nil
	}
	return &api.Scope{Groups: s.Groups, Selector: s.Selector}
}

func instanceOf(in *state.Instance, lead state.Instance) api.Instance {
	return api.Instance{
		ID: in.ID, Node: in.Node, Addr: in.Addr, API: in.API, CA: in.CA, Version: in.Version, Started: in.Started,
		Leads: in.Identity == lead.Identity,
	}
}

// jobOf returns the wire form of a job in a list.
func jobOf(j job.Job) api.Job {
	out := api.Job{
		ID:             j.ID,
		Verb:           j.Verb,
		Status:         api.JobStatus(j.Status),
		Message:        j.Message,
		Cause:          string(j.Cause),
		Helpers:        j.Helpers,
		Group:          j.Group,
		JobOptions:     j.JobOptions,
		GroupTags:      j.GroupTags,
		Actor:          j.Actor,
		RetryOf:        j.RetryOf,
		Plan:           j.Plan,
		PlannedBy:      j.PlannedBy,
		Rollout:        j.Rollout,
		Differences:    j.Differences,
		Instance:       j.Instance,
		Note:           j.Note,
		Warnings:       j.Warnings,
		Accepted:       j.Accepted,
		Started:        optionalTime(j.Started),
		Ended:          optionalTime(j.Ended),
		Deadline:       optionalTime(j.Due()),
		Phase:          string(j.Phase()),
		Cancel:         j.Cancel,
		CancelBy:       j.CancelBy,
		PlaybookDigest: j.PlaybookDigest,
		Commit:         j.Commit,
		Revision:       j.Revision,
	}
	if j.TakesAddrs() {
		out.Addrs = j.Names()
	} else {
		out.Nodes = j.Names()
	}

	return out
}

// addWaits adds the place of a Queued job and the jobs ahead of it.
func (s *Server) addWaits(v *state.Scoped, j job.Job, out *api.Job) {
	if j.Status == job.Queued {
		out.Position = v.Position(j)

		all, reason, until := s.Jobs.Waits(v.Whole(), v.WholeJob(j))
		out.WaitUntil = optionalTime(until)

		for _, id := range all {
			if v.HasJob(id) {
				out.WaitsFor = append(out.WaitsFor, id)
			}
		}

		if out.WaitReason = v.Text(reason); len(out.WaitsFor) < len(all) {
			out.WaitReason = state.HiddenJobs
		}
	}
}

// wholeJob returns the wire form of a single job, with its runs and results.
func (s *Server) wholeJob(ctx context.Context, v *state.Scoped, j job.Job, withVars bool) (api.Job, error) {
	out := jobOf(j)
	s.addWaits(v, j, &out)

	for _, r := range j.Runs {
		out.Runs = append(out.Runs, runOf(r))
	}

	if j.Status.Ended() {
		for _, t := range j.Targets {
			out.Hosts = append(out.Hosts, summaryOf(j, t.Name))
		}
	}

	var err error
	if out.LogBytes, err = s.Logs.LogSize(ctx, j.ID, job.StreamText); err != nil {
		return api.Job{}, err
	}

	if withVars {
		in, err := s.Jobs.Inputs(ctx, j.ID)
		if err != nil {
			return api.Job{}, err
		}
		out.Vars = pinnedVars(j, in)
	}

	return out, nil
}

func runOf(r job.Run) api.Run {
	out := api.Run{
		Kind:           string(r.Kind),
		Phase:          string(r.Phase),
		Playbook:       r.Playbook,
		PlaybookDigest: r.PlaybookDigest,
		Hosts:          r.Hosts,
		Groups:         r.Groups,
		Started:        r.Started,
		Ended:          optionalTime(r.Ended),
		Exit:           r.Exit,
		Code:           r.Code,
		Message:        r.Message,
		Troubles:       r.Troubles,
	}

	for i, host := range slices.Concat(r.Hosts, r.Helped()) {
		if res, ok := r.Results[host]; ok {
			out.Results = append(out.Results, api.HostResult{
				Host: host, Helper: i >= len(r.Hosts), OK: res.OK, Changed: res.Changed, Failed: res.Failed,
				Unreachable: res.Unreachable, Task: res.Task, Message: res.Message,
				Foreseen: res.Foreseen, Unjudged: res.Unjudged, Executed: res.Executed,
				Judged: res.Judged, Doubt: res.Doubt,
			})
		}
	}

	return out
}

func summaryOf(j job.Job, name string) api.HostSummary {
	f := j.TargetResult(name)
	return api.HostSummary{Host: name, Status: f.Status, OK: f.OK, Changed: f.Changed, Error: f.Error}
}

// pinnedVars returns the variables of each target in its runs. Those of the
// request override the others.
func pinnedVars(j job.Job, in job.Inputs) map[string]api.MergedVars {
	out := make(map[string]api.MergedVars, len(j.Targets))
	for _, t := range j.Targets {
		vars := mergedOf(in.Vars[t.Name])
		for name, value := range in.Extra {
			vars[name] = api.MergedVar{Value: value, Origin: string(configuration.OriginRequest)}
		}

		out[t.Name] = vars
	}

	return out
}

func mergedOf(vars map[string]configuration.Var) api.MergedVars {
	out := make(api.MergedVars, len(vars))
	for name, v := range vars {
		out[name] = api.MergedVar{Value: v.Value, Origin: string(v.Origin)}
	}

	return out
}

func findingsOf(findings []explain.Finding) []api.Finding {
	var out []api.Finding
	for _, f := range findings {
		out = append(out, api.Finding{
			About:   string(f.About),
			Job:     f.Job,
			Nodes:   f.Nodes,
			Group:   f.Group,
			Since:   optionalTime(f.Since),
			Message: f.Message,
			Remedy:  f.Remedy,
			Actions: api.ActionsOf(f.Actions),
		})
	}

	return out
}

// pingOf returns the wire form of the result of a ping.
func pingOf(p node.PingResult) api.PingResult {
	return api.PingResult{
		Node: p.Node, Addr: p.Addr, Answered: p.Answered, HostKeyVerified: p.HostKeyVerified,
		Took:    api.Duration(p.Took),
		Message: p.Message, Remedy: p.Remedy, Actions: api.ActionsOf(p.Actions),
	}
}

// optionalTime returns nil for the zero time, which is omitted on the wire.
func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
