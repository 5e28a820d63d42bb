// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"encoding/json"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// recordedPast is a manager with a state, histories and no later change.
type recordedPast struct {
	t         *testing.T
	state     []api.Change
	histories map[string][]inventory.HistoryEntry
}

func (m recordedPast) Watch(context.Context, client.WatchOptions) iter.Seq2[api.Change, error] {
	return func(yield func(api.Change, error) bool) {
		for _, change := range append(m.state, api.Change{Type: api.ChangeSync}) {
			if !yield(change, nil) {
				return
			}
		}
	}
}

func (m recordedPast) History(_ context.Context, name string, _ int) (out api.List[inventory.HistoryEntry], err error) {
	entries, exists := m.histories[name]
	if !exists {
		return out, inventory.Errorf(inventory.KindNotFound, "there is no node %s", name)
	}
	out.Items = entries
	return out, nil
}

func (m *recordedPast) put(kind api.WatchKind, name string, object any) {
	raw, err := json.Marshal(object)
	errtest.None(m.t, err)
	m.state = append(m.state, api.Change{Type: api.ChangePut, Kind: kind, Name: name, Object: raw})
}

// TestEventsSince prints the recorded changes since a time in their order, and each
// once: an entry after the initial state comes from the watch.
func TestEventsSince(t *testing.T) {
	t.Parallel()

	at := func(minute int) time.Time { return time.Date(2026, 1, 2, 15, minute, 0, 0, time.Local) }
	started, ended := at(3), at(5)

	m := &recordedPast{t: t, histories: map[string][]inventory.HistoryEntry{
		"a-1": {
			{Seq: 1, Time: at(1), Verb: inventory.VerbDiscovered, To: inventory.Unallocated},
			{
				Seq: 2, Time: at(4), Verb: inventory.VerbCommission, Actor: "eve\x1b[31m", Job: "1",
				From: inventory.Provisioning, To: inventory.Allocated,
			},
			{Seq: 3, Time: at(6), Verb: inventory.VerbUpdate, To: inventory.Maintenance},
		},
		"old-1": {{Seq: 1, Time: at(9), Verb: inventory.VerbClear, To: inventory.Unallocated}},
	}}
	m.put(api.WatchNodes, "a-1", api.Node{Name: "a-1", Entries: 2, Updated: at(4)})
	m.put(api.WatchNodes, "old-1", api.Node{Name: "old-1", Entries: 1, Updated: at(1)})
	m.put(api.WatchNodes, "forgotten-1", api.Node{Name: "forgotten-1", Updated: at(4)})
	m.put(api.WatchJobs, "1", api.Job{
		ID: "1", Verb: inventory.VerbCommission, Nodes: []string{"a-1"}, Actor: "eve", Status: api.Errored,
		Message: "no room", Accepted: at(1), Started: &started, Ended: &ended,
	})

	var got strings.Builder

	out := Output{Write: func(b []byte) error { got.Write(b); return nil }, Say: func(string, ...any) {}}

	errtest.None(t, Events(t.Context(), m, EventOptions{Since: at(2)}, out))

	lines := strings.Split(strings.TrimSpace(got.String()), "\n")
	for i, want := range []string{
		"2026-01-02 15:03:00  job 1  Running",
		"2026-01-02 15:04:00  node a-1  commission; status Provisioning → Allocated; job 1; by eve",
		"2026-01-02 15:05:00  job 1  Errored; no room",
	} {
		if i >= len(lines) || !strings.HasPrefix(lines[i], want) {
			t.Errorf("line %d is not %q:\n%s", i, want, &got)
		}
	}

	if len(lines) != 3 || strings.Contains(got.String(), "\x1b") {
		t.Errorf("the output is not three lines without control characters:\n%q", &got)
	}
}
