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

// TestFaults restarts three instances under load, one after the other, and then lets each kind of fault happen once.
func TestFaults(t *testing.T) {
	c := newChaos(t)
	wantNoneFailed(t, c.round(c.restarts()))

	// Those that last go two at a time.
	var (
		all  [][]fault
		long []fault
	)

	for _, i := range c.random.Perm(len(faults)) {
		if f := faults[i]; f.hosts == 1 && f.lasts() > aWhile {
			long = append(long, f)
		} else {
			all = append(all, []fault{f})
		}
	}

	all = slices.AppendSeq(all, slices.Chunk(long, 2))
	c.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })

	half := len(all) / 2

	c.round(all[:half])
	c.round(all[half:])
	c.wantEnough()
}

// TestChaos lets faults happen at random for CHAOS_FOR, such as 30m, up to three at a time. CHAOS_SEED repeats the
// choices of a run, but not its timing.
func TestChaos(t *testing.T) {
	if os.Getenv("CLUSTERM_CHAOS") != "1" {
		t.Skip("no two runs are alike; set CLUSTERM_CHAOS=1, as make chaos does")
	}

	length, err := time.ParseDuration(os.Getenv("CHAOS_FOR"))
	errtest.None(t, err)

	c := newChaos(t)
	c.load.Slow = true
	c.register()

	for end := time.Now().Add(length); time.Now().Before(end) && !t.Failed(); {
		groups := make([][]fault, 7)
		for i := range groups {
			groups[i] = c.several()
		}

		c.round(groups)
	}

	c.wantEnough()
}

// batchNodes is the number of nodes without a host. A claim of three quarters of them takes several transactions.
const batchNodes = 300

// register registers nodes at an address of the manager's own host where nothing listens.
func (c *chaos) register() {
	c.t.Helper()

	var list strings.Builder
	for i := range batchNodes {
		name := fmt.Sprintf("batch%03d", i)
		c.load.Batch = append(c.load.Batch, name)
		fmt.Fprintf(&list, "%s ansible_host=127.1.%d.%d ansible_port=9\n", name, i/250, i%250+1)
	}

	r := c.run(strings.NewReader(list.String()), "exec", c.seat, "sh", "-c",
		"cat >/root/batch.ini && clusterctl nodes import --no-manage /root/batch.ini")
	if r.code != 0 {
		c.t.Fatal(r)
	}
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
		all := 0
		for _, n := range c.struck {
			all += n
		}

		t.Logf("%d faults in %d rounds: %v; %v", all, c.load.Round, c.struck, c.counts)

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
func overALease() time.Duration { return instanceLease + 5*time.Second }

func lasting(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// fault is a kind of fault. It begins, lasts and ends.
type fault struct {
	name  string
	hosts int // that it strikes, of those of the instances
	lasts func() time.Duration
	begin func(c *chaos, hosts []string)
	end   func(c *chaos, hosts []string)
	// endsRuns: no lease of a run on its hosts is renewed, so all have ended before it does.
	endsRuns bool
}

// on returns what carries out a command on the first host of a fault.
func on(line string) func(*chaos, []string) {
	return func(c *chaos, hosts []string) { c.sh(hosts[0], line) }
}

// byLab returns what has the lab do something with the hosts of a fault.
func byLab(verb string) func(*chaos, []string) {
	return func(c *chaos, hosts []string) { c.labDo(append([]string{verb}, hosts...)...) }
}

func byItself(*chaos, []string) {}

const (
	brief  = 3 * time.Second
	aWhile = 8 * time.Second
)

var faults = []fault{
	{"the daemon is killed", 1, lasting(brief), on(killDaemon), byItself, false},
	{"a runner is killed", 0, lasting(0), (*chaos).killRunner, byItself, false},
	{"etcd is killed", 1, lasting(brief), on(killEtcd), byItself, false},
	{
		"the daemon is stopped for more than a lease", 1, overALease,
		on("pkill -STOP -f '^" + daemonProcess + "'"), on("pkill -CONT -f '^" + daemonProcess + "'"), true,
	},
	{
		// Nothing on the host ends its runs then: the fences of the others have to.
		"the daemon and its runners are stopped for more than a lease", 1, overALease,
		on("pkill -STOP -f '^" + daemonProcess + "|^" + runnerProcess + "'"),
		on("pkill -CONT -f '^" + daemonProcess + "|^" + runnerProcess + "'"), false,
	},
	{
		// The shell itself is none of them.
		"all processes of a host are stopped for more than a lease", 1, overALease,
		on("kill -STOP -1"), on("kill -CONT -1"), false,
	},
	{"a host is cut off", 1, overALease, on(isolate), on(rejoin), true},
	{
		"a host hears nothing", 1, overALease,
		on("iptables -I INPUT -s 10.77.0.0/24 ! -i lo -j DROP"), on(rejoin), true,
	},
	{
		"two instances lose each other in one direction", 2, lasting(aWhile),
		func(c *chaos, two []string) { c.sh(two[0], "iptables -I OUTPUT -d "+addr(two[1])+" -j DROP") }, on(rejoin),
		false,
	},
	{"a host reboots", 1, lasting(0), byLab("reboot"), byItself, false},
	{"a host loses its power", 1, lasting(brief), byLab("kill"), byLab("boot"), false},
	{
		"the disk of an instance is full", 1, lasting(aWhile),
		on("! dd if=/dev/zero of=" + dataDir + "/full bs=1M 2>/dev/null"), on("rm " + dataDir + "/full"), false,
	},
	{"two of three instances are lost", 2, lasting(aWhile), byLab("kill"), byLab("boot"), false},
}

// restarts is a rolling restart: the instance that leads is the last.
func (c *chaos) restarts() (all [][]fault) {
	leader := c.leader()
	order := append(slices.DeleteFunc(slices.Clone(c.managers()), func(h string) bool { return h == leader }), leader)

	for _, host := range order {
		all = append(all, []fault{{"the daemon restarts", 0, lasting(0),
			func(c *chaos, _ []string) { c.sh(host, "systemctl restart clusterm") }, byItself, false}})
	}

	return all
}

// wantNoneFailed requires that each request was done. A job may be refused, for the status of its node.
func wantNoneFailed(t *testing.T, all []operation) {
	t.Helper()

	for _, o := range all {
		aboutJob := o.Kind == opSubmit || o.Kind == opCancel
		if o.Outcome == unknown || o.Outcome == refused && !aboutJob {
			t.Errorf("%s at %s, client %d: %s: %s", o.Kind, clock(o.Begin), o.Client, o.Outcome, o.Error)
		}
	}
}

// killRunner kills one of any job.
func (c *chaos) killRunner([]string) {
	await(c.t, 30*time.Second, "a runner is killed", func() (bool, string) {
		for _, host := range c.victims(chaosInstances) {
			if c.try(host, "pkill -KILL -o -f '^"+runnerProcess+"'").code == 0 {
				return true, ""
			}
		}

		return false, "no job runs"
	})
}

// several are up to three faults that can happen at a time, each to other hosts.
func (c *chaos) several() (some []fault) {
	hosts, most := 0, 1+c.random.IntN(chaosInstances)

	for _, i := range c.random.Perm(len(faults)) {
		if f := faults[i]; hosts+f.hosts <= chaosInstances && len(some) < most {
			some, hosts = append(some, f), hosts+f.hosts
		}
	}

	// Runners are there as long as most instances are.
	slices.SortStableFunc(some, func(a, b fault) int { return a.hosts - b.hosts })

	return some
}

// window is a time in which faults happened, until all was whole again.
type window struct {
	faults     []string
	begin, end time.Time
}

func (w window) String() string {
	return fmt.Sprintf("%s to %s: %s", clock(w.begin.UnixNano()), clock(w.end.UnixNano()), strings.Join(w.faults, ", "))
}

// strike lets faults happen at a time.
func (c *chaos) strike(some []fault) window {
	c.t.Helper()

	w := window{begin: time.Now()}
	free := c.victims(chaosInstances)
	struck := make([][]string, len(some))
	lasts := time.Duration(0)

	for i, f := range some {
		struck[i], free = free[:f.hosts], free[f.hosts:]
		f.begin(c, struck[i])

		lasts = max(lasts, f.lasts())
		w.faults = append(w.faults, strings.TrimSpace(f.name+" "+strings.Join(struck[i], " ")))
		c.struck[f.name]++
	}

	c.hold(lasts)

	for i, f := range some {
		if f.endsRuns {
			c.wantNoRuns(struck[i][0])
		}
		if f.endsRuns {
			c.wantTakenOver(struck[i][0])
		}
		f.end(c, struck[i])
	}

	c.awaitVoters(chaosInstances)
	w.end = time.Now()

	return w
}

// round lets groups of faults happen under load, and checks afterwards that nothing is stuck, lost or twice. It returns
// what the clients did.
func (c *chaos) round(groups [][]fault) []operation {
	c.t.Helper()

	c.load.Round++
	c.notes = map[string]string{}

	for _, host := range c.nodes {
		c.sh(host, ": >/root/ticks; : >"+fenceLedger)
	}

	clients := c.startClients()
	c.hold(5 * time.Second)

	var windows []window

	for _, some := range groups {
		w := c.strike(some)
		windows = append(windows, w)
		c.log = append(c.log, w.String())
		c.hold(2 * time.Second)
	}

	for _, host := range c.managers() {
		c.at(host).awaitHealthy()
	}

	c.hold(3 * time.Second)

	all := clients.end(c.t)

	for _, w := range windows {
		begin, end := w.begin.UnixNano(), w.end.UnixNano()
		c.t.Logf("%s: some client read nothing for %s, and one wrote nothing for %s",
			w, gap(all, opView, begin, end), gap(all, opWrite, begin, end))
	}

	c.check(all)

	return all
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

	report(c.claimedInPart(jobs))
	c.wantNoProcesses()
	c.count(all, jobs)
}

// claimedInPart returns the jobs of many nodes that began with some of their nodes only, and the nodes that are still
// held. The history of a node tells with which jobs it began.
func (c *chaos) claimedInPart(jobs []api.Job) (problems []string) {
	c.t.Helper()

	if len(c.load.Batch) == 0 {
		return nil
	}

	began := map[string]map[string]int{} // by job and node

	text := c.sh(c.nodes[0], "for n in "+strings.Join(c.load.Batch, " ")+"; do "+
		"echo \"NODE $n\"; clusterctl nodes history $n -o json; done").stdout
	for _, part := range strings.Split(text, "NODE ")[1:] {
		name, rest, _ := strings.Cut(part, "\n")

		var history api.List[inventory.HistoryEntry]
		errtest.None(c.t, json.Unmarshal([]byte(rest), &history))

		for _, e := range history.Items {
			if e.To == inventory.Verifying {
				if began[e.Job] == nil {
					began[e.Job] = map[string]int{}
				}

				began[e.Job][name]++
			}
		}
	}

	for _, n := range decode[api.List[api.Node]](c.world, c.ctl("nodes", "get", "-o", "json")).Items {
		if slices.Contains(c.load.Batch, n.Name) && (n.Status != inventory.Enrolled || n.Job != "") {
			problems = append(problems, fmt.Sprintf("%s is %s, held by job %q", n.Name, n.Status, n.Job))
		}
	}

	for _, j := range jobs {
		if j.Verb != inventory.VerbManage {
			continue
		}

		c.counts["batches"]++

		if n := len(began[j.ID]); n > 0 {
			c.counts["batches that began"]++
		}

		if n := len(began[j.ID]); n != len(j.Nodes) && (n > 0 || j.Status == api.Complete) {
			problems = append(problems,
				fmt.Sprintf("job %s of %d nodes is %s, and began with %d of them", j.ID, len(j.Nodes), j.Status, n))
		}

		for name, n := range began[j.ID] {
			if n != 1 {
				problems = append(problems, fmt.Sprintf("job %s began %d times with %s", j.ID, n, name))
			}
		}
	}

	return problems
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
		case carried == "" && j.Verb == inventory.VerbManage: // it takes no variables
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

// wantNoRuns requires that no run goes on at a host.
func (c *chaos) wantNoRuns(host string) {
	c.t.Helper()

	if r := c.try(host, "pgrep -af '^"+runnerProcess+"|ansible-playbook|^ssh '"); r.code != 1 {
		c.t.Errorf("%s has runs without a lease: %s", host, r)
	}
}

// wantTakenOver requires that others take the jobs of a host that is lost over, if they have a majority.
func (c *chaos) wantTakenOver(host string) {
	c.t.Helper()

	if r := c.tryCtl("vars", "set", "--global", "majority="+host); r.code != 0 {
		return
	}

	await(c.t, instanceLease+10*time.Second, "others have the jobs of "+host, func() (bool, string) {
		r := c.tryCtl("job", "list", "--status", "Running", "-o", "json")
		if r.code != 0 {
			return false, r.String()
		}

		mine := func(j api.Job) bool { return j.Instance == c.name(host) }

		return !slices.ContainsFunc(decode[api.List[api.Job]](c.world, r).Items, mine), r.stdout
	})
}

// wantNoProcesses requires that nothing of a job runs: no runner, no Ansible and no ssh at an instance, and nothing
// behind the fence on a host.
func (c *chaos) wantNoProcesses() {
	c.t.Helper()

	for _, host := range c.managers() {
		c.wantNoRuns(host)
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
