// SPDX-License-Identifier: Apache-2.0

package serf

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/monitor"
)

// stock is a serf agent of the distribution.
type stock struct {
	t    *testing.T
	rpc  string
	cmd  *exec.Cmd
	done chan struct{}
}

// freePort is a port that is free on an address at the moment.
func freePort(t *testing.T, ip string) string {
	t.Helper()
	// Not one of those that the kernel gives to outgoing connections (32768 and
	// up, ip(7)): one of them could take it before it is listened on.
	for range 100 {
		addr := fmt.Sprintf("%s:%d", ip, 20000+rand.IntN(12000))
		l, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		l.Close()
		p, err := net.ListenPacket("udp", addr)
		if err != nil {
			continue
		}
		p.Close()
		return addr
	}
	t.Fatalf("no port is free on %s", ip)
	return ""
}

func startStock(t *testing.T, n int, name, join string, tags map[string]string) *stock {
	t.Helper()
	s := &stock{t: t, rpc: freePort(t, at(n)), done: make(chan struct{})}
	args := []string{"agent", "-node", name, "-bind", freePort(t, at(n)), "-rpc-addr", s.rpc,
		"-encrypt", testKey, "-retry-join", join, "-retry-interval", "1s", "-profile", "local", "-log-level", "debug"}
	for k, v := range tags {
		args = append(args, "-tag", k+"="+v)
	}
	s.cmd = exec.Command("serf", args...)
	if os.Getenv("GOSSIP_LOG") != "" {
		s.cmd.Stdout, s.cmd.Stderr = os.Stderr, os.Stderr
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.done)
		s.cmd.Wait() // how it ends does not matter
	}()
	t.Cleanup(s.kill)
	return s
}

func (s *stock) kill() {
	s.cmd.Process.Kill() // fails where it has ended
	<-s.done
}

func (s *stock) ask(args ...string) {
	s.t.Helper()
	args = slices.Insert(args, 1, "-rpc-addr="+s.rpc)
	if out, err := exec.Command("serf", args...).CombinedOutput(); err != nil {
		s.t.Fatalf("serf %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// TestStockAgent lives with Debian's serf.
func TestStockAgent(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("serf"); err != nil {
		t.Skipf("the distribution's serf is not installed: %v", err)
	}
	o := options(t, 110)
	obs, seen := observer(t, o)
	leaver := startStock(t, 111, "leaver", obs.Addr(), node(111).Tags())
	crasher := startStock(t, 112, "crasher", obs.Addr(), node(112).Tags())
	startStock(t, 113, "untagged", obs.Addr(), map[string]string{"role": "web"})
	bad := node(114).Tags()
	bad[monitor.TagAddr] = "10.0.0.1 ansible_connection=local"
	startStock(t, 114, "bad", obs.Addr(), bad)
	startStock(t, 115, "twin", obs.Addr(), Identity{Label: "node", Serial: "112", Addr: at(115)}.Tags())

	eventually(t, "all stock agents are members", func() bool {
		st := obs.Stats()
		return st.Alive == 6 && st.Observer.Nodes == 2 && st.Observer.Strangers == 3
	})
	eventually(t, "they are seen", func() bool { return seen.see("node-111").Alive && seen.see("node-112").Duplicate })
	if s := seen.see("node-111"); !s.Joined || s.Addr != at(111) || s.Duplicate {
		t.Fatalf("%+v", s)
	}
	if s := seen.see("node-112"); !slices.Equal(s.Others, []string{at(112), at(115)}) {
		t.Fatalf("%+v", s)
	}

	leaver.ask("tags", "-set", fmt.Sprintf("%s=%s", monitor.TagAddr, at(119)))
	eventually(t, "a change of address", func() bool { return seen.see("node-111").Addr == at(119) })

	crasher.kill()
	leaver.ask("leave")
	eventually(t, "a crash of one of the twins", func() bool {
		s := seen.see("node-112")
		return s.Alive && !s.Duplicate && s.Addr == at(115)
	})
	eventually(t, "a graceful leave", func() bool { return !seen.see("node-111").Alive })
	<-leaver.done
	if st := obs.Stats(); st.Left != 1 {
		t.Fatalf("%+v", st)
	}

	startStock(t, 111, "leaver", obs.Addr(), node(111).Tags())
	eventually(t, "its return", func() bool { s := seen.see("node-111"); return s.Alive && s.Addr == at(111) })
	if seen.joins("node-111") != 2 {
		t.Fatalf("joined %d times", seen.joins("node-111"))
	}
}

// TestStockAgentStopsNobody: a stock agent that has our name and calls for a vote
// ends itself at worst.
func TestStockAgentStopsNobody(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("serf"); err != nil {
		t.Skipf("the distribution's serf is not installed: %v", err)
	}
	obs, seen := observer(t, options(t, 120))
	o := options(t, 121)
	o.Join = []string{obs.Addr()}
	a := start(t, o)
	eventually(t, "ours is seen", func() bool { return seen.see("node-121").Alive })
	name := a.Name()
	rival := startStock(t, 122, name, obs.Addr(), Identity{Label: "node", Serial: "121", Addr: at(122)}.Tags())
	eventually(t, "the rival is reported", func() bool { return seen.see("node-121").Duplicate })
	s := seen.see("node-121")
	if s.Addr != at(121) || !slices.Contains(s.Others, at(121)) {
		t.Fatalf("%+v", s)
	}
	eventually(t, "the rival gives up or ours takes another name", func() bool {
		select {
		case <-rival.done:
			return true
		default:
			return a.Name() != name
		}
	})
	if a.Err() != nil || obs.Err() != nil || !seen.see("node-121").Alive {
		t.Fatal("somebody was stopped")
	}
}
