// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// cord leads from a TCP port to the socket of an etcd, until it is cut.
type cord struct {
	net.Listener
	socket string

	mu    sync.Mutex
	cut   bool
	ends  []net.Conn
	tasks sync.WaitGroup
}

func newCord(t *testing.T, socket string) *cord {
	t.Helper()

	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cord{Listener: l, socket: socket}
	c.tasks.Go(c.serve)
	t.Cleanup(func() { l.Close(); c.set(true); c.tasks.Wait() })

	return c
}

func (c *cord) serve() {
	for {
		from, err := c.Accept()
		if err != nil {
			return
		}

		to, err := net.Dial("unix", c.socket)

		c.mu.Lock()
		keep := err == nil && !c.cut
		c.ends = append(c.ends, from)

		if err == nil {
			c.ends = append(c.ends, to)
		}
		c.mu.Unlock()

		if !keep {
			from.Close()
			continue
		}

		copied := func(to, from net.Conn) func() { return func() { _, _ = io.Copy(to, from); to.Close() } }
		c.tasks.Go(copied(to, from))
		c.tasks.Go(copied(from, to))
	}
}

// set cuts the cord, or mends it.
func (c *cord) set(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.cut = cut
	for _, end := range c.ends {
		end.Close()
	}

	c.ends = nil
}

// instances prepares several managers on hosts of their own, with the same playbooks and one etcd.
func instances(t *testing.T, labels ...string) (sites []*site, cords []*cord) {
	t.Helper()

	dir := filepath.Join(prepare(t).dir, "etcd")

	log := prepare(t).options().Logger

	server, err := etcd.StartServer(t.Context(), etcd.ServerOptions{Dir: dir, NoSync: true, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })

	for _, label := range labels {
		c := newCord(t, strings.TrimPrefix(server.Endpoint(), "unix://"))
		cords = append(cords, c)
		s := prepare(t, `etcd: {endpoints: ["http://`+c.Addr().String()+`"]}`, `node: {label: `+label+`, serial: "1"}`,
			"jobs: {runner_lease: 20s}")
		s.tune = func(o *Options) { o.InstanceTTL = 8 * time.Second }
		sites = append(sites, s)
	}

	return sites, cords
}

// copyKey gives a manager the key of the secrets of another one.
func (s *site) copyKey(other *site) {
	s.t.Helper()

	key, err := os.ReadFile(filepath.Join(other.dir, "d", "secrets.key"))
	s.must(err)
	s.must(os.MkdirAll(filepath.Join(s.dir, "d"), 0o700))
	s.must(os.WriteFile(filepath.Join(s.dir, "d", "secrets.key"), key, 0o600))
}

// TestInstances: two managers on one etcd run a job each. The one that leads is cut off. The job of the other is not
// interrupted; that one gains the lead, begins another job, and brings the job of the lost one to its end. No playbook
// runs twice, except that of the lost manager, once its first run has ended for sure.
func TestInstances(t *testing.T) {
	t.Parallel()

	sites, cords := instances(t, "first", "second")
	first, second := sites[0], sites[1]

	first.up()
	t.Cleanup(first.down)

	second.must(os.MkdirAll(filepath.Join(second.dir, "d"), 0o700))
	checkError(t, second.try(patience), inventory.KindRefused, "secret variables are locked", "from the other instance")
	second.copyKey(first)
	second.up()
	t.Cleanup(second.down)

	for _, s := range sites {
		h, err := s.Health(s.ctx())
		if err != nil || h.Status != api.HealthOK {
			t.Errorf("the health of %s: %+v, %v", filepath.Base(s.dir), h, err)
		}

		l, err := s.Instances(s.ctx())
		if err != nil || len(l.Items) != 2 {
			t.Errorf("the instances: %+v, %v", l.Items, err)
		}
	}

	first.report("a b c m")
	first.runJob(api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"m-1"}, Group: inventory.GroupMaster})

	submit := func(s *site, node string) (api.Job, string) {
		t.Helper()

		gate := first.fifo("gate-" + node)
		j, err := s.Client.Submit(s.ctx(), api.JobRequest{
			Verb: inventory.VerbCommission, Nodes: []string{node}, Group: inventory.GroupWorker,
			ExtraVars: []byte(`{"waits_at":"` + gate + `"}`),
		})
		s.must(err)
		s.waitOutput(j.ID, "waiting\n")

		j, err = s.Client.Job(s.ctx(), j.ID)
		s.must(err)

		return j, gate
	}
	ends := func(j api.Job, instance string, runs int) {
		t.Helper()

		j, err := second.Client.WaitJob(second.ctx(), j.ID)
		second.must(err)

		text := second.output(j.ID)
		if j.Status != api.Complete || j.Instance != instance || len(j.Runs) != runs ||
			strings.Count(text, "waiting\n") != runs ||
			second.status(j.Nodes[0]) != "Allocated service-worker" {
			t.Errorf("%s on %s after %d runs, want %d on %s; %+v\n%s",
				j.Status, j.Instance, strings.Count(text, "waiting\n"), runs, instance, j.Runs, text)
		}
	}

	// A request to the one that follows is accepted, too.
	lost, lostGate := submit(first, "a-1")
	kept, keptGate := submit(second, "b-1")

	if lost.Instance != "first-1" || kept.Instance != "second-1" || second.member.Leads() {
		t.Fatalf("jobs on %s and %s; the second leads: %t", lost.Instance, kept.Instance, second.member.Leads())
	}

	cords[0].set(true)
	second.eventually("the second leads", second.member.Leads)

	begun, begunGate := submit(second, "c-1")
	second.release(keptGate)
	second.release(begunGate)
	ends(kept, "second-1", 1)
	ends(begun, "second-1", 1)

	// The lost one comes back, without its job.
	second.until(lost.ID, "another instance has the job", func(j api.Job) bool { return j.Instance == "second-1" })
	cords[0].set(false)
	first.eventually("the first follows", func() bool { return first.member.Problem() == nil && !first.member.Leads() })

	second.eventually("the playbook of the lost job runs again", func() bool {
		return strings.Count(second.output(lost.ID), "waiting\n") == 2
	})
	second.release(lostGate)
	ends(lost, "second-1", 2)
	second.eventually("both are alive", func() bool {
		l, err := second.Instances(second.ctx())
		return err == nil && len(l.Items) == 2
	})

	if len(first.failed) > 0 {
		t.Errorf("the first has failed: %v", <-first.failed)
	}

	// A stop leaves the job to the next process. The leader has one, so that the next one is the other's.
	second.report("d e")

	_, busyGate := submit(second, "d-1")
	stays, staysGate := submit(second, "e-1")
	first.restart()
	second.release(busyGate)
	second.release(staysGate)
	ends(stays, "first-1", 1)
}

// TestKeyOfInstances: a request with one key is one job, however many instances get it, at the same time or after the
// death of the one that had carried it out.
func TestKeyOfInstances(t *testing.T) {
	t.Parallel()

	sites, cords := instances(t, "first", "second")
	first, second := sites[0], sites[1]

	first.up()
	t.Cleanup(first.down)
	second.copyKey(first)
	second.up()
	t.Cleanup(second.down)

	first.report("a b c d e f g h")
	nodes, err := first.Nodes(first.ctx(), client.NodeFilter{})
	first.must(err)
	second.eventually("the second shows the nodes", func() bool {
		list, err := second.At(nodes.Revision).Nodes(second.ctx(), client.NodeFilter{})
		return err == nil && list.Total == nodes.Total
	})

	request := func(label string) api.JobRequest {
		return api.JobRequest{
			Verb: inventory.VerbCommission, Nodes: []string{label + "-1"}, Group: inventory.GroupMaster,
		}
	}
	jobs := map[string]string{} // by label

	// Each instance gets each request twice, all at once.
	for _, label := range strings.Fields("a b c d e f") {
		var (
			all sync.WaitGroup
			got [4]string
		)

		for i := range got {
			all.Go(func() {
				s := sites[i%2]
				j, err := s.IdempotencyKey("key-"+label).Submit(s.ctx(), request(label))
				got[i] = j.ID

				if err != nil {
					t.Errorf("%s, request %d: %v", label, i, err)
				}
			})
		}
		all.Wait()

		if jobs[label] = got[0]; len(slices.Compact(got[:])) > 1 {
			t.Errorf("%s is the jobs %q", label, got)
		}
	}

	count := func(want int) {
		t.Helper()

		list, err := second.Newest().Jobs(second.ctx(), client.JobFilter{})
		if second.must(err); len(list.Items) != want {
			t.Errorf("%d jobs, want %d: %+v", len(list.Items), want, list.Items)
		}
	}
	count(len(jobs))

	_, err = second.IdempotencyKey("key-a").Submit(second.ctx(), request("b"))
	if inventory.KindOf(err) != inventory.KindKeyReused {
		t.Errorf("another request with the key: %v", err)
	}

	// A client with both URLs asks the first one, and then the other.
	both, err := client.New(client.Options{URL: "unix://" + first.dir + "/s,unix://" + second.dir + "/s"})
	second.must(err)

	j, err := both.IdempotencyKey("key-g").Submit(second.ctx(), request("g"))
	second.must(err)

	jobs["g"] = j.ID

	cords[0].set(true)
	first.down()

	for label, id := range jobs {
		if j, err := both.IdempotencyKey("key-"+label).Submit(second.ctx(), request(label)); err != nil || j.ID != id {
			t.Errorf("%s is job %s, and then %s, %v", label, id, j.ID, err)
		}
	}

	count(len(jobs))

	j, err = both.IdempotencyKey("key-h").Submit(second.ctx(), request("h"))
	if err != nil || jobs["h"] == j.ID {
		t.Errorf("a new request: %+v, %v", j, err)
	}

	count(len(jobs) + 1)
}
