// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/contiv/cluster/configuration/repository"
	"github.com/contiv/cluster/management/control"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

const (
	// playbooksEvery is the time between two looks at the folder of playbooks.
	playbooksEvery = 5 * time.Second
	// playbooksPatience is how long a look waits for the folder, before it says that the
	// playbooks are not known.
	playbooksPatience = 20 * time.Second
	// refreshPatience is how long a caller waits for a look.
	refreshPatience = 5 * time.Second
	// playbooksTimeout bounds the write that follows.
	playbooksTimeout = time.Minute
)

// playbookNote keeps the store informed about the playbooks that a job of this instance
// would pin now: nodes with others are outdated.
type playbookNote struct {
	*control.Loop
	runner   *runner
	instance string
	store    record.Store

	source func(ctx context.Context) (digest string, err error) // reads the folder

	// Of a read that a look has given up, and the folder that it reads. Only look uses them.
	pending chan playbookRead
	folder  string

	mu     sync.Mutex
	dir    string // the folder of the stamp
	stamp  string // of the folder when the digest was computed
	digest string
}

// playbookRead is the result of reading the folder.
type playbookRead struct {
	digest string
	err    error
}

// newPlaybookNote returns a note that takes requests. startPlaybooks completes it.
func newPlaybookNote(o Options) *playbookNote {
	p := &playbookNote{}
	p.Loop = control.New(control.Options{
		Name: "note of the playbooks", Every: cmp.Or(o.PlaybooksEvery, playbooksEvery), Logger: o.Logger,
		Trouble: "the playbooks of this instance could not be noted; retrying",
		Round:   func(ctx context.Context) (control.Next, error) { return control.Next{}, p.look(ctx) },
	})

	return p
}

// startPlaybooks notes the playbooks now, and whenever they change.
func (d *Daemon) startPlaybooks(ctx context.Context) {
	p := d.playbooks
	p.runner, p.instance, p.store = d.runner, d.identity.ID, d.store
	p.source = p.read
	d.runner.pinned = p.notePin

	// Before the API: without it, no node would be outdated at first.
	p.Start(ctx)
	p.Await(ctx)
	d.onStop(p.Name, func(context.Context) error { p.Stop(); return nil })
}

// notePin takes a digest that a job has pinned: its nodes must not seem outdated until
// the next look. It does not block.
func (p *playbookNote) notePin(digest string) {
	p.mu.Lock()
	known := digest == p.digest || digest == p.runner.bundled
	p.mu.Unlock()

	if !known {
		p.Kick()
	}
}

// refresh looks now, so that the nodes with other playbooks are outdated when it returns. It
// gives up after a while: the next look finds them as well.
func (p *playbookNote) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, refreshPatience)
	defer cancel()

	p.Await(ctx)
}

// look reads the folder if it may have changed, and stores the result if it is new.
func (p *playbookNote) look(ctx context.Context) error {
	found := state.Playbooks{Since: time.Now().UTC()}

	digest, err := p.await(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}

	if found.Digest = digest; err != nil {
		found.Problem = err.Error()
	} else if p.runner.config().Repository.Used() {
		found.Commit = p.runner.CommitOf(digest)
	}

	ctx, cancel := context.WithTimeout(ctx, playbooksTimeout)
	defer cancel()

	_, _, err = record.Decide(ctx, p.store, func(tx *record.Tx) (struct{}, error) {
		stored := state.PlaybooksOf(tx, p.instance)
		known := !stored.Since.IsZero()

		// Playbooks that are the same since another time are no change.
		if stored.Since = found.Since; !known || stored != found {
			record.PutAt(tx, &state.InstancePlaybooks, p.instance, &found)
		}

		return struct{}{}, nil
	})

	return err
}

// await returns the digest of the playbooks, or an error after playbooksPatience. The read
// goes on then, and a later look has its result: nothing can end a read of a network
// folder that does not answer.
func (p *playbookNote) await(ctx context.Context) (string, error) {
	patience := time.NewTimer(playbooksPatience)
	defer patience.Stop()

	for {
		folder := p.runner.config().Playbooks
		if p.pending == nil || p.folder != folder {
			ended := make(chan playbookRead, 1)
			p.pending, p.folder = ended, folder

			go func() {
				digest, err := p.source(ctx)
				ended <- playbookRead{digest, err}
			}()
		}

		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-patience.C:
			return "", fmt.Errorf("the folder did not answer within %s", playbooksPatience)
		case found := <-p.pending:
			p.pending = nil

			// The look that began the read may have been stopped.
			if !errors.Is(found.err, context.Canceled) {
				return found.digest, found.err
			}
		}
	}
}

// read returns the digest of the playbooks. It reads the files only if the folder may
// have changed since the last time.
func (p *playbookNote) read(ctx context.Context) (string, error) {
	config := p.runner.config()

	switch {
	case config.Repository.Used():
		return p.runner.repository.Current(ctx)
	case config.Playbooks == "":
		return p.runner.bundled, nil
	}

	dir, err := repository.CheckOwned(config.Playbooks)
	if err != nil {
		return "", err
	}

	stamp, err := p.runner.playbooks.Stamp(ctx, dir)
	if err != nil {
		return "", err
	}

	p.mu.Lock()
	known := p.dir == dir && p.stamp == stamp && p.digest != ""
	digest := p.digest
	p.mu.Unlock()

	if known {
		return digest, nil
	}

	// A change after the stamp shows at the next look.
	if digest, err = p.runner.playbooks.DigestDir(ctx, dir); err != nil {
		return "", err
	}

	p.mu.Lock()
	p.dir, p.stamp, p.digest = dir, stamp, digest
	p.mu.Unlock()

	return digest, nil
}
