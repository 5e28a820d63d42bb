// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
)

// TestFaults lets each kind of fault happen once to three instances under load.
func TestFaults(t *testing.T) {
	c := newChaos(t)
	order := c.random.Perm(len(faults))
	half := len(order) / 2

	c.round(order[:half])
	c.round(order[half:])
	c.wantEnough()
}

// TestChaos does the same at random for CHAOS_FOR, such as 30m. CHAOS_SEED repeats the choices of a run, but not its
// timing.
func TestChaos(t *testing.T) {
	if os.Getenv("CLUSTERM_CHAOS") != "1" {
		t.Skip("no two runs are alike; set CLUSTERM_CHAOS=1, as make chaos does")
	}

	length, err := time.ParseDuration(os.Getenv("CHAOS_FOR"))
	errtest.None(t, err)

	c := newChaos(t)
	for end := time.Now().Add(length); time.Now().Before(end) && !t.Failed(); {
		c.round(c.random.Perm(len(faults))[:4])
	}

	c.wantEnough()
}

const chaosInstances = 3

// chaos is a manager of three instances with clients, to which faults happen.
type chaos struct {
	*world // at an operator who has the URLs of all instances

	random *rand.Rand
	load   load
	nodes  []string // the hosts that jobs act on

	struck  map[string]int
	notes   map[string]string // of the requests of this round's jobs, by job
	seen    map[string]bool   // the jobs of all rounds
	ledgers map[string][]command
	counts  map[string]int
	log     []string
}

func newChaos(t *testing.T) *chaos {
	t.Helper()

	seed, err := strconv.ParseUint(os.Getenv("CHAOS_SEED"), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("CHAOS_SEED=%d", seed)

	w := newWorld(t, setup{
		hosts: 6, instances: chaosInstances, playbooks: "testdata/chaos", disk: "512M",
		config: "listen: 0.0.0.0:9443\njobs: {runner_lease: 10s, timeout: 60s}\n",
	})
	c := &chaos{
		random: rand.New(rand.NewPCG(seed, 0)), nodes: w.hosts[chaosInstances:],
		struck: map[string]int{}, seen: map[string]bool{}, ledgers: map[string][]command{}, counts: map[string]int{},
	}
	w.keepLedgers(c.nodes...)
	c.world = w.operatorAt(c.nodes[0], chaosInstances)
	c.load = load{
		Token:       strings.TrimSpace(c.sh(c.nodes[0], "cat /root/token").stdout),
		Fingerprint: strings.TrimSpace(c.sh("host1", "clusterm ca fingerprint").stdout),
		Nodes:       c.nodeNames(c.nodes...), Labels: map[string]string{}, Seed: seed,
	}

	for _, host := range c.nodes {
		c.load.Labels[c.name(host)] = host
	}
	for _, host := range c.managers() {
		c.load.URLs = append(c.load.URLs, instanceURL(host))
	}

	t.Cleanup(func() {
		t.Logf("%d faults: %v; %v", len(c.log), c.struck, c.counts)

		if t.Failed() {
			t.Logf("the faults:\n%s", strings.Join(c.log, "\n"))
		}
	})

	return c
}

// managers are the hosts with an instance.
func (c *chaos) managers() []string { return c.hosts[:chaosInstances] }

// victims are n of these hosts. The leader is one of them every other time.
func (c *chaos) victims(n int) []string {
	all := slices.Clone(c.managers())
	c.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })

	if leads := c.random.IntN(2) == 0; leads {
		leader := c.leader()
		all = append([]string{leader}, slices.DeleteFunc(all, func(h string) bool { return h == leader })...)
	}

	return all[:n]
}

// hold lets a fault, or the load, last.
func (c *chaos) hold(d time.Duration) {
	c.t.Helper()

	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-timer.C:
	case <-suite.ctx.Done():
		c.t.Fatal("interrupted")
	}
}

// overALease is longer than the leases of an instance and of a runner.
const overALease = 20 * time.Second

// during has the commands begin and end a fault on a host.
func (c *chaos) during(host, begin string, d time.Duration, end string) {
	c.t.Helper()
	c.sh(host, begin)
	c.hold(d)
	c.sh(host, end)
}

// faults are the kinds of fault. Each happens, lasts and ends.
var faults = []struct {
	name   string
	strike func(c *chaos) (where string)
}{
	{"the daemon is killed", func(c *chaos) string {
		host := c.victims(1)[0]
		c.sh(host, killDaemon)
		c.hold(3 * time.Second)

		return host
	}},
	{"a runner is killed", func(c *chaos) string {
		var host string

		await(c.t, 30*time.Second, "a runner is killed", func() (bool, string) {
			for _, host = range c.victims(chaosInstances) {
				if c.try(host, "pkill -KILL -o -f '^"+runnerProcess+"'").code == 0 {
					return true, ""
				}
			}

			return false, "no job runs"
		})

		return host
	}},
	{"etcd is killed", func(c *chaos) string {
		host := c.victims(1)[0]
		c.sh(host, killEtcd)
		c.hold(3 * time.Second)

		return host
	}},
	{"the daemon is stopped for more than a lease", func(c *chaos) string {
		host := c.victims(1)[0]
		c.during(host, "pkill -STOP -f '^"+daemonProcess+"'", overALease, "pkill -CONT -f '^"+daemonProcess+"'")

		return host
	}},
	{"all processes of a host are stopped for more than a lease", func(c *chaos) string {
		host := c.victims(1)[0]
		// The shell itself is none of them.
		c.during(host, "kill -STOP -1", overALease, "kill -CONT -1")

		return host
	}},
	{"a host is cut off", func(c *chaos) string {
		host := c.victims(1)[0]
		c.during(host, isolate, overALease, rejoin)

		return host
	}},
	{"a host hears nothing", func(c *chaos) string {
		host := c.victims(1)[0]
		c.during(host, "iptables -I INPUT -s 10.77.0.0/24 ! -i lo -j DROP", overALease, rejoin)

		return host
	}},
	{"two instances lose each other in one direction", func(c *chaos) string {
		two := c.victims(2)
		c.during(two[0], "iptables -I OUTPUT -d "+addr(two[1])+" -j DROP", 8*time.Second, rejoin)

		return strings.Join(two, " to ")
	}},
	{"a host reboots", func(c *chaos) string {
		host := c.victims(1)[0]
		c.labDo("reboot", host)

		return host
	}},
	{"a host loses its power", func(c *chaos) string {
		host := c.victims(1)[0]
		c.labDo("kill", host)
		c.hold(3 * time.Second)
		c.labDo("boot", host)

		return host
	}},
	{"the disk of an instance is full", func(c *chaos) string {
		host := c.victims(1)[0]
		c.during(host, "! dd if=/dev/zero of="+dataDir+"/full bs=1M 2>/dev/null", 8*time.Second, "rm "+dataDir+"/full")

		return host
	}},
	{"two of three instances are lost", func(c *chaos) string {
		two := c.victims(2)
		c.labDo(append([]string{"kill"}, two...)...)
		c.hold(8 * time.Second)
		c.labDo(append([]string{"boot"}, two...)...)

		return strings.Join(two, ", ")
	}},
}

// round lets faults happen under load, and checks afterwards that nothing is stuck, lost or twice.
func (c *chaos) round(kinds []int) {
	c.t.Helper()

	c.load.Round++
	c.notes = map[string]string{}

	for _, host := range c.nodes {
		c.sh(host, ": >/root/ticks; : >"+fenceLedger)
	}

	clients := c.startClients()
	c.hold(5 * time.Second)

	type window struct {
		name       string
		begin, end int64
	}

	var windows []window

	for _, i := range kinds {
		begin := time.Now()
		where := faults[i].strike(c)
		c.awaitVoters(chaosInstances)
		windows = append(windows, window{faults[i].name, begin.UnixNano(), time.Now().UnixNano()})
		c.struck[faults[i].name]++
		c.log = append(
			c.log,
			fmt.Sprintf("%s to %s %s: %s", clock(begin.UnixNano()), clock(time.Now().UnixNano()), where,
				faults[i].name),
		)
		c.hold(2 * time.Second)
	}

	for _, host := range c.managers() {
		c.at(host).awaitHealthy()
	}

	c.hold(3 * time.Second)

	all := clients.end(c.t)

	for _, f := range windows {
		c.t.Logf(
			"%s: some client read nothing for %s, and one wrote nothing for %s",
			f.name,
			gap(all, opView, f.begin, f.end),
			gap(all, opWrite, f.begin, f.end),
		)
	}

	c.check(all)
}

// gap is the longest time in a window in which no operation of the kind ended well for the client that was worst off.
// It includes the pauses between its operations.
func gap(all []operation, kind string, begin, end int64) time.Duration {
	ends := map[int][]int64{}

	for _, o := range all {
		if o.Kind != kind {
			continue
		}

		ends[o.Client] = append(ends[o.Client], begin, end)
		if o.Outcome == acknowledged && o.End > begin && o.End < end {
			ends[o.Client] = append(ends[o.Client], o.End)
		}
	}

	longest := int64(0)

	for _, of := range ends {
		slices.Sort(of)

		for i, at := range of[1:] {
			longest = max(longest, at-of[i])
		}
	}

	return time.Duration(longest).Round(time.Millisecond)
}

// clients is the process of the clients of a round.
type clients struct {
	cmd   *exec.Cmd
	stdin io.Closer
	out   chan []operation
	err   chan error
}

func (c *chaos) startClients() *clients {
	c.t.Helper()

	self, err := os.Executable()
	errtest.None(c.t, err)

	p := &clients{
		cmd: c.lab.command(suite.ctx, "run", self, chaosHelper),
		out: make(chan []operation, 1),
		err: make(chan error, 1),
	}
	p.cmd.Stderr = os.Stderr

	stdin, err := p.cmd.StdinPipe()
	errtest.None(c.t, err)

	stdout, err := p.cmd.StdoutPipe()
	errtest.None(c.t, err)
	errtest.None(c.t, p.cmd.Start())
	errtest.None(c.t, json.NewEncoder(stdin).Encode(c.load))

	p.stdin = stdin

	go func() {
		var all []operation

		in := json.NewDecoder(stdout)
		for {
			var o operation
			if err := in.Decode(&o); err != nil {
				p.out <- all

				p.err <- p.cmd.Wait()

				return
			}

			all = append(all, o)
		}
	}()

	return p
}

// end ends the load, and returns what the clients did.
func (p *clients) end(t *testing.T) []operation {
	t.Helper()
	errtest.None(t, p.stdin.Close())

	timer := time.NewTimer(2 * time.Minute)
	defer timer.Stop()

	select {
	case all := <-p.out:
		errtest.None(t, <-p.err)
		return all
	case <-timer.C:
		t.Fatal("the clients do not end")
		return nil
	}
}

// check is after each round. All has to be quiet by itself.
func (c *chaos) check(all []operation) {
	c.t.Helper()
	await(c.t, 4*time.Minute, "all jobs have ended", func() (bool, string) {
		r := c.tryCtl("job", "list", "--status", "Queued,Running", "-o", "name")
		return r.code == 0 && r.stdout == "", r.String()
	})

	report := func(problems []string) {
		c.t.Helper()

		for _, problem := range problems {
			c.t.Error(problem)
		}
	}

	// What every instance shows in the end is a read as well.
	for _, host := range c.managers() {
		begin := time.Now().UnixNano()
		vars := decode[api.Vars](c.world, c.at(host).ctl("vars", "get", "--global", "-o", "json"))

		for i := range registerKeys {
			o := operation{Kind: opRead, Outcome: acknowledged, Begin: begin, End: time.Now().UnixNano()}
			o.Key = registerKey(c.load.Round, i)

			if vars[o.Key] != nil {
				o.Value = fmt.Sprint(vars[o.Key])
			}

			all = append(all, o)
		}
	}

	report(notLinearizable(all))
	report(goingBack(all))

	ticks := c.hostsShow(report)
	jobs := c.accepted(all, report)
	report(disagreements(jobs, c.notes, ticks))

	for _, host := range c.nodes {
		n := c.node(host)
		if n.Status.InProgress() || n.Job != "" {
			c.t.Errorf("%s is stuck: %s, held by job %s", n.Name, n.Status, n.Job)
		}

		report(offTable(n.Name, c.history(host), n.Status))

		configured := c.hasFile(host, "/etc/chaos")
		outOfService := n.Status == inventory.Unallocated || n.Status == inventory.Decommissioned

		switch {
		case n.Status == inventory.Allocated && !configured:
			c.t.Errorf("%s is Allocated, and its host is not configured", n.Name)
		case outOfService && len(n.Residue) == 0 && configured:
			c.t.Errorf("%s is %s without residue, and its host is configured", n.Name, n.Status)
		}
	}

	c.wantNoProcesses()
	c.count(all, jobs)
}

// hostsShow reads what the hosts noted, checks that runs did not overlap there, and returns the ticks by node.
func (c *chaos) hostsShow(report func([]string)) map[string][]tick {
	c.t.Helper()

	ticks := map[string][]tick{}

	for _, host := range c.nodes {
		all, err := parseTicks(c.sh(host, "cat /root/ticks").stdout)
		errtest.None(c.t, err)
		report(mixed(all))

		ticks[c.name(host)] = all
		c.counts["ticks"] += len(all)

		c.ledgers[host] = append(c.ledgers[host], c.ledger(host)...)
		c.counts["commands"] += len(c.ledger(host))
		report(overlaps(c.ledgers[host]))
	}

	return ticks
}

// accepted returns the jobs of the round with their runs, also those whose acceptance no client heard of. Each request
// that was accepted has one, which has ended, and a repeated request has the same.
func (c *chaos) accepted(all []operation, report func([]string)) []api.Job {
	c.t.Helper()

	byNote := map[string]string{}

	note := func(text, job string) {
		if before := byNote[text]; before != "" && before != job {
			report([]string{fmt.Sprintf("the request %s is the jobs %s and %s", text, before, job)})
		}

		byNote[text], c.notes[job] = job, text
	}

	for _, o := range all {
		if o.Kind == opSubmit && o.Outcome == acknowledged {
			note(o.Note, o.Job)
		}
	}

	var jobs []api.Job

	known := map[string]bool{}

	for _, listed := range c.jobs() {
		known[listed.ID] = true

		if c.seen[listed.ID] {
			continue
		}

		c.seen[listed.ID] = true
		j := decode[api.Job](c.world, c.ctl("job", "get", listed.ID, "-o", "json"))
		jobs = append(jobs, j)

		if !j.Status.Ended() || j.Status != api.Complete && j.Message == "" {
			report([]string{fmt.Sprintf("job %s is %s: %q", j.ID, j.Status, j.Message)})
		}

		carried := noteOf(j)

		switch heard := c.notes[j.ID]; {
		case heard == "" && carried == "":
			report([]string{fmt.Sprintf("nobody asked for job %s", j.ID)})
		case heard == "":
			c.counts["jobs unheard of"]++
			note(carried, j.ID)
		case carried != "" && carried != heard:
			report(
				[]string{
					fmt.Sprintf("job %s has the variables of %s, and not of its request %s", j.ID, carried, heard),
				},
			)
		}
	}

	for id := range c.notes {
		if !known[id] {
			report([]string{fmt.Sprintf("the job %s was accepted, and is lost", id)})
		}
	}

	return jobs
}

// noteOf is the note of the request of a job, as the job was given it.
func noteOf(j api.Job) string {
	for _, vars := range j.Vars {
		if text, is := vars["note"].Value.(string); is {
			return text
		}
	}

	return ""
}

// wantNoProcesses requires that nothing of a job runs: no runner, no Ansible and no ssh at an instance, and nothing
// behind the fence on a host.
func (c *chaos) wantNoProcesses() {
	c.t.Helper()

	for _, host := range c.managers() {
		if r := c.try(host, "pgrep -af '^"+runnerProcess+"|ansible-playbook|^ssh '"); r.code != 1 {
			c.t.Errorf("%s has processes without an owner: %s", host, r)
		}
	}

	for _, host := range c.nodes {
		if r := c.try(host, "grep -ls CLUSTERM_FENCE= /proc/[0-9]*/environ"); r.stdout != "" {
			c.t.Errorf("%s has processes without an owner: %s", host, r)
		}
	}
}

// count adds up what happened.
func (c *chaos) count(all []operation, jobs []api.Job) {
	for _, o := range all {
		c.counts[o.Kind+" "+o.Outcome]++
	}

	for _, j := range jobs {
		if len(j.Runs) > 0 {
			c.counts["job "+string(j.Status)]++
		}
	}
}

// wantEnough fails a run in which too little happened for a verdict.
func (c *chaos) wantEnough() {
	c.t.Helper()

	for kind, least := range map[string]int{
		opWrite + " " + acknowledged: 50, opRead + " " + acknowledged: 50, opView + " " + acknowledged: 200,
		"job " + string(api.Complete): 3,
	} {
		if least *= c.load.Round; c.counts[kind] < least {
			c.t.Errorf("the run is void: %d %s, of at least %d", c.counts[kind], kind, least)
		}
	}
}
