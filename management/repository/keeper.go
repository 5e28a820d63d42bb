// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/state"
)

// Principal is the principal of the watch of the repository.
const Principal = "policy:repository"

// Source is the configured repository. Its methods block for minutes at most.
type Source interface {
	// Fetch returns the commit that the configuration names now.
	Fetch(ctx context.Context) (configuration.Commit, error)
	// Keep checks the playbooks of a fetched commit, and keeps them. A commit that cannot be
	// used is KindRefused or KindInvalid; KindNotFound if it has to be fetched first.
	Keep(ctx context.Context, commit string) (digest string, err error)
	// Kept reports whether the playbooks with the digest are on this host, undamaged.
	Kept(ctx context.Context, digest string) bool
	// Descends reports whether old leads to the commit.
	Descends(ctx context.Context, commit, old string) (bool, error)
	// Log returns the commits that lead to the commit to and to none of since, the newest
	// first, and whether there are more than limit.
	Log(ctx context.Context, to string, since []string, limit int) ([]configuration.Commit, bool, error)
	// Lookup returns the fetched commit with a hash that begins with the text.
	Lookup(ctx context.Context, prefix string) (configuration.Commit, bool, error)
	// Diff compares two sets of playbooks.
	Diff(ctx context.Context, old, changed Side) (Difference, error)
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
	Source    string // identifies URL, reference and folder
	URL       string
	Reference string // for people: "branch main"
	Folder    string
	OnMove    string
	Interval  time.Duration
}

// Options are the dependencies of a Keeper.
type Options struct {
	State    state.Reader
	Source   Source
	Records  Records
	Settings func() Settings
	Leads    func() bool
	Audit    access.Auditor
	Logger   logrus.FieldLogger
}

// Keeper keeps the commit in use current. All methods may be called at once.
type Keeper struct {
	Options
	kick chan struct{}
	turn chan struct{} // full while a sync runs
	stop context.CancelFunc
	done chan struct{}

	mu      sync.Mutex
	record  Record
	seen    configuration.Commit
	fetched time.Time // the end of the last fetch that succeeded
	next    time.Time
	failure error // of the last fetch
	failing time.Time
	kept    string // the source of the commit in use that this process has checked
}

// New returns a Keeper.
func New(o Options) *Keeper {
	return &Keeper{Options: o, kick: make(chan struct{}, 1), turn: make(chan struct{}, 1)}
}

// Start reads the record, and watches the repository in the background until Stop.
func (k *Keeper) Start(ctx context.Context) {
	if _, err := k.load(ctx); err != nil {
		k.Logger.WithError(err).Warn("the record of the repository cannot be read yet")
	}

	ctx, k.stop = context.WithCancel(context.WithoutCancel(ctx))
	k.done = make(chan struct{})

	go k.run(ctx)
}

// Stop ends the watch.
func (k *Keeper) Stop() {
	k.stop()
	<-k.done
}

// Kick makes the watch look at the settings. It does not block.
func (k *Keeper) Kick() {
	select {
	case k.kick <- struct{}{}:
	default: // a look is due already
	}
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

func (k *Keeper) run(ctx context.Context) {
	defer close(k.done)

	settings := k.Settings()
	wait := delays(settings.Interval)
	timer := time.NewTimer(0)

	defer timer.Stop()

	for {
		kicked := false

		select {
		case <-ctx.Done():
			return
		case <-k.kick:
			kicked = true
		case <-timer.C:
		}

		now := k.Settings()
		if kicked && now == settings {
			continue
		}

		if now != settings {
			settings, wait = now, delays(now.Interval)
		}

		if err := k.watch(ctx, settings); err == nil {
			wait.Reset()
		}

		delay := wait.NextBackOff()

		k.mu.Lock()
		k.next = time.Now().Add(delay)
		k.mu.Unlock()

		timer.Reset(delay)
	}
}

// watch looks at the repository once, if this is the duty of this instance. It logs a
// failure that is new.
func (k *Keeper) watch(ctx context.Context, settings Settings) error {
	if !settings.Used || !k.Leads() {
		return nil
	}

	before := k.problem()

	err := k.sync(ctx, false)
	if err == nil || ctx.Err() != nil {
		return nil
	}

	if before == nil || before.Error() != err.Error() {
		k.Logger.WithError(err).Warn("the repository of playbooks has no new commit to use; the one in use stays")
	}

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

	return access.Audited(ctx, k.Audit, c, record, func(*access.Record) error {
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
		return inventory.Errorf(inventory.KindUnavailable, "this instance does not lead, so it does not fetch").
			Do("ask the instance that leads")
	}

	return nil
}

func errUnused() error {
	return inventory.Errorf(inventory.KindRefused, "no repository of playbooks is configured").
		Do("set repository.url in the configuration file, and reload clusterm: systemctl reload clusterm")
}

// sync fetches, checks, and puts the newest commit into use. forced: a commit that was
// refused is checked again.
func (k *Keeper) sync(ctx context.Context, forced bool) error {
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}

	settings := k.Settings()

	commit, err := k.Source.Fetch(ctx)
	k.note(ctx, commit, err)

	if err != nil {
		return err
	}

	record, err := k.load(ctx)
	if err != nil {
		return err
	}

	if record.Source != settings.Source {
		record = Record{Source: settings.Source, Past: record.known()}
	}

	if k.current(ctx, record, commit) {
		return k.forgive(ctx, record)
	}

	if bad := record.Bad; bad != nil && bad.Hash == commit.Hash && !forced {
		return bad.err()
	}

	return k.change(ctx, record, commit)
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

	return checked && r.InUse != nil && r.InUse.Hash == commit.Hash && k.Source.Kept(ctx, r.InUse.Digest)
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

// note keeps the result of a fetch.
func (k *Keeper) note(ctx context.Context, commit configuration.Commit, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()

	switch {
	case err == nil:
		k.seen, k.fetched, k.failure = commit, time.Now(), nil
	case ctx.Err() != nil: // the caller gave up
	default:
		if k.failure == nil {
			k.failing = time.Now()
		}

		k.failure = err
	}
}

// change puts a commit into use, or refuses it. Both leave an audit record.
func (k *Keeper) change(ctx context.Context, record Record, commit configuration.Commit) error {
	audit := access.Record{Action: "repository.use", Targets: []string{commit.Hash}}
	if record.InUse != nil {
		audit.Reason = "the commit in use was " + record.InUse.Hash
	}

	digest, err := k.Source.Keep(ctx, commit.Hash)
	if err != nil && !isVerdict(err) {
		return err
	}

	if err == nil && record.InUse != nil && record.InUse.Hash == commit.Hash && record.InUse.Digest == digest {
		k.check(record.Source)
		return k.forgive(ctx, record)
	}

	caller := access.Caller{Principal: Principal}

	return access.Audited(ctx, k.Audit, caller, audit, func(*access.Record) error {
		if err != nil {
			return k.reject(ctx, record, commit, err)
		}

		return k.accept(ctx, record, commit, digest)
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
		descends, err := k.Source.Descends(ctx, commit.Hash, old.Hash)
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
	for _, n := range v.Nodes {
		for _, digest := range n.Playbooks {
			digests[digest] = true
		}
	}

	for _, j := range v.Jobs {
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
	refusal.Reason, refusal.Remedy = inventory.Shorten(
		refusal.Reason,
		longest,
	), inventory.Shorten(
		refusal.Remedy,
		longest,
	)

	record = record.clone()
	record.Bad = &refusal

	if err := k.save(ctx, record); err != nil {
		return err
	}

	return refusal.err()
}

// err returns the reason of a refusal.
func (r *Refusal) err() error {
	return inventory.Errorf(inventory.KindRefused, "commit %s is refused: %s", short(r.Hash), r.Reason).
		Do("%s", r.Remedy)
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
// if no commit is in use.
func (k *Keeper) Pin(ctx context.Context) (digest string, err error) {
	settings := k.Settings()

	record, err := k.load(ctx)
	if err != nil {
		return "", err
	}

	if record.Source != settings.Source || record.InUse == nil {
		return "", k.noCommit(record, settings)
	}

	use := record.InUse
	if k.Source.Kept(ctx, use.Digest) {
		return use.Digest, nil
	}

	// Another instance fetched it, or the copy was damaged.
	digest, err = k.Source.Keep(ctx, use.Hash)
	if inventory.KindOf(err) == inventory.KindNotFound {
		if _, err := k.Source.Fetch(ctx); err != nil {
			return "", err
		}

		digest, err = k.Source.Keep(ctx, use.Hash)
	}

	if err == nil && digest != use.Digest {
		// It belongs to another version of clusterm. The next sync puts it on record.
		k.check("")
	}

	return digest, err
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
		return "the repository of playbooks has not been fetched since " + failing.UTC().Format(time.RFC3339) +
			"; commit " + short(record.InUse.Hash) + " stays in use: " + failure.Error(), nil
	}

	return "", nil
}
