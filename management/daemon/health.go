// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/access/mtls"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// healthTimeout limits all checks of one health report.
// notifyPatience is how long a target of notifications may accept nothing without a warning.
const notifyPatience = 5 * time.Minute

const healthTimeout = 5 * time.Second

// minFreeSpace is the space that the data directory needs, in bytes: etcd
// allocates the next segment of its log in advance.
const minFreeSpace = 64 << 20

// health checks every part. It blocks for healthTimeout at most.
func (d *Daemon) health(ctx context.Context) api.Health {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()

	v := d.store.View()
	h := api.Health{
		Status: api.HealthOK, Instance: d.identity.Node, Revision: v.Revision, Stale: v.Stale, Nodes: len(v.Nodes),
		Checks: map[string]string{}, Jobs: map[api.JobStatus]int{},
	}
	check := func(part string, err error) {
		h.Checks[part] = "ok"
		if err != nil {
			h.Checks[part], h.Status = err.Error(), api.HealthDegraded
		}
	}

	// A warning, e.g. about an old server, does not degrade the health.
	_, warning, problem := d.etcd.Server()
	if warning != "" {
		h.Warnings = append(h.Warnings, warning)
	}

	warnings, spaceProblem := d.spaceHealth(ctx)
	h.Warnings = append(h.Warnings, warnings...)

	warning, unsafe := d.programs.TemplateHealth()
	if warning != "" {
		h.Warnings = append(h.Warnings, warning)
	}

	check("store", errors.Join(d.probeStore(ctx, v.Stale), problem))
	check("space", spaceProblem)
	check("records", unreadableRecords(v.Unreadable))
	check("secrets", d.store.Secrets().Problem())
	check("instance", d.member.Problem())
	check("ansible", errors.Join(d.programs.CheckVersion(ctx), unsafe))
	check("notifications", d.targets.problem())

	if target, since := d.notifier.Failing(notifyPatience); target != "" {
		h.Warnings = append(h.Warnings, fmt.Sprintf("the notification target %s has accepted nothing since %s; see "+
			"clusterctl notification log %s", target, since.UTC().Format("2006-01-02 15:04:05 UTC"), target))
	}

	check("disk", checkFreeSpace(d.file.DataDir, minFreeSpace))

	if d.certificates != nil {
		warning, problem := d.certificates.Check()
		if warning != "" {
			h.Warnings = append(h.Warnings, warning)
		}

		check("certificate", problem)

		h.Warnings = append(h.Warnings, mtls.Warnings(mtls.Issued(d.pkiDir()))...)
	}

	if d.settings.Current().Repository.Used() {
		warning, problem := d.repository.Problem()
		if warning != "" {
			h.Warnings = append(h.Warnings, warning)
		}

		check("repository", problem)
	}

	invalid := d.settings.Problem()
	check("configuration", invalid)

	if keys := d.settings.Pending(); invalid == nil && len(keys) > 0 {
		h.Warnings = append(h.Warnings, fmt.Sprintf(
			"the configuration file on disk has changes that are not in force: %s; "+
				"to apply them: systemctl reload clusterm", strings.Join(keys, ", ")))
	}

	if keys := d.settings.Misplaced(); len(keys) > 0 {
		h.Warnings = append(h.Warnings, fmt.Sprintf(
			"settings that were set at run time have no effect, because they belong to the configuration file "+
				"now: %s; move them to the file, then remove them: clusterctl config unset %s",
			strings.Join(keys, ", "), strings.Join(keys, " ")))
	}

	if warning := d.sshKeyWarning(); warning != "" {
		h.Warnings = append(h.Warnings, warning)
	}

	if d.file.PlainHTTP != "" && access.Role(d.file.PlainRole) == access.RoleAdmin {
		h.Warnings = append(h.Warnings, "plain_http_role is admin, so every program on this host controls all nodes; "+
			"set it to viewer or operator in the configuration file, and restart clusterm")
	}

	if text := policy.Describe(state.AutomationOf(v).Brake); text != "" {
		h.Warnings = append(h.Warnings, text+": clusterctl policy release")
	}

	if text := restoredWarning(state.AutomationOf(v)); text != "" {
		h.Warnings = append(h.Warnings, text)
	}

	h.Warnings = append(h.Warnings, d.policies.Warnings()...)

	for _, problem := range d.settings.Groups().BudgetProblems(v.Nodes) {
		h.Warnings = append(
			h.Warnings,
			problem+"; add a node to the group, or lower the budget in the setting groups: "+
				"clusterctl config get groups",
		)
	}

	if d.gossip.Off() {
		h.Checks["gossip"] = "off"
	} else {
		check("gossip", d.gossip.Err())
	}

	counts := d.desired.Of(v).Count(v.Nodes)
	h.Outdated, h.Unknown = counts.Outdated, counts.Unknown
	h.Warnings = append(h.Warnings, playbookWarnings(v, d.identity.ID)...)

	h.Warnings = append(h.Warnings, nodeWarnings(v.Nodes)...)

	for _, j := range v.Jobs {
		if !j.Status.Ended() {
			h.Jobs[api.JobStatus(j.Status)]++
		}
	}

	return h
}

// nodeWarnings counts the nodes in service that no observer sees, and those that a verification found to differ.
func nodeWarnings(nodes []*inventory.Node) (warnings []string) {
	var gone, drifted int

	for _, n := range nodes {
		if n.InService() && n.State == inventory.Disappeared {
			gone++
		}

		if n.Verification != nil && n.Verification.Result == inventory.Drifted {
			drifted++
		}
	}

	if gone > 0 {
		warnings = append(warnings, inventory.Count(gone, "node in service has", "nodes in service have")+
			" disappeared: clusterctl nodes get -l state=Disappeared")
	}

	if drifted > 0 {
		warnings = append(warnings, inventory.Count(drifted, "node differs", "nodes differ")+
			" from the configuration: clusterctl nodes get -l verification=drifted")
	}

	return warnings
}

// playbookWarnings reports playbooks that this instance cannot read, and instances with
// others: which nodes are outdated depends on the instance then.
func playbookWarnings(v *state.View, self string) (warnings []string) {
	own := state.PlaybooksOf(v, self)
	if own.Problem != "" {
		warnings = append(warnings, "it is not known which nodes are outdated, because the playbooks of this instance "+
			"cannot be read: "+own.Problem)
	}

	for _, in := range record.All(v, &state.Instances) {
		other := state.PlaybooksOf(v, in.ID)
		if in.ID != self && own.Digest != "" && other.Digest != "" && own.Digest != other.Digest {
			warnings = append(warnings, fmt.Sprintf(
				"the instance on %s has other playbooks than this one, so the same job configures a node differently "+
					"there; give both the same folder", in.Node))
		}
	}

	return warnings
}

// maxUnreadable is the number of unreadable records that the health names.
const maxUnreadable = 10

// unreadableRecords reports the records that cannot be read, by their keys and reasons.
func unreadableRecords(reasons map[string]string) error {
	if len(reasons) == 0 {
		return nil
	}

	var named []string
	for _, key := range slices.Sorted(maps.Keys(reasons)) {
		if len(named) == maxUnreadable {
			named = append(named, "and others")
			break
		}

		named = append(named, fmt.Sprintf("%s (%s)", key, reasons[key]))
	}

	return fmt.Errorf("%d records in the store cannot be read: %s; restore the data directory from a backup, or "+
		"remove each of them with clusterm store remove KEY", len(reasons), strings.Join(named, ", "))
}

// probeStore makes a round trip to the store.
func (d *Daemon) probeStore(ctx context.Context, stale bool) error {
	if stale {
		// The store has not answered for long; wait only in case it is just back.
		var cancel context.CancelFunc

		ctx, cancel = context.WithTimeout(ctx, d.outageTimeout())
		defer cancel()
	}

	return d.store.Sync(ctx)
}

// outageTimeout is how long to wait for a store that has not answered for long.
func (d *Daemon) outageTimeout() time.Duration { return d.opts.StaleAfter / 3 }

// checkFreeSpace refuses a directory on a file system with less free space, in
// bytes.
func checkFreeSpace(dir string, minimum uint64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("cannot read the free space of %s: %w", dir, err)
	}

	// Blocks reserved for root are not counted: they are the last resort.
	//nolint:gosec // a block size is positive
	free := fs.Bavail * uint64(fs.Frsize)
	if free < minimum {
		return fmt.Errorf("only %d bytes left on the file system of %s; clusterm needs %d MiB for jobs and records, "+
			"so free some space", free, dir, minimum>>20)
	}

	return nil
}

// version returns the versions of all programs. That of ansible-playbook is
// empty if it cannot run; health reports the reason.
func (d *Daemon) version(ctx context.Context) api.Version {
	v := d.opts.Version
	v.Go = runtime.Version()
	v.Etcd, _, _ = d.etcd.Server()
	v.Ansible, _ = d.programs.Version(ctx)

	return v
}
