// SPDX-License-Identifier: Apache-2.0

package serf

import (
	"slices"
	"testing"

	"github.com/contiv/cluster/monitor"
	"github.com/contiv/cluster/monitor/serf/serftest"
)

// gossiping returns the arguments with which a stock agent has the key and joins.
func gossiping(join string, args ...string) []string {
	args = append(args, "-encrypt", testKey)
	if join != "" {
		args = append(args, "-retry-join", join)
	}
	return args
}

// tagged returns the arguments that make a stock agent this node.
func tagged(i Identity) []string { return serftest.Tags(i.Label, i.Serial, i.Addr) }

// badAddr is an address that injects an Ansible variable.
const badAddr = "10.0.0.1 ansible_connection=local"

// TestStockAgent runs members of Debian's serf beside an agent of ours.
func TestStockAgent(t *testing.T) {
	t.Parallel()
	serftest.Need(t)
	o := options(t, 110)
	obs, seen := observer(t, o)
	join := func(n int, name string, args []string) *serftest.Agent {
		return serftest.Start(t, name, at(n), gossiping(obs.Addr(), args...)...)
	}
	leaver := join(111, "leaver", tagged(node(111)))
	crasher := join(112, "crasher", tagged(node(112)))
	join(113, "untagged", []string{"-tag", "role=web"})
	join(114, "bad", serftest.Tags("node", "114", badAddr))
	join(115, "twin", serftest.Tags("node", "112", at(115)))

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

	leaver.Ask("tags", "-set", monitor.TagAddr+"="+at(119))
	eventually(t, "a change of address", func() bool { return seen.see("node-111").Addr == at(119) })

	leaver.Ask("leave")
	eventually(t, "a graceful leave", func() bool { return !seen.see("node-111").Alive })
	<-leaver.Done()
	// The word that it leaves may arrive after the word that it is gone.
	eventually(t, "it counts as left", func() bool { return obs.Stats().Left == 1 })

	crasher.Kill()
	eventually(t, "a crash of one of the twins", func() bool {
		s := seen.see("node-112")
		return s.Alive && !s.Duplicate && s.Addr == at(115)
	})

	join(111, "leaver", tagged(node(111)))
	eventually(t, "its return", func() bool { s := seen.see("node-111"); return s.Alive && s.Addr == at(111) })

	if seen.joins("node-111") != 2 {
		t.Fatalf("joined %d times", seen.joins("node-111"))
	}
}

// TestStockAgentCannotStopOurs: a stock agent with our name, which calls for a vote,
// at worst ends itself.
func TestStockAgentCannotStopOurs(t *testing.T) {
	t.Parallel()
	serftest.Need(t)
	obs, seen := observer(t, options(t, 120))
	o := options(t, 121)
	o.Join = []string{obs.Addr()}
	a := start(t, o)
	eventually(t, "ours is seen", func() bool { return seen.see("node-121").Alive })
	name := a.Name()
	rival := serftest.Start(t, name, at(122), gossiping(obs.Addr(), serftest.Tags("node", "121", at(122))...)...)
	eventually(t, "the rival is reported", func() bool { return seen.see("node-121").Duplicate })

	s := seen.see("node-121")
	if s.Addr != at(121) || !slices.Contains(s.Others, at(121)) {
		t.Fatalf("%+v", s)
	}

	eventually(t, "the rival gives up or ours takes another name", func() bool {
		select {
		case <-rival.Done():
			return true
		default:
			return a.Name() != name
		}
	})

	if a.Err() != nil || obs.Err() != nil || !seen.see("node-121").Alive {
		t.Fatal("an agent of ours was stopped")
	}
}
