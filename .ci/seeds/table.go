// SPDX-License-Identifier: Apache-2.0

package main

// seed is a known bug, and the test that has to find it.
type seed struct {
	name    string
	file    string
	is      string // a text that occurs once in the file
	becomes string
	pkg     string
	test    string // a regular expression
}

const (
	next      = "management/rollout/next.go"
	rollouts  = "management/rollout"
	simulated = "TestTogether"
	aborted   = "TestAbortAnywhere"
)

var seeds = []seed{
	{
		name: "the soak time is skipped", file: next, pkg: rollouts, test: simulated,
		is:      `case passed != Soaking && d.soak(n) > 0:`,
		becomes: `case false:`,
	},
	{
		name: "the verification is skipped", file: next, pkg: rollouts, test: simulated,
		is:      `case passed == Working && d.Spec.Verifies():`,
		becomes: `case false:`,
	},
	{
		name: "the check of the gate is skipped", file: next, pkg: rollouts, test: simulated,
		is:      `case (passed == Working || passed == Verifying) && gate.Checks():`,
		becomes: `case false && gate.Checks():`,
	},
	{
		name: "drift passes the gate", file: next, pkg: rollouts, test: simulated,
		is:      `return o.Verdict != nil && o.Verdict.Result == inventory.Clean`,
		becomes: `return o.Verdict != nil`,
	},
	{
		name: "a job that never began is a failure", file: next, pkg: rollouts, test: simulated,
		is:      `case isNeverBegun(j):`,
		becomes: `case false:`,
	},
	{
		name: "a verification that never began is a failure", file: next, pkg: rollouts, test: simulated,
		is:      `case isNeverBegun(j) && d.remains(n, gatePatience) > 0:`,
		becomes: `case false:`,
	},
	{
		name: "an abort cancels nothing", file: next, pkg: rollouts, test: aborted,
		is:      `if d.Status == Aborting && j.Cancel == 0 && (`,
		becomes: `if false && j.Cancel == 0 && (`,
	},
	{
		name: "an abort leaves queued jobs", file: next, pkg: rollouts, test: aborted,
		is:      `(d.Record.Cancel || j.Status == job.Queued)`,
		becomes: `d.Record.Cancel`,
	},
	{
		name: "an abort cancels what is to finish", file: next, pkg: rollouts, test: aborted,
		is: `(d.Record.Cancel || j.Status == job.Queued) {
		d.cancel = append(d.cancel, Cancel{Job: j.ID, Queued: !d.Record.Cancel})`,
		becomes: `true {
		d.cancel = append(d.cancel, Cancel{Job: j.ID})`,
	},
	{
		name: "an abort asks for ever", file: next, pkg: rollouts, test: aborted,
		is:      `(d.Record.Cancel || j.Status == job.Queued)`,
		becomes: `true`,
	},
	{
		name: "a broken limit ends as done", file: next, pkg: rollouts, test: "TestTogether|TestProperties",
		is:      `case excess != "":`,
		becomes: `case false:`,
	},
	{
		name: "two rollouts begin one node", file: "management/rollout/make.go", pkg: rollouts, test: simulated,
		is:      `if other := busy[r.Nodes[i].Name]; other != nil {`,
		becomes: `if other := busy[r.Nodes[i].Name]; false && other != nil {`,
	},
	{
		name: "a retry begins nodes of another rollout", file: "management/rollout/make.go", pkg: rollouts,
		test:    simulated,
		is:      `return checkFree(others, r.waiting())`,
		becomes: `return checkFree(others[:0], r)`,
	},
	{
		name: "an undo forgets failed nodes", file: "management/rollout/undo.go", pkg: rollouts, test: simulated,
		is:      `if n.Attempt == 0 {`,
		becomes: `if n.Attempt == 0 || n.State == Failed {`,
	},
	{
		name: "a retry does not ask for free nodes", file: "management/rollout/commands.go",
		pkg: "management/etcd", test: "TestActsMeet",
		is:      `if err := r.CheckFree(record.List(tx, &Kind)); err != nil {`,
		becomes: `if err := r.CheckFree(record.List(tx, &Kind)); false && err != nil {`,
	},
	{
		name: "a retry asks before its transaction", file: "management/rollout/commands.go",
		pkg: "management/etcd", test: "TestActsMeet",
		is:      `r.CheckFree(record.List(tx, &Kind))`,
		becomes: `r.CheckFree(record.List(state.ViewOf(tx), &Kind))`,
	},
	{
		name: "to own a job takes the lead", file: "management/etcd/ownership.go",
		pkg: "management/etcd", test: "TestOwn$",
		is:      `[]clientv3.Cmp{atRevision(n.store.jobKey(job), assigned), atRevision(key, foundAt)}`,
		becomes: `append(n.store.holderFence(), atRevision(n.store.jobKey(job), assigned), atRevision(key, foundAt))`,
	},
	{
		name: "a job with an owner is assigned anew", file: "management/engine/assign.go",
		pkg: "management/engine", test: "TestReassign",
		is:      `record.Get(tx, &state.Owners, j.ID) != nil || `,
		becomes: ``,
	},
	{
		name: "an owner that comes late loses its job", file: "management/engine/assign.go",
		pkg: "management/engine", test: "TestReassign",
		is:      `record.Get(tx, &state.Owners, j.ID)`,
		becomes: `record.Get(v, &state.Owners, j.ID)`,
	},
	{
		name: "an instance that comes back loses its job", file: "management/engine/assign.go",
		pkg: "management/engine", test: "TestReassign",
		is:      `e.runners(tx, v, nil)`,
		becomes: `e.runners(v, v, nil)`,
	},
	{
		name: "an event is cut at the limit", file: "management/engine/step.go",
		pkg: "management/engine", test: "TestWholeLines",
		is:      `bytes.Clone(fit[:bytes.LastIndexByte(fit, '\n')+1])`,
		becomes: `bytes.Clone(fit)`,
	},
	{
		name: "a log that is not written has no error", file: "management/engine/collect.go",
		pkg: "management/engine", test: "TestCollector",
		is:      `return b.err`,
		becomes: `return nil`,
	},
	{
		name: "a former owner writes", file: "management/etcd/decision.go",
		pkg: "management/etcd", test: "TestOwnershipIsLost",
		is:      `ops.If = append(ops.If, ownerFence(ctx)...)`,
		becomes: ``,
	},
	{
		name: "no fence on the host", file: "ansible/plugins/connection/fence.sh",
		pkg: "ansible", test: "TestFenceOrder",
		is:      `lower "$was_e" "$was_r" "$was_n" && return 1`,
		becomes: `return 1`,
	},
	{
		name: "raising does not end what runs", file: "ansible/plugins/connection/fence.sh",
		pkg: "ansible", test: "TestFenceEnds",
		is:      `left=$(end 9>&-) ||`,
		becomes: `left='' ||`,
	},
	{
		name: "a command runs before the former ones have ended", file: "ansible/plugins/connection/fence.sh",
		pkg: "ansible", test: "TestFenceInterrupted",
		is:      `[ "$state" = open ]`,
		becomes: `true`,
	},
	{
		name: "a run goes on without its lease", file: "configuration/ansible/runner.go",
		pkg: "configuration/ansible", test: "TestLease",
		is:      `leased && until-now < left && left > 0 {`,
		becomes: `leased && false {`,
	},
	{
		name: "a batch is claimed in part", file: "management/etcd/reservation.go",
		pkg: "management/etcd", test: "TestConflictsInAChunk|TestClaim.*",
		is:      `return i > 0 || inventory.KindOf(err) != inventory.KindConflict, err`,
		becomes: `_ = i`,
	},
	{
		name: "a node counts as claimed before its batch is", file: "management/etcd/reservation.go",
		pkg: "management/etcd", test: "TestClaim.*|TestAbandonedReservation",
		is:      `n.As(v.holds(n.Job)))`,
		becomes: `n.As(true))`,
	},
	{
		name: "a change is acknowledged that was not committed", file: "management/etcd/decision.go",
		pkg: "management/etcd", test: "TestDecisionsConflict",
		is: `return revision, err
	}

	if ops.Then = onlyDeletions`,
		becomes: `return revision, nil
	}

	if ops.Then = onlyDeletions`,
	},
	{
		name: "the jobs of a lost instance stay there", file: "management/engine/assign.go",
		pkg: "management/engine", test: "TestReassign",
		is:      `if j.Status != job.Running || j.Instance == e.self.Node {`,
		becomes: `if true || j.Instance == e.self.Node {`,
	},
	{
		name: "all runs of an owner have one token", file: "management/step/playbook/spec.go",
		pkg: "management/step/playbook", test: "TestFenceOf",
		is:      `Revision: owner.Revision, Run: at.Index}`,
		becomes: `Revision: owner.Revision}`,
	},
	{
		name: "a cycle is repeated after a crash", file: "management/step/each.go",
		pkg: "management/engine", test: "TestCrashRepeatsNothing",
		is:      `interrupted: t.Once && before.Begun`,
		becomes: `interrupted: false`,
	},
	{
		name: "the begin of a cycle is not recorded", file: "management/step/each.go",
		pkg: "management/engine", test: "TestCrashRepeatsNothing",
		is:      `if err := t.kept.write(ctx, t.host, job.HostResult{Begun: true}); err != nil {`,
		becomes: `if err := ctx.Err(); err != nil {`,
	},
	{
		name: "a refused password is tried again", file: "inventory/bmc/bmc.go",
		pkg: "inventory/bmc", test: "TestPasswords",
		is:      `g.refused = append(g.refused, login)`,
		becomes: `_ = append(g.refused, login)`,
	},
	{
		name: "a refused repair is silent for ever", file: "management/policy/policy.go",
		pkg: "management/policy", test: "TestRefusedForAWhile",
		is:      `case refused != nil:`,
		becomes: `case false:`,
	},
	{
		name: "a node is offered with its data", file: "management/job/verb_provide.go",
		pkg: "management/job", test: "TestPlan",
		is:      `erased := p.Erase == "" || p.cleaned(PhaseErase, t, "")`,
		becomes: `erased := true`,
	},
	{
		name: "a node is offered uncleaned", file: "management/job/verb_provide.go",
		pkg: "management/job", test: "TestPlan",
		is:      `return p.stop == "" || len(p.Runs) > 0`,
		becomes: `return true`,
	},
	{
		name: "a registered machine is reached as any host", file: "management/job/accept.go",
		pkg: "management/engine", test: "TestProvideOfARegisteredMachine",
		is:      `label, known = n.Name, n.Name`,
		becomes: `label, known = n.Name, ""`,
	},
	{
		name: "the brake counts a short absence", file: "management/policy/brake.go",
		pkg: "management/policy", test: "TestBrakeShortAbsences",
		is:      ` && !w.short(n)`,
		becomes: ``,
	},
	{
		name: "a cancelled job of an import starts the next", file: "management/enroll/then.go",
		pkg: "management/enroll", test: "TestThenIsCancelled",
		is:      `if before.Status == job.Cancelled {`,
		becomes: `if false {`,
	},
	{
		name: "a refusal that passes ends an import", file: "management/enroll/then.go",
		pkg: "management/enroll", test: "TestThenWaits",
		is:      `if len(named) == 0 && e.Kind != inventory.KindRefused {`,
		becomes: `if len(named) == 0 {`,
	},
	{
		name: "clear forgets the failed cleaning", file: "management/job/verb_clear.go",
		pkg: "management/job", test: "TestPlan$",
		is:      `return t.Uncleaned && t.Addr`,
		becomes: `return false && t.Addr`,
	},
	{
		name: "a merge drops the alerts", file: "management/enroll/merge.go",
		pkg: "management/enroll", test: "TestMergeKeepsAlerts",
		is:      `for _, a := range from.Alerts {`,
		becomes: `for _, a := range from.Alerts[:0] {`,
	},
	{
		name: "one MAC outweighs another UUID", file: "management/node/names.go",
		pkg: "management/node", test: "TestNames",
		is:      `&& len(verdict.Same) < 2 {`,
		becomes: `&& false {`,
	},
	{
		name: "a report to an instance that follows is not heard", file: "management/node/monitors.go",
		pkg: "management/node", test: "TestReportToAnyInstance",
		is:      `		m.silent[name] = 0`,
		becomes: ``,
	},
	{
		name: "a lost node is replaced before it is off", file: "management/policy/fence.go",
		pkg: "management/policy", test: "TestFence",
		is:      `	if r.Fence == "" {`,
		becomes: `	if true || r.Fence == "" {`,
	},
	{
		name: "a BMC that refused the login is asked again", file: "inventory/bmc/bmc.go",
		pkg: "inventory/bmc", test: "TestRefusedOnce",
		is:      `if slices.Contains(g.refused, login) {`,
		becomes: `if false {`,
	},
	{
		name: "the checksum of a backup is not checked", file: "management/backup/backup.go",
		pkg: "management/backup", test: "TestFlipped",
		is:      `	case string(found) != t.Checksum:`,
		becomes: `	case found == nil:`,
	},
	{
		name: "a backup reads each page at its own revision", file: "management/etcd/backup.go",
		pkg: "management/etcd", test: "TestBackupIsOneRevision",
		is:      `clientv3.WithRange(end), clientv3.WithRev(h.Revision),`,
		becomes: `clientv3.WithRange(end),`,
	},
	{
		name: "a restore revives an invitation", file: "management/etcd/restore.go",
		pkg: "management/etcd", test: "TestRestoredTokens",
		is:      `case isInvitation(key, value):`,
		becomes: `case false:`,
	},
	{
		name: "a change does not store the result of its key", file: "management/etcd/audit.go",
		pkg: "management/daemon", test: "TestRepeatedChangeUndoesNothing",
		is:      `s.addResult(&ops, key, access.Result{})`,
		becomes: `s.addResult(&ops, nil, access.Result{})`,
	},
	{
		name: "a run outlives the ownership of its job", file: "management/step/playbook/playbook.go",
		pkg: "management/step/playbook", test: "TestBoundLease",
		is:      `run.Bound && !owned.IsZero()`,
		becomes: `false && !owned.IsZero()`,
	},
	{
		name: "a lost run is begun again for ever", file: "management/job/step.go",
		pkg: "management/engine", test: "TestLostRun",
		is:      `if trailing++; trailing == beginAttempts || `,
		becomes: `if trailing++; false || `,
	},
	{
		name: "the troubles of the manager are forgotten", file: "management/engine/step.go",
		pkg: "management/engine", test: "TestTroublesOfAFailedRun",
		is:      `run.Troubles = e.troublesOf(*run)`,
		becomes: `_ = e.troublesOf(*run)`,
	},
	{
		name: "a wait has no end", file: "management/explain/wait.go",
		pkg: "management/explain", test: "TestWait",
		is:      `case other.Due().After(w.Until):`,
		becomes: `case false:`,
	},
	{
		name: "changes are taken without room", file: "management/server/admit.go",
		pkg: "management/server", test: "TestNoRoom",
		is:      `if rt.NeedsRoom() && s.Room != nil {`,
		becomes: `if false && s.Room != nil {`,
	},
	{
		name: "a half restored store is started", file: "inventory/etcd/client.go",
		pkg: "management/daemon", test: "TestRestoreExisting",
		is:      `	case Readable(stored), c.any:`,
		becomes: `	case Readable(stored), c.any, stored == Restoring:`,
	},
	{
		name: "a restored job runs on", file: "management/engine/interrupt.go",
		pkg: "management/daemon", test: "TestRestore$",
		is:      `		case queued.Status == job.Running:`,
		becomes: `		case false:`,
	},
	{
		name: "an invitation is good twice", file: "management/access/tokens.go",
		pkg: "management/daemon", test: "TestJoin$",
		is: `	record.Remove(tx, &TokenKind, id)

	return nil
}

// Authenticate`,
		becomes: `	return nil
}

// Authenticate`,
	},
	{
		name: "a voter without its data joins again", file: "inventory/etcd/first.go",
		pkg: "inventory/etcd", test: "TestLostData",
		is:      `case list[at].Name != "" || !list[at].IsLearner:`,
		becomes: `case false:`,
	},
	{
		name: "a member without its data begins anew", file: "inventory/etcd/open.go",
		pkg: "inventory/etcd", test: "TestLostData",
		is:      `!joins && (several || len(`,
		becomes: `!joins && (len(`,
	},
	{
		name: "one of several starts with a copy of its data", file: "management/instance/own.go",
		pkg: "management/instance", test: "TestPrepareRefuses",
		is:      `case moved && len(m.Endpoints) > 0:`,
		becomes: `case moved && m.Name == "":`,
	},
	{
		name: "a write drops the fields of a newer version", file: "management/etcd/unknown.go",
		pkg: "management/etcd", test: "TestUnknownFieldsStay",
		is:      `if u := v.unknown[key]; op.IsPut()`,
		becomes: `if u := v.unknown[key]; false && op.IsPut()`,
	},
	{
		name: "the data change beside a former version", file: "management/etcd/former.go",
		pkg: "management/etcd", test: "TestEnterRaisesSchema",
		is:      `if p.Schema != etcd.Schema {`,
		becomes: `if p.Schema == "x" {`,
	},
	{
		name: "the data change while an instance is down", file: "management/etcd/former.go",
		pkg: "management/etcd", test: "TestEnterRaisesSchema",
		is:      `if id != n.self.ID && f.others[id] == nil {`,
		becomes: `if false {`,
	},
}
