// SPDX-License-Identifier: Apache-2.0

package gossipkey

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/control"
	"github.com/contiv/cluster/management/rotation"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/monitor"
)

const (
	// roundTime bounds one round.
	roundTime = 3 * time.Minute

	// pushes is the number of absent nodes that one round tries over ssh.
	pushes = 64
)

// Ring reads and changes the keyrings of all live members. Its methods block for some
// seconds.
type Ring interface {
	// Keys returns the keys in use, the one that encrypts first.
	Keys(ctx context.Context) ([]string, error)
	AskKeys(ctx context.Context, op monitor.KeyOp, key string) ([]monitor.KeyAnswer, error)
}

// Pusher installs keys over ssh.
type Pusher interface {
	// PushKeys replaces the keys of the agent on a host and restarts it. It blocks until
	// the host has confirmed or run into a timeout.
	PushKeys(ctx context.Context, h configuration.Host, keys []string) error
}

// Records keeps the record of the newest rotation, which contains keys.
type Records interface {
	// Load returns the zero value if there is none.
	Load() (Rotation, error)
	Save(r Rotation) error
}

// Settings is the part of the configuration that a rotation depends on.
type Settings struct {
	// Connect merges the ssh parameters of site, group and node.
	Connect func(v *state.View, group, node string) configuration.Connection
	// HostCAs are the keys of the CAs for host certificates, see configuration.Host.
	HostCAs []string
}

// Options are the dependencies of a Keeper.
type Options struct {
	State   state.Reader
	Records Records
	// Ring returns the gossip, or the reason why there is none now.
	Ring     func() (Ring, error)
	Pusher   Pusher
	Node     string // of this instance
	Settings func() Settings
	Generate func() string // a new key
	// Finish stores the key for the next start of the manager. It may be repeated.
	Finish func(key string) error
	Audit  access.Auditor
	Logger logrus.FieldLogger
	Every  time.Duration // between two rounds; 0: 15 s
}

// Keeper carries rotations out. All methods may be called at once.
type Keeper struct {
	Options
	*control.Loop

	mu     sync.Mutex
	record Rotation
	tried  map[string]time.Time // the last push to each node
	why    map[string]string    // why it failed
}

// New returns a Keeper with the record of an earlier process.
func New(o Options) (*Keeper, error) {
	o.Every = cmp.Or(o.Every, 15*time.Second)

	record, err := o.Records.Load()
	if err != nil {
		return nil, err
	}
	k := &Keeper{Options: o, record: record, tried: map[string]time.Time{}, why: map[string]string{}}
	k.Loop = control.New(control.Options{
		Name: "rotation of the gossip key", Every: o.Every, Round: k.goOn,
		Trouble: "the rotation of the gossip key is held up", Logger: o.Logger,
	})

	return k, nil
}

// goOn does a round of a rotation that has not ended.
func (k *Keeper) goOn(ctx context.Context) (control.Next, error) {
	if !k.Rotation().Phase.Running() {
		return control.Next{}, nil
	}
	return control.Next{}, k.Round(ctx)
}

// Rotation returns the record of the newest rotation.
func (k *Keeper) Rotation() Rotation {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.record.clone()
}

// Status is the state of the gossip key.
type Status struct {
	Rotation
	Known int // nodes that are, or have been, members of the gossip
	// Key and OldKeys are fingerprints.
	Key     string
	OldKeys []string
}

// Status returns the state of the newest rotation.
func (k *Keeper) Status() Status {
	s := Status{Rotation: k.Rotation(), Known: len(k.known())}
	for _, key := range s.Old {
		s.OldKeys = append(s.OldKeys, Fingerprint(key))
	}

	if s.New != "" {
		s.Key = Fingerprint(s.New)
	}

	// The keys themselves stay here.
	s.New, s.Old, s.Replaced = "", nil, nil

	return s
}

// known returns the nodes that need the key.
func (k *Keeper) known() []*inventory.Node {
	return slices.DeleteFunc(slices.Clone(k.State.View().Nodes()), func(n *inventory.Node) bool { return !isKnown(n) })
}

// Request asks for a rotation.
type Request struct {
	// Force goes on without the nodes in LockOut, which have to be all that the running
	// rotation waits for.
	Force   bool
	LockOut []string
}

// Rotate begins a rotation, or lets the running one go on at once. It returns when the
// record is stored.
func (k *Keeper) Rotate(ctx context.Context, c access.Caller, r Request) (Status, error) {
	record := access.Record{Action: "gossip-key.rotate", Targets: r.LockOut}

	err := access.Audited(ctx, k.Audit, c, record, func(_ context.Context, _ *access.Record) error {
		if r.Force {
			return k.giveUp(r.LockOut)
		}
		return k.begin(ctx, c.Principal)
	})
	if err != nil {
		return Status{}, err
	}

	k.Kick()

	return k.Status(), nil
}

// begin stores a new rotation, unless one is running.
func (k *Keeper) begin(ctx context.Context, actor string) error {
	if k.Rotation().Phase.Running() {
		return nil
	}

	if err := state.CheckAlone(k.State.View(), k.Node); err != nil {
		return err
	}

	ring, err := k.Ring()
	if err != nil {
		return err
	}
	old, err := ring.Keys(ctx)
	if err != nil {
		return inventory.Errorf(inventory.KindUnavailable, "the gossip keys cannot be read: %w", err).
			Do("see the health of the manager").With(inventory.ShowHealth())
	}

	return k.change(func(r *Rotation) error {
		// Another request may have been faster.
		if r.Phase.Running() {
			return nil
		}

		*r = Rotation{
			Phase: PhaseInstall, New: k.Generate(), Old: old, Actor: actor, Started: time.Now(),
			Replaced:  replace(r.Replaced, old),
			Confirmed: map[string]time.Time{}, Removed: map[string]time.Time{},
		}

		return nil
	})
}

// giveUp lets the running rotation go on without the nodes.
func (k *Keeper) giveUp(nodes []string) error {
	return k.change(func(r *Rotation) error {
		if !r.Phase.Running() {
			return inventory.Errorf(inventory.KindRefused, "no rotation of the gossip key is running").
				Do("begin one without force, and give nodes up when it waits for them")
		}

		if err := rotation.CheckLockOut(r.Laggards, nodes); err != nil {
			return err
		}

		r.LockedOut = slices.Concat(r.LockedOut, nodes)
		r.Laggards = nil

		return nil
	})
}

// change changes the record, on disk first.
func (k *Keeper) change(apply func(*Rotation) error) error {
	k.mu.Lock()
	defer k.mu.Unlock()

	changed := k.record.clone()
	if err := apply(&changed); err != nil {
		return err
	}

	if err := k.Records.Save(changed); err != nil {
		return inventory.Errorf(inventory.KindUnavailable, "the rotation of the gossip key cannot be stored: %w", err).
			Do("check the data directory")
	}

	k.record = changed

	return nil
}

// Round carries the running rotation on, as far as the members let it. It may be
// repeated, and interrupted at any point.
func (k *Keeper) Round(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, roundTime)
	defer cancel()

	for {
		before := k.Rotation()
		if !before.Phase.Running() {
			return nil
		}
		if err := k.step(ctx, before); err != nil {
			return err
		}

		// Each further phase is due at once.
		if k.Rotation().Phase == before.Phase {
			return nil
		}
	}
}

// step carries out one phase, and advances if it is complete.
func (k *Keeper) step(ctx context.Context, r Rotation) error {
	ring, err := k.Ring()
	if err != nil {
		return err
	}

	nodes := k.known()

	// Members that joined since, or lost a keyring, count too.
	installed, err := ring.AskKeys(ctx, monitor.KeyInstall, r.New)
	if err != nil {
		return err
	}
	absent := answers(installed).note(nodes, r.Confirmed, time.Now())
	k.pushAbsent(ctx, r, absent, r.Confirmed, r.Keys())

	pending := answers(installed).pending(r.LockedOut)
	if r.Phase == PhaseInstall {
		return k.advance(ctx, r, PhaseUse, pending, k.waiting(r, nodes, r.Confirmed, installed))
	}

	used, err := ring.AskKeys(ctx, monitor.KeyUse, r.New)
	if err != nil {
		return err
	}
	pending = rotation.Merge(pending, answers(used).pending(r.LockedOut))
	waiting := k.waiting(r, nodes, r.Confirmed, installed)

	if r.Phase == PhaseUse {
		return k.advance(ctx, r, PhaseRemove, pending, waiting)
	}

	// The old key stays until every known node has the new one.
	if blocked := rotation.Merge(pending, waiting); len(blocked) > 0 {
		return k.advance(ctx, r, PhaseRemove, blocked, nil)
	}

	return k.remove(ctx, ring, r, nodes)
}

// remove removes the old keys from all members, and from the absent nodes over ssh.
func (k *Keeper) remove(ctx context.Context, ring Ring, r Rotation, nodes []*inventory.Node) error {
	var pending []rotation.Laggard

	removed := answers{}
	for _, old := range r.Old {
		as, err := ring.AskKeys(ctx, monitor.KeyRemove, old)
		if err != nil {
			return err
		}
		pending = rotation.Merge(pending, answers(as).pending(r.LockedOut))
		removed = append(removed, as...)
	}

	absent := removed.note(nodes, r.Removed, time.Now())
	k.pushAbsent(ctx, r, absent, r.Removed, []string{r.New})

	waiting := k.waiting(r, nodes, r.Removed, removed)
	if blocked := rotation.Merge(pending, waiting); len(blocked) > 0 {
		return k.advance(ctx, r, PhaseRemove, blocked, nil)
	}

	if err := k.Finish(r.New); err != nil {
		return err
	}

	return k.advance(ctx, r, PhaseDone, nil, nil)
}

// waiting returns the nodes that have not confirmed, each with the reason.
func (k *Keeper) waiting(
	r Rotation,
	nodes []*inventory.Node,
	confirmed map[string]time.Time,
	as answers,
) []rotation.Laggard {
	return r.unconfirmed(nodes, confirmed, func(node string) string {
		problem, live := as.of(node)

		k.mu.Lock()
		failed := k.why[node]
		k.mu.Unlock()

		switch {
		case live && problem == "":
			return "several hosts claim to be it"
		case live:
			return problem
		}

		return cmp.Or(failed, "it is not in the gossip, and was not tried over ssh yet")
	})
}

// advance stores the progress, and the next phase unless blocked names members. The
// others in waiting do not hold the phase up.
func (k *Keeper) advance(ctx context.Context, r Rotation, next Phase, blocked, waiting []rotation.Laggard) error {
	store := func() error {
		return k.change(func(now *Rotation) error {
			now.Confirmed, now.Removed = r.Confirmed, r.Removed
			now.Laggards, now.Round = rotation.Merge(blocked, waiting), time.Now()

			if len(blocked) == 0 {
				now.Phase = next
			}

			if now.Phase == PhaseDone {
				now.Ended = now.Round
			}

			return nil
		})
	}

	if len(blocked) > 0 || next == r.Phase {
		return store()
	}

	k.Logger.WithFields(logrus.Fields{"phase": next, "key": Fingerprint(r.New)}).
		Info("the rotation of the gossip key goes on")

	record := access.Record{Action: "gossip-key." + string(next), Reason: "rotation begun by " + r.Actor}

	return access.Audited(ctx, k.Audit, access.Caller{Principal: access.Manager}, record,
		func(_ context.Context, _ *access.Record) error { return store() })
}

// pushAbsent installs the keys over ssh on nodes without a live member that have not
// confirmed: those whose last attempt is longest ago first.
func (k *Keeper) pushAbsent(
	ctx context.Context, r Rotation, absent []*inventory.Node, confirmed map[string]time.Time, keys []string,
) {
	due := slices.DeleteFunc(absent, func(n *inventory.Node) bool {
		_, ok := confirmed[n.Name]
		return ok || slices.Contains(r.LockedOut, n.Name)
	})

	k.mu.Lock()
	slices.SortStableFunc(due, func(a, b *inventory.Node) int { return k.tried[a.Name].Compare(k.tried[b.Name]) })
	k.mu.Unlock()

	due = due[:min(len(due), pushes)]
	failed := make([]error, len(due))

	var pushing sync.WaitGroup
	for i, n := range due {
		pushing.Go(func() { failed[i] = k.push(ctx, n, keys) })
	}

	pushing.Wait()

	now := time.Now()

	k.mu.Lock()
	defer k.mu.Unlock()

	for i, n := range due {
		k.tried[n.Name] = now

		if failed[i] != nil {
			k.why[n.Name] = "it is not in the gossip, and not reached over ssh: " + failed[i].Error()
			continue
		}

		delete(k.why, n.Name)

		confirmed[n.Name] = now
	}
}

// push installs the keys on the host of a node.
func (k *Keeper) push(ctx context.Context, n *inventory.Node, keys []string) error {
	settings, v := k.Settings(), k.State.View()
	h := configuration.Host{
		Name: n.Name, Addr: n.Addr, Label: n.Label, Serial: n.Serial, Role: configuration.RoleTarget,
		Connection: settings.Connect(v, n.Group, n.Name), HostKeys: n.HostKeys, HostCAs: settings.HostCAs,
	}

	// The keys go to no host that nobody has verified.
	if len(h.HostKeys)+len(h.HostCAs) == 0 {
		return fmt.Errorf("its ssh host key is not known")
	}

	if err := configuration.CheckHosts([]configuration.Host{h}); err != nil {
		return err
	}

	return k.Pusher.PushKeys(ctx, h, keys)
}
