// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/inventory/localfile"
)

// Reason is the reason for the end of a run.
type Reason string

// The reasons for the end of a run.
const (
	Done             Reason = "done"        // ansible-playbook ended by itself, with any code
	Cancelled        Reason = "cancelled"   // Cancel or SIGTERM ended it
	DeadlineExceeded Reason = "deadline"    // the deadline passed
	LeaseLost        Reason = "lease-lost"  // the lease expired
	NotStarted       Reason = "not-started" // ansible-playbook could not be executed
	GivenUp          Reason = "given-up"    // the runner died before it began, or was not allowed to begin any more
	Vanished         Reason = "vanished"    // the runner left no exit record: it was killed, or the machine went down
)

// NotExecuted reports whether the run is known to have never executed
// ansible-playbook.
func (r Reason) NotExecuted() bool { return r == NotStarted || r == GivenUp }

// Exit is the result of a run.
type Exit struct {
	Code    int       `json:"code"`             // of ansible-playbook; -1 after a signal or if unknown
	Signal  string    `json:"signal,omitempty"` // that ended ansible-playbook, such as SIGKILL
	Started time.Time `json:"started,omitzero"` // zero if the runner never began
	Ended   time.Time `json:"ended"`            // for Vanished: when that was found
	Reason  Reason    `json:"reason"`
	Error   string    `json:"error,omitempty"` // why it did not start, or which output was lost
}

// OK reports whether the playbook ran to its end without a failure.
func (e Exit) OK() bool { return e.Reason == Done && e.Code == 0 }

// encode returns the exit record. It fits into exitSpace, however long the
// error is.
func (e Exit) encode() ([]byte, error) {
	if len(e.Error) > exitSpace/8 {
		e.Error = e.Error[:exitSpace/8]
	}

	b, err := json.Marshal(e)
	return append(b, '\n'), err
}

// Runner starts runs.
type Runner struct {
	// Self is the command that calls Main with a directory as its last argument,
	// such as {"/usr/bin/clusterm", "runner"}.
	Self []string
}

// Run is one run in its directory, active or ended. Its methods may be called
// concurrently, also by several processes.
type Run struct{ dir string }

// startTimeout bounds the time until a runner has started ansible-playbook.
const startTimeout = 30 * time.Second

// Start prepares the run and starts its runner, in a session of its own and
// without the open files of this process. It blocks until ansible-playbook has
// started, at most 30 seconds; the run continues after ctx ends. The directory
// is locked from before the runner exists until it has ended, so Attach never
// reports a run that is being started as vanished.
//
// If ansible-playbook was not executed and never will be, the error is a
// *NotBegunError. After any other error it may have been executed. A runner that
// stands still after it got the permit is killed; Start returns its run, and Wait
// returns the end.
func (r Runner) Start(ctx context.Context, s Spec) (_ *Run, err error) {
	if len(r.Self) == 0 {
		return nil, notBegun(errors.New("the command of the runner is not set"))
	}

	if err := s.check(); err != nil {
		return nil, notBegun(err)
	}

	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, notBegun(err)
	}

	held, err := lock(s.Dir)
	if err != nil {
		return nil, err // perhaps of an active runner
	}
	defer held.Close() // the runner has its own copy

	if err := refuseBegun(ctx, s.Dir); err != nil {
		return nil, err
	}

	if err := s.prepare(); err != nil {
		return nil, notBegun(errors.Join(err, removeSecrets(s.Dir)))
	}

	alive, err := os.OpenFile(filepath.Join(s.Dir, fileAlive), os.O_RDWR, 0)
	if err != nil {
		return nil, notBegun(errors.Join(err, removeSecrets(s.Dir)))
	}
	defer alive.Close() // the runner has its own copy

	shake, err := newHandshake()
	if err != nil {
		return nil, notBegun(errors.Join(err, removeSecrets(s.Dir)))
	}
	defer shake.close()

	pid, err := r.launch(s, held.File(), alive, shake)
	if err != nil {
		return nil, notBegun(errors.Join(err, removeSecrets(s.Dir)))
	}

	run := &Run{s.Dir}

	end := shake.begin(ctx)
	if end == nil {
		return run, nil
	}
	if end.late {
		_ = unix.Kill(-pid, unix.SIGKILL)
	}

	// Our copies go first, or Wait would wait for this process.
	if err := errors.Join(held.Close(), alive.Close()); err != nil {
		return nil, err
	}

	if end.permitted && end.refusal == "" {
		// A full disk costs the explanation only.
		_ = localfile.Replace(filepath.Join(s.Dir, fileGivenUp), []byte(end.describe(s.Dir)))
		return run, nil
	}

	// The runner is gone, or cannot begin without the permit.
	wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()

	exit, waitErr := run.Wait(wait)

	return nil, &NotBegunError{
		Err:         errors.Join(errors.New(end.describe(s.Dir)), waitErr),
		Interrupted: end.refusal == "" || exit.Reason == GivenUp,
	}
}

// NotBegunError is the error of a run that never executed ansible-playbook and
// never will.
type NotBegunError struct {
	Err error
	// Interrupted: the runner was killed or stood still, or it got a signal to end.
	Interrupted bool
}

func notBegun(err error) error { return &NotBegunError{Err: err} }

func (e *NotBegunError) Error() string { return e.Err.Error() }
func (e *NotBegunError) Unwrap() error { return e.Err }

// refuseBegun refuses a directory with the traces of a run. Processes of a run
// that lost its directory are ended. The caller holds the lock.
func refuseBegun(ctx context.Context, dir string) error {
	if err := checkUnused(dir); err != nil {
		return err
	}

	left := marked(dir, "")
	if len(left) == 0 {
		return nil
	}

	if err := killMarked(ctx, dir, ""); err != nil {
		return err
	}

	return fmt.Errorf("processes %v of a run in %s were found, but not its files; they were ended", left, dir)
}

// launch starts the runner process with the files that inheritFiles expects.
func (r Runner) launch(s Spec, held, alive *os.File, shake *handshake) (pid int, err error) {
	log, err := os.OpenFile(filepath.Join(s.Dir, fileRunnerLog), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer log.Close() // the runner writes it

	//nolint:gosec // it is this program
	cmd := exec.Command(r.Self[0], append(append([]string{}, r.Self[1:]...), s.Dir)...)
	cmd.Dir = s.Dir
	cmd.Env = append(runEnv(s.Env), inherits+"=1", marker+"="+s.Dir)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{held, alive, shake.replyTo, shake.permit}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}

	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start the runner: %w", err)
	}

	// Reaps the runner if it ends before this process does.
	go cmd.Wait() //nolint:errcheck // the exit record has the result

	return cmd.Process.Pid, nil
}

// interruptRead makes reads of a pipe or a FIFO fail once ctx ends, until stop
// is called.
func interruptRead(ctx context.Context, f *os.File) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		f.SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // pipes and FIFOs support deadlines
	})
}

func lastLine(path string) string {
	b, err := os.ReadFile(path)

	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	if last := lines[len(lines)-1]; err == nil && last != "" {
		return firstBytes([]byte(last), 1024)
	}
	return "its log is empty"
}

// lock locks a run's directory. It retries for a moment, because another
// process may be probing the lock in Alive.
func lock(dir string) (*localfile.FileLock, error) {
	const (
		attempts = 6
		pause    = 20 * time.Millisecond
	)

	for attempt := 1; ; attempt++ {
		held, err := localfile.TryLock(filepath.Join(dir, fileLock))
		if err == nil || !errors.Is(err, localfile.ErrLocked) {
			return held, err
		}

		if attempt == attempts {
			return nil, fmt.Errorf("a runner is active in %s: %w", dir, err)
		}

		<-time.After(pause)
	}
}

// Attach returns the run in dir, whether it is active, has ended or has
// vanished, and even if some of its files are lost. If no run was prepared in
// dir, the error is fs.ErrNotExist.
func Attach(dir string) (*Run, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}

	for _, name := range []string{fileSpec, fileRunner, fileExit} {
		_, err := os.Lstat(filepath.Join(dir, name))
		if err == nil {
			return &Run{dir}, nil
		}

		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}

	return nil, fmt.Errorf("no run in %s: %w", dir, fs.ErrNotExist)
}

// Dir returns the run's directory.
func (r *Run) Dir() string { return r.dir }

// Output returns the path of the output: stdout and stderr merged, bounded,
// without colours.
func (r *Run) Output() string { return filepath.Join(r.dir, fileOutput) }

// Events returns the path of the events: JSON lines, bounded.
func (r *Run) Events() string { return filepath.Join(r.dir, fileEvents) }

// Truncated reports whether a file of the run (Output or Events) exceeded the
// limit, so that a part of it is left out.
func (r *Run) Truncated(path string) bool {
	l, err := readLaunch(r.dir)
	info, serr := os.Stat(path)
	return err == nil && serr == nil && info.Size() > l.OutputLimit // the marks exceed the limit
}

// Alive reports whether the run's runner exists. Once it returns false, output
// and events are complete.
func (r *Run) Alive() bool {
	locked, err := localfile.Locked(filepath.Join(r.dir, fileLock))
	return err == nil && locked
}

// Wait blocks until the run has ended and its runner is gone, and returns the
// result. The error is ctx's, or the run's files cannot be read. If the runner
// vanished, Wait kills the processes that it left behind and records the end. It
// kills a runner that stands still past its deadline.
func (r *Run) Wait(ctx context.Context) (Exit, error) {
	if left, ok := r.untilOverdue(); ok {
		defer time.AfterFunc(left, func() { r.kill(ctx) }).Stop()
	}

	for {
		if !r.Alive() {
			if e, err := r.exit(); !errors.Is(err, fs.ErrNotExist) {
				return e, err
			}

			// Another waiter may hold the lock to do the same.
			e, err := r.vanished(ctx)
			if !errors.Is(err, localfile.ErrLocked) {
				return e, err
			}
		}

		if err := r.waitGone(ctx); err != nil {
			return Exit{}, err
		}
	}
}

// exit reads the exit record. A damaged one is that of a runner that vanished.
func (r *Run) exit() (Exit, error) {
	var e Exit

	path := filepath.Join(r.dir, fileExit)

	b, err := os.ReadFile(path)
	if err != nil {
		return e, err
	}
	if err := json.Unmarshal(b, &e); err != nil || e.Reason == "" {
		return Exit{Code: -1, Reason: Vanished, Error: "the exit record " + path + " is damaged"}, nil
	}

	return e, nil
}

// waitGone returns once no runner has the FIFO alive open.
func (r *Run) waitGone(ctx context.Context) error {
	f, err := os.OpenFile(filepath.Join(r.dir, fileAlive), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	defer interruptRead(ctx, f)()

	// The runner never writes: the read ends when the last writer is gone.
	if _, err := f.Read(make([]byte, 1)); err != nil && !errors.Is(err, io.EOF) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}

	if !r.Alive() {
		return ctx.Err()
	}

	// Another process holds the lock for a moment: do not spin.
	pause := time.NewTimer(100 * time.Millisecond)
	defer pause.Stop()

	select {
	case <-ctx.Done():
	case <-pause.C:
	}

	return ctx.Err()
}

// vanished kills the processes of a run without a runner, and records its end.
func (r *Run) vanished(ctx context.Context) (Exit, error) {
	held, err := lock(r.dir)
	if err != nil {
		return Exit{}, err
	}
	defer held.Unlock() //nolint:errcheck // closing the file releases it as well

	// The runner may have recorded its end before the lock was free.
	if e, err := r.exit(); !errors.Is(err, fs.ErrNotExist) {
		return e, err
	}

	e, sockets := Exit{Code: -1, Reason: Vanished, Ended: time.Now().UTC()}, socketDir(r.dir)
	if info, err := r.runnerInfo(); err == nil {
		e.Started = info.Started
	}
	if reason, err := os.ReadFile(filepath.Join(r.dir, fileGivenUp)); err == nil {
		e.Error = string(reason)
	}

	if err := killMarked(ctx, r.dir, sockets); err != nil {
		return Exit{}, err
	}

	// No process of the run is left that could still begin.
	if _, err := os.Lstat(filepath.Join(r.dir, fileNotBegun)); err == nil {
		e.Reason = GivenUp
		e.Error = cmp.Or(e.Error, "its runner, or the manager that started it, ended before it began")
	}

	os.RemoveAll(sockets) // a leftover is harmless

	if err := removeSecrets(r.dir); err != nil {
		return Exit{}, err
	}

	return e, writeJSON(filepath.Join(r.dir, fileExit), e)
}

// overdueAfter is how long after the deadline and both graces of its run a
// runner is taken for one that stands still.
const overdueAfter = killTimeout + time.Minute

// untilOverdue returns the time until the runner should have ended for sure. It is
// measured on the clock of the runner, which cannot be set.
func (r *Run) untilOverdue() (time.Duration, bool) {
	info, err := r.runnerInfo()
	l, lerr := readLaunch(r.dir)

	if err != nil || lerr != nil {
		return 0, false // its lease ends it
	}
	return info.Deadline + l.GraceInt + l.GraceTerm + overdueAfter - sinceBoot(), true
}

// kill ends the runner. Its playbook dies with it.
func (r *Run) kill(ctx context.Context) {
	info, err := r.runnerInfo()
	if err == nil {
		err = info.signal(unix.SIGKILL)
	}

	if err != nil {
		_ = killMarked(ctx, r.dir, socketDir(r.dir)) // Wait goes on until the runner is gone
	}
}

func (r *Run) runnerInfo() (runnerInfo, error) {
	var info runnerInfo

	b, err := os.ReadFile(filepath.Join(r.dir, fileRunner))
	if err != nil {
		return info, err
	}
	return info, json.Unmarshal(b, &info)
}

// Cancel asks the runner to end the run: it sends SIGINT, SIGTERM and SIGKILL
// with the pauses of the spec. Cancel does not wait for the end. It waits up to
// five seconds for a runner that is being started. It kills a run with a runner
// that cannot be found. Cancelling a run that has ended does nothing.
func (r *Run) Cancel(ctx context.Context) error {
	for attempt := 0; r.Alive(); attempt++ {
		info, err := r.runnerInfo()
		if err == nil {
			// A stopped runner acts on SIGTERM once it continues.
			return errors.Join(info.signal(unix.SIGTERM), info.signal(unix.SIGCONT))
		}

		if !errors.Is(err, fs.ErrNotExist) || attempt == 50 {
			return killMarked(ctx, r.dir, socketDir(r.dir))
		}

		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}

	return nil
}

// signal sends a signal to the runner, never to another process that reuses
// its id.
func (i runnerInfo) signal(s syscall.Signal) error {
	p, err := os.FindProcess(i.PID)
	if err != nil {
		return err
	}
	defer p.Release() //nolint:errcheck // nothing to lose

	// p refers to the process, not the id, so its start time cannot change below.
	if _, _, start, err := procStat(i.PID); err != nil || start != i.Start {
		return nil // the runner has ended
	}

	if err := p.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal the runner: %w", err)
	}

	return nil
}

// Renew extends the run's lease; a runner ends its run when the lease expires.
// The lease is stored as time left, so setting the system clock has no effect.
// A lease of more than a day is cut to a day.
func (r *Run) Renew(until time.Time) error {
	path := filepath.Join(r.dir, fileLease)
	record := leaseRecord(until)

	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return localfile.Replace(path, record)
	}

	if err != nil {
		return err
	}

	// In place, which needs no space on a full disk.
	_, err = f.WriteAt(record, 0)

	return errors.Join(err, f.Close())
}

// Follow delivers a file of the run (Output or Events) from an offset until the
// run has ended, see Tail.
func (r *Run) Follow(
	ctx context.Context,
	path string,
	offset int64,
	deliver func(offset int64, chunk []byte) error,
) (int64, error) {
	return Tail(ctx, path, offset, func() bool { return !r.Alive() }, deliver)
}

func writeJSON(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return localfile.Replace(path, append(b, '\n'))
}
