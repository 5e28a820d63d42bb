// SPDX-License-Identifier: Apache-2.0

package sshkey

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/job/jobtest"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/record/recordtest"
	"github.com/contiv/cluster/management/rotation"
	"github.com/contiv/cluster/management/state"
)

const (
	someHostKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDIhz2GK/XCUj4i6Q5yQJNL1MDC4Qo5Gf9dTcQZ3d9vV"
	denied      = "ssh access as root@127.0.0.1 was denied (publickey): check it"
	jumpDenied  = "ssh access as a user of the jump host gate-1 was denied (publickey; user root): check it"
)

var errCrash = errors.New("the manager was killed")

// host is a host with the authorized_keys of its account.
type host struct {
	up    bool
	file  []byte
	also  string // a key that another file accepts
	own   bool   // it has a key of its own
	job   string
	noKey bool          // its ssh host key is not recorded
	gone  bool          // Disappeared
	slow  time.Duration // of each operation
	jump  string        // the host by which ssh reaches it
}

// site is a manager with its hosts. It fails everything from the operation crash on.
type site struct {
	t     *testing.T
	dir   string
	old   string // the path of the first key
	clock time.Time

	mu    sync.Mutex // guards the rest: visits are parallel
	hosts map[string]*host
	jobs  []job.Job
	ops   int
	crash int // 0: never

	unwritten rotation.Phase // a phase that the store does not take; empty: none

	keyFile string // ssh.key_file
	runTime bool
	records *recordtest.Store
	trail   []string
}

func newSite(t *testing.T, names ...string) *site {
	t.Helper()

	s := &site{t: t, dir: t.TempDir(), hosts: map[string]*host{}, clock: time.Unix(1e9, 0)}
	s.old = filepath.Join(s.dir, "operators")

	public, err := generate(s.old, "me")
	errtest.None(t, err)

	s.keyFile, s.records = s.old, recordtest.NewStore(&Kind)
	s.records.Before = s.beforeCommit

	for _, name := range names {
		s.hosts[name] = &host{up: true, file: []byte("# mine\nrestrict " + public + " me\n")}
	}

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

// login returns why a login on a host fails, or "".
func (s *site) login(ctx context.Context, h configuration.Host) string {
	if s.operate() != nil {
		return errCrash.Error()
	}

	s.mu.Lock()
	slow := s.hosts[h.Name].slow
	s.mu.Unlock()

	if slow > 0 {
		select {
		case <-ctx.Done():
			return "the probe was stopped"
		case <-time.After(slow):
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	to := s.hosts[h.Name]
	if !to.up {
		return "no route to the host"
	}

	offered := []string{h.Connection.KeyFile, h.Connection.FormerKeyFile}

	if to.jump != "" {
		forJump := offered
		if h.JumpKeyFile != "" {
			forJump = []string{h.JumpKeyFile}
		}
		if !s.hosts[to.jump].accepts(forJump) {
			return jumpDenied
		}
	}

	if !to.accepts(offered) {
		return denied
	}

	return ""
}

// accepts reports whether the host accepts one of the keys with these paths.
func (h *host) accepts(paths []string) bool {
	return slices.ContainsFunc(paths, func(path string) bool {
		public, err := readKey(path)
		return err == nil && (configuration.Authorizes(h.file, public) || public == h.also)
	})
}

func (s *site) Probe(ctx context.Context, hosts []configuration.Host) []configuration.Reach {
	reaches := make([]configuration.Reach, len(hosts))
	for i, h := range hosts {
		reaches[i].Login = s.login(ctx, h)
	}

	return reaches
}

func (s *site) EditAuthorizedKeys(
	ctx context.Context, h configuration.Host, edit func([]byte) ([]byte, error),
) error {
	if reason := s.login(ctx, h); reason != "" {
		return errors.New(reason)
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	to := s.hosts[h.Name]

	file, err := edit(to.file)
	if err == nil {
		to.file = file
	}

	return err
}

// beforeCommit fails the commits of a manager that is dead, or whose store is away.
func (s *site) beforeCommit(tx *record.Tx) error {
	if err := s.operate(); err != nil {
		return err
	}

	writes, err := tx.Writes(nil)
	for _, w := range writes {
		if s.unwritten != "" && strings.Contains(string(w.Value), fmt.Sprintf("%q", s.unwritten)) {
			return errors.New("the store is away")
		}
	}

	return err
}

// saved returns the stored record of the newest rotation.
func (s *site) saved() string {
	latest, _ := s.records.Latest()
	if record.Get(latest, &Kind, newest) == nil {
		return "{}"
	}
	b, err := json.Marshal(RotationOf(latest))
	if err != nil {
		s.t.Error(err)
	}
	return string(b)
}

func (s *site) use(_ context.Context, k Key) error {
	if err := s.operate(); err != nil {
		return err
	}

	s.keyFile, s.runTime = k.Setting, k.RunTime
	return nil
}

func (s *site) Record(_ context.Context, r access.Record) { s.trail = append(s.trail, r.Action) }

// view is the inventory.
type view struct {
	state.Reader
	site *site
}

func (v view) View() *state.View {
	v.site.mu.Lock()
	defer v.site.mu.Unlock()

	var nodes []*inventory.Node
	for _, name := range slices.Sorted(maps.Keys(v.site.hosts)) {
		h := v.site.hosts[name]

		n := &inventory.Node{
			Name: name, Label: name[:1], Serial: "1", Addr: "127.0.0.1", State: inventory.Discovered, Job: h.job,
			HostKeys: []string{someHostKey},
		}
		if h.noKey {
			n.HostKeys = nil
		}
		if h.gone {
			n.State = inventory.Disappeared
		}

		nodes = append(nodes, n)
	}

	view := &state.View{Snapshot: jobtest.With(nodes...)}
	view.SetJobs(jobtest.List(v.site.jobs...)...)

	return view
}

// boot returns the keeper of a new process.
func (s *site) boot() *Keeper {
	log := logrus.New()
	log.SetOutput(io.Discard)

	return New(Options{
		State: view{site: s}, Records: s.records, Hosts: s, Switch: s.use, Leads: func() bool { return true },
		Dir: filepath.Join(s.dir, "ssh"), Home: filepath.Join(s.dir, "home"), Comment: "clusterm@m",
		Audit: s, Logger: log, Now: func() time.Time { return s.clock },
		Settings: func() Settings {
			return Settings{
				KeyFile: s.keyFile, RunTime: s.runTime,
				Connect: func(*state.View, string, string) configuration.Connection {
					return configuration.Connection{}
				},
				OwnKey: func(_ *state.View, _, node string) bool { return s.hosts[node].own },
			}
		},
	})
}

func (s *site) rotate(k *Keeper, r Request) error {
	_, err := k.Rotate(s.t.Context(), access.Caller{Principal: "ann"}, r)
	return err
}

func (s *site) round(k *Keeper) Status {
	s.t.Helper()

	errtest.None(s.t, k.Round(s.t.Context()))

	s.clock = s.clock.Add(time.Hour)
	return k.Status()
}

// accepts reports which of the keys a host accepts.
func (s *site) accepts(name string, keys ...Key) (out []bool) {
	for _, k := range keys {
		out = append(out, configuration.Authorizes(s.hosts[name].file, k.Public))
	}

	return out
}

// reaches reports whether a host accepts a key that the manager offers to it.
func (s *site) reaches(k *Keeper, name string) bool {
	offered := []string{s.keyFile}
	if setting, path, former, ok := k.Rotation().Former(); ok && setting == s.keyFile {
		offered = []string{path, former}
	}

	return slices.ContainsFunc(offered, func(path string) bool {
		public, _ := readKey(path)
		return configuration.Authorizes(s.hosts[name].file, public)
	})
}

func waits(s Status) string {
	var names []string
	for _, l := range s.Laggards {
		names = append(names, l.Name+": "+l.Reason)
	}

	return strings.Join(names, "; ")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// TestRotate rotates twice: the operator's key, whose file stays, and a generated one.
func TestRotate(t *testing.T) {
	t.Parallel()

	s := newSite(t, "a-1", "b-1", "own-1")
	s.hosts["own-1"].own = true
	k := s.boot()

	errtest.None(t, s.rotate(k, Request{}))

	first := s.round(k)
	if first.Phase != rotation.PhaseDone || first.Known != 2 || len(first.Laggards) > 0 || first.Ended.IsZero() ||
		!slices.Equal(first.OwnKeys, []string{"own-1"}) {
		t.Fatalf("%+v", first)
	}

	for _, name := range []string{"a-1", "b-1"} {
		want := "# mine\nrestrict " + first.New.Public + " clusterm@m\n"
		if string(s.hosts[name].file) != want {
			t.Errorf("%s has %q, want %q", name, s.hosts[name].file, want)
		}
	}

	if got := s.accepts("own-1", first.Old, first.New); !slices.Equal(got, []bool{true, false}) {
		t.Errorf("the node with a key of its own: %v", got)
	}

	if s.keyFile != first.New.Path || !s.runTime || !exists(s.old) {
		t.Errorf("the manager uses %s (%t), and the operator's key is there: %t", s.keyFile, s.runTime, exists(s.old))
	}

	if info, err := os.Stat(first.New.Path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the new key: %v, %v", info.Mode(), err)
	}

	errtest.None(t, s.rotate(k, Request{}))

	second := s.round(k)
	if second.Phase != rotation.PhaseDone || !second.Old.Generated || exists(first.New.Path) ||
		exists(first.New.Path+".pub") ||
		!exists(second.New.Path) {
		t.Errorf("%+v: %t", second, exists(first.New.Path))
	}

	want := "ssh-key.rotate ssh-key.use ssh-key.remove ssh-key.done"
	if got := strings.Join(s.trail, " "); got != want+" "+want {
		t.Errorf("audit: %s", got)
	}

	if strings.Contains(s.saved(), "PRIVATE") {
		t.Error("the record has a private key")
	}
}

// TestCrash kills the manager at every operation, in turn. No host is ever without a key
// that the manager offers, and the next process finishes.
func TestCrash(t *testing.T) {
	t.Parallel()

	for crash := 1; ; crash++ {
		s := newSite(t, "a-1", "b-1")
		s.crash = crash
		k := s.boot()

		if err := s.rotate(k, Request{}); err == nil {
			_ = k.Round(t.Context())
		}

		crashed := s.ops >= crash

		for name := range s.hosts {
			if !s.reaches(k, name) {
				t.Fatalf("killed at operation %d, the manager cannot log in to %s: %q", crash, name, s.hosts[name].file)
			}
		}

		s.crash = 0
		k = s.boot()

		if !k.Rotation().Phase.Running() && k.Rotation().Phase != rotation.PhaseDone {
			errtest.None(t, s.rotate(k, Request{}))
		}

		if done := s.round(k); done.Phase != rotation.PhaseDone || waits(done) != "" ||
			!slices.Equal(s.accepts("a-1", done.Old, done.New), []bool{false, true}) {
			t.Fatalf("killed at operation %d: %+v", crash, done)
		}

		if !crashed {
			if crash < 15 {
				t.Errorf("a rotation has only %d operations", crash)
			}
			return
		}
	}
}

// TestLaggards: nodes that are away, held, or not verified do not hold the others up,
// keep the old key, and follow when they can.
func TestLaggards(t *testing.T) {
	t.Parallel()

	s := newSite(t, "a-1", "away-1", "held-1", "helper-1", "unverified-1", "twice-1")
	s.hosts["away-1"].up, s.hosts["away-1"].gone = false, true
	s.hosts["held-1"].job = "7"
	s.hosts["unverified-1"].noKey = true
	s.hosts["twice-1"].also, _ = readKey(s.old)
	s.jobs = []job.Job{{ID: "8", Status: job.Running, Helpers: []string{"helper-1"}}}
	k := s.boot()

	errtest.None(t, s.rotate(k, Request{}))

	status := s.round(k)

	want := "away-1: it is Disappeared: no route to the host; held-1: job 7 holds it; helper-1: job 8 holds it; " +
		"twice-1: it still accepts the old key, by another file or command than its authorized_keys; " +
		"unverified-1: its ssh host key is not recorded, so another machine could answer for it"
	if waits(status) != want {
		t.Errorf("it waits for\n%s, want\n%s", waits(status), want)
	}

	if status.Phase != rotation.PhaseRemove || s.keyFile != status.New.Path ||
		!slices.Equal(s.accepts("a-1", status.Old, status.New), []bool{false, true}) ||
		!slices.Equal(s.accepts("held-1", status.Old, status.New), []bool{true, false}) {
		t.Errorf("%+v", status)
	}

	if why, since, ok := k.Why("away-1"); !ok || !strings.Contains(why, "no route") || since.IsZero() {
		t.Errorf("why: %q, %v, %t", why, since, ok)
	}

	if _, _, ok := k.Why("a-1"); ok {
		t.Error("a-1 is no laggard")
	}

	// A second rotation has to wait, and names the remedies.
	err := s.rotate(k, Request{})
	if e, ok := errors.AsType[*inventory.Error](err); !ok || e.Kind != inventory.KindRefused || len(e.Actions) != 2 {
		t.Errorf("a second rotation: %v", err)
	}

	s.hosts["away-1"].up, s.hosts["away-1"].gone = true, false
	s.hosts["held-1"].job, s.jobs = "", nil
	s.hosts["unverified-1"].noKey = false
	s.hosts["twice-1"].also = ""

	if status = s.round(k); status.Phase != rotation.PhaseDone {
		t.Errorf("%s: %s", status.Phase, waits(status))
	}
}

// TestSlowLogins: a round ends before all nodes have answered, and keeps the results of
// those that have.
func TestSlowLogins(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, "quick-1", "stuck-1")
		s.hosts["stuck-1"].slow = 2 * roundTime
		k := s.boot()

		errtest.None(t, s.rotate(k, Request{}))

		if got := s.round(k); !slices.Equal(got.Confirmed, []string{"quick-1"}) || got.Problem != "" ||
			waits(got) != "stuck-1: it was not tried yet" {
			t.Errorf("%+v: %s", got, waits(got))
		}
	})

	synctest.Test(t, func(t *testing.T) {
		var names []string
		for i := range 3 * visits {
			names = append(names, fmt.Sprintf("n-%d", i))
		}

		s := newSite(t, names...)
		for _, h := range s.hosts {
			h.slow = roundTime / 4
		}

		k := s.boot()
		errtest.None(t, s.rotate(k, Request{}))

		for rounds := 1; s.round(k).Phase != rotation.PhaseDone; rounds++ {
			if rounds == 10 {
				t.Fatalf("after %d rounds: %+v", rounds, k.Status())
			}
		}
	})
}

// TestJumpHost: a jump host that denies a key says nothing about the node behind it.
func TestJumpHost(t *testing.T) {
	t.Parallel()

	s := newSite(t, "behind-1", "gate-1")
	s.hosts["behind-1"].jump = "gate-1"
	s.hosts["behind-1"].also, _ = readKey(s.old)
	k := s.boot()

	errtest.None(t, s.rotate(k, Request{}))

	s.round(k)

	// The jump host no longer accepts the old key, and the node does.
	status := s.round(k)
	if status.Phase != rotation.PhaseRemove || !slices.Equal(status.Removed, []string{"gate-1"}) ||
		!strings.Contains(waits(status), "behind-1: it still accepts the old key") {
		t.Fatalf("%+v: %s", status, waits(status))
	}

	gate := s.hosts["gate-1"].file
	s.hosts["gate-1"].file = nil

	if status = s.round(k); status.Phase != rotation.PhaseRemove || !strings.Contains(waits(status), jumpDenied) {
		t.Fatalf("%+v: %s", status, waits(status))
	}

	s.hosts["gate-1"].file, s.hosts["behind-1"].also = gate, ""

	if status = s.round(k); status.Phase != rotation.PhaseDone {
		t.Errorf("%+v: %s", status, waits(status))
	}
}

// TestNoneConfirms: the manager keeps its key while no node at all accepts the new one.
func TestNoneConfirms(t *testing.T) {
	t.Parallel()

	s := newSite(t, "a-1", "b-1")
	s.hosts["a-1"].up, s.hosts["b-1"].up = false, false
	k := s.boot()

	errtest.None(t, s.rotate(k, Request{}))

	if status := s.round(k); status.Phase != rotation.PhaseInstall || s.keyFile != s.old {
		t.Errorf("%+v with %s", status, s.keyFile)
	}
}

// TestReinstalled: a node that loses the new key before the old one was taken away gets
// it again.
func TestReinstalled(t *testing.T) {
	t.Parallel()

	s := newSite(t, "a-1", "b-1")
	k := s.boot()
	before := slices.Clone(s.hosts["a-1"].file)
	s.hosts["a-1"].also, _ = readKey(s.old)

	errtest.None(t, s.rotate(k, Request{}))

	s.round(k)
	s.hosts["a-1"].file, s.hosts["a-1"].also = before, ""

	if status := s.round(k); status.Phase != rotation.PhaseDone ||
		!slices.Equal(s.accepts("a-1", status.Old, status.New), []bool{false, true}) {
		t.Errorf("%s: %s: %q", status.Phase, waits(status), s.hosts["a-1"].file)
	}
}

func TestForce(t *testing.T) {
	t.Parallel()

	s := newSite(t, "a-1", "dead-1", "held-1")
	s.hosts["dead-1"].up = false
	s.hosts["held-1"].job = "7"
	k := s.boot()

	if err := s.rotate(k, Request{Force: true}); inventory.KindOf(err) != inventory.KindRefused {
		t.Errorf("force without a rotation: %v", err)
	}

	errtest.None(t, s.rotate(k, Request{}))

	s.round(k)

	for name, r := range map[string]Request{
		"not all of them":      {Force: true, LockOut: []string{"dead-1"}},
		"does not wait":        {Force: true, LockOut: []string{"a-1", "dead-1", "held-1"}},
		"held by job 7":        {Force: true, LockOut: []string{"dead-1", "held-1"}},
		"exclude each other":   {Force: true, To: "/k"},
		"need force":           {LockOut: []string{"dead-1"}},
		"is running since 200": {},
	} {
		before := s.saved()
		if err := s.rotate(k, r); err == nil || !strings.Contains(err.Error(), name) || s.saved() != before {
			t.Errorf("%+v: %v", r, err)
		}
	}

	s.hosts["held-1"].job = ""
	s.round(k)

	errtest.None(t, s.rotate(k, Request{Force: true, LockOut: []string{"dead-1"}}))

	if status := s.round(k); status.Phase != rotation.PhaseDone || !slices.Equal(status.LockedOut, []string{"dead-1"}) {
		t.Errorf("%+v", status)
	}
}

// TestForceAll: the manager does not lock itself out of every node, by an order or
// because the node that had confirmed is gone.
func TestForceAll(t *testing.T) {
	t.Parallel()

	s := newSite(t, "a-1", "b-1")
	s.hosts["a-1"].up, s.hosts["b-1"].up = false, false
	k := s.boot()

	errtest.None(t, s.rotate(k, Request{}))

	s.round(k)

	force := func(names ...string) error { return s.rotate(k, Request{Force: true, LockOut: names}) }

	err := force("a-1", "b-1")
	if e, ok := errors.AsType[*inventory.Error](err); !ok || e.Kind != inventory.KindRefused || len(e.Actions) != 2 ||
		!strings.Contains(err.Error(), "no node has confirmed the new key") {
		t.Errorf("force of all: %v", err)
	}

	// The node confirms, and the next phase is not stored.
	s.hosts["a-1"].up, s.unwritten = true, rotation.PhaseUse
	s.clock = s.clock.Add(time.Hour)

	_ = k.Round(t.Context())
	s.unwritten = ""

	if got := k.Rotation(); got.Phase != rotation.PhaseInstall || !slices.Equal(got.Confirmed, []string{"a-1"}) {
		t.Fatalf("%+v", got)
	}

	errtest.None(t, force("b-1"))

	gone := s.hosts["a-1"]
	delete(s.hosts, "a-1")

	if err := k.Round(t.Context()); inventory.KindOf(err) != inventory.KindRefused || s.keyFile != s.old {
		t.Errorf("without the node that had confirmed: %v with %s", err, s.keyFile)
	}

	s.hosts["a-1"] = gone
	if status := s.round(k); status.Phase != rotation.PhaseDone || !exists(s.old) {
		t.Errorf("%+v", status)
	}
}

// TestForceBack: a rotation that is taken back before the switch ends with the key in
// use, so it may end without every node.
func TestForceBack(t *testing.T) {
	t.Parallel()

	s := newSite(t, "dead-1")
	s.hosts["dead-1"].up = false
	k := s.boot()

	errtest.None(t, s.rotate(k, Request{}))

	s.round(k)

	if _, err := k.Cancel(t.Context(), access.Caller{Principal: "ann"}); err != nil {
		t.Fatal(err)
	}

	s.round(k)

	errtest.None(t, s.rotate(k, Request{Force: true, LockOut: []string{"dead-1"}}))

	if status := s.round(k); status.Phase != rotation.PhaseDone || s.keyFile != s.old {
		t.Errorf("%+v with %s", status, s.keyFile)
	}
}

// TestCancel takes a rotation back that has begun to remove the old key.
func TestCancel(t *testing.T) {
	t.Parallel()

	s := newSite(t, "a-1", "away-1")
	s.hosts["away-1"].up = false
	k := s.boot()
	cancel := func() error {
		_, err := k.Cancel(t.Context(), access.Caller{Principal: "ann"})
		return err
	}

	if err := cancel(); inventory.KindOf(err) != inventory.KindRefused {
		t.Errorf("without a rotation: %v", err)
	}

	errtest.None(t, s.rotate(k, Request{}))

	made := s.round(k).New

	errtest.None(t, cancel())

	for name := range s.hosts {
		if !s.reaches(k, name) {
			t.Errorf("after the cancel, the manager cannot log in to %s", name)
		}
	}

	if err := cancel(); inventory.KindOf(err) != inventory.KindRefused {
		t.Errorf("twice: %v", err)
	}

	status := s.round(k)
	if !status.Reverts || status.Phase != rotation.PhaseRemove || s.keyFile != s.old || s.runTime {
		t.Errorf("%+v with %s", status, s.keyFile)
	}

	s.hosts["away-1"].up = true

	if status = s.round(k); status.Phase != rotation.PhaseDone || exists(made.Path) || !exists(s.old) {
		t.Errorf("%+v", status)
	}

	for name := range s.hosts {
		if got := s.accepts(name, status.New, made); !slices.Equal(got, []bool{true, false}) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestCrashedCancel cancels a rotation after each of its operations, and kills the
// manager soon after that. No host is ever without a key that the manager offers.
func TestCrashedCancel(t *testing.T) {
	t.Parallel()

	for at := 2; ; at++ {
		for crash := at; crash < at+4; crash++ {
			s := newSite(t, "a-1", "away-1", "b-1")
			s.hosts["away-1"].up = false
			k := s.boot()

			errtest.None(t, s.rotate(k, Request{}))

			s.crash = at
			if k.Round(t.Context()) == nil && s.ops < at {
				return
			}

			s.crash = crash
			k = s.boot()

			if _, err := k.Cancel(t.Context(), access.Caller{Principal: "ann"}); err == nil {
				_ = k.Round(t.Context())
			}

			for name := range s.hosts {
				if !s.reaches(k, name) {
					t.Fatalf("cancelled at operation %d and killed at %d, the manager cannot log in to %s",
						at, crash, name)
				}
			}
		}
	}
}

// TestChangedSetting: nothing is removed while the manager uses a third key.
func TestChangedSetting(t *testing.T) {
	t.Parallel()

	s := newSite(t, "a-1", "away-1")
	s.hosts["away-1"].up = false
	k := s.boot()

	errtest.None(t, s.rotate(k, Request{}))

	status := s.round(k)
	s.hosts["away-1"].up = true
	s.keyFile = "/another"

	if err := k.Round(t.Context()); inventory.KindOf(err) != inventory.KindPrecondition {
		t.Errorf("another key: %v", err)
	}

	if got := k.Status(); !strings.Contains(got.Problem, "was changed") ||
		!slices.Equal(s.accepts("away-1", status.Old, status.New), []bool{true, false}) {
		t.Errorf("%+v", got)
	}

	s.keyFile = status.New.Path
	if got := s.round(k); got.Phase != rotation.PhaseDone || got.Problem != "" {
		t.Errorf("%+v", got)
	}
}

// TestKeys: the keys that a rotation takes, and those that it refuses without a trace.
func TestKeys(t *testing.T) {
	t.Parallel()

	s := newSite(t, "a-1")
	k := s.boot()

	write := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(s.dir, name)
		if err := errors.Join(
			os.MkdirAll(filepath.Dir(path), 0o700),
			os.WriteFile(path, []byte(content), mode),
		); err != nil {
			t.Fatal(err)
		}

		return path
	}

	private, err := os.ReadFile(s.old)
	errtest.None(t, err)

	for _, c := range []struct{ path, want string }{
		{"relative", "is not an absolute path"},
		{s.dir + "/a b", "is not an absolute path"},
		{"/proc/-oProxyCommand=x\n", "is not an absolute path"},
		{s.dir + "/none", "no such file"},
		{s.dir, "not a regular file"},
		{"/dev/zero", "not a regular file"},
		{write("text", "no key", 0o600), "is not a private ssh key"},
		{write("public", someHostKey, 0o600), "is not a private ssh key"},
		{write("open", string(private), 0o640), "mode is 0640"},
		{write("huge", strings.Repeat("x", maxKeyFile+1), 0o600), "larger than"},
		{write("same", string(private), 0o600), "accept already"},
	} {
		if err := s.rotate(k, Request{To: c.path}); inventory.KindOf(err) != inventory.KindInvalid ||
			!strings.Contains(err.Error(), c.want) || s.saved() != "{}" {
			t.Errorf("%q: %v", c.path, err)
		}
	}

	// Without ssh.key_file, ssh finds the one key in the home by itself.
	s.keyFile = ""
	if err := s.rotate(k, Request{}); inventory.KindOf(err) != inventory.KindRefused ||
		!strings.Contains(err.Error(), "has none") {
		t.Errorf("no key: %v", err)
	}

	usual := write("home/.ssh/id_ed25519", string(private), 0o600)
	if status := k.Status(); status.New.Path != usual || status.Phase != rotation.PhaseNone || status.Problem != "" {
		t.Errorf("%+v", status)
	}

	to := filepath.Join(s.dir, "next")
	if _, err := generate(to, "x"); err != nil {
		t.Fatal(err)
	}
	errtest.None(t, s.rotate(k, Request{To: to}))

	if status := s.round(k); status.Phase != rotation.PhaseDone || s.keyFile != to || !exists(usual) {
		t.Errorf("%+v", status)
	}

	s.keyFile = ""
	write("home/.ssh/id_rsa", "x", 0o600)

	if err := s.rotate(k, Request{}); err == nil || !strings.Contains(err.Error(), "several keys") {
		t.Errorf("several keys: %v", err)
	}
}

// TestBackoff: a node that fails is tried again after longer and longer times, and at
// once when it returns.
func TestBackoff(t *testing.T) {
	t.Parallel()

	last := attempt{at: time.Unix(1000, 0), failures: 1, why: "down", state: inventory.Disappeared}
	for _, c := range []struct {
		after time.Duration
		state inventory.State
		fails int
		due   bool
	}{
		{15 * time.Second, inventory.Disappeared, 1, false},
		{20 * time.Second, inventory.Disappeared, 1, true},
		{1 * time.Second, inventory.Discovered, 1, true},
		{4 * time.Minute, inventory.Disappeared, 50, false},
		{5 * time.Minute, inventory.Disappeared, 50, true},
	} {
		last.failures = c.fails
		if got := last.due(last.at.Add(c.after), c.state); got != c.due {
			t.Errorf("%+v: %t", c, got)
		}
	}
}
