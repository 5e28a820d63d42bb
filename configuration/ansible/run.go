// SPDX-License-Identifier: Apache-2.0

package ansible

import (
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
)

// Reason says why a run ended.
type Reason string

const (
	Done             Reason = "done"        // by itself, with whatever code
	Cancelled        Reason = "cancelled"   // it was told to, by Cancel or SIGTERM
	DeadlineExceeded Reason = "deadline"    // its deadline passed
	LeaseLost        Reason = "lease-lost"  // nobody renewed its lease in time
	NotStarted       Reason = "not-started" // ansible-playbook could not be started
	Vanished         Reason = "vanished"    // the runner is gone without an exit record: killed, or the machine went down
)

// Exit is how a run ended.
type Exit struct {
	Code    int       `json:"code"`             // of ansible-playbook; -1 where a signal ended it or nobody knows
	Signal  string    `json:"signal,omitempty"` // that ended it, such as SIGKILL
	Started time.Time `json:"started,omitzero"` // zero where the runner never began
	Ended   time.Time `json:"ended"`            // for Vanished: when that was found
	Reason  Reason    `json:"reason"`
	Error   string    `json:"error,omitempty"` // why it did not start, or what of its output was lost
}

// OK is true where the playbook ran to its end and nothing failed.
func (e Exit) OK() bool { return e.Reason == Done && e.Code == 0 }

func (e Exit) encode() ([]byte, error) {
	if len(e.Error) > exitSpace/8 {
		e.Error = e.Error[:exitSpace/8]
	}

	b, err := json.Marshal(e)

	return append(b, '\n'), err
}

// Runner starts runs.
type Runner struct {
	// Self is the command that calls Main with the directory that follows, such
	// as {"/usr/bin/clusterm", "runner"}.
	Self []string
}

// Run is one run in its directory: one that goes on, or one that has ended. All
// methods may be called by several goroutines and processes at once.
type Run struct{ dir string }

// beginWithin bounds how long a runner may take to start ansible-playbook.
const beginWithin = 30 * time.Second

// Start prepares the run and starts its runner, in a session of its own and with
// nothing of this process's open files. It returns once ansible-playbook is
// started; ctx counts until then. From the moment before the runner exists until
// it has ended its directory is locked, so an Attach never takes a run that is
// being started for one that vanished.
func (r Runner) Start(ctx context.Context, s Spec) (_ *Run, err error) {
	if len(r.Self) == 0 {
		return nil, errors.New("the runner's own command is not set")
	}

	if err := s.check(); err != nil {
		return nil, err
	}

	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, err
	}

	held, err := lock(s.Dir)
	if err != nil {
		return nil, err
	}
	defer held.Close() //nolint:errcheck // the runner has its own copy

	if err := s.prepare(); err != nil {
		return nil, err
	}

	alive, err := os.OpenFile(filepath.Join(s.Dir, fileAlive), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer alive.Close() //nolint:errcheck // likewise

	said, ready, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer said.Close()  //nolint:errcheck // only read
	defer ready.Close() //nolint:errcheck // closed below as well

	log, err := os.OpenFile(filepath.Join(s.Dir, fileRunnerLog), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the runner writes it

	cmd := exec.Command(r.Self[0], append(append([]string{}, r.Self[1:]...), s.Dir)...)
	cmd.Dir = s.Dir
	cmd.Env = append(passEnv(s.Env), inherits+"=1", marker+"="+s.Dir)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{held, alive, ready}

	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the runner: %w", err)
	}

	// Ends with the runner, so that it does not stay a zombie; or with us.
	go cmd.Wait() //nolint:errcheck // the exit record says how it ended
	ready.Close() //nolint:errcheck // see below

	word, err := readWord(ctx, said)
	switch {
	case word == "ok":
		return &Run{s.Dir}, nil
	case err != nil:
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)    // its session's only group
		cerr := errors.Join(held.Close(), alive.Close()) // or we would wait for ourselves

		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainFor)
		defer cancel()
		_, werr := (&Run{s.Dir}).Wait(end)

		return nil, fmt.Errorf("the runner did not begin in time: %w", errors.Join(err, cerr, werr))
	case word == "":
		return nil, fmt.Errorf("the runner ended before it began: %s", lastLine(filepath.Join(s.Dir, fileRunnerLog)))
	default:
		return nil, fmt.Errorf("the run did not begin: %s", word)
	}
}

// readWord reads a pipe to its end.
func readWord(ctx context.Context, f *os.File) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, beginWithin)
	defer cancel()

	stop := context.AfterFunc(ctx, func() {
		f.SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // a pipe has deadlines
	})
	defer stop()

	b, err := io.ReadAll(io.LimitReader(f, 16<<10))
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}

	return string(b), err
}

func lastLine(path string) string {
	b, err := os.ReadFile(path)

	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	if last := lines[len(lines)-1]; err == nil && last != "" {
		return firstBytes([]byte(last), 1024)
	}

	return "it said nothing"
}

var errLocked = errors.New("is locked")

// lock takes the lock of a run's directory for as long as the file is open
// somewhere. It does not wait longer than an Attach holds it.
func lock(dir string) (*os.File, error) {
	path := filepath.Join(dir, fileLock)

	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}

	for try := 0; ; try++ {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}

		if !errors.Is(err, unix.EWOULDBLOCK) || try == 5 {
			f.Close() //nolint:errcheck // not locked

			if errors.Is(err, unix.EWOULDBLOCK) {
				err = errLocked
			}

			return nil, fmt.Errorf("%s %w: a runner is at work there", path, err)
		}

		time.Sleep(20 * time.Millisecond)
	}
}

// Attach returns the run in dir, whatever became of it. What Alive, Wait and
// Cancel say then is the truth: it goes on, it has ended, or it vanished. A
// directory without a prepared run is an error that is fs.ErrNotExist.
func Attach(dir string) (*Run, error) {
	if _, err := readLaunch(dir); err != nil {
		return nil, fmt.Errorf("no run in %s: %w", dir, err)
	}

	dir, err := filepath.Abs(dir)

	return &Run{dir}, err
}

// Dir is the run's directory.
func (r *Run) Dir() string { return r.dir }

// Output is the path of the merged output: text, bounded, without colours.
func (r *Run) Output() string { return filepath.Join(r.dir, fileOutput) }

// Events is the path of the events: JSON lines, bounded.
func (r *Run) Events() string { return filepath.Join(r.dir, fileEvents) }

// Truncated tells whether a file of the run (Output or Events) went over the
// limit, so that a part of it is left out.
func (r *Run) Truncated(path string) bool {
	l, err := readLaunch(r.dir)
	info, serr := os.Stat(path)

	return err == nil && serr == nil && info.Size() > l.OutputLimit // its marks come on top
}

// Alive reports whether the run's runner is there. Once it is false, output and
// events are complete.
func (r *Run) Alive() bool {
	f, err := os.OpenFile(filepath.Join(r.dir, fileLock), os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close() //nolint:errcheck // releases what was locked

	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// Wait waits until the run has ended and its runner is gone, and returns how it
// ended; the error is ctx's, or that nothing could be found out. Where the
// runner vanished, Wait ends what it left behind, and records that.
func (r *Run) Wait(ctx context.Context) (Exit, error) {
	for {
		if !r.Alive() {
			if e, err := r.exit(); !errors.Is(err, fs.ErrNotExist) {
				return e, err
			}

			e, err := r.vanished(ctx)
			if !errors.Is(err, errLocked) {
				return e, err
			}
		}

		if err := r.waitGone(ctx); err != nil {
			return Exit{}, err
		}
	}
}

func (r *Run) exit() (Exit, error) {
	var e Exit

	b, err := os.ReadFile(filepath.Join(r.dir, fileExit))
	if err != nil {
		return e, err
	}

	if err := json.Unmarshal(b, &e); err != nil {
		return e, fmt.Errorf("%s: %w", filepath.Join(r.dir, fileExit), err)
	}

	return e, nil
}

// waitGone returns when no runner holds the FIFO alive any more.
func (r *Run) waitGone(ctx context.Context) error {
	f, err := os.OpenFile(filepath.Join(r.dir, fileAlive), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read

	stop := context.AfterFunc(ctx, func() {
		f.SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // a FIFO has deadlines
	})
	defer stop()
	// Nobody writes: the read ends when the last writer is gone.
	if _, err := f.Read(make([]byte, 1)); err != nil && !errors.Is(err, io.EOF) {
		if ctx.Err() != nil {
			return ctx.Err()
		}

		return err
	}

	// At its end a process closes the lock first; where another holds it for a
	// moment, do not spin.
	pause := time.NewTimer(100 * time.Millisecond)
	defer pause.Stop()

	if !r.Alive() {
		return ctx.Err()
	}

	select {
	case <-ctx.Done():
	case <-pause.C:
	}

	return ctx.Err()
}

// vanished ends what a run without a runner left behind, and records its end.
func (r *Run) vanished(ctx context.Context) (Exit, error) {
	held, err := lock(r.dir)
	if err != nil {
		return Exit{}, err
	}
	defer held.Close() //nolint:errcheck // releases the lock

	if e, err := r.exit(); !errors.Is(err, fs.ErrNotExist) {
		return e, err
	}

	e, sockets := Exit{Code: -1, Reason: Vanished, Ended: time.Now().UTC()}, ""
	if b, err := r.begun(); err == nil {
		e.Started = b.Started
		if strings.HasPrefix(filepath.Base(b.Sockets), socketPrefix) {
			sockets = b.Sockets
		}
	}

	if err := sweep(ctx, r.dir, sockets); err != nil {
		return Exit{}, err
	}

	if sockets != "" {
		os.RemoveAll(sockets) //nolint:errcheck // nothing depends on it
	}

	return e, writeJSON(filepath.Join(r.dir, fileExit), e)
}

func (r *Run) begun() (begun, error) {
	var b begun

	data, err := os.ReadFile(filepath.Join(r.dir, fileRunner))
	if err != nil {
		return b, err
	}

	return b, json.Unmarshal(data, &b)
}

// Cancel tells the runner to end the run: SIGINT, SIGTERM, SIGKILL to the whole
// tree, with the spec's pauses between them. It does not wait for the end, only
// for a runner that is just being started, up to five seconds; a run that has
// ended is left as it is.
func (r *Run) Cancel(ctx context.Context) error {
	for try := 0; r.Alive(); try++ {
		b, err := r.begun()
		switch {
		case err == nil:
			return b.signal(unix.SIGTERM)
		case !errors.Is(err, fs.ErrNotExist) || try == 50:
			return fmt.Errorf("the runner in %s cannot be told: %w", r.dir, err)
		}

		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}

	return nil
}

// signal reaches the runner, and never another process that got its id.
func (b begun) signal(s syscall.Signal) error {
	p, err := os.FindProcess(b.PID) // holds on to the process, not only its id
	if err != nil {
		return err
	}
	defer p.Release() //nolint:errcheck // nothing to lose

	if _, _, start, err := procStat(b.PID); err != nil || start != b.Start {
		return nil // it has ended
	}

	if err := p.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal the runner: %w", err)
	}

	return nil
}

// Renew lets the run go on until then; a runner whose lease has passed ends its
// run. The time left counts, so a clock that is set changes nothing. Leases over
// a day are cut to a day.
func (r *Run) Renew(until time.Time) error {
	path := filepath.Join(r.dir, fileLease)
	record := leaseRecord(until)

	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return writeFile(path, record)
	}

	if err != nil {
		return err
	}

	_, err = f.WriteAt(record, 0)

	return errors.Join(err, f.Close())
}

// Follow delivers a file of the run (Output or Events) from offset on, as Tail
// does, until the run has ended.
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

	if err := writeFile(path, append(b, '\n')); err != nil {
		return err
	}

	return syncDir(filepath.Dir(path))
}
