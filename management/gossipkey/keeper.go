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
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rotation"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/monitor"
)

const (
	// roundTime bounds one round.
	roundTime = 3 * time.Minute

	// pushes is the number of absent nodes that one round tries over ssh.
	pushes = 64

	// noteTime is how often a round without progress is noted in the store.
	noteTime = 5 * time.Minute
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
	Records record.Store
	Leads   func() bool // reports whether this instance carries rotations out
	// Ring returns the gossip, or the reason why there is none now.
	Ring   func() (Ring, error)
	Pusher Pusher
	Node   string // of this instance
	// Former is the file of an earlier version, which kept the rotation on its host.
	Former   string
	Settings func() Settings
	Generate func() string // a new key
	// Follow puts the key of a finished rotation into the key file of this host. It may be repeated.
	Follow func(r Rotation) error
	Audit  access.Auditor
	Logger logrus.FieldLogger
	Every  time.Duration // between two rounds; 0: 15 s
}

// Keeper carries rotations out. All methods may be called at once.
type Keeper struct {
	Options
	*control.Loop

	mu       sync.Mutex
	tried    map[string]time.Time // the last push to each node
	why      map[string]string    // why it failed
	followed time.Time            // the end of the rotation that the key file of this host has
}

// New returns a Keeper.
func New(o Options) *Keeper {
	o.Every = cmp.Or(o.Every, 15*time.Second)

	k := &Keeper{Options: o, tried: map[string]time.Time{}, why: map[string]string{}}
	k.Loop = control.New(control.Options{
		Name: "rotation of the gossip key", Every: o.Every, Begin: k.takeOver,
		Round:   func(ctx context.Context) (control.Next, error) { return control.Next{}, k.Round(ctx) },
		Trouble: "the rotation of the gossip key is held up", Logger: o.Logger,
	})

	return k
}

// Rotation returns the record of the newest rotation.
func (k *Keeper) Rotation() Rotation {
	latest, _ := k.Records.Latest()
	return record.One(latest, &Kind)
}

// Status is the state of the gossip key.
type Status struct {
	Rotation
	Known int // nodes that are, or have been, members of the gossip
	// Key and OldKeys are fingerprints.
	Key     string
	OldKeys []string
}

// StatusOf returns the state of a rotation. It has no key.
func StatusOf(v *state.View, r Rotation) Status {
	s := Status{Rotation: r, Known: len(known(v))}

	if fresh, old, err := r.keys(); err == nil {
		s.Key = Fingerprint(fresh)

		for _, key := range old {
			s.OldKeys = append(s.OldKeys, Fingerprint(key))
		}
	}

	s.Secret = nil

	return s
}

// known returns the nodes that need the key.
func known(v *state.View) []*inventory.Node {
	return slices.DeleteFunc(slices.Clone(v.Nodes()), func(n *inventory.Node) bool { return !isKnown(n) })
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

	err := access.Audited(ctx, k.Audit, c, record, func(ctx context.Context, _ *access.Record) error {
		if r.Force {
			return k.giveUp(ctx, r.LockOut)
		}
		return k.begin(ctx, c.Principal)
	})
	if err != nil {
		return Status{}, err
	}

	k.Kick()

	return StatusOf(k.State.View(), k.Rotation()), nil
}

// begin stores a new rotation, unless one is running. One whose keys are lost begins anew.
func (k *Keeper) begin(ctx context.Context, actor string) error {
	ring, err := k.Ring()
	if err != nil {
		return err
	}
	old, err := ring.Keys(ctx)
	if err != nil {
		return inventory.Errorf(inventory.KindUnavailable, "the gossip keys cannot be read: %w", err).
			Do("see the health of the manager").With(inventory.ShowHealth())
	}

	return k.change(ctx, func(r *Rotation) error {
		if _, _, err := r.keys(); r.Phase.Running() && err == nil {
			return nil
		}

		*r = Rotation{
			Phase: rotation.PhaseInstall, Actor: actor, Started: time.Now(), Replaced: replace(r.Replaced, old),
		}.withKeys(k.Generate(), old)

		return nil
	})
}

// giveUp lets the running rotation go on without the nodes.
func (k *Keeper) giveUp(ctx context.Context, nodes []string) error {
	return k.change(ctx, func(r *Rotation) error {
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

// change changes the record in the store.
func (k *Keeper) change(ctx context.Context, apply func(*Rotation) error) error {
	_, _, err := record.Decide(ctx, k.Records, func(tx *record.Tx) (struct{}, error) {
		r := record.One(tx, &Kind)
		if err := apply(&r); err != nil {
			return struct{}{}, err
		}
		record.Put(tx, &Kind, &r)
		return struct{}{}, nil
	})

	return err
}

// Round carries the running rotation on, as far as the members let it, or follows one that is done.
// It may be repeated, and interrupted at any point.
func (k *Keeper) Round(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, roundTime)
	defer cancel()

	for {
		before := k.Rotation()

		switch {
		case before.Phase == rotation.PhaseDone:
			return k.follow(before)
		case !before.Phase.Running() || !k.Leads():
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

// follow lets the key file of this host follow a rotation, once.
func (k *Keeper) follow(r Rotation) error {
	if k.followed.Equal(r.Ended) {
		return nil
	}
	if err := k.Follow(r); err != nil {
		return err
	}
	k.followed = r.Ended

	return nil
}

// step carries out one phase, and advances if it is complete.
func (k *Keeper) step(ctx context.Context, r Rotation) error {
	fresh, old, err := r.keys()
	if err != nil {
		return err
	}
	ring, err := k.Ring()
	if err != nil {
		return err
	}

	v, now := k.State.View(), r
	nodes := known(v)

	// Members that joined since, or lost a keyring, count too.
	as, err := ring.AskKeys(ctx, monitor.KeyInstall, fresh)
	if err != nil {
		return err
	}
	installed := answers(as)

	keys, _ := r.Keys()
	now.Confirmed = k.confirm(ctx, r, nodes, installed, r.Confirmed, keys)

	pending := rotation.Merge(installed.pending(r.LockedOut), k.unheard(v, installed, r.LockedOut))
	waiting := k.waiting(r, nodes, now.Confirmed, installed)

	if r.Phase == rotation.PhaseInstall {
		return k.advance(ctx, r, now, rotation.PhaseUse, pending, waiting)
	}

	used, err := ring.AskKeys(ctx, monitor.KeyUse, fresh)
	if err != nil {
		return err
	}
	pending = rotation.Merge(pending, answers(used).pending(r.LockedOut))

	if r.Phase == rotation.PhaseUse {
		return k.advance(ctx, r, now, rotation.PhaseRemove, pending, waiting)
	}

	// The old key stays until every known node has the new one.
	if blocked := rotation.Merge(pending, waiting); len(blocked) > 0 {
		return k.advance(ctx, r, now, rotation.PhaseRemove, blocked, nil)
	}

	// Remove the old keys from all members, and from the absent nodes over ssh.
	removed := answers{}

	for _, key := range old {
		as, err := ring.AskKeys(ctx, monitor.KeyRemove, key)
		if err != nil {
			return err
		}
		removed = append(removed, as...)
	}

	now.Removed = k.confirm(ctx, r, nodes, removed, r.Removed, []string{fresh})
	blocked := rotation.Merge(removed.pending(r.LockedOut), k.waiting(r, nodes, now.Removed, removed))

	return k.advance(ctx, r, now, rotation.PhaseDone, blocked, nil)
}

// confirm returns the sorted list of nodes with those that have confirmed now: by their member, or over ssh.
func (k *Keeper) confirm(
	ctx context.Context, r Rotation, nodes []*inventory.Node, as answers, confirmed, keys []string,
) []string {
	more, absent := as.note(nodes)
	confirmed = rotation.With(confirmed, more)

	return rotation.With(confirmed, k.pushAbsent(ctx, r, absent, confirmed, keys))
}

// unheard returns the other live instances whose member has not answered: without the new key, one could
// not lead.
func (k *Keeper) unheard(v *state.View, as answers, lockedOut []string) []rotation.Laggard {
	var all []rotation.Laggard

	for _, i := range record.List(v, &state.Instances) {
		isIts := func(a monitor.KeyAnswer) bool { return i.Node == a.Node || i.Node == a.Member }

		if !slices.ContainsFunc(as, isIts) && i.Node != k.Node && !slices.Contains(lockedOut, i.Node) {
			all = append(all, rotation.Laggard{Name: i.Node, Reason: "its clusterm is not in this gossip"})
		}
	}

	return all
}

// waiting returns the nodes that have not confirmed, each with the reason.
func (k *Keeper) waiting(r Rotation, nodes []*inventory.Node, confirmed []string, as answers) []rotation.Laggard {
	k.mu.Lock()
	defer k.mu.Unlock()

	var all []rotation.Laggard

	for _, n := range nodes {
		if rotation.Has(confirmed, n.Name) || slices.Contains(r.LockedOut, n.Name) {
			continue
		}

		reason, live := as.of(n.Name)

		switch {
		case live && reason == "":
			reason = "several hosts claim to be it"
		case !live:
			reason = cmp.Or(k.why[n.Name], "it is not in the gossip, and was not tried over ssh yet")
		}

		all = append(all, rotation.Laggard{Name: n.Name, Reason: reason})
	}

	return all
}

// advance stores the progress from r to now, and the next phase unless blocked names members. The
// others in waiting do not hold the phase up.
func (k *Keeper) advance(
	ctx context.Context,
	r, now Rotation,
	next rotation.Phase,
	blocked, waiting []rotation.Laggard,
) error {
	now.Laggards, now.Round = rotation.Merge(blocked, waiting), time.Now()
	if len(blocked) == 0 {
		now.Phase = next
	}
	if now.Phase == rotation.PhaseDone {
		now.Ended = now.Round
	}

	same := now.Phase == r.Phase && len(now.Confirmed) == len(r.Confirmed) && len(now.Removed) == len(r.Removed) &&
		slices.Equal(now.Laggards, r.Laggards)
	if same && now.Round.Sub(r.Round) < noteTime {
		return nil
	}

	store := func(ctx context.Context, _ *access.Record) error {
		return k.change(ctx, func(stored *Rotation) error {
			// Another leader may have been faster, and an operator gives nodes up meanwhile.
			if stored.Started.Equal(r.Started) && stored.Phase == r.Phase {
				lockedOut := stored.LockedOut
				*stored = now
				stored.LockedOut = lockedOut
			}
			return nil
		})
	}

	if now.Phase == r.Phase {
		return store(ctx, nil)
	}

	k.Logger.WithField("phase", next).Info("the rotation of the gossip key goes on")

	record := access.Record{Action: "gossip-key." + string(next), Reason: "rotation begun by " + r.Actor}

	return access.Audited(ctx, k.Audit, access.Caller{Principal: access.Manager}, record, store)
}

// pushAbsent installs the keys over ssh on nodes without a live member that have not
// confirmed: those whose last attempt is longest ago first. It returns the names of those that have the keys.
func (k *Keeper) pushAbsent(
	ctx context.Context, r Rotation, absent []*inventory.Node, confirmed, keys []string,
) (done []string) {
	due := slices.DeleteFunc(absent, func(n *inventory.Node) bool {
		return rotation.Has(confirmed, n.Name) || slices.Contains(r.LockedOut, n.Name)
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

		done = append(done, n.Name)
	}

	return done
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
