// SPDX-License-Identifier: Apache-2.0

package serf

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/memberlist"
	hserf "github.com/hashicorp/serf/serf"
	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/monitor"
)

// Identity identifies the node of an agent.
type Identity = monitor.Identity

// Options configure an agent.
type Options struct {
	Node Identity // zero: a member that is not a node

	Bind      string // ip:port to listen on; port 0 takes a free one; ":7946" is all addresses
	Advertise string // host:port under which the others reach this member; default: derived

	// KeyFile is the file of the gossip keys in base64, one per line: 16, 24 or 32 bytes
	// for AES. The first one encrypts. A rotation changes the keyring in DataDir and not
	// this file; if this file changes, the next start takes its keys.
	KeyFile string

	// Join lists addresses (host:port) of members. They are tried until one
	// answers, without a limit, and again whenever no other member is alive,
	// together with the members of an earlier run (see DataDir).
	Join []string

	// DataDir keeps the member's unique name and the other members' addresses
	// over a restart. It is locked for one agent. Empty: nothing is kept.
	DataDir string

	// Sinks receive the agent's reports, each at its own pace. An agent that only
	// makes its host visible has none.
	Sinks []monitor.Sink

	Timing Timing             // zero: LAN
	Log    logrus.FieldLogger // required
}

func (o *Options) check() error {
	var errs []error
	if o.Log == nil {
		errs = append(errs, errors.New("no logger is given"))
	}

	if o.Node != (Identity{}) {
		errs = append(errs, o.Node.Check())
	}

	if o.Bind == "" {
		errs = append(errs, errors.New("no address to bind the gossip to is given; give IP:PORT"))
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
	ring   *memberlist.Keyring
	host   string // the bound host; "" for all addresses
	serf   *log.Logger
	store  *store
	watch  watch         // empty without a sink
	rivals chan struct{} // signals that a rival for a live member's name came or went

	stop    context.CancelFunc // ends the loop; the rest follows
	leave   atomic.Bool        // leave the gossip first
	done    chan struct{}
	err     error // the reason of an end by itself; read it after done
	renames atomic.Int64

	mu  sync.Mutex
	now *instance
}

// Start binds the gossip address and joins the gossip. It does not wait for other
// members. A taken port, an unusable directory or key and an invalid identity
// are errors. ctx bounds the start only; the agent runs until Leave or Close, or
// until it fails (see Done).
func Start(ctx context.Context, o Options) (*Agent, error) {
	if err := o.check(); err != nil {
		return nil, err
	}

	keys, err := o.keys()
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

	st, damage, err := openStore(o.DataDir)
	if err != nil {
		return nil, err
	}

	if damage != nil {
		const text = "gossip: cannot use the stored state; it is kept as %s.bad, and this member gets a new name: %v"
		o.Log.Warnf(text, stateFile, damage)
	}

	ring, damage, err := st.openKeyring(keys)
	if err != nil {
		st.close()
		return nil, err
	}

	if damage != nil {
		o.Log.Warnf("gossip: the keyring is damaged; its last copy is used: %v", damage)
	}

	// ctx bounds the start only; stop ends the agent.
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	a := &Agent{
		o: o, t: o.Timing, ring: ring, host: host, store: st, stop: stop,
		serf:   newLogger(o.Log),
		rivals: make(chan struct{}, 1),
		done:   make(chan struct{}),
	}
	a.watch = newWatch(watchOptions{
		sinks: o.Sinks, list: func(context.Context) ([]monitor.Member, error) { return a.Members(), nil },
		window: o.Timing.Window, before: st.Alive, gossip: a.serf, log: o.Log,
		// An agent that is not a node is no stranger to itself.
		exempt: func(member string) bool { return o.Node == (Identity{}) && member == a.name() },
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

// Name is the name of the member: that of the node and a suffix, so that two hosts
// that claim one identity are two members.
func (a *Agent) Name() string { return a.current().name }

// Members lists all members, itself and dead ones included, in no order.
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
	Left    int // members that left
	Health  int // 0 is best; see memberlist's awareness
	Renames int // new names that this member took because of a rival
	// Queues counts the messages that wait to be passed on, by kind: intent,
	// event, query.
	Queues map[string]int

	Observer monitor.Stats // zero for an agent without a sink
}

// Stats returns the current numbers.
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

// count counts members by status.
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

// Compare makes the observers send a full report now.
func (a *Agent) Compare() { a.watch.compare() }

// Done is closed when the agent has ended, for any reason.
func (a *Agent) Done() <-chan struct{} { return a.done }

// Err is the failure that ended the agent; nil while it runs and after Leave or
// Close.
func (a *Agent) Err() error {
	select {
	case <-a.done:
		return a.err
	default:
		return nil
	}
}

// Leave ends the agent with a leave message, so that the others do not wait for it
// to fail. It takes a few seconds at most; when ctx is done first, it returns
// ctx's error and the agent ends on its own. The sinks get no report of it.
func (a *Agent) Leave(ctx context.Context) error {
	a.leave.Store(true) // before the stop, which run answers by it
	a.stop()

	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		return fmt.Errorf("leaving the gossip takes longer: %w", ctx.Err())
	}
}

// Close ends the agent without a leave: the others see it fail, unless it is back
// before they notice. It waits until everything is down.
func (a *Agent) Close() error {
	a.stop()
	<-a.done
	return a.err
}

// become makes in the current instance.
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

// name is Name, or "" while the first instance starts.
func (a *Agent) name() string {
	a.mu.Lock()
	defer a.mu.Unlock()

	if a.now == nil {
		return ""
	}
	return a.now.name
}
