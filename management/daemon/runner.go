// SPDX-License-Identifier: Apache-2.0

package daemon

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
	"github.com/contiv/cluster/management/setting"
	"github.com/contiv/cluster/management/step/playbook"
)

// ansibleMaxAge is how long the result of a check of ansible-playbook is reused.
const ansibleMaxAge = time.Minute

// keepUnused is how long unused playbooks are kept, so that the next job need
// not copy and check them again.
const keepUnused = 24 * time.Hour

// runner implements playbook.Runner, playbook.Playbooks and playbook.Content with Ansible. It keeps
// copies of playbooks in DATA_DIR/playbooks, runs in DATA_DIR/runs, and files that
// no later process needs in DATA_DIR/tmp.
type runner struct {
	config      func() setting.Config
	playbooks   *repository.Store
	ansible     ansible.Runner
	prober      *ansible.Prober
	pinger      *ansible.Prober // for operators: their pings delay no job
	runs        string          // folder of run directories
	temp        string          // emptied at the start
	jumpKeys    string          // known_hosts of jump hosts
	bundled     string          // digest of the playbooks in the binary
	repository  pinner          // the configured git repository
	instruments *instruments
	log         logrus.FieldLogger

	probing chan struct{} // full while ansible-playbook is probed

	pinned func(digest string) // receives each digest that Pin returns; may be nil

	mu      sync.Mutex
	mine    map[string]bool // ids of the runs that this process has started or adopted
	checked time.Time
	path    string // of the ansible-playbook that was checked
	version string // its version
	probed  probed
	syntax  *ansible.SyntaxChecker // with the ansible-playbook of the current configuration
}

var (
	_ playbook.Playbooks = (*runner)(nil)
	_ playbook.Content   = (*runner)(nil)
	_ playbook.Runner    = (*runner)(nil)
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

// runnerOptions are the dependencies of a runner.
type runnerOptions struct {
	dataDir     string
	command     []string // argv of the process that supervises one run
	config      func() setting.Config
	instruments *instruments
	log         logrus.FieldLogger
}

// tempDir returns the folder for files that no later process needs.
func tempDir(dataDir string) string { return filepath.Join(dataDir, "tmp") }

// newRunner makes the folders, and copies the playbooks of the binary there.
func newRunner(ctx context.Context, o runnerOptions) (*runner, error) {
	temp := tempDir(o.dataDir)
	jumpKeys := filepath.Join(o.dataDir, "ssh", "known_hosts")
	r := &runner{
		config:      o.config,
		runs:        filepath.Join(o.dataDir, "runs"),
		temp:        temp,
		jumpKeys:    jumpKeys,
		prober:      &ansible.Prober{Dir: temp, JumpKeys: jumpKeys},
		pinger:      &ansible.Prober{Dir: temp, JumpKeys: jumpKeys},
		ansible:     ansible.Runner{Self: o.command},
		instruments: o.instruments,
		log:         o.log,
		mine:        map[string]bool{},
		probing:     make(chan struct{}, 1),
		playbooks:   &repository.Store{Dir: filepath.Join(o.dataDir, "playbooks")},
	}
	// The data directory belongs to one daemon at a time, so all of it is dead.
	if err := os.RemoveAll(r.temp); err != nil {
		return nil, err
	}

	for _, dir := range []string{r.runs, r.temp, filepath.Dir(jumpKeys)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
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
	if r.playbooks.Roles, err = fs.Sub(bundled.FS(), bundled.RolesDir); err != nil {
		return nil, err
	}

	r.bundled, err = r.playbooks.Keep(ctx, bundled.FS())

	return r, err
}

// rolesOf returns the path of the bundled roles for the playbooks with that digest:
// those that were kept with them.
func (r *runner) rolesOf(digest string) string {
	return cmp.Or(r.playbooks.RolesPath(digest), r.bundledDir(bundled.RolesDir))
}

// bundledDir returns the path of a folder of the playbooks in the binary.
func (r *runner) bundledDir(folder string) string {
	return filepath.Join(r.playbooks.Path(r.bundled), folder)
}

// Check refuses if ansible-playbook is missing or too old, or if it evaluates text of
// hosts as templates. It may run it, and block until it answers.
func (r *runner) Check(ctx context.Context) error {
	if err := r.checkVersion(ctx); err != nil {
		return err
	}

	return r.checkTemplates(ctx)
}

// checkVersion refuses if ansible-playbook is missing or too old. It may run it.
func (r *runner) checkVersion(ctx context.Context) error {
	path := r.config().Ansible

	r.mu.Lock()
	fresh := r.path == path && time.Since(r.checked) < ansibleMaxAge
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
	r.path, r.version, r.checked = path, version.String(), time.Now()
	r.mu.Unlock()

	return nil
}

// Version returns the version of ansible-playbook.
func (r *runner) Version(ctx context.Context) (string, error) {
	if err := r.checkVersion(ctx); err != nil {
		return "", err
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	return r.version, nil
}

// Pin keeps a copy of the configured playbooks as they are now.
func (r *runner) Pin(ctx context.Context) (digest string, err error) {
	digest, err = r.pin(ctx)
	if err == nil && r.pinned != nil {
		r.pinned(digest)
	}

	return digest, err
}

func (r *runner) pin(ctx context.Context) (digest string, err error) {
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
		return r.playbooks.KeepDir(ctx, resolved)
	}

	return r.keepBundled(ctx)
}

// CommitOf returns the commit of the playbooks with a digest, or "" if they come from
// elsewhere.
func (r *runner) CommitOf(digest string) string { return r.repository.CommitOf(digest) }

// keepBundled keeps a copy of the playbooks in the binary. A copy that was edited is
// replaced.
func (r *runner) keepBundled(ctx context.Context) (digest string, err error) {
	if r.playbooks.Intact(ctx, r.bundled) {
		return r.bundled, nil
	}

	return r.playbooks.Keep(ctx, bundled.FS())
}

// Restore makes the copy with that digest again, from the repository or the folder, and
// reports whether one of them has it.
func (r *runner) Restore(ctx context.Context, digest string) (bool, error) {
	if r.config().Repository.Used() {
		if restored, err := r.repository.Restore(ctx, digest); restored || err != nil {
			return restored, err
		}
	}

	now, err := r.Pin(ctx)

	return err == nil && now == digest, err
}

// Kept reports whether the copy with that digest is on this host, undamaged.
func (r *runner) Kept(ctx context.Context, digest string) bool {
	return r.playbooks.Intact(ctx, digest)
}

// Changed returns the names of the files that differ between two copies, sorted.
func (r *runner) Changed(ctx context.Context, then, now string) ([]string, error) {
	return r.playbooks.Changed(ctx, then, now)
}

// FolderVars returns the variables that the playbooks with that digest set for a node of the group by themselves; false
// if the playbooks are not on this host.
func (r *runner) FolderVars(digest, node, group string) (configuration.FolderVars, bool) {
	folder := r.playbooks.Path(digest)

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
func (r *runner) Plays(digest, playbook string) []configuration.Play {
	return r.playbooks.Plays(digest, playbook)
}

// Outline returns what the text of a playbook in the copy shows about a run in check
// mode.
func (r *runner) Outline(digest, playbook string) configuration.Outline {
	return r.playbooks.Outline(digest, playbook, r.rolesOf(digest))
}

// Parse refuses playbooks that are missing from the copy or do not parse, and a copy
// with variables for the groups or the hosts that cannot be loaded.
func (r *runner) Parse(ctx context.Context, digest string, files, groups, hosts []string) error {
	c := r.config()

	// The checker caches results, which hold for one ansible-playbook and its passwords.
	r.mu.Lock()
	if r.syntax == nil || r.syntax.AnsiblePlaybook != c.Ansible || !slices.Equal(r.syntax.VaultIDs, c.VaultIDs) {
		r.syntax = &ansible.SyntaxChecker{AnsiblePlaybook: c.Ansible, VaultIDs: c.VaultIDs, TempDir: r.temp}
	}

	syntax := r.syntax
	r.mu.Unlock()

	dir, roles := r.playbooks.Path(digest), r.rolesOf(digest)

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
func (r *runner) Start(ctx context.Context, spec playbook.RunSpec) (playbook.Run, error) {
	c := r.config()

	playbooks, err := r.folder(ctx, spec.PlaybookDigest)
	if err != nil {
		return nil, &playbook.NotBegunError{Cause: job.CauseInternal, Err: err}
	}

	started, err := r.ansible.Start(ctx, ansible.Spec{
		ID: spec.ID, Dir: r.dir(spec.ID), Playbooks: playbooks, Playbook: spec.Playbook,
		BundledRoles: r.rolesOf(spec.PlaybookDigest), CallbackDir: r.bundledDir(bundled.CallbackDir),
		CacheDir: r.bundledDir(bundled.CacheDir),
		Hosts:    spec.Hosts, JumpKeys: r.jumpKeys, ExtraVars: spec.Extra, Options: spec.Ansible, Forks: c.Jobs.Forks,
		Deadline: spec.Deadline, Lease: spec.Lease,
		OutputLimit: c.Jobs.OutputLimit, AnsiblePlaybook: c.Ansible, VaultIDs: c.VaultIDs,
		Secrets: spec.Secrets,
	})
	if err != nil {
		return nil, startError(err)
	}

	r.instruments.starts.Inc()
	r.adopt(spec.ID)

	return run{started, r.instruments}, nil
}

// folder returns the path of the copy with that digest.
func (r *runner) folder(ctx context.Context, digest string) (string, error) {
	if digest != job.PlaybooksBundled {
		return r.playbooks.Path(digest), nil
	}

	digest, err := r.keepBundled(ctx)

	return r.playbooks.Path(digest), err
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
func (r *runner) Attach(id string) (playbook.Run, error) {
	found, err := ansible.Attach(r.dir(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, playbook.ErrNeverStarted
	}

	if err != nil {
		return nil, err
	}

	// The engine attaches to one run several times; count it once.
	if found.Alive() && r.adopt(id) {
		r.instruments.adoptions.Inc()
	}

	return run{found, r.instruments}, nil
}

// adopt adds a run to those of this process, and reports whether it is new.
func (r *runner) adopt(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.mine[id] {
		return false
	}

	r.mine[id] = true

	return true
}

func (r *runner) dir(id string) string { return filepath.Join(r.runs, id) }

// Prune removes the directories of ended runs and the copies of playbooks,
// except those that keep returns. It ends runs that belong to no job.
func (r *runner) Prune(ctx context.Context, keep func() (runs, digests []string)) error {
	// List before keep: a run started meanwhile is not in the list.
	entries, err := os.ReadDir(r.runs)
	runs, digests := keep()

	_, pruneErr := r.playbooks.Prune(append(digests, r.bundled, r.repository.InUse()), keepUnused)
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
func (r *runner) remove(ctx context.Context, id string) error {
	if orphan, err := ansible.Attach(r.dir(id)); err == nil && orphan.Alive() {
		r.log.WithField("run", id).Warn("ending a run that belongs to no job")
		return orphan.Cancel(ctx)
	}

	r.mu.Lock()
	delete(r.mine, id)
	r.mu.Unlock()

	return os.RemoveAll(r.dir(id))
}
