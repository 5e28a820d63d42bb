// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	bundled "github.com/contiv/cluster/ansible"
	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/configuration/ansible"
	"github.com/contiv/cluster/configuration/repository"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/engine"
	"github.com/contiv/cluster/management/job"
)

// checkEvery is how long ansible-playbook is trusted to be as it was found.
const checkEvery = time.Minute

// keepUnused is how long playbooks that no job needs are kept, so that the next
// job need not copy and check them again.
const keepUnused = 24 * time.Hour

// playbooks implements engine.Runner and engine.Playbooks with the ansible runner: it keeps
// playbooks in DATA_DIR/playbooks and runs in DATA_DIR/runs.
type playbooks struct {
	config  func() Config
	store   *repository.Store
	runner  ansible.Runner
	runs    string // folder of run directories
	bundled string // digest of the playbooks in the binary
	meters  *meters
	logger  logrus.FieldLogger

	mu      sync.Mutex
	mine    map[string]bool // runs, by id, that this daemon has started or adopted
	checked time.Time
	path    string                 // the ansible-playbook that was checked
	version string                 // its version
	syntax  *ansible.SyntaxChecker // with the ansible-playbook of the current configuration
}

var (
	_ engine.Playbooks = (*playbooks)(nil)
	_ engine.Runner    = (*playbooks)(nil)
)

func openPlaybooks(
	ctx context.Context,
	dataDir string,
	runner []string,
	config func() Config,
	meters *meters,
	logger logrus.FieldLogger,
) (*playbooks, error) {
	p := &playbooks{
		config: config,
		runs:   filepath.Join(dataDir, "runs"),
		runner: ansible.Runner{Self: runner},
		meters: meters,
		logger: logger,
		mine:   map[string]bool{},
		store:  &repository.Store{Dir: filepath.Join(dataDir, "playbooks")},
	}
	if err := os.MkdirAll(p.runs, 0o700); err != nil {
		return nil, err
	}

	var err error
	p.bundled, err = p.store.Keep(ctx, bundled.FS())

	return p, err
}

// bundledDir returns the path of a folder of the playbooks in the binary.
func (p *playbooks) bundledDir(folder string) string {
	return filepath.Join(p.store.Path(p.bundled), folder)
}

// Check refuses where ansible-playbook is missing or too old.
func (p *playbooks) Check(ctx context.Context) error {
	path := p.config().Ansible
	p.mu.Lock()
	fresh := p.path == path && time.Since(p.checked) < checkEvery
	p.mu.Unlock()

	if fresh {
		return nil
	}

	version, err := ansible.Check(ctx, path)
	if err != nil {
		// No fault of the manager's, and no use in trying again: its host lacks something.
		refused := inventory.Errorf(inventory.KindRefused, "no job can run: %w", err)
		if e, ok := errors.AsType[*inventory.Error](err); ok {
			refused.Message, refused.Remedy = "no job can run: "+e.Message, e.Remedy
		}

		return refused
	}

	p.mu.Lock()
	p.path, p.version, p.checked = path, version.String(), time.Now()
	p.mu.Unlock()

	return nil
}

// Version is that of ansible-playbook.
func (p *playbooks) Version(ctx context.Context) (string, error) {
	if err := p.Check(ctx); err != nil {
		return "", err
	}

	p.mu.Lock()
	defer p.mu.Unlock()

	return p.version, nil
}

// Pin keeps a copy of the configured playbooks as they are now.
func (p *playbooks) Pin(ctx context.Context) (string, error) {
	if dir := p.config().Playbooks; dir != "" {
		return p.store.KeepDir(ctx, dir)
	}

	return p.bundled, nil
}

// Kept reports whether the playbooks with that digest are kept.
func (p *playbooks) Kept(digest string) bool { return p.store.Has(digest) }

// Parse refuses playbooks that are missing or do not parse.
func (p *playbooks) Parse(ctx context.Context, digest string, files, groups []string) error {
	path := p.config().Ansible
	p.mu.Lock()
	if p.syntax == nil || p.syntax.AnsiblePlaybook != path {
		p.syntax = &ansible.SyntaxChecker{AnsiblePlaybook: path}
	}

	syntax := p.syntax
	p.mu.Unlock()

	for _, file := range files {
		if err := syntax.Check(ctx, p.store.Path(digest), file, p.bundledDir(bundled.RolesDir), groups...); err != nil {
			return err
		}
	}

	return nil
}

// Start starts a run; it goes on when this process ends.
func (p *playbooks) Start(ctx context.Context, spec engine.RunSpec) (engine.Run, error) {
	c := p.config()

	run, err := p.runner.Start(ctx, ansible.Spec{
		ID: spec.ID, Dir: p.dir(spec.ID), Playbooks: p.store.Path(spec.PlaybookDigest), Playbook: spec.Playbook,
		BundledRoles: p.bundledDir(bundled.RolesDir), CallbackDir: p.bundledDir(bundled.CallbackDir),
		Hosts: spec.Hosts, ExtraVars: spec.Extra, Forks: c.Jobs.Forks, Deadline: spec.Deadline, Lease: spec.Lease,
		OutputLimit: c.Jobs.OutputLimit, AnsiblePlaybook: c.Ansible,
	})
	if err != nil {
		return nil, err
	}

	p.meters.starts.Inc()
	p.attends(spec.ID)

	return activeRun{run, p.meters}, nil
}

// Attach finds a run that was started before.
func (p *playbooks) Attach(id string) (engine.Run, error) {
	run, err := ansible.Attach(p.dir(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, engine.ErrNeverStarted
	}

	if err != nil {
		return nil, err
	}

	if run.Alive() && p.attends(id) {
		p.meters.adoptions.Inc()
	}

	return activeRun{run, p.meters}, nil
}

// attends notes that this daemon attends to a run, and tells whether that is new.
func (p *playbooks) attends(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.mine[id] {
		return false
	}

	p.mine[id] = true

	return true
}

func (p *playbooks) dir(id string) string { return filepath.Join(p.runs, id) }

// Prune removes the directories of ended runs, and the playbooks that no job
// needs.
func (p *playbooks) Prune(ctx context.Context, keep func() (runs, digests []string)) error {
	// The order matters: a run that is started after this is not among entries.
	entries, err := os.ReadDir(p.runs)
	runs, digests := keep()
	_, perr := p.store.Prune(append(digests, p.bundled), keepUnused)

	err = errors.Join(err, perr)
	for _, e := range entries {
		if slices.Contains(runs, e.Name()) {
			continue
		}

		if run, aerr := ansible.Attach(p.dir(e.Name())); aerr == nil && run.Alive() {
			p.logger.WithField("run", e.Name()).Warn("a run that belongs to no job goes on; ending it")
			err = errors.Join(err, run.Cancel(ctx))
			continue
		}

		err = errors.Join(err, os.RemoveAll(p.dir(e.Name())))
		p.mu.Lock()
		delete(p.mine, e.Name())
		p.mu.Unlock()
	}

	return err
}

// activeRun is management's view of a run.
type activeRun struct {
	*ansible.Run
	meters *meters
}

// Wait blocks until the run has ended and nothing of it is left.
func (r activeRun) Wait(ctx context.Context) (out engine.RunExit, err error) {
	r.meters.processes.Inc()

	defer r.meters.processes.Dec()

	exit, err := r.Run.Wait(ctx)
	if err != nil {
		return engine.RunExit{}, err
	}

	defer func() { r.meters.runEnded(out, r.Truncated(r.Output()), r.Truncated(r.Events())) }()

	out.Code = exit.Code
	switch exit.Reason {
	case ansible.Done:
		if exit.Signal != "" {
			out.Cause, out.Message = job.CauseInterrupted, "ansible-playbook was ended by "+exit.Signal
		} else if exit.Code != 0 {
			out.Message = lastError(r.Output())
		}
	case ansible.Cancelled:
		out.Cause = job.CauseCancelled
	case ansible.DeadlineExceeded:
		out.Cause, out.Message = job.CauseDeadline, "it ran longer than it may"
	case ansible.LeaseLost:
		out.Cause, out.Message = job.CauseInterrupted, "its runner heard nothing from clusterm for longer than "+
			"jobs.runner_lease and ended it"
	case ansible.Vanished:
		out.Cause, out.Message = job.CauseInterrupted, "its runner is gone: it was killed, or the machine went down"
	default:
		out.NotBegun = true
		out.Cause, out.Message = job.CauseInternal, fmt.Sprintf(
			"ansible-playbook could not be run (%s): %s",
			exit.Reason,
			exit.Error,
		)
	}

	return out, nil
}

// lastError is the line by which ansible-playbook says why it gave up, as where a
// vault has no password; empty: it has not.
func lastError(output string) string {
	const enough = 8 << 10

	f, err := os.Open(output)
	if err != nil {
		return ""
	}
	defer f.Close()

	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return ""
	}

	text, err := io.ReadAll(io.NewSectionReader(f, max(end-enough, 0), enough))
	if err != nil {
		return ""
	}

	last := ""
	for line := range strings.Lines(string(text)) {
		// ansible-core says it in the first way, from 2.19 on in the second.
		if strings.HasPrefix(line, "ERROR! ") || strings.HasPrefix(line, "[ERROR]: ") {
			line = strings.TrimSpace(line)
			last = strings.ToValidUTF8(line[:min(len(line), 400)], "")
		}
	}

	return last
}

// Cancel asks the runner to end its whole tree, and counts that.
func (r activeRun) Cancel(ctx context.Context) error {
	r.meters.cancellations.Inc()
	return r.Run.Cancel(ctx)
}

// Tail emits a stream of the run until it has ended and all is emitted.
func (r activeRun) Tail(ctx context.Context, s job.Stream, offset int64, emit func([]byte) error) error {
	path := r.Output()
	if s == job.StreamEvents {
		path = r.Events()
	}

	_, err := r.Follow(ctx, path, offset, func(_ int64, chunk []byte) error {
		r.meters.taken(s, chunk)
		return emit(chunk)
	})

	return err
}

// Results sums up how each host fared.
func (r activeRun) Results() (map[string]job.HostResult, error) {
	var sum configuration.Summary
	var stream configuration.EventStream
	_, err := ansible.Tail(
		context.Background(),
		r.Events(),
		0,
		func() bool { return true },
		func(_ int64, chunk []byte) error {
			for _, e := range stream.Write(chunk) {
				sum.Add(e)
			}

			return nil
		},
	)

	out := map[string]job.HostResult{}
	for host, h := range sum.Results() {
		out[host] = job.HostResult{
			Begun: h.Begun, OK: h.OK, Changed: h.Changed, Failed: h.Failed, Unreachable: h.Unreachable > 0,
			Task: h.Task, Message: h.Message, Done: h.Good(),
		}
	}

	return out, err
}

// HostKeys are the ssh host keys that were recorded at a first contact.
func (r activeRun) HostKeys() (map[string][]string, error) { return ansible.NewHostKeys(r.Dir()) }
