// SPDX-License-Identifier: Apache-2.0

package serf

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/contiv/cluster/monitor"
)

// needSerf skips what waits for a real serf, which takes some seconds to find a
// member dead.
func needSerf(t *testing.T) {
	t.Helper()
	if os.Getenv("CLUSTERM_LAB") != "1" {
		t.Skip("waits for the real serf; set CLUSTERM_LAB=1, as make system does")
	}
	if _, err := exec.LookPath("serf"); err != nil {
		t.Skipf("the distribution's serf is not installed: %v", err)
	}
}

// await is eventually for things that a real serf does.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	began := time.Now()
	deadline := time.NewTimer(90 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			t.Fatalf("waited for: %s", what)
		case <-tick.C:
		}
	}
	t.Logf("%s: after %v", what, time.Since(began).Round(10*time.Millisecond))
}

// live is an agent of the distribution's serf that can be ended and started
// again at the same addresses.
type live struct {
	t          *testing.T
	dir        string
	rpc, bound string
	args       []string
	log        string // what it says
	cmd        *exec.Cmd
	done       chan struct{}
}

func liveAgent(t *testing.T, n int, name, join, config string, tags map[string]string) *live {
	t.Helper()
	a := &live{t: t, dir: t.TempDir(), rpc: freePort(t, at(n)), bound: freePort(t, at(n))}
	log := filepath.Join(a.dir, "log")
	t.Cleanup(func() {
		if text, _ := os.ReadFile(log); t.Failed() {
			t.Logf("%s at %s said:\n%s", name, a.bound, text)
		}
	})
	path := filepath.Join(a.dir, "serf.json")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	a.args = []string{"agent", "-node", name, "-bind", a.bound, "-rpc-addr", a.rpc, "-encrypt", testKey,
		"-profile", "local", "-config-file", path, "-retry-interval", "1s", "-log-level", "debug"}
	a.log = log
	if join != "" {
		a.args = append(a.args, "-retry-join", join)
	}
	for k, v := range tags {
		a.args = append(a.args, "-tag", k+"="+v)
	}
	a.start()
	t.Cleanup(func() { a.end(syscall.SIGKILL) })
	return a
}

func (a *live) start() {
	a.t.Helper()
	a.cmd, a.done = exec.Command("serf", a.args...), make(chan struct{})
	log, err := os.OpenFile(a.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		a.t.Fatal(err)
	}
	defer log.Close()
	a.cmd.Stdout, a.cmd.Stderr = log, log
	if err = a.cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	cmd, done := a.cmd, a.done
	go func() {
		defer close(done)
		cmd.Wait() // how it ends does not matter
	}()
}

// end sends the signal and waits until the agent has ended.
func (a *live) end(s syscall.Signal) {
	a.cmd.Process.Signal(s) // fails where it has ended
	<-a.done
}

func (a *live) ask(args ...string) {
	a.t.Helper()
	words := append([]string{args[0], "-rpc-addr=" + a.rpc}, args[1:]...)
	if out, err := exec.Command("serf", words...).CombinedOutput(); err != nil {
		a.t.Fatalf("serf %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// slow is the timing of the loopback for a peer that is not so quick.
func slow() Timing {
	t := Loopback()
	t.Alone, t.Answer, t.Ping = time.Minute, 5*time.Second, time.Second
	return t
}

// TestLive watches Debian's serf through a life of its members and of its own.
func TestLive(t *testing.T) {
	needSerf(t)
	t.Parallel()
	hub := liveAgent(t, 200, "hub", "", "{}", nil)
	leaver := liveAgent(t, 201, "leaver", hub.bound, "{}", node(201).Tags())
	crasher := liveAgent(t, 202, "crasher", hub.bound, "{}", node(202).Tags())
	mover := liveAgent(t, 203, "mover", hub.bound, "{}", node(203).Tags())
	liveAgent(t, 204, "untagged", hub.bound, "{}", map[string]string{"role": "web"})
	bad := node(205).Tags()
	bad[monitor.TagAddr] = "10.0.0.1 ansible_connection=local"
	liveAgent(t, 205, "bad", hub.bound, "{}", bad)

	r, seen := watchIt(t, hub.rpc, func(o *RemoteOptions) { o.Timing = slow() })
	await(t, "three nodes are seen", func() bool {
		return seen.see("node-201").Alive && seen.see("node-202").Alive && seen.see("node-203").Alive
	})
	await(t, "the others are members", func() bool { s := r.Stats().Observer; return s.Members == 6 && s.Nodes == 3 && s.Strangers == 3 })
	if s, err := r.Self(); err != nil || s.Addr != hub.bound || !s.Encrypted || s.Node != (Identity{}) {
		t.Errorf("%+v, %v", s, err)
	}

	moved := at(209)
	mover.ask("tags", "-set", monitor.TagAddr+"="+moved)
	leaver.ask("leave")
	crasher.end(syscall.SIGKILL)
	await(t, "a change of address", func() bool { return seen.see("node-203").Addr == moved })
	await(t, "a graceful leave", func() bool { return !seen.see("node-201").Alive })
	await(t, "a crash", func() bool { return !seen.see("node-202").Alive })
	if !seen.see("node-203").Alive {
		t.Error("another node disappeared")
	}

	// The agent is killed. One node goes and another comes back meanwhile.
	hub.end(syscall.SIGKILL)
	await(t, "the agent is missed", func() bool { return r.Err() != nil })
	if !seen.see("node-203").Alive {
		t.Error("a node disappeared with the agent")
	}
	mover.end(syscall.SIGKILL)
	crasher.start()
	reports := seen.count()
	hub.start()
	await(t, "the agent is back", func() bool { return r.Err() == nil })
	await(t, "what happened meanwhile is seen", func() bool {
		return seen.see("node-202").Alive && !seen.see("node-203").Alive
	})
	if seen.count() == reports {
		t.Error("nothing was reported")
	}
}

// TestLiveSilence: an agent that is stopped in its tracks is noticed, and what
// happened by the time it goes on is seen.
func TestLiveSilence(t *testing.T) {
	needSerf(t)
	t.Parallel()
	hub := liveAgent(t, 210, "hub", "", "{}", node(210).Tags())
	other := liveAgent(t, 211, "other", hub.bound, "{}", node(211).Tags())
	quick := slow()
	quick.Answer = time.Second
	r, seen := watchIt(t, hub.rpc, func(o *RemoteOptions) { o.Timing = quick })
	await(t, "both are seen", func() bool { return seen.see("node-210").Alive && seen.see("node-211").Alive })
	hub.cmd.Process.Signal(syscall.SIGSTOP)
	defer hub.cmd.Process.Signal(syscall.SIGCONT)
	await(t, "the silence is noticed", func() bool { return r.Err() != nil })
	other.ask("leave")
	hub.cmd.Process.Signal(syscall.SIGCONT)
	await(t, "it is watched again", func() bool { return r.Err() == nil })
	await(t, "the leave is seen", func() bool { return !seen.see("node-211").Alive && seen.see("node-210").Alive })
}

// TestLiveKey: the key of the RPC is right, wrong, missing.
func TestLiveKey(t *testing.T) {
	needSerf(t)
	t.Parallel()
	hub := liveAgent(t, 220, "hub", "", `{"rpc_auth": "open sesame"}`, node(220).Tags())
	liveAgent(t, 221, "other", hub.bound, "{}", node(221).Tags())
	for key, words := range map[string]string{"open sesame": "", "wrong": "it refuses the key", "": "it wants a key"} {
		file := ""
		if key != "" {
			file = writeFile(t, key+"\n")
		}
		r, seen := watchIt(t, hub.rpc, func(o *RemoteOptions) { o.Timing, o.AuthFile = slow(), file })
		if words == "" {
			await(t, "the right key", func() bool { return r.Err() == nil && seen.see("node-221").Alive })
			continue
		}
		await(t, words, func() bool { err := r.Err(); return err != nil && strings.Contains(err.Error(), words) })
		if seen.count() != 0 {
			t.Errorf("%s: %d reports", words, seen.count())
		}
	}
}

// TestLiveMany: changes come faster than anybody looks.
func TestLiveMany(t *testing.T) {
	needSerf(t)
	t.Parallel()
	hub := liveAgent(t, 230, "hub", "", "{}", nil)
	r, seen := watchIt(t, hub.rpc, func(o *RemoteOptions) { o.Timing = slow() })
	const n = 12
	for i := range n {
		o := options(t, 231)
		o.Node.Serial, o.Join = fmt.Sprint(300+i), []string{hub.bound}
		start(t, o)
	}
	missing := func() (names []string) {
		for i := range n {
			if name := fmt.Sprint("node-", 300+i); !seen.see(name).Alive {
				names = append(names, name)
			}
		}
		return names
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("missing: %v; %v; %+v", missing(), r.Err(), r.Stats())
		}
	})
	await(t, "all are seen", func() bool { return len(missing()) == 0 && r.Stats().Observer.Pending == 0 })
}
