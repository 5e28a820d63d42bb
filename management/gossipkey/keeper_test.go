// SPDX-License-Identifier: Apache-2.0

package gossipkey

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/cluster"
	"github.com/contiv/cluster/management/job/jobtest"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/record/recordtest"
	"github.com/contiv/cluster/management/rotation"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/monitor"
)

const oldKey, newKey = "b2xk", "bmV3"

const unreached = "it is not in the gossip, and not reached over ssh: "

var errCrash = errors.New("the manager was killed")

// host is a host of the gossip: its keyring, the key that encrypts first.
type host struct {
	keys    []string
	live    bool // in the gossip
	ssh     bool // reachable over ssh
	refuses monitor.KeyOp
	stock   bool // no node
}

// site is a gossip with its manager. It fails everything from the operation crash on.
type site struct {
	t      *testing.T
	mu     sync.Mutex // guards ops: pushes are parallel
	hosts  map[string]*host
	dup    string // a node with two claimants
	ops    int
	crash  int // 0: never
	dir    string
	store  *recordtest.Store
	stored string // the key for the next start
	trail  []access.Record
}

func newSite(t *testing.T) *site {
	member := func() *host { return &host{keys: []string{oldKey}, live: true, ssh: true} }
	s := &site{
		t: t, stored: oldKey, hosts: map[string]*host{"m-1": member(), "a-1": member(), "b-1": member()},
		dir: t.TempDir(), store: recordtest.NewStore(&Kind, &state.Instances),
	}
	s.store.Before = func(*record.Tx) error { return s.operate() }

	return s
}

func (s *site) operate() error {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.ops++
	if s.crash > 0 && s.ops >= s.crash {
		return errCrash
	}
	return nil
}

func (s *site) Keys(context.Context) ([]string, error) {
	return slices.Clone(s.hosts["m-1"].keys), s.operate()
}

func (s *site) AskKeys(_ context.Context, op monitor.KeyOp, key string) ([]monitor.KeyAnswer, error) {
	if err := s.operate(); err != nil {
		return nil, err
	}

	if op == monitor.KeyRemove {
		s.checkRemoval()
	}

	var all []monitor.KeyAnswer
	for _, name := range s.names() {
		h := s.hosts[name]
		if !h.live {
			continue
		}
		a := monitor.KeyAnswer{Member: name + "-0a", Node: name, Problem: h.change(op, key)}
		if h.stock {
			a.Node = ""
		}
		all = append(all, a)

		// A crash in the middle: the others have not heard.
		if s.crash > 0 && s.ops+len(all) == s.crash {
			return nil, errCrash
		}
	}

	return all, nil
}

// change is what serf does.
func (h *host) change(op monitor.KeyOp, key string) string {
	has := slices.Contains(h.keys, key)

	switch {
	case h.refuses == op:
		return "it refuses: disk full"
	case op == monitor.KeyInstall && !has:
		h.keys = append(h.keys, key)
	case op == monitor.KeyUse && !has:
		return "it refuses: not in the keyring"
	case op == monitor.KeyUse:
		rest := slices.DeleteFunc(slices.Clone(h.keys), func(k string) bool { return k == key })
		h.keys = append([]string{key}, rest...)
	case op == monitor.KeyRemove && h.keys[0] == key:
		return "it refuses: in use"
	case op == monitor.KeyRemove:
		h.keys = slices.DeleteFunc(h.keys, func(k string) bool { return k == key })
	}

	return ""
}

// checkRemoval: the old key is removed only if every host that was not given up has the
// new one.
func (s *site) checkRemoval() {
	latest, _ := s.store.Latest()
	r := record.One(latest, &Kind)
	fresh, _, err := r.keys()
	errtest.None(s.t, err)

	for name, h := range s.hosts {
		if !slices.Contains(h.keys, fresh) && !slices.Contains(r.LockedOut, name) {
			s.t.Errorf("the old key is removed, and %s has only %v", name, h.keys)
		}
	}
}

func (s *site) PushKeys(_ context.Context, h configuration.Host, keys []string) error {
	if err := s.operate(); err != nil {
		return err
	}

	to := s.hosts[h.Name]
	if !to.ssh {
		return errors.New("no route to the host")
	}
	to.keys = slices.Clone(keys)

	return nil
}

func (s *site) Record(_ context.Context, r access.Record) { s.trail = append(s.trail, r) }

func (s *site) names() []string {
	var names []string
	for name := range s.hosts {
		names = append(names, name)
	}

	slices.Sort(names)

	return names
}

// view is the inventory: every host but those that are no nodes, and one that was never
// in the gossip.
type view struct {
	state.Reader
	site *site
}

func (v view) View() *state.View {
	nodes := []*inventory.Node{{Name: "reported-1", Seen: map[string]bool{"post": true}}}

	for _, name := range v.site.names() {
		h := v.site.hosts[name]
		if h.stock {
			continue
		}

		n := &inventory.Node{
			Name: name, Label: name[:1], Serial: "1", Addr: "127.0.0.1", Seen: map[string]bool{"gossip": h.live},
			HostKeys: []string{"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDIhz2GK/XCUj4i6Q5yQJNL1MDC4Qo5Gf9dTcQZ3d9vV"},
		}
		if name == "unverified-1" {
			n.HostKeys = nil
		}
		if name == v.site.dup {
			n.Duplicates = []string{"127.0.0.9"}
		}

		nodes = append(nodes, n)
	}

	latest, _ := v.site.store.Latest()

	now := &state.View{Snapshot: jobtest.With(nodes...)}
	now.View = record.WithList(now.View, &state.Instances, record.List(latest, &state.Instances)...)

	return now
}

// boot returns the keeper of a new process.
func (s *site) boot() *Keeper {
	log := logrus.New()
	log.SetOutput(io.Discard)

	return New(Options{
		State: view{site: s}, Records: s.store, Leads: func() bool { return true }, Node: "m-1",
		Pusher: s, Audit: s, Logger: log, Former: filepath.Join(s.dir, "former.json"),
		Ring:     func() (Ring, error) { return s, nil },
		Generate: func() string { return newKey },
		Follow:   s.follow,
		Settings: func() Settings {
			return Settings{Connect: func(*state.View, string, string) configuration.Connection {
				return configuration.Connection{}
			}}
		},
	})
}

// follow replaces the key of the next start, if the rotation has replaced it.
func (s *site) follow(r Rotation) error {
	if r.Supersedes(s.stored) {
		fresh, _, err := r.keys()
		errtest.None(s.t, err)
		s.stored = fresh
	}
	return s.operate()
}

func (k *Keeper) status() Status { return StatusOf(k.State.View(), k.Rotation()) }

func (s *site) rotate(k *Keeper, r Request) (Status, error) {
	return k.Rotate(s.t.Context(), access.Caller{Principal: "ann"}, r)
}

func (s *site) want(name string, keys ...string) {
	s.t.Helper()

	if got := s.hosts[name].keys; !slices.Equal(got, keys) {
		s.t.Errorf("%s has %v, want %v", name, got, keys)
	}
}

func laggards(s Status) string {
	var names []string
	for _, l := range s.Laggards {
		names = append(names, l.Name+": "+l.Reason)
	}

	return strings.Join(names, "; ")
}

func TestRotate(t *testing.T) {
	t.Parallel()

	s := newSite(t)
	s.hosts["absent-1"] = &host{keys: []string{oldKey}, ssh: true}
	s.hosts["serf"] = &host{keys: []string{oldKey}, live: true, stock: true}
	k := s.boot()

	if _, err := s.rotate(k, Request{}); err != nil {
		t.Fatal(err)
	}

	errtest.None(t, k.Round(t.Context()))

	status := k.status()
	if status.Phase != rotation.PhaseDone || len(status.Laggards) > 0 || status.Ended.IsZero() || status.Known != 4 {
		t.Errorf("%+v", status)
	}

	// The status is for people, and shows no key.
	if b, _ := json.Marshal(status); strings.Contains(string(b), newKey) || status.Key != Fingerprint(newKey) {
		t.Errorf("status: %s", b)
	}

	for _, name := range s.names() {
		s.want(name, newKey)
	}

	if keys, err := k.Rotation().Keys(); s.stored != newKey || err != nil || !slices.Equal(keys, []string{newKey}) {
		t.Errorf("the next start has %s, and a host that joins %v, %v", s.stored, keys, err)
	}

	var actions []string
	for _, r := range s.trail {
		actions = append(actions, r.Action+" by "+r.Principal)
	}

	const want = "gossip-key.rotate by ann, gossip-key.use by clusterm, gossip-key.remove by clusterm, " +
		"gossip-key.done by clusterm"
	if got := strings.Join(actions, ", "); got != want {
		t.Errorf("audit: %s", got)
	}
}

// TestRotateWaits: what holds a rotation up, in which phase, and how it goes on.
func TestRotateWaits(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		prepare func(s *site)
		phase   rotation.Phase
		laggard string // with the reason
		mend    func(s *site)
	}{
		"dead": {
			prepare: func(s *site) { s.hosts["dead-1"] = &host{keys: []string{oldKey}} },
			phase:   rotation.PhaseRemove, laggard: "dead-1: " + unreached + "no route to the host",
			mend: func(s *site) { s.hosts["dead-1"].ssh = true },
		},
		"dead, and back": {
			prepare: func(s *site) { s.hosts["dead-1"] = &host{keys: []string{oldKey}} },
			phase:   rotation.PhaseRemove, laggard: "dead-1: ",
			mend: func(s *site) { s.hosts["dead-1"] = &host{keys: []string{oldKey}, live: true} },
		},
		"dead, and forgotten": {
			prepare: func(s *site) { s.hosts["dead-1"] = &host{keys: []string{oldKey}} },
			phase:   rotation.PhaseRemove, laggard: "dead-1: ",
			mend: func(s *site) { delete(s.hosts, "dead-1") },
		},
		"unverified": {
			prepare: func(s *site) { s.hosts["unverified-1"] = &host{keys: []string{oldKey}, ssh: true} },
			phase:   rotation.PhaseRemove, laggard: "unverified-1: " + unreached + "its ssh host key is not known",
			mend: func(s *site) { s.hosts["unverified-1"].live = true },
		},
		"full disk": {
			prepare: func(s *site) { s.hosts["a-1"].refuses = monitor.KeyInstall },
			phase:   rotation.PhaseInstall, laggard: "a-1: it refuses: disk full",
			mend: func(s *site) { s.hosts["a-1"].refuses = "" },
		},
		"no use": {
			prepare: func(s *site) { s.hosts["a-1"].refuses = monitor.KeyUse },
			phase:   rotation.PhaseUse, laggard: "a-1: it refuses: disk full",
			mend: func(s *site) { s.hosts["a-1"].refuses = "" },
		},
		"no removal": {
			prepare: func(s *site) { s.hosts["a-1"].refuses = monitor.KeyRemove },
			phase:   rotation.PhaseRemove, laggard: "a-1: it refuses: disk full",
			mend: func(s *site) { s.hosts["a-1"].refuses = "" },
		},
		"stock serf": {
			prepare: func(s *site) {
				s.hosts["serf"] = &host{keys: []string{oldKey}, live: true, stock: true, refuses: monitor.KeyInstall}
			},
			phase: rotation.PhaseInstall, laggard: "serf-0a: it refuses: disk full",
			mend: func(s *site) { s.hosts["serf"].refuses = "" },
		},
		"twin": {
			prepare: func(s *site) { s.dup = "b-1" },
			phase:   rotation.PhaseRemove, laggard: "b-1: several hosts claim to be it",
			mend: func(s *site) { s.dup = "" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := newSite(t)
			c.prepare(s)

			k := s.boot()
			if _, err := s.rotate(k, Request{}); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				errtest.None(t, k.Round(t.Context()))
			}

			if got := k.status(); got.Phase != c.phase || !strings.HasPrefix(laggards(got), c.laggard) {
				t.Errorf("%s: %s", got.Phase, laggards(got))
			}

			// Until then the old key is accepted.
			if !slices.Contains(s.hosts["m-1"].keys, oldKey) && name != "no removal" {
				t.Error("the old key is gone")
			}

			c.mend(s)

			errtest.None(t, k.Round(t.Context()))

			// One more for a host that was just given a key over ssh.
			if err := k.Round(t.Context()); err != nil || k.status().Phase != rotation.PhaseDone {
				t.Errorf("afterwards: %s, %s, %v", k.status().Phase, laggards(k.status()), err)
			}
		})
	}
}

// TestRotateForce: an operator gives up the nodes that hold a rotation up, all by name.
func TestRotateForce(t *testing.T) {
	t.Parallel()

	s := newSite(t)
	s.hosts["dead-1"], s.hosts["dead-2"] = &host{keys: []string{oldKey}}, &host{keys: []string{oldKey}}
	k := s.boot()

	if _, err := s.rotate(k, Request{Force: true, LockOut: []string{"dead-1"}}); inventory.KindOf(
		err,
	) != inventory.KindRefused {
		t.Errorf("without a rotation: %v", err)
	}

	if _, err := s.rotate(k, Request{}); err != nil {
		t.Fatal(err)
	}

	errtest.None(t, k.Round(t.Context()))

	for want, names := range map[inventory.Kind][]string{
		inventory.KindRefused: {"dead-1"},
		inventory.KindInvalid: {"dead-1", "dead-2", "a-1"},
	} {
		_, err := s.rotate(k, Request{Force: true, LockOut: names})
		if inventory.KindOf(err) != want {
			t.Errorf("%v: %v, want %s", names, err, want)
		}
	}

	if err := k.Round(t.Context()); err != nil || k.status().Phase != rotation.PhaseRemove {
		t.Errorf("a refused force has an effect: %s, %v", k.status().Phase, err)
	}

	if _, err := s.rotate(k, Request{Force: true, LockOut: []string{"dead-1", "dead-2"}}); err != nil {
		t.Fatal(err)
	}

	if err := k.Round(t.Context()); err != nil || k.status().Phase != rotation.PhaseDone {
		t.Errorf("%s, %v", k.status().Phase, err)
	}

	s.want("a-1", newKey)
	s.want("dead-1", oldKey)

	if !slices.Equal(s.trail[len(s.trail)-2].Targets, []string{"dead-1", "dead-2"}) {
		t.Errorf("audit: %+v", s.trail)
	}
}

// TestRotateCrash kills the manager at each operation of a rotation, and lets the next
// process go on: no host is ever locked out, and no key is lost.
func TestRotateCrash(t *testing.T) {
	t.Parallel()

	for crash := 1; ; crash++ {
		s := newSite(t)
		s.hosts["absent-1"] = &host{keys: []string{oldKey}, ssh: true}
		s.crash = crash

		k := s.boot()

		_, err := s.rotate(k, Request{})
		if err == nil {
			err = k.Round(t.Context())
		}

		crashed := err != nil || s.ops >= crash

		s.crash = 0
		k = s.boot()

		// An operator repeats a request that got no answer.
		if k.status().Phase != rotation.PhaseDone {
			if _, err := s.rotate(k, Request{}); err != nil {
				t.Fatalf("crash %d: %v", crash, err)
			}
		}

		for range 3 {
			if err := k.Round(t.Context()); err != nil {
				t.Fatalf("crash %d: %v", crash, err)
			}
		}

		if k.status().Phase != rotation.PhaseDone {
			t.Fatalf("crash %d: %s", crash, fmt.Sprint(k.status()))
		}

		for _, name := range s.names() {
			s.want(name, newKey)
		}

		if s.stored != newKey {
			t.Errorf("crash %d: the next start has %s", crash, s.stored)
		}

		if !crashed {
			if crash < 10 {
				t.Errorf("a rotation has only %d operations", crash)
			}
			return
		}
	}
}

// TestOtherInstances: the leader carries a rotation on that another instance began, waits for the instances
// outside of the gossip, and each instance writes the key file of its own host.
func TestOtherInstances(t *testing.T) {
	t.Parallel()

	s := newSite(t)
	first, other := s.boot(), s.boot()
	first.Leads = func() bool { return false }

	in, err := json.Marshal(state.Instance{Identity: cluster.Identity{ID: "2", Node: "c-1"}})
	errtest.None(t, err)
	errtest.None(t, s.store.Write("instances/2", in))

	if _, err := s.rotate(first, Request{}); err != nil {
		t.Fatal(err)
	}

	errtest.None(t, first.Round(t.Context()))
	s.want("m-1", oldKey)

	errtest.None(t, other.Round(t.Context()))

	if got := other.status(); got.Phase != rotation.PhaseInstall ||
		laggards(got) != "c-1: its clusterm is not in this gossip" {
		t.Errorf("%s: %s", got.Phase, laggards(got))
	}

	s.hosts["c-1"] = &host{keys: []string{oldKey}, live: true}
	errtest.None(t, other.Round(t.Context()))
	s.want("c-1", newKey)

	if s.stored != newKey {
		t.Errorf("the leader starts with %s", s.stored)
	}

	s.stored = oldKey // of the host of the first
	errtest.None(t, first.Round(t.Context()))

	if s.stored != newKey {
		t.Errorf("the other instance starts with %s", s.stored)
	}

	// An operator who then changes the file has the last word.
	s.stored = "bWluZQ"
	for _, k := range []*Keeper{first, s.boot()} {
		errtest.None(t, k.Round(t.Context()))
	}

	if s.stored != "bWluZQ" {
		t.Errorf("a key file changed by hand was replaced by %s", s.stored)
	}
}

// TestFormerFile: a rotation that an earlier version has in a file goes on, and the file is removed.
func TestFormerFile(t *testing.T) {
	t.Parallel()

	const former = `{"phase": "use", "new": "bmV3", "old": ["b2xk"], "actor": "ann", "started": "2026-01-02T12:00:00Z",
		"confirmed": {"b-1": "2026-01-02T12:00:01Z", "a-1": "2026-01-02T12:00:01Z"}, "removed": {},
		"replaced": ["sha256:00"]}`

	s := newSite(t)
	for _, name := range s.names() {
		s.hosts[name].keys = []string{oldKey, newKey}
	}

	k := s.boot()
	errtest.None(t, os.WriteFile(k.Former, []byte("{"), 0o600))

	if err := k.takeOver(t.Context()); err == nil || !strings.Contains(err.Error(), k.Former) {
		t.Errorf("a damaged file: %v", err)
	}

	errtest.None(t, os.WriteFile(k.Former, []byte(former), 0o600))
	errtest.None(t, k.takeOver(t.Context()))

	got := k.Rotation()
	if got.Phase != rotation.PhaseUse || got.Actor != "ann" || !slices.Equal(got.Confirmed, []string{"a-1", "b-1"}) ||
		!slices.Equal(got.Replaced, []string{"sha256:00"}) {
		t.Errorf("%+v", got)
	}

	if _, err := os.Stat(k.Former); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file: %v", err)
	}

	errtest.None(t, k.takeOver(t.Context()))
	errtest.None(t, k.Round(t.Context()))

	for _, name := range s.names() {
		s.want(name, newKey)
	}
}

// TestKeysAreSealed: the store gets both keys as secrets whatever their names, and none is shown once they
// cannot be read; a rotation is then begun anew.
func TestKeysAreSealed(t *testing.T) {
	t.Parallel()

	r := Rotation{Phase: rotation.PhaseInstall}.withKeys(newKey, []string{oldKey})
	sealed := 0

	locked, err := Kind.Secret(&r, func(_ []string, values map[string]any) (map[string]any, error) {
		out := map[string]any{}
		for name, value := range values {
			if _, secret := value.(configuration.Secret); secret {
				sealed++
			}
			out[name] = configuration.LockedSecret("somewhere", "box", "its key is missing")
		}
		return out, nil
	})
	if err != nil || sealed != 2 {
		t.Errorf("%d of 2 keys are secrets: %v", sealed, err)
	}

	if keys, err := locked.Keys(); err == nil {
		t.Errorf("locked keys: %v", keys)
	}

	s := newSite(t)
	k := s.boot()
	errtest.None(t, s.store.Write("gossip-key", []byte(`{"phase": "remove", "started": "2026-01-02T12:00:00Z"}`)))

	if err := k.Round(t.Context()); inventory.KindOf(err) != inventory.KindRefused {
		t.Errorf("a round without keys: %v", err)
	}

	if now, err := s.rotate(
		k,
		Request{},
	); err != nil || now.Phase != rotation.PhaseInstall ||
		now.Key != Fingerprint(newKey) {
		t.Errorf("%+v, %v", now, err)
	}
}

func TestKeysWhileRotating(t *testing.T) {
	t.Parallel()

	for phase, want := range map[rotation.Phase]string{
		rotation.PhaseNone: "", rotation.PhaseInstall: "old new", rotation.PhaseUse: "new old",
		rotation.PhaseRemove: "new old", rotation.PhaseDone: "new",
	} {
		r := Rotation{Phase: phase}.withKeys("new", []string{"old"})
		if keys, err := r.Keys(); err != nil || strings.Join(keys, " ") != want {
			t.Errorf("%s: %s, %v, want %s", phase, keys, err, want)
		}
	}
}

// TestSupersedes: a key file that still has the first key is recognized after several
// rotations, and by the next process.
func TestSupersedes(t *testing.T) {
	t.Parallel()

	s := newSite(t)

	made := []string{oldKey}

	for range 3 {
		k := s.boot()
		k.Generate = func() string { return newKey + strings.Repeat("x", len(made)) }

		if _, err := s.rotate(k, Request{}); err != nil {
			t.Fatal(err)
		}

		errtest.None(t, k.Round(t.Context()))

		fresh, _, err := k.Rotation().keys()
		errtest.None(t, err)

		made = append(made, fresh)

		for i, key := range made {
			if got, want := k.Rotation().Supersedes(key), i < len(made)-1; got != want {
				t.Errorf("after %d rotations, key %d is superseded: %t", len(made)-1, i, got)
			}
		}
	}

	if b, err := Kind.Encode(new(s.boot().Rotation())); err != nil || strings.Contains(string(b), oldKey+`"`) {
		t.Errorf("the record has a key that was replaced long ago: %v", err)
	}

	if r := s.boot().Rotation(); !r.Supersedes(oldKey) ||
		len(replace(r.Replaced, make([]string, 2*maxReplaced))) != maxReplaced {
		t.Errorf("the next process has %v", r.Replaced)
	}
}
