// SPDX-License-Identifier: Apache-2.0

package serf

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/contiv/cluster/monitor"
	"github.com/contiv/cluster/monitor/serf/serftest"
)

// slow is Loopback with more time for a stock agent.
func slow() Timing {
	t := Loopback()
	t.Alone, t.Answer, t.Ping = time.Minute, 5*time.Second, time.Second
	return t
}

// TestLive watches Debian's serf while its members, and the agent itself, come and go.
func TestLive(t *testing.T) {
	serftest.NeedLab(t)
	t.Parallel()
	hub := serftest.Start(t, "hub", at(200), gossiping("")...)
	join := func(n int, name string, args []string) *serftest.Agent {
		return serftest.Start(t, name, at(n), gossiping(hub.Bound, args...)...)
	}
	leaver := join(201, "leaver", tagged(node(201)))
	crasher := join(202, "crasher", tagged(node(202)))
	mover := join(203, "mover", tagged(node(203)))
	join(204, "untagged", []string{"-tag", "role=web"})
	join(205, "bad", serftest.Tags("node", "205", badAddr))

	r, seen := watchIt(t, hub.RPC, func(o *RemoteOptions) { o.Timing = slow() })
	eventually(t, "three nodes are seen", func() bool {
		return seen.see("node-201").Alive && seen.see("node-202").Alive && seen.see("node-203").Alive
	})
	eventually(
		t,
		"the others are members",
		func() bool { s := r.Stats().Observer; return s.Members == 6 && s.Nodes == 3 && s.Strangers == 3 },
	)

	if s, err := r.Self(); err != nil || s.Addr != hub.Bound || !s.Encrypted || s.Node != (Identity{}) {
		t.Errorf("%+v, %v", s, err)
	}

	moved := at(209)
	mover.Ask("tags", "-set", monitor.TagAddr+"="+moved)
	leaver.Ask("leave")
	crasher.Kill()
	eventually(t, "a change of address", func() bool { return seen.see("node-203").Addr == moved })
	eventually(t, "a graceful leave", func() bool { return !seen.see("node-201").Alive })
	eventually(t, "a crash", func() bool { return !seen.see("node-202").Alive })

	if !seen.see("node-203").Alive {
		t.Error("another node disappeared")
	}

	// Kill the agent. Meanwhile one node goes and another one comes back.
	hub.Kill()
	eventually(t, "the agent is disconnected", func() bool { return r.Err() != nil })

	if !seen.see("node-203").Alive {
		t.Error("a node disappeared with the agent")
	}

	mover.Kill()
	crasher.Restart()
	reports := seen.count()
	hub.Restart()
	eventually(t, "the agent is connected", func() bool { return r.Err() == nil })
	eventually(t, "the changes meanwhile are seen", func() bool {
		return seen.see("node-202").Alive && !seen.see("node-203").Alive
	})

	if seen.count() == reports {
		t.Error("no report came after the reconnect")
	}
}

// TestLiveSilence stops the agent with SIGSTOP: the watch detects it, and catches up
// with all changes after SIGCONT.
func TestLiveSilence(t *testing.T) {
	serftest.NeedLab(t)
	t.Parallel()
	hub := serftest.Start(t, "hub", at(210), gossiping("", tagged(node(210))...)...)
	other := serftest.Start(t, "other", at(211), gossiping(hub.Bound, tagged(node(211))...)...)
	quick := slow()
	quick.Answer = time.Second
	r, seen := watchIt(t, hub.RPC, func(o *RemoteOptions) { o.Timing = quick })
	eventually(t, "both are seen", func() bool { return seen.see("node-210").Alive && seen.see("node-211").Alive })

	hub.Signal(syscall.SIGSTOP)
	defer hub.Signal(syscall.SIGCONT)
	eventually(t, "the silence is detected", func() bool { return r.Err() != nil })
	other.Ask("leave")
	hub.Signal(syscall.SIGCONT)
	eventually(t, "the agent is connected again", func() bool {
		// serf may crash when it has an event for a client that has just left ("send on closed channel").
		select {
		case <-hub.Done():
			hub.Restart()
		default:
		}

		return r.Err() == nil
	})
	eventually(t, "the leave is seen", func() bool { return !seen.see("node-211").Alive && seen.see("node-210").Alive })
}

// TestLiveKey watches an agent with the right RPC key, a wrong one and none.
func TestLiveKey(t *testing.T) {
	serftest.NeedLab(t)
	t.Parallel()
	config := writeFile(t, `{"rpc_auth": "open sesame"}`)
	hub := serftest.Start(t, "hub", at(220), gossiping("", append(tagged(node(220)), "-config-file", config)...)...)
	serftest.Start(t, "other", at(221), gossiping(hub.Bound, tagged(node(221))...)...)

	errors := map[string]string{"open sesame": "", "wrong": "it refuses the key", "": "it requires a key"}
	for key, words := range errors {
		file := ""
		if key != "" {
			file = writeFile(t, key+"\n")
		}
		r, seen := watchIt(t, hub.RPC, func(o *RemoteOptions) { o.Timing, o.AuthFile = slow(), file })
		if words == "" {
			eventually(t, "the right key", func() bool { return r.Err() == nil && seen.see("node-221").Alive })
			continue
		}

		eventually(t, words, func() bool { err := r.Err(); return err != nil && strings.Contains(err.Error(), words) })

		if seen.count() != 0 {
			t.Errorf("%s: %d reports", words, seen.count())
		}
	}
}

// TestLiveMany starts many members at once.
func TestLiveMany(t *testing.T) {
	serftest.NeedLab(t)
	t.Parallel()
	hub := serftest.Start(t, "hub", at(230), gossiping("")...)
	r, seen := watchIt(t, hub.RPC, func(o *RemoteOptions) { o.Timing = slow() })

	const n = 12
	for i := range n {
		o := options(t, 231)
		o.Node.Serial, o.Join = fmt.Sprint(300+i), []string{hub.Bound}
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
	eventually(t, "all are seen", func() bool { return len(missing()) == 0 && r.Stats().Observer.Pending == 0 })
}
