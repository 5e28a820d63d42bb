// SPDX-License-Identifier: Apache-2.0

// Package rotation is the common part of rotations of keys: laggards, giving them up,
// and rounds in the background.
package rotation

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
)

// Laggard is a node, or another host, that a rotation waits for.
type Laggard struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Merge returns the laggards of all lists, each name once with its first reason, sorted.
func Merge(lists ...[]Laggard) []Laggard {
	byName := map[string]Laggard{}
	for _, list := range lists {
		for _, l := range list {
			if _, found := byName[l.Name]; !found {
				byName[l.Name] = l
			}
		}
	}

	all := make([]Laggard, 0, len(byName))
	for _, key := range slices.Sorted(maps.Keys(byName)) {
		all = append(all, byName[key])
	}

	return all
}

// CheckLockOut refuses to lock names out that are not all the laggards of a rotation,
// and no others.
func CheckLockOut(laggards []Laggard, names []string) error {
	var unnamed []string
	for _, l := range laggards {
		if !slices.Contains(names, l.Name) {
			unnamed = append(unnamed, l.Name)
		}
	}

	if len(unnamed) > 0 {
		return inventory.Errorf(inventory.KindRefused, "%s would be locked out, and not all of them are named",
			strings.Join(unnamed, ", ")).
			Do("compare the laggards of the rotation, and name them all").About(unnamed...)
	}

	// A name that the rotation does not wait for is most likely a mistake.
	for _, name := range names {
		if !slices.ContainsFunc(laggards, func(l Laggard) bool { return l.Name == name }) {
			return inventory.Errorf(inventory.KindInvalid, "the rotation does not wait for %q",
				inventory.Shorten(name, 100)).Do("name the laggards only")
		}
	}

	return nil
}

// Loop carries a rotation on in the background.
type Loop struct {
	every time.Duration
	due   func() bool // reports whether a round is to be carried out; it must not block
	round func(ctx context.Context) error
	held  func(err error) // logs why the rotation is held up

	kick chan struct{}
	stop context.CancelFunc
	done chan struct{}
}

// NewLoop returns a loop with a round at every interval. what is rotated, for the log.
func NewLoop(
	every time.Duration, due func() bool, round func(context.Context) error, log logrus.FieldLogger, what string,
) *Loop {
	return &Loop{
		every: every, due: due, round: round, kick: make(chan struct{}, 1),
		held: func(err error) { log.WithError(err).Warnf("the rotation of the %s is held up", what) },
	}
}

// Start begins the loop, until Stop.
func (l *Loop) Start(ctx context.Context) {
	ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	l.done = make(chan struct{})

	go l.run(ctx)
}

// Stop ends the loop. The next process goes on.
func (l *Loop) Stop() {
	l.stop()
	<-l.done
}

// Kick makes a round due at once.
func (l *Loop) Kick() {
	select {
	case l.kick <- struct{}{}:
	default: // one is due already
	}
}

func (l *Loop) run(ctx context.Context) {
	defer close(l.done)

	tick := time.NewTicker(l.every)
	defer tick.Stop()

	failure := ""

	for {
		select {
		case <-ctx.Done():
			return
		case <-l.kick:
		case <-tick.C:
		}

		if !l.due() {
			continue
		}

		err := l.round(ctx)

		// The same failure would be logged at every round.
		switch {
		case err == nil || ctx.Err() != nil:
			failure = ""
		case err.Error() != failure:
			failure = err.Error()
			l.held(err)
		}
	}
}
