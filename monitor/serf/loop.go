// SPDX-License-Identifier: Apache-2.0

package serf

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	hserf "github.com/hashicorp/serf/serf"

	"github.com/contiv/cluster/inventory"
)

// run owns all parts of the agent, from the start to the end.
func (a *Agent) run(ctx context.Context, in *instance) {
	defer close(a.done)

	var observing sync.WaitGroup
	observing.Go(func() { a.watch.run(ctx) })

	l := loop{Agent: a, in: in, retry: a.t.joinBackOff(), unmet: sample(a.store.Peers, maxUnmet)}
	a.err = l.run(ctx)

	a.stop()
	observing.Wait()
	l.save()

	// memberlist panics if it is shut down during a leave: do one after the other.
	if a.leave.Load() && a.err == nil {
		if err := l.in.s.Leave(); err != nil {
			a.o.Log.Warnf("gossip: leaving: %v", err)
		}
	}

	l.in.shutdown()
	a.store.close()

	if a.err != nil {
		a.o.Log.Errorf("gossip: ended: %v", a.err)
	}
}

// loop maintains the membership of the agent: it joins other members, stores
// their addresses, and replaces a name that a rival uses.
type loop struct {
	*Agent
	in *instance

	met      bool      // another member has answered
	unmet    []string  // members of the last run that have not answered since the start
	rounds   int       // attempts to meet them
	nextJoin time.Time // time of the next attempt to join
	misses   int       // failed attempts in a row
	retry    *backoff.ExponentialBackOff
	grace    *time.Timer
	saveErr  string // the last error of save, logged once
}

func (l *loop) run(ctx context.Context) error {
	l.startGrace()
	defer func() { l.grace.Stop() }()

	tick := time.NewTicker(l.t.Tick)
	defer tick.Stop()

	for {
		l.join(ctx)
		l.meet()
		l.remind()
		l.in.rivals.expire(time.Now())

		if err := l.giveUpName(ctx); err != nil {
			return err
		}

		l.prune()
		l.save()

		select {
		case <-ctx.Done():
			return nil
		case <-l.in.s.ShutdownCh():
			return errors.New("serf has shut down")
		case <-l.rivals:
			l.Compare()
		case <-tick.C:
		}
	}
}

// startGrace delays the first report until a first contact, or for the grace
// period: a member that has just started would report everybody as gone.
func (l *loop) startGrace() {
	l.grace = time.AfterFunc(l.t.Grace, l.watch.resume)
}

// attempt is the result of one round of joining.
type attempt struct {
	tried, joined int
	alone         bool  // no other member is alive
	err           error // the last failure
}

// join tries to join members when it is time for the next attempt.
func (l *loop) join(ctx context.Context) {
	if time.Now().Before(l.nextJoin) || ctx.Err() != nil {
		return
	}

	at := l.joinPeers(ctx)
	if ctx.Err() != nil {
		return
	}

	// Without a peer to try, the first member of a cluster is alone by design.
	if at.tried > 0 && at.joined == 0 && at.alone {
		l.backOff(at.err)
		return
	}

	if l.misses > 0 && at.joined > 0 {
		l.o.Log.Infof("gossip: joined after %s", inventory.Count(l.misses, "failed attempt", "failed attempts"))
	}

	l.nextJoin, l.misses = time.Now().Add(l.t.JoinAgain), 0
	l.retry.Reset()
	l.met = l.met || at.joined > 0 || !at.alone
	l.watch.resume()
}

// joinPeers joins every configured address that is not a live member and, if no
// other member is alive, the members of the last run.
func (l *loop) joinPeers(ctx context.Context) attempt {
	live, alone := l.in.live()
	at := attempt{alone: alone}

	// While others are alive, gossip repairs the rest of the membership.
	peers := slices.Clone(l.o.Join)
	if alone {
		peers = append(peers, l.store.Peers...)
	}

	for _, p := range peers {
		addrs, err := resolve(ctx, p)
		if err != nil {
			at.tried, at.err = at.tried+1, err
			continue
		}

		// The list may be the same on every host, so it contains this one as well.
		isMember := func(ap addrPort) bool { return live[ap] || l.in.isOwn(ap) }
		if slices.ContainsFunc(addrs, isMember) {
			continue
		}

		at.tried++

		for _, ap := range addrs {
			_, err := l.in.s.Join([]string{ap.String()}, true)
			if err == nil {
				at.joined++
				l.met = true
				l.meet()
				live, at.alone = l.in.live()

				break
			}

			if at.err = err; ctx.Err() != nil {
				return at
			}
		}
	}

	return at
}

const (
	maxUnmet  = 32 // members of the last run that a start exchanges states with
	maxRounds = 3  // attempts to reach them
	reminders = 4  // members that remind a returned one in each tick, on average
)

// meet exchanges states with members of the last run, with live ones as well. A
// member that remembers the end of that run ignores this one until it hears of
// its own end, and takes the end for news to those who have forgotten. The first
// contact may be one of them.
func (l *loop) meet() {
	if !l.met || len(l.unmet) == 0 {
		return
	}

	answered := make([]bool, len(l.unmet))

	var asking sync.WaitGroup
	for i, peer := range l.unmet {
		asking.Go(func() {
			_, err := l.in.s.Memberlist().Join([]string{peer})
			answered[i] = err == nil
		})
	}

	asking.Wait()

	var silent []string
	for i, peer := range l.unmet {
		if !answered[i] {
			silent = append(silent, peer)
		}
	}

	l.unmet = silent
	if l.rounds++; l.rounds == maxRounds {
		l.unmet = nil // what does not run remembers nothing
	}
}

// remind exchanges states with members that others call alive while this one
// remembers their end, so that they hear of it and contradict: an agent of another
// kind does not meet the members of its last run. Usually another member was first,
// and of many members only a few act.
func (l *loop) remind() {
	returned := l.in.rivals.returned(time.Now().Add(-l.t.Tick))
	if len(returned) == 0 {
		return
	}

	ms := l.in.s.Members()
	gone := map[string]bool{}

	for _, m := range ms {
		gone[m.Name] = !alive(m)
	}

	for name, place := range returned {
		switch {
		case !gone[name]:
			l.in.rivals.forget(name)
		case rand.IntN(len(ms)) < reminders: //nolint:gosec // it spreads load
			l.in.rivals.forget(name)
			_, _ = l.in.s.Memberlist().Join([]string{place}) // it may have gone meanwhile
		}
	}
}

// sample returns up to n elements in random order.
func sample(all []string, n int) []string {
	all = slices.Clone(all)
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] }) //nolint:gosec // it spreads load
	return all[:min(len(all), n)]
}

// backOff delays the next attempt to join, and logs the 1st, 2nd, 4th, … failure.
func (l *loop) backOff(err error) {
	l.misses++
	l.nextJoin = time.Now().Add(l.retry.NextBackOff())

	if isPowerOfTwo(l.misses) {
		l.serf.Printf("[WARN] gossip: no other member answers, attempt %d: %v", l.misses, err)
	}
}

// giveUpName takes a new name when another host uses this member's, most likely
// because the data directory was copied. The others have accepted only one of the
// two as a member; under names of their own both are.
func (l *loop) giveUpName(ctx context.Context) error {
	place, contested := l.in.rivals.contested(l.in.name)
	if place == "" || contested < l.t.Contested || ctx.Err() != nil {
		return nil
	}

	l.o.Log.Warnf(
		"gossip: the member at %s uses the name %s, too (a copied data directory?); this one takes a new name",
		place,
		l.in.name,
	)

	// Without a leave: the others would apply it to the member with the old name.
	l.watch.pause()
	l.in.shutdown()
	l.store.Suffix = newSuffix()
	l.save()

	in, err := l.relaunch(ctx)
	if err != nil {
		return err
	}
	l.in = in
	l.become(in)
	l.renames.Add(1)

	l.nextJoin, l.misses = time.Time{}, 0
	l.retry.Reset()
	l.grace.Stop()
	l.startGrace()

	return nil
}

// relaunch starts serf again on its former port.
func (l *loop) relaunch(ctx context.Context) (*instance, error) {
	const attempts = 5
	var in *instance

	var err error
	for range attempts {
		if in, err = l.launch(ctx, ctx, l.in.port); err == nil {
			return in, nil
		}

		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(l.t.JoinMin):
		}
	}

	return nil, err
}

// prune makes the others forget failed members at this member's own address:
// earlier names of this host.
func (l *loop) prune() {
	for _, m := range l.in.s.Members() {
		isReplaced := m.Status == hserf.StatusFailed && m.Name != l.in.name && placeOf(m) == l.in.own.String()
		if !isReplaced {
			continue
		}

		if err := l.in.s.RemoveFailedNodePrune(m.Name); err != nil {
			l.serf.Printf("[DEBUG] gossip: forgetting %q: %v", m.Name, err)
		}
	}
}

// save stores the other members and the live nodes. It keeps the members of an
// earlier run until this one has met any.
func (l *loop) save() {
	if !l.met {
		_, alone := l.in.live()
		l.met = !alone
	}

	if l.met {
		l.store.Peers = l.in.peers()
	}

	l.store.Alive, l.store.Keys = l.watch.alive(), keysOf(l.ring)

	err := l.store.save()
	switch {
	case err == nil:
		l.saveErr = ""
	case err.Error() != l.saveErr:
		l.saveErr = err.Error()
		l.o.Log.Warnf("gossip: %v", err)
	}
}
