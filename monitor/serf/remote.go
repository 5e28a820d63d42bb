// SPDX-License-Identifier: Apache-2.0

package serf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	hserf "github.com/hashicorp/serf/serf"
	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/monitor"
)

// RemoteOptions say how an existing serf agent is watched.
type RemoteOptions struct {
	Addr     string // of its RPC: a loopback ip:port
	AuthFile string // a file that holds its rpc_auth; empty: it has none

	// Sinks take what the agent sees, each at its own pace.
	Sinks []monitor.Sink
	// Before names the nodes that were alive by the last recorded word of an
	// earlier run (see monitor.Options).
	Before []string

	Timing Timing             // zero: LAN
	Log    logrus.FieldLogger // required
}

// CheckRemote refuses options that could never work. It looks at no file.
func CheckRemote(addr string) error { return checkRPC(addr) }

// Remote watches a serf agent that is another process, by its RPC.
//
// While the agent does not answer, nothing is reported: what was said last
// holds. After every connect the sinks get a full report.
type Remote struct {
	o     RemoteOptions
	t     Timing
	watch watch
	stop  context.CancelFunc
	done  chan struct{}
	tried chan struct{} // closed after the first attempt
	once  sync.Once     // closes tried

	mu      sync.Mutex
	conn    *rpc        // nil while there is none
	why     error       // why there is none
	since   time.Time   // since when there is none
	others  bool        // the agent knows members but its own
	had     bool        // it did once
	waits   bool        // so the first report waits until it does
	alone   *time.Timer // when to report at last
	self    Self
	name    string // of the agent's own member
	members Stats  // as of the last list
	health  int
	queues  map[string]int
}

// Self is what an agent says of itself.
type Self struct {
	Node      Identity // zero where its own member is not a node
	Addr      string   // ip:port under which other members reach it
	Encrypted bool     // whether its gossip is
}

// WatchRemote begins to watch an agent, and returns when that is connected or
// the first attempt has failed (see Err); there are further ones until Close. A
// wrong address and a key file that cannot be read are errors. ctx bounds the
// start only.
func WatchRemote(ctx context.Context, o RemoteOptions) (*Remote, error) {
	if o.Log == nil {
		return nil, errors.New("there is no logger")
	}

	if err := checkRPC(o.Addr); err != nil {
		return nil, err
	}

	_, others, err := readAuth(o.AuthFile)
	if err != nil {
		return nil, err
	}

	if others {
		o.Log.Warnf("the RPC key %s can be read by others than its owner; set its mode to 0600", o.AuthFile)
	}

	if o.Timing == (Timing{}) {
		o.Timing = LAN()
	}

	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	r := &Remote{
		o: o, t: o.Timing, stop: stop, done: make(chan struct{}), tried: make(chan struct{}),
		why: errors.New("it has not answered yet"), since: time.Now(),
	}

	r.watch = newWatch(watching{
		sinks: o.Sinks, list: r.list, window: o.Timing.Window, before: o.Before,
		gossip: newLogger(o.Log), log: o.Log,
		known: func(string) bool { return false },
	})
	go r.run(life)

	select {
	case <-r.tried:
		return r, nil
	case <-ctx.Done():
		r.stop()
		<-r.done

		return nil, ctx.Err()
	}
}

// readAuth reads the file that holds an agent's RPC key, and tells whether
// others can do so, too.
func readAuth(path string) (key string, others bool, err error) {
	if path == "" {
		return "", false, nil
	}

	f, err := os.Open(path)
	if err != nil {
		return "", false, fmt.Errorf("the RPC key of the serf agent cannot be read: %w", err)
	}
	defer f.Close()

	b, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return "", false, fmt.Errorf("the RPC key of the serf agent cannot be read: %w", err)
	}

	if b = bytes.TrimSpace(b); len(b) == 0 {
		return "", false, fmt.Errorf("%s is empty; it has to hold the rpc_auth of the serf agent", path)
	}

	return string(b), isOpen(f), nil
}

// Close stops watching and waits until nothing is left. The agent goes on.
func (r *Remote) Close() error {
	r.stop()
	<-r.done

	return nil
}

// Done is closed when the watch has ended.
func (r *Remote) Done() <-chan struct{} { return r.done }

// Leave is Close within the time of ctx.
func (r *Remote) Leave(ctx context.Context) error {
	r.stop()

	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the watch of the serf agent takes longer to end: %w", ctx.Err())
	}
}

// Err is nil while the agent answers, else says since when and why it does not.
func (r *Remote) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.conn != nil {
		return nil
	}

	return fmt.Errorf("the serf agent at %s is not connected since %s: %w; what is said of nodes is as of then",
		r.o.Addr, r.since.UTC().Format(time.RFC3339), r.why)
}

// Stats counts, as of the last complete list.
func (r *Remote) Stats() Stats {
	r.mu.Lock()
	s := r.members
	s.Health, s.Queues = r.health, maps.Clone(r.queues)
	r.mu.Unlock()
	s.Observer = r.watch.stats()

	return s
}

// Self is what the agent says of itself; an error while it is not connected.
func (r *Remote) Self() (Self, error) {
	if err := r.Err(); err != nil {
		return Self{}, err
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	return r.self, nil
}

// Node is the node that the agent's host is, as far as was ever heard; zero for
// none.
func (r *Remote) Node() Identity {
	r.mu.Lock()
	defer r.mu.Unlock()

	return r.self.Node
}

// run keeps a connection until ctx is done.
func (r *Remote) run(ctx context.Context) {
	defer close(r.done)
	var observing sync.WaitGroup

	observing.Go(func() { r.watch.run(ctx) })
	defer observing.Wait()

	wait, misses := r.t.JoinMin, 0
	for {
		connected, err := r.connection(ctx)
		if ctx.Err() != nil {
			return
		}

		if connected {
			wait, misses = r.t.JoinMin, 0
		}

		if misses++; misses&(misses-1) == 0 {
			r.o.Log.Warnf("gossip: the serf agent at %s, attempt %d: %v; it is tried again", r.o.Addr, misses, err)
		}

		// Jitter: many watchers of one host do not come back at the same moment.
		pause := wait/2 + rand.N(wait/2+1)
		wait = min(2*wait, r.t.JoinMax)

		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// connection is one connection from its beginning to its end. It tells whether
// the agent was ready to be watched, and why it no longer is.
func (r *Remote) connection(ctx context.Context) (connected bool, err error) {
	defer func() { r.lost(err) }()

	key, _, err := readAuth(r.o.AuthFile)
	if err != nil {
		return false, err
	}

	dial, cancel := context.WithTimeout(ctx, r.t.Dial)
	c, err := dialRPC(dial, r.o.Addr)
	cancel()

	if err != nil {
		return false, err
	}

	var reading sync.WaitGroup

	reading.Go(func() { c.read(func(e rpcEvent) { r.take(c, e) }) })
	defer reading.Wait()
	defer c.close()

	open, cancel := context.WithTimeout(ctx, r.t.Answer)
	defer cancel()

	if err := c.open(open, key); err != nil {
		return false, err
	}

	if err := r.look(open, c); err != nil {
		return false, err
	}

	ms, err := r.fetch(open, c)
	if err != nil {
		return false, err
	}

	alone := r.begin(c, ms)
	defer alone.Stop()
	r.o.Log.Infof("gossip: the serf agent at %s is watched", r.o.Addr)

	ping := time.NewTicker(r.t.Ping)
	defer ping.Stop()

	for {
		select {
		case <-ctx.Done():
			return true, ctx.Err()
		case <-c.ended:
			return true, c.why()
		case <-ping.C:
			asked, cancel := context.WithTimeout(ctx, r.t.Answer)
			err := r.look(asked, c)
			cancel()

			if err != nil {
				return true, err
			}
		}
	}
}

// begin makes the connection the one that counts. An agent that has forgotten
// everybody may have started a moment ago: then the first report waits, for a
// while, until it has found somebody.
func (r *Remote) begin(c *rpc, ms []hserf.Member) (alone *time.Timer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conn, r.why = c, nil
	r.once.Do(func() { close(r.tried) })

	own := r.self.Node.Name()
	if slices.ContainsFunc(r.o.Before, func(node string) bool { return node != own }) {
		r.had = true
	}

	r.o.Before = nil // the observers have theirs
	r.others = slices.ContainsFunc(ms, func(m hserf.Member) bool { return m.Name != r.name })
	r.waits = r.had && !r.others

	r.had = r.had || r.others
	if !r.waits {
		r.watch.resume()
	}

	r.alone = time.AfterFunc(r.t.Alone, func() { r.believe(c) })

	return r.alone
}

// believe lets the observers report whatever the agent knows, if the connection
// is still the one that counts.
func (r *Remote) believe(c *rpc) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.conn == c && r.waits {
		r.had, r.waits = r.others, false
		r.watch.resume()
	}
}

// lost notes that there is no connection.
func (r *Remote) lost(why error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.conn != nil {
		r.since = time.Now()
	}

	r.conn, r.why = nil, why
	r.watch.pause()
	r.once.Do(func() { close(r.tried) })
}

// take hands an event on, in its order.
func (r *Remote) take(c *rpc, e rpcEvent) {
	for _, rm := range e.Members {
		if e.Event == rpcReap {
			r.watch.remove(rm.Name)
			continue
		}

		r.watch.change(asMember(rm.member()))
		r.mu.Lock()
		if r.conn == c && rm.Name != r.name {
			if r.waits && !r.others {
				r.alone.Reset(r.t.Tick) // it is about to learn of all from that one
			}

			r.had, r.others = true, true
		}

		r.mu.Unlock()
	}
}

func asMember(m hserf.Member) monitor.Member {
	return monitor.Member{Name: m.Name, Addr: placeOf(m), Tags: m.Tags, Alive: alive(m)}
}

// look asks the agent how it is, which also tells whether it answers.
func (r *Remote) look(ctx context.Context, c *rpc) error {
	told, err := c.stats(ctx)
	if err != nil {
		return err
	}

	number := func(key string) int {
		n, _ := strconv.Atoi(told.Serf[key]) // 0 where an agent does not tell it
		return n
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.name, r.self.Encrypted = told.Agent["name"], told.Serf["encrypted"] != "false"
	r.health = number("health_score")
	r.queues = map[string]int{
		"intent": number("intent_queue"),
		"event":  number("event_queue"),
		"query":  number("query_queue"),
	}

	return nil
}

// fetch asks for the complete member list, and counts.
func (r *Remote) fetch(ctx context.Context, c *rpc) ([]hserf.Member, error) {
	ms, err := c.members(ctx)
	if err != nil {
		return nil, err
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	r.members = count(ms)
	for _, m := range ms {
		if m.Name == r.name {
			r.self.Node, _ = monitor.IdentityOf(m.Tags) // zero where it is not a node
			r.self.Addr = placeOf(m)
		}
	}

	return ms, nil
}

// list is the complete member list, for the observers.
func (r *Remote) list(ctx context.Context) ([]monitor.Member, error) {
	r.mu.Lock()
	c := r.conn
	r.mu.Unlock()

	if c == nil {
		return nil, r.Err()
	}

	ctx, cancel := context.WithTimeout(ctx, r.t.Answer)
	defer cancel()

	ms, err := r.fetch(ctx, c)
	if err != nil {
		return nil, err
	}

	all := make([]monitor.Member, 0, len(ms))
	for _, m := range ms {
		all = append(all, asMember(m))
	}

	return all, nil
}
