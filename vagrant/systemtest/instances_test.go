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

// grow makes further hosts instances of the manager on host1, as docs/operating/etcd.md tells an operator: their agents
// end, and each runs the command that the manager prints.
func (w *world) grow(s setup) {
	w.t.Helper()

	for _, host := range w.hosts[1:s.instances] {
		if r := w.install(
			host,
			w.managerFiles(s, host),
			"systemctl disable --quiet --now clusterm-agent",
		); r.code != 0 {
			w.t.Fatal(r)
		}

		join, token, _ := strings.Cut(strings.TrimSpace(w.ctl("instance", "invite").stdout), "\n")
		w.sh(host, "echo "+token+" | "+join+" && systemctl enable --quiet --now clusterm")
	}

	w.awaitVoters(s.instances)
	w.awaitState(inventory.Discovered, w.hosts...)
}

// instances are those of the manager, by host.
func (w *world) instances() map[string]api.Member {
	w.t.Helper()

	all := map[string]api.Member{}
	for _, m := range decode[api.List[api.Member]](w, w.ctl("instance", "list", "-o", "json")).Items {
		all[w.hostOf(m.Node)] = m
	}

	return all
}

// hostOf is the host of a node.
func (w *world) hostOf(node string) string {
	w.t.Helper()

	for host, name := range w.names {
		if name == node {
			return host
		}
	}

	w.t.Fatalf("no host has the node %q", node)

	return ""
}

// awaitVoters waits until so many instances are alive and vote, and one of them leads.
func (w *world) awaitVoters(n int) {
	w.t.Helper()
	await(w.t, 90*time.Second, fmt.Sprintf("%d instances are alive and vote", n), func() (bool, string) {
		r := w.tryCtl("instance", "list", "-o", "json")
		if r.code != 0 {
			return false, r.String()
		}

		count, leads := 0, false

		for _, m := range decode[api.List[api.Member]](w, r).Items {
			if m.Alive && m.Etcd == api.EtcdVoter {
				count++
			}
			leads = leads || m.Alive && m.Leads
		}

		return count == n && leads, r.stdout
	})
}

// leader is the host of the instance that leads.
func (w *world) leader() string {
	w.t.Helper()

	for host, m := range w.instances() {
		if m.Leads {
			return host
		}
	}

	w.t.Fatal("no instance leads")

	return ""
}

// operatorAt logs in at host1 from a host without an instance, and returns the world as it is there: its clusterctl
// knows the URLs of all instances.
func (w *world) operatorAt(host string, instances int) *world {
	w.t.Helper()

	if r := w.install(host, w.programs(suite.bin), "true"); r.code != 0 {
		w.t.Fatal(r)
	}

	w.write(host, "/root/token", w.ctl("token", "create", "--role", "admin", "--name", "operator").stdout)

	fingerprint := strings.TrimSpace(w.sh("host1", "clusterm ca fingerprint").stdout)
	r := w.sh(host, "clusterctl login "+instanceURL("host1")+" --fingerprint "+fingerprint+" --token-file /root/token")

	for i := 2; i <= instances; i++ {
		if url := instanceURL(fmt.Sprintf("host%d", i)); !strings.Contains(r.stdout+r.stderr, url) {
			w.t.Errorf("the login did not find %s: %s", url, r)
		}
	}

	return w.at(host)
}

func instanceURL(host string) string { return "https://" + addr(host) + ":9443" }

const (
	// stayDown keeps the service manager from starting clusterm again.
	stayDown = "mkdir -p /run/systemd/system/clusterm.service.d && " +
		"printf '[Service]\nRestart=no\n' >/run/systemd/system/clusterm.service.d/down.conf && systemctl daemon-reload"
	comeBack = "rm -f /run/systemd/system/clusterm.service.d/down.conf && systemctl daemon-reload && " +
		"systemctl reset-failed clusterm; systemctl start clusterm"
	// isolate cuts a host from all others in both directions, without taking its carrier.
	isolate = "iptables -I INPUT -s 10.77.0.0/24 ! -i lo -j DROP && iptables -I OUTPUT -d 10.77.0.0/24 ! -o lo -j DROP"
	rejoin  = "iptables -F INPUT && iptables -F OUTPUT"
)

// TestInstances has three hosts serve as one manager. Jobs of an instance that is killed or cut off continue on
// another one, and no two runs ever act on one host.
func TestInstances(t *testing.T) {
	w := newWorld(t, setup{
		hosts: 6, instances: 3, testPlaybooks: true, config: "listen: 0.0.0.0:9443\n",
	})
	workers := []string{"host4", "host5", "host6"}
	w.keepLedgers(workers...)

	operator := w.operatorAt("host4", 3)
	w.write("host4", "/root/ca.crt", w.sh("host1", "sed -n /BEGIN.CERT/,/END.CERT/p "+dataDir+"/pki/ca.pem").stdout)

	// Every instance serves every request.
	for i, host := range workers {
		url, group := instanceURL(w.hosts[i]), worker
		if i == 0 {
			group = master
		}

		w.sh("host4", "SSL_CERT_FILE=/root/ca.crt clusterctl --url "+url+" --token-file /root/token "+
			"nodes commission --yes -g "+group+" "+w.name(host))
		w.at(w.hosts[2-i]).wantNode(host, inventory.Allocated, group)
	}

	// Each instance gets one of three jobs.
	begin := func() (byOwner map[string]string) {
		t.Helper()

		byOwner = map[string]string{}

		for _, host := range workers {
			w.sh(host, "rm -f /run/go")
			id := operator.submit("nodes", "apply", "-e", "hold: go", w.name(host))
			operator.awaitLog(id, holdTask)
			byOwner[w.hostOf(operator.job(id).Instance)] = id
		}

		if len(byOwner) != 3 {
			t.Errorf("the instances got the jobs %v", byOwner)
		}

		return byOwner
	}
	// lost waits until the job of a lost instance goes on at another one, and all jobs end well.
	lost := func(owner, how string, jobs map[string]string) {
		t.Helper()

		begun := time.Now()
		await(t, time.Minute, "the job goes on at another instance", func() (bool, string) {
			j := operator.job(jobs[owner])
			return w.hostOf(j.Instance) != owner, j.Instance
		})
		taken := time.Since(begun).Seconds()

		operator.awaitLogs(jobs[owner], holdTask, 2)
		t.Logf("%s was %s: its job is that of another instance after %.1f s, and acts on its host again after %.1f s",
			owner, how, taken, time.Since(begun).Seconds())
		w.release("go", workers...)

		for host, id := range jobs {
			j := operator.awaitJob(id)
			runs := strings.Count(operator.ctl("job", "logs", id).stdout, holdTask)

			if want := map[bool]int{true: 2, false: 1}[host == owner]; j.Status != api.Complete || runs != want {
				t.Errorf("job %s of %s is %s after %d runs, want %d: %s", id, host, j.Status, runs, want, j.Message)
			}
		}
	}

	leader := operator.leader()
	jobs := begin()
	w.sh(leader, stayDown+" && "+killDaemon)
	lost(leader, "killed", jobs)

	if now := operator.leader(); now == leader {
		t.Errorf("%s leads, and is dead", now)
	}

	w.sh(leader, comeBack)
	operator.awaitVoters(3)

	cut := operator.leader()
	jobs = begin()
	w.sh(cut, isolate)
	lost(cut, "cut off", jobs)

	r := w.at(cut).tryCtl("vars", "set", "--global", "lost=1")
	if r.code == 0 {
		t.Errorf("an instance that is cut off takes a change: %s", r)
	}

	w.sh(cut, rejoin)
	operator.awaitVoters(3)

	for i, host := range w.hosts[:3] {
		there := w.at(host)
		there.awaitHealthy()
		// It has caught up, and takes changes.
		there.ctl("vars", "set", "--global", fmt.Sprintf("after=%d", i))

		for _, worker := range workers {
			if n := there.node(worker); n.Status != inventory.Allocated || n.Job != "" {
				t.Errorf("at %s, %s is %s, held by job %q", host, worker, n.Status, n.Job)
			}
		}

		if r := w.try(host, "pgrep -af 'clusterm runner|ansible-playbook'"); r.code != 1 {
			t.Errorf("%s has processes of jobs: %s", host, r)
		}
	}

	w.wantFenced(workers...)

	all := operator.jobs()
	if slices.ContainsFunc(all, func(j api.Job) bool { return j.Status != api.Complete }) || len(all) != 9 {
		t.Errorf("there are %d jobs, want 9, all Complete: %+v", len(all), all)
	}
}
