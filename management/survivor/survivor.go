// SPDX-License-Identifier: Apache-2.0

// Package survivor looks after a manager that may have been split. Where the site chose so, an instance goes on alone
// once all others are gone. When two sides that went on apart meet again, the one with the later epoch goes on, and the
// other exports what it had accepted, stops, and waits for an operator.
package survivor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	store "github.com/contiv/cluster/management/etcd"
	"github.com/contiv/cluster/management/instance"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// every is the time between two looks at the others.
const every = 2 * time.Second

// ErrAlone ends a daemon whose instance is to go on alone.
var ErrAlone = errors.New("every other instance is gone, so this one goes on alone")

// Split is the error of an instance without which the manager went on.
type Split struct {
	Self     string          `json:"self"`              // the id of the instance
	Endpoint string          `json:"endpoint"`          // of the etcd of the side that goes on
	Epoch    int64           `json:"epoch"`             // of that side
	Since    state.Recovered `json:"since"`             // how it began
	Removed  bool            `json:"removed,omitempty"` // an operator removed this instance there
}

// Error implements error.
func (s *Split) Error() string {
	if s.Removed {
		return "the manager went on without this instance: an operator removed it where etcd is " + s.Endpoint
	}

	return fmt.Sprintf("the manager went on without this instance: the instance %s, whose etcd is %s, has epoch %d",
		s.Since.By, s.Endpoint, s.Epoch)
}

// Watch looks at the other instances.
type Watch struct {
	// Self is the id of the instance, and Dir the directory of its etcd.
	Self, Dir string
	// After is how long all others have to be gone until it goes on alone; 0: it never does by itself.
	After time.Duration
	// View returns what the instance knows; nil: it has not found a majority since its start, and knows nothing.
	View func() *state.View
	// Alive returns the addresses that are alive in the gossip of this host, or why that is not known.
	Alive  func(context.Context) (map[netip.Addr]bool, error)
	Logger logrus.FieldLogger

	// For tests; nil: those of etcd.
	others func() ([]string, error)
	ask    func(ctx context.Context, urls []string) ([]etcd.Answer, error)
	listen func(context.Context) error

	since time.Time // when all others were gone first
}

// Run looks until ctx ends, and returns nil then; or else ErrAlone, or a Split. Without a view it also ends with nil
// once it is not known that all others are gone: then there may be a majority to find.
func (w *Watch) Run(ctx context.Context) error {
	tick := time.NewTicker(every)
	defer tick.Stop()

	for {
		if err := w.look(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		if w.View == nil && w.since.IsZero() {
			return nil
		}

		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (w *Watch) look(ctx context.Context) error {
	var own state.Epoch

	stale := true
	if w.View != nil {
		v := w.View()
		own, stale = record.One(v, &state.Epochs), v.Stale
	}

	others, err := w.known()
	if err != nil {
		w.Logger.WithError(err).Warn("the other instances are not known")
		return nil
	}

	// Without a view, Check has asked.
	if w.View != nil {
		split, err := w.split(ctx, own, others)
		if split != nil {
			return split
		}
		if err != nil {
			w.Logger.WithError(err).Warn("it is not known whether the manager went on without this instance")
		}
	}

	if w.After == 0 || !stale || len(others) == 0 || !w.gone(ctx, others) {
		w.since = time.Time{}
		return nil
	}

	if w.since.IsZero() {
		w.since = time.Now()
		w.Logger.Warnf("every other instance is gone; this one goes on alone in %s, as instances.availability says",
			w.After)
	}

	if time.Since(w.since) < w.After {
		return nil
	}

	return ErrAlone
}

// known are the URLs of the others.
func (w *Watch) known() ([]string, error) {
	if w.others != nil {
		return w.others()
	}
	return etcd.Others(w.Dir)
}

// gone reports whether the gossip sees none of the others, and nothing listens where their etcds were.
func (w *Watch) gone(ctx context.Context, others []string) bool {
	alive, err := w.Alive(ctx)
	if err == nil && slices.ContainsFunc(others, func(u string) bool { return alive[etcd.AddrOf(u)] }) {
		return false
	}

	if err == nil && w.listen != nil {
		err = w.listen(ctx)
	} else if err == nil {
		err = etcd.NoneAnswers(ctx, w.Dir)
	}

	if err != nil && w.since.IsZero() {
		w.Logger.WithError(err).Debug("this instance does not go on alone")
	}

	return err == nil
}

// split asks those that are or were the others, and returns the newest side that goes on without this instance, if one
// does.
func (w *Watch) split(ctx context.Context, own state.Epoch, others []string) (*Split, error) {
	ask := w.ask
	if ask == nil {
		ask = func(ctx context.Context, urls []string) ([]etcd.Answer, error) { return askAt(ctx, w.Dir, urls) }
	}

	if own.Recovered != nil {
		others = slices.Compact(slices.Sorted(slices.Values(slices.Concat(others, own.Recovered.Former))))
	}

	answers, err := ask(ctx, others)
	if err != nil {
		return nil, err
	}

	return newest(answers, w.Self, &own)
}

func askAt(ctx context.Context, dir string, urls []string) ([]etcd.Answer, error) {
	return etcd.Ask(ctx, dir, store.EpochKey(etcd.Keys(etcd.DefaultPrefix)), urls)
}

// Check returns a Split if the manager went on without an instance, before that starts; dir is the directory of its
// etcd.
func Check(ctx context.Context, dir string) error {
	m, err := etcd.ReadMember(dir)
	if err != nil {
		return nil // the start itself refuses what cannot be read
	}

	others, err := etcd.Others(dir)
	if err != nil {
		return nil
	}

	answers, err := askAt(ctx, dir, others)
	if err != nil {
		return err
	}

	// What cannot be read is no reason: the watch says so.
	if split, _ := newest(answers, m.Name, nil); split != nil {
		return split
	}

	return nil
}

// newest returns the newest side that goes on without an instance. With its own epoch, it has to be a later one.
func newest(answers []etcd.Answer, self string, own *state.Epoch) (side *Split, err error) {
	best := state.Epoch{}

	for _, a := range answers {
		if a.Value == nil {
			continue
		}

		e, unread := state.Epochs.Decode("", a.Value, 0)
		if unread != nil {
			err = fmt.Errorf("the epoch of %s cannot be read: %w", a.Endpoint, unread)
			continue
		}

		if goesOn(*e, self, own) && (side == nil || e.Later(best)) {
			best = *e
			side = &Split{Self: self, Endpoint: a.Endpoint, Epoch: e.Number, Removed: e.Recovered == nil}

			if e.Recovered != nil {
				side.Since = *e.Recovered
			}
		}
	}

	return side, err
}

// goesOn reports whether the side with the epoch e goes on without an instance that has the epoch own.
func goesOn(e state.Epoch, self string, own *state.Epoch) bool {
	// One that did not go on alone is told so by its etcd.
	if own != nil && own.Recovered != nil && slices.Contains(e.Removed, own.Recovered.By) {
		return true
	}
	if e.Recovered == nil {
		return false
	}

	_, lost := e.Recovered.Lost[self]
	if own == nil {
		return lost
	}

	// It may have joined an instance that was lost.
	if own.Recovered != nil && !lost {
		_, lost = e.Recovered.Lost[own.Recovered.By]
	}

	return lost && e.Later(*own) && !slices.Contains(own.Removed, e.Recovered.By)
}

// Alone is why the manager is incomplete: an instance went on alone by itself, and no other has joined it since.
func Alone(r record.Reader) error {
	e := record.One(r, &state.Epochs).Recovered
	if e == nil || !e.Automatic || instance.Several(r) {
		return nil
	}

	lost := strings.Join(slices.Sorted(maps.Keys(e.Lost)), ", ")

	return inventory.Errorf(inventory.KindUnavailable,
		"this instance has gone on alone since %s, because every other one was gone (%s): what only those knew is "+
			"missing here", e.At.Format(time.RFC3339), inventory.Shorten(lost, 200)).
		Do("let others join: clusterctl instance invite")
}
