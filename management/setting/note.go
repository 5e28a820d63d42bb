// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// fileNote keeps the digest of the file in the store up to date.
type fileNote struct {
	changed chan struct{} // holds one token while the store lacks the newest digest
	stop    context.CancelFunc
	stopped chan struct{}
}

// request asks for a write of the newest digest. It does not block.
func (n *fileNote) request() {
	select {
	case n.changed <- struct{}{}:
	default: // a write is due already, and will take the newest digest
	}
}

// noteBackOff returns the delays before retrying a failed write of the digest.
func noteBackOff() *backoff.ExponentialBackOff {
	return &backoff.ExponentialBackOff{
		InitialInterval: time.Second, Multiplier: 2, MaxInterval: 10 * time.Second, RandomizationFactor: 0.5,
	}
}

// Start stores the digest of the instance's file now and after every Reload, so
// that a changed file is a change of the configuration for watches and entity
// tags. It blocks for one write. If the store does not answer, the file is in
// force all the same, and the write is retried until Stop.
func (s *Settings) Start(ctx context.Context, instance string) {
	write := func(ctx context.Context) error { return s.writeNote(ctx, instance) }

	if err := write(ctx); err != nil {
		s.opts.Logger.WithError(err).Warn("cannot store the digest of the configuration file; retrying")
		s.note.request()
	}

	ctx, s.note.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.note.stopped = make(chan struct{})

	go func() {
		defer close(s.note.stopped)

		for {
			select {
			case <-ctx.Done():
				return
			case <-s.note.changed:
			}

			// Retry without a limit: without the note, readers would miss the reload.
			_, _ = backoff.Retry(ctx, func() (struct{}, error) {
				return struct{}{}, write(ctx)
			}, backoff.WithBackOff(noteBackOff()), backoff.WithMaxElapsedTime(0))
		}
	}()
}

// writeNote stores the digest of the file, unless the store has it.
func (s *Settings) writeNote(ctx context.Context, instance string) error {
	_, _, err := record.Decide(ctx, s.opts.Store, func(tx *record.Tx) (struct{}, error) {
		now := state.ConfigFile{Digest: s.fileDigest()}
		if stored := record.Get(tx, &state.ConfigFiles, instance); stored == nil || *stored != now {
			record.PutAt(tx, &state.ConfigFiles, instance, &now)
		}
		return struct{}{}, nil
	})

	return err
}

// Stop ends the writes and waits for them.
func (s *Settings) Stop() {
	s.note.stop()
	<-s.note.stopped
}

// fileDigest identifies the visible configuration of the file, so that a reload
// can detect a change.
func (s *Settings) fileDigest() string {
	s.mu.Lock()
	defer s.mu.Unlock()

	visible, err := json.Marshal(values(s.file.Config, s.file.named, nil, s.opts.Node))
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%x", sha256.Sum256(visible))
}
