// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/control"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// judgePace is the shortest time between two looks at the changes of all nodes.
const judgePace = time.Second

// A Judge compares every change of the status of a node with the lifecycle table, whichever instance made it. A
// violation is a fault of clusterm, or a write past it: the Judge counts and logs it, and mends nothing.
type Judge struct {
	*control.Loop

	state   state.Reader
	history func(ctx context.Context, node string, limit int) ([]inventory.HistoryEntry, error)
	log     logrus.FieldLogger

	// Of the round alone.
	seen *state.View                // the changes up to it are judged, but for those of open
	open map[string]*inventory.Node // the records of the nodes up to which their changes are judged

	mu         sync.Mutex
	violations int
	last       string // violation
}

// NewJudge returns a Judge, which begins with the state at the start of its loop.
func NewJudge(reader state.Reader, store Store, log logrus.FieldLogger) *Judge {
	j := &Judge{state: reader, history: store.History, log: log, open: map[string]*inventory.Node{}}
	j.Loop = control.New(control.Options{
		Name:    "watch of the lifecycle",
		Changed: reader.Changed,
		Pace:    judgePace,
		Backoff: judgePace,
		Every:   time.Minute,
		Round:   j.round,
		Trouble: "changes of nodes could not be compared with the lifecycle; retrying",
		Logger:  log,
	})

	return j
}

// Violations returns the number of violations since the start.
func (j *Judge) Violations() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.violations
}

// Warning returns a warning if there was a violation since the start, or "".
func (j *Judge) Warning() string {
	j.mu.Lock()
	defer j.mu.Unlock()

	if j.violations == 0 {
		return ""
	}

	return fmt.Sprintf("%d changes of status broke the lifecycle since the start, the last one of %s; "+
		"compare the history of the node with its host, and report it", j.violations, j.last)
}

// round judges the changes since the former one. What lies between the two views is in the history of a node.
func (j *Judge) round(ctx context.Context) (next control.Next, err error) {
	v := j.state.View()

	// The commit of a job changes nodes without a write of their records.
	if j.seen != nil && !record.Same(j.seen, v, &job.Nodes) {
		for _, n := range v.Nodes() {
			former := j.seen.Find(n.Name)
			if _, open := j.open[n.Name]; !open && former != n {
				j.open[n.Name] = former
			}
		}
	}

	j.seen = v

	for _, name := range slices.Sorted(maps.Keys(j.open)) {
		now := v.Find(name)

		judged, err := j.judge(ctx, name, j.open[name], now)
		if err != nil {
			return next, err
		}

		if judged {
			delete(j.open, name)
		}
	}

	if len(j.open) > 0 {
		next.At = time.Now().Add(judgePace)
	}

	return next, nil
}

// judge compares the changes of a node between two of its records with the table. It reports false if the node is
// being changed, so that a later record is needed.
func (j *Judge) judge(ctx context.Context, name string, former, now *inventory.Node) (judged bool, err error) {
	if now == nil {
		return true, nil // its history went with it
	}

	// A node of that name was forgotten meanwhile.
	if former != nil && !former.Created.Equal(now.Created) {
		former = nil
	}

	var entries uint64
	if former != nil {
		entries = former.Entries
	}

	step := now.ChangeFrom(former)
	if now.Entries <= entries+1 && step.CheckLifecycle() == nil {
		return true, nil
	}

	const more = 16 // that may have been written meanwhile

	limit := int(min(now.Entries-min(entries, now.Entries), inventory.HistoryLimit)) + more

	history, err := j.history(ctx, name, limit)
	if err != nil {
		return false, err
	}

	// A claim is in the history before its job commits it.
	newest := j.state.View().Find(name)
	if newest == nil || newest.Entries != now.Entries || newest.Status != now.Status {
		return false, nil
	}

	var last inventory.HistoryEntry
	for _, e := range history {
		if e.Seq > now.Entries {
			break
		}

		if last = e; e.Seq > entries {
			if err := e.CheckLifecycle(); err != nil {
				j.violated(name, e, err)
			}
		}
	}

	if last.To != now.Status {
		step.Actor = now.Actor
		j.violated(name, step, inventory.Errorf(inventory.KindInternal,
			"it went from %q to %q, and its history ends with %q", step.From, step.To, last.To))
	}

	return true, nil
}

// violated counts a violation.
func (j *Judge) violated(name string, e inventory.HistoryEntry, err error) {
	j.log.WithFields(logrus.Fields{
		"node": name, "from": e.From, "to": e.To, "verb": e.Verb, "job": e.Job, "actor": e.Actor, "entry": e.Seq,
	}).WithError(err).Error("the status of a node was changed against the lifecycle")

	j.mu.Lock()
	defer j.mu.Unlock()

	j.violations++
	j.last = name + ": " + err.Error()
}
