// SPDX-License-Identifier: Apache-2.0

package sshkey

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/control"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rotation"
	"github.com/contiv/cluster/management/state"
)

// Hosts logs in to hosts. Its methods block until the hosts have answered or run into a
// timeout of some seconds.
type Hosts interface {
	// Probe tries a login on each host, and changes nothing.
	Probe(ctx context.Context, hosts []configuration.Host) []configuration.Reach
	// EditAuthorizedKeys applies edit to the authorized_keys file of the account that h logs in to.
	EditAuthorizedKeys(ctx context.Context, h configuration.Host, edit func([]byte) ([]byte, error)) error
}

// Settings is the part of the configuration that a rotation depends on.
type Settings struct {
	KeyFile string // ssh.key_file; "": ssh finds a key by itself
	RunTime bool   // it was set at run time
	// Connect merges the ssh parameters of site, group and node.
	Connect func(v *state.View, group, node string) configuration.Connection
	// OwnKey reports whether a node has a key of its own, or one of its group.
	OwnKey func(v *state.View, group, node string) bool
	// HostCAs are the keys of the CAs for host certificates, see configuration.Host.
	HostCAs []string
}

// Options are the dependencies of a Keeper.
type Options struct {
	State    state.Reader
	Records  record.Store
	Hosts    Hosts
	Settings func() Settings
	// Switch sets ssh.key_file for a key. It is idempotent.
	Switch  func(ctx context.Context, k Key) error
	Node    string      // of this instance
	Leads   func() bool // reports whether this instance carries rotations out
	Dir     string      // for generated keys; made if it is missing
	Home    string      // of the account that clusterm runs as
	Comment string      // of generated keys: plain text without white space
	Audit   access.Auditor
	Logger  logrus.FieldLogger
	Every   time.Duration    // between two rounds; 0: 15 s
	Now     func() time.Time // nil: time.Now
}

// Keeper carries rotations out. All methods may be called at once.
type Keeper struct {
	Options
	*control.Loop

	changing sync.Mutex // held while the record is changed

	mu       sync.Mutex
	number   int // of the rotation that the rest belongs to
	problem  string
	attempts map[string]attempt // the last one on each node
}

// attempt is the result of the last attempt on a node.
type attempt struct {
	at       time.Time
	failures int    // in a row
	why      string // it failed, or ""
	state    inventory.State
}

// New returns a Keeper.
func New(o Options) *Keeper {
	o.Every = cmp.Or(o.Every, 15*time.Second)
	if o.Now == nil {
		o.Now = time.Now
	}

	k := &Keeper{Options: o, attempts: map[string]attempt{}}
	k.Loop = control.New(control.Options{
		Name: "rotation of the ssh key", Duty: o.Leads, Every: o.Every, Round: k.goOn,
		Trouble: "the rotation of the ssh key is held up", Logger: o.Logger,
	})

	return k
}

// goOn runs a round if a rotation is running.
func (k *Keeper) goOn(ctx context.Context) (control.Next, error) {
	if !k.Rotation().Phase.Running() {
		return control.Next{}, nil
	}
	return control.Next{}, k.Round(ctx)
}

// Rotation returns the record of the newest rotation.
func (k *Keeper) Rotation() Rotation {
	latest, _ := k.Records.Latest()
	return RotationOf(latest)
}

// Status returns the state of the newest rotation, or the key in use if there was none.
func (k *Keeper) Status() Status {
	r, v := k.Rotation(), k.State.View()
	known, own := k.nodes(v)

	s := Status{Rotation: r, Known: len(known), Laggards: k.laggards(v, r, known), OwnKeys: own}

	switch {
	case r.Phase.Running():
		k.mu.Lock()
		s.Problem = k.problem
		k.mu.Unlock()
	case r.Phase == rotation.PhaseNone:
		var err error
		if s.New, err = k.current(r); err != nil {
			s.Problem = err.Error()
		}
	}

	return s
}

// InUse returns the private key with which the manager logs in to nodes, and its path. It is refused during a rotation.
func (k *Keeper) InUse() (path string, private []byte, err error) {
	r := k.Rotation()
	if err := CheckBeside(k.State.View()); err != nil {
		return "", nil, err
	}

	key, err := k.current(r)
	if err != nil {
		return "", nil, err
	}

	private, err = readPrivate(key.Path)

	return key.Path, private, err
}

// Laggards returns the nodes that the running rotation waits for.
func (k *Keeper) Laggards() []rotation.Laggard {
	r, v := k.Rotation(), k.State.View()
	if !r.Phase.Running() {
		return nil
	}
	known, _ := k.nodes(v)
	return k.laggards(v, r, known)
}

// Why returns why the running rotation waits for a node, and since when; ok is false if
// it does not.
func (k *Keeper) Why(node string) (reason string, since time.Time, ok bool) {
	for _, l := range k.Laggards() {
		if l.Name == node {
			return l.Reason, k.Rotation().Started, true
		}
	}

	return "", time.Time{}, false
}

// nodes returns the nodes that use the manager's key, and the names of those with a key
// of their own.
func (k *Keeper) nodes(v *state.View) (known []*inventory.Node, own []string) {
	settings := k.Settings()

	for _, n := range v.Nodes() {
		if settings.OwnKey(v, n.Group, n.Name) {
			own = append(own, n.Name)
		} else {
			known = append(known, n)
		}
	}

	return known, own
}

// isDone reports whether a node has nothing left to do in the phase.
func (r Rotation) isDone(node string) bool {
	done := r.Removed
	if r.Phase == rotation.PhaseInstall {
		done = r.Confirmed
	}
	return rotation.Has(done, node) || slices.Contains(r.LockedOut, node)
}

// laggards returns the nodes that the rotation waits for, each with the reason.
func (k *Keeper) laggards(v *state.View, r Rotation, known []*inventory.Node) []rotation.Laggard {
	all := []rotation.Laggard{}
	if !r.Phase.Running() {
		return all
	}

	held := holdersOf(v)

	k.mu.Lock()
	defer k.mu.Unlock()

	for _, n := range known {
		if r.isDone(n.Name) {
			continue
		}

		reason := "it was not tried yet"
		if j := held.of(n); j != "" {
			reason = "job " + j + " holds it"
		} else if k.number == r.Number {
			reason = cmp.Or(k.attempts[n.Name].why, reason)
		}

		if n.State == inventory.Disappeared {
			reason = "it is Disappeared: " + reason
		}

		all = append(all, rotation.Laggard{Name: n.Name, Reason: reason})
	}

	return all
}

// holders maps names and addresses of nodes to the running job that acts on them. Its connections may
// depend on the key that was in use when it began.
type holders struct{ byName, byAddr map[string]string }

func holdersOf(v *state.View) holders {
	h := holders{map[string]string{}, map[string]string{}}

	for _, j := range v.Jobs() {
		if j.Status != job.Running {
			continue
		}

		for _, helper := range j.Helpers {
			h.byName[helper] = j.ID
		}

		for _, t := range j.Targets {
			if h.byName[t.Name] = j.ID; j.TakesAddrs() {
				h.byAddr[t.Addr] = j.ID
			}
		}
	}

	return h
}

// of returns the job that acts on a node or its host, or "".
func (h holders) of(n *inventory.Node) string {
	return cmp.Or(n.Job, h.byName[n.Name], h.byAddr[n.Addr])
}

// Request asks for a rotation.
type Request struct {
	// To is the path of the new key, which exists; "": the manager generates one.
	To string
	// Force continues without the nodes in LockOut, which must be exactly the nodes that the
	// running rotation waits for.
	Force   bool
	LockOut []string
}

// Rotate begins a rotation, or with Force continues without some nodes. It returns when the record is
// stored.
func (k *Keeper) Rotate(ctx context.Context, c access.Caller, r Request) (Status, error) {
	record := access.Record{Action: "ssh-key.rotate", Targets: r.LockOut}

	return k.act(ctx, c, record, func(v *state.View, now *Rotation) error {
		switch {
		case r.Force && r.To != "":
			return inventory.Errorf(inventory.KindInvalid, "force and a new key exclude each other").
				Do("give nodes up first, and rotate again when the rotation is done")
		case r.Force:
			return k.giveUp(v, now, r.LockOut)
		case len(r.LockOut) > 0:
			return inventory.Errorf(inventory.KindInvalid, "nodes to lock out need force").Do("add force, or name none")
		}

		return k.begin(now, r.To, c.Principal)
	})
}

// Cancel reverts the running rotation: the nodes accept the old key again and stop accepting the new
// one. It returns when the record is stored.
func (k *Keeper) Cancel(ctx context.Context, c access.Caller) (Status, error) {
	return k.act(ctx, c, access.Record{Action: "ssh-key.cancel"}, func(_ *state.View, now *Rotation) error {
		switch {
		case !now.Phase.Running():
			return inventory.Errorf(inventory.KindRefused, "no rotation of the ssh key is running").
				Do("to replace the key, rotate it").With(inventory.ShowSSHKey())
		case now.Reverts:
			return inventory.Errorf(inventory.KindRefused, "the rotation of the ssh key is being taken back already").
				Do("follow it").With(inventory.ShowSSHKey())
		}

		// Do not reinstall a public key whose private half is lost or was deleted on purpose.
		if err := present(now.Old); err != nil {
			return inventory.Errorf(inventory.KindRefused, "the rotation cannot be taken back: %w", err).
				Do("bring the file back, or let the rotation go on").With(inventory.ShowSSHKey())
		}

		*now = Rotation{
			Number: now.Number + 1, Phase: rotation.PhaseInstall, New: now.Old, Old: now.New, Reverts: true,
			Actor: c.Principal, Started: k.Now(),
		}

		return nil
	})
}

// act changes the record on behalf of a caller and wakes the loop.
func (k *Keeper) act(
	ctx context.Context, c access.Caller, record access.Record, apply func(*state.View, *Rotation) error,
) (Status, error) {
	err := access.Audited(ctx, k.Audit, c, record, func(ctx context.Context, _ *access.Record) error {
		if !k.Leads() {
			return state.NotLeading(k.State.View(), "and the one that leads has the keys")
		}

		return k.change(ctx, func(now *Rotation) error { return apply(k.State.View(), now) })
	})
	if err != nil {
		return Status{}, err
	}

	k.Kick()

	return k.Status(), nil
}

// change changes the record in the store.
func (k *Keeper) change(ctx context.Context, apply func(*Rotation) error) error {
	k.changing.Lock()
	defer k.changing.Unlock()

	_, _, err := record.Decide(ctx, k.Records, func(tx *record.Tx) (struct{}, error) {
		r := RotationOf(tx)
		if err := apply(&r); err != nil {
			return struct{}{}, err
		}
		record.PutAt(tx, &Kind, newest, &r)
		return struct{}{}, nil
	})

	return err
}

// begin makes the record of a new rotation.
func (k *Keeper) begin(now *Rotation, to, actor string) error {
	if now.Phase.Running() {
		return inventory.Errorf(inventory.KindRefused, "a rotation of the ssh key is running since %s, begun by %s",
			now.Started.UTC().Format(time.RFC3339), now.Actor).
			Do("see what it waits for, or take it back").
			With(inventory.ShowSSHKey(), inventory.CancelSSHKey())
	}

	if err := state.CheckAlone(k.State.View(), k.Node); err != nil {
		return err
	}

	next := Rotation{
		Number: now.Number + 1, Phase: rotation.PhaseInstall, Actor: actor, Started: k.Now(),
		New: Key{Path: to, Setting: to, RunTime: true},
	}

	var err error
	if to != "" {
		if next.New.Public, err = readKey(to); err != nil {
			return err
		}
	}

	old, err := k.current(*now)
	if err != nil {
		return err
	}

	if next.Old = old; to == "" {
		if err := k.generate(&next, now.New.Path, now.Old.Path, old.Path); err != nil {
			return err
		}
	}

	if next.New.Public == old.Public {
		return inventory.Errorf(inventory.KindInvalid, "%s is the key that the nodes accept already", to).
			Do("name another key, or none to have one made")
	}

	*now = next

	return nil
}

// generate makes the new key of a rotation in an unused file.
func (k *Keeper) generate(next *Rotation, used ...string) error {
	number := next.Number
	path := func() string { return filepath.Join(k.Dir, fmt.Sprintf("id_ed25519-%d", number)) }

	for slices.Contains(used, path()) {
		number++
	}

	next.New = Key{Path: path(), Setting: path(), RunTime: true, Generated: true}
	if err := (configuration.Connection{KeyFile: path()}).Check(); err != nil {
		return inventory.Errorf(inventory.KindRefused,
			"no key can be made in the data directory: ssh takes paths of letters, digits and ._/@+=,- only").
			Do("make a key elsewhere, and rotate to it")
	}

	public, err := generate(path(), k.Comment)
	if err != nil {
		return inventory.Errorf(inventory.KindUnavailable, "the new ssh key cannot be stored: %w", err).
			Do("check the data directory").With(inventory.ShowHealth())
	}

	next.New.Public = public

	return nil
}

// current returns the key in use. last is the newest rotation.
func (k *Keeper) current(last Rotation) (Key, error) {
	settings := k.Settings()
	key := Key{Path: settings.KeyFile, Setting: settings.KeyFile, RunTime: settings.RunTime}

	var err error
	if key.Path == "" {
		if key.Path, err = findUsual(k.Home); err != nil {
			return key, err
		}
	}

	key.Public, err = readKey(key.Path)
	key.Generated = last.Phase == rotation.PhaseDone && last.New.Generated && last.New.Path == key.Path

	return key, err
}

// giveUp makes the running rotation continue without the nodes.
func (k *Keeper) giveUp(v *state.View, now *Rotation, nodes []string) error {
	if !now.Phase.Running() {
		return inventory.Errorf(inventory.KindRefused, "no rotation of the ssh key is running").
			Do("begin one without force, and give nodes up when it waits for them").With(inventory.ShowSSHKey())
	}

	known, _ := k.nodes(v)
	if err := rotation.CheckLockOut(k.laggards(v, *now, known), nodes); err != nil {
		return err
	}
	if err := now.locksAllOut(known, k.Settings().KeyFile); err != nil {
		return err
	}

	held := holdersOf(v)

	// The job would lose its connection.
	for _, n := range known {
		if j := held.of(n); j != "" && slices.Contains(nodes, n.Name) {
			return inventory.Errorf(inventory.KindRefused,
				"%s is held by job %s, which still uses the old key", n.Name, j).
				Do("wait for the job").With(inventory.WaitForJob(j)).About(n.Name)
		}
	}

	now.LockedOut = slices.Concat(now.LockedOut, nodes)

	return nil
}
