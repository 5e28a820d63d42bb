// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/contiv/cluster/management/state"
)

// fixedState has one view.
type fixedState struct {
	state.Reader

	view *state.View
}

func (s fixedState) View() *state.View { return s.view }

// scripted is a repository with a newest commit of the test, and the store of its record.
type scripted struct {
	mu       sync.Mutex
	newest   string
	err      error            // of a fetch
	bad      map[string]error // of Keep
	gone     bool             // no playbooks are kept
	fetches  []time.Time
	restored []string // the commits of Restore
	kept     int      // calls of Keep
	record   Record
	saves    int
	refused  error // of SaveRepository
}

func hash(n int) string { return strings.Repeat(fmt.Sprint(n), 40)[:40] }

func (s *scripted) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *scripted) Fetch(context.Context) (configuration.Commit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fetches = append(s.fetches, time.Now())
	return configuration.Commit{Hash: s.newest}, s.err
}

func (s *scripted) Keep(_ context.Context, commit string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.gone = false
	s.kept++
	return "digest of " + commit[:1], s.bad[commit]
}

func (s *scripted) Restore(_ context.Context, commit string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.restored = append(s.restored, commit)

	if len(s.fetches) == 0 {
		return "", inventory.Errorf(inventory.KindNotFound, "not fetched")
	}

	return "digest of " + commit[:1], nil
}

func (s *scripted) Intact(context.Context, string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.gone
}

func (s *scripted) Descends(_ context.Context, commit, old string) (bool, error) {
	return commit > old, nil
}

func (s *scripted) Log(
	_ context.Context, to string, since []string, _ int,
) ([]configuration.Commit, bool, error) {
	if slices.Contains(since, to) {
		return nil, false, nil
	}
	return []configuration.Commit{{Hash: to}}, false, nil
}

func (s *scripted) Lookup(_ context.Context, prefix string) (configuration.Commit, bool, error) {
	return configuration.Commit{Hash: hash(9)}, strings.HasPrefix(hash(9), prefix), nil
}

func (s *scripted) Diff(_ context.Context, old, changed Side) (Difference, error) {
	return Difference{Old: old, New: changed}, nil
}

func (s *scripted) LoadRepository(context.Context) (Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record.clone(), nil
}

func (s *scripted) SaveRepository(_ context.Context, r Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.refused != nil {
		return s.refused
	}

	s.saves++
	s.record = r

	return nil
}

// trail collects audit records.
type trail struct {
	mu      sync.Mutex
	records []access.Record
}

func (a *trail) Record(_ context.Context, r access.Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.records = append(a.records, r)
}

// lines returns the records, one line each.
func (a *trail) lines() []string {
	a.mu.Lock()
	defer a.mu.Unlock()

	var out []string
	for _, r := range a.records {
		out = append(out, fmt.Sprintf("%s %s %.7s %t", r.Principal, r.Action, r.Targets[0], r.Err == nil))
	}

	return out
}

// testKeeper is a keeper on a scripted repository.
type testKeeper struct {
	*Keeper

	script *scripted
	trail  *trail
	leads  bool
	now    Settings
}

func newKeeper(t *testing.T) *testKeeper {
	t.Helper()

	log := logrus.New()
	log.SetOutput(io.Discard)

	k := &testKeeper{
		script: &scripted{newest: hash(1), bad: map[string]error{}}, trail: &trail{}, leads: true,
		now: Settings{Used: true, Source: "here main", URL: "here", Interval: time.Minute},
	}
	k.Keeper = New(Options{
		State: fixedState{view: &state.View{}}, Source: k.script, Playbooks: k.script, Records: k.script,
		History: func() History { return k.script },
		Settings: func() Settings {
			k.script.mu.Lock()
			defer k.script.mu.Unlock()
			return k.now
		},
		Leads: func() bool {
			k.script.mu.Lock()
			defer k.script.mu.Unlock()
			return k.leads
		},
		Moved: func(context.Context) {}, Audit: k.trail, Logger: log,
	})

	return k
}

var (
	operator = access.Caller{Principal: "alice"}
	refused  = inventory.Errorf(inventory.KindInvalid, "site.yml does not parse").Do("correct it")
)

// TestUse: a commit comes into use, a bad one does not, and each is on record once.
func TestUse(t *testing.T) {
	t.Parallel()

	k := newKeeper(t)
	sync := func(want string) {
		t.Helper()

		err := k.Sync(t.Context(), operator)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
	inUse := func(n int) {
		t.Helper()

		if r := k.script.record; r.InUse == nil || r.InUse.Hash != hash(n) {
			t.Errorf("%+v is in use, want %d", r.InUse, n)
		}
	}

	if _, err := k.Pin(t.Context()); inventory.KindOf(err) != inventory.KindRefused {
		t.Errorf("Pin without a commit: %v", err)
	}

	sync("")
	sync("")
	inUse(1)

	k.script.newest, k.script.bad[hash(2)] = hash(2), refused

	sync("commit 222222222222 is refused: site.yml does not parse; correct it")
	inUse(1)

	if _, problem := k.Problem(); problem == nil || !strings.Contains(problem.Error(), "does not parse") {
		t.Errorf("the problem is %v", problem)
	}

	// The watch does not check the same commit again, an operator does.
	if err := k.sync(t.Context(), false); err == nil || k.script.saves != 2 {
		t.Errorf("%v, %d writes", err, k.script.saves)
	}

	delete(k.script.bad, hash(2))
	sync("")
	inUse(2)

	// Going back is possible, and shown.
	k.script.newest = hash(1)
	sync("")
	inUse(1)

	if k.script.record.Rewritten != hash(2) || len(k.script.record.Past) != 2 {
		t.Errorf("%+v", k.script.record)
	}

	// A host without Ansible judges no commit.
	k.script.newest, k.script.bad[hash(3)] = hash(3), inventory.Errorf(inventory.KindUnavailable, "no Ansible")
	sync("no Ansible")
	inUse(1)

	if k.script.record.Bad != nil {
		t.Errorf("the commit was refused: %+v", k.script.record.Bad)
	}

	// Without the store, nothing changes.
	delete(k.script.bad, hash(3))
	k.script.refused = errors.New("no store")
	sync("no store")
	inUse(1)

	want := []string{
		Principal + " repository.use 1111111 true",
		"alice repository.sync here true",
		"alice repository.sync here true",
		Principal + " repository.use 2222222 false",
		"alice repository.sync here false",
		Principal + " repository.use 2222222 true",
		"alice repository.sync here true",
		Principal + " repository.use 1111111 true",
		"alice repository.sync here true",
		"alice repository.sync here false",
		Principal + " repository.use 3333333 false",
		"alice repository.sync here false",
	}
	if got := k.trail.lines(); !slices.Equal(got, want) {
		t.Errorf("the trail is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestPin: the playbooks in use are on this host, whoever fetched them.
func TestPin(t *testing.T) {
	t.Parallel()

	k := newKeeper(t)
	k.script.record = Record{Source: "here main", InUse: &Use{
		Commit: configuration.Commit{Hash: hash(4)}, Digest: "digest of 4",
	}}
	k.script.gone = true

	if digest, err := k.Pin(t.Context()); digest != "digest of 4" || err != nil || len(k.script.fetches) != 0 {
		t.Errorf("%q, %v, %d fetches", digest, err, len(k.script.fetches))
	}

	if got := k.CommitOf("digest of 4"); got != hash(4) {
		t.Errorf("the commit is %q", got)
	}

	// The repository, the branch or the folder was changed.
	k.now.Source = "there main"

	if _, err := k.Pin(t.Context()); inventory.KindOf(err) != inventory.KindRefused {
		t.Errorf("Pin of another source: %v", err)
	}
}

// TestWatch: the interval, the delay after failures, and the leader alone.
func TestWatch(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		began := time.Now()

		k.Start(t.Context())
		defer k.Stop()

		count := func() int {
			synctest.Wait()
			k.script.mu.Lock()
			defer k.script.mu.Unlock()
			return len(k.script.fetches)
		}
		gaps := func(first int) []time.Duration {
			synctest.Wait()
			k.script.mu.Lock()
			defer k.script.mu.Unlock()

			var out []time.Duration
			for _, at := range k.script.fetches[first:] {
				out = append(out, at.Sub(began))
				began = at
			}

			return out
		}

		time.Sleep(5 * time.Minute)

		for i, gap := range gaps(0) {
			if i > 0 && (gap < 54*time.Second || gap > 66*time.Second) {
				t.Errorf("fetch %d came after %s", i, gap)
			}
		}

		before := count()
		k.script.set(func() { k.script.err = errors.New("no route") })
		time.Sleep(6 * time.Hour)

		failed := gaps(before)
		if len(failed) < 8 || len(failed) > 16 || failed[len(failed)-1] < 54*time.Minute ||
			failed[len(failed)-1] > 66*time.Minute {
			t.Errorf("while fetches fail, they come after %s", failed)
		}

		if warning, problem := k.Problem(); !strings.Contains(warning, "no route") || problem != nil {
			t.Errorf("the health is %q, %v", warning, problem)
		}

		// A changed setting is a reason to look at once.
		k.script.set(func() { k.script.err, k.now.Interval = nil, 2*time.Minute })
		before = count()
		k.Kick()

		if count() != before+1 {
			t.Errorf("%d fetches after a change of the settings", count()-before)
		}

		// The same settings are not.
		k.Kick()

		if count() != before+1 {
			t.Errorf("%d fetches after no change of the settings", count()-before)
		}

		k.script.set(func() { k.leads = false })
		before = count()
		time.Sleep(time.Hour)

		if count() != before {
			t.Error("an instance that does not lead fetches")
		}

		if err := k.Sync(t.Context(), operator); inventory.KindOf(err) != inventory.KindUnavailable {
			t.Errorf("a sync by an instance that does not lead: %v", err)
		}
	})
}

// TestPast: commits that nodes carry stay on record.
func TestPast(t *testing.T) {
	t.Parallel()

	var r Record

	carried := func(digest string) bool { return digest == "0" }

	for i := range 3 * maxPast {
		next := Use{Commit: configuration.Commit{Hash: fmt.Sprintf("%040d", i)}, Digest: fmt.Sprint(i)}
		r = r.use(next, "", carried)
	}

	if len(r.Past) != maxPast+1 || r.Past[maxPast].Digest != "0" || r.Past[0].Digest != fmt.Sprint(3*maxPast-2) {
		t.Errorf("%d are on record, the oldest is %+v", len(r.Past), r.Past[len(r.Past)-1])
	}

	if use, ok := r.ByDigest("0"); !ok || use.Hash != fmt.Sprintf("%040d", 0) {
		t.Errorf("%+v", use)
	}

	if _, ok := r.ByCommit(fmt.Sprintf("%040d", 1)); ok {
		t.Error("a commit that nobody carries is on record for ever")
	}
}

// TestSides: the sides of a difference.
func TestSides(t *testing.T) {
	t.Parallel()

	k := newKeeper(t)
	v := &state.View{}
	v.SetNodes([]*inventory.Node{
		{Name: "a-1", Group: "g", Playbooks: map[string]string{"g": "digest of 1"}}, {Name: "b-1"},
	}...)

	if _, err := k.Diff(t.Context(), v, DiffRequest{}); inventory.KindOf(err) != inventory.KindRefused {
		t.Errorf("without a commit in use: %v", err)
	}

	for n := range 2 {
		k.script.newest = hash(n + 1)
		errtest.None(t, k.Sync(t.Context(), operator))
	}

	for _, c := range []struct {
		r    DiffRequest
		want string
		kind inventory.Kind
	}{
		{DiffRequest{From: hash(1)[:7]}, "1111111 digest of 1, 2222222 digest of 2", ""},
		{DiffRequest{Node: "a-1"}, "1111111 digest of 1, 2222222 digest of 2", ""},
		{DiffRequest{Node: "a-1", To: hash(9)[:10]}, "1111111 digest of 1, 9999999 ", ""},
		{DiffRequest{}, "2222222 digest of 2, 2222222 digest of 2", ""},
		{DiffRequest{Node: "b-1"}, "", inventory.KindRefused},
		{DiffRequest{Node: "c-1"}, "", inventory.KindNotFound},
		{DiffRequest{From: "main"}, "", inventory.KindInvalid},
		{DiffRequest{From: "1111"}, "", inventory.KindInvalid},
		{DiffRequest{From: hash(8)}, "", inventory.KindNotFound},
	} {
		d, err := k.Diff(t.Context(), v, c.r)

		got := fmt.Sprintf("%.7s %s, %.7s %s", d.Old.Commit, d.Old.Digest, d.New.Commit, d.New.Digest)
		if inventory.KindOf(err) != c.kind || err == nil && got != c.want {
			t.Errorf("%+v: %q, %v; want %q", c.r, got, err, c.want)
		}
	}

	log, err := k.Log(t.Context(), v, 10, false)
	if err != nil || len(log.Commits) != 1 || !slices.Equal(log.Since, []string{hash(1)}) {
		t.Errorf("the log is %+v, %v", log, err)
	}
}

// TestJudgedAgain: with other keys, the commit in use is not used before it is judged
// again.
func TestJudgedAgain(t *testing.T) {
	t.Parallel()

	k := newKeeper(t)
	errtest.None(t, k.Sync(t.Context(), operator))
	k.now.Source = "here main signed by 1"

	if _, err := k.Pin(t.Context()); inventory.KindOf(err) != inventory.KindRefused {
		t.Errorf("a commit that nobody has judged is pinned: %v", err)
	}

	unsigned := inventory.Errorf(inventory.KindRefused, "it has no signature").Do("sign it")
	k.script.bad[hash(1)] = unsigned

	if err := k.Sync(t.Context(), operator); err == nil || !strings.Contains(err.Error(), "no signature") {
		t.Errorf("the error is %v", err)
	}

	if r := k.script.record; r.InUse != nil || r.Bad == nil || r.Bad.Hash != hash(1) || len(r.Past) != 1 {
		t.Errorf("%+v", r)
	}

	if got := k.CommitOf("digest of 1"); got != hash(1) {
		t.Errorf("the commit of a node is %q", got)
	}

	delete(k.script.bad, hash(1))

	errtest.None(t, k.Sync(t.Context(), operator))

	if digest, err := k.Pin(t.Context()); digest != "digest of 1" || err != nil {
		t.Errorf("%q, %v", digest, err)
	}
}

// TestFaultOfCommit: a commit that cannot be fetched is refused and reported, once.
func TestFaultOfCommit(t *testing.T) {
	t.Parallel()

	k := newKeeper(t)
	errtest.None(t, k.Sync(t.Context(), operator))
	k.script.newest, k.script.err = hash(2), inventory.Errorf(inventory.KindTooLarge, "an object is too large")

	for range 2 {
		if err := k.sync(t.Context(), false); err == nil || !strings.Contains(err.Error(), "is too large") {
			t.Errorf("the error is %v", err)
		}
	}

	if r := k.script.record; r.InUse.Hash != hash(1) || r.Bad == nil || r.Bad.Hash != hash(2) {
		t.Errorf("%+v", r)
	}

	if s := k.Status(k.State.View()); s.Seen.Hash != hash(2) || s.Failure != nil {
		t.Errorf("the state is %+v", s)
	}

	want := []string{
		Principal + " repository.use 1111111 true", "alice repository.sync here true",
		Principal + " repository.use 2222222 false",
	}
	if got := k.trail.lines(); !slices.Equal(got, want) {
		t.Errorf("the trail is\n%s", strings.Join(got, "\n"))
	}
}

// TestKeepFails: any fault that keeps the newest commit out of use is shown.
func TestKeepFails(t *testing.T) {
	t.Parallel()

	k := newKeeper(t)
	errtest.None(t, k.Sync(t.Context(), operator))
	k.script.newest, k.script.bad[hash(2)] = hash(2), inventory.Errorf(inventory.KindUnavailable, "the disk is full")

	if err := k.sync(t.Context(), false); err == nil {
		t.Fatal("the commit is kept")
	}

	if s := k.Status(k.State.View()); s.Failure == nil || s.Failing.IsZero() || s.Seen.Hash != hash(2) {
		t.Errorf("the state is %+v", s)
	}

	if warning, problem := k.Problem(); !strings.Contains(warning, "the disk is full") || problem != nil {
		t.Errorf("the health is %q, %v", warning, problem)
	}

	delete(k.script.bad, hash(2))
	k.script.refused = errors.New("no store")

	if err := k.sync(t.Context(), false); err == nil {
		t.Fatal("the commit is on record")
	}

	if s := k.Status(k.State.View()); s.Failure == nil || !strings.Contains(s.Failure.Error(), "no store") {
		t.Errorf("the state is %+v", s)
	}

	k.script.refused = nil

	errtest.None(t, k.sync(t.Context(), false))

	if s := k.Status(k.State.View()); s.Failure != nil {
		t.Errorf("the state is %+v", s)
	}
}

// TestMended: a bad commit, and a host that cannot judge one, do not delay the commit that
// mends it.
func TestMended(t *testing.T) {
	t.Parallel()

	for name, fault := range map[string]error{
		"bad": refused, "not judged": inventory.Errorf(inventory.KindUnavailable, "no Ansible"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKeeper(t)
				k.script.newest, k.script.bad[hash(2)] = hash(2), fault

				k.Start(t.Context())
				defer k.Stop()

				time.Sleep(24 * time.Hour)
				k.script.set(func() { k.script.newest = hash(3) })
				time.Sleep(time.Minute + 10*time.Second)
				synctest.Wait()

				if digest, err := k.Pin(t.Context()); digest != "digest of 3" || err != nil {
					t.Errorf("after more than the interval, %q is in use, %v", digest, err)
				}
			})
		})
	}
}

// TestCurrent: the commit in use is known without a fetch and without its playbooks.
func TestCurrent(t *testing.T) {
	t.Parallel()

	k := newKeeper(t)

	if _, err := k.Current(t.Context()); inventory.KindOf(err) != inventory.KindRefused {
		t.Errorf("without a commit: %v", err)
	}

	k.script.record = Record{Source: "here main", InUse: &Use{
		Commit: configuration.Commit{Hash: hash(4)}, Digest: "digest of another version",
	}}
	k.script.gone = true

	if digest, err := k.Current(t.Context()); digest != "digest of another version" || err != nil {
		t.Errorf("%q, %v", digest, err)
	}

	if len(k.script.fetches) != 0 || k.script.kept != 0 {
		t.Errorf("%d fetches, %d copies", len(k.script.fetches), k.script.kept)
	}

	// This version of clusterm keeps other roles with the playbooks.
	if digest, err := k.Pin(t.Context()); digest != "digest of 4" || err != nil {
		t.Errorf("%q, %v", digest, err)
	}

	if digest, err := k.Current(t.Context()); digest != "digest of 4" || err != nil {
		t.Errorf("%q, %v", digest, err)
	}
}

// TestFollow: an instance that does not lead has the playbooks in use before a job needs
// them.
func TestFollow(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		k.leads = false
		k.now.Interval = 24 * time.Hour

		k.Start(t.Context())
		defer k.Stop()

		synctest.Wait()
		k.script.set(func() {
			k.script.gone = true
			k.script.record = Record{Source: "here main", InUse: &Use{
				Commit: configuration.Commit{Hash: hash(4)}, Digest: "digest of 4",
			}}
		})

		for range 2 {
			if _, err := k.Current(t.Context()); err != nil {
				t.Fatal(err)
			}

			synctest.Wait()

			if k.script.gone || k.script.kept != 1 || len(k.script.fetches) != 0 {
				t.Errorf("%d copies, %d fetches", k.script.kept, len(k.script.fetches))
			}
		}
	})
}

// TestRestore: the playbooks of a commit on record come back, and those of no other.
func TestRestore(t *testing.T) {
	t.Parallel()

	k := newKeeper(t)
	k.script.record = Record{Source: "here main", InUse: &Use{
		Commit: configuration.Commit{Hash: hash(4)}, Digest: "digest of 4",
	}, Past: []Use{
		{Commit: configuration.Commit{Hash: hash(3)}, Digest: "digest of 3"},
		{Commit: configuration.Commit{Hash: hash(2)}, Digest: "of another folder"},
	}}

	if _, err := k.load(t.Context()); err != nil {
		t.Fatal(err)
	}

	for digest, want := range map[string]bool{
		"digest of 3": true, "digest of 4": true, "of another folder": false, "of no commit": false,
	} {
		if got, err := k.Restore(t.Context(), digest); got != want || err != nil {
			t.Errorf("%s: %v, %v", digest, got, err)
		}
	}

	// The mirror was empty.
	if len(k.script.fetches) != 1 || k.script.kept != 0 {
		t.Errorf("%d fetches, %d judgements", len(k.script.fetches), k.script.kept)
	}
}

// TestDiffBeforeFetch: before the first fetch, the newest commit is the one on record.
func TestDiffBeforeFetch(t *testing.T) {
	t.Parallel()

	k := newKeeper(t)
	k.script.record = Record{Source: "here main", InUse: &Use{
		Commit: configuration.Commit{Hash: hash(4)}, Digest: "digest of 4",
	}}

	for want, bad := range map[string]*Refusal{hash(4): nil, hash(9): {Commit: configuration.Commit{Hash: hash(9)}}} {
		k.script.record.Bad = bad

		if _, err := k.load(t.Context()); err != nil {
			t.Fatal(err)
		}

		d, err := k.Diff(t.Context(), k.State.View(), DiffRequest{})
		if err != nil || d.Old.Commit != hash(4) || d.New.Commit != want {
			t.Errorf("%+v, %v", d, err)
		}
	}

	k.script.record = Record{}
	if _, err := k.load(t.Context()); err != nil {
		t.Fatal(err)
	}

	_, err := k.Diff(t.Context(), k.State.View(), DiffRequest{From: hash(9)})
	if inventory.KindOf(err) != inventory.KindRefused || !strings.Contains(err.Error(), "no commit of here is in use") {
		t.Errorf("without a commit: %v", err)
	}
}
