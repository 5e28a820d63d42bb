// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/node"
)

// life is a store with the history of its only node.
type life struct {
	*memory
	n       inventory.Node
	history []inventory.HistoryEntry
	reads   int
	onRead  func() // before an answer; nil: nothing
}

func (l *life) History(_ context.Context, name string, limit int) ([]inventory.HistoryEntry, error) {
	if l.reads++; l.onRead != nil {
		l.onRead()
	}
	if name != l.n.Name || limit < 1 {
		panic(name)
	}
	return l.history[max(0, len(l.history)-limit):], nil
}

// show puts the node into the view, as it is now.
func (l *life) show() {
	l.mu.Lock()
	defer l.mu.Unlock()

	n := l.n.Clone()
	l.nodes[n.Name] = &n
}

// write sets the node with an entry of its history.
func (l *life) write(n inventory.Node, e inventory.HistoryEntry) {
	l.n, l.history = n, append(l.history, e)
}

func (l *life) hold(v inventory.Verb) {
	row, _ := inventory.TransitionOf(v)
	n, e, err := l.n.Hold(row, "", inventory.Trigger{Job: "1"})
	if err != nil {
		panic(err)
	}
	l.write(n, e)
}

func (l *life) release(to inventory.Status) {
	l.write(l.n.Release(inventory.Outcome{Status: to}, inventory.Trigger{Job: "1"}))
}

// raw writes the status past the manager.
func (l *life) raw(to inventory.Status) { l.n = l.n.Clone(); l.n.Status = to }

// TestJudge: what happens between two views is judged by the history, and each violation counts once.
func TestJudge(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		do    func(l *life, show func())
		want  int
		reads int
		text  string // of the warning
	}{
		"each change seen": {do: func(l *life, show func()) {
			l.hold(inventory.VerbCommission)
			show()
			l.release(inventory.Allocated)
			show()
			l.hold(inventory.VerbVerify)
			show()
			l.release(inventory.Allocated)
			show()
		}},
		"a whole life between two views": {reads: 1, do: func(l *life, show func()) {
			l.hold(inventory.VerbCommission)
			l.release(inventory.Allocated)
			l.hold(inventory.VerbUpdate)
			l.release(inventory.Quarantined)
			l.hold(inventory.VerbDecommission)
			l.release(inventory.Decommissioned)
			show()
		}},
		"a claim in two writes": {reads: 1, do: func(l *life, show func()) {
			// Before its commit, the view shows the node without the reservation.
			held := l.n
			l.hold(inventory.VerbCommission)
			held, l.n = l.n, held
			l.n.Entries = held.Entries
			show()
			l.n = held
			l.release(inventory.Allocated)
			show()
		}},
		"changed while it is judged": {reads: 2, do: func(l *life, show func()) {
			l.onRead = func() {
				l.onRead = nil
				l.hold(inventory.VerbDecommission)
				l.show()
			}
			l.hold(inventory.VerbCommission)
			l.release(inventory.Allocated)
			show()
			show()
		}},
		"forgotten, and registered anew": {do: func(l *life, show func()) {
			l.hold(inventory.VerbCommission)
			show()

			n, e := inventory.Enroll(l.n.Name, "127.0.0.1", nil, inventory.Trigger{Time: l.n.Created.Add(time.Hour)})
			l.n, l.history = n, []inventory.HistoryEntry{e}
			show()
		}},
		"without an entry": {want: 1, reads: 1, text: `"Unallocated" to "Allocated"`, do: func(l *life, show func()) {
			l.raw(inventory.Allocated)
			show()
			show()
		}},
		"with an entry": {want: 1, reads: 1, text: "Unallocated to Decommissioned by commission",
			do: func(l *life, show func()) {
				l.hold(inventory.VerbCommission)
				n := l.n.Clone()
				n.Status, n.Verb, n.Entries = inventory.Decommissioned, "", n.Entries+1
				l.history = l.history[:len(l.history)-1]
				l.write(n, inventory.HistoryEntry{
					Seq: n.Entries, Verb: inventory.VerbCommission, From: inventory.Unallocated, To: n.Status,
				})
				show()
			}},
		"between legal ones": {want: 1, reads: 1, text: "Allocated to Unallocated by update",
			do: func(l *life, show func()) {
				l.hold(inventory.VerbCommission)
				l.release(inventory.Allocated)
				n := l.n.Clone()
				n.Status, n.Entries = inventory.Unallocated, n.Entries+1
				l.write(n, inventory.HistoryEntry{
					Seq: n.Entries, Verb: inventory.VerbUpdate, From: inventory.Allocated, To: n.Status,
				})
				l.hold(inventory.VerbCommission)
				l.release(inventory.Allocated)
				show()
			}},
		"from one job into another": {want: 1, reads: 1, text: "Provisioning", do: func(l *life, show func()) {
			l.hold(inventory.VerbCommission)
			show()
			l.raw(inventory.Maintenance)
			l.n.Verb = inventory.VerbUpdate
			show()
		}},
		"a new node in service": {want: 1, reads: 1, text: `"Allocated"`, do: func(l *life, show func()) {
			l.n = inventory.Node{Name: "b-1", Status: inventory.Allocated}
			l.history = nil
			show()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n, e := inventory.NewNode(
					inventory.Observation{Observer: "x", Label: "a", Serial: "1", Alive: true}, nil, time.Now())
				l := &life{memory: newMemory(), n: n, history: []inventory.HistoryEntry{e}}
				l.show()

				log := logrus.New()
				log.SetOutput(io.Discard)

				judge := node.NewJudge(l, l, log)
				judge.Start(t.Context())
				synctest.Wait()

				c.do(l, func() {
					l.show()
					judge.Kick()
					time.Sleep(time.Minute)
					synctest.Wait()
				})
				judge.Stop()

				count, warning := judge.Violations(), judge.Warning()
				if count != c.want || l.reads != c.reads || (warning == "") != (c.want == 0) ||
					!strings.Contains(warning, c.text) {
					t.Errorf("%d violations in %d readings: %q", count, l.reads, warning)
				}
			})
		})
	}
}
