// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory/localfile"
)

// inherits marks a runner that Start has started: descriptor 3 is the lock, 4
// the FIFO alive, open for writing, 5 the pipe for replies to Start, and 6 the
// pipe for the permit.
const inherits = "CLUSTERM_RUNNER_INHERITS"

const (
	checkInterval  = time.Second            // between looks at the lease and the deadline
	orphanGrace    = 300 * time.Millisecond // from SIGTERM to SIGKILL for orphans of ansible-playbook
	killRetry      = 100 * time.Millisecond // between SIGKILLs
	killTimeout    = 30 * time.Second       // then processes that cannot be killed are left
	drainTimeout   = 5 * time.Second        // then output that does not end is cut
	outputPipeSize = 1 << 20
)

// runnerInfo is the content of runner.json.
type runnerInfo struct {
	PID      int           `json:"pid"`
	Start    uint64        `json:"start"` // of the process, in clock ticks since boot
	Started  time.Time     `json:"started"`
	Deadline time.Duration `json:"deadline"` // of the run, on the clock since boot
	Sockets  string        `json:"sockets"`  // directory of ssh's control sockets
}

// runner is the state of the runner process.
type runner struct {
	dir     string
	log     *log.Logger
	spec    launch
	info    runnerInfo
	replyTo *os.File    // nil after the reply
	permit  *os.File    // nil if nobody is to be asked
	held    []io.Closer // keeps the lock and the FIFO alive open
	signals chan os.Signal
	exit    *os.File // reserved space for the exit record

	pid   int                  // of ansible-playbook
	ended chan unix.WaitStatus // of ansible-playbook
	gone  chan struct{}        // closed when the last child is gone

	leased     bool   // the run has had a lease
	stopReason Reason // empty unless the run is being ended early
	stopStep   int
	escalate   <-chan time.Time
}

// Main is the runner process: it carries out the run prepared in dir and
// returns the exit code of the process. The hidden command `clusterm runner
// DIR`, which Runner.Start starts, calls it. Main may be called once per
// process and owns it: it adopts and ends every descendant.
func Main(dir string) int {
	// ansible-playbook gets SIGKILL when the thread that started it ends.
	runtime.LockOSThread()

	r := &runner{dir: dir, log: log.New(os.Stderr, "", log.LstdFlags|log.LUTC), signals: make(chan os.Signal, 8)}
	signal.Notify(r.signals, unix.SIGTERM, unix.SIGINT)

	// Caught instead of ignored, because ansible-playbook would inherit that.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGPIPE)

	if err := r.run(); err != nil {
		r.log.Print(err)
		r.reply(err)
		return 1
	}

	return 0
}

// reply reports to Start whether ansible-playbook was executed.
func (r *runner) reply(err error) {
	if r.replyTo == nil {
		return
	}

	message := executedReply
	if err != nil {
		message = err.Error()
	}
	_, werr := io.WriteString(r.replyTo, message)
	if err := errors.Join(werr, r.replyTo.Close()); err != nil {
		r.log.Printf("reply to the daemon: %v", err) // it may have ended
	}

	r.replyTo = nil
}

func (r *runner) path(name string) string { return filepath.Join(r.dir, name) }

// hold takes the lock and opens the FIFO alive until this process ends.
func (r *runner) hold() error {
	if os.Getenv(inherits) != "" {
		return r.inheritFiles()
	}

	// An operator started the runner by hand.
	locked, err := lock(r.dir)
	if err != nil {
		return err
	}

	alive, err := os.OpenFile(r.path(fileAlive), os.O_RDWR, 0)
	r.held = []io.Closer{locked, alive}

	return err
}

// inheritFiles takes over the files from Start.
func (r *runner) inheritFiles() error {
	for fd := 3; fd <= 6; fd++ {
		unix.CloseOnExec(fd)
	}

	r.held = []io.Closer{os.NewFile(3, fileLock), os.NewFile(4, fileAlive)}
	r.replyTo, r.permit = os.NewFile(5, "reply"), os.NewFile(6, "permit")

	return os.Unsetenv(inherits)
}

func (r *runner) run() (err error) {
	if err := r.hold(); err != nil {
		return err
	}

	// As a subreaper, the runner becomes the parent of every orphan of the run.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a subreaper: %w", err)
	}

	if r.spec, err = readLaunch(r.dir); err != nil {
		return err
	}

	if _, err := os.Lstat(r.path(fileExit)); err == nil {
		return fmt.Errorf("the run in %s has ended already", r.dir)
	}

	if r.exit, err = reserveExit(r.path(fileExit + ".new")); err != nil {
		return err
	}

	sockets := socketDir(r.dir)
	if err := makeSockets(r.dir, sockets); err != nil {
		return err
	}
	defer os.RemoveAll(sockets) // a leftover is harmless

	_, _, start, err := procStat(os.Getpid())
	if err != nil {
		return err
	}

	r.info = runnerInfo{
		PID: os.Getpid(), Start: start, Started: time.Now().UTC(), Sockets: sockets,
		Deadline: sinceBoot() + time.Until(r.spec.Deadline),
	}
	if err := writeJSON(r.path(fileRunner), r.info); err != nil {
		return err
	}

	exit, err := r.supervise()
	if err != nil {
		exit = Exit{Code: -1, Reason: NotStarted, Error: err.Error()}
		if errors.Is(err, errGivenUp) {
			exit.Reason = GivenUp
		}
	}

	exit.Started, exit.Ended = r.info.Started, time.Now().UTC()
	os.Remove(r.path(filePlugin)) // a leftover is harmless

	if cleanErr := removeSecrets(r.dir); cleanErr != nil {
		r.log.Printf("the files with secrets could not be removed; the daemon removes them: %v", cleanErr)
	}

	return errors.Join(err, r.record(exit))
}

// supervise starts ansible-playbook, waits until it and all its descendants
// have ended, and returns the result. An error means that it did not start.
func (r *runner) supervise() (Exit, error) {
	secrets, err := r.secrets()
	if err != nil {
		return Exit{}, err
	}

	output, err := r.stream(fileOutput, "[clusterm] ", "")
	if err != nil {
		return Exit{}, err
	}
	output.mask = configuration.NewMask(output.bounded, secrets)

	events, err := r.stream(fileEvents, `{"event":"truncated","message":"`, `"}`)
	if err != nil {
		return Exit{}, err
	}
	events.mask = configuration.NewEventMask(events.bounded, secrets)

	outputFrom, outputTo, err := outputPipe()
	if err != nil {
		return Exit{}, err
	}

	// The reader comes first, so that neither open blocks. With our own writer,
	// the reader sees no end while the plugin has the FIFO closed.
	eventsFrom, err := os.OpenFile(r.path(filePlugin), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return Exit{}, err
	}

	eventsHeld, err := os.OpenFile(r.path(filePlugin), os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return Exit{}, err
	}

	if err := r.awaitPermit(); err != nil {
		return Exit{}, err
	}

	if err := r.start(outputTo); err != nil {
		return Exit{}, err
	}

	outputTo.Close() // the child has its own copy

	copied := make(chan error, 2)
	go func() { copied <- output.copyFrom(outputFrom) }()
	go func() { copied <- events.copyFrom(eventsFrom) }()
	go r.reap()
	r.reply(nil)

	exit := r.watch()
	r.killOrphans()
	eventsHeld.Close() // lets the reader see the end

	// A process outside the run may still have the output open.
	limit := time.Now().Add(drainTimeout)
	for _, f := range []*os.File{outputFrom, eventsFrom} {
		if err := f.SetReadDeadline(limit); err != nil {
			r.log.Printf("set a deadline for reading %s: %v", f.Name(), err)
		}
	}

	if err := errors.Join(<-copied, <-copied); err != nil {
		exit.Error = "output or events are not complete: " + err.Error()
		r.log.Print(exit.Error)
	}

	return exit, nil
}

// outputPipe returns the two ends of the pipe for output. The write end blocks,
// as ansible-playbook expects, which shares its flags.
func outputPipe() (from, to *os.File, err error) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, err
	}

	if err := unix.SetNonblock(pipe[0], true); err != nil {
		return nil, nil, err
	}

	// A larger buffer takes bursts of output. The limit of the system may refuse it.
	_, _ = unix.FcntlInt(uintptr(pipe[0]), unix.F_SETPIPE_SZ, outputPipeSize)

	return os.NewFile(uintptr(pipe[0]), "output"), os.NewFile(uintptr(pipe[1]), "output"), nil
}

// stream is a bounded file in the run's directory.
type stream struct {
	f       *os.File
	bounded *bounded
	mask    io.WriteCloser // in front of bounded
}

func (r *runner) stream(name, markBegin, markEnd string) (*stream, error) {
	f, err := os.OpenFile(r.path(name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &stream{f: f, bounded: newBounded(f, r.spec.OutputLimit, markBegin, markEnd)}, nil
}

// secrets returns the values that output and events hide. A file that cannot be read
// ends the run before it begins, because they would be shown.
func (r *runner) secrets() (secrets []string, err error) {
	b, err := os.ReadFile(r.path(fileSecrets))
	if err != nil {
		return nil, err
	}
	return secrets, json.Unmarshal(b, &secrets)
}

// copyFrom reads to the end, even if writing fails, and closes both files.
func (s *stream) copyFrom(from *os.File) error {
	// The wrappers hide ReadFrom and WriteTo, which would not use the buffer.
	_, err := io.CopyBuffer(struct{ io.Writer }{s.mask}, struct{ io.Reader }{from}, make([]byte, 256<<10))
	return errors.Join(err, s.mask.Close(), s.bounded.Close(), s.f.Sync(), s.f.Close(), from.Close())
}

func (r *runner) start(output *os.File) error {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()

	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "ANSIBLE_") || strings.HasPrefix(v, marker+"=")
	})
	env = append(env,
		marker+"="+r.dir,
		"ANSIBLE_CONFIG="+r.path(fileConfig),
		"ANSIBLE_SSH_CONTROL_PATH_DIR="+r.info.Sockets,
		"ANSIBLE_NOCOLOR=1",
		"CLUSTERM_EVENTS="+r.path(filePlugin),
	)

	// os/exec would wait for the process itself; reap waits for all children.
	p, err := os.StartProcess(r.spec.Path, append([]string{r.spec.Path}, r.spec.Args...), &os.ProcAttr{
		Dir: r.spec.Cwd, Env: env, Files: []*os.File{null, output, output},
		Sys: &unix.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL},
	})
	if err != nil {
		return fmt.Errorf("start ansible-playbook: %w", err)
	}
	r.pid = p.Pid
	r.ended, r.gone = make(chan unix.WaitStatus, 1), make(chan struct{})

	return p.Release()
}

// reap waits for every child, including adopted orphans, until none is left.
func (r *runner) reap() {
	defer close(r.gone)

	for {
		var status unix.WaitStatus

		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // ECHILD: there are no more children
			return
		case pid == r.pid:
			r.ended <- status
		}
	}
}

// watch waits until ansible-playbook has ended. It ends ansible-playbook on a
// signal, at the deadline and when the lease expires.
func (r *runner) watch() Exit {
	timer := time.NewTimer(0)
	defer timer.Stop()

	for {
		select {
		case status := <-r.ended:
			return r.result(status)
		case s := <-r.signals:
			r.log.Printf("received %v", s)
			r.stop(Cancelled)
		case <-r.escalate:
			r.nextStep()
		case <-timer.C:
			left, passed := r.timeLeft()
			if left <= 0 {
				r.stop(passed)
			}
			if r.stopReason == "" {
				timer.Reset(min(max(left, time.Millisecond), checkInterval))
			}
		}
	}
}

// result translates the status of ansible-playbook.
func (r *runner) result(status unix.WaitStatus) Exit {
	exit := Exit{Code: status.ExitStatus(), Reason: Done}
	if status.Signaled() {
		exit.Code, exit.Signal = -1, unix.SignalName(status.Signal())
	}
	if r.stopReason != "" {
		exit.Reason = r.stopReason
	}
	return exit
}

// timeLeft returns the time until the deadline or the expiry of the lease, and the
// one that comes first.
func (r *runner) timeLeft() (time.Duration, Reason) {
	now := sinceBoot()

	left := r.info.Deadline - now
	if until, leased := r.lease(); leased && until-now < left && left > 0 {
		return until - now, LeaseLost
	}
	return left, DeadlineExceeded
}

// lease reads the expiry of the lease; ok is false if the run needs no lease.
// A lease that cannot be read has expired, and so has one that is gone: nobody can
// renew it after the folder of the run was removed.
func (r *runner) lease() (until time.Duration, ok bool) {
	b, err := os.ReadFile(r.path(fileLease))
	if errors.Is(err, os.ErrNotExist) && !r.leased {
		return 0, false
	}

	r.leased = true

	n, perr := strconv.ParseInt(strings.TrimLeft(strings.TrimSpace(string(b)), "0"), 10, 64)
	if err != nil || perr != nil {
		r.log.Printf("read the lease: %v", errors.Join(err, perr))
		return 0, true
	}

	return time.Duration(n), true
}

// stop begins to end the run. Only the first reason counts.
func (r *runner) stop(reason Reason) {
	if r.stopReason != "" {
		return
	}

	r.log.Printf("ending the run: %s", reason)
	r.stopReason = reason
	r.nextStep()
}

// nextStep escalates the end of ansible-playbook. The first two signals go to
// its process group, as from a terminal; SIGKILL goes to every descendant.
func (r *runner) nextStep() {
	r.stopStep++
	switch r.stopStep {
	case 1:
		// Nobody waits longer for the end of a run whose lease is over.
		if r.stopReason == LeaseLost {
			_ = unix.Kill(-r.pid, unix.SIGINT)
			r.stopStep++
			r.escalate = time.After(leaseGrace)

			return
		}

		_ = unix.Kill(-r.pid, unix.SIGINT)
		r.escalate = time.After(r.spec.GraceInt)
	case 2:
		_ = unix.Kill(-r.pid, unix.SIGTERM)
		r.escalate = time.After(r.spec.GraceTerm)
	default:
		r.signalAll(unix.SIGKILL)
		r.escalate = time.After(killRetry)
	}
}

// leaseGrace is the time between the end of the lease and SIGKILL.
const leaseGrace = 500 * time.Millisecond

func (r *runner) signalAll(s unix.Signal) {
	for _, p := range descendants(os.Getpid()) {
		_ = unix.Kill(p, s)
	}
}

// killOrphans ends the processes that outlive ansible-playbook: ssh's master
// connections and background processes of tasks.
func (r *runner) killOrphans() {
	r.signalAll(unix.SIGTERM)

	pause := time.NewTimer(orphanGrace)
	defer pause.Stop()

	limit := time.After(killTimeout)
	for {
		select {
		case <-r.gone:
			return
		case <-limit:
			r.log.Printf("processes %v cannot be killed", descendants(os.Getpid()))
			return
		case <-pause.C:
			r.signalAll(unix.SIGKILL)
			pause.Reset(killRetry)
		}
	}
}

// exitSpace is reserved for the exit record at the start, so that a full disk
// does not lose it.
const exitSpace = 8 << 10

func reserveExit(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := f.Write(make([]byte, exitSpace)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, f.Sync()
}

// record writes the exit record, the last action of the runner.
func (r *runner) record(e Exit) error {
	b, err := e.encode()
	if err != nil {
		return err
	}
	if _, err := r.exit.WriteAt(b, 0); err != nil {
		return err
	}

	if err := errors.Join(r.exit.Truncate(int64(len(b))), r.exit.Sync(), r.exit.Close()); err != nil {
		return err
	}

	return localfile.Rename(r.exit.Name(), r.path(fileExit))
}
