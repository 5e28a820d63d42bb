// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// TestChaos sends requests at random and kills processes at random. At the end no
// job or node is stuck, no job is lost, and the status of each node agrees with its
// host. CHAOS_SEED repeats the choices of a run, but not its timing.
func TestChaos(t *testing.T) {
	if os.Getenv("CLUSTERM_CHAOS") != "1" {
		t.Skip("no two runs are alike; set CLUSTERM_CHAOS=1, as make chaos does")
	}

	w := newWorld(t, setup{testPlaybooks: true, config: "jobs: {timeout: 60s}"})

	seed, err := strconv.ParseUint(os.Getenv("CHAOS_SEED"), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("CHAOS_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	pick := func(words ...string) string { return words[random.IntN(len(words))] }
	w.commission(master, "host2")

	request := func() []string {
		hosts := []string{"host2", "host3", "host4"}
		random.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
		names := w.nodeNames(hosts[:1+random.IntN(2)]...)
		verb := pick("commission", "commission", "commission", "update", "maintenance", "decommission", "clear")

		args := append([]string{"nodes", verb, "--no-wait"}, names...)
		if verb == "commission" || verb == "update" {
			group := pick(master, worker, worker)
			vars := pick("steps: 20", "steps: 60", "steps: 20\nfail_on: host3",
				"steps: 5\nfail_on: host4\nfail_cleanup_on: host4")
			args = append(args, "-g", group, "-e", vars)
		}

		return args
	}

	var log []string

	note := func(format string, args ...any) {
		log = append(log, fmt.Sprintf("%s ", time.Now().Format("15:04:05.0"))+fmt.Sprintf(format, args...))
	}

	defer func() {
		if t.Failed() {
			t.Logf("requests and kills:\n%s", strings.Join(log, "\n"))
		}
	}()
	accepted := map[string]bool{}
	end := time.Now().Add(40 * time.Second)

	kills := 0
	for time.Now().Before(end) {
		switch random.IntN(20) {
		case 0:
			how := pick(restartDaemon, killDaemon, killEtcd, killEtcd+"; "+killDaemon)
			note("%s", how)
			w.sh("host1", how)
			w.awaitHealthy()
			kills++
		case 1:
			note("a runner is killed: %q", w.sh("host1", "pkill -KILL -e -o -f '^"+runnerProcess+"' || true").stdout)
			kills++
		case 2:
			note("%s", w.tryCtl("job", "cancel", "active", "--yes").stderr)
		default:
			args := request()
			r := w.tryCtl(args...)
			note("%s: %d %s%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)

			switch r.code {
			case 0:
				accepted[strings.TrimSpace(r.stdout)] = true
			case 5: // a conflict with the current status
			default:
				t.Errorf("unexpected exit code: %s", r)
			}
		}
	}

	w.awaitHealthy()
	await(t, 4*time.Minute, "all jobs have ended", func() (bool, string) {
		out := w.ctl("job", "list", "--status", "Queued,Running", "-o", "name").stdout
		return out == "", out
	})
	w.wantNoJobProcesses()
	jobs := w.jobs()
	t.Logf("%d jobs, %d kills", len(jobs), kills)

	for i, j := range jobs {
		delete(accepted, j.ID)

		if j.ID != fmt.Sprint(i+1) {
			t.Errorf("job %d has the id %s", i+1, j.ID)
		}

		if j.Status != api.Complete && j.Message == "" {
			t.Errorf("job %s is %s without a message", j.ID, j.Status)
		}

		out := w.ctl("job", "logs", j.ID).stdout
		last := "# job " + j.ID + " ended " + string(j.Status)

		if !strings.HasSuffix(out, "\n") || !strings.Contains(out, last) {
			t.Errorf("the output of job %s lacks the end %q: …%q", j.ID, last, out[max(0, len(out)-200):])
		}
	}

	if len(accepted) > 0 {
		t.Errorf("accepted jobs are missing: %v", accepted)
	}

	for _, h := range []string{"host2", "host3", "host4"} {
		n := w.node(h)
		if n.Status.InProgress() || n.Job != "" {
			t.Errorf("%s is stuck: %s, held by job %s", n.Name, n.Status, n.Job)
		}

		configured := w.hasFile(h, "/etc/systemtest")
		unused := n.Status == inventory.Unallocated || n.Status == inventory.Decommissioned

		switch {
		case n.Status == inventory.Allocated && !configured:
			t.Errorf("%s is Allocated, and its host is not configured", n.Name)
		case unused && len(n.Residue) == 0 && configured:
			t.Errorf("%s is %s without residue, and its host is configured", n.Name, n.Status)
		}

		var status inventory.Status
		for _, e := range w.history(h) {
			if e.From != status {
				t.Errorf("%s: entry %d starts at %s, and the entry before ended at %s", n.Name, e.Seq, e.From, status)
			}

			status = e.To
		}

		if status != n.Status {
			t.Errorf("%s is %s, but its history ends at %s", n.Name, n.Status, status)
		}
	}

	// An operator can repair every node.
	var leaving []string
	for _, h := range []string{"host2", "host3", "host4"} {
		switch w.node(h).Status {
		case inventory.Quarantined:
			w.do("nodes", "clear", w.name(h))
		case inventory.Allocated:
			leaving = append(leaving, w.name(h))
		}
	}

	if len(leaving) > 0 {
		w.do(append([]string{"nodes", "decommission"}, leaving...)...)
	}

	w.commission(master, "host2")
	w.commission(worker, "host3", "host4")
}
