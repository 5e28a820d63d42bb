// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// changeAlways changes a variable all the time, and notes each answer in a file.
const changeAlways = `systemd-run --quiet --unit=load sh -c 'n=0; while [ ! -e /run/no-load ]; do n=$((n+1)); ` +
	`if out=$(HOME=/root clusterctl vars set --global load=$n 2>&1); then echo ok; else echo "failed: $out"; fi ` +
	`>>/root/load.log; done'`

// replaceInstance installs other programs on the host of an instance, and waits until it serves with them and votes.
func (w *world) replaceInstance(host, dir string) {
	w.t.Helper()

	begun, former := time.Now(), dir != suite.bin

	if r := w.install(host, w.programs(dir), restartDaemon); r.code != 0 {
		w.t.Fatal(r)
	}

	await(w.t, 90*time.Second, host+" has the other version", func() (bool, string) {
		r := w.tryCtl("instance", "list", "-o", "json")
		if r.code != 0 {
			return false, r.String()
		}

		for _, m := range decode[api.List[api.Member]](w, r).Items {
			if w.hostOf(m.Node) == host {
				is := strings.TrimPrefix(m.Version, "v") == formerVersion
				return m.Alive && m.Etcd == api.EtcdVoter && is == former, r.stdout
			}
		}

		return false, r.stdout
	})
	w.awaitVoters(3)
	w.t.Logf("%s is back after %.1f s", host, time.Since(begun).Seconds())
}

// TestRollingUpgrade upgrades three instances of the former version one after the other, with no stop, under jobs and a
// load of changes. One goes back in between. What the new version writes survives the writes of the former one, and the
// stored data change once the last one is upgraded.
func TestRollingUpgrade(t *testing.T) {
	former, differs := formerPrograms(t)
	w := newWorld(t, setup{
		hosts: 7, instances: 3, programs: former, testPlaybooks: true,
		config: "listen: 0.0.0.0:9443\njobs: {runner_lease: 10s}\n",
	})
	workers := []string{"host4", "host5", "host6"}
	operator := w.operatorAt("host4", 3)
	operator.commission(master, "host4")
	operator.commission(worker, "host5", "host6", "host7")

	// Agents of the former version stay as they are.
	for _, host := range workers[1:] {
		w.install(host, w.programs(former), "systemctl restart clusterm-agent")
	}

	var jobs []string

	for _, host := range workers {
		id := operator.submit("nodes", "apply", "-e", "hold: go", "-e", "steps: 50", w.name(host))
		operator.awaitLog(id, holdTask)
		jobs = append(jobs, id)
	}

	w.sh("host4", changeAlways)

	// The leader is the last one.
	lead := operator.leader()
	followers := slices.DeleteFunc([]string{"host1", "host2", "host3"}, func(h string) bool { return h == lead })
	order := append(followers, lead)

	operator.replaceInstance(order[0], suite.bin)

	// A rollout with a field that the former version does not know; that one leads, and writes it again.
	first := w.at(order[0])
	id := decode[api.Rollout](first, first.ctl("rollout", "start", "--action", "apply", "-l", "label=host7", "--yes",
		"--no-verify", "-e", "hold: gate", "-e", "note: x", "-o", "json")).ID
	first.awaitNodes(id, "the rollout begins", func(r api.Rollout) bool { return r.Count.InProgress > 0 })

	if now := operator.leader(); now != lead {
		t.Errorf("%s leads, and not %s", now, lead)
	}

	first.wantExtraNames(id, "beside a leader of the former version")

	operator.replaceInstance(order[0], former) // as an operator who has doubts
	operator.replaceInstance(order[0], suite.bin)
	operator.replaceInstance(order[1], suite.bin)

	if log := w.journals(order...); strings.Contains(log, "an older clusterm refuses it") {
		t.Errorf("the stored data changed beside an instance of the former version:\n%s", log)
	}

	operator.replaceInstance(order[2], suite.bin)

	w.install(order[0], w.programsAt("/root/former", former), "true")

	if differs {
		await(t, time.Minute, "the stored data change", func() (bool, string) {
			log := w.journals(order...)
			return strings.Contains(log, "an older clusterm refuses it"), log
		})
	}

	check := w.try(order[0], "/root/former/clusterm store check")
	if refuses := strings.Contains(check.stderr, "this clusterm supports version"); check.code != 0 != refuses {
		t.Errorf("the former version says of the stored data: %s", check)
	} else if differs && !refuses {
		t.Error("the former version still takes the stored data")
	}

	w.release("go", workers...)
	w.release("gate", "host7")

	for _, id := range jobs {
		j := operator.awaitJob(id)
		text := operator.ctl("job", "logs", id).stdout

		if runs := strings.Count(text, holdTask); j.Status != api.Complete || runs != 1 {
			t.Errorf("job %s is %s after %d runs: %s", id, j.Status, runs, j.Message)
		}

		w.wantSequence(text, "this is step ", 50)
	}

	first.awaitRollout(id, "Done")
	first.wantExtraNames(id, "after all")

	w.sh("host4", "touch /run/no-load; while systemctl is-active --quiet load; do :; done")

	answers := strings.TrimSpace(w.sh("host4", "cat /root/load.log").stdout)
	ok := strings.Count(answers, "ok\n")

	if ok < 20 || strings.Contains(answers, "failed") {
		t.Errorf("%d changes were made, and others failed:\n%s", ok, answers)
	}
	t.Logf("%d changes were made meanwhile", ok)

	w.awaitState(inventory.Discovered, w.hosts...)
	w.sh("host1", "clusterm audit verify && clusterm store check")
}

// wantExtraNames requires the names of the extra variables in the record of a rollout.
func (w *world) wantExtraNames(id, when string) {
	w.t.Helper()

	r := decode[api.Rollout](w, w.ctl("rollout", "show", id, "-o", "json"))
	if !slices.Equal(r.ExtraNames, []string{"hold", "note"}) {
		w.t.Errorf("%s, the rollout has the extra variables %q", when, r.ExtraNames)
	}
}

// journals are the logs of clusterm on hosts.
func (w *world) journals(hosts ...string) string {
	w.t.Helper()

	all := ""
	for _, h := range hosts {
		all += fmt.Sprintf("%s:\n%s", h, w.sh(h, "journalctl -u clusterm -o cat").stdout)
	}

	return all
}
