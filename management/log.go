// SPDX-License-Identifier: Apache-2.0

package management

import (
	"context"
	"strings"
	"time"
	"unicode"

	"github.com/contiv/cluster/inventory"
)

// logPoll is how often a follower looks for bytes that another process wrote.
const logPoll = time.Second

// LogSize is the number of bytes of a job's log so far.
func (s *Service) LogSize(ctx context.Context, id string, stream Stream) (int64, error) {
	return s.Store.LogSize(ctx, id, stream)
}

// Log emits a job's log from the offset on, in order and without gaps. With
// follow it goes on until the job has ended and all is emitted. It pulls: a
// slow emit delays nobody else, and holds one chunk.
func (s *Service) Log(
	ctx context.Context,
	id string,
	stream Stream,
	offset int64,
	follow bool,
	emit func(offset int64, data []byte) error,
) error {
	if offset < 0 {
		return inventory.Errorf(inventory.KindInvalid, "the offset is negative")
	}

	poll := time.NewTicker(logPoll)
	defer poll.Stop()

	for {
		s.mu.Lock()
		appended := s.appended
		s.mu.Unlock()
		changed := s.Store.Changed()

		j, err := s.View().Job(id)
		if err != nil {
			return err
		}

		data, err := s.Store.ReadLog(ctx, j.ID, stream, offset)
		if err != nil {
			return err
		}

		if len(data) > 0 {
			if err := emit(offset, data); err != nil {
				return err
			}

			offset += int64(len(data))
			continue
		}

		if !follow || j.Status.Ended() {
			return nil
		}

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-appended:
		case <-changed:
		case <-poll.C:
		}
	}
}

// append adds bytes to a job's log, trying again for as long as the store does
// not answer.
func (s *Service) append(ctx context.Context, id string, stream Stream, offset int64, data []byte) error {
	err := s.persist(ctx, func() error { return s.Store.AppendLog(ctx, id, stream, offset, data) })
	s.mu.Lock()
	close(s.appended)
	s.appended = make(chan struct{})
	s.mu.Unlock()

	return err
}

// say adds a line of the manager's own to a job's output. What hosts said may
// be in it, and is only text: it must not move the cursor of who reads it.
func (s *Service) say(ctx context.Context, id string, line string) error {
	return s.persist(ctx, func() error {
		size, err := s.Store.LogSize(ctx, id, StreamText)
		if err != nil {
			return err
		}

		return s.append(ctx, id, StreamText, size, []byte(oneLine(line)+"\n"))
	})
}

func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\r', r == '\t':
			return ' '
		case unicode.IsControl(r):
			return unicode.ReplacementChar
		}

		return r
	}, text)
}

// persist repeats a write for as long as the store is unavailable.
func (s *Service) persist(ctx context.Context, write func() error) error {
	wait := s.retryWrite
	for {
		err := write()
		if err == nil || inventory.KindOf(err) != inventory.KindUnavailable {
			return err
		}

		s.Logger.WithError(err).Warn("the store is unavailable; trying again")

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}

		wait = min(2*wait, 5*time.Second)
	}
}
