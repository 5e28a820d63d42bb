// SPDX-License-Identifier: Apache-2.0

package serf

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/monitor"
	"github.com/contiv/cluster/monitor/serf/serftest"
)

func TestMain(m *testing.M) {
	runInParallel()
	os.Exit(m.Run())
}

// runInParallel raises the number of parallel tests above that of processors, since
// most tests wait, unless the command line sets it.
func runInParallel() {
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
}

var testKey = GenerateKey()

// patience bounds every wait that serftest.Eventually does not bound.
const patience = time.Minute

var eventually = serftest.Eventually

func testLog(t *testing.T) logrus.FieldLogger {
	l := logrus.New()
	l.SetOutput(io.Discard)

	if os.Getenv("GOSSIP_LOG") != "" {
		l.SetOutput(os.Stderr)
		l.SetLevel(logrus.DebugLevel)
	}

	return l.WithField("test", t.Name())
}

// recorder is a sink that keeps the last sighting of every node.
type recorder struct {
	mu      sync.Mutex
	now     map[string]monitor.Sighting
	joined  map[string]int
	first   *monitor.Report
	reports int
}

func (r *recorder) Observe(_ context.Context, rep monitor.Report) error {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.now == nil {
		r.now, r.joined = map[string]monitor.Sighting{}, map[string]int{}
		r.first = &rep
	}

	r.reports++
	if rep.Full {
		for n, s := range r.now {
			s.Alive = false
			r.now[n] = s
		}
	}

	for _, s := range rep.Sightings {
		if s.Joined {
			r.joined[s.Name()]++
		}

		r.now[s.Name()] = s
	}

	return nil
}

func (r *recorder) see(name string) monitor.Sighting {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now[name]
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reports
}

func (r *recorder) joins(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.joined[name]
}

// at is the loopback address of node n of a test.
func at(n int) string { return fmt.Sprintf("127.0.1.%d", n) }

func node(n int) Identity { return Identity{Label: "node", Serial: fmt.Sprint(n), Addr: at(n)} }

// keyFile writes a gossip key to a file.
func keyFile(t *testing.T, key string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gossip.key")
	errtest.None(t, os.WriteFile(path, []byte(key+"\n"), 0o600))
	return path
}

// options returns the options of node n.
func options(t *testing.T, n int) Options {
	return Options{
		Node: node(n), Bind: at(n) + ":0", KeyFile: keyFile(t, testKey),
		Timing: Loopback(), Log: testLog(t),
	}
}

// start starts an agent. A child process that another test forks at this moment
// shares the port and the lock of the agent that had them, until it executes its
// program.
func start(t *testing.T, o Options) *Agent {
	t.Helper()

	var a *Agent
	var err error
	eventually(t, "no child process holds the port", func() bool {
		a, err = Start(t.Context(), o)
		return err == nil || !strings.Contains(err.Error(), "in use")
	})

	errtest.None(t, err)

	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})

	return a
}

// observer starts an agent that is not a node and reports to a recorder.
func observer(t *testing.T, o Options) (*Agent, *recorder) {
	t.Helper()
	r := &recorder{}
	o.Node, o.Sinks = Identity{}, []monitor.Sink{r}
	return start(t, o), r
}

func leave(t *testing.T, a *Agent) {
	t.Helper()

	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()

	errtest.None(t, a.Leave(ctx))
}

func alone(a *Agent) bool { return a.Stats().Alive == 1 }

func TestJoinFailReturnLeave(t *testing.T) {
	t.Parallel()
	obs, seen := observer(t, options(t, 1))
	o := options(t, 2)
	o.Join, o.DataDir = []string{obs.Addr()}, t.TempDir()
	a := start(t, o)
	eventually(t, "the node is seen", func() bool { return seen.see("node-2").Alive })

	if s := seen.see("node-2"); !s.Joined || s.Addr != at(2) || s.Duplicate {
		t.Fatalf("%+v", s)
	}

	if seen.first == nil || !seen.first.Full {
		t.Fatal("the first report is not a full one")
	}

	name, addr := a.Name(), a.Addr()
	if !strings.HasPrefix(name, "node-2-") {
		t.Fatalf("name %q", name)
	}

	a.Close() // a crash
	eventually(t, "the node fails", func() bool { return !seen.see("node-2").Alive })
	o.Bind = addr

	a = start(t, o) // a boot
	if a.Name() != name {
		t.Fatalf("the name changed from %s to %s", name, a.Name())
	}

	eventually(t, "the node is back", func() bool { return seen.see("node-2").Alive })

	if seen.joins("node-2") != 2 {
		t.Fatalf("joined %d times", seen.joins("node-2"))
	}

	leave(t, a)
	eventually(t, "the node has left", func() bool { return !seen.see("node-2").Alive })

	if st := obs.Stats(); st.Left != 1 || st.Failed != 0 {
		t.Fatalf("%+v", st)
	}

	errtest.None(t, a.Err())

	// It comes back at another address.
	o.Bind, o.Node.Addr = at(3)+":0", at(3)
	a = start(t, o)
	eventually(t, "the node has a new address", func() bool {
		s := seen.see("node-2")
		return s.Alive && s.Addr == at(3) && !s.Duplicate
	})

	if a.Name() != name {
		t.Fatalf("the name changed from %s to %s", name, a.Name())
	}

	if st := obs.Stats().Observer; st.Alive != 1 || st.Nodes != 1 || st.Strangers != 1 {
		t.Fatalf("%+v", st)
	}
}

func TestCrashAndReturnAtAnotherAddress(t *testing.T) {
	t.Parallel()
	obs, seen := observer(t, options(t, 10))
	o := options(t, 11)
	o.Join, o.DataDir = []string{obs.Addr()}, t.TempDir()
	a := start(t, o)
	eventually(t, "the node is seen", func() bool { return seen.see("node-11").Alive })
	a.Close()
	o.Bind, o.Node.Addr = at(12)+":0", at(12)
	start(t, o)
	eventually(t, "the node is at its new address only", func() bool {
		s := seen.see("node-11")
		return s.Alive && s.Addr == at(12) && !s.Duplicate
	})
}

func TestDuplicateIdentity(t *testing.T) {
	t.Parallel()
	obs, seen := observer(t, options(t, 20))
	first := options(t, 21)
	first.Join = []string{obs.Addr()}
	a := start(t, first)
	eventually(t, "the first is seen", func() bool { return seen.see("node-21").Alive })

	second := options(t, 21)
	second.Node.Addr, second.Bind, second.Join = at(22), at(22)+":0", first.Join
	b := start(t, second)
	eventually(t, "the duplicate is seen", func() bool { return seen.see("node-21").Duplicate })

	s := seen.see("node-21")
	if want := []string{at(21), at(22)}; !slices.Equal(s.Others, want) || s.Addr != at(21) || s.Joined {
		t.Fatalf("%+v", s)
	}

	for _, ag := range []*Agent{a, b, obs} {
		eventually(t, "every agent sees three members", func() bool { return ag.Stats().Alive == 3 })
	}

	if a.Name() == b.Name() || a.Stats().Renames+b.Stats().Renames != 0 {
		t.Fatalf("%s, %s", a.Name(), b.Name())
	}

	leave(t, a)
	eventually(t, "the second is the only one", func() bool {
		s := seen.see("node-21")
		return s.Alive && !s.Duplicate && s.Addr == at(22)
	})
}

// TestCopiedDataDir copies the disk of a host after the first run of the agent:
// even the names in the gossip are equal.
func TestCopiedDataDir(t *testing.T) {
	t.Parallel()
	obs, seen := observer(t, options(t, 30))
	o := options(t, 31)
	o.Join, o.DataDir = []string{obs.Addr()}, t.TempDir()
	a := start(t, o)
	eventually(t, "the original is seen", func() bool { return seen.see("node-31").Alive })

	clone := o
	clone.DataDir, clone.Bind = t.TempDir(), at(32)+":0"

	b, err := os.ReadFile(filepath.Join(o.DataDir, stateFile))
	errtest.None(t, err)
	errtest.None(t, os.WriteFile(filepath.Join(clone.DataDir, stateFile), b, 0o600))

	c := start(t, clone)
	eventually(t, "the copy is reported", func() bool { return seen.see("node-31").Duplicate })
	eventually(t, "the two have different names", func() bool { return a.Name() != c.Name() })
	eventually(t, "both are members", func() bool { return obs.Stats().Alive == 3 })
	eventually(t, "both addresses are reported", func() bool {
		s := seen.see("node-31")
		return s.Duplicate && slices.Contains(s.Others, a.Addr()) && slices.Contains(s.Others, c.Addr())
	})
	leave(t, c)
	eventually(t, "one is left", func() bool {
		s := seen.see("node-31")
		return s.Alive && !s.Duplicate
	})

	errtest.None(t, a.Err())
}

// TestPartition splits four members in two halves and heals the partition.
func TestPartition(t *testing.T) {
	t.Parallel()
	obs, seen := observer(t, options(t, 40))

	var all []*Agent
	for n := 41; n <= 43; n++ {
		o := options(t, n)
		o.Join = []string{obs.Addr()}
		all = append(all, start(t, o))
	}

	allAlive := func() bool {
		return seen.see("node-41").Alive && seen.see("node-42").Alive && seen.see("node-43").Alive &&
			all[2].Stats().Alive == 4
	}
	eventually(t, "all are seen", allAlive)

	// 42 and 43 are on the far side.
	far := func(addr string) bool {
		return strings.HasPrefix(addr, at(42)+":") || strings.HasPrefix(addr, at(43)+":")
	}

	near := func(addr string) bool { return !far(addr) }
	for i, partition := range []func(string) bool{far, near, near} {
		all[i].current().net.partition.Store(&partition)
	}

	partition := far
	obs.current().net.partition.Store(&partition)
	eventually(t, "the far side fails", func() bool {
		return !seen.see("node-42").Alive && !seen.see("node-43").Alive && all[2].Stats().Failed == 2
	})

	if !seen.see("node-41").Alive || all[2].Stats().Alive != 2 {
		t.Fatal("members of one side lost each other")
	}

	for _, a := range append(all, obs) {
		a.current().net.partition.Store(nil)
	}

	eventually(t, "all are back", allAlive)

	for n, want := range map[string]int{"node-42": 2, "node-43": 2} {
		if got := seen.joins(n); got < want {
			t.Errorf("%s joined %d times, want at least %d", n, got, want)
		}
	}
}

// TestObserverRestart restarts the observer: it must report no node as gone, and
// none as joined.
func TestObserverRestart(t *testing.T) {
	t.Parallel()
	o := options(t, 50)
	o.DataDir = t.TempDir()

	obs, seen := observer(t, o)
	for n := 51; n <= 53; n++ {
		o := options(t, n)
		o.Join = []string{obs.Addr()}

		a := start(t, o)
		if n == 53 {
			eventually(t, "53 is seen", func() bool { return seen.see("node-53").Alive })
			leave(t, a)
		}
	}

	eventually(t, "all are seen", func() bool {
		return seen.see("node-51").Alive && seen.see("node-52").Alive && !seen.see("node-53").Alive
	})
	o.Bind = obs.Addr()
	obs.Close()

	obs, seen = observer(t, o) // without an address to join
	eventually(t, "a report", func() bool { return seen.see("node-51").Alive })

	if !seen.first.Full || len(seen.first.Sightings) < 2 {
		t.Fatalf("%+v", seen.first)
	}

	for _, s := range seen.first.Sightings {
		if s.Joined || !s.Alive && s.Name() != "node-53" {
			t.Errorf("%+v", s)
		}
	}

	back := options(t, 53)
	back.Join = []string{obs.Addr()}
	start(t, back)
	eventually(t, "53 is back", func() bool { return seen.joins("node-53") == 1 })
}

func TestJoinIsRetried(t *testing.T) {
	t.Parallel()
	free := start(t, options(t, 61))
	addr := free.Addr()
	free.Close()

	o := options(t, 60)
	o.Join = []string{"no-such-host.invalid:7946", addr}
	o.Timing.Grace = 50 * time.Millisecond
	obs, seen := observer(t, o) // with a short grace period, so that it reports before the late member starts
	eventually(t, "a report without members", func() bool {
		seen.mu.Lock()
		defer seen.mu.Unlock()
		return seen.reports > 0
	})

	if !alone(obs) {
		t.Fatal("the observer has other members")
	}

	late := options(t, 61)
	late.Bind = addr
	start(t, late)
	eventually(t, "the late one is found", func() bool { return seen.see("node-61").Alive })
}

func TestIPv6(t *testing.T) {
	t.Parallel()

	if c, err := net.ListenPacket("udp", "[::1]:0"); err != nil {
		t.Skipf("this machine has no IPv6: %v", err)
	} else {
		c.Close()
	}

	o := options(t, 70)
	o.Bind = "[::1]:0"
	obs, seen := observer(t, o)
	n := options(t, 71)
	n.Node.Addr, n.Bind, n.Join = "::1", "[::]:0", []string{obs.Addr()}

	a := start(t, n)
	if !strings.HasPrefix(a.Addr(), "[::1]:") {
		t.Fatalf("the agent advertises %s", a.Addr())
	}

	eventually(t, "the node is seen", func() bool { return seen.see("node-71").Alive })

	if s := seen.see("node-71"); s.Addr != "::1" {
		t.Fatalf("%+v", s)
	}

	leave(t, a)
}

func TestWrongKeyStaysOutside(t *testing.T) {
	t.Parallel()
	obs, seen := observer(t, options(t, 80))
	o := options(t, 81)
	o.KeyFile, o.Join = keyFile(t, GenerateKey()), []string{obs.Addr()}
	a := start(t, o)
	good := options(t, 82)
	good.Join = []string{obs.Addr()}
	start(t, good)
	eventually(t, "the good one is seen", func() bool { return seen.see("node-82").Alive })

	if seen.see("node-81").Alive || !alone(a) {
		t.Fatal("a member with another key has joined")
	}
}

func TestUnexpectedShutdown(t *testing.T) {
	t.Parallel()

	a, err := Start(t.Context(), options(t, 90))
	errtest.None(t, err)
	if a.Err() != nil {
		t.Fatal("the running agent has an error")
	}

	a.current().s.Shutdown()

	select {
	case <-a.Done():
	case <-time.After(patience):
		t.Fatal("the agent did not end after serf shut down")
	}

	if a.Err() == nil || a.Close() == nil {
		t.Fatal("the agent ended without an error")
	}
}

func TestLeaveIsBounded(t *testing.T) {
	t.Parallel()
	a := start(t, options(t, 95))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()

	if err := a.Leave(ctx); err == nil {
		select {
		case <-a.Done():
		default:
			t.Fatal("Leave returned before the agent had ended")
		}
	}

	errtest.None(t, a.Close())
}

func TestStartRefuses(t *testing.T) {
	t.Parallel()
	busy := options(t, 100)
	busy.DataDir = t.TempDir()
	a := start(t, busy)

	file := filepath.Join(t.TempDir(), "file")
	errtest.None(t, os.WriteFile(file, []byte("not a key"), 0o600))

	for _, c := range []struct {
		name   string
		change func(*Options)
		want   string
	}{
		{"a taken port", func(o *Options) { o.Bind = a.Addr() }, "address already in use; stop the process"},
		{"a foreign address", func(o *Options) { o.Bind = "192.0.2.1:0" }, "cannot assign"},
		{"a host name to bind to", func(o *Options) { o.Bind = "somewhere:1" }, "cannot bind"},
		{"no bind", func(o *Options) { o.Bind = "" }, "no address to bind"},
		{"a bad port", func(o *Options) { o.Bind = "127.0.0.1:99999" }, "port"},
		{"no key", func(o *Options) { o.KeyFile = "" }, "no gossip key"},
		{"a malformed key", func(o *Options) { o.KeyFile = keyFile(t, "%%%") }, "not base64"},
		{"a short key", func(o *Options) { o.KeyFile = keyFile(t, "c2hvcnQ=") }, "5 bytes"},
		{"a key file without a key", func(o *Options) { o.KeyFile = file }, file},
		{"no key file", func(o *Options) { o.KeyFile = file + "x" }, "no such file"},
		{"half an identity", func(o *Options) { o.Node.Serial = "" }, "serial number is empty"},
		{"an address that injects", func(o *Options) { o.Node.Addr = "a b" }, "not the address"},
		{"a peer without a grammar", func(o *Options) { o.Join = []string{"a b:1"} }, "not the address"},
		{"a peer at port 0", func(o *Options) { o.Join = []string{"127.0.0.1:0"} }, "port is 0"},
		{"advertising no host", func(o *Options) { o.Advertise = "0.0.0.0:1" }, "does not name one host"},
		{"a directory in use", func(o *Options) { o.DataDir = busy.DataDir }, "in use"},
		{"a file as directory", func(o *Options) { o.DataDir = file }, "directory"},
		{"no logger", func(o *Options) { o.Log = nil }, "logger"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := options(t, 101)
			c.change(&o)

			got, err := Start(t.Context(), o)
			if err == nil {
				got.Close()
				t.Fatal("the agent started")
			}

			if !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%q, want %q in it", err, c.want)
			}

			if strings.Contains(err.Error(), testKey) {
				t.Fatal("the error contains the key")
			}
		})
	}

	// A failed start releases the directory.
	dir := t.TempDir()
	o := options(t, 102)

	o.DataDir, o.Bind = dir, a.Addr()
	if _, err := Start(t.Context(), o); err == nil {
		t.Fatal("the agent started on a taken port")
	}

	o.Bind = at(102) + ":0"
	start(t, o)
}

// TestFirstNode runs the agent of the daemon's host: it reports its own node, at
// once if there is no other member to wait for.
func TestFirstNode(t *testing.T) {
	t.Parallel()
	o := options(t, 160)
	r := &recorder{}
	o.Sinks, o.Timing.Grace = []monitor.Sink{r}, time.Hour
	o.Bind = serftest.Free(t, at(160))
	o.Join = []string{o.Bind} // the same list on every host
	a := start(t, o)
	eventually(t, "the node sees itself", func() bool { return r.see("node-160").Alive })

	if s := r.see("node-160"); s.Addr != at(160) || !s.Joined || s.Duplicate {
		t.Fatalf("%+v", s)
	}

	leave(t, a)

	if s := r.see("node-160"); !s.Alive {
		t.Fatalf("its own leave is reported: %+v", s)
	}
}
