// SPDX-License-Identifier: Apache-2.0

package program

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
	// lookEvery is the time between two looks at the folder of playbooks.
	lookEvery = 5 * time.Second
	// lookPatience is how long a look waits for the folder, before it says that the
	// playbooks are not known.
	lookPatience = 20 * time.Second
	// refreshPatience is how long a caller waits for a look.
	refreshPatience = 5 * time.Second
	// noteTimeout bounds the write that follows.
	noteTimeout = time.Minute
)

// Note keeps the store informed about the playbooks that a job of this instance
// would pin now: nodes with others are outdated.
type Note struct {
	*control.Loop
	runner   *Runner
	instance string
	store    record.Store

	source func(ctx context.Context) (digest string, err error) // reads the folder

	// Of a read that a look has given up, and the folder that it reads. Only look uses them.
	pending chan readResult
	folder  string

	mu     sync.Mutex
	dir    string // the folder of the stamp
	stamp  string // of the folder when the digest was computed
	digest string
}

// readResult is the result of reading the folder.
type readResult struct {
	digest string
	err    error
}

// newNote returns a note that takes requests. Begin completes it.
func newNote(r *Runner, every time.Duration) *Note {
	p := &Note{runner: r}
	p.source = p.read
	p.Loop = control.New(control.Options{
		Name: "note of the playbooks", Every: cmp.Or(every, lookEvery), Logger: r.log,
		Trouble: "the playbooks of this instance could not be noted; retrying",
		Round:   func(ctx context.Context) (control.Next, error) { return control.Next{}, p.look(ctx) },
	})

	return p
}

// Begin notes the playbooks of the instance now, and whenever they change, until Stop.
func (p *Note) Begin(ctx context.Context, instance string, store record.Store) {
	p.instance, p.store = instance, store
	p.Start(ctx)
	p.Await(ctx)
}

// pinned takes a digest that a job has pinned: its nodes must not seem outdated until
// the next look. It does not block.
func (p *Note) pinned(digest string) {
	p.mu.Lock()
	known := digest == p.digest || digest == p.runner.bundled
	p.mu.Unlock()

	if !known {
		p.Kick()
	}
}

// refresh looks now, so that the nodes with other playbooks are outdated when it returns. It
// gives up after a while: the next look finds them as well.
func (p *Note) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, refreshPatience)
	defer cancel()
	p.Await(ctx)
}

// look reads the folder if it may have changed, and stores the result if it is new.
func (p *Note) look(ctx context.Context) error {
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

	ctx, cancel := context.WithTimeout(ctx, noteTimeout)
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

// await returns the digest of the playbooks, or an error after lookPatience. The read
// goes on then, and a later look has its result: nothing can end a read of a network
// folder that does not answer.
func (p *Note) await(ctx context.Context) (string, error) {
	patience := time.NewTimer(lookPatience)
	defer patience.Stop()

	for {
		folder := p.runner.config().Playbooks
		if p.pending == nil || p.folder != folder {
			ended := make(chan readResult, 1)
			p.pending, p.folder = ended, folder

			go func() {
				digest, err := p.source(ctx)
				ended <- readResult{digest, err}
			}()
		}

		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-patience.C:
			return "", fmt.Errorf("the folder did not answer within %s", lookPatience)
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
func (p *Note) read(ctx context.Context) (string, error) {
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
	stamp, err := p.runner.Copies.Stamp(ctx, dir)
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
	if digest, err = p.runner.Copies.DigestDir(ctx, dir); err != nil {
		return "", err
	}

	p.mu.Lock()
	p.dir, p.stamp, p.digest = dir, stamp, digest
	p.mu.Unlock()

	return digest, nil
}
