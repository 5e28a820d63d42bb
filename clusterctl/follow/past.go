// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// pastChange is one line about a recorded change.
type pastChange struct {
	at      time.Time
	subject string
	changes []string
}

// showPast prints the changes since then that led to the records of the initial state.
// A later change comes from the watch.
func (e *events) showPast(ctx context.Context, from Recorder, since time.Time) error {
	p := &print.Printer{Style: e.out.Style}

	past, err := e.pastOfNodes(ctx, from, p, since)
	if err != nil {
		return err
	}
	for _, j := range e.jobs {
		past = append(past, pastOfJob(p, j)...)
	}

	past = slices.DeleteFunc(past, func(c pastChange) bool { return c.at.Before(since) })
	slices.SortFunc(past, func(a, b pastChange) int {
		if order := a.at.Compare(b.at); order != 0 {
			return order
		}
		return strings.Compare(a.subject, b.subject)
	})

	for _, c := range past {
		p.Change(c.at, c.subject, c.changes...)
	}

	return e.out.Write(p.Bytes())
}

func (e *events) pastOfNodes(
	ctx context.Context, from Recorder, p *print.Printer, since time.Time,
) (past []pastChange, err error) {
	for name, n := range e.nodes {
		// Every entry of the history updates the record.
		if n.Updated.Before(since) {
			continue
		}

		entries, err := from.History(ctx, name, 0)
		if inventory.KindOf(err) == inventory.KindNotFound {
			continue // forgotten meanwhile, together with its history
		}

		if err != nil {
			return nil, err
		}

		for _, entry := range entries.Items {
			// A later entry comes from the watch.
			if entry.Seq <= n.Entries {
				past = append(past, pastChange{entry.Time, "node " + name, p.EntryChanges(entry)})
			}
		}
	}

	return past, nil
}

// pastOfJob returns the changes that the record of a job has times of.
func pastOfJob(p *print.Printer, j api.Job) []pastChange {
	subject := "job " + j.ID
	past := []pastChange{{j.Accepted, subject, []string{print.Title(j), "accepted for " + print.Line(j.Actor)}}}

	if j.Started != nil {
		past = append(past, pastChange{*j.Started, subject, []string{p.Paint.Job(api.Running)}})
	}

	if j.Ended != nil {
		end := []string{p.Paint.Job(j.Status)}
		if j.Message != "" {
			end = append(end, print.Line(j.Message))
		}
		past = append(past, pastChange{*j.Ended, subject, end})
	}

	return past
}
