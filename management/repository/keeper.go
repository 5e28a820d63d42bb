// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/control"
	"github.com/contiv/cluster/management/state"
)

// Principal is the principal of the watch of the repository.
const Principal = "policy:repository"

// Source is the configured repository. Its methods block for minutes at most.
type Source interface {
	// Fetch returns the commit that the configuration names now. With an error that is due
	// to one commit, it returns the hash of that.
	Fetch(ctx context.Context) (configuration.Commit, error)
	// Keep checks the playbooks of a fetched commit, and keeps them. A commit that cannot be
	// used is KindRefused or KindInvalid; KindNotFound if it has to be fetched first.
	Keep(ctx context.Context, commit string) (digest string, err error)
	// Restore keeps the playbooks of a commit that was judged before, and does not judge it
	// again. It is KindNotFound as Keep is.
	Restore(ctx context.Context, commit string) (digest string, err error)
	// Diff compares two sets of playbooks.
	Diff(ctx context.Context, old, changed Side) (Difference, error)
}

// History are the commits that were fetched.
type History interface {
	// Descends reports whether old leads to the commit.
	Descends(ctx context.Context, commit, old string) (bool, error)
	// Log returns the commits that lead to the commit to and to none of since, the newest
	// first, and whether there are more than limit.
	Log(ctx context.Context, to string, since []string, limit int) ([]configuration.Commit, bool, error)
	// Lookup returns the fetched commit with a hash that begins with the text.
	Lookup(ctx context.Context, prefix string) (configuration.Commit, bool, error)
}

// Playbooks are those that are kept on this host, by their digests.
type Playbooks interface {
	// Intact reports whether the playbooks are there, undamaged.
	Intact(ctx context.Context, digest string) bool
	// Pack writes the playbooks as an archive, and Unpack keeps those of an archive that
	// have the digest.
	Pack(ctx context.Context, digest string, w io.Writer) error
	Unpack(ctx context.Context, digest string, r io.Reader) error
}

// Records keeps the record. Its methods block while the store is slow.
type Records interface {
	// LoadRepository returns the zero value if there is none.
	LoadRepository(ctx context.Context) (Record, error)
	SaveRepository(ctx context.Context, r Record) error
}

// Settings is the configuration of the repository.
type Settings struct {
	Used      bool
	Source    string // identifies URL, reference, folder, and how a commit is judged
	URL       string
	Reference string // for people: "branch main"
	Folder    string
	OnMove    string
	Interval  time.Duration
}

// Options are the dependencies of a Keeper.
type Options struct {
	State     state.Reader
	Source    Source
	History   func() History // of the configured repository
	Playbooks Playbooks
	Records   Records
	Shared    func() Shared // nil, or returns nil, while there are no other instances
	Settings  func() Settings
	Leads     func() bool
	Moved     func(ctx context.Context) // called when another commit came into use
	Audit     access.Auditor
	Logger    logrus.FieldLogger
}

// Keeper keeps the commit in use current. All methods may be called at once.
type Keeper struct {
	Options
	*control.Loop
	turn chan struct{} // full while a sync runs

	watched Settings // at the last look; of the watch alone, as delays
	delays  *backoff.ExponentialBackOff

	mu      sync.Mutex
	record  Record
	seen    configuration.Commit
	fetched time.Time // the end of the last fetch that succeeded
	next    time.Time
	failure error // of the last attempt, unless it is the refusal of a commit
	failing time.Time
	down    bool     // the last fetch failed
	moved   bool     // the record has another commit in use than before
	kept    string   // the source of the commit in use that this process has checked
	local   localUse // of the commit in use
	shared  string   // the digest that this process has shared
}

// localUse is the digest that this version of clusterm gives to playbooks with another
// digest on record.
type localUse struct{ recorded, digest string }

// New returns a Keeper.
func New(o Options) *Keeper {
	k := &Keeper{Options: o, turn: make(chan struct{}, 1)}
	if k.Shared == nil {
		k.Shared = func() Shared { return nil }
	}
	k.Loop = control.New(control.Options{
		Name: "repository", Round: k.look, Logger: o.Logger,
		Trouble: "the repository of playbooks has no new commit to use; the one in use stays",
	})

	return k
}

// Start reads the record, and watches the repository in the background until Stop.
func (k *Keeper) Start(ctx context.Context) {
	if _, err := k.load(ctx); err != nil {
		k.Logger.WithError(err).Warn("the record of the repository cannot be read yet")
	}

	k.Loop.Start(ctx)
}

// maxBackoff is the longest time between two fetches that fail.
const maxBackoff = time.Hour

// delays returns the delays between fetches: the interval, twice as long after each
// failure, by a tenth more or less, so that many managers do not fetch at once.
func delays(interval time.Duration) *backoff.ExponentialBackOff {
	return &backoff.ExponentialBackOff{
		InitialInterval: interval, Multiplier: 2, MaxInterval: max(interval, maxBackoff), RandomizationFactor: 0.1,
	}
}

// look looks at the repository if that is due, or if the settings or the commit in use changed.
func (k *Keeper) look(ctx context.Context) (control.Next, error) {
	settings, moved := k.Settings(), k.takeMoved()

	k.mu.Lock()
	next := k.next
	k.mu.Unlock()

	if settings == k.watched && !moved && time.Now().Before(next) {
		return control.Next{At: next}, nil
	}

	if settings != k.watched || k.delays == nil {
		k.watched, k.delays = settings, delays(settings.Interval)
	}

	// A bad commit must not delay the one that mends it.
	err := k.watch(ctx, settings)
	if !k.isDown() {
		k.delays.Reset()
	}

	next = time.Now().Add(k.delays.NextBackOff())

	k.mu.Lock()
	defer k.mu.Unlock()

	k.next = next

	return control.Next{At: next}, err
}

// takeMoved reports whether another commit came into use since the last call.
func (k *Keeper) takeMoved() bool {
	k.mu.Lock()
	defer k.mu.Unlock()

	moved := k.moved
	k.moved = false
	return moved
}

func (k *Keeper) isDown() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.down
}

// watch looks at the repository once: the leader for a new commit, another instance for
// the playbooks in use.
func (k *Keeper) watch(ctx context.Context, settings Settings) error {
	switch {
	case !settings.Used:
		return nil
	case k.Leads():
		return k.sync(ctx, false)
	default:
		return k.follow(ctx, settings)
	}
}

// follow brings the commit in use to this host before a job needs it.
func (k *Keeper) follow(ctx context.Context, settings Settings) error {
	record, err := k.load(ctx)
	if err == nil && record.Source == settings.Source && record.InUse != nil {
		_, err = k.bring(ctx, *record.InUse)
	}

	k.noteResult(ctx, err)

	return err
}

func (k *Keeper) problem() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.failure
}

// Sync fetches now. The error is the reason why the newest commit did not come into use;
// the former one stays in use.
func (k *Keeper) Sync(ctx context.Context, c access.Caller) error {
	record := access.Record{Action: "repository.sync", Targets: []string{k.Settings().URL}}

	return access.Audited(ctx, k.Audit, c, record, func(_ context.Context, _ *access.Record) error {
		if err := k.refuse(); err != nil {
			return err
		}
		return k.sync(ctx, true)
	})
}

// refuse returns an error if there is no repository, or another instance fetches it.
func (k *Keeper) refuse() error {
	switch {
	case !k.Settings().Used:
		return errUnused()
	case !k.Leads():
		return state.NotLeading(k.State.View(), "so it does not fetch")
	}

	return nil
}

func errUnused() error {
	return inventory.Errorf(inventory.KindRefused, "no repository of playbooks is configured").
		Do("set repository.url in the configuration file, and reload clusterm: systemctl reload clusterm")
}

// verdict is the refusal of a commit.
type verdict struct{ error }

func (v verdict) Unwrap() error { return v.error }

// sync fetches, checks, and puts the newest commit into use. forced: a commit that was
// refused is checked again.
func (k *Keeper) sync(ctx context.Context, forced bool) error {
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}

	err := k.advance(ctx, forced)
	k.noteResult(ctx, err)
	k.share(ctx)

	return err
}

func (k *Keeper) advance(ctx context.Context, forced bool) error {
	settings := k.Settings()

	// A fault of the commit is judged below, as a finding in its playbooks is.
	commit, fault := k.fetch(ctx)
	if fault != nil && (commit.Hash == "" || !isVerdict(fault)) {
		return fault
	}

	record, err := k.load(ctx)
	if err != nil {
		return err
	}

	// Another repository, or other keys: nothing is good before it is judged again.
	if record.Source != settings.Source {
		record = Record{Source: settings.Source, Past: record.known()}
	}

	if fault == nil && k.current(ctx, record, commit) {
		return k.forgive(ctx, record)
	}

	if bad := record.Bad; bad != nil && bad.Hash == commit.Hash && !forced {
		return bad.err()
	}

	return k.change(ctx, record, commit, fault)
}

// known returns all commits of the record.
func (r Record) known() []Use {
	if r.InUse == nil {
		return slices.Clone(r.Past)
	}
	return slices.Insert(slices.Clone(r.Past), 0, *r.InUse)
}

// current reports whether the commit is in use, and this process has checked it: another
// version of clusterm keeps other roles with it.
func (k *Keeper) current(ctx context.Context, r Record, commit configuration.Commit) bool {
	k.mu.Lock()
	checked := k.kept == r.Source
	k.mu.Unlock()
	return checked && r.InUse != nil && r.InUse.Hash == commit.Hash && k.Playbooks.Intact(ctx, r.InUse.Digest)
}

// forgive removes the refusal of a commit that is no longer the newest.
func (k *Keeper) forgive(ctx context.Context, record Record) error {
	if record.Bad == nil {
		return nil
	}

	record = record.clone()
	record.Bad = nil

	return k.save(ctx, record)
}

// fetch fetches, and keeps the result.
func (k *Keeper) fetch(ctx context.Context) (configuration.Commit, error) {
	commit, err := k.Source.Fetch(ctx)
	if ctx.Err() != nil {
		return configuration.Commit{}, ctx.Err() // the caller gave up
	}

	k.mu.Lock()
	defer k.mu.Unlock()

	// A commit that cannot be used is the newest one all the same.
	if commit.Hash != "" {
		k.seen = commit
	}

	if k.down = err != nil; !k.down {
		k.fetched = time.Now()
	}

	return commit, err
}

// noteResult keeps the reason why the newest commit is not in use, unless it is on record
// as the refusal of that.
func (k *Keeper) noteResult(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // the caller gave up
	}

	// The record shows it, also after a restart.
	if _, refused := errors.AsType[verdict](err); refused {
		err = nil
	}

	k.mu.Lock()
	defer k.mu.Unlock()

	if err != nil && k.failure == nil {
		k.failing = time.Now()
	}

	k.failure = err
}

// change puts a commit into use, or refuses it. Both leave an audit record. fault is the
// reason to refuse it that is known already.
func (k *Keeper) change(ctx context.Context, record Record, commit configuration.Commit, fault error) error {
	audit := access.Record{Action: "repository.use", Targets: []string{commit.Hash}}
	if record.InUse != nil {
		audit.Reason = "the commit in use was " + record.InUse.Hash
	}

	digest, err := "", fault
	if fault == nil {
		digest, err = k.Source.Keep(ctx, commit.Hash)
	}

	if err != nil && !isVerdict(err) {
		return err
	}

	if err == nil && record.InUse != nil && record.InUse.Hash == commit.Hash && record.InUse.Digest == digest {
		k.check(record.Source)
		return k.forgive(ctx, record)
	}

	caller := access.Caller{Principal: Principal}

	return access.Audited(ctx, k.Audit, caller, audit, func(recording context.Context, _ *access.Record) error {
		if err != nil { // the audit record has the refusal, and not that it was stored
			return k.reject(ctx, record, commit, err)
		}
		return k.accept(recording, record, commit, digest)
	})
}

// isVerdict reports whether an error is about the commit, and not about this host.
func isVerdict(err error) bool {
	switch inventory.KindOf(err) {
	case inventory.KindRefused, inventory.KindInvalid, inventory.KindTooLarge:
		return true
	default:
		return false
	}
}

func (k *Keeper) check(source string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept = source
}

func (k *Keeper) accept(ctx context.Context, record Record, commit configuration.Commit, digest string) error {
	rewritten := ""

	if old := record.InUse; old != nil && old.Hash != commit.Hash {
		descends, err := k.History().Descends(ctx, commit.Hash, old.Hash)
		if err != nil {
			return err
		}
		if !descends {
			rewritten = old.Hash
		}
	}

	next := Use{Commit: commit, Digest: digest, Since: time.Now().UTC()}
	if err := k.save(ctx, record.use(next, rewritten, k.carried())); err != nil {
		return err
	}

	k.check(record.Source)
	k.Moved(ctx)

	log := k.Logger.WithField("commit", commit.Hash)
	if rewritten != "" {
		log.Warnf("a commit of the repository is in use whose history does not contain the former one, %s", rewritten)
	} else {
		log.Info("a commit of the repository is in use")
	}

	return nil
}

// carried returns a function that reports whether a node or a job refers to playbooks.
func (k *Keeper) carried() func(digest string) bool {
	digests := map[string]bool{}

	v := k.State.View()
	for _, n := range v.Nodes() {
		for _, digest := range n.Playbooks {
			digests[digest] = true
		}
	}

	for _, j := range v.Jobs() {
		digests[j.PlaybookDigest] = true
	}

	return func(digest string) bool { return digests[digest] }
}

// reject records the refusal of a commit, and returns its reason.
func (k *Keeper) reject(ctx context.Context, record Record, commit configuration.Commit, reason error) error {
	refusal := Refusal{Commit: commit, Reason: reason.Error(), Time: time.Now().UTC()}
	if e, ok := errors.AsType[*inventory.Error](reason); ok {
		refusal.Reason, refusal.Remedy = e.Message, e.Remedy
	}

	const longest = 2000
	refusal.Reason = inventory.Shorten(refusal.Reason, longest)
	refusal.Remedy = inventory.Shorten(refusal.Remedy, longest)

	record = record.clone()
	record.Bad = &refusal

	if err := k.save(ctx, record); err != nil {
		return err
	}

	return refusal.err()
}

// err returns the reason of a refusal.
func (r *Refusal) err() error {
	return verdict{inventory.Errorf(inventory.KindRefused, "commit %s is refused: %s", short(r.Hash), r.Reason).
		Do("%s", r.Remedy)}
}

// short returns the beginning of a hash or a digest.
func short(hash string) string { return hash[:min(len(hash), 12)] }

// load reads the record.
func (k *Keeper) load(ctx context.Context) (Record, error) {
	record, err := k.Records.LoadRepository(ctx)
	if err != nil {
		return record, err
	}

	k.mu.Lock()
	defer k.mu.Unlock()

	if record.inUse() != k.record.inUse() {
		k.moved = true
	}

	k.record = record

	return record, nil
}

// save stores the record.
func (k *Keeper) save(ctx context.Context, record Record) error {
	if err := k.Records.SaveRepository(ctx, record); err != nil {
		return err
	}

	k.mu.Lock()
	defer k.mu.Unlock()

	k.record = record

	return nil
}

// Pin returns the digest of the playbooks in use, which are then on this host. It refuses
// if no commit is in use. It may fetch.
func (k *Keeper) Pin(ctx context.Context) (digest string, err error) {
	use, err := k.use(ctx)
	if err != nil {
		return "", err
	}
	return k.bring(ctx, use)
}

// Current returns the digest that Pin would return, as far as it is known without the
// playbooks: it reads the record alone. It refuses if no commit is in use.
func (k *Keeper) Current(ctx context.Context) (digest string, err error) {
	use, err := k.use(ctx)
	if err != nil {
		return "", err
	}

	k.mu.Lock()
	defer k.mu.Unlock()

	// The playbooks of another commit have to be brought here.
	if k.moved {
		k.Kick()
	}

	if k.local.recorded == use.Digest {
		return k.local.digest, nil
	}

	return use.Digest, nil
}

// use returns the commit in use.
func (k *Keeper) use(ctx context.Context) (Use, error) {
	settings := k.Settings()

	record, err := k.load(ctx)
	if err != nil {
		return Use{}, err
	}

	if record.Source != settings.Source || record.InUse == nil {
		// The keys that sign may have changed on disk.
		k.Kick()
		return Use{}, k.noCommit(record, settings)
	}

	return *record.InUse, nil
}

// bring brings the playbooks of the commit in use to this host, and returns their digest.
func (k *Keeper) bring(ctx context.Context, use Use) (digest string, err error) {
	if k.Playbooks.Intact(ctx, use.Digest) {
		return use.Digest, nil
	}

	// Another instance fetched it, or the copy was damaged.
	if shared, _ := k.unshare(ctx, use.Digest); shared {
		return use.Digest, nil
	}

	if digest, err = k.keepFetched(ctx, use.Hash, k.Source.Keep); err != nil {
		return "", err
	}

	if digest != use.Digest {
		// It belongs to another version of clusterm. The next sync puts it on record.
		k.check("")
		k.mu.Lock()
		k.local = localUse{use.Digest, digest}
		k.mu.Unlock()
	}

	return digest, nil
}

// keepFetched keeps the playbooks of a commit, which is fetched if that is necessary.
func (k *Keeper) keepFetched(
	ctx context.Context, commit string, keep func(context.Context, string) (string, error),
) (digest string, err error) {
	digest, err = keep(ctx, commit)
	if inventory.KindOf(err) != inventory.KindNotFound {
		return digest, err
	}

	// The newest commit may be a bad one.
	if _, err := k.fetch(ctx); err != nil && !isVerdict(err) {
		return "", err
	}

	return keep(ctx, commit)
}

// Restore brings playbooks back to this host that the commit in use or a former one had,
// and reports whether it did. It may fetch.
func (k *Keeper) Restore(ctx context.Context, digest string) (bool, error) {
	k.mu.Lock()
	use, found := k.record.ByDigest(digest)
	k.mu.Unlock()

	if !found || !k.Settings().Used {
		return false, nil
	}

	shared, unread := k.unshare(ctx, digest)
	if shared {
		return true, nil
	}

	got, err := k.keepFetched(ctx, use.Hash, k.Source.Restore)
	if err != nil && (isVerdict(err) || inventory.KindOf(err) == inventory.KindNotFound) {
		// The repository of today does not have it. Another instance may share it.
		return false, unread
	}

	return err == nil && got == digest, err
}

// noCommit returns the error for a repository without a commit in use.
func (k *Keeper) noCommit(r Record, s Settings) error {
	refused := inventory.Errorf(inventory.KindRefused, "no commit of %s is in use yet", s.URL)
	failure := k.problem()

	switch e, ok := errors.AsType[*inventory.Error](failure); {
	case r.Source == s.Source && r.Bad != nil:
		refused.Message += ": " + r.Bad.err().Error()
	case ok:
		refused.Message += ": " + e.Error()
	case failure != nil:
		refused.Message += ": " + failure.Error()
	}

	return refused.Do("see its state, and fetch it").With(inventory.ShowRepository(), inventory.SyncRepository())
}

// CommitOf returns the commit of the playbooks with a digest, or "" if they come from
// elsewhere. It does not block.
func (k *Keeper) CommitOf(digest string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	use, _ := k.record.ByDigest(digest)
	return use.Hash
}

// InUse returns the digest of the playbooks in use, or "" if there are none. It does not
// block.
func (k *Keeper) InUse() string {
	k.mu.Lock()
	defer k.mu.Unlock()

	if k.record.InUse == nil {
		return ""
	}
	return k.record.InUse.Digest
}

// Problem returns the reason why the newest commit is not in use, for the health: a
// warning while a good commit stays in use, else an error.
func (k *Keeper) Problem() (warning string, problem error) {
	settings := k.Settings()
	if !settings.Used {
		return "", nil
	}

	k.mu.Lock()
	record, failure, failing := k.record, k.failure, k.failing
	k.mu.Unlock()

	switch {
	case record.Source != settings.Source || record.InUse == nil:
		return "", k.noCommit(record, settings)
	case record.Bad != nil:
		return "", record.Bad.err()
	case failure != nil:
		return "the repository of playbooks could not be followed since " + failing.UTC().Format(time.RFC3339) +
			"; commit " + short(record.InUse.Hash) + " stays in use: " + failure.Error(), nil
	}

	return "", nil
}
