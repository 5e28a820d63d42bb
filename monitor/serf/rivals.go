// SPDX-License-Identifier: Apache-2.0

package serf

import (
	"net"
	"strconv"
	"sync"
	"time"

	hserf "github.com/hashicorp/serf/serf"
)

// rivals tracks hosts that use the name of a live member from another address.
// serf ignores them, so they never become members. It holds at most one rival
// per live member.
type rivals struct {
	ttl     time.Duration
	changes chan<- struct{} // gets a value when a rival comes or goes; never blocks

	mu    sync.Mutex
	place map[string]string // ip:port of live members, by name
	rival map[string]rival
	// back holds members that somebody calls alive and that are not: they are new, or
	// this member remembers their end; see loop.remind.
	back map[string]rival
}

type rival struct {
	place       string
	first, last time.Time
}

func newRivals(ttl time.Duration, changes chan<- struct{}) *rivals {
	return &rivals{
		ttl: ttl, changes: changes,
		place: map[string]string{}, rival: map[string]rival{}, back: map[string]rival{},
	}
}

// NotifyMerge is serf's hook for states of members that other hosts send,
// including those that serf is about to ignore. It runs under locks of memberlist
// and must not call back. A list of one is a live host; longer ones, from the
// first contact with a peer, mix live and dead ones, and repeat one by one.
func (r *rivals) NotifyMerge(ms []*hserf.Member) error {
	if len(ms) == 1 {
		r.observe(ms[0].Name, placeOf(*ms[0]), time.Now())
	}
	return nil
}

// observe records that a live host uses a name.
func (r *rivals) observe(name, place string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()

	// A name without a live member is free to take.
	at, ok := r.place[name]
	if !ok {
		if v, known := r.back[name]; !known || v.place != place {
			r.back[name] = rival{place: place, first: now}
		}
		return
	}

	if at == place {
		return
	}

	// The time of the conflict starts anew with each other rival.
	v, ok := r.rival[name]
	if !ok || v.place != place {
		v = rival{place: place, first: now}
		r.notify()
	}

	v.last = now
	r.rival[name] = v
}

func (r *rivals) notify() {
	select {
	case r.changes <- struct{}{}:
	default:
	}
}

// live records the place of a live member. A rival at that place has become the
// member, or the member has moved there.
func (r *rivals) live(name, place string) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.place[name] = place
	delete(r.back, name)

	for n, v := range r.rival {
		if v.place == place {
			delete(r.rival, n)
			r.notify()
		}
	}
}

// dead records that a member is no longer alive, which frees its name.
func (r *rivals) dead(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.place, name)
	delete(r.rival, name)
}

// returned lists members that somebody has called alive before a time, with their
// places, and that are not alive by then.
func (r *rivals) returned(before time.Time) map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()

	all := map[string]string{}
	for name, v := range r.back {
		if v.first.Before(before) {
			all[name] = v.place
		}
	}

	return all
}

// forget drops a member that returned lists.
func (r *rivals) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.back, name)
}

// expire forgets rivals that have been silent for the TTL.
func (r *rivals) expire(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()

	for n, v := range r.rival {
		if now.Sub(v.last) > r.ttl {
			delete(r.rival, n)
			r.notify()
		}
	}
}

// of lists the rivals of a member.
func (r *rivals) of(name string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()

	if v, ok := r.rival[name]; ok {
		return []string{v.place}
	}
	return nil
}

// contested returns the place of the rival for a name, "" for none, and the time
// between its first and its last observation.
func (r *rivals) contested(name string) (place string, since time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()

	v, ok := r.rival[name]
	if !ok {
		return "", 0
	}
	return v.place, v.last.Sub(v.first)
}

// placeOf is the ip:port of a member's gossip.
func placeOf(m hserf.Member) string {
	return net.JoinHostPort(m.Addr.String(), strconv.Itoa(int(m.Port)))
}
