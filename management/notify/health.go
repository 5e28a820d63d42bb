// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/control"
	"github.com/contiv/cluster/management/record"
)

const (
	healthEvery  = 15 * time.Second // between looks at the health
	healthSteady = 2                // looks with the same result before it is an event
)

func (n *Notifier) beginHealth(context.Context) error {
	n.looks = map[string]int{}
	return nil
}

// lookAtHealth stores an event if a part of the manager failed, or is well again, and that lasts.
func (n *Notifier) lookAtHealth(ctx context.Context) (next control.Next, err error) {
	if len(n.Targets()) == 0 {
		return next, nil
	}

	r, _ := n.Store.Latest()
	was := record.One(r, &PositionKind).Problems
	problems := n.Health(ctx)

	is := lasting(was, problems, n.looks)
	if slices.Equal(is, was) {
		return next, nil
	}

	// The looks stay if the write fails, so that the next one tries it again.
	e := happening{Event: healthEvent(was, is, problems)}
	if _, err = n.enqueue(ctx, []happening{e}, func(p *Position) { p.Problems = is }); err == nil {
		clear(n.looks)
	}

	return next, err
}

// lasting returns the parts with a lasting problem, sorted. A change counts once it was
// seen in healthSteady looks in a row; looks counts those of each part.
func lasting(was []string, problems map[string]string, looks map[string]int) (is []string) {
	parts := slices.Compact(slices.Sorted(slices.Values(slices.AppendSeq(slices.Clone(was), maps.Keys(problems)))))
	maps.DeleteFunc(looks, func(part string, _ int) bool { return !slices.Contains(parts, part) })

	for _, part := range parts {
		failed := slices.Contains(was, part)

		// A part that is as it was begins anew.
		if _, fails := problems[part]; fails == failed {
			delete(looks, part)
		} else if looks[part]++; looks[part] >= healthSteady {
			failed = fails
		}

		if failed {
			is = append(is, part)
		}
	}

	return is
}

// healthEvent returns the event that the parts with problems changed.
func healthEvent(was, is []string, problems map[string]string) Event {
	at := time.Now()
	e := Event{
		ID: KindHealth + "-" + strconv.FormatInt(at.UnixNano(), 10), Kind: KindHealth, Time: at,
		Actor: access.Manager, From: healthOf(was), To: healthOf(is),
	}

	more := without(is, was)

	switch {
	case len(is) == 0:
		e.Summary = "the manager is well again"
	case len(was) == 0:
		e.Summary = "the manager is degraded: " + strings.Join(is, ", ")
	case len(more) > 0:
		e.Summary = "the manager has another problem: " + strings.Join(more, ", ")
	default:
		e.Summary = strings.Join(without(was, is), ", ") + " is well again; the manager is still degraded: " +
			strings.Join(is, ", ")
	}

	var details []string
	for _, part := range is {
		details = append(details, part+": "+cmp.Or(problems[part], "well again for a moment"))
	}

	e.Detail = oneLine(strings.Join(details, "; "))

	return e
}

func healthOf(problems []string) string {
	if len(problems) == 0 {
		return "ok"
	}
	return "degraded"
}

// without returns the names that are not among others.
func without(names, others []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(others, name) })
}
