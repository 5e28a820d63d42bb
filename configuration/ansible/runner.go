// SPDX-License-Identifier: Apache-2.0

package ansible

import (
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
)

// inherits is set by Start: descriptors 3, 4 and 5 are the lock (held), the
// FIFO alive (open for writing) and the pipe that is told whether it began.
const inherits = "CLUSTERM_RUNNER_INHERITS"

const (
	watchPause   = time.Second            // at most this late the end of a lease or a deadline is seen
	leftoverTerm = 300 * time.Millisecond // from SIGTERM to SIGKILL for what ansible-playbook left behind
	killFor      = 30 * time.Second       // then what cannot be killed is given up
	drainFor     = 5 * time.Second        // then output that does not end is cut
)

// begun is what runner.json holds.
type begun struct {
	PID     int       `json:"pid"`
	Start   uint64    `json:"start"` // of the process, in clock ticks since the boot
	Started time.Time `json:"started"`
	Sockets string    `json:"sockets"` // directory of ssh's control sockets
}

// runner is the process that Main is.
type runner struct {
	dir     string
	log     *log.Logger
	spec    launch
	begun   begun
	ready   *os.File   // nil once it was told
	held    []*os.File // keep the run locked and alive
	signals chan os.Signal
	exit    *os.File // reserved space for the exit record

	pid   int                  // of ansible-playbook
	ended chan unix.WaitStatus // of ansible-playbook
	gone  chan struct{}        // closed when no child is left

	stopped  Reason // why the run is being ended early
	phase    int
	escalate <-chan time.Time
}

// Main is the runner process: it runs what was prepared in dir, to the end, and
// returns its exit code. The daemon's binary calls it for the hidden command
// `clusterm runner DIR`; Runner.Start starts that. It must be called once and
// own the process: it adopts and ends every descendant.
func Main(dir string) int {
	// ansible-playbook gets SIGKILL when the thread that started it ends.
	runtime.LockOSThread()
	r := &runner{dir: dir, log: log.New(os.Stderr, "", log.LstdFlags|log.LUTC), signals: make(chan os.Signal, 8)}
	signal.Notify(r.signals, unix.SIGTERM, unix.SIGINT)
	// Caught, not ignored: what is ignored would be so in ansible-playbook too.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGPIPE)

	if err := r.run(); err != nil {
		r.log.Print(err)
		r.tell(err)

		return 1
	}

	return 0
}

// tell says to who started us whether we began.
func (r *runner) tell(err error) {
	if r.ready == nil {
		return
	}

	word := "ok"
	if err != nil {
		word = err.Error()
	}

	_, werr := io.WriteString(r.ready, word)
	if err := errors.Join(werr, r.ready.Close()); err != nil {
		r.log.Printf("telling the starter: %v", err) // it may be gone already
	}

	r.ready = nil
}

func (r *runner) path(name string) string { return filepath.Join(r.dir, name) }

// hold makes sure that the lock and the FIFO alive are ours until we end.
func (r *runner) hold() error {
	if os.Getenv(inherits) != "" {
		for fd := 3; fd <= 5; fd++ {
			unix.CloseOnExec(fd)
		}

		r.held = []*os.File{os.NewFile(3, fileLock), os.NewFile(4, fileAlive)}
		r.ready = os.NewFile(5, "ready")

		return os.Unsetenv(inherits)
	}

	// Started by hand.
	locked, err := lock(r.dir)
	if err != nil {
		return err
	}

	alive, err := os.OpenFile(r.path(fileAlive), os.O_RDWR, 0)
	r.held = []*os.File{locked, alive}

	return err
}

func (r *runner) run() (err error) {
	if err := r.hold(); err != nil {
		return err
	}

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

	sockets, err := socketDir()
	if err != nil {
		return err
	}
	defer os.RemoveAll(sockets) //nolint:errcheck // nothing depends on it

	_, _, start, err := procStat(os.Getpid())
	if err != nil {
		return err
	}

	r.begun = begun{PID: os.Getpid(), Start: start, Started: time.Now().UTC(), Sockets: sockets}
	if err := writeJSON(r.path(fileRunner), r.begun); err != nil {
		return err
	}

	exit, err := r.supervise()
	if err != nil { // it did not begin
		exit = Exit{Code: -1, Reason: NotStarted, Error: err.Error()}
	}

	exit.Started, exit.Ended = r.begun.Started, time.Now().UTC()
	os.RemoveAll(r.path(dirTmp))  //nolint:errcheck // nothing depends on it
	os.Remove(r.path(filePlugin)) //nolint:errcheck // nothing depends on it

	return errors.Join(err, r.record(exit))
}

// socketDir makes a directory of our own for ssh's control sockets, whose paths
// must be shorter than 108 bytes, under whatever path the run's directory is.
func socketDir() (string, error) {
	for _, base := range []string{"/run", "/tmp"} {
		if dir, err := os.MkdirTemp(base, socketPrefix); err == nil {
			return dir, nil
		}
	}

	return os.MkdirTemp("", socketPrefix)
}

const socketPrefix = "clusterm-"

// supervise starts ansible-playbook and returns how it ended, with nothing of
// it left. An error means that it did not start.
func (r *runner) supervise() (Exit, error) {
	output, err := r.stream(fileOutput, "[clusterm] ", "")
	if err != nil {
		return Exit{}, err
	}

	events, err := r.stream(fileEvents, `{"event":"truncated","message":"`, `"}`)
	if err != nil {
		return Exit{}, err
	}

	// Blocking and not known to our poller: ansible-playbook shares the flags.
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return Exit{}, err
	}

	if err := unix.SetNonblock(pipe[0], true); err != nil {
		return Exit{}, err
	}

	// A burst of output finds room; where so much is not allowed it is less.
	_, _ = unix.FcntlInt(uintptr(pipe[0]), unix.F_SETPIPE_SZ, 1<<20)
	out, in := os.NewFile(uintptr(pipe[0]), "output"), os.NewFile(uintptr(pipe[1]), "output")
	// The reader comes first, so that neither open waits; our own write end
	// keeps the reader from seeing an end whenever the plugin has none open.
	plugin, err := os.OpenFile(r.path(filePlugin), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return Exit{}, err
	}

	pluginHeld, err := os.OpenFile(r.path(filePlugin), os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return Exit{}, err
	}

	if err := r.start(in); err != nil {
		return Exit{}, err
	}

	in.Close() //nolint:errcheck // only the child's copy counts

	copied := make(chan error, 2)
	go func() { copied <- output.copyFrom(out) }()
	go func() { copied <- events.copyFrom(plugin) }()
	go r.reap()
	r.tell(nil)

	exit := r.watch()
	r.killLeftovers()
	pluginHeld.Close() //nolint:errcheck // now the reader sees the end
	limit := time.Now().Add(drainFor)
	var streamErr error

	for _, f := range []*os.File{out, plugin} {
		if err := f.SetReadDeadline(limit); err != nil {
			r.log.Printf("reading %s has no deadline: %v", f.Name(), err)
		}
	}

	for range 2 {
		streamErr = errors.Join(streamErr, <-copied)
	}

	if streamErr != nil {
		exit.Error = "output or events are not complete: " + streamErr.Error()
		r.log.Print(exit.Error)
	}

	return exit, nil
}

// stream is a file in the run's directory that is written within its bounds.
type stream struct {
	f *os.File
	*bounded
}

func (r *runner) stream(name, begin, end string) (*stream, error) {
	f, err := os.OpenFile(r.path(name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}

	return &stream{f, newBounded(f, r.spec.OutputLimit, begin, end)}, nil
}

// copyFrom reads to the end, whatever becomes of writing, and closes both.
func (s *stream) copyFrom(from *os.File) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{s.bounded}, struct{ io.Reader }{from}, make([]byte, 256<<10))
	return errors.Join(err, s.bounded.Close(), s.f.Sync(), s.f.Close(), from.Close())
}

func (r *runner) start(output *os.File) error {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close() //nolint:errcheck // only read
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "ANSIBLE_") || strings.HasPrefix(v, marker+"=")
	})
	env = append(env,
		marker+"="+r.dir,
		"ANSIBLE_CONFIG="+r.path(fileConfig),
		"ANSIBLE_SSH_CONTROL_PATH_DIR="+r.begun.Sockets,
		"ANSIBLE_NOCOLOR=1",
		"CLUSTERM_EVENTS="+r.path(filePlugin),
	)

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

// reap waits for every child, adopted ones included, until none is left.
func (r *runner) reap() {
	defer close(r.gone)

	for {
		var status unix.WaitStatus

		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // ECHILD
			return
		case pid == r.pid:
			r.ended <- status
		}
	}
}

// watch waits until ansible-playbook has ended, and ends it when it is told to,
// at the deadline, and when the lease has run out.
func (r *runner) watch() Exit {
	deadline := sinceBoot() + time.Until(r.spec.Deadline)

	timer := time.NewTimer(0)
	defer timer.Stop()

	for {
		select {
		case status := <-r.ended:
			exit := Exit{Code: status.ExitStatus(), Reason: Done}
			if status.Signaled() {
				exit.Code, exit.Signal = -1, unix.SignalName(status.Signal())
			}

			if r.stopped != "" {
				exit.Reason = r.stopped
			}

			return exit
		case s := <-r.signals:
			r.log.Printf("got %v", s)
			r.stop(Cancelled)
		case <-r.escalate:
			r.next()
		case <-timer.C:
			now := sinceBoot()

			left := deadline - now
			if left <= 0 {
				r.stop(DeadlineExceeded)
			}

			if until, ok := r.lease(); ok {
				if until <= now {
					r.stop(LeaseLost)
				}

				left = min(left, until-now)
			}

			if r.stopped == "" {
				timer.Reset(min(max(left, time.Millisecond), watchPause))
			}
		}
	}
}

// lease reads until when the lease holds; false where none is needed.
func (r *runner) lease() (time.Duration, bool) {
	b, err := os.ReadFile(r.path(fileLease))
	if errors.Is(err, os.ErrNotExist) {
		return 0, false
	}

	n, perr := strconv.ParseInt(strings.TrimLeft(strings.TrimSpace(string(b)), "0"), 10, 64)
	if err != nil || perr != nil {
		r.log.Printf("the lease cannot be read: %v", errors.Join(err, perr))
		return 0, true
	}

	return time.Duration(n), true
}

// stop begins to end the run. Only the first reason counts.
func (r *runner) stop(why Reason) {
	if r.stopped != "" {
		return
	}

	r.log.Printf("ending the run: %s", why)
	r.stopped = why
	r.next()
}

// next takes the next step of ending ansible-playbook. The first two go to its
// process group, as from a terminal; the last to everything.
func (r *runner) next() {
	r.phase++
	switch r.phase {
	case 1:
		_ = unix.Kill(-r.pid, unix.SIGINT)
		r.escalate = time.After(r.spec.GraceInt)
	case 2:
		_ = unix.Kill(-r.pid, unix.SIGTERM)
		r.escalate = time.After(r.spec.GraceTerm)
	default:
		r.signalAll(unix.SIGKILL)
		r.escalate = time.After(100 * time.Millisecond)
	}
}

func (r *runner) signalAll(s unix.Signal) {
	for _, p := range descendants(os.Getpid()) {
		_ = unix.Kill(p, s)
	}
}

// killLeftovers ends whatever ansible-playbook left behind: ssh's master
// connections, background processes of tasks.
func (r *runner) killLeftovers() {
	r.signalAll(unix.SIGTERM)

	pause := time.NewTimer(leftoverTerm)
	defer pause.Stop()

	limit := time.After(killFor)
	for {
		select {
		case <-r.gone:
			return
		case <-limit:
			r.log.Printf("processes %v cannot be killed", descendants(os.Getpid()))
			return
		case <-pause.C:
			r.signalAll(unix.SIGKILL)
			pause.Reset(100 * time.Millisecond)
		}
	}
}

// exitSpace is kept for the exit record from the start, so that a full disk
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

// record writes the exit record, the last thing that the runner does.
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

	if err := os.Rename(r.exit.Name(), r.path(fileExit)); err != nil {
		return err
	}

	return syncDir(r.dir)
}
