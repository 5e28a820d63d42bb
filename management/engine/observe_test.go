// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	. "github.com/contiv/cluster/management/engine"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/monitor"
)

func (b *bench) states() string {
	var out []string
	for _, n := range b.View().Nodes() {
		out = append(out, fmt.Sprintf("%s %s", n.Name, n.State))
	}

	return strings.Join(out, ", ")
}

func at(label, serial, addr string, alive bool) inventory.Observation {
	return inventory.Observation{Label: label, Serial: serial, Addr: addr, Alive: alive}
}

func TestObserve(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	say := func(words ...inventory.Observation) error {
		return b.Observe(t.Context(), inventory.ObserverPost, words)
	}
	b.refused(say(), inventory.KindInvalid, "names no node")
	b.must(say(word("x", false))) // nobody knows it, so there is nothing to lose
	b.must(say(word("a", true), word("b", true), word("x", false), word("c", true)))
	b.must(say(word("b", false), word("c", false)))

	if got := b.states(); got != "a-1 Discovered, b-1 Disappeared, c-1 Disappeared" {
		t.Errorf("%s", got)
	}

	// All of it or nothing, and the reason.
	for _, bad := range []inventory.Observation{
		at("", "", "10.0.0.9", true), at("d", "", "10.0.0.9", true), at("", "1", "10.0.0.9", true),
		at("d", "1", "", true),
		at("d\n[all:vars]", "1", "10.0.0.9", true), at("d", "1\"", "10.0.0.9", true),
		at("d", "1", "10.0.0.9 ansible_connection=local", true),
	} {
		b.refused(say(word("e", true), bad), inventory.KindInvalid)
	}

	b.must(say(at("rack-7", "1", "10.0.0.50", true)))
	b.refused(
		say(word("e", true), at("rack", "7-1", "10.0.0.51", true)),
		inventory.KindRefused,
		`the name rack-7-1 belongs to the node with label "rack-7" and serial "1"`,
	)
	b.refused(
		say(at("e", "1", "10.0.0.5", true), at("e", "1", "10.0.0.6", true)),
		inventory.KindInvalid,
		"e-1 is reported at 10.0.0.5 and at 10.0.0.6",
	)
	b.refused(
		say(word("e", true), at("a", "b-c", "10.0.0.60", true), at("a-b", "c", "10.0.0.61", true)),
		inventory.KindRefused,
		"the name a-b-c belongs to",
	)

	if got := b.states(); got != "a-1 Discovered, b-1 Disappeared, c-1 Disappeared, rack-7-1 Discovered" {
		t.Errorf("%s", got)
	}

	// The same once more changes nothing.
	before := b.View().Revision
	b.must(say(word("a", true), word("b", false)))
	b.must(b.store.Sync(t.Context()))

	if now := b.View().Revision; now != before {
		t.Errorf("something was written: revision %d after %d", now, before)
	}
}

// TestFirstGenerationEvents: an event without nodes killed the daemon, and one
// with several nodes handled only the first.
func TestFirstGenerationEvents(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.refused(b.Observe(t.Context(), inventory.ObserverPost, nil), inventory.KindInvalid, "names no node")
	b.refused(
		b.Observe(
			t.Context(),
			inventory.ObserverPost,
			[]inventory.Observation{at("n", "1", "10.0.0.1", true), at("", "2", "10.0.0.2", true)},
		),
		inventory.KindInvalid,
		"node 2 of the event: the label is empty; give one",
	)

	if got := b.states(); got != "" {
		t.Errorf("a refused event has left %s", got)
	}

	var words []inventory.Observation
	for i := range 300 {
		words = append(words, at("n", fmt.Sprintf("%03d", i), fmt.Sprintf("10.0.%d.%d", i/200, i%200+1), true))
	}

	b.must(b.Observe(t.Context(), inventory.ObserverPost, words))

	if got := strings.Count(b.states(), "Discovered"); got != 300 {
		t.Errorf("%d of 300 are seen", got)
	}

	for i := range words {
		words[i].Alive = false
	}

	b.must(b.Observe(t.Context(), inventory.ObserverPost, words))

	if got := strings.Count(b.states(), "Disappeared"); got != 300 {
		t.Errorf("%d of 300 are gone", got)
	}
}

// TestFirstGenerationListing: listing nodes while events arrived crashed it.
func TestFirstGenerationListing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	done := make(chan struct{})

	var readers, writers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				changed := b.store.Changed()
				for _, n := range b.View().Nodes() {
					for observer, alive := range n.Seen {
						_ = fmt.Sprint(observer, alive)
					}
				}

				select {
				case <-changed:
				case <-done:
					return
				}
			}
		})
	}

	for i, observer := range []string{"gossip", inventory.ObserverPost, "elsewhere"} {
		writers.Go(func() {
			for k := range 10 {
				var words []inventory.Observation
				for _, label := range []string{"a", "b", "c"} {
					words = append(words, word(label, (i+k)%2 == 0))
				}

				if err := b.Observe(b.t.Context(), observer, words); err != nil {
					t.Error(err)
				}
			}
		})
	}

	writers.Wait()
	close(done)
	readers.Wait()

	for _, n := range b.View().Nodes() {
		h, err := b.History(t.Context(), n.Name, 0)
		if err != nil || len(h) == 0 || uint64(len(h)) != n.Entries || h[len(h)-1].Seq != n.Entries {
			t.Errorf("%s has %d entries, its history %d: %v", n.Name, n.Entries, len(h), err)
		}
	}
}

func sighting(label, addr string, alive bool) monitor.Sighting {
	return monitor.Sighting{Label: label, Serial: "1", Addr: addr, Alive: alive}
}

// TestSink takes reports of the gossip.
func TestSink(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sink := node.Sink{Nodes: b.nodes, Observer: "gossip"}
	tell := func(full bool, sightings ...monitor.Sighting) {
		t.Helper()
		b.must(sink.Observe(t.Context(), monitor.Report{Full: full, Sightings: sightings}))
	}
	tell(true)
	tell(
		false,
		sighting("a", "10.0.0.1", true),
		sighting("", "", true),
		sighting("b", "10.0.0.2", true),
	) // one bad member keeps nobody back

	if got := b.states(); got != "a-1 Discovered, b-1 Discovered" {
		t.Errorf("%s", got)
	}

	// A full report says of those it leaves out that they are not seen: nodes
	// that failed while nobody listened.
	tell(true, sighting("b", "10.0.0.2", true))

	if got := b.states(); got != "a-1 Disappeared, b-1 Discovered" {
		t.Errorf("%s", got)
	}

	// Of those that others see it says nothing.
	b.must(b.Observe(t.Context(), inventory.ObserverPost, []inventory.Observation{word("c", true)}))
	tell(true, sighting("b", "10.0.0.2", true))

	if got := b.states(); got != "a-1 Disappeared, b-1 Discovered, c-1 Discovered" {
		t.Errorf("%s", got)
	}

	twin := sighting("b", "10.0.0.2", true)
	twin.Duplicate, twin.Others = true, []string{"10.0.0.9", "10.0.0.2"}
	tell(false, twin)
	_, err := b.Submit(t.Context(), job.Request{Verb: commission, Nodes: names("b"), Group: master})
	b.refused(err, inventory.KindRefused, "b-1 is claimed by several live hosts: 10.0.0.2, 10.0.0.9")

	// A fleet of clones: the node stays Discovered, with as many rivals as are kept.
	for i := range 30 {
		twin.Others = append(twin.Others, fmt.Sprintf("10.0.1.%d", i))
	}

	tell(true, twin)

	n, err := b.View().Node("b-1")
	b.must(err)

	if n.State != inventory.Discovered || len(n.Duplicates) != inventory.MaxOthers {
		t.Errorf("with 31 rivals the node is %s and has %d duplicates", n.State, len(n.Duplicates))
	}

	tell(true, sighting("b", "10.0.0.2", true))
	b.do(commission, "b", master, "Complete")
	// An empty full report: the whole network is gone, and no node changes its status.
	tell(true)

	if got := b.states(); got != "a-1 Disappeared, b-1 Disappeared, c-1 Discovered" {
		t.Errorf("%s", got)
	}

	b.are("a Unallocated, b Allocated service-master")
}

// TestDuringAJob: what the monitor sees while a job runs is kept by its end.
func TestDuringAJob(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a")
	j, g := b.held(job.PlaybookSite, commission, "a", master)
	b.lose("a")
	b.are("a Provisioning service-master")
	g.open <- succeeds
	b.end(j.ID, "Complete")
	b.are("a Allocated service-master")

	if got := b.states(); got != "a-1 Disappeared" {
		t.Errorf("%s", got)
	}
}

// prepare asks for a discover, and says when its hosts are configured.
func (b *bench) prepare(addrs ...string) job.Job {
	b.t.Helper()
	j, err := b.Submit(b.within(patience), job.Request{Verb: discover, Addrs: addrs})
	b.must(err)
	b.until(
		"the hosts are waited for",
		func(v *state.View) bool { j, err := v.Job(j.ID); return err == nil && j.Phase() == job.PhaseAppear },
	)

	return j
}

// TestDiscover is complete only when every address has appeared.
func TestDiscover(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	key := "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFirst"
	b.books.on(job.PlaybookSite, func(r *scriptedRun) {
		r.mu.Lock()
		r.keys = map[string][]string{"10.0.0.1": {key}}
		r.mu.Unlock()
		succeeds(r)
	})
	j := b.prepare("10.0.0.1", "fd00::2")

	host := b.books.started()[0].Hosts[0]
	if taken, ok := host.Extra["clusterm_taken"].(map[string]any); !ok || len(taken) != 0 {
		t.Errorf("nobody is there yet: %v", taken)
	}

	if host.Name != "10.0.0.1" || host.Addr != "10.0.0.1" || host.Group != inventory.GroupPrepare ||
		host.Extra["clusterm_gossip_port"] != "7946" {
		t.Errorf("%+v", host)
	}

	b.see("a")

	if got := b.job(j.ID); got.Status != job.Running {
		t.Errorf("it does not wait for the second one: %+v", got)
	}

	b.must(b.Observe(t.Context(), "gossip", []inventory.Observation{at("b", "1", "FD00:0::2", true)}))

	j = b.end(j.ID, "Complete")
	if phases(j) != "probe:done configure:done appear:done" {
		t.Errorf("%s", phases(j))
	}

	if text := b.log(
		j.ID,
		job.StreamText,
	); !strings.Contains(text, "# 10.0.0.1 is node a-1\n") ||
		!strings.Contains(text, "# fd00::2 is node b-1\n") {
		t.Errorf("%q", text)
	}

	// The key of the first contact is the node's.
	if n, _ := b.View().Node("a-1"); !slices.Equal(n.HostKeys, []string{key}) {
		t.Errorf("%v", n.HostKeys)
	}

	_, err := b.Submit(t.Context(), job.Request{Verb: discover, Addrs: []string{"10.0.0.9", "FD00:0::2"}})
	b.refused(err, inventory.KindRefused, "fd00::2 is node b-1, which is Discovered already")
	// A known node that has disappeared is prepared again, as itself, and told
	// whom it must not turn out to be.
	b.lose("a")
	j = b.prepare("10.0.0.1")

	specs := b.books.started()
	if h := specs[len(specs)-1].Hosts[0]; h.Label != "a" || h.Serial != "1" ||
		!slices.Equal(h.HostKeys, []string{key}) ||
		fmt.Sprint(h.Extra["clusterm_taken"]) != "map[b-1:fd00::2]" {
		t.Errorf("%+v", h)
	}

	b.see("a")
	b.end(j.ID, "Complete")
}

func TestDiscoverFails(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.set(func(s *Settings) { s.Appear = 50 * time.Millisecond })
	b.see("a")
	b.lose("a")
	g := newGate()
	b.books.on(job.PlaybookSite, g.script)
	j, err := b.Submit(t.Context(), job.Request{Verb: discover, Addrs: []string{"10.0.0.8", "10.0.0.1", "10.0.0.9"}})
	b.must(err)
	b.begun(g)
	b.see("a")
	g.open <- succeeds

	j = b.end(j.ID, "Errored absent")
	if !strings.Contains(j.Message, "not seen within 50ms: 10.0.0.8, 10.0.0.9") ||
		strings.Contains(j.Message, "10.0.0.1") {
		t.Errorf("%s", j.Message)
	}

	if r := j.Runs[2].Results; !r["10.0.0.1"].Done || r["10.0.0.8"].Done {
		t.Errorf("%+v", r)
	}

	b.books.on(job.PlaybookSite, failsOn("10.0.0.8"))
	j, err = b.Submit(t.Context(), job.Request{Verb: discover, Addrs: []string{"10.0.0.8"}})
	b.must(err)

	if j = b.end(
		j.ID,
		"Errored failed",
	); phases(j) != "probe:done configure:failed" ||
		!strings.Contains(j.Message, "no space left") {
		t.Errorf("%s: %s", phases(j), j.Message)
	}
}

// TestDiscoverWaits for a gossip that is away at the moment when it begins, and
// can be cancelled meanwhile.
func TestDiscoverWaits(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a")
	b.set(func(s *Settings) { s.JobLimit = 1 })
	g := newGate()
	b.books.on(job.PlaybookSite, g.script)
	b.ask(commission, "a", master)
	b.begun(g)

	var waiting []job.Job
	for _, addr := range []string{"10.0.0.8", "10.0.0.9"} {
		j, err := b.Submit(t.Context(), job.Request{Verb: discover, Addrs: []string{addr}})
		b.must(err)
		waiting = append(waiting, j)
	}

	b.books.on(job.PlaybookSite, succeeds)
	agents := b.settings.AgentVars
	b.set(func(s *Settings) {
		s.JobLimit, s.AgentVars, s.NoAgents = 4, nil, inventory.Errorf(
			inventory.KindUnavailable,
			"the serf agent is away",
		)
	})
	g.open <- succeeds

	for _, j := range waiting {
		b.until("it has begun",
			func(v *state.View) bool { j, err := v.Job(j.ID); return err == nil && len(j.Runs) == 2 })
	}

	_, err := b.Cancel(t.Context(), waiting[0].ID, "berta", nil, nil)
	b.must(err)
	b.end(waiting[0].ID, "Cancelled cancelled")

	if j := b.job(waiting[1].ID); j.Status != job.Running || j.Runs[1].Exit != "" {
		t.Errorf("it does not wait: %+v", j)
	}

	b.set(func(s *Settings) { s.AgentVars, s.NoAgents = agents, nil })
	b.until(
		"the hosts are waited for",
		func(v *state.View) bool {
			j, err := v.Job(waiting[1].ID)
			return err == nil && j.Phase() == job.PhaseAppear
		},
	)
}

// TestDiscoverIsDisturbed by a cancel and by a restart while it waits.
func TestDiscoverIsDisturbed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	j := b.prepare("10.0.0.1")
	_, err := b.Cancel(t.Context(), j.ID, "berta", nil, nil)
	b.must(err)
	b.end(j.ID, "Cancelled cancelled")
	j = b.prepare("10.0.0.1")
	b.restart()
	b.see("a")

	if j = b.end(j.ID, "Complete"); phases(j) != "probe:done configure:done appear:done" {
		t.Errorf("%s", phases(j))
	}

	if text := b.log(j.ID, job.StreamText); strings.Count(text, "# 10.0.0.1 is node a-1\n") != 1 {
		t.Errorf("%q", text)
	}

	if err := b.store.Sync(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

// TestHostOfAnotherManager: the reason of a take-over is in the job, in the audit trail and in
// the history of the node, and the playbook gets the request.
func TestHostOfAnotherManager(t *testing.T) {
	t.Parallel()
	b := newBench(t)

	r := job.Request{
		Verb:  discover,
		Addrs: []string{"10.0.0.1"},
		JobOptions: inventory.JobOptions{
			TakeOver:      true,
			SharedOptions: inventory.SharedOptions{Reason: "its manager is gone"},
		},
	}
	j, err := b.Submit(b.within(patience), r)
	b.must(err)
	b.until("the host is waited for", func(v *state.View) bool {
		j, err := v.Job(j.ID)
		return err == nil && j.Phase() == job.PhaseAppear
	})

	if vars := b.books.started()[0].Hosts[0].Extra; vars["clusterm_take_over"] != true ||
		vars["clusterm_job"] != "manager-1-"+j.ID {
		t.Errorf("the playbook gets %v", vars)
	}

	b.see("a")

	if j = b.end(j.ID, "Complete"); !j.TakeOver || j.Reason != r.Reason {
		t.Errorf("%+v", j)
	}

	entries, err := b.History(t.Context(), "a-1", 0)
	b.must(err)

	if last := entries[len(entries)-1]; last.Verb != discover || last.Job != j.ID ||
		last.Reason != "take-over: its manager is gone" || last.From != last.To {
		t.Errorf("%+v", last)
	}
}

// TestDiscoverRestores: a host that the job has changed and that does not appear
// is restored, also without a gossip.
func TestDiscoverRestores(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.set(func(s *Settings) { s.Appear = 50 * time.Millisecond })
	b.books.on(job.PlaybookSite, func(r *scriptedRun) {
		b.set(func(s *Settings) { s.AgentVars, s.NoAgents = nil, inventory.Errorf(inventory.KindUnavailable, "away") })
		r.ends(RunExit{}, map[string]job.HostResult{"10.0.0.8": {Begun: true, Done: true, Changed: 5}})
	})

	j, err := b.Submit(b.within(patience), job.Request{Verb: discover, Addrs: []string{"10.0.0.8"}})
	b.must(err)

	if j = b.end(j.ID, "Errored absent"); phases(j) != "probe:done configure:done appear:absent undo:done" {
		t.Errorf("%s: %s", phases(j), j.Message)
	}

	specs := b.books.started()

	last := specs[len(specs)-1]
	if h := last.Hosts[0]; last.Playbook != job.PlaybookDiscoverUndo || last.PlaybookDigest != job.PlaybooksBundled ||
		h.Group != inventory.GroupPrepare || h.Extra["clusterm_job"] != "manager-1-"+j.ID {
		t.Errorf("%+v", last)
	}

	// A cleanup.yml of the site may remove services from a node in the range.
	if slices.ContainsFunc(specs, func(s RunSpec) bool { return s.Playbook == job.PlaybookCleanup }) {
		t.Error("the discover ran the site's cleanup.yml")
	}
}

// TestDiscoverKeepsNodes: a host that is a node by the time of a cancel stays one,
// and the others are restored.
func TestDiscoverKeepsNodes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.books.on(job.PlaybookSite, func(r *scriptedRun) {
		b.see("a") // 10.0.0.1
		<-r.cancelled
		r.ends(RunExit{Cause: job.CauseCancelled}, map[string]job.HostResult{
			"10.0.0.1": {Begun: true, Changed: 5}, "10.0.0.8": {Begun: true, Changed: 5},
		})
	})

	j, err := b.Submit(b.within(patience), job.Request{Verb: discover, Addrs: []string{"10.0.0.1", "10.0.0.8"}})
	b.must(err)
	b.until("the node has appeared", func(v *state.View) bool { _, known := v.Lookup("a-1"); return known })

	_, err = b.Cancel(t.Context(), j.ID, "berta", nil, nil)
	b.must(err)

	if j = b.end(j.ID, "Cancelled cancelled"); phases(j) !=
		"probe:done configure:cancelled appear:cancelled undo:done" {
		t.Errorf("%s: %s", phases(j), j.Message)
	}

	if restored := j.Runs[3].Hosts; !slices.Equal(restored, []string{"10.0.0.8"}) || !j.TargetResult("10.0.0.1").OK {
		t.Errorf("restored %v", restored)
	}
}

// TestDiscoverProbes: hosts that cannot be reached do not hold the others up, and
// the silent addresses of a range are skipped.
func TestDiscoverProbes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("b") // 10.0.0.2
	b.prober.results = map[string]configuration.Reach{
		"10.0.0.3": {Port: "no answer", Silent: true}, "10.0.0.9": {Port: "no ssh server answers there"},
		"10.0.0.8": {Login: "denied"},
	}

	request := func(r job.Request) job.Job {
		t.Helper()

		r.Verb = discover
		j, err := b.Submit(b.within(patience), r)
		b.must(err)
		return j
	}

	j := b.end(request(job.Request{Addrs: []string{"10.0.0.9"}}).ID, "Errored failed")
	if phases(j) != "probe:failed" || j.Message != "not reachable by ssh: 10.0.0.9: no ssh server answers there" {
		t.Errorf("%s: %s", phases(j), j.Message)
	}
	j = request(job.Request{Ranges: []string{"10.0.0.1-10.0.0.3"}})
	if !slices.Equal(j.Names(), []string{"10.0.0.1", "10.0.0.3"}) || !strings.Contains(j.Note, "10.0.0.2 (b-1)") {
		t.Errorf("%v: %s", j.Names(), j.Note)
	}

	// Seen any sooner, the node would be left out.
	b.until("the host is waited for", func(v *state.View) bool {
		j, err := v.Job(j.ID)
		return err == nil && j.Phase() == job.PhaseAppear
	})
	b.see("a")
	j = b.end(j.ID, "Complete")

	if r := j.TargetResult("10.0.0.3"); r.OK || r.Error != "skipped: no answer" || !j.TargetResult("10.0.0.1").OK {
		t.Errorf("%+v", r)
	}

	if text := b.log(
		j.ID,
		job.StreamText,
	); !strings.Contains(
		text,
		"# skipped 1 address without an answer: 10.0.0.3\n",
	) {
		t.Errorf("%q", text)
	}

	// A range of nodes has nothing to discover.
	_, err := b.Submit(t.Context(), job.Request{Verb: discover, Ranges: []string{"10.0.0.1-10.0.0.2"}})
	b.refused(err, inventory.KindRefused, "every address of the range is a node already")

	// A retry of what was skipped skips it again.
	j, err = b.Retry(t.Context(), j.ID, false, "anna", nil)
	b.must(err)

	if j = b.end(j.ID, "Errored absent"); !slices.Equal(j.Names(), []string{"10.0.0.3"}) {
		t.Errorf("%v: %s", j.Names(), j.Message)
	}
}

// TestCancelOfAProbe ends it at once.
func TestCancelOfAProbe(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.prober.hold = make(chan struct{})

	j, err := b.Submit(b.within(patience), job.Request{Verb: discover, Addrs: []string{"10.0.0.8"}})
	b.must(err)
	b.until("it probes", func(v *state.View) bool {
		j, err := v.Job(j.ID)
		return err == nil && j.Phase() == job.PhaseProbe
	})

	_, err = b.Cancel(t.Context(), j.ID, "berta", nil, nil)
	b.must(err)

	if j = b.end(j.ID, "Cancelled cancelled"); phases(j) != "probe:cancelled" || len(b.books.started()) > 0 {
		t.Errorf("%s", phases(j))
	}
}
