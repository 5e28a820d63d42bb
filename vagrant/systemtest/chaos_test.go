// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// For a while operators ask for this and that while processes are killed at
// random. In the end nothing is stuck, nothing is lost, and what the manager says
// of a host is what is on it. CHAOS_SEED repeats a run's choices, if not its timing.
func TestChaos(t *testing.T) {
	if os.Getenv("CLUSTERM_CHAOS") != "1" {
		t.Skip("no two runs are alike; set CLUSTERM_CHAOS=1, as make chaos does")
	}

	w := newWorld(t, setup{small: true, settings: "jobs: {timeout: 60s}"})

	seed, err := strconv.ParseUint(os.Getenv("CHAOS_SEED"), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano())
	}

	t.Logf("CHAOS_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	pick := func(words ...string) string { return words[random.IntN(len(words))] }
	w.commission(master, "host2")

	request := func() []string {
		hosts := slices.Clone([]string{"host2", "host3", "host4"})
		random.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
		names := w.nodeNames(hosts[:1+random.IntN(2)]...)
		args := []string{
			"nodes",
			pick("commission", "commission", "commission", "update", "maintenance", "decommission", "clear"),
		}

		args = append(args, names...)
		switch args[1] {
		case "commission", "update":
			args = append(
				args,
				"-g",
				pick(master, worker, worker),
				"-e",
				pick(
					"steps: 20",
					"steps: 60",
					"{steps: 20, fail_on: host3}",
					"{steps: 5, fail_on: host4, fail_cleanup_on: host4}",
				),
			)
		}

		return append(args, "--no-wait")
	}
	var log []string
	note := func(format string, args ...any) {
		log = append(log, fmt.Sprintf("%s ", time.Now().Format("15:04:05.0"))+fmt.Sprintf(format, args...))
	}

	defer func() {
		if t.Failed() {
			t.Logf("what was done:\n%s", strings.Join(log, "\n"))
		}
	}()
	accepted := map[string]bool{}
	end := time.Now().Add(40 * time.Second)

	kills := 0
	for time.Now().Before(end) {
		switch random.IntN(20) {
		case 0:
			how := pick(terminate, killed, killEtcd, killEtcd+"; "+killed)
			note("%s", how)
			w.sh("host1", how)
			w.awaitServing()
			kills++
		case 1:
			note("a runner is killed: %q", w.sh("host1", "pkill -KILL -e -o -f '^"+runnerProcess+"' || true").stdout)
			kills++
		case 2:
			note("%s", w.tryCtl("job", "cancel", "active").stderr)
		default:
			args := request()
			r := w.tryCtl(args...)
			note("%s: %d %s%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)

			switch r.code {
			case 0:
				accepted[strings.TrimSpace(r.stdout)] = true
			case 5: // not legal now
			default:
				t.Errorf("a request failed in a way of its own: %s", r)
			}
		}
	}

	w.awaitServing()
	await(t, 4*time.Minute, "all jobs have ended", func() (bool, string) {
		out := w.ctl("job", "list", "--status", "Queued,Running", "-o", "name").stdout
		return out == "", out
	})
	w.nothingRuns()
	jobs := w.jobs()
	t.Logf("%d jobs, %d kills", len(jobs), kills)

	for i, j := range jobs {
		delete(accepted, j.ID)

		if j.ID != fmt.Sprint(i+1) {
			t.Errorf("job %d is called %s", i+1, j.ID)
		}

		if j.Status != api.Complete && j.Message == "" {
			t.Errorf("job %s is %s, for no reason", j.ID, j.Status)
		}

		if out := w.ctl(
			"job",
			"logs",
			j.ID,
		).stdout; !strings.HasSuffix(out, "\n") ||
			!strings.Contains(out, "# job "+j.ID+" ended "+string(j.Status)) {
			t.Errorf("the output of job %s does not end with its end: …%q", j.ID, out[max(0, len(out)-200):])
		}
	}

	if len(accepted) > 0 {
		t.Errorf("accepted, and never heard of again: jobs %v", accepted)
	}

	for _, h := range []string{"host2", "host3", "host4"} {
		n := w.node(h)
		if n.Status.InProgress() || n.Job != "" {
			t.Errorf("%s is stuck: %s, held by job %s", n.Name, n.Status, n.Job)
		}

		configured := w.has(h, "/etc/systemtest")
		switch {
		case n.Status == inventory.Allocated && !configured:
			t.Errorf("%s is said to be Allocated, and carries nothing", n.Name)
		case (n.Status == inventory.Unallocated || n.Status == inventory.Decommissioned) && len(n.Residue) == 0 && configured:
			t.Errorf("%s is said to be %s and clean, and is not", n.Name, n.Status)
		}

		var status inventory.Status
		for _, e := range w.history(h) {
			if e.From != status {
				t.Errorf(
					"%s: entry %d goes on from %s, and the one before it ended at %s",
					n.Name,
					e.Seq,
					e.From,
					status,
				)
			}

			status = e.To
		}

		if status != n.Status {
			t.Errorf("%s is %s, and its history ends at %s", n.Name, n.Status, status)
		}
	}

	// All of it can be put right.
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
