// SPDX-License-Identifier: Apache-2.0

package serf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	hserf "github.com/hashicorp/serf/serf"
	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/monitor"
)

// RemoteOptions configure the watch of an existing serf agent.
type RemoteOptions struct {
	Addr     string // of its RPC: a loopback ip:port
	AuthFile string // file of its rpc_auth; empty: it has none

	// Sinks receive the agent's members, each at its own pace.
	Sinks []monitor.Sink
	// Before names the nodes that were alive at the last acknowledged report of an
	// earlier run (see monitor.Options).
	Before []string

	Timing Timing             // zero: LAN
	Log    logrus.FieldLogger // required
}

// CheckRemote refuses an RPC address outside loopback.
func CheckRemote(addr string) error { return checkRPC(addr) }

// Remote watches the serf agent of another process over RPC.
//
// While the agent does not answer, there are no reports, and the last one holds.
// After every reconnect the sinks get a full report.
type Remote struct {
	o     RemoteOptions
	t     Timing
	watch watch
	stop  context.CancelFunc
	done  chan struct{}
	tried chan struct{} // closed after the first attempt
	once  sync.Once     // guards tried

	mu      sync.Mutex
	conn    *rpc        // nil while disconnected
	cause   error       // of being disconnected
	since   time.Time   // of being disconnected
	others  bool        // the agent has members besides its own
	had     bool        // it had some earlier
	waits   bool        // the first report waits until it has some again
	alone   *time.Timer // limit of that wait
	self    Self
	name    string // of the agent's own member
	members Stats  // of the last list
	health  int
	queues  map[string]int
}

// Self is the agent's own member.
type Self struct {
	Node      Identity // zero where its own member is not a node
	Addr      string   // ip:port under which other members reach it
	Encrypted bool     // whether its gossip is
}

// WatchRemote starts the watch of an agent. It returns when the first attempt to
// connect has succeeded or failed (see Err), and keeps reconnecting until Close.
// An invalid address and an unreadable key file are errors. ctx bounds the start
// only.
func WatchRemote(ctx context.Context, o RemoteOptions) (*Remote, error) {
	if o.Log == nil {
		return nil, errors.New("no logger is given")
	}

	if err := checkRPC(o.Addr); err != nil {
		return nil, err
	}

	_, open, err := readAuth(o.AuthFile)
	if err != nil {
		return nil, err
	}
	if open {
		o.Log.Warnf("the RPC key %s is readable by other users; set its mode to 0600", o.AuthFile)
	}

	if o.Timing == (Timing{}) {
		o.Timing = LAN()
	}

	// ctx bounds the start only; stop ends the watch.
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	r := &Remote{
		o: o, t: o.Timing, stop: stop, done: make(chan struct{}), tried: make(chan struct{}),
		cause: errors.New("it has not answered yet"), since: time.Now(),
	}

	r.watch = newWatch(watchOptions{
		sinks: o.Sinks, list: r.Members, window: o.Timing.Window, before: o.Before,
		gossip: newLogger(o.Log), log: o.Log,
		exempt: func(string) bool { return false },
	})
	go r.run(life)

	select {
	case <-r.tried:
		return r, nil
	case <-ctx.Done():
		// Nobody gets r, so nobody can close it later.
		r.stop()
		<-r.done
		return nil, ctx.Err()
	}
}

// readAuth reads the file of an agent's RPC key. open means that users other than
// its owner can read it.
func readAuth(path string) (key string, open bool, err error) {
	if path == "" {
		return "", false, nil
	}

	f, err := os.Open(path)
	if err != nil {
		return "", false, fmt.Errorf("cannot read the RPC key of the serf agent: %w", err)
	}
	defer f.Close()

	b, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return "", false, fmt.Errorf("cannot read the RPC key of the serf agent: %w", err)
	}
	if b = bytes.TrimSpace(b); len(b) == 0 {
		return "", false, fmt.Errorf("%s is empty; put the rpc_auth of the serf agent into it", path)
	}

	return string(b), isOpen(f), nil
}

// Close ends the watch and waits until it is down. The agent goes on.
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
		return fmt.Errorf("the watch of the serf agent is still stopping: %w", ctx.Err())
	}
}

// Err is nil while the agent answers; otherwise it holds the cause and the time of
// the disconnect.
func (r *Remote) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.conn != nil {
		return nil
	}

	return fmt.Errorf("the serf agent at %s is not connected since %s: %w; the states of nodes are as of then",
		r.o.Addr, r.since.UTC().Format(time.RFC3339), r.cause)
}

// Stats returns the numbers of the last complete list.
func (r *Remote) Stats() Stats {
	r.mu.Lock()
	s := r.members
	s.Health, s.Queues = r.health, maps.Clone(r.queues)
	r.mu.Unlock()
	s.Observer = r.watch.stats()
	return s
}

// Self returns the agent's own member; an error while it is not connected.
func (r *Remote) Self() (Self, error) {
	if err := r.Err(); err != nil {
		return Self{}, err
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	return r.self, nil
}

// Node identifies the node that the agent runs on, by the last answer; zero for
// none.
func (r *Remote) Node() Identity {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.self.Node
}

// run reconnects until ctx is done.
func (r *Remote) run(ctx context.Context) {
	defer close(r.done)
	var observing sync.WaitGroup

	observing.Go(func() { r.watch.run(ctx) })
	defer observing.Wait()

	retry, misses := r.t.joinBackOff(), 0
	for {
		connected, err := r.connection(ctx)
		if ctx.Err() != nil {
			return
		}

		if connected {
			misses = 0
			retry.Reset()
		}

		if misses++; isPowerOfTwo(misses) {
			r.o.Log.Warnf("gossip: the serf agent at %s, attempt %d: %v; retrying", r.o.Addr, misses, err)
		}

		select {
		case <-ctx.Done():
			return
		case <-time.After(retry.NextBackOff()):
		}
	}
}

// connection runs one connection to its end. connected means that the watch was
// established; err is the reason of its end.
func (r *Remote) connection(ctx context.Context) (connected bool, err error) {
	defer func() { r.disconnected(err) }()

	// The key may have changed since the last attempt.
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

	// The reader ends when the connection is closed, before the next attempt.
	var reading sync.WaitGroup

	reading.Go(func() { c.read(func(e rpcEvent) { r.event(c, e) }) })
	defer reading.Wait()
	defer c.close()

	open, cancel := context.WithTimeout(ctx, r.t.Answer)
	defer cancel()

	if err := c.open(open, key); err != nil {
		return false, err
	}

	if err := r.check(open, c); err != nil {
		return false, err
	}

	// The list comes after the subscription, so that no event is lost between them.
	ms, err := r.fetch(open, c)
	if err != nil {
		return false, err
	}
	alone := r.connected(c, ms)
	defer alone.Stop()
	r.o.Log.Infof("gossip: the serf agent at %s is connected", r.o.Addr)

	ping := time.NewTicker(r.t.Ping)
	defer ping.Stop()

	for {
		select {
		case <-ctx.Done():
			return true, ctx.Err()
		case <-c.ended:
			return true, c.failure()
		case <-ping.C:
			call, cancel := context.WithTimeout(ctx, r.t.Answer)
			err := r.check(call, c)
			cancel()

			if err != nil {
				return true, err
			}
		}
	}
}

// connected makes c the current connection. An agent that has lost all its members
// has probably just restarted: then the first report waits, for a bounded time,
// until it has found one of them.
func (r *Remote) connected(c *rpc, ms []hserf.Member) (alone *time.Timer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conn, r.cause = c, nil
	r.once.Do(func() { close(r.tried) })

	// The agent's own node is always alive, and proves no contact.
	own := r.self.Node.Name()
	if slices.ContainsFunc(r.o.Before, func(node string) bool { return node != own }) {
		r.had = true
	}

	r.o.Before = nil // it counts for the first connection only
	r.others = slices.ContainsFunc(ms, func(m hserf.Member) bool { return m.Name != r.name })
	r.waits = r.had && !r.others

	r.had = r.had || r.others
	if !r.waits {
		r.watch.resume()
	}

	r.alone = time.AfterFunc(r.t.Alone, func() { r.endWait(c) })

	return r.alone
}

// endWait lets the observers report although the agent has no other member, if c
// is still the current connection.
func (r *Remote) endWait(c *rpc) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.conn == c && r.waits {
		r.had, r.waits = r.others, false
		r.watch.resume()
	}
}

// disconnected ends the current connection, if any, and the reports.
func (r *Remote) disconnected(cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	// A failed attempt to reconnect does not change the time of the disconnect.
	if r.conn != nil {
		r.since = time.Now()
	}

	r.conn, r.cause = nil, cause
	r.watch.pause()
	r.once.Do(func() { close(r.tried) })
}

// event passes an event to the observers. Events arrive in order.
func (r *Remote) event(c *rpc, e rpcEvent) {
	for _, rm := range e.Members {
		if e.Event == rpcReap {
			r.watch.remove(rm.Name)
			continue
		}

		r.watch.change(asMember(rm.member()))
		r.mu.Lock()
		if r.conn == c && rm.Name != r.name {
			if r.waits && !r.others {
				// The first member that it finds passes the others on in a moment.
				r.alone.Reset(r.t.Tick)
			}

			r.had, r.others = true, true
		}

		r.mu.Unlock()
	}
}

// asMember converts a member of serf.
func asMember(m hserf.Member) monitor.Member {
	return monitor.Member{Name: m.Name, Addr: placeOf(m), Tags: m.Tags, Alive: alive(m)}
}

// check fetches the agent's numbers. It is the health check of the connection, too.
func (r *Remote) check(ctx context.Context, c *rpc) error {
	answer, err := c.stats(ctx)
	if err != nil {
		return err
	}

	number := func(key string) int {
		n, _ := strconv.Atoi(answer.Serf[key]) // 0 for an agent without this number
		return n
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	r.name, r.self.Encrypted = answer.Agent["name"], answer.Serf["encrypted"] != "false"
	r.health = number("health_score")
	r.queues = map[string]int{
		"intent": number("intent_queue"),
		"event":  number("event_queue"),
		"query":  number("query_queue"),
	}

	return nil
}

// fetch fetches the complete member list and updates the numbers.
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
			r.self.Node, _ = monitor.IdentityOf(m.Tags) // zero if it is not a node
			r.self.Addr = placeOf(m)
		}
	}

	return ms, nil
}

// Members fetches the complete member list, dead ones included.
func (r *Remote) Members(ctx context.Context) ([]monitor.Member, error) {
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
