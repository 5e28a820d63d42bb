// SPDX-License-Identifier: Apache-2.0

package program

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	bundled "github.com/contiv/cluster/ansible"
	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/configuration/ansible"
	"github.com/contiv/cluster/configuration/repository"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/metrics"
	"github.com/contiv/cluster/management/step/playbook"
)

// ansibleMaxAge is how long the result of a check of ansible-playbook is reused.
const ansibleMaxAge = time.Minute

// keepUnused is how long unused playbooks are kept, so that the next job need
// not copy and check them again.
const keepUnused = 24 * time.Hour

// Runner implements playbook.Runner, playbook.Playbooks and playbook.Content with Ansible. It keeps
// copies of playbooks in DATA_DIR/playbooks, runs in DATA_DIR/runs, and files that
// no later process needs in DATA_DIR/tmp.
type Runner struct {
	// Copies are the copies of playbooks on this host.
	Copies *repository.Store
	Prober *ansible.Prober
	// Pinger is for operators: their pings delay no job.
	Pinger *ansible.Prober
	// Note keeps the store informed about the playbooks of this instance.
	Note *Note

	config     func() playbook.Config
	ansible    ansible.Runner
	dataDir    string
	runs       string // folder of run directories
	temp       string // emptied at the start
	jumpKeys   string // known_hosts of jump hosts
	bundled    string // digest of the playbooks in the binary
	repository pinner // the configured git repository
	counts     counts
	log        logrus.FieldLogger

	probing chan struct{} // full while ansible-playbook is probed

	mu      sync.Mutex
	mine    map[string]bool // ids of the runs that this process has started or adopted
	checked time.Time
	id      string // ansible.ProgramID of the ansible-playbook that was checked
	version string // its version
	probed  probed
	syntax  *ansible.SyntaxChecker // with the ansible-playbook of the current configuration
}

var (
	_ playbook.Playbooks = (*Runner)(nil)
	_ playbook.Content   = (*Runner)(nil)
	_ playbook.Runner    = (*Runner)(nil)
)

// pinner knows the commit in use of the configured repository.
type pinner interface {
	Pin(ctx context.Context) (digest string, err error)
	// Current reads the record alone.
	Current(ctx context.Context) (digest string, err error)
	Restore(ctx context.Context, digest string) (bool, error)
	InUse() string
	CommitOf(digest string) string
}

// Options are the dependencies of a Runner.
type Options struct {
	DataDir string
	Command []string // argv of the process that supervises one run
	Config  func() playbook.Config
	Metrics metrics.Registry
	Logger  logrus.FieldLogger
	// LookEvery is the time between two looks at the folder of playbooks; 0: 5 s.
	LookEvery time.Duration
}

// TempDir returns the folder for files that no later process needs.
func TempDir(dataDir string) string { return filepath.Join(dataDir, "tmp") }

// New returns a Runner for Open. Until then, only its Note takes requests.
func New(o Options) *Runner {
	r := &Runner{
		Copies:   &repository.Store{Dir: filepath.Join(o.DataDir, "playbooks")},
		config:   o.Config,
		dataDir:  o.DataDir,
		runs:     filepath.Join(o.DataDir, "runs"),
		temp:     TempDir(o.DataDir),
		jumpKeys: filepath.Join(o.DataDir, "ssh", "known_hosts"),
		ansible:  ansible.Runner{Self: o.Command},
		counts:   newCounts(o.Metrics),
		log:      o.Logger,
		mine:     map[string]bool{},
		probing:  make(chan struct{}, 1),
	}
	r.Prober, r.Pinger, r.Note = r.NewProber(), r.NewProber(), newNote(r, o.LookEvery)

	return r
}

// NewProber returns a Prober that delays no other one.
func (r *Runner) NewProber() *ansible.Prober {
	return &ansible.Prober{Dir: r.temp, JumpKeys: r.jumpKeys}
}

// Open makes the folders, and copies the playbooks of the binary there.
func (r *Runner) Open(ctx context.Context) error {
	// The data directory belongs to one daemon at a time, so all of it is dead.
	if err := os.RemoveAll(r.temp); err != nil {
		return err
	}

	for _, dir := range []string{r.runs, r.temp, filepath.Dir(r.jumpKeys)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}

	// Where the path of the data directory is too long, sockets are elsewhere.
	if err := ansible.SweepSockets(r.runs); err != nil {
		r.log.WithError(err).Warn("folders for sockets of former runs could not be removed")
	}

	if err := ansible.SweepSecrets(r.runs); err != nil {
		r.log.WithError(err).Warn("files with secrets of former runs could not be removed")
	}

	var err error
	if r.Copies.Roles, err = fs.Sub(bundled.FS(), bundled.RolesDir); err != nil {
		return err
	}

	r.bundled, err = r.Copies.Keep(ctx, bundled.FS())

	return err
}

// rolesOf returns the path of the bundled roles for the playbooks with that digest:
// those that were kept with them.
func (r *Runner) rolesOf(digest string) string {
	return cmp.Or(r.Copies.RolesPath(digest), r.bundledDir(bundled.RolesDir))
}

// bundledDir returns the path of a folder of the playbooks in the binary.
func (r *Runner) bundledDir(folder string) string {
	return filepath.Join(r.Copies.Path(r.bundled), folder)
}

// Check refuses if ansible-playbook is missing or too old, or if it evaluates text of
// hosts as templates. It may run it, and block until it answers.
func (r *Runner) Check(ctx context.Context) error {
	if err := r.CheckVersion(ctx); err != nil {
		return err
	}
	return r.checkTemplates(ctx)
}

// WarnUnable warns if no job can run. It may run ansible-playbook, and block until that answers.
func (r *Runner) WarnUnable(ctx context.Context) {
	if err := r.Check(ctx); err != nil && ctx.Err() == nil {
		r.log.WithError(err).Warn("no job can run yet")
	}
}

// CheckVersion refuses if ansible-playbook is missing or too old. It may run it.
func (r *Runner) CheckVersion(ctx context.Context) error {
	path := r.config().Ansible
	id, missing := ansible.ProgramID(path)

	r.mu.Lock()
	fresh := missing == nil && r.id == id && time.Since(r.checked) < ansibleMaxAge
	r.mu.Unlock()

	if fresh {
		return nil
	}

	version, err := ansible.Check(ctx, path)
	if err != nil {
		// Refused, not unavailable: a retry does not install Ansible.
		refused := inventory.Errorf(inventory.KindRefused, "no job can run: %w", err)
		if e, ok := errors.AsType[*inventory.Error](err); ok {
			refused.Message, refused.Remedy = "no job can run: "+e.Message, e.Remedy
		}
		return refused
	}

	r.mu.Lock()
	r.id, r.version, r.checked = id, version.String(), time.Now()
	r.mu.Unlock()

	return nil
}

// Version returns the version of ansible-playbook.
func (r *Runner) Version(ctx context.Context) (string, error) {
	if err := r.CheckVersion(ctx); err != nil {
		return "", err
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	return r.version, nil
}

// Pin keeps a copy of the configured playbooks as they are now.
func (r *Runner) Pin(ctx context.Context) (digest string, err error) {
	digest, err = r.pin(ctx)
	if err == nil {
		r.Note.pinned(digest)
	}
	return digest, err
}

func (r *Runner) pin(ctx context.Context) (digest string, err error) {
	if r.config().Repository.Used() {
		return r.repository.Pin(ctx)
	}

	if dir := r.config().Playbooks; dir != "" {
		// Playbooks run as root.
		resolved, err := repository.CheckOwned(dir)
		if err != nil {
			return "", err
		}

		// The folder that was checked, wherever links lead by now.
		return r.Copies.KeepDir(ctx, resolved)
	}

	return r.keepBundled(ctx)
}

// CommitOf returns the commit of the playbooks with a digest, or "" if they come from
// elsewhere.
func (r *Runner) CommitOf(digest string) string { return r.repository.CommitOf(digest) }

// keepBundled keeps a copy of the playbooks in the binary. A copy that was edited is
// replaced.
func (r *Runner) keepBundled(ctx context.Context) (digest string, err error) {
	if r.Copies.Intact(ctx, r.bundled) {
		return r.bundled, nil
	}
	return r.Copies.Keep(ctx, bundled.FS())
}

// Restore makes the copy with that digest again, from the repository or the folder, and
// reports whether one of them has it.
func (r *Runner) Restore(ctx context.Context, digest string) (bool, error) {
	if r.config().Repository.Used() {
		if restored, err := r.repository.Restore(ctx, digest); restored || err != nil {
			return restored, err
		}
	}

	now, err := r.Pin(ctx)

	return err == nil && now == digest, err
}

// Kept reports whether the copy with that digest is on this host, undamaged.
func (r *Runner) Kept(ctx context.Context, digest string) bool {
	return r.Copies.Intact(ctx, digest)
}

// Changed returns the names of the files that differ between two copies, sorted.
func (r *Runner) Changed(ctx context.Context, then, now string) ([]string, error) {
	return r.Copies.Changed(ctx, then, now)
}

// FolderVars returns the variables that the playbooks with that digest set for a node of the group by themselves; false
// if the playbooks are not on this host.
func (r *Runner) FolderVars(digest, node, group string) (configuration.FolderVars, bool) {
	folder := r.Copies.Path(digest)

	// The configured folder is copied once a job needs it.
	if _, err := os.Stat(folder); digest == "" || err != nil {
		c := r.config()
		if c.Repository.Used() || c.Playbooks == "" {
			return configuration.FolderVars{}, false
		}
		if folder, err = repository.CheckOwned(c.Playbooks); err != nil {
			return configuration.FolderVars{}, false
		}
	}

	return ansible.FolderVars(folder, node, group), true
}

// Plays returns the plays of a playbook in the copy, as far as its text shows them.
func (r *Runner) Plays(digest, playbook string) []configuration.Play {
	return r.Copies.Plays(digest, playbook)
}

// Outline returns what the text of a playbook in the copy shows about a run in check
// mode.
func (r *Runner) Outline(digest, playbook string) configuration.Outline {
	return r.Copies.Outline(digest, playbook, r.rolesOf(digest))
}

// Parse refuses playbooks that are missing from the copy or do not parse, and a copy
// with variables for the groups or the hosts that cannot be loaded.
func (r *Runner) Parse(ctx context.Context, digest string, files, groups, hosts []string) error {
	c := r.config()

	// The checker caches results, which hold for one ansible-playbook and its passwords.
	r.mu.Lock()
	if r.syntax == nil || r.syntax.AnsiblePlaybook != c.Ansible || !slices.Equal(r.syntax.VaultIDs, c.VaultIDs) {
		r.syntax = &ansible.SyntaxChecker{AnsiblePlaybook: c.Ansible, VaultIDs: c.VaultIDs, TempDir: r.temp}
	}

	syntax := r.syntax
	r.mu.Unlock()

	dir, roles := r.Copies.Path(digest), r.rolesOf(digest)

	for _, file := range files {
		if err := syntax.Check(ctx, dir, file, roles, groups...); err != nil {
			return err
		}
	}

	// The syntax check does not load these variables.
	if len(c.VaultIDs) == 0 {
		if err := ansible.CheckEncrypted(dir, groups, hosts); err != nil {
			return err
		}
	}

	return syntax.CheckVars(ctx, dir, groups, hosts)
}

// Start starts a run, which outlives this process.
func (r *Runner) Start(ctx context.Context, spec playbook.RunSpec) (playbook.Run, error) {
	c := r.config()

	playbooks, err := r.folder(ctx, spec.PlaybookDigest)
	if err != nil {
		return nil, &playbook.NotBegunError{Cause: job.CauseInternal, Err: err}
	}

	started, err := r.ansible.Start(ctx, ansible.Spec{
		ID: spec.ID, Dir: r.dir(spec.ID), Playbooks: playbooks, Playbook: spec.Playbook,
		BundledRoles: r.rolesOf(spec.PlaybookDigest), CallbackDir: r.bundledDir(bundled.CallbackDir),
		CacheDir: r.bundledDir(bundled.CacheDir), ConnectionDir: r.bundledDir(bundled.ConnectionDir),
		Fence: spec.Fence,
		Hosts: spec.Hosts, JumpKeys: r.jumpKeys, ExtraVars: spec.Extra, Options: spec.Ansible, Forks: c.Forks,
		Deadline: spec.Deadline, Lease: spec.Lease,
		OutputLimit: c.OutputLimit, AnsiblePlaybook: c.Ansible, VaultIDs: c.VaultIDs,
		Secrets: spec.Secrets,
	})
	if err != nil {
		return nil, startError(err)
	}

	r.counts.starts.WithLabelValues().Inc()
	r.adopt(spec.ID)

	return run{started, r.counts}, nil
}

// folder returns the path of the copy with that digest.
func (r *Runner) folder(ctx context.Context, digest string) (string, error) {
	if digest != job.PlaybooksBundled {
		return r.Copies.Path(digest), nil
	}

	digest, err := r.keepBundled(ctx)
	return r.Copies.Path(digest), err
}

// startError converts an error of ansible.Runner.Start.
func startError(err error) error {
	e, ok := errors.AsType[*ansible.NotBegunError](err)
	if !ok {
		return err
	}

	cause := job.CauseInternal
	if e.Interrupted {
		cause = job.CauseInterrupted
	}
	return &playbook.NotBegunError{Cause: cause, Err: err}
}

// Attach returns a run that was started before, or playbook.ErrNeverStarted.
func (r *Runner) Attach(id string) (playbook.Run, error) {
	found, err := ansible.Attach(r.dir(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, playbook.ErrNeverStarted
	}

	if err != nil {
		return nil, err
	}

	// The engine attaches to one run several times; count it once.
	if found.Alive() && r.adopt(id) {
		r.counts.adoptions.WithLabelValues().Inc()
	}

	return run{found, r.counts}, nil
}

// adopt adds a run to those of this process, and reports whether it is new.
func (r *Runner) adopt(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.mine[id] {
		return false
	}

	r.mine[id] = true

	return true
}

func (r *Runner) dir(id string) string { return filepath.Join(r.runs, id) }

// Prune removes the directories of ended runs and the copies of playbooks,
// except those that keep returns. It ends runs that belong to no job.
func (r *Runner) Prune(ctx context.Context, keep func() (runs, digests []string)) error {
	// List before keep: a run started meanwhile is not in the list.
	entries, err := os.ReadDir(r.runs)
	runs, digests := keep()

	_, pruneErr := r.Copies.Prune(append(digests, r.bundled, r.repository.InUse()), keepUnused)
	errs := []error{err, pruneErr}

	for _, e := range entries {
		if !slices.Contains(runs, e.Name()) {
			errs = append(errs, r.remove(ctx, e.Name()))
		}
	}

	return errors.Join(errs...)
}

// remove removes the directory of an ended run, or ends a run that goes on. The
// next call removes that one's directory.
func (r *Runner) remove(ctx context.Context, id string) error {
	if orphan, err := ansible.Attach(r.dir(id)); err == nil && orphan.Alive() {
		r.log.WithField("run", id).Warn("ending a run that belongs to no job")
		return orphan.Cancel(ctx)
	}

	r.mu.Lock()
	delete(r.mine, id)
	r.mu.Unlock()

	return os.RemoveAll(r.dir(id))
}
