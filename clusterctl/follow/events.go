// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// Recorder opens a watch, and returns the records of the past.
type Recorder interface {
	Watcher
	// History returns at most limit entries of a node, oldest first; 0: all.
	History(ctx context.Context, name string, limit int) (api.List[inventory.HistoryEntry], error)
}

// EventOptions select the changes of Events.
type EventOptions struct {
	Kinds []api.WatchKind // empty: all that the caller may read
	JSON  bool            // one JSON object per change instead of a line
	// Since, unless zero, begins with the recorded past of nodes and jobs since then.
	// It has no effect on JSON.
	Since time.Time
}

// Events prints every change as one line, or as a JSON object per line, until ctx is
// cancelled.
func Events(ctx context.Context, from Recorder, eo EventOptions, out Output) error {
	o := client.WatchOptions{Kinds: eo.Kinds}
	if len(o.Kinds) == 0 {
		o.Kinds = []api.WatchKind{api.WatchAll}
	}
	if eo.JSON {
		return each(ctx, from, o, out, func(change api.Change) error { return writeJSON(change, out) })
	}

	e := newEvents(out)

	return each(ctx, from, o, out, func(change api.Change) error {
		if change.Type == api.ChangeSync && !e.synced && !eo.Since.IsZero() {
			if err := e.showPast(ctx, from, eo.Since); err != nil {
				return err
			}
		}

		return e.show(change)
	})
}

// Nodes prints every change of the chosen nodes as one line, or as a JSON object
// per line, until ctx is cancelled.
func Nodes(ctx context.Context, from Watcher, o client.WatchOptions, asJSON bool, out Output) error {
	o.Kinds = []api.WatchKind{api.WatchNodes}
	if asJSON {
		return each(ctx, from, o, out, func(change api.Change) error { return writeJSON(change, out) })
	}

	e := newEvents(out)
	e.rest, e.kind = "", ""

	if len(o.Groups) > 0 || o.Selector != "" {
		// The wire does not distinguish the two.
		e.deleted = "no longer selected, or forgotten"
	}

	return each(ctx, from, o, out, e.show)
}

// events prints the differences between successive records of all kinds.
type events struct {
	out     Output
	nodes   map[string]api.Node
	jobs    map[string]api.Job
	objects map[string]map[string]json.RawMessage
	records map[string]json.RawMessage
	synced  bool

	rest    string // what is watched besides nodes
	kind    string // before the name of a node
	deleted string // the text for a node that left the watch
}

func newEvents(out Output) *events {
	return &events{
		out:     out,
		nodes:   map[string]api.Node{},
		jobs:    map[string]api.Job{},
		objects: map[string]map[string]json.RawMessage{},
		records: map[string]json.RawMessage{},
		rest:    " and everything else",
		kind:    "node ",
		deleted: "forgotten",
	}
}

func (e *events) show(change api.Change) error {
	p := &print.Printer{Style: e.out.Style}

	switch change.Type {
	case api.ChangePut, api.ChangeDelete:
		subject, changes, err := e.apply(p, change)
		if err != nil {
			return err
		}

		// The initial state is not a change.
		if e.synced && len(changes) > 0 {
			p.Change(time.Now(), subject, changes...)
		}
	case api.ChangeSync:
		// A second sync follows an outage.
		if !e.synced {
			e.out.Say("watching %s%s; press Ctrl-C to stop", inventory.Count(len(e.nodes), "node", "nodes"), e.rest)
		}

		e.synced = true
	}

	return e.out.Write(p.Bytes())
}

// apply takes a change, and returns its subject and the differences in words.
func (e *events) apply(p *print.Printer, change api.Change) (subject string, changes []string, err error) {
	switch change.Kind {
	case api.WatchNodes:
		changes, err = e.node(p, change)
		return e.kind + change.Name, changes, err
	case api.WatchJobs:
		changes, err = e.job(p, change)
		return "job " + change.Name, changes, err
	}

	// A later manager may have further kinds: they are shown as well.
	subject = strings.TrimSpace(string(change.Kind) + " " + change.Name)

	if change.Kind == api.WatchVars || change.Kind == api.WatchConfig {
		changes, err = e.object(change)
	} else {
		changes, err = e.record(p, subject, change)
	}

	return subject, changes, err
}

// record returns the differences between two objects of any kind.
func (e *events) record(p *print.Printer, subject string, change api.Change) ([]string, error) {
	before, exists := e.records[subject]
	if change.Type == api.ChangeDelete {
		delete(e.records, subject)
		return []string{p.Paint.Bad("removed")}, nil
	}

	e.records[subject] = change.Object

	changes, err := print.Differences(before, change.Object)
	if err != nil {
		return nil, fmt.Errorf("the change of %s is malformed: %w", subject, err)
	}
	if !exists {
		changes = append([]string{"new"}, changes...)
	}

	return changes, nil
}

func (e *events) node(p *print.Printer, change api.Change) ([]string, error) {
	before, exists := e.nodes[change.Name]
	if change.Type == api.ChangeDelete {
		delete(e.nodes, change.Name)
		return []string{p.Paint.Bad(e.deleted)}, nil
	}

	now, err := change.Node()
	if err != nil {
		return nil, err
	}
	e.nodes[change.Name] = now
	changes := p.NodeChanges(before, now)

	if !exists {
		changes = append([]string{"new"}, changes...)
	}

	return changes, nil
}

func (e *events) job(p *print.Printer, change api.Change) ([]string, error) {
	before, exists := e.jobs[change.Name]
	if change.Type == api.ChangeDelete {
		delete(e.jobs, change.Name)
		return []string{"removed by retention"}, nil
	}

	now, err := change.Job()
	if err != nil {
		return nil, err
	}
	e.jobs[change.Name] = now

	var changes []string
	if !exists {
		changes = append(changes, print.Title(now), "accepted for "+print.Line(now.Actor))
	}

	if before.Status != now.Status {
		changes = append(changes, p.Paint.Job(now.Status))
	}

	if before.Phase != now.Phase && now.Phase != "" && !now.Status.Ended() {
		changes = append(changes, print.Line(now.Phase))
	}

	if before.Cancel != now.Cancel && now.Cancel > 0 {
		changes = append(changes, "cancel requested")
	}

	if now.Status.Ended() && !before.Status.Ended() && now.Message != "" {
		changes = append(changes, print.Line(now.Message))
	}

	return changes, nil
}

// object names the keys that a change of variables or configuration sets and
// removes. Their values may be secret.
func (e *events) object(change api.Change) ([]string, error) {
	key := string(change.Kind) + " " + change.Name
	before := e.objects[key]

	now := map[string]json.RawMessage{}
	if change.Type == api.ChangePut {
		if err := json.Unmarshal(change.Object, &now); err != nil {
			return nil, fmt.Errorf("the change of %s is malformed: %w", key, err)
		}
	}

	e.objects[key] = now

	var set, unset []string

	for _, name := range slices.Sorted(maps.Keys(now)) {
		if !bytes.Equal(before[name], now[name]) {
			set = append(set, name)
		}
	}

	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, kept := now[name]; !kept {
			unset = append(unset, name)
		}
	}

	var changes []string
	if len(set) > 0 {
		changes = append(changes, "set "+print.List(set))
	}

	if len(unset) > 0 {
		changes = append(changes, "unset "+print.List(unset))
	}

	return changes, nil
}
