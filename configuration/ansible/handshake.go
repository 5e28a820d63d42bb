// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory/localfile"
)

// The replies of a runner to Start. Any other message is an error, and the
// runner has not executed ansible-playbook.
const (
	readyReply    = "ready\n" // the runner waits for the permit
	executedReply = "ok"      // it has executed ansible-playbook
)

// errGivenUp is the error of a runner that must not execute ansible-playbook.
var errGivenUp = errors.New("the run was given up before it began")

// handshake fences a runner: without the permit of Start it never executes
// ansible-playbook. So Start knows that a runner that it gives up before the
// permit has touched no host and never will.
type handshake struct {
	reply, replyTo      *os.File // from the runner
	permit, permitWrite *os.File // to the runner
}

func newHandshake() (*handshake, error) {
	var h handshake

	var err error
	if h.reply, h.replyTo, err = os.Pipe(); err != nil {
		return nil, err
	}

	if h.permit, h.permitWrite, err = os.Pipe(); err != nil {
		h.close()
		return nil, err
	}

	return &h, nil
}

// close closes all ends. Without a permit, that is the refusal.
func (h *handshake) close() {
	for _, f := range []*os.File{h.reply, h.replyTo, h.permit, h.permitWrite} {
		f.Close() // nil or closed already
	}
}

// failedStart describes a handshake that did not end with the execution.
type failedStart struct {
	permitted bool   // the runner may have executed ansible-playbook
	late      bool   // the runner is still there
	refusal   string // the error of the runner: ansible-playbook was not executed
}

// begin gives the permit once the runner is ready, and returns nil when
// ansible-playbook was executed. The runner has its own copies of the files.
func (h *handshake) begin(ctx context.Context) *failedStart {
	// With our copies open, no pipe would end with the runner.
	h.replyTo.Close() // nothing was written
	h.permit.Close()  // nothing was read

	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	defer interruptRead(ctx, h.reply)()
	defer h.permitWrite.Close() // the refusal, if the permit was not written

	replies := bufio.NewReader(io.LimitReader(h.reply, 16<<10))

	first, err := replies.ReadString('\n')
	if first != readyReply {
		return &failedStart{late: isLate(err), refusal: rest(first, replies)}
	}

	if _, err := io.WriteString(h.permitWrite, "."); err != nil {
		return &failedStart{}
	}

	message, err := io.ReadAll(replies)
	if string(message) == executedReply {
		return nil
	}
	return &failedStart{permitted: true, late: isLate(err), refusal: string(message)}
}

// isLate reports whether a read ended before its pipe did.
func isLate(err error) bool { return err != nil && !errors.Is(err, io.EOF) }

// rest returns a message of several lines with the given beginning.
func rest(beginning string, more io.Reader) string {
	end, _ := io.ReadAll(more) // the beginning suffices
	return beginning + string(end)
}

// describe returns the failure of the start of the run in dir.
func (f *failedStart) describe(dir string) string {
	switch {
	case f.late:
		return fmt.Sprintf("its runner stood still for %s and was killed", startTimeout)
	case f.refusal != "":
		return strings.TrimSpace(f.refusal)
	}

	return "its runner ended before it began: " + lastLine(filepath.Join(dir, fileRunnerLog))
}

// awaitPermit returns nil when this runner may execute ansible-playbook. It is
// the last step before that: a runner that stood still may have been given up, and
// its lease or its deadline may have passed.
func (r *runner) awaitPermit() error {
	if r.permit != nil {
		if err := r.requestPermit(); err != nil {
			return err
		}
	}

	if left, passed := r.timeLeft(); left <= 0 {
		return fmt.Errorf("%w: %s", errGivenUp, passed)
	}

	return r.markBegun()
}

// markBegun removes, durably, the mark that the run has not begun. A run that another version
// has prepared has no mark.
func (r *runner) markBegun() error {
	if err := os.Remove(r.path(fileNotBegun)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return localfile.SyncDir(r.dir)
}

func (r *runner) requestPermit() error {
	defer r.permit.Close()

	if _, err := io.WriteString(r.replyTo, readyReply); err != nil {
		return fmt.Errorf("%w: %w", errGivenUp, err)
	}

	answer := make(chan error, 1)
	go func() {
		_, err := io.ReadFull(r.permit, make([]byte, 1))
		answer <- err
	}()

	select {
	case err := <-answer:
		if err != nil {
			return fmt.Errorf("%w: no permit: %w", errGivenUp, err)
		}
		return nil
	case s := <-r.signals:
		return fmt.Errorf("%w: received %v", errGivenUp, s)
	case <-time.After(startTimeout):
		return fmt.Errorf("%w: no permit within %s", errGivenUp, startTimeout)
	}
}
