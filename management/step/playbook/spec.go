// SPDX-License-Identifier: Apache-2.0

package playbook

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/cluster"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/merge"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/step"
)

// spec collects the parameters of a run: the job's pinned inputs, and the
// addresses and host keys of the nodes as they are now.
func (x *Executor) spec(ctx context.Context, at step.Step) (RunSpec, error) {
	j, run := at.Job, at.Run()

	in, err := at.Inputs(ctx)
	if err != nil {
		return RunSpec{}, err
	}

	v, settings := x.o.State.View(), x.o.Settings()
	now := time.Now()

	spec := RunSpec{
		ID: at.ID(), PlaybookDigest: cmp.Or(run.PlaybookDigest, j.PlaybookDigest), Playbook: run.Playbook,
		Extra: in.Extra, Ansible: j.AnsibleOf(run.Phase, run.Groups),
		Deadline: j.Deadline, Lease: x.lease(ctx, run),
		Fence: fenceOf(cluster.TokenOf(ctx), at, settings.Manager),
	}

	// Those that configured a node may have been removed from this host since.
	if spec.PlaybookDigest != job.PlaybooksBundled {
		if kept, err := x.Keep(ctx, spec.PlaybookDigest); !kept {
			return RunSpec{}, errPlaybooksGone(j, spec.PlaybookDigest, run.Hosts, err)
		}
	}

	if run.Phase == job.PhaseUndo {
		spec.Deadline = now.Add(j.Timeout)
	}

	verb, err := job.VerbOf(j.Verb)
	if err != nil {
		return RunSpec{}, err
	}

	var agent map[string]any
	if verb.InstallsAgent {
		// The undo needs no gossip.
		if settings.AgentVars == nil && run.Phase != job.PhaseUndo {
			return RunSpec{}, settings.NoAgents
		}

		// The job keys the record on the host, and other managers have the same numbers.
		if settings.Manager == "" {
			return RunSpec{}, inventory.Errorf(inventory.KindUnavailable, "this manager has no identity").
				Do("restart clusterm when the store accepts writes")
		}

		agent = map[string]any{}
		maps.Copy(agent, settings.AgentVars)
		agent["clusterm_taken"] = namesInUse(v)
		agent["clusterm_take_over"] = j.TakeOver
		agent["clusterm_job"] = settings.Manager + "-" + j.ID
	}

	// A cleaning refuses hosts of other managers, too.
	if verb.Row.Accepts(inventory.FieldErase) {
		agent = map[string]any{"clusterm_erase": j.Erase}
		for _, name := range []string{"clusterm_manager", "clusterm_gossip_key"} {
			if value, set := settings.AgentVars[name]; set {
				agent[name] = value
			}
		}
	}

	lost := lostNodes(v, j)

	for i := range run.Hosts {
		h := settings.Target(v, j, run, i, in)
		if h.Extra = agent; len(lost) > 0 {
			h.Extra = map[string]any{"clusterm_lost": lost}
		}
		spec.Hosts = append(spec.Hosts, h)
	}

	// Hosts that are being prepared belong to no group, so they need no peers.
	if !verb.InstallsAgent {
		spec.Hosts = append(spec.Hosts, peers(v, settings, j, run)...)
	}

	taken := takenKeys(v, j)
	for i := range spec.Hosts {
		spec.Hosts[i].Taken = taken
	}

	if err := x.resolveSecrets(ctx, &spec); err != nil {
		return RunSpec{}, err
	}

	spec.Secrets = secretsOf(settings.Secrets, spec)

	if spec.Ansible.Diff {
		spec.Secrets = append(spec.Secrets, x.formerSecrets(ctx, j, run, settings.Secrets)...)
		slices.Sort(spec.Secrets)
		spec.Secrets = slices.Compact(spec.Secrets)
	}

	return spec, nil
}

// fenceOf returns the fence of a run. A later run of the same owner has a higher token as well: what a run that was
// cancelled or killed has left on a host ends before the next one begins there. A run that is adopted keeps its token.
func fenceOf(owner cluster.Token, at step.Step, manager string) configuration.Fence {
	return configuration.Fence{
		Token:   configuration.FenceToken{Epoch: owner.Epoch, Revision: owner.Revision, Run: at.Index},
		Manager: manager, Job: at.Job.ID, Claim: at.Job.TakeOver,
	}
}

// secretsOf returns the texts of the secrets among the variables of the run.
func secretsOf(secrets configuration.Secrets, spec RunSpec) []string {
	texts := secrets.Values(spec.Extra)

	for _, h := range spec.Hosts {
		texts = append(texts, secrets.Values(h.Extra)...)

		vars := make(map[string]any, len(h.Vars))
		for name, v := range h.Vars {
			vars[name] = v.Value
		}

		texts = append(texts, secrets.Values(vars)...)
	}

	slices.Sort(texts)

	return slices.Compact(texts)
}

// takenKeys returns the ssh host keys that no host without a recorded one may show.
func takenKeys(v *state.View, j job.Job) map[string]string {
	if j.TakesAddrs() {
		return v.HostKeysInUse()
	}
	return v.HostKeys()
}

// lostNodes returns the lost nodes of the group of a job by which a policy replaces one of them, or of
// somebody's retry of such a job. The decision may not have the number of the job yet.
func lostNodes(v *state.View, j job.Job) []any {
	actor := originOf(v, j).Actor

	for _, d := range slices.Backward(state.AutomationOf(v).Decisions) {
		if d.Action != state.ActionCommission || d.Node != j.Targets[0].Name ||
			actor != state.PolicyPrincipal(d.Policy) {
			continue
		}

		var lost []any

		for _, name := range d.Lost {
			// One that is back in service must not lose its membership, e.g. by a late retry.
			if n, known := v.Lookup(name); !known || n.State != inventory.Discovered || !n.Commissioned() {
				lost = append(lost, name)
			}
		}

		return lost
	}

	return nil
}

// originOf returns the job that was retried first, as far as it is kept.
func originOf(v *state.View, j job.Job) job.Job {
	for j.RetryOf != "" {
		former, err := v.Job(j.RetryOf)
		if err != nil {
			break
		}
		j = former
	}

	return j
}

// peers returns the hosts that are named in the inventory but are no targets:
// the commissioned nodes of groups that others require, so that templates can refer
// to them, and the helpers. Only helpers are acted on, by plays that name them.
func peers(v *state.View, settings step.Settings, j job.Job, run job.Run) []configuration.Host {
	serving := j.Serving(v.Nodes())
	helpers := j.HelpersOf(run, serving, settings.Groups)

	var hosts []configuration.Host
	for _, n := range serving {
		helper := slices.Contains(helpers, n.Name)
		if j.Occupies(run, n.Name) || !helper && !provides(settings, n) {
			continue
		}

		h := settings.Host(v, n)
		h.Commissioned = true
		h.HostCAs = settings.HostCAs

		if helper {
			h.Role = configuration.RoleHelper
		}

		hosts = append(hosts, h)
	}

	return hosts
}

// provides reports whether every inventory has the node, so that templates can refer to it.
func provides(settings step.Settings, n *inventory.Node) bool {
	return n.Commissioned() && settings.Groups.Required(n.Group) > 0
}

// Record notes the masters of a run that configures or verifies nodes. A cleaning has the bundled playbook if the
// folder has none.
func (x *Executor) Record(ctx context.Context, v *state.View, j job.Job, run *job.Run) (err error) {
	if run.Playbook == job.PlaybookClean {
		// Without its folder the run is refused later, with the reason.
		kept, _ := x.Keep(ctx, run.PlaybookDigest)
		if kept && x.o.Content.Outline(run.PlaybookDigest, run.Playbook).Missing {
			run.PlaybookDigest = job.PlaybooksBundled
		}

		return ctx.Err()
	}

	if (run.Phase.Configures() || run.Phase.Verifies()) && !j.TakesAddrs() {
		run.Masters, run.MasterNames, err = x.masters(ctx, v, j, *run)
	}
	return err
}

// masters returns the checksum and the names of the nodes of groups that others require, as the
// inventory of the run has them. They are those of now: a change until the inventory is written makes
// the hosts of the run outdated, although they are not, and the next apply mends that. Variables of a
// request hold for every host of the run, so then those of the masters are unknown: otherwise a node would
// stay outdated after they were set for it.
func (x *Executor) masters(
	ctx context.Context, v *state.View, j job.Job, run job.Run,
) (sum string, names []string, err error) {
	settings := x.o.Settings()

	var all []merge.Master
	for _, n := range j.Serving(v.Nodes()) {
		if provides(settings, n) && !j.Occupies(run, n.Name) {
			all = append(all, merge.Master{Name: n.Name, Addr: n.Addr, Group: n.Group})
		}
	}

	targets := map[string]int{}

	for i, name := range run.Hosts {
		if n, known := v.Lookup(name); known && settings.Groups.Required(run.Groups[i]) > 0 {
			all = append(all, merge.Master{Name: name, Addr: n.Addr, Group: run.Groups[i]})
			targets[name] = i
		}
	}

	for _, m := range all {
		names = append(names, m.Name)
	}

	slices.Sort(names)

	if len(names) > inventory.MaxMasterNames {
		names = nil
	}

	key := state.ChecksumKey(v)

	sum = merge.MastersSum(key, all)
	if len(j.ExtraNames) > 0 {
		return sum, names, nil
	}

	var in job.Inputs
	if len(targets) > 0 {
		if in, err = step.InputsOf(ctx, x.o.Inputs, j.ID); err != nil {
			return "", nil, err
		}
	}

	// A target has the variables of the acceptance of its job.
	merged := func(m merge.Master) map[string]configuration.Var {
		if i, target := targets[m.Name]; target {
			vars, _ := settings.InputsOf(v, j, run, i, in)
			return vars
		}

		return settings.Merge(v, m.Group, m.Name)
	}

	return inventory.MastersOf(sum, settings.MasterVarsSum(v, key, all, merged)), names, nil
}

// namesInUse returns the nodes that a host being prepared must not claim to be:
// those that are Discovered or held by a job, with their addresses.
func namesInUse(v *state.View) map[string]any {
	used := map[string]any{}
	for _, n := range v.Nodes() {
		if n.State == inventory.Discovered || n.Job != "" {
			used[n.Name] = n.Addr
		}
	}

	return used
}
