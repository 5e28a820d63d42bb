// SPDX-License-Identifier: Apache-2.0

package serf

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	hserf "github.com/hashicorp/serf/serf"
	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/monitor"
)

// Identity is which node an agent runs on.
type Identity = monitor.Identity

// Options say how an agent takes part in the gossip.
type Options struct {
	Node Identity // zero: a member that is not a node

	Bind      string // ip:port to listen on; port 0 takes a free one; ":7946" is all addresses
	Advertise string // host:port under which the others reach this member; default: found out

	KeyFile string // holds the gossip key in base64: 16, 24 or 32 bytes for AES

	// Join are addresses (host:port) of members. They are tried until one
	// answers, for as long as that takes, and again whenever none of the
	// members is alive. The members of an earlier run (see DataDir) are tried
	// as well.
	Join []string

	// DataDir keeps what has to survive a restart: the member's unique name
	// and the other members' addresses. It belongs to one agent. Empty: nothing
	// survives.
	DataDir string

	// Sinks take what the agent sees, each at its own pace; none for an agent
	// that is only seen.
	Sinks []monitor.Sink

	Timing Timing             // zero: LAN
	Log    logrus.FieldLogger // required
}

func (o *Options) check() error {
	var errs []error
	if o.Log == nil {
		errs = append(errs, errors.New("there is no logger"))
	}

	if o.Node != (Identity{}) {
		errs = append(errs, o.Node.Check())
	}

	if o.Bind == "" {
		errs = append(errs, errors.New("there is no address to bind the gossip to; give IP:PORT"))
	}

	for _, j := range o.Join {
		errs = append(errs, checkPeer(j))
	}

	return errors.Join(errs...)
}

// Agent is a running member of the gossip.
type Agent struct {
	o      Options
	t      Timing
	key    []byte
	host   string // bound to; "" for all addresses
	serf   *log.Logger
	store  *store
	watch  watch         // empty without a sink
	rivals chan struct{} // somebody uses a live member's name, or no longer

	stop    context.CancelFunc // ends the loop; the rest follows
	leave   atomic.Bool        // say good-bye first
	done    chan struct{}
	err     error // why it ended; read it after done
	renames atomic.Int64

	mu  sync.Mutex
	now *instance
}

// Start binds the gossip address and takes part. It does not wait for other
// members. A taken port, an unusable directory or key and a wrong identity are
// errors. ctx bounds the start only; the agent runs until Leave or Close, or
// until it fails (see Done).
func Start(ctx context.Context, o Options) (*Agent, error) {
	if err := o.check(); err != nil {
		return nil, err
	}

	key, err := o.key()
	if err != nil {
		return nil, err
	}

	host, port, err := parseBind(o.Bind)
	if err != nil {
		return nil, err
	}

	if o.Timing == (Timing{}) {
		o.Timing = LAN()
	}

	st, complaint, err := openStore(o.DataDir)
	if err != nil {
		return nil, err
	}

	if complaint != nil {
		o.Log.Warnf("the gossip state is put aside, and this member gets a new name: %v", complaint)
	}

	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	a := &Agent{
		o: o, t: o.Timing, key: key, host: host, store: st, stop: stop,
		serf:   newLogger(o.Log),
		rivals: make(chan struct{}, 1),
		done:   make(chan struct{}),
	}
	a.watch = newWatch(watching{
		sinks: o.Sinks, list: func(context.Context) ([]monitor.Member, error) { return a.Members(), nil },
		window: o.Timing.Window, before: st.Alive, gossip: a.serf, log: o.Log,
		known: func(member string) bool { return o.Node == (Identity{}) && member == a.name() },
	})

	in, err := a.launch(ctx, life, port)
	if err != nil {
		stop()
		st.close()

		return nil, err
	}

	a.become(in)
	go a.run(life, in)

	return a, nil
}

// Addr is the ip:port under which the others reach this member.
func (a *Agent) Addr() string { return a.current().own.String() }

// Name is the member's name; it differs from the node's by a suffix, so that two
// hosts that claim one identity are two members.
func (a *Agent) Name() string { return a.current().name }

// Members lists all members the agent knows, itself and dead ones included, in
// no order.
func (a *Agent) Members() []monitor.Member {
	in := a.current()
	ms := in.s.Members()

	all := make([]monitor.Member, 0, len(ms))
	for _, m := range ms {
		all = append(all, in.member(m))
	}

	return all
}

// Stats are numbers for metrics.
type Stats struct {
	Alive   int // members, this one included
	Failed  int // members that stopped answering
	Left    int // members that said good-bye
	Health  int // 0 is best; see memberlist's awareness
	Renames int // how often this member had to take a new name
	// Queues are how many messages wait to be passed on, by what they are:
	// intent, event, query.
	Queues map[string]int

	Observer monitor.Stats // zero for an agent without a sink
}

// Stats counts.
func (a *Agent) Stats() Stats {
	in := a.current()
	s := count(in.s.Members())
	s.Health, s.Renames = in.s.Memberlist().GetHealthScore(), int(a.renames.Load())

	s.Observer, s.Queues = a.watch.stats(), map[string]int{}
	for name, depth := range in.s.Stats() {
		if queue, ok := strings.CutSuffix(name, "_queue"); ok {
			s.Queues[queue], _ = strconv.Atoi(depth)
		}
	}

	return s
}

// count counts members by what is known of them.
func count(ms []hserf.Member) (s Stats) {
	for _, m := range ms {
		switch m.Status {
		case hserf.StatusAlive, hserf.StatusLeaving:
			s.Alive++
		case hserf.StatusFailed:
			s.Failed++
		case hserf.StatusLeft:
			s.Left++
		}
	}

	return s
}

// Compare has the sinks told everything now.
func (a *Agent) Compare() { a.watch.compare() }

// Done is closed when the agent has ended, for whatever reason.
func (a *Agent) Done() <-chan struct{} { return a.done }

// Err is why the agent ended by itself; nil while it runs and after Leave or
// Close.
func (a *Agent) Err() error {
	select {
	case <-a.done:
		return a.err
	default:
		return nil
	}
}

// Leave ends the agent and tells the others that it is gone on purpose, so that
// nobody waits for it to fail. It takes a few seconds at most; when ctx is done
// first, it returns ctx's error and the agent ends by itself. The sink hears
// nothing of it.
func (a *Agent) Leave(ctx context.Context) error {
	a.leave.Store(true)
	a.stop()

	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		return fmt.Errorf("leaving the gossip takes longer: %w", ctx.Err())
	}
}

// Close ends the agent without a word: to the others it has failed, unless it
// is back before they notice. It waits until everything is down.
func (a *Agent) Close() error {
	a.stop()
	<-a.done

	return a.err
}

func (a *Agent) become(in *instance) {
	a.mu.Lock()
	a.now = in
	a.mu.Unlock()
	a.o.Log.Infof("gossip: member %s at %s", in.name, in.own)
}

func (a *Agent) current() *instance {
	a.mu.Lock()
	defer a.mu.Unlock()

	return a.now
}

func (a *Agent) name() string {
	a.mu.Lock()
	defer a.mu.Unlock()

	if a.now == nil {
		return ""
	}

	return a.now.name
}

// run owns everything the agent has, from start to end.
func (a *Agent) run(ctx context.Context, in *instance) {
	defer close(a.done)
	var observing sync.WaitGroup
	observing.Go(func() { a.watch.run(ctx) })
	l := loop{Agent: a, in: in}
	a.err = l.run(ctx)
	a.stop()
	observing.Wait()
	l.save()
	// Nothing may shut serf down while it leaves: memberlist panics.
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

// loop is the agent looking after itself: it finds the others, remembers them,
// and gives up a name that is not its own.
type loop struct {
	*Agent
	in *instance

	met      bool      // somebody answered
	nextJoin time.Time // when to look for members to join
	misses   int       // failed attempts in a row
	grace    *time.Timer
	saveErr  string
}

func (l *loop) run(ctx context.Context) error {
	l.await()
	defer func() { l.grace.Stop() }()

	tick := time.NewTicker(l.t.Tick)
	defer tick.Stop()

	for {
		l.join(ctx)
		l.in.rivals.expire(time.Now())

		if err := l.giveUpName(ctx); err != nil {
			return err
		}

		l.tidy()
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

// await lets the first report wait for a first contact, so that a member that
// has just started does not report that it sees nobody.
func (l *loop) await() {
	l.grace = time.AfterFunc(l.t.Grace, l.watch.resume)
}

// join looks for members to join, when it is time to.
func (l *loop) join(ctx context.Context) {
	if time.Now().Before(l.nextJoin) || ctx.Err() != nil {
		return
	}

	live, alone := l.in.live()

	peers := slices.Clone(l.o.Join)
	if alone {
		peers = append(peers, l.store.Peers...)
	}

	var tried, joined int

	var failure error
	for _, p := range peers {
		addrs, err := resolve(ctx, p)
		if err != nil {
			tried, failure = tried+1, err
			continue
		}

		if slices.ContainsFunc(addrs, func(ap addrPort) bool { return live[ap] || l.in.isOwn(ap) }) {
			continue
		}

		tried++

		for _, ap := range addrs {
			if _, err = l.in.s.Join([]string{ap.String()}, true); err == nil {
				joined++
				live, alone = l.in.live()
				break
			}

			if failure = err; ctx.Err() != nil {
				return
			}
		}
	}

	l.nextJoin = time.Now().Add(l.t.JoinAgain)
	switch {
	case joined > 0 || !alone || tried == 0:
		if l.misses > 0 && joined > 0 {
			l.o.Log.Infof("gossip: joined after %s", inventory.Count(l.misses, "failed attempt", "failed attempts"))
		}

		l.misses = 0
		l.met = l.met || joined > 0 || !alone
		l.watch.resume()
	default:
		l.missed(failure)
	}
}

// missed puts the next attempt to join off.
func (l *loop) missed(why error) {
	wait := l.t.JoinMin
	for range l.misses {
		if wait = min(2*wait, l.t.JoinMax); wait == l.t.JoinMax {
			break
		}
	}

	l.misses++

	l.nextJoin = time.Now().Add(wait)
	if l.misses&(l.misses-1) == 0 {
		l.serf.Printf("[WARN] gossip: no other member answers, attempt %d: %v", l.misses, why)
	}
}

// giveUpName takes a new name when another host uses this member's: its data
// directory was copied, most likely. The others have never accepted that other
// host as a member, or this one; under names of their own they are two.
func (l *loop) giveUpName(ctx context.Context) error {
	place, since := l.in.rivals.contested(l.in.name)
	if place == "" || since < l.t.Contested || ctx.Err() != nil {
		return nil
	}

	l.o.Log.Warnf(
		"gossip: the member at %s uses the name %s, too (a copied data directory?); this one takes a new name",
		place,
		l.in.name,
	)
	l.watch.pause()
	l.in.shutdown() // without a word: a good-bye would be the other's
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
	l.grace.Stop()
	l.await()

	return nil
}

// relaunch starts serf again on the port it had.
func (l *loop) relaunch(ctx context.Context) (*instance, error) {
	const tries = 5
	var in *instance

	var err error
	for range tries {
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

// tidy has the others forget members that this one has replaced: they failed,
// and were where this one is.
func (l *loop) tidy() {
	for _, m := range l.in.s.Members() {
		if m.Status == hserf.StatusFailed && m.Name != l.in.name && placeOf(m) == l.in.own.String() {
			if err := l.in.s.RemoveFailedNodePrune(m.Name); err != nil {
				l.serf.Printf("[DEBUG] gossip: forgetting %q: %v", m.Name, err)
			}
		}
	}
}

// save remembers the members and the nodes that are alive. The members of an
// earlier run are kept until this one has met any.
func (l *loop) save() {
	if !l.met {
		_, alone := l.in.live()
		l.met = !alone
	}

	if l.met {
		l.store.Peers = l.in.peers()
	}

	l.store.Alive = l.watch.alive()

	err := l.store.save()
	switch {
	case err == nil:
		l.saveErr = ""
	case err.Error() != l.saveErr:
		l.saveErr = err.Error()
		l.o.Log.Warnf("gossip: %v", err)
	}
}
