// SPDX-License-Identifier: Apache-2.0

package serf

import (
	"net"
	"strconv"
	"sync"
	"time"

	hserf "github.com/hashicorp/serf/serf"
)

// rivals notes when somebody uses the name of a live member from another
// address: serf ignores them, so they never become members of their own. It
// holds at most one rival per live member.
type rivals struct {
	ttl  time.Duration
	news chan<- struct{} // gets a value when a rival comes or goes; never waited for

	mu    sync.Mutex
	place map[string]string // live members: ip:port
	rival map[string]rival
}

type rival struct {
	place       string
	first, last time.Time
}

func newRivals(ttl time.Duration, news chan<- struct{}) *rivals {
	return &rivals{ttl: ttl, news: news, place: map[string]string{}, rival: map[string]rival{}}
}

// NotifyMerge is serf's hook for what other members say of members, the ones it
// is going to ignore included. It is called under locks of memberlist, and must
// not call back. A list of one is somebody who is alive; longer ones, from the
// first contact with a peer, mix live and dead ones and come again one by one.
func (r *rivals) NotifyMerge(ms []*hserf.Member) error {
	if len(ms) == 1 {
		r.heard(ms[0].Name, placeOf(*ms[0]), time.Now())
	}

	return nil
}

func (r *rivals) heard(name, place string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()

	at, ok := r.place[name]
	if !ok || at == place {
		return
	}

	v, ok := r.rival[name]
	if !ok || v.place != place {
		v = rival{place: place, first: now}
		r.tell()
	}

	v.last = now
	r.rival[name] = v
}

func (r *rivals) tell() {
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// live notes where a member is. A rival there has become that member, or the
// member has moved.
func (r *rivals) live(name, place string) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.place[name] = place
	for n, v := range r.rival {
		if v.place == place {
			delete(r.rival, n)
			r.tell()
		}
	}
}

// dead notes that a member is no longer alive; its name is free.
func (r *rivals) dead(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.place, name)
	delete(r.rival, name)
}

// expire forgets rivals that have not been heard of for long.
func (r *rivals) expire(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()

	for n, v := range r.rival {
		if now.Sub(v.last) > r.ttl {
			delete(r.rival, n)
			r.tell()
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

// contested tells who has been using a name for how long.
func (r *rivals) contested(name string) (place string, since time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()

	v, ok := r.rival[name]
	if !ok {
		return "", 0
	}

	return v.place, v.last.Sub(v.first)
}

func placeOf(m hserf.Member) string {
	return net.JoinHostPort(m.Addr.String(), strconv.Itoa(int(m.Port)))
}
