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
		is:      `look || raise`,
		becomes: "refuse() { :; }\nend() { :; }\nlook || raise",
	},
	{
		name: "a lower token is raised", file: "ansible/plugins/connection/fence.sh",
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
		name: "an instance goes on alone beside another one", file: "management/survivor/survivor.go",
		pkg: "management/survivor", test: "TestWatch",
		is:      `return alive[etcd.AddrOf(u)]`,
		becomes: `return alive[etcd.AddrOf(u).Prev()]`,
	},
	{
		name: "a recovery forgets the end of the log", file: "inventory/etcd/recover.go",
		pkg: "inventory/etcd", test: "TestRecover",
		is:      `needsOthers, err := o.replay(ctx)`,
		becomes: `needsOthers, err := true, error(nil)`,
	},
	{
		name: "one that got its vote a moment ago is no other", file: "inventory/etcd/recover.go",
		pkg: "inventory/etcd", test: "TestRecover",
		is:      `len(m.Others()) == 0 && !Recovering(o.Dir)`,
		becomes: `len(m.Endpoints) == 0 && !Recovering(o.Dir)`,
	},
	{
		name: "a recovery founds a new log where a majority is", file: "inventory/etcd/recover.go",
		pkg: "inventory/etcd", test: "TestRecoverLearner",
		is:      `if err == nil && !needsOthers`,
		becomes: `if err == nil && needsOthers && ctx == nil`,
	},
	{
		name: "the earlier side of a split goes on", file: "management/state/epoch.go",
		pkg: "management/survivor", test: "TestLater",
		is:      `return e.Number > other.Number`,
		becomes: `return e.Number < other.Number`,
	},
	{
		name: "what the other side of a split accepted is not exported", file: "management/survivor/export.go",
		pkg: "management/daemon", test: "TestSplit",
		is:      `if e.Seq <= last {`,
		becomes: `if e.Seq > last {`,
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
		is:      `case moved && len(m.Others()) > 0:`,
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
	{
		name: "content of an image takes the last room", file: "configuration/image/store.go",
		pkg: "configuration/image", test: "TestFullDisk",
		is:      `if free-more < Reserve {`,
		becomes: `if free < 0 {`,
	},
	{
		name: "content of an image is not compared with its digest", file: "configuration/image/store.go",
		pkg: "configuration/image", test: "TestWriteRefuses",
		is:      `p.sum.Sum(nil)); got != digest {`,
		becomes: `p.sum.Sum(nil)); got == "" {`,
	},
	{
		name: "two write the same content of an image", file: "configuration/image/store.go",
		pkg: "configuration/image", test: "TestOneWriter",
		is:      `unix.LOCK_EX|unix.LOCK_NB`,
		becomes: `unix.LOCK_SH|unix.LOCK_NB`,
	},
	{
		name: "an upload goes on at any byte", file: "configuration/image/store.go",
		pkg: "configuration/image", test: "TestWriteResumes",
		is:      `if offset != p.has {`,
		becomes: `if offset > p.has {`,
	},
	{
		name: "a qcow2 reads another file of the host", file: "configuration/image/detect.go",
		pkg: "configuration/image", test: "TestDetectRefuses",
		is:      `if binary.BigEndian.Uint64(head[8:]) != 0 {`,
		becomes: `if binary.BigEndian.Uint64(head[8:]) == 1<<63 {`,
	},
	{
		name: "a machine boots from the network that nobody asked to", file: "configuration/image/netboot/loader.go",
		pkg: "configuration/image/netboot", test: "TestBootFile",
		is:      `case !m.Boots:`,
		becomes: `case !m.Boots && q.Loader == IPXE:`,
	},
	{
		name: "an operating system is given a file to boot", file: "configuration/image/netboot/dhcp/message.go",
		pkg: "configuration/image/netboot/dhcp", test: "TestLoader",
		is: `return ""
	}

	for _, arch`,
		becomes: `return netboot.Unknown
	}

	for _, arch`,
	},
	{
		name: "files of a boot are given without its token", file: "management/boot/web.go", pkg: "management/boot",
		test:    "TestBoot",
		is:      `if !b.Serves() || !b.Has(`,
		becomes: `if !b.Serves() || false && !b.Has(`,
	},
	{
		name: "a boot is served after its end",
		file: "management/boot/order.go",
		pkg:  "management/boot",
		test: "TestBoot",
		is: `last.Ended == nil {
		return last`,
		becomes: `last.Ended == nil || b.Facts == nil {
		return last`,
	},
	{
		name: "a report is taken without the token", file: "management/boot/order.go", pkg: "management/boot",
		test:    "TestBoot",
		is:      `if !b.Has(token) {`,
		becomes: `if token != "" && !b.Has(token) {`,
	},
	{
		name: "the token of a boot is good for the next one", file: "management/boot/order.go", pkg: "management/boot",
		test:    "TestBootOfAnotherJob",
		is:      `{secretToken: rand.Text()}`,
		becomes: `{secretToken: rand.Text()[:0] + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}`,
	},
	{
		name: "the boots of a machine grow without a bound", file: "management/boot/order.go", pkg: "management/boot",
		test:    "TestBootEvents",
		is:      `if len(b.Events) >= keptEvents {`,
		becomes: `if len(b.Events) >= 9*keptEvents {`,
	},
	{
		name: "a machine starts again whose job goes on elsewhere", file: "management/step/netboot/netboot.go",
		pkg: "management/step/inspect", test: "TestBootAndLook",
		is:      `if begun.Started == nil {`,
		becomes: `if begun.Started == nil || m.bmc != nil {`,
	},
	{
		name: "an instance that stops ends the boots of its jobs", file: "management/step/netboot/netboot.go",
		pkg: "management/step/inspect", test: "TestBootGoesOn",
		is:      `if ctx.Err() != nil && step.Stopped(ctx) == "" {`,
		becomes: `if false && step.Stopped(ctx) == "" {`,
	},
	{
		name: "a machine that was off stays on", file: "management/step/netboot/netboot.go",
		pkg: "management/step/inspect", test: "TestBootAndLook",
		is:      `is != bmc.Off`,
		becomes: `is != ""`,
	},
	{
		name: "a machine that is heard of is started again", file: "management/step/netboot/netboot.go",
		pkg: "management/step/inspect", test: "TestBootAndLook",
		is:      `return !Heard(b.Events) ||`,
		becomes: `return true ||`,
	},
	{
		name: "what a machine asked is lost when the manager stops", file: "management/boot/serve.go",
		pkg: "management/daemon", test: "TestBootInspect",
		is:      `err := s.recordEvents(ending); err != nil`,
		becomes: `err := ending.Err(); err != nil`,
	},
	{
		name: "an interface that is made anew is deaf", file: "management/boot/serve.go", pkg: "management/boot",
		test:    "TestInterfaceAnew",
		is:      `addr == is.addr && index == is.index`,
		becomes: `addr == is.addr && index > 0`,
	},
	{
		name: "a machine is served whose job has ended", file: "management/boot/order.go", pkg: "management/boot",
		test:    "TestBootGone",
		is:      `return j == nil || j.Status.Ended()`,
		becomes: `return j == nil`,
	},
	{
		name: "a boot is served after its report", file: "management/boot/order.go", pkg: "management/boot",
		test:    "TestBoot",
		is:      `open != nil && len(b.Facts) == 0 &&`,
		becomes: `open != nil &&`,
	},
	{
		name: "a machine gets the order for another port", file: "management/boot/web.go", pkg: "management/boot",
		test:    "TestBootPort",
		is:      `fits(addrOf(a.Addr))`,
		becomes: `fits != nil`,
	},
	{
		name:    "a boot ends before its facts are kept",
		file:    "management/step/inspect/inspect.go",
		pkg:     "management/step/inspect",
		test:    "TestBootAndLook",
		is:      "err := x.inspect(ctx, s, out, node)\n\t\tx.o.Booter.End(ctx, s, node, \"the facts of the machine have come\", err)",
		becomes: "x.o.Booter.End(ctx, s, node, \"the facts of the machine have come\", nil)\n\t\terr := x.inspect(ctx, s, out, node)",
	},
	{
		name: "what was heard of machines is lost while the store is away", file: "management/boot/order.go",
		pkg: "management/boot", test: "TestBootTakenOver",
		is: `			s.hearAgain(all)
`,
		becomes: ``,
	},
	{
		name: "the next owner of a job opens its boot anew", file: "management/boot/order.go", pkg: "management/boot",
		test:    "TestBootTakenOver",
		is:      `.Open(); open != nil && open.Job == o.Job {`,
		becomes: `.Open(); open != nil && open.Job == "" {`,
	},
	{
		name:    "two nodes get one address",
		file:    "management/boot/boot.go",
		pkg:     "management/boot",
		test:    "TestAllocate",
		is:      `taken[addrOf(a.Addr)] = true`,
		becomes: `taken[addrOf(a.Addr)] = a.Addr == ""`,
	},
	{
		name: "an address that somebody answers at is given out", file: "management/boot/address.go",
		pkg: "management/boot", test: "TestConflict",
		is:      `if mac == "" || slices`,
		becomes: `if mac != "" || slices`,
	},
	{
		name: "a pool that is exhausted takes an address of a node", file: "management/boot/boot.go",
		pkg: "management/boot", test: "TestExhausted",
		is:      `if p.gives(a, "") && len(p.users[a]) == 0 {`,
		becomes: `if p.gives(a, "") {`,
	},
	{
		name: "some machines of a call get an address, and others none", file: "management/boot/address.go",
		pkg: "management/boot", test: "TestMany",
		is:      `len(nodes) > batch {`,
		becomes: `len(nodes) > 9*batch {`,
	},
	{
		name: "a machine declines the address of another one", file: "management/boot/address.go",
		pkg: "management/boot", test: "TestConflict",
		is:      `case was.MAC != mac || was.Conflict`,
		becomes: `case was.Conflict`,
	},
	{
		name: "a machine declines addresses that it has not", file: "management/boot/address.go",
		pkg: "management/boot", test: "TestConflict",
		is:      `case was == nil && mac != "":`,
		becomes: `case was == nil && mac == "-":`,
	},
	{
		name: "a machine that runs gets another address", file: "management/boot/boot.go",
		pkg: "management/boot", test: "TestOwnAddress",
		is:      `if inside(a) && p.gives(a, mac) && slices`,
		becomes: `if !inside(a) && p.gives(a, mac) && slices`,
	},
	{
		name: "an address is given where nobody can be asked", file: "management/boot/boot.go",
		pkg: "management/boot", test: "TestNetworks",
		is:      `return !p.taken[a] && canAsk`,
		becomes: `return !p.taken[a] || canAsk`,
	},
	{
		name: "an address is given while the lease of another machine runs", file: "management/boot/boot.go",
		pkg: "management/boot", test: "TestHeld",
		is:      `held && former != mac {`,
		becomes: `held && former == "" {`,
	},
	{
		name: "a freed address is held for ever", file: "management/boot/address.go",
		pkg: "management/boot", test: "TestHeld",
		is:      `isHeld(a) && !time.Now().Before(a.Until)`,
		becomes: `isHeld(a) && a.Until.IsZero()`,
	},
	{
		name: "a merge loses a reservation", file: "management/boot/address.go",
		pkg: "management/boot", test: "TestMerged",
		is:      `next.Node = ownerOf(tx, a.MAC)`,
		becomes: `next.Node = ""`,
	},
	{
		name: "a stale entry of the kernel is taken for a host", file: "management/boot/probe.go",
		pkg: "management/boot", test: "TestSettled",
		is:      `case n.state == reachable:`,
		becomes: `case n.state != delay && n.state != probing:`,
	},
	{
		name: "a router with proxy ARP uses up the pool", file: "management/boot/address.go",
		pkg: "management/boot", test: "TestProxy",
		is:      `if n > 1 && 2*n > total {`,
		becomes: `if n > total {`,
	},
	{
		name: "a machine uses up the pool by declining", file: "management/boot/address.go",
		pkg: "management/boot", test: "TestDeclines",
		is:      `case len(declinedBy(tx)[mac]) >= maxDeclined:`,
		becomes: `case len(declinedBy(tx)[mac]) > 9*maxDeclined:`,
	},
	{
		name: "a conflict never ends", file: "management/boot/address.go",
		pkg: "management/boot", test: "TestRecheck",
		is:      `!checked && now.Sub(a.Since) >= conflictTime`,
		becomes: `checked && now.Sub(a.Since) >= conflictTime`,
	},
	{
		name: "a reservation is given without a probe", file: "management/boot/address.go",
		pkg: "management/boot", test: "TestReservedProbe",
		is:      `next.Unprobed = was == nil || isHeld(was) || was.MAC != next.MAC`,
		becomes: `next.Unprobed = was != nil && (isHeld(was) || was.MAC != next.MAC)`,
	},
	{
		name: "nobody sees that a node has taken an address that was given", file: "management/boot/serve.go",
		pkg: "management/boot", test: "TestCollisions",
		is:      `			if name != a.Node {`,
		becomes: `			if name == a.Node {`,
	},
	{
		name: "an instance without the store gives addresses", file: "management/boot/serve.go",
		pkg: "management/boot", test: "TestStale",
		is:      `reply.Type != netboot.Ack && s.Stale() {`,
		becomes: `reply.Type == netboot.Nak && s.Stale() {`,
	},
	{
		name: "an unknown machine gets an address",
		file: "configuration/image/netboot/answer.go",
		pkg:  "configuration/image/netboot",
		test: "TestAnswer",
		is:   "case m == nil:\n",
		becomes: "case m == nil && q.Type == Discover:\n\t\treturn Reply{Type: Offer, Addr: s.Server.Addr().Next()}, " +
			"\"new\"\n\tcase m == nil:\n",
	},
	{
		name: "the broadcast address is given to a machine", file: "configuration/image/netboot/answer.go",
		pkg: "configuration/image/netboot", test: "TestIsHost",
		is:      `addr != network.Masked().Addr() && addr`,
		becomes: `addr != network.Masked().Addr() || addr`,
	},
	{
		name: "a gateway of another network is sent", file: "configuration/image/netboot/dhcp/message.go",
		pkg: "configuration/image/netboot/dhcp", test: "TestGateway",
		is:      `if s.Server.Contains(s.Gateway) {`,
		becomes: `if s.Gateway.IsValid() {`,
	},
	{
		name: "one MAC of two nodes gets an answer", file: "configuration/image/netboot/answer.go",
		pkg: "configuration/image/netboot", test: "TestTwins",
		is:      `case m.Twin != "":`,
		becomes: `case m.Twin != "" && q.Type != Discover:`,
	},
	{
		name: "DHCP answers on another interface", file: "configuration/image/netboot/dhcp/server.go",
		pkg: "configuration/image/netboot/dhcp", test: "TestInterface",
		is:      `unix.BindToDevice(fd, on),`,
		becomes: `unix.BindToDevice(fd, ""),`,
	},
	{
		name: "queries wait without a bound", file: "configuration/image/netboot/dhcp/server.go",
		pkg: "configuration/image/netboot/dhcp", test: "TestFull",
		is:      `			s.dropped.Add(1)`,
		becomes: `			_ = n`,
	},
	{
		name: "TFTP answers on another interface", file: "configuration/image/netboot/tftp/server.go",
		pkg: "configuration/image/netboot/tftp", test: "TestInterface",
		is:      `unix.BindToDevice(int(fd), s.Interface)`,
		becomes: `unix.BindToDevice(int(fd), "lo")`,
	},
	{
		name: "a transfer by TFTP is bound to no interface", file: "configuration/image/netboot/tftp/server.go",
		pkg: "configuration/image/netboot/tftp", test: "TestInterface",
		is:      `0)), Control: s.bind}`,
		becomes: `0))}`,
	},
	{
		name: "a name leaves the files of TFTP", file: "configuration/image/netboot/tftp/packet.go",
		pkg: "configuration/image/netboot/tftp", test: "TestRefused|TestNames",
		is:      `fs.ValidPath(name) && name`,
		becomes: `(fs.ValidPath(name) || name != "") && name`,
	},
	{
		name: "a silent machine gets packets for ever", file: "configuration/image/netboot/tftp/transfer.go",
		pkg: "configuration/image/netboot/tftp", test: "TestStalled",
		is:      `for range attempts {`,
		becomes: `for {`,
	},
	{
		name: "a repeated acknowledgement is taken for the next", file: "configuration/image/netboot/tftp/packet.go",
		pkg: "configuration/image/netboot/tftp", test: "TestLossy",
		is:      `return number == block, nil`,
		becomes: `return true, nil`,
	},
	{
		name: "transfers by TFTP have no bound", file: "configuration/image/netboot/tftp/server.go",
		pkg: "configuration/image/netboot/tftp", test: "TestBound",
		is:      `s.count >= maxTransfers ||`,
		becomes: `s.count >= 2*maxTransfers ||`,
	},
	{
		name: "one machine takes all transfers", file: "configuration/image/netboot/tftp/server.go",
		pkg: "configuration/image/netboot/tftp", test: "TestBound",
		is:      ` || s.transfers[from] >= maxPerMachine {`,
		becomes: ` {`,
	},
	{
		name: "a silent machine keeps a server from its end", file: "configuration/image/netboot/tftp/server.go",
		pkg: "configuration/image/netboot/tftp", test: "TestStop",
		is:      "	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()\n",
		becomes: "",
	},
	{
		name: "a part of a file is taken for the whole", file: "configuration/image/netboot/tftp/transfer.go",
		pkg: "configuration/image/netboot/tftp", test: "TestChanged",
		is:      `case last && read != size || read > size:`,
		becomes: `case read > size:`,
	},
	{
		name: "an image in use is removed", file: "management/image/image.go",
		pkg: "management/image", test: "TestDelete",
		is:      `len(users) > 0 {`,
		becomes: `len(users) > 9 {`,
	},
	{
		name: "content stays damaged", file: "management/image/image.go",
		pkg: "management/image", test: "TestVerify",
		is:      `damaged = append(damaged, is)`,
		becomes: `_ = is`,
	},
	{
		name: "a small image is read without an end", file: "configuration/image/detect.go",
		pkg: "configuration/image", test: "TestDetectReadsLittle",
		is:      `min(size, maxRead)`,
		becomes: `size`,
	},
	{
		name: "content that cannot be read is damaged", file: "configuration/image/store.go",
		pkg: "configuration/image", test: "TestVerifyUnreadable",
		is:      "if !errors.Is(err, io.EOF) {\n\t\treturn e, false, s.unreadable(err)",
		becomes: "if !errors.Is(err, io.EOF) {\n\t\treturn e, false, nil",
	},
	{
		name: "a file system without locks is another writer", file: "configuration/image/store.go",
		pkg: "configuration/image", test: "TestLock",
		is:      `case errors.Is(err, unix.EWOULDBLOCK):`,
		becomes: `case err != nil:`,
	},
	{
		name: "images take the folder of another manager", file: "configuration/image/store.go",
		pkg: "configuration/image", test: "TestOwned",
		is:      `case err == nil && owner == self:`,
		becomes: `case err == nil:`,
	},
	{
		name: "images take a folder with other files", file: "configuration/image/store.go",
		pkg: "configuration/image", test: "TestOwned",
		is:      `if name := f.Name(); name != "lost+found"`,
		becomes: `if name := f.Name(); name == ""`,
	},
	{
		name: "what has come of an image is hashed again", file: "configuration/image/store.go",
		pkg: "configuration/image", test: "TestWriteKeepsHash",
		is:      `err == nil && n >= 0 && n <= p.has &&`,
		becomes: `err == nil && n == 1 &&`,
	},
	{
		name: "a kept hash is of more than has come", file: "configuration/image/store.go",
		pkg: "configuration/image", test: "TestWriteKeepsHash",
		is:      `n >= 0 && n <= p.has`,
		becomes: `n > 0`,
	},
	{
		name: "a hash is kept only after an error", file: "configuration/image/store.go",
		pkg: "configuration/image", test: "TestWriteKeepsHash",
		is:      `if p.has-p.kept < keepEvery {`,
		becomes: `if p.has >= 0 {`,
	},
	{
		name: "content is removed that has come since", file: "configuration/image/store.go",
		pkg: "configuration/image", test: "TestRemoveChanged",
		is:      `if err == nil && e.isOf(now) {`,
		becomes: `if err == nil && now != nil {`,
	},
	{
		name: "content is removed that a new image counts on", file: "management/image/image.go",
		pkg: "management/image", test: "TestTidyNotBetween",
		is:      `turn: make(chan struct{}, 1),`,
		becomes: `turn: make(chan struct{}, 9),`,
	},
	{
		name: "content of no image is looked at in each round", file: "management/image/image.go",
		pkg: "management/image", test: "TestDetectOnce",
		is:      `if t, ok := s.told[f.Digest]; ok &&`,
		becomes: `if t, ok := s.told[f.Digest]; false && ok &&`,
	},
	{
		name: "tidying removes what an image needs", file: "management/image/tidy.go",
		pkg: "management/image", test: "TestTidy$",
		is:      `needed[f.Digest] = true`,
		becomes: `needed[f.Digest] = false`,
	},
	{
		name: "incomplete content of an image goes at once", file: "management/image/tidy.go",
		pkg: "management/image", test: "TestTidy$",
		is:      `at := e.Changed.Add(KeepParts)`,
		becomes: `at := e.Changed.Add(KeepFor)`,
	},
	{
		name: "what somebody removed by hand still counts", file: "management/image/tidy.go",
		pkg: "management/image", test: "TestTidy$",
		is:      `case recorded && !complete:`,
		becomes: `case recorded && complete && false:`,
	},
	{
		name: "instances that left still have content", file: "management/image/tidy.go",
		pkg: "management/image", test: "TestTidy$",
		is:      `gone = gone || slices`,
		becomes: `gone = false && slices`,
	},
	{
		name: "an option of mmdebstrap is a package", file: "configuration/image/build/build.go",
		pkg: "configuration/image/build", test: "TestParsePackages|TestCheckRefuses",
		is:      "packageName = regexp.MustCompile(`^[a-z0-9][",
		becomes: "packageName = regexp.MustCompile(`^[-a-z0-9][",
	},
	{
		name: "an image has a program for other processors", file: "configuration/image/build/build.go",
		pkg: "configuration/image/build", test: "TestCheckRefuses",
		is:      `program.Machine != want {`,
		becomes: `program.Machine == want && want == 0 {`,
	},
	{
		name: "a missing tool is not named", file: "configuration/image/build/build.go",
		pkg: "configuration/image/build", test: "TestCheckHost",
		is:      `if len(missing) > 0 {`,
		becomes: `if len(missing) > 99 {`,
	},
	{
		name: "the log of a build has no bound", file: "configuration/image/build/build.go",
		pkg: "configuration/image/build", test: "TestTail",
		is:      `t.Next(max(0, t.Len()-logEnd))`,
		becomes: `t.Next(0)`,
	},
	{
		name: "a failed build leaves its folder", file: "configuration/image/build/build.go",
		pkg: "configuration/image/build", test: "TestLeavesNothing",
		is:      "o, folder, say); err != nil {\n\t\timage.Remove()",
		becomes: "o, folder, say); err != nil {",
	},
	{
		name: "an image is saved by an absolute path only", file: "configuration/image/build/build.go",
		pkg: "configuration/image/build", test: "TestLeavesNothing",
		is:      `os.MkdirTemp(parent, `,
		becomes: `os.MkdirTemp(o.Folder+parent[:0], `,
	},
	{
		name: "an interrupted build leaves its loop device", file: "configuration/image/build/build.sh",
		pkg: "configuration/image/build", test: "TestLeavesNothing",
		is:      "losetup --detach \"$LOOP\"",
		becomes: "true",
	},
	{
		name: "an image replaces a file", file: "configuration/image/build/build.go",
		pkg: "configuration/image/build", test: "TestSave",
		is:      `err := os.Link(i.Path, file)`,
		becomes: `err := os.Rename(i.Path, file)`,
	},
	{
		name: "what is fetched is redirected to http", file: "clusterctl/imagesource.go",
		pkg: "clusterctl", test: "TestFetchRedirect",
		is:      `case before[len(before)-1].URL.Scheme == "https" &&`,
		becomes: `case len(before) == 99 &&`,
	},
	{
		name: "a message has the token of a URL", file: "clusterctl/imagesource.go",
		pkg: "clusterctl", test: "TestFetchRedirect",
		is:      `err = u.Err // without the URL`,
		becomes: `_ = u`,
	},
	{
		name: "an interrupted fetch is a failure", file: "clusterctl/imagesource.go",
		pkg: "clusterctl", test: "TestFetchInterrupted",
		is:      `exit.Errorf(exit.Interrupted, "interrupted")`,
		becomes: `exit.Errorf(exit.Failed, "interrupted")`,
	},
	{
		name: "what was fetched stays for ever", file: "clusterctl/imagesource.go",
		pkg: "clusterctl", test: "TestCopies",
		is:      `time.Since(info.ModTime()) < copiesFor`,
		becomes: `time.Since(info.ModTime()) > 0`,
	},
	{
		name: "what was fetched and is no image stays", file: "clusterctl/imagesource.go",
		pkg: "clusterctl", test: "TestCopies",
		is:      "s.forget()\n\t\ts.close()",
		becomes: "s.close()",
	},
	{
		name: "an instance that lost its copy gets none", file: "clusterctl/image.go",
		pkg: "clusterctl", test: "TestAddRepairs",
		is:      `len(f.Instances) > 0 && f.Received == f.Size`,
		becomes: `len(f.Instances) > 0`,
	},
	{
		name: "a kernel package that is none is taken", file: "management/image/image.go",
		pkg: "management/image", test: "TestKernel",
		is:      `err = kernel.Check(content, f.Size)`,
		becomes: `_ = kernel.Check`,
	},
	{
		name: "a kernel without its modules is taken", file: "configuration/image/kernel/unpack.go",
		pkg: "configuration/image/kernel", test: "TestCheck",
		is:      "case hasImage && hasModules:\n\t\treturn nil",
		becomes: "case hasImage:\n\t\treturn nil",
	},
	{
		name: "a kernel of another architecture is taken", file: "management/image/check.go",
		pkg: "management/image", test: "TestKernel",
		is:      `found.Arch != arch`,
		becomes: `found.Arch == ""`,
	},
	{
		name: "a module without its dependencies is loaded", file: "configuration/image/kernel/modinfo.go",
		pkg: "configuration/image/kernel", test: "TestIndex",
		is:      `if err := c.add(first); err != nil {`,
		becomes: `if err := error(nil); err != nil {`,
	},
	{
		name: "a package lacks a dependency", file: "configuration/image/kernel/modinfo.go",
		pkg: "configuration/image/kernel", test: "TestUnpackRefuses",
		is:      "case first == nil:\n",
		becomes: "case first == nil:\n\t\t\tcontinue\n\t\tcase first == nil:\n",
	},
	{
		name: "a package has a path that leads out", file: "configuration/image/kernel/unpack.go",
		pkg: "configuration/image/kernel", test: "TestUnpackRefuses",
		is:      `if !fs.ValidPath(name) {`,
		becomes: `if !fs.ValidPath(name) && name == "" {`,
	},
	{
		name: "a module unpacks without an end", file: "configuration/image/kernel/unpack.go",
		pkg: "configuration/image/kernel", test: "TestUnpackRefuses",
		is:      `bufio.NewReader(content), maxModule, dataMemory)`,
		becomes: `bufio.NewReader(content), maxData, dataMemory)`,
	},
	{
		name: "a wrong console ends the boot environment", file: "configuration/image/kernel/cpio.go",
		pkg: "configuration/image/kernel", test: "TestProgram",
		is:      `a.entry("dev/null", modeCharacter|0o666, device{1, 3}, nil),`,
		becomes: ``,
	},
	{
		name: "a part of the initrd is not aligned", file: "configuration/image/kernel/cpio.go",
		pkg: "configuration/image/kernel", test: "TestJoin",
		is:      `if err := out.pad(alignment); err != nil {`,
		becomes: `if err := out.pad(1); err != nil {`,
	},
	{
		name: "content that the disk has not taken counts as come", file: "configuration/image/store.go",
		pkg: "configuration/image", test: "TestWriteLoses",
		is:      `return errors.Join(err, p.Truncate(p.kept))`,
		becomes: `return err`,
	},
	{
		name: "a kernel boots with the modules of another one", file: "clusterctl/bootfiles.go",
		pkg: "clusterctl", test: "TestBootFilesTogether",
		is:      `if parts[i], err = os.CreateTemp(folder, "."+name+".*"); err != nil {`,
		becomes: `if parts[i], err = os.Create(filepath.Join(folder, name)); err != nil {`,
	},
	{
		name: "half of the files of an environment is served", file: "configuration/image/derived.go",
		pkg: "configuration/image", test: "TestDeriveAllOrNothing",
		is:      `s.writeDerived(part, names,`,
		becomes: `s.writeDerived(func() string { _ = os.Rename(part, path); return path }(), names,`,
	},
	{
		name: "derived files are served that the disk has not taken", file: "configuration/image/derived.go",
		pkg: "configuration/image", test: "TestDeriveAllOrNothing",
		is:      `if err := flush(f); err != nil {`,
		becomes: `if err := flush(f); err != nil && f == nil {`,
	},
	{
		name: "derived files of a former program are served", file: "configuration/image/derived.go",
		pkg: "configuration/image", test: "TestDerive$",
		is:      `return path + "." + version, err`,
		becomes: `return path + ".00000000", err`,
	},
	{
		name: "derived files of a former program stay for ever", file: "configuration/image/derived.go",
		pkg: "configuration/image", test: "TestTidyDerived",
		is:      `return !complete || !slices`,
		becomes: `return !complete && !slices`,
	},
	{
		name: "derived files outlive their content", file: "configuration/image/store.go",
		pkg: "configuration/image", test: "TestDeriveRemoved",
		is:      `err = errors.Join(err, s.removeDerivedOf(e.Digest))`,
		becomes: `_ = s.removeDerivedOf`,
	},
	{
		name: "two make one boot environment", file: "management/image/image.go",
		pkg: "management/image", test: "TestEnvironmentAtOnce",
		is:      `making: make(chan struct{}, 1),`,
		becomes: `making: make(chan struct{}, 9),`,
	},
	{
		name: "the oldest kernel is booted", file: "management/image/environment.go",
		pkg: "management/image", test: "TestEnvironmentFor",
		is:      `b.Created.Compare(a.Created)`,
		becomes: `a.Created.Compare(b.Created)`,
	},
	{
		name: "a kernel is booted that has not come", file: "management/image/environment.go",
		pkg: "management/image", test: "TestEnvironmentFor",
		is:      `incomplete(a)-incomplete(b), `,
		becomes: `0*incomplete(a), `,
	},
	{
		name: "a package without a kernel is unpacked for ever", file: "management/image/environment.go",
		pkg: "management/image", test: "TestEnvironmentUnfit",
		is:      `s.unfit.Store(key, err)`,
		becomes: `_ = key`,
	},
	{
		name: "files are derived from content that was removed", file: "configuration/image/derived.go",
		pkg: "configuration/image", test: "TestDeriveRemoved",
		is:      `if _, complete := s.Received(digest); !complete {`,
		becomes: `if _, complete := s.Received(digest); !complete && path == "" {`,
	},
	{
		name: "what a module says about itself is not bounded", file: "configuration/image/kernel/unpack.go",
		pkg: "configuration/image/kernel", test: "TestUnpackRefuses",
		is:      `r.said += m.said`,
		becomes: `r.said += len(m.Name)`,
	},
	{
		name: "a later block of xz takes any memory", file: "configuration/image/compression/compression.go",
		pkg: "configuration/image/compression", test: "TestOpenRefuses",
		is:      `err != nil || window > x.memory {`,
		becomes: `err != nil || window > x.memory && x.blocks == 1 {`,
	},
	{
		name: "xz takes more memory than its caller has", file: "configuration/image/compression/compression.go",
		pkg: "configuration/image/compression", test: "TestOpenMemory",
		is:      `x, err := newXZ(r, memory, memory)`,
		becomes: `x, err := newXZ(r, maxWindow, maxWindow)`,
	},
	{
		name: "blocks of xz have no end", file: "configuration/image/compression/compression.go",
		pkg: "configuration/image/compression", test: "TestOpenRefuses",
		is:      `x.blocks > maxBlocks {`,
		becomes: `x.blocks > 1000*maxBlocks {`,
	},
	{
		name: "other content than recorded is booted", file: "clusterctl/bootfiles.go",
		pkg: "clusterctl", test: "TestBootFilesRefuses",
		is:      `!= f.Digest {`,
		becomes: `== "" {`,
	},
	{
		name: "a module is loaded without its dependencies", file: "configuration/image/installer/modules.go",
		pkg: "configuration/image/installer", test: "TestMissingDependency",
		is:      `case r != loaded:`,
		becomes: `case r == untried:`,
	},
	{
		name: "a module whose dependency is missing is loaded", file: "configuration/image/installer/modules.go",
		pkg: "configuration/image/installer", test: "TestMissingDependency",
		is:      `return m.fail(module, needed, "it needs %s, which the environment lacks", name)`,
		becomes: `continue`,
	},
	{
		name: "a wish costs a module that is needed", file: "configuration/image/installer/modules.go",
		pkg: "configuration/image/installer", test: "TestWishes",
		is:      `case r == untried && !needed:`,
		becomes: `case false:`,
	},
	{
		name: "a wish is a dependency", file: "configuration/image/kernel/modinfo.go",
		pkg: "configuration/image/kernel", test: "TestWishes",
		is:      `depends := distinct(m.Depends)`,
		becomes: `depends := distinct(slices.Concat(m.Depends, c.providers(m.pre)))`,
	},
	{
		name:    "a device with its modalias in uevent alone gets no module",
		file:    "configuration/image/installer/modules.go",
		pkg:     "configuration/image/installer",
		test:    "TestFindDevices",
		is:      `b, _ := fs.ReadFile(sys, path.Join(folder, "uevent"))`,
		becomes: `var b []byte`,
	},
	{
		name: "a companion of a module is not loaded", file: "configuration/image/kernel/modinfo.go",
		pkg: "configuration/image/kernel", test: "TestWishes",
		is:      `c.providers(slices.Concat(m.post, postAsked[m.Name]))`,
		becomes: `c.providers(m.post)`,
	},
	{
		name: "a module that is stuck hangs the machine", file: "configuration/image/installer/modules.go",
		pkg: "configuration/image/installer", test: "TestStuck",
		is:      `case <-time.After(moduleTime):`,
		becomes: `case <-time.After(1000 * moduleTime):`,
	},
	{
		name: "the alias of a module is a part of that of a device", file: "configuration/image/installer/modules.go",
		pkg: "configuration/image/installer", test: "TestMatches",
		is:      `return ok && err == nil`,
		becomes: `return err == nil && (ok || pattern != "" && strings.HasPrefix(modalias, pattern))`,
	},
	{
		name: "devices that appear with the modules of others get none",
		file: "configuration/image/installer/modules.go",
		pkg:  "configuration/image/installer",
		test: "TestSettle",
		is: `			quiet = 0
			continue`,
		becomes: `			return`,
	},
	{
		name: "the search for devices has no end", file: "configuration/image/installer/modules.go",
		pkg: "configuration/image/installer", test: "TestSettleEnds",
		is:      `for range maxRounds {`,
		becomes: `for {`,
	},
	{
		name: "an order is carried out in part", file: "configuration/image/installer/order.go",
		pkg: "configuration/image/installer", test: "TestDecodeRefuses",
		is:      `dec.DisallowUnknownFields()`,
		becomes: `dec.UseNumber()`,
	},
	{
		name: "a gateway is in another network", file: "configuration/image/installer/order.go",
		pkg: "configuration/image/installer", test: "TestDecodeRefuses",
		is:      `!i.Address.Contains(gateway) && !gateway.IsLinkLocalUnicast():`,
		becomes: `false:`,
	},
	{
		name: "the port that booted wins over the order", file: "configuration/image/installer/network.go",
		pkg: "configuration/image/installer", test: "TestChoose",
		is:      `if mac != "" {`,
		becomes: `if mac != "" && bootif == nil {`,
	},
	{
		name: "a refusal of the kernel passes as done", file: "configuration/image/installer/netlink.go",
		pkg: "configuration/image/installer", test: "TestAnswerOf",
		is:      `if number != 0 {`,
		becomes: `if number > 0 {`,
	},
	{
		name: "one mount that fails ends the boot", file: "configuration/image/installer/mount.go",
		pkg: "configuration/image/installer", test: "TestMountAll",
		is:      `problems = append(problems, fmt.Errorf("cannot mount %s: %w", m.target, err))`,
		becomes: `return append(problems, fmt.Errorf("cannot mount %s: %w", m.target, err))`,
	},
	{
		name: "a final answer to a report is retried", file: "configuration/image/installer/report.go",
		pkg: "configuration/image/installer", test: "TestSendFinal",
		is:      `case report.Final(response.StatusCode):`,
		becomes: `case false:`,
	},
	{
		name: "facts are not sent again after a lost answer", file: "configuration/image/installer/report.go",
		pkg: "configuration/image/installer", test: "TestSendAgain",
		is: `	response, err := r.client.Do(request)
	if err != nil {`,
		becomes: `	response, err := r.client.Do(request)
	if err != nil && bytes.Contains(body, []byte("\"facts\"")) {
		return report.Wait, nil
	}
	if err != nil {`,
	},
	{
		name: "a report goes without the token", file: "configuration/image/installer/report.go",
		pkg: "configuration/image/installer", test: "TestInspectReports",
		is:      `request.Header.Set("Authorization", "Bearer "+r.to.Token)`,
		becomes: ``,
	},
	{
		name: "a report follows a redirect", file: "configuration/image/installer/report.go",
		pkg: "configuration/image/installer", test: "TestSendAgain",
		is:      `return http.ErrUseLastResponse`,
		becomes: `return nil`,
	},
	{
		name: "an order reports without a token", file: "configuration/image/installer/order.go",
		pkg: "configuration/image/installer", test: "TestDecodeRefusesReport",
		is:      `case !token.MatchString(r.Token):`,
		becomes: `case len(r.Token) > 200:`,
	},
	{
		name: "the init works outside of the environment", file: "configuration/image/installer/init.go",
		pkg: "configuration/image/installer", test: "TestInitElsewhere",
		is: `case !inMemory():`,
		becomes: `case !inMemory():
		_ = collect(context.Background(), "/")`,
	},
	{
		name: "a SCSI disk has no serial number without udev", file: "inventory/facts/collect/collect.go",
		pkg: "inventory/facts/collect", test: "TestDisksWithoutUdev",
		is:      `disk.Serial = facts.Known(c.vitalSerial(dir))`,
		becomes: `disk.Serial = ""`,
	},
	{
		name: "an image is installed for nobody", file: "configuration/image/installer/order.go",
		pkg: "configuration/image/installer", test: "TestDecodeRefusesInstall",
		is: `	case over.isZero():
		return invalid("install`,
		becomes: `	case false:
		return invalid("install`,
	},
	{
		name: "an order to install has hints with mistakes", file: "configuration/image/installer/order.go",
		pkg: "configuration/image/installer", test: "TestDecodeRefusesInstall",
		is:      `facts.CheckHints(i.RootDevice)`,
		becomes: `facts.CheckHints(nil)`,
	},
	{
		name: "a disk keeps the old system during a write", file: "configuration/image/disk/write.go",
		pkg: "configuration/image/disk", test: "TestWriteOrder",
		is:      `if err := wipe(to, size); err != nil {`,
		becomes: `if err := to.Sync(); err != nil {`,
	},
	{
		name: "the first sectors of a disk do not come last", file: "configuration/image/disk/write.go",
		pkg: "configuration/image/disk", test: "TestWriteOrder",
		is:      `{disk.head[first:], first}, {disk.head[:first], 0}}`,
		becomes: `{disk.head[:first], 0}, {disk.head[first:], first}}`,
	},
	{
		name: "the end of an image comes before its digest is known", file: "configuration/image/disk/edges.go",
		pkg: "configuration/image/disk", test: "TestWriteOrder",
		is:      `last := e.size - edge;`,
		becomes: `last := e.size;`,
	},
	{
		name: "an image with another digest boots", file: "configuration/image/disk/write.go",
		pkg: "configuration/image/disk", test: "TestWriteFails",
		is:      `got != image.Digest {`,
		becomes: `false && got != image.Digest {`,
	},
	{
		name: "a transfer that ends early is other content", file: "configuration/image/disk/write.go",
		pkg: "configuration/image/disk", test: "TestWriteFails",
		is:      `case err != nil && s.n < s.size:`,
		becomes: `case false:`,
	},
	{
		name: "an image may be longer than said", file: "configuration/image/disk/write.go",
		pkg: "configuration/image/disk", test: "TestWriteFails",
		is:      `case s.n > s.size:`,
		becomes: `case false:`,
	},
	{
		name: "an image that is cut off in its compression boots", file: "configuration/image/disk/write.go",
		pkg: "configuration/image/disk", test: "TestWriteFails",
		is:      `case errors.Is(err, io.EOF):`,
		becomes: `case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):`,
	},
	{
		name: "progress counts what is not on the disk", file: "configuration/image/disk/write.go",
		pkg: "configuration/image/disk", test: "TestWriteProgress",
		is: `			if err := disk.to.Sync(); err != nil {
				return badDisk(err)
			}
			synced = at`,
		becomes: `			synced = at`,
	},
	{
		name: "a disk is wiped for an image that is too large", file: "configuration/image/disk/write.go",
		pkg: "configuration/image/disk", test: "TestWriteRefuses",
		is:      `need > size {`,
		becomes: `need > 2*size {`,
	},
	{
		name: "a disk is wiped for a GPT that is too large", file: "configuration/image/disk/layout.go",
		pkg: "configuration/image/disk", test: "TestWriteRefuses",
		is:      `case backup >= sectors:`,
		becomes: `case backup >= 2*sectors:`,
	},
	{
		name: "a GPT may have any number of entries", file: "configuration/image/disk/layout.go",
		pkg: "configuration/image/disk", test: "TestWriteRefuses",
		is:      `entries > maxEntries ||`,
		becomes: `false ||`,
	},
	{
		name: "the seed overwrites the last partition", file: "configuration/image/disk/layout.go",
		pkg: "configuration/image/disk", test: "TestWriteRefuses",
		is:      `int64(used)*sector > start {`,
		becomes: `start < 0 {`,
	},
	{
		name: "the backup of a GPT stays where it was", file: "configuration/image/disk/layout.go",
		pkg: "configuration/image/disk", test: "TestWriteGPT",
		is:      `table.Resize(uint64(size))`,
		becomes: `_ = size`,
	},
	{
		name: "an MBR without a free entry loses one", file: "configuration/image/disk/layout.go",
		pkg: "configuration/image/disk", test: "TestWriteMBR",
		is:      `case p.Type != mbr.Empty:`,
		becomes: `case p.Type != mbr.Empty && p.Index < 4:`,
	},
	{
		name: "a GPT wraps at 2 TiB in the MBR", file: "configuration/image/disk/layout.go",
		pkg: "configuration/image/disk", test: "TestProtectiveEntry",
		is:      `min(size/sector-1, mbrMax)`,
		becomes: `size/sector-1`,
	},
	{
		name: "an image is installed on a removable disk", file: "configuration/image/disk/open.go",
		pkg: "configuration/image/disk", test: "TestChoose",
		is:      `case d.Removable:`,
		becomes: `case false:`,
	},
	{
		name: "a disk is written before the manager has answered", file: "configuration/image/installer/install.go",
		pkg: "configuration/image/installer", test: "TestInstallObeys",
		is: `	if err != nil || then != report.Continue {
		return then, err
	}

	touched`,
		becomes: `	touched`,
	},
	{
		name: "a manager cannot end a write", file: "configuration/image/installer/install.go",
		pkg: "configuration/image/installer", test: "TestInstallProgress",
		is:      `if inventory.KindOf(err) == inventory.KindRefused {`,
		becomes: `if false {`,
	},
	{
		name: "an image is fetched without the token", file: "configuration/image/installer/install.go",
		pkg: "configuration/image/installer", test: "TestInstall$",
		is:      `request.Header.Set("Authorization", "Bearer "+i.manager.to.Token)`,
		becomes: ``,
	},
	{
		name: "a slow disk looks like a transfer that stalls", file: "configuration/image/installer/install.go",
		pkg: "configuration/image/installer", test: "TestInstallStalls",
		is: `	defer t.timer.Stop()
`,
		becomes: ``,
	},
	{
		name: "an image is fetched once", file: "configuration/image/installer/install.go",
		pkg: "configuration/image/installer", test: "TestInstallAgain",
		is:      `backoff.WithMaxTries(maxWrites)`,
		becomes: `backoff.WithMaxTries(1)`,
	},
	{
		name: "a disk that was wiped is reported as untouched", file: "configuration/image/installer/install.go",
		pkg: "configuration/image/installer", test: "TestInstallFails",
		is:      `touched = touched || now`,
		becomes: `touched = false && now`,
	},
	{
		name: "an image is decompressed on the way", file: "configuration/image/installer/report.go",
		pkg: "configuration/image/installer", test: "TestInstall$",
		is:      `DisableCompression: true`,
		becomes: `DisableCompression: false`,
	},
	{
		name: "an image is given without the token", file: "management/boot/install.go", pkg: "management/daemon",
		test:    "TestBootInstall$",
		is:      `b.Install == nil || !b.Has(bearer(r))`,
		becomes: `b.Install == nil`,
	},
	{
		name: "a system runs that is not installed", file: "management/boot/install.go", pkg: "management/daemon",
		test:    "TestBootInstall$",
		is:      `boot.Ended != nil || boot.Stage != api.BootInstalled`,
		becomes: `boot.Ended != nil`,
	},
	{
		name: "an installed machine boots its environment again", file: "management/boot/order.go",
		pkg: "management/daemon", test: "TestBootInstall$",
		is:      `b.Problem == "" && !isInstalled(open.Stage)`,
		becomes: `b.Problem == ""`,
	},
	{
		name: "a half-written machine is Manageable", file: "management/job/verb_install.go", pkg: "management/daemon",
		test: "TestBootInstallFails",
		is: `case !installed.succeeded(t.Name):
			o = inventory.Outcome{Status: p.row.Dirty}`,
		becomes: `case !installed.succeeded(t.Name):
			o = inventory.Outcome{Status: p.row.Failed}`,
	},
	{
		name: "a machine that was not touched is Quarantined", file: "management/step/install/install.go",
		pkg: "management/daemon", test: "TestBootInstallFails",
		is:      `s.Job.ID) == "" {`,
		becomes: `s.Job.ID) == "" && false {`,
	},
	{
		name: "a machine whose boot was ended while it was written is as before", file: "management/boot/install.go",
		pkg: "management/daemon", test: "TestBootInstallFails",
		is:      `stage = cmp.Or(one.Stage, stage)`,
		becomes: `stage = map[bool]string{true: one.Stage}[one.Ended == nil]`,
	},
	{
		name: "a way between statuses loses data", file: "inventory/path.go", pkg: "inventory", test: "TestPath$",
		is:      `if row.Replaces || !row.Takes(`,
		becomes: `if !row.Takes(`,
	},
}
