// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
)

// noteSessions has sshd of a host note every login and every remote command in its journal.
const noteSessions = "echo LogLevel VERBOSE >/etc/ssh/sshd_config.d/sessions.conf && systemctl reload ssh"

// sessions counts the logins and remote commands that sshd has noted.
func (w *world) sessions(host string) int {
	w.t.Helper()

	text := w.sh(host, "journalctl -q -u ssh -o cat | grep -cE '^(Accepted publickey|Starting session)' || true").stdout

	count := 0
	if _, err := fmt.Sscan(text, &count); err != nil {
		w.t.Fatalf("%s: %q: %v", host, text, err)
	}

	return count
}

// trace shows whether anybody has touched a node: its record, its history and what sshd of its host has noted.
type trace struct {
	revision int64
	history  string
	entries  int
	sessions int
}

// traces are those of hosts whose nodes have the same names.
func (w *world) traces(hosts []string) map[string]trace {
	w.t.Helper()

	all, revisions := map[string]trace{}, w.revisions()
	lists := json.NewDecoder(strings.NewReader(w.sh("host1",
		"for n in "+strings.Join(hosts, " ")+"; do clusterctl nodes history $n -o json || exit; done").stdout))

	for _, h := range hosts {
		var list api.List[json.RawMessage]
		errtest.None(w.t, lists.Decode(&list))

		all[h] = trace{
			revision: revisions[h], history: fmt.Sprintf("%s", list.Items),
			entries: len(list.Items), sessions: w.sessions(h),
		}
	}

	return all
}

// TestUntouched imports a list of thirty machines all the way and runs every verb on --all. Ten of the machines are in
// service and ten are on offer: nobody touches these.
func TestUntouched(t *testing.T) {
	w := newWorld(t, setup{hosts: 31, noAgents: true, testPlaybooks: true})
	serving, offered, fresh := w.hosts[1:11], w.hosts[11:21], w.hosts[21:]
	former := slices.Concat(serving, offered)

	for _, h := range w.hosts[1:] {
		w.sh(h, noteSessions)
	}

	machines := func(memory int, hosts []string) (all []registered) {
		for _, h := range hosts {
			m := bySSH(h)
			m["memory"] = memory
			all = append(all, m)
		}

		return all
	}
	want := func(status inventory.Status, hosts []string) {
		t.Helper()

		for h, n := range w.nodes() {
			if slices.Contains(hosts, h) && (n.Status != status || n.Job != "" || n.LastError != "") {
				t.Errorf(
					"%s is %s, held by job %q, with the error %q; want %s",
					h,
					n.Status,
					n.Job,
					n.LastError,
					status,
				)
			}
		}
	}

	w.ctl("nodes", "import", w.list(machines(1024, former)...), "--introspect", "--provide")

	key := w.gossipKey()
	for _, h := range serving {
		w.setName(h, 12)
		w.installAgent(h, h, w.serial(h), key)
		w.names[h] = h
	}

	w.awaitState(inventory.Discovered, serving...)
	w.commission(master, serving...)
	want(inventory.Allocated, serving)
	want(inventory.Unallocated, offered)

	before := w.traces(former)
	for h, at := range before {
		if at.revision == 0 || at.sessions == 0 || at.entries < 7 {
			t.Fatalf("%s came to its status without a trace: %+v", h, at)
		}
	}

	untouched := func(by string) {
		t.Helper()

		now := w.traces(former)
		for _, h := range former {
			if now[h] != before[h] {
				t.Errorf("%s touched %s: %+v, before %+v", by, h, now[h], before[h])
			}
		}
	}

	// The list would change those in service, and knows those on offer as they are.
	list := w.list(slices.Concat(machines(2048, serving), machines(1024, offered), machines(1024, fresh))...)
	shown := w.ctl("nodes", "import", list, "--introspect", "--provide").stdout
	untouched("the import")

	if n := strings.Count(shown, "skipped"); n != len(serving) {
		t.Errorf("%d machines are skipped, want %d:\n%s", n, len(serving), shown)
	}

	want(inventory.Unallocated, fresh)

	for _, h := range fresh {
		if n := w.nodes()[h]; n.Hardware == nil || n.Hardware.MemoryMB == 0 || w.sessions(h) == 0 {
			t.Errorf("%s is on offer without facts, or without a session: %+v", h, n)
		}
	}

	// The same, verb by verb: each takes the new ones and no other.
	w.ctl(slices.Concat([]string{"nodes", "forget", "--force"}, fresh)...)
	w.ctl("nodes", "import", list, "--no-manage")

	for _, step := range []struct {
		args   []string
		status inventory.Status
	}{
		{[]string{"manage"}, inventory.Manageable},
		{[]string{"introspect", "--yes"}, inventory.Manageable},
		{[]string{"configure", "--yes", "--label", "rack=r1"}, inventory.Manageable},
		{[]string{"provide"}, inventory.Unallocated},
	} {
		jobs := len(w.jobs())
		w.ctl(slices.Concat([]string{"nodes"}, step.args, []string{"--all"})...)
		want(step.status, fresh)

		for _, j := range w.jobs()[jobs:] {
			slices.Sort(j.Nodes)
			if !slices.Equal(j.Nodes, fresh) {
				t.Errorf("%q took %q, want %q", step.args, j.Nodes, fresh)
			}
		}
	}

	untouched("a verb on --all")

	// Nothing is left for them.
	for _, args := range [][]string{
		{"manage"}, {"inspect"}, {"configure", "--yes", "--label", "rack=r2"}, {"provide"},
	} {
		if r := w.tryCtl(slices.Concat([]string{"nodes"}, args, []string{"--all"})...); r.code == 0 {
			t.Errorf("%q on --all found a node: %s", args, r)
		}
	}

	// By name they are refused.
	for _, args := range [][]string{
		{"inspect"}, {"configure", "--yes", "--label", "rack=r2"}, {"provide"}, {"provide", "--erase", "metadata"},
	} {
		for _, hosts := range [][]string{serving, offered} {
			r := w.tryCtl(slices.Concat([]string{"nodes"}, args, hosts)...)
			if r.code != 5 || !strings.Contains(r.stderr, hosts[0]) {
				t.Errorf("%q on %s: %s", args, hosts[0], r)
			}
		}
	}

	untouched("a refused verb")
}
