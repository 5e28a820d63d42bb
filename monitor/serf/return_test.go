// SPDX-License-Identifier: Apache-2.0

package serf

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/monitor"
)

// soon is the limit for a return to be known everywhere.
const soon = 5 * time.Second

// returning starts an observer and two nodes, of which the second leaves. Then the
// observer crashes and starts anew: it has forgotten the node that left, and the
// first node has not. It returns the options with which the second node can come back.
func returning(t *testing.T, n int) (obs *Agent, seen *recorder, stays *Agent, back Options) {
	t.Helper()

	// Without periodic exchanges, so that none of them hides the fault.
	quiet := func(n int) Options {
		o := options(t, n)
		o.DataDir, o.Timing.Sync = t.TempDir(), time.Hour
		return o
	}

	o := quiet(n)
	obs, _ = observer(t, o)

	first, back := quiet(n+1), quiet(n+2)
	first.Join, back.Join = []string{obs.Addr()}, []string{obs.Addr()}
	stays = start(t, first)
	b := start(t, back)

	for _, a := range []*Agent{obs, stays, b} {
		eventually(t, "every agent sees three members", func() bool { return a.Stats().Alive == 3 })
	}

	eventually(t, "the node has stored both others", func() bool { return len(storedPeers(t, back)) == 2 })

	back.Bind = b.Addr()
	leave(t, b)
	eventually(t, "the node has left", func() bool { return stays.Stats().Left == 1 && obs.Stats().Left == 1 })

	o.Bind = obs.Addr()
	obs.Close()
	obs, seen = observer(t, o)
	eventually(t, "the observer is back", func() bool { return seen.see(node(n + 1).Name()).Alive })

	return obs, seen, stays, back
}

// isAlive reports whether an agent sees a node as alive.
func isAlive(a *Agent, id Identity) bool {
	for _, m := range a.Members() {
		if got, err := monitor.IdentityOf(m.Tags); err == nil && got.Name() == id.Name() && m.Alive {
			return true
		}
	}

	return false
}

// storedPeers reads the members that an agent has stored.
func storedPeers(t *testing.T, o Options) []string {
	t.Helper()

	b, err := os.ReadFile(filepath.Join(o.DataDir, stateFile))
	errtest.None(t, err)

	var st state
	errtest.None(t, json.Unmarshal(b, &st))

	return st.Peers
}

// wantReturn starts the node again, and requires that all know it in time and that
// the observer does not lose it again when it hears from the member that remembers
// its end.
func wantReturn(t *testing.T, obs *Agent, seen *recorder, stays *Agent, back Options) {
	t.Helper()

	began := time.Now()
	c := start(t, back)
	name := back.Node.Name()

	eventually(t, "the node is seen", func() bool { return seen.see(name).Alive })
	eventually(t, "the other node knows of it", func() bool { return isAlive(stays, back.Node) })

	if took := time.Since(began); took > soon {
		t.Errorf("the others knew of the return after %s", took)
	}

	if _, err := obs.current().s.Join([]string{stays.Addr()}, true); err != nil {
		t.Fatal(err)
	}

	if !isAlive(obs, back.Node) || !isAlive(stays, back.Node) {
		t.Error("the node was lost again")
	}

	if n := seen.joins(name); n != 1 {
		t.Errorf("the node was reported as joined %d times", n)
	}

	if c.Stats().Alive != 3 {
		t.Errorf("the node sees %+v", c.Stats())
	}
}

// TestReturnAfterObserverCrash: a node comes back to an observer that has forgotten
// its end, while another member remembers it.
func TestReturnAfterObserverCrash(t *testing.T) {
	t.Parallel()
	obs, seen, stays, back := returning(t, 70)
	wantReturn(t, obs, seen, stays, back)
}

// TestReturnOfAForgetfulNode: the node does not know the member that remembers its
// end, as an agent of another kind or one of many members.
func TestReturnOfAForgetfulNode(t *testing.T) {
	t.Parallel()
	obs, seen, stays, back := returning(t, 75)

	path := filepath.Join(back.DataDir, stateFile)

	var st map[string]any

	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &st)
	}

	errtest.None(t, err)

	st["peers"] = nil
	if b, err = json.Marshal(st); err == nil {
		err = os.WriteFile(path, b, 0o600)
	}

	errtest.None(t, err)

	wantReturn(t, obs, seen, stays, back)
}
