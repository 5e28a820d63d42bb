// SPDX-License-Identifier: Apache-2.0

package gossipkey

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job/jobtest"
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
	saved  []byte
	stored string // the key for the next start
	trail  []access.Record
}

func newSite(t *testing.T) *site {
	member := func() *host { return &host{keys: []string{oldKey}, live: true, ssh: true} }
	return &site{t: t, stored: oldKey, hosts: map[string]*host{"m-1": member(), "a-1": member(), "b-1": member()}}
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
	var r Rotation
	errtest.None(s.t, json.Unmarshal(s.saved, &r))

	for name, h := range s.hosts {
		if !slices.Contains(h.keys, r.New) && !slices.Contains(r.LockedOut, name) {
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

func (s *site) Load() (r Rotation, err error) {
	if s.saved != nil {
		err = json.Unmarshal(s.saved, &r)
	}
	return r, err
}

func (s *site) Save(r Rotation) error {
	if err := s.operate(); err != nil {
		return err
	}

	var err error
	s.saved, err = json.Marshal(r)

	return err
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

	return &state.View{Snapshot: jobtest.With(nodes...)}
}

// boot returns the keeper of a new process.
func (s *site) boot() *Keeper {
	log := logrus.New()
	log.SetOutput(io.Discard)

	k, err := New(Options{
		State: view{site: s}, Records: s, Pusher: s, Audit: s, Logger: log,
		Ring:     func() (Ring, error) { return s, nil },
		Generate: func() string { return newKey },
		Finish:   func(key string) error { s.stored = key; return s.operate() },
		Settings: func() Settings {
			return Settings{Connect: func(*state.View, string, string) configuration.Connection {
				return configuration.Connection{}
			}}
		},
	})
	errtest.None(s.t, err)
	return k
}

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

	status := k.Status()
	if status.Phase != PhaseDone || len(status.Laggards) > 0 || status.Ended.IsZero() || status.Known != 4 {
		t.Errorf("%+v", status)
	}

	// The status is for people, and shows no key.
	if b, _ := json.Marshal(status); strings.Contains(string(b), newKey) || status.Key != Fingerprint(newKey) {
		t.Errorf("status: %s", b)
	}

	for _, name := range s.names() {
		s.want(name, newKey)
	}

	if s.stored != newKey || !slices.Equal(k.Rotation().Keys(), []string{newKey}) {
		t.Errorf("the next start has %s", s.stored)
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
		phase   Phase
		laggard string // with the reason
		mend    func(s *site)
	}{
		"dead": {
			prepare: func(s *site) { s.hosts["dead-1"] = &host{keys: []string{oldKey}} },
			phase:   PhaseRemove, laggard: "dead-1: " + unreached + "no route to the host",
			mend: func(s *site) { s.hosts["dead-1"].ssh = true },
		},
		"dead, and back": {
			prepare: func(s *site) { s.hosts["dead-1"] = &host{keys: []string{oldKey}} },
			phase:   PhaseRemove, laggard: "dead-1: ",
			mend: func(s *site) { s.hosts["dead-1"] = &host{keys: []string{oldKey}, live: true} },
		},
		"dead, and forgotten": {
			prepare: func(s *site) { s.hosts["dead-1"] = &host{keys: []string{oldKey}} },
			phase:   PhaseRemove, laggard: "dead-1: ",
			mend: func(s *site) { delete(s.hosts, "dead-1") },
		},
		"unverified": {
			prepare: func(s *site) { s.hosts["unverified-1"] = &host{keys: []string{oldKey}, ssh: true} },
			phase:   PhaseRemove, laggard: "unverified-1: " + unreached + "its ssh host key is not known",
			mend: func(s *site) { s.hosts["unverified-1"].live = true },
		},
		"full disk": {
			prepare: func(s *site) { s.hosts["a-1"].refuses = monitor.KeyInstall },
			phase:   PhaseInstall, laggard: "a-1: it refuses: disk full",
			mend: func(s *site) { s.hosts["a-1"].refuses = "" },
		},
		"no use": {
			prepare: func(s *site) { s.hosts["a-1"].refuses = monitor.KeyUse },
			phase:   PhaseUse, laggard: "a-1: it refuses: disk full",
			mend: func(s *site) { s.hosts["a-1"].refuses = "" },
		},
		"no removal": {
			prepare: func(s *site) { s.hosts["a-1"].refuses = monitor.KeyRemove },
			phase:   PhaseRemove, laggard: "a-1: it refuses: disk full",
			mend: func(s *site) { s.hosts["a-1"].refuses = "" },
		},
		"stock serf": {
			prepare: func(s *site) {
				s.hosts["serf"] = &host{keys: []string{oldKey}, live: true, stock: true, refuses: monitor.KeyInstall}
			},
			phase: PhaseInstall, laggard: "serf-0a: it refuses: disk full",
			mend: func(s *site) { s.hosts["serf"].refuses = "" },
		},
		"twin": {
			prepare: func(s *site) { s.dup = "b-1" },
			phase:   PhaseRemove, laggard: "b-1: several hosts claim to be it",
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

			if got := k.Status(); got.Phase != c.phase || !strings.HasPrefix(laggards(got), c.laggard) {
				t.Errorf("%s: %s", got.Phase, laggards(got))
			}

			// Until then the old key is accepted.
			if !slices.Contains(s.hosts["m-1"].keys, oldKey) && name != "no removal" {
				t.Error("the old key is gone")
			}

			c.mend(s)

			errtest.None(t, k.Round(t.Context()))

			// One more for a host that was just given a key over ssh.
			if err := k.Round(t.Context()); err != nil || k.Status().Phase != PhaseDone {
				t.Errorf("afterwards: %s, %s, %v", k.Status().Phase, laggards(k.Status()), err)
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

	if err := k.Round(t.Context()); err != nil || k.Status().Phase != PhaseRemove {
		t.Errorf("a refused force has an effect: %s, %v", k.Status().Phase, err)
	}

	if _, err := s.rotate(k, Request{Force: true, LockOut: []string{"dead-1", "dead-2"}}); err != nil {
		t.Fatal(err)
	}

	if err := k.Round(t.Context()); err != nil || k.Status().Phase != PhaseDone {
		t.Errorf("%s, %v", k.Status().Phase, err)
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
		if k.Status().Phase != PhaseDone {
			if _, err := s.rotate(k, Request{}); err != nil {
				t.Fatalf("crash %d: %v", crash, err)
			}
		}

		for range 3 {
			if err := k.Round(t.Context()); err != nil {
				t.Fatalf("crash %d: %v", crash, err)
			}
		}

		if k.Status().Phase != PhaseDone {
			t.Fatalf("crash %d: %s", crash, fmt.Sprint(k.Status()))
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

func TestKeysWhileRotating(t *testing.T) {
	t.Parallel()

	for phase, want := range map[Phase]string{
		PhaseNone: "", PhaseInstall: "old new", PhaseUse: "new old", PhaseRemove: "new old", PhaseDone: "new",
	} {
		r := Rotation{Phase: phase, New: "new", Old: []string{"old"}}
		if got := strings.Join(r.Keys(), " "); got != want {
			t.Errorf("%s: %s, want %s", phase, got, want)
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

		made = append(made, k.Rotation().New)

		for i, key := range made {
			if got, want := k.Rotation().Supersedes(key), i < len(made)-1; got != want {
				t.Errorf("after %d rotations, key %d is superseded: %t", len(made)-1, i, got)
			}
		}
	}

	if strings.Contains(string(s.saved), `"`+oldKey+`"`) {
		t.Error("the record has a key that was replaced long ago")
	}

	if r := s.boot().Rotation(); !r.Supersedes(oldKey) ||
		len(replace(r.Replaced, make([]string, 2*maxReplaced))) != maxReplaced {
		t.Errorf("the next process has %v", r.Replaced)
	}
}
