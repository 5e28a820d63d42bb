// SPDX-License-Identifier: Apache-2.0

package job_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	. "github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/job/jobtest"
)

// rules answers for the rules of the groups: whether nodes may leave, and whether a
// batch may begin.
type rules struct{ leave, begin error }

func (r rules) MayLeave([]string) error { return r.leave }
func (r rules) MayBegin([]Target) error { return r.begin }

var nobodyMinds = rules{}

func show(s Step) string {
	if s.Phase != "" {
		var hosts []string
		for i, h := range s.Hosts {
			hosts = append(hosts, h+":"+s.Groups[i])
		}

		return fmt.Sprintf("%s %s %s", s.Phase, s.Playbook, strings.Join(hosts, " "))
	}

	return strings.TrimSpace(fmt.Sprintf("%s %s", s.Status, s.Cause))
}

func showOutcome(o inventory.Outcome) string {
	s := string(o.Status)
	for _, part := range []string{o.Group, o.Applied} {
		if part != "" {
			s += " " + part
		}
	}

	if o.Cleaned {
		s += " !" // out of service
	}

	if o.Trusted {
		s += " trusted"
	}
	if o.Uncleaned {
		s += " uncleaned"
	}

	if len(o.Residue) > 0 {
		s += " +" + strings.Join(o.Residue, "+")
	}

	if o.Error != "" {
		s += " | " + o.Error
	}

	return s
}

// afterFailedCleaning is the job on targets on which a cleaning failed.
func afterFailedCleaning(j Job) Job {
	for i := range j.Targets {
		j.Targets[i].Uncleaned = true
	}
	return j
}

// TestPlan tells stories: the plan, its end, and so on to the end.
// A line of a story is a step that is expected; "> …" says how that ended;
// "cancel" and "late" happen in between; "a: …" is the outcome of a node.
func TestPlan(t *testing.T) {
	t.Parallel()
	const m, w = inventory.GroupMaster, inventory.GroupWorker
	two := []string{"a Unallocated -", "b Unallocated -"}

	served := []string{"a Allocated service-worker", "b Allocated service-worker"}
	for _, tt := range []struct {
		name  string
		job   Job
		leave Rules
		story string
	}{
		{"commission", jobtest.Planned(inventory.VerbCommission, m, two...), nobodyMinds, `
			configure site.yml a:service-master b:service-master
			> done
			Complete
			a: Allocated service-master 5
			b: Allocated service-master 5`},
		{"commission fails on one host", jobtest.Planned(inventory.VerbCommission, m, two...), nobodyMinds, `
			configure site.yml a:service-master b:service-master
			> failed a=done b=failed
			undo cleanup.yml a:service-master b:service-master
			> done
			Errored failed
			reason: site.yml failed on b: task "Install": no such package
			a: Unallocated | site.yml failed on b: task "Install": no such package
			b: Unallocated | task "Install": no such package`},
		{"commission fails on one host, which alone is cleaned",
			onlyFailed(jobtest.Planned(inventory.VerbCommission, m, two...)), nobodyMinds, `
			configure site.yml a:service-master b:service-master
			> failed a=done b=unreachable
			undo cleanup.yml b:service-master
			> failed b=unreachable
			Errored failed
			a: Allocated service-master 5
			b: Quarantined service-master | unreachable: timed out; the cleanup failed: unreachable: timed out`},
		{"commission of a host that ssh never reached", jobtest.Planned(inventory.VerbCommission, m, two...),
			nobodyMinds, `
			configure site.yml a:service-master b:service-master
			> failed a=closed b=done
			undo cleanup.yml b:service-master
			> done
			Errored failed
			a: Unallocated | unreachable: no ssh connection to a, port 22: connection refused
			b: Unallocated | site.yml failed on a: unreachable: no ssh connection to a, port 22: connection refused`},
		{"commission of hosts that ssh never reached", jobtest.Planned(inventory.VerbCommission, m, two[0]),
			nobodyMinds, `
			configure site.yml a:service-master
			> failed a=closed
			Errored failed
			a: Unallocated | unreachable: no ssh connection to a, port 22: connection refused`},
		{"update whose second half never reaches a host", jobtest.Planned(inventory.VerbUpdate, m, served...),
			nobodyMinds, `
			cleanup cleanup.yml a:service-worker b:service-worker
			> done
			configure site.yml a:service-master b:service-master
			> failed a=closed b=failed
			undo cleanup.yml b:service-master
			> failed b=failed
			Errored failed
			a: Unallocated | unreachable: no ssh connection to a, port 22: connection refused
			b: Quarantined service-master | task "Install": no such package; the cleanup failed: task "Install": no such package`},
		{"commission is cancelled, with only failed nodes to be cleaned",
			onlyFailed(jobtest.Planned(inventory.VerbCommission, m, two...)), nobodyMinds, `
			configure site.yml a:service-master b:service-master
			cancel
			> cancelled a=done b=begun
			undo cleanup.yml a:service-master b:service-master
			> done
			Cancelled cancelled
			a: Unallocated | cancelled by anna
			b: Unallocated | cancelled by anna`},
		{"commission whose cleanup fails too", jobtest.Planned(inventory.VerbCommission, m, two...), nobodyMinds, `
			configure site.yml a:service-master b:service-master
			> failed a=done b=failed
			undo cleanup.yml a:service-master b:service-master
			> failed a=done b=failed
			Errored failed
			a: Unallocated | site.yml failed on b: task "Install": no such package
			b: Quarantined service-master | task "Install": no such package; the cleanup failed: task "Install": no such package`},
		{"commission that ansible-playbook breaks off",
			jobtest.Planned(inventory.VerbCommission, m, two...), nobodyMinds, `
			configure site.yml a:service-master b:service-master
			> aborted
			undo cleanup.yml a:service-master b:service-master
			> done
			Errored failed
			a: Unallocated | site.yml broke off: ERROR! no vault secrets found
			b: Unallocated | site.yml broke off: ERROR! no vault secrets found`},
		{"commission that ansible-playbook breaks off after a host has failed",
			jobtest.Planned(inventory.VerbCommission, m, two...), nobodyMinds, `
			configure site.yml a:service-master b:service-master
			> aborted b=failed
			undo cleanup.yml a:service-master b:service-master
			> done
			Errored failed
			a: Unallocated | site.yml failed on b: task "Install": no such package
			b: Unallocated | task "Install": no such package`},
		{"commission is cancelled before it begins",
			jobtest.Planned(inventory.VerbCommission, m, two...), nobodyMinds, `
			cancel
			Cancelled cancelled
			a: Unallocated | cancelled by anna
			b: Unallocated | cancelled by anna`},
		{"commission is cancelled twice", jobtest.Planned(inventory.VerbCommission, m, two...), nobodyMinds, `
			configure site.yml a:service-master b:service-master
			cancel
			cancel
			> cancelled a=begun
			Cancelled cancelled
			reason: cancelled by anna
			a: Quarantined service-master | cancelled by anna; the cleanup was skipped by a second cancel
			b: Quarantined service-master | cancelled by anna; the cleanup was skipped by a second cancel`},
		{"the first cancel lets the cleanup go on, the second ends it",
			jobtest.Planned(inventory.VerbCommission, m, "a Unallocated -"), nobodyMinds, `
			configure site.yml a:service-master
			> failed a=failed
			cancel
			undo cleanup.yml a:service-master
			cancel
			> cancelled a=begun
			Errored failed
			a: Quarantined service-master | task "Install": no such package; the cleanup was skipped by a second cancel`},
		{"commission whose runner does not start",
			jobtest.Planned(inventory.VerbCommission, m, "a Decommissioned - x y"), nobodyMinds, `
			residue cleanup.yml a:x
			> done
			residue cleanup.yml a:y
			> done
			configure site.yml a:service-master
			> never
			Errored internal
			a: Unallocated | the runner did not start`},
		{"update whose second half does not start", jobtest.Planned(inventory.VerbUpdate, m, served...), nobodyMinds, `
			cleanup cleanup.yml a:service-worker b:service-worker
			> done
			configure site.yml a:service-master b:service-master
			> never
			Errored internal
			a: Unallocated | the runner did not start
			b: Unallocated | the runner did not start`},
		{"commission runs too long", jobtest.Planned(inventory.VerbCommission, m, "a Unallocated -"), nobodyMinds, `
			configure site.yml a:service-master
			late
			> deadline a=begun
			undo cleanup.yml a:service-master
			> done
			Errored deadline
			reason: it ran longer than 1h
			a: Unallocated | it ran longer than 1h`},
		{"commission is done at the last moment",
			jobtest.Planned(inventory.VerbCommission, m, "a Unallocated -"), nobodyMinds, `
			configure site.yml a:service-master
			> done
			late
			cancel
			Complete
			a: Allocated service-master 5`},
		{"the runner of a commission is killed, and that of its cleanup once",
			jobtest.Planned(inventory.VerbCommission, m, "a Unallocated -"), nobodyMinds, `
			configure site.yml a:service-master
			> interrupted a=begun
			undo cleanup.yml a:service-master
			> interrupted a=begun
			undo cleanup.yml a:service-master
			> done
			Errored interrupted
			a: Unallocated | site.yml ended with status 0`},
		{"the runner of the cleanup is killed again and again",
			jobtest.Planned(inventory.VerbCommission, m, "a Unallocated -"), nobodyMinds, `
			configure site.yml a:service-master
			> interrupted a=begun
			undo cleanup.yml a:service-master
			> interrupted
			undo cleanup.yml a:service-master
			> interrupted
			Errored interrupted
			a: Quarantined service-master | site.yml ended with status 0; the cleanup failed: it did not reach the end`},
		{"a cleanup that would break a rule",
			jobtest.Planned(inventory.VerbUpdate, m, "a Allocated service-master"), refuses, `
			cleanup cleanup.yml a:service-master
			> failed a=failed
			Errored failed
			a: Quarantined service-master | task "Install": no such package; the cleanup was not run: it would leave b alone`},
		{"residue is cleaned first, round by round",
			jobtest.Planned(inventory.VerbCommission, w, "a Decommissioned - service-master x", "b Unallocated -",
				"c Decommissioned - y"),
			nobodyMinds, `
			residue cleanup.yml a:service-master c:y
			> done
			residue cleanup.yml a:x
			> done
			configure site.yml a:service-worker b:service-worker c:service-worker
			> done
			Complete
			a: Allocated service-worker 5
			b: Allocated service-worker 5
			c: Allocated service-worker 5`},
		{"residue cannot be cleaned",
			jobtest.Planned(inventory.VerbCommission, w, "a Decommissioned - service-master x", "b Unallocated -",
				"c Decommissioned - y"),
			nobodyMinds, `
			residue cleanup.yml a:service-master c:y
			> failed a=done c=failed
			Errored failed
			a: Unallocated +x | cleanup.yml failed on c: task "Install": no such package
			b: Unallocated | cleanup.yml failed on c: task "Install": no such package
			c: Unallocated +y | task "Install": no such package`},
		{"update with a change of group", jobtest.Planned(inventory.VerbUpdate, m, served...), nobodyMinds, `
			cleanup cleanup.yml a:service-worker b:service-worker
			> done
			configure site.yml a:service-master b:service-master
			> done
			Complete
			a: Allocated service-master 5
			b: Allocated service-master 5`},
		{"update fails in the cleanup of one node, the other not begun",
			jobtest.Planned(inventory.VerbUpdate, "", served...), nobodyMinds, `
			cleanup cleanup.yml a:service-worker b:service-worker
			> failed a=failed
			undo cleanup.yml a:service-worker
			> done
			Errored failed
			a: Unallocated | task "Install": no such package
			b: Allocated service-worker 3 | cleanup.yml failed on a: task "Install": no such package`},
		{"update did not begin at all", jobtest.Planned(inventory.VerbUpdate, "", served...), nobodyMinds, `
			cleanup cleanup.yml a:service-worker b:service-worker
			> internal
			Errored internal
			a: Allocated service-worker 3 | cleanup.yml ended with status 0
			b: Allocated service-worker 3 | cleanup.yml ended with status 0`},
		{"update fails in the second half", jobtest.Planned(inventory.VerbUpdate, m, served...), nobodyMinds, `
			cleanup cleanup.yml a:service-worker b:service-worker
			> done
			configure site.yml a:service-master b:service-master
			> failed a=done b=failed
			undo cleanup.yml a:service-master b:service-master
			> failed a=done b=begun
			Errored failed
			a: Unallocated | site.yml failed on b: task "Install": no such package
			b: Quarantined service-master | task "Install": no such package; the cleanup failed: it did not reach the end`},
		{"update is cancelled between its halves", jobtest.Planned(inventory.VerbUpdate, m, served...), nobodyMinds, `
			cleanup cleanup.yml a:service-worker b:service-worker
			> done
			cancel
			undo cleanup.yml a:service-worker b:service-worker
			> done
			Cancelled cancelled
			a: Unallocated | cancelled by anna
			b: Unallocated | cancelled by anna`},
		{"update is cancelled before it begins", jobtest.Planned(inventory.VerbUpdate, m, served...), nobodyMinds, `
			cancel
			Cancelled cancelled
			a: Allocated service-worker 3 | cancelled by anna
			b: Allocated service-worker 3 | cancelled by anna`},
		{"upgrade", jobtest.Planned(inventory.VerbMaintenance, "", served...), nobodyMinds, `
			upgrade rolling-upgrade.yml a:service-worker b:service-worker
			> done
			late
			Complete
			a: Allocated service-worker 5
			b: Allocated service-worker 5`},
		{"a failed upgrade cleans nothing",
			jobtest.Planned(inventory.VerbMaintenance, "", "a Allocated service-master", "b Allocated service-master",
				"c Allocated service-master"),
			nobodyMinds, `
			upgrade rolling-upgrade.yml a:service-master b:service-master c:service-master
			> failed a=done b=failed
			Errored failed
			a: Allocated service-master 5
			b: Allocated service-master | task "Install": no such package
			c: Allocated service-master 3 | not upgraded: rolling-upgrade.yml failed on b: task "Install": no such package`},
		{"an upgrade that reaches no task leaves the configuration known",
			jobtest.Planned(inventory.VerbMaintenance, "", "a Allocated service-master", "b Allocated service-master"),
			nobodyMinds, `
			upgrade rolling-upgrade.yml a:service-master b:service-master
			> failed a=closed b=unreachable
			Errored failed
			a: Allocated service-master 3 | unreachable: no ssh connection to a, port 22: connection refused
			b: Allocated service-master | unreachable: timed out`},
		{"apply", jobtest.Planned(inventory.VerbApply, "", served...), nobodyMinds, `
			apply site.yml a:service-worker b:service-worker
			> done
			cancel
			Complete
			a: Allocated service-worker 5
			b: Allocated service-worker 5`},
		{"apply fails on one host, and nothing is cleaned",
			jobtest.Planned(inventory.VerbApply, "", append(served, "c Allocated service-worker")...), nobodyMinds, `
			apply site.yml a:service-worker b:service-worker c:service-worker
			> failed a=done b=failed
			Errored failed
			reason: site.yml failed on b: task "Install": no such package
			a: Allocated service-worker 5
			b: Allocated service-worker | task "Install": no such package
			c: Allocated service-worker 3 | not configured again: site.yml failed on b: task "Install": no such package`},
		{"apply is cancelled while it runs", jobtest.Planned(inventory.VerbApply, "", served...), nobodyMinds, `
			apply site.yml a:service-worker b:service-worker
			cancel
			> cancelled a=begun
			Cancelled cancelled
			a: Allocated service-worker | not configured again: cancelled by anna
			b: Allocated service-worker 3 | not configured again: cancelled by anna`},
		{"apply is cancelled before it begins", jobtest.Planned(inventory.VerbApply, "", served...), nobodyMinds, `
			cancel
			Cancelled cancelled
			a: Allocated service-worker 3 | not configured again: cancelled by anna
			b: Allocated service-worker 3 | not configured again: cancelled by anna`},
		{"apply runs too long", jobtest.Planned(inventory.VerbApply, "", served...), nobodyMinds, `
			apply site.yml a:service-worker b:service-worker
			late
			> deadline a=done b=begun
			Errored deadline
			a: Allocated service-worker 5
			b: Allocated service-worker | not configured again: it ran longer than 1h`},
		{"the runner of an apply is killed", jobtest.Planned(inventory.VerbApply, "", served...), nobodyMinds, `
			apply site.yml a:service-worker b:service-worker
			> interrupted a=begun
			Errored interrupted
			a: Allocated service-worker | not configured again: site.yml ended with status 0
			b: Allocated service-worker 3 | not configured again: site.yml ended with status 0`},
		{"the runner of an apply does not start", jobtest.Planned(inventory.VerbApply, "", served...), nobodyMinds, `
			apply site.yml a:service-worker b:service-worker
			> never
			Errored internal
			a: Allocated service-worker 3 | not configured again: the runner did not start
			b: Allocated service-worker 3 | not configured again: the runner did not start`},
		{"upgrade is cancelled before it begins",
			jobtest.Planned(inventory.VerbMaintenance, "", served[0]), nobodyMinds, `
			cancel
			Cancelled cancelled
			a: Allocated service-worker 3 | not upgraded: cancelled by anna`},
		{"decommission", jobtest.Planned(inventory.VerbDecommission, "", served...), nobodyMinds, `
			cleanup cleanup.yml a:service-worker b:service-worker
			> done
			cancel
			Complete
			a: Decommissioned
			b: Decommissioned`},
		{"decommission of a dead host", jobtest.Planned(inventory.VerbDecommission, "", served...), nobodyMinds, `
			cleanup cleanup.yml a:service-worker b:service-worker
			> failed a=unreachable b=done
			Complete
			reason: not everything could be cleaned: cleanup.yml failed on a: unreachable: timed out
			a: Decommissioned +service-worker | not cleaned: unreachable: timed out
			b: Decommissioned`},
		{"decommission is cancelled", jobtest.Planned(inventory.VerbDecommission, "", served[0]), nobodyMinds, `
			cleanup cleanup.yml a:service-worker
			cancel
			> cancelled a=begun
			Cancelled cancelled
			a: Decommissioned +service-worker | not cleaned: cancelled by anna`},
		{"decommission of a quarantined node without a group",
			jobtest.Planned(inventory.VerbDecommission, "", "a Quarantined -"), nobodyMinds, `
			Complete
			a: Decommissioned`},
		{"clear",
			jobtest.Planned(inventory.VerbClear, "", "a Quarantined service-worker service-master", "b Quarantined -"),
			nobodyMinds, `
			cleanup cleanup.yml a:service-master
			> done
			cleanup cleanup.yml a:service-worker
			> done
			late
			Complete
			a: Unallocated
			b: Unallocated`},
		{"clear fails",
			jobtest.Planned(inventory.VerbClear, "", "a Quarantined service-worker", "b Quarantined service-worker",
				"c Quarantined service-worker service-master"),
			nobodyMinds, `
			cleanup cleanup.yml a:service-worker b:service-worker c:service-master
			> failed a=done b=failed c=done
			Errored failed
			a: Unallocated
			b: Quarantined service-worker | task "Install": no such package
			c: Quarantined service-worker +service-master | cleanup.yml failed on b: task "Install": no such package`},
		{"clear is cancelled before it begins",
			jobtest.Planned(inventory.VerbClear, "", "a Quarantined service-worker service-master"), nobodyMinds, `
			cancel
			Cancelled cancelled
			a: Quarantined service-worker +service-master | cancelled by anna`},
		{"clear cleans what a failed cleaning left",
			afterFailedCleaning(jobtest.Planned(inventory.VerbClear, "",
				"a Quarantined -", "b Quarantined service-worker")),
			nobodyMinds, `
			cleanup cleanup.yml b:service-worker
			> done
			clean clean.yml a: b:
			> failed a=done b=failed
			Errored failed
			a: Unallocated trusted
			b: Quarantined | not cleaned: task "Install": no such package`},
		{"clear after a failed cleaning is cancelled before it begins",
			afterFailedCleaning(jobtest.Planned(inventory.VerbClear, "", "a Quarantined -")), nobodyMinds, `
			cancel
			Cancelled cancelled
			a: Quarantined | not cleaned: cancelled by anna`},
		{"clear by force after a failed cleaning",
			forced(afterFailedCleaning(jobtest.Planned(inventory.VerbClear, "", "a Quarantined -"))), nobodyMinds, `
			Complete
			a: Unallocated trusted`},
		{"clear by force",
			forced(jobtest.Planned(inventory.VerbClear, "", "a Quarantined service-worker service-master")),
			nobodyMinds, `
			Complete
			a: Unallocated trusted +service-master+service-worker`},
		{"forget with the agent",
			jobtest.Planned(inventory.VerbForget, "", "a Decommissioned - x", "b Unallocated -"), nobodyMinds, `
			cleanup cleanup.yml a:cluster-node b:cluster-node
			> failed a=failed b=done
			Errored failed
			a: Decommissioned +x | its agent was not removed: task "Install": no such package
			b:`},
		{"discover", jobtest.Planned(inventory.VerbDiscover, "", "10.0.0.1 - -"), nobodyMinds, `
			probe  10.0.0.1:cluster-node
			> done
			configure site.yml 10.0.0.1:cluster-node
			> done
			appear  10.0.0.1:cluster-node
			> done
			Complete`},
		{"discover fails", jobtest.Planned(inventory.VerbDiscover, "", "10.0.0.1 - -"), nobodyMinds, `
			probe  10.0.0.1:cluster-node
			> done
			configure site.yml 10.0.0.1:cluster-node
			> failed 10.0.0.1=unreachable
			Errored failed
			reason: site.yml failed on 10.0.0.1: unreachable: timed out`},
		{"discover of two fails on one: the other is waited for all the same",
			jobtest.Planned(inventory.VerbDiscover, "", "10.0.0.1 - -", "10.0.0.2 - -"), nobodyMinds, `
			probe  10.0.0.1:cluster-node 10.0.0.2:cluster-node
			> done
			configure site.yml 10.0.0.1:cluster-node 10.0.0.2:cluster-node
			> failed 10.0.0.1=done 10.0.0.2=unreachable
			appear  10.0.0.1:cluster-node
			> done
			Errored failed
			reason: site.yml failed on 10.0.0.2: unreachable: timed out`},
		{"discover of two fails on one, and the other does not appear",
			jobtest.Planned(inventory.VerbDiscover, "", "10.0.0.1 - -", "10.0.0.2 - -"), nobodyMinds, `
			probe  10.0.0.1:cluster-node 10.0.0.2:cluster-node
			> done
			configure site.yml 10.0.0.1:cluster-node 10.0.0.2:cluster-node
			> failed 10.0.0.1=done 10.0.0.2=unreachable
			appear  10.0.0.1:cluster-node
			> absent
			Errored absent
			reason: site.yml failed on 10.0.0.2: unreachable: timed out; appear ended with status 0`},
		{"a playbook that has nothing for hosts being prepared",
			jobtest.Planned(inventory.VerbDiscover, "", "10.0.0.1 - -", "10.0.0.2 - -"), nobodyMinds, `
			probe  10.0.0.1:cluster-node 10.0.0.2:cluster-node
			> done
			configure site.yml 10.0.0.1:cluster-node 10.0.0.2:cluster-node
			> done 10.0.0.1=none
			Errored failed
			reason: site.yml ran no task on 10.0.0.1; it needs a play for the group cluster-node that installs the agent (the bundled role agent)`},
		{"discover is cancelled between", jobtest.Planned(inventory.VerbDiscover, "", "10.0.0.1 - -"), nobodyMinds, `
			probe  10.0.0.1:cluster-node
			> done
			configure site.yml 10.0.0.1:cluster-node
			> done
			cancel
			appear  10.0.0.1:cluster-node
			> cancelled
			Cancelled cancelled
			reason: cancelled by anna`},
		{"a discover that is cancelled after its hosts have appeared leaves them alone",
			jobtest.Planned(inventory.VerbDiscover, "", "10.0.0.1 - -", "10.0.0.2 - -", "10.0.0.3 - -"), nobodyMinds, `
			probe  10.0.0.1:cluster-node 10.0.0.2:cluster-node 10.0.0.3:cluster-node
			> done
			configure site.yml 10.0.0.1:cluster-node 10.0.0.2:cluster-node 10.0.0.3:cluster-node
			cancel
			> cancelled 10.0.0.1=half-way 10.0.0.2=begun 10.0.0.3=unreachable
			appear  10.0.0.1:cluster-node 10.0.0.2:cluster-node
			> cancelled 10.0.0.1=done
			undo discover-undo.yml 10.0.0.2:cluster-node
			> done
			Cancelled cancelled
			reason: cancelled by anna`},
		{"a discover that runs out of time leaves the hosts alone that have appeared",
			jobtest.Planned(inventory.VerbDiscover, "", "10.0.0.1 - -"), nobodyMinds, `
			probe  10.0.0.1:cluster-node
			> done
			configure site.yml 10.0.0.1:cluster-node
			late
			> deadline 10.0.0.1=half-way
			appear  10.0.0.1:cluster-node
			> done
			Errored deadline`},
		{"discover restores what it changed on a host where it fails",
			jobtest.Planned(inventory.VerbDiscover, "", "10.0.0.1 - -", "10.0.0.2 - -", "10.0.0.3 - -"), nobodyMinds, `
			probe  10.0.0.1:cluster-node 10.0.0.2:cluster-node 10.0.0.3:cluster-node
			> done
			configure site.yml 10.0.0.1:cluster-node 10.0.0.2:cluster-node 10.0.0.3:cluster-node
			> failed 10.0.0.1=changed 10.0.0.2=half-way 10.0.0.3=failed
			appear  10.0.0.1:cluster-node
			> done
			undo discover-undo.yml 10.0.0.2:cluster-node
			> done
			Errored failed
			reason: site.yml failed on 10.0.0.2: task "Install": no such package; 10.0.0.3: task "Install": no such package`},
		{"a host that discover refuses is left alone",
			jobtest.Planned(inventory.VerbDiscover, "", "10.0.0.1 - -"), nobodyMinds, `
			probe  10.0.0.1:cluster-node
			> done
			configure site.yml 10.0.0.1:cluster-node
			> failed 10.0.0.1=failed
			Errored failed`},
		{"discover restores a host that does not appear",
			jobtest.Planned(inventory.VerbDiscover, "", "10.0.0.1 - -"), nobodyMinds, `
			probe  10.0.0.1:cluster-node
			> done
			configure site.yml 10.0.0.1:cluster-node
			> done 10.0.0.1=changed
			appear  10.0.0.1:cluster-node
			> absent
			undo discover-undo.yml 10.0.0.1:cluster-node
			> failed 10.0.0.1=unreachable
			Errored absent
			reason: appear ended with status 0; not restored to the state before: 10.0.0.1: unreachable: timed out`},
		{"a discover that is interrupted restores every host that it may have changed",
			jobtest.Planned(inventory.VerbDiscover, "", "10.0.0.1 - -", "10.0.0.2 - -"), nobodyMinds, `
			probe  10.0.0.1:cluster-node 10.0.0.2:cluster-node
			> done
			configure site.yml 10.0.0.1:cluster-node 10.0.0.2:cluster-node
			> interrupted 10.0.0.1=begun 10.0.0.2=unreachable
			appear  10.0.0.1:cluster-node
			> absent
			undo discover-undo.yml 10.0.0.1:cluster-node
			> interrupted
			undo discover-undo.yml 10.0.0.1:cluster-node
			> done
			Errored interrupted`},
		{"the second cancel of a discover skips the restoration",
			jobtest.Planned(inventory.VerbDiscover, "", "10.0.0.1 - -"), nobodyMinds, `
			probe  10.0.0.1:cluster-node
			> done
			configure site.yml 10.0.0.1:cluster-node
			cancel
			> cancelled 10.0.0.1=half-way
			appear  10.0.0.1:cluster-node
			> cancelled
			undo discover-undo.yml 10.0.0.1:cluster-node
			cancel
			> cancelled
			Cancelled cancelled
			reason: cancelled by anna; not restored to the state before: 10.0.0.1: the second cancel skipped it`},
		{"a host without a record of the job is not restored",
			jobtest.Planned(inventory.VerbDiscover, "", "10.0.0.1 - -"), nobodyMinds, `
			probe  10.0.0.1:cluster-node
			> done
			configure site.yml 10.0.0.1:cluster-node
			> failed 10.0.0.1=half-way
			undo discover-undo.yml 10.0.0.1:cluster-node
			> failed 10.0.0.1=failed
			Errored failed
			reason: site.yml failed on 10.0.0.1: task "Install": no such package; not restored to the state before: 10.0.0.1: task "Install": no such package`},
		{"discover does not wait for a host that is not reachable",
			jobtest.Planned(inventory.VerbDiscover, "", "10.0.0.1 - -", "10.0.0.2 - -"), nobodyMinds, `
			probe  10.0.0.1:cluster-node 10.0.0.2:cluster-node
			> failed 10.0.0.1=done 10.0.0.2=unreachable
			configure site.yml 10.0.0.1:cluster-node
			> done
			appear  10.0.0.1:cluster-node
			> done
			Errored failed
			reason: not reachable by ssh: 10.0.0.2: timed out`},
		{"discover of a range skips silent addresses, and not a refused login",
			ranged(jobtest.Planned(inventory.VerbDiscover, "", "10.0.0.1 - -", "10.0.0.2 - -", "10.0.0.3 - -")),
			nobodyMinds, `
			probe  10.0.0.1:cluster-node 10.0.0.2:cluster-node 10.0.0.3:cluster-node
			> failed 10.0.0.1=done 10.0.0.2=unreachable 10.0.0.3=failed
			configure site.yml 10.0.0.1:cluster-node
			> failed 10.0.0.1=half-way
			undo discover-undo.yml 10.0.0.1:cluster-node
			> done
			Errored failed
			reason: not reachable by ssh: 10.0.0.3: no such package; site.yml failed on 10.0.0.1: task "Install": no such package`},
		{"discover of a range with one host",
			ranged(jobtest.Planned(inventory.VerbDiscover, "", "10.0.0.1 - -", "10.0.0.2 - -")), nobodyMinds, `
			probe  10.0.0.1:cluster-node 10.0.0.2:cluster-node
			> done 10.0.0.2=unreachable
			configure site.yml 10.0.0.1:cluster-node
			> done
			appear  10.0.0.1:cluster-node
			> done
			Complete`},
		{"discover of a range without a host",
			ranged(jobtest.Planned(inventory.VerbDiscover, "", "10.0.0.1 - -")), nobodyMinds, `
			probe  10.0.0.1:cluster-node
			> done 10.0.0.1=unreachable
			Errored absent
			reason: no address of the range accepts ssh connections`},
		{"provide", jobtest.Planned(inventory.VerbProvide, "", "a Manageable -", "b Manageable -"), nobodyMinds, `
			clean clean.yml a: b:
			> done
			Complete
			a: Unallocated trusted
			b: Unallocated trusted`},
		{"provide removes residue first", jobtest.Planned(inventory.VerbProvide, "",
			"a Manageable - service-worker service-master", "b Manageable - service-worker", "c Manageable -"),
			nobodyMinds, `
			residue cleanup.yml a:service-worker b:service-worker
			> failed a=done b=failed
			residue cleanup.yml a:service-master
			> done
			clean clean.yml a: c:
			> done
			Errored failed
			reason: cleanup.yml failed on b: task "Install": no such package
			a: Unallocated trusted
			b: Quarantined uncleaned +service-worker | not cleaned: task "Install": no such package
			c: Unallocated trusted`},
		{"provide fails on one host, and never reaches another",
			jobtest.Planned(inventory.VerbProvide, "", "a Manageable -", "b Manageable -", "c Manageable -"),
			nobodyMinds, `
			clean clean.yml a: b: c:
			> failed a=failed b=closed c=done
			Errored failed
			a: Quarantined uncleaned | not cleaned: task "Install": no such package
			b: Manageable | not cleaned: unreachable: no ssh connection to a, port 22: connection refused
			c: Unallocated trusted`},
		{"provide is interrupted", jobtest.Planned(inventory.VerbProvide, "", "a Manageable -"), nobodyMinds, `
			clean clean.yml a:
			> interrupted a=begun
			clean clean.yml a:
			> done
			Complete
			a: Unallocated trusted`},
		{"provide is cancelled", jobtest.Planned(inventory.VerbProvide, "", "a Manageable -", "b Manageable -"),
			nobodyMinds, `
			clean clean.yml a: b:
			cancel
			> cancelled a=begun b=closed
			Cancelled cancelled
			a: Quarantined uncleaned | not cleaned: cancelled by anna
			b: Manageable | not cleaned: unreachable: no ssh connection to a, port 22: connection refused`},
		{"provide is cancelled after the end", jobtest.Planned(inventory.VerbProvide, "", "a Manageable -"),
			nobodyMinds, `
			clean clean.yml a:
			> done
			cancel
			Complete
			a: Unallocated trusted`},
		{"provide is cancelled before it begins",
			withoutAddr(jobtest.Planned(inventory.VerbProvide, "", "a Manageable -", "b Manageable -")), nobodyMinds, `
			cancel
			Cancelled cancelled
			a: Manageable | not cleaned: cancelled by anna
			b: Manageable | not cleaned: cancelled by anna`},
		{"provide that erases disks",
			erasing(jobtest.Planned(inventory.VerbProvide, "", "a Manageable -", "b Manageable - service-worker")),
			nobodyMinds, `
			residue cleanup.yml b:service-worker
			> done
			erase erase.yml a: b:
			> failed a=failed b=done
			clean clean.yml b:
			> done
			Errored failed
			reason: erase.yml failed on a: task "Install": no such package
			a: Quarantined uncleaned | not cleaned: task "Install": no such package
			b: Unallocated trusted`},
		{"provide of a machine without an address, and of a host",
			withoutAddr(jobtest.Planned(inventory.VerbProvide, "", "a Manageable -", "b Manageable -")), nobodyMinds, `
			clean clean.yml b:
			> failed b=closed
			Errored failed
			a: Unallocated
			b: Manageable | not cleaned: unreachable: no ssh connection to a, port 22: connection refused`},
		{"provide of a machine without an address",
			withoutAddr(jobtest.Planned(inventory.VerbProvide, "", "a Manageable -")), nobodyMinds, `
			Complete
			a: Unallocated`},
		{"discover is cancelled while it probes",
			jobtest.Planned(inventory.VerbDiscover, "", "10.0.0.1 - -"), nobodyMinds, `
			probe  10.0.0.1:cluster-node
			cancel
			> cancelled
			Cancelled cancelled
			reason: cancelled by anna`},
		{"an address does not appear", jobtest.Planned(inventory.VerbDiscover, "", "10.0.0.1 - -"), nobodyMinds, `
			probe  10.0.0.1:cluster-node
			> done
			configure site.yml 10.0.0.1:cluster-node
			> done
			appear  10.0.0.1:cluster-node
			> absent
			Errored absent`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tell(t, tt.job, tt.leave, tt.story)
		})
	}
}

var refuses = rules{leave: inventory.Errorf(inventory.KindRefused, "it would leave b alone").Do("mind b")}

func onlyFailed(j Job) Job { j.OnFailure = inventory.OnFailureFailed; return j }

func erasing(j Job) Job { j.Erase = inventory.EraseMetadata; return j }

// withoutAddr takes the address from the first target.
func withoutAddr(j Job) Job { j.Targets[0].Addr = ""; return j }

func ranged(j Job) Job {
	for i := range j.Targets {
		j.Targets[i].Ranged = true
	}

	return j
}

func forced(j Job) Job { j.Force, j.Reason = true, "re-installed"; return j }

func tell(t *testing.T, j Job, leave Rules, story string) {
	now := jobtest.Noon
	step := Plan(j, now, leave)

	started := false // step is a run that goes on
	for _, line := range strings.Split(story, "\n") {
		line = strings.TrimSpace(line)

		if !started {
			step = Plan(j, now, leave)
		}

		name, rest, said := strings.Cut(line, ":")

		_, target := j.Target(name)
		switch {
		case line == "":
		case line == "cancel":
			j.Cancel, j.CancelBy = j.Cancel+1, "anna"
		case line == "late":
			now = jobtest.Noon.Add(2 * time.Hour)
		case strings.HasPrefix(line, ">"):
			jobtest.Record(&j, step, line[1:])
			started = false
		case strings.HasPrefix(line, "reason: "):
			if got := step.Message; got != line[len("reason: "):] {
				t.Errorf("reason %q", got)
			}
		case said && target:
			o, ok := step.Outcomes[name]
			if got := showOutcome(o); !ok || got != strings.TrimSpace(rest) {
				t.Errorf("outcome of %s: %v %s\nwant            %s", name, ok, got, strings.TrimSpace(rest))
			}
		default:
			if got := show(step); got != line {
				t.Fatalf("planned: %s\nwant:    %s", got, line)
			}

			started = step.Phase != ""
		}
	}

	if j.Verb != inventory.VerbDiscover && len(step.Outcomes) != len(j.Targets) {
		t.Errorf("outcomes of %d of %d targets", len(step.Outcomes), len(j.Targets))
	}
}

// TestClearDescribesTheCleanup expects the groups of which each node was cleaned.
func TestClearDescribesTheCleanup(t *testing.T) {
	t.Parallel()

	j := jobtest.Planned(inventory.VerbClear, "",
		"a Quarantined service-worker service-master", "b Quarantined -", "c Quarantined service-worker")
	for _, exit := range []string{ExitDone, "failed c=failed a=done"} {
		step := Plan(j, jobtest.Noon, nobodyMinds)
		if step.Kind != "" {
			jobtest.Record(&j, step, exit)
		}
	}

	got := Plan(j, jobtest.Noon, nobodyMinds).Note
	if got != "a was cleaned of service-master and service-worker; b carried no configuration; "+
		"c was cleaned of service-worker" {
		t.Errorf("got %q", got)
	}
}

// TestFirstCancelNeverEndsTheCleanup holds for every phase.
func TestFirstCancelNeverEndsTheCleanup(t *testing.T) {
	t.Parallel()

	for _, phase := range []Phase{
		PhaseResidue, PhaseErase, PhaseClean, PhaseConfigure, PhaseCleanup, PhaseApply, PhaseUpgrade, PhaseUndo,
		PhaseAppear,
	} {
		for cancel := range 3 {
			want := cancel > 0
			if phase == PhaseUndo {
				want = cancel > 1
			}
			if got := (Job{Cancel: cancel}).Cancels(Run{Phase: phase}); got != want {
				t.Errorf("%s, cancelled %d times: %v", phase, cancel, got)
			}
		}
	}
}

// TestPlanAlwaysEnds drives jobs of every verb through runs that end in any way,
// with cancels, deadlines and rules at any time.
func TestPlanAlwaysEnds(t *testing.T) {
	t.Parallel()

	for seed := range uint64(20_000) {
		r := rand.New(rand.NewPCG(seed, 0))

		j := anyJob(r)
		if story, err := live(r, j); err != nil {
			t.Fatalf("seed %d, %s: %v\n%s", seed, j.Verb, err, strings.Join(story, "\n"))
		}
	}
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func anyJob(r *rand.Rand) Job {
	row := pick(r, inventory.Lifecycle...)
	verb := row.Verb

	from := []inventory.Status{""}
	if row.ChangesStatus() {
		from = row.From
	}

	var targets []string
	for i := range 1 + r.IntN(3) {
		group, residue := "-", ""

		status := pick(r, from...)
		if status == inventory.Allocated || status == inventory.Quarantined && r.IntN(2) == 0 {
			group = pick(r, inventory.GroupMaster, inventory.GroupWorker)
		}

		if status == inventory.Decommissioned || status == inventory.Quarantined ||
			verb == inventory.VerbProvide && r.IntN(2) == 0 {
			for _, g := range []string{inventory.GroupMaster, inventory.GroupWorker} {
				if r.IntN(2) == 0 {
					residue += " " + g
				}
			}
		}

		targets = append(targets, fmt.Sprintf("n%d %s %s%s", i, cmp.Or(string(status), "none"), group, residue))
	}

	j := jobtest.Planned(verb, pick(r, inventory.GroupMaster, inventory.GroupWorker), targets...)
	if verb == inventory.VerbCommission && r.IntN(2) == 0 {
		j.OnFailure = inventory.OnFailureFailed
	}
	switch {
	case verb != inventory.VerbProvide:
	case r.IntN(3) == 0: // acceptance refuses to erase a machine without an address
		j.Targets[0].Addr, j.Targets[0].Residue = "", nil
	case r.IntN(2) == 0:
		j.Erase = inventory.EraseFull
	}
	if verb == inventory.VerbClear && r.IntN(4) == 0 {
		j.Force, j.Reason = true, "x"
	}

	return j
}

// live takes the job to its end and returns its story, and everything wrong with it.
func live(r *rand.Rand, j Job) (story []string, err error) {
	now, leave := jobtest.Noon, nobodyMinds
	if r.IntN(4) == 0 {
		leave = refuses
	}

	disturb := func() {
		switch r.IntN(8) {
		case 0:
			if j.Cancel < 2 {
				j.Cancel, j.CancelBy = j.Cancel+1, "anna"
				story = append(story, "cancel")
			}
		case 1:
			now = jobtest.Noon.Add(2 * time.Hour)
			story = append(story, "late")
		}
	}
	for range 12 {
		disturb()

		step := Plan(j, now, leave)
		if again := Plan(j, now, leave); !reflect.DeepEqual(step, again) {
			return story, fmt.Errorf("planned differently the second time: %+v, %+v", step, again)
		}
		story = append(story, show(step))
		if step.Phase == "" {
			return story, checkEnd(j, step)
		}
		if err := checkStep(j, step, now); err != nil {
			return story, err
		}

		disturb()
		exit := anyExit(r, j, step, now)
		story = append(story, "> "+exit)
		jobtest.Record(&j, step, exit)
	}

	return story, fmt.Errorf("no end after %d runs", len(j.Runs))
}

// anyExit is a way in which the run may end, given what else happened.
func anyExit(r *rand.Rand, j Job, s Step, now time.Time) string {
	exits := []string{ExitDone, ExitDone, "failed", "interrupted", "internal", "deadline", "never"}
	if j.Cancel > 1 || j.Cancel > 0 && s.Phase != PhaseUndo {
		exits = append(exits, "cancelled", "cancelled")
	}
	if s.Phase == PhaseAppear {
		exits = append(exits, "absent")
	}

	exit := pick(r, exits...)
	if exit == ExitDone || exit == "never" {
		return exit
	}

	results := []string{"failed", "unreachable", "begun", "none", "half-way"}

	out := exit
	for i, h := range s.Hosts {
		how := pick(r, results...)
		if exit == "failed" && i > 0 { // at least one host is not done
			how = pick(r, append(results, "done", "changed")...)
		}
		out += " " + h + "=" + how
	}

	return out
}

func checkStep(j Job, s Step, now time.Time) error {
	if len(s.Hosts) == 0 || len(s.Hosts) != len(s.Groups) {
		return fmt.Errorf("a run on hosts %v in groups %v", s.Hosts, s.Groups)
	}

	for i, h := range s.Hosts {
		if _, ok := j.Target(h); !ok || slices.Contains(s.Hosts[:i], h) ||
			s.Groups[i] == "" && s.Kind == StepPlaybook && s.Phase != PhaseClean && s.Phase != PhaseErase {
			return fmt.Errorf("a run on hosts %v in groups %v", s.Hosts, s.Groups)
		}
	}

	bundled := s.PlaybookDigest == PlaybooksBundled &&
		(s.Playbook == PlaybookDiscoverUndo || s.Playbook == PlaybookErase && j.Erase != "")
	if !slices.Contains(playbooksOf(j.Verb), s.Playbook) && s.Kind == StepPlaybook && !bundled {
		return fmt.Errorf("%s was not checked when the job was accepted", s.Playbook)
	}

	// A discover records the hosts that are nodes by now, without a wait.
	if s.Phase != PhaseUndo && s.Kind != StepAppear && (j.Cancel > 0 || now.After(j.Deadline)) {
		return fmt.Errorf("%s begins although the job is to stop", s.Phase)
	}

	if s.Phase == PhaseUndo && j.Cancel > 1 {
		return fmt.Errorf("a cleanup begins although it is to be skipped")
	}

	undos := 0
	for _, r := range j.Runs {
		if r.Phase == PhaseUndo {
			undos++
		}
	}

	if undos >= UndoAttempts {
		return fmt.Errorf("cleanup number %d", undos+1)
	}

	return nil
}

func checkEnd(j Job, s Step) error {
	if want := map[bool]Status{true: Complete, false: Errored}[s.Cause == ""]; s.Status != want &&
		!(s.Cause == CauseCancelled && s.Status == Cancelled) {
		return fmt.Errorf("ended %s because of %q", s.Status, s.Cause)
	}

	if s.Cause != "" && s.Message == "" {
		return fmt.Errorf("ended %s without a reason", s.Cause)
	}

	if s.Cause == CauseCancelled && j.Cancel == 0 {
		return fmt.Errorf("cancelled by nobody")
	}

	allDone := !slices.ContainsFunc(j.Runs, func(r Run) bool { return r.Exit != ExitDone })
	if allDone && j.Cancel == 0 && s.Status != Complete && s.Cause != CauseDeadline {
		return fmt.Errorf("everything was done, yet it ended %s %s", s.Status, s.Cause)
	}

	row, _ := inventory.TransitionOf(j.Verb)
	if !row.ChangesStatus() {
		return nil
	}

	for _, target := range j.Targets {
		o, ok := s.Outcomes[target.Name]
		if !ok {
			return fmt.Errorf("%s has no outcome", target.Name)
		}

		// An empty status after a failure restores the status before.
		success := row.After(target.From)

		legal := []inventory.Status{success, cmp.Or(row.Failed, target.From), cmp.Or(row.Dirty, target.From)}
		if !slices.Contains(legal, o.Status) {
			return fmt.Errorf("%s ends %q, but the row of %s has %q", target.Name, o.Status, j.Verb, legal)
		}

		if o.Error == "" && o.Status != success {
			return fmt.Errorf("%s ends %q without an error, want %q", target.Name, o.Status, success)
		}

		if err := checkOutcome(j, s, target, o); err != nil {
			return fmt.Errorf("%s: %w (%+v)", target.Name, err, o)
		}
	}

	return nil
}

func checkOutcome(j Job, s Step, target Target, o inventory.Outcome) error {
	ran := func(phase Phase) (r *Run, result HostResult) {
		for i := range j.Runs {
			if _, on := j.Runs[i].Results[target.Name]; on && j.Runs[i].Phase == phase {
				r, result = &j.Runs[i], j.Runs[i].Results[target.Name]
			}
		}

		return r, result
	}
	configured, _ := ran(PhaseConfigure)
	_, undone := ran(PhaseUndo)

	_, ended := ran(PhaseClean)
	_, erased := ran(PhaseErase)

	cleaned, _ := ran(PhaseCleanup)
	row, _ := inventory.TransitionOf(j.Verb)

	switch {
	case row.Success == inventory.AsBefore:
		if o.Status != target.From || o.Group != target.FromGroup || (s.Status == Complete) && o.Error != "" {
			return fmt.Errorf("the node is not as before")
		}
	case s.Status == Complete && j.Verb != inventory.VerbDecommission && (o.Error != "" ||
		o.Status != row.After(target.From)):
		return fmt.Errorf("the job is Complete, the node is not")
	case j.Verb == inventory.VerbProvide && o.Status == inventory.Unallocated && target.Addr != "" && !ended.Done:
		return fmt.Errorf("offered without a cleaning")
	case j.Verb == inventory.VerbProvide && o.Status == inventory.Unallocated && j.Erase != "" && !erased.Done:
		return fmt.Errorf("offered with its data")
	case j.Verb == inventory.VerbProvide && o.Status == inventory.Manageable && ended.Failed+erased.Failed > 0:
		return fmt.Errorf("as before, although a task of the cleaning has failed on it")
	case o.Status == inventory.Quarantined && o.Error == "":
		return fmt.Errorf("quarantined without a word")
	case j.Verb == inventory.VerbCommission && o.Status == inventory.Unallocated && configured != nil && !undone.Done:
		return fmt.Errorf("offered again without a cleanup")
	case j.Verb == inventory.VerbCommission && o.Status == inventory.Allocated && (o.Applied != j.ID ||
		o.Group != target.Group):
		return fmt.Errorf("in service with something else")
	case j.Verb == inventory.VerbUpdate && o.Status == inventory.Unallocated && !undone.Done && !(configured == nil &&
		cleaned.Exit == ExitDone):
		return fmt.Errorf("offered again without a cleanup")
	case j.Verb == inventory.VerbUpdate && o.Status == inventory.Allocated && s.Status != Complete && cleaned != nil &&
		cleaned.Results[target.Name].Begun:
		return fmt.Errorf("in service although its cleanup had begun")
	case o.Status == inventory.Allocated && o.Group == "":
		return fmt.Errorf("in service in no group")
	case o.Status == inventory.Quarantined && (j.Verb == inventory.VerbCommission || j.Verb == inventory.VerbUpdate) &&
		o.Group == "":
		return fmt.Errorf("what it carries is lost")
	case o.Status == inventory.Decommissioned && j.Verb == inventory.VerbDecommission &&
		(len(o.Residue) > 0) != (o.Error != ""):
		return fmt.Errorf("residue and error do not agree")
	case o.Status == inventory.Quarantined && (j.Verb == inventory.VerbClear || j.Verb == inventory.VerbForget) &&
		o.Group != target.FromGroup:
		return fmt.Errorf("what it carries is lost")
	}

	return nil
}

func playbooksOf(verb inventory.Verb) []string {
	v, _ := VerbOf(verb)
	return slices.Concat(v.Playbooks, v.Optional)
}
