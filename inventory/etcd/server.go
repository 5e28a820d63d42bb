// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/inventory"
)

// Times of the server inside.
const (
	startTimeout   = 60 * time.Second // from the start until it serves
	stopTimeout    = 15 * time.Second // from asking it to end until it is killed
	lockWait       = 15 * time.Second // for an earlier process to let go of the directory
	maxSocketPath  = 100              // of the 108 bytes that sun_path has
	quota          = 4 << 30          // bytes of the backend
	compactEvery   = "30m"
	snapshotEvery  = 10_000
	maxRequestSize = 4 << 20
)

// ServerOptions say how the server inside runs.
type ServerOptions struct {
	// Dir holds everything of it, made 0700 where missing.
	Dir string
	// Command is the argv of the child process, to which Dir is appended. Empty:
	// the server runs in this process.
	Command []string
	// Pause is how long a child that ended by itself stays away; 0: a second.
	Pause time.Duration
	// NoSync leaves out fsync. For tests: a power failure loses data.
	NoSync bool
	Log    logrus.FieldLogger
}

// Server is a running etcd with a single member.
type Server struct {
	opts   ServerOptions
	lock   *os.File
	inside *embed.Etcd

	cancel   context.CancelFunc
	done     sync.WaitGroup
	restarts atomic.Int64
	ended    atomic.Pointer[error]
	close    func() error
}

func (o ServerOptions) socket(name string) string { return filepath.Join(o.Dir, name+".sock") }

// Endpoint is what a client connects to.
func (s *Server) Endpoint() string { return "unix://" + s.opts.socket("client") }

// Restarts is how often the child process ended by itself.
func (s *Server) Restarts() int64 { return s.restarts.Load() }

// Ended is why the child process ended by itself the last time; nil: it never did.
func (s *Server) Ended() error {
	if err := s.ended.Load(); err != nil {
		return *err
	}

	return nil
}

// StartServer starts the server. In this process it serves when StartServer
// returns; a child process may not do so yet, and Dial waits for it. A directory
// that another process uses, or that cannot be written, is an error.
func StartServer(ctx context.Context, o ServerOptions) (*Server, error) {
	if p := o.socket("client"); len(p) > maxSocketPath {
		return nil, inventory.Errorf(inventory.KindInvalid, "%s is too long for a socket (%d bytes, the limit is %d)", p, len(p), maxSocketPath).
			Do("configure a shorter data_dir")
	}

	lock, err := LockDir(ctx, o.Dir, o.Log)
	if err != nil {
		return nil, err
	}

	if err := os.Chmod(o.Dir, 0o700); err != nil {
		lock.Close()
		return nil, inventory.Errorf(inventory.KindUnavailable, "the data directory %s is not ours: %w", o.Dir, err).
			Do("run as root")
	}

	s := &Server{opts: o, lock: lock}

	s.close = sync.OnceValue(s.end)
	if len(o.Command) == 0 {
		s.inside, err = serve(ctx, o.Dir, o.NoSync, zap.NewAtomicLevelAt(zapcore.ErrorLevel))
		if err != nil {
			lock.Close()
			return nil, err
		}

		return s, nil
	}

	var within context.Context
	within, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.done.Go(func() { s.supervise(within) })

	return s, nil
}

// LockDir makes sure that the directory is there, 0700 where it is new, and that
// only one daemon uses it, until the file is closed. A daemon that is just ending
// is waited for, and log says so.
func LockDir(ctx context.Context, dir string, log logrus.FieldLogger) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, inventory.Errorf(inventory.KindUnavailable, "the data directory %s cannot be made: %w", dir, err).
			Do("run as root, or configure another data_dir")
	}

	return lockDir(ctx, dir, "lock", func() {
		log.Warnf(
			"the data directory %s is in use by another clusterm; waiting for up to %s for it to end",
			dir,
			lockWait,
		)
	})
}

func lockDir(ctx context.Context, dir, name string, waiting func()) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, inventory.Errorf(inventory.KindUnavailable, "the data directory %s is not writable: %w", dir, err).
			Do("check its owner, its mode and whether the file system is mounted read-only")
	}

	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()

	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f, nil
		}

		waiting()
		waiting = func() {}

		select {
		case <-ctx.Done():
			f.Close()

			return nil, inventory.Errorf(inventory.KindUnavailable, "the data directory %s is in use by another clusterm", dir).
				Do("stop that one, or configure another data_dir")
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// supervise keeps the child process running until ctx ends.
func (s *Server) supervise(ctx context.Context) {
	for {
		err := s.child(ctx)
		if ctx.Err() != nil {
			return
		}

		s.ended.Store(&err)
		s.restarts.Add(1)
		s.opts.Log.WithError(err).Error("the etcd inside has ended; starting it again")

		select {
		case <-ctx.Done():
			return
		case <-time.After(cmp.Or(s.opts.Pause, time.Second)):
		}
	}
}

// child runs the child process once. It holds the child's standard input open:
// the child ends when that closes, and so never outlives this process.
func (s *Server) child(ctx context.Context) error {
	argv := append(append([]string{}, s.opts.Command...), s.opts.Dir)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)

	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}

	cmd.Cancel = stdin.Close
	cmd.WaitDelay = stopTimeout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C at the terminal is for the daemon
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	var logs sync.WaitGroup
	var last string
	logs.Go(func() { last = relay(r, s.opts.Log) })
	err = cmd.Run()
	w.Close()
	logs.Wait()

	if err == nil {
		err = errors.New("it ended by itself")
	}

	if last != "" {
		err = fmt.Errorf("%w: %.300s", err, last)
	}

	return err
}

// expected are warnings that say nothing to an operator of a server that only
// this process can reach.
var expected = []string{"Running http and grpc server on single port", "simple token is not cryptographically signed",
	// At the very first start the term is not on disk yet; it is tried again.
	"missing term information",
}

// relay passes the child's log lines on, each at its level, and returns the last
// error. A line of any length is taken; what is beyond the buffer is dropped. The
// stack of a panic, which ends the output, is for who debugs.
func relay(r *io.PipeReader, log logrus.FieldLogger) (last string) {
	log = log.WithField("part", "etcd")
	stack := false

	in := bufio.NewReaderSize(r, 16<<10)
	for {
		line, err := in.ReadSlice('\n')
		level, text, _ := strings.Cut(strings.TrimSpace(string(line)), "\t")

		stack = stack || strings.HasPrefix(level, "goroutine ") || level == "runtime stack:"
		switch {
		case stack:
			log.Debug(strings.TrimSpace(string(line)))
		case level == "" || slices.ContainsFunc(expected, func(s string) bool { return strings.Contains(text, s) }):
		case level == "warn":
			log.Warn(text)
		default:
			said := strings.TrimSpace(level + " " + text)
			if last == "" || !strings.HasPrefix(said, "panic: ") { // which repeats less than what was said
				last = strings.ReplaceAll(said, "\t", " ")
			}

			log.Error(said)
		}

		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = in.ReadSlice('\n')
		}

		if err != nil {
			r.CloseWithError(err)
			return last
		}
	}
}

// Close ends the server. It may be called more than once.
func (s *Server) Close() error { return s.close() }

func (s *Server) end() error {
	if s.inside != nil {
		s.inside.Close()
	}

	if s.cancel != nil {
		s.cancel()
		s.done.Wait()
	}

	// By word: a process that is just being started may share the file still.
	return errors.Join(syscall.Flock(int(s.lock.Fd()), syscall.LOCK_UN), s.lock.Close())
}

// Main is the child process: it serves until its standard input closes, and
// returns the process's exit status.
func Main(dir string) int {
	// The child of a daemon that was killed may still be ending: it would take
	// the sockets of this one with it.
	lock, err := lockDir(context.Background(), dir, "child.lock", func() {})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer lock.Close()
	level := zap.NewAtomicLevelAt(zapcore.WarnLevel)

	e, err := serve(context.Background(), dir, false, level)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}

	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()

	select {
	case <-gone:
		level.SetLevel(zapcore.FatalLevel) // its listeners complain of being closed
		e.Close()

		return 0
	case err := <-e.Err():
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
}

// awaitFree waits until no process has the log's files locked: etcd does not wait,
// but ends the process. One that was started while a server ran here shares the
// locks until it executes its program, also when that server has ended.
func awaitFree(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()

	for anyLocked(dir) {
		select {
		case <-ctx.Done():
			return inventory.Errorf(inventory.KindUnavailable, "another process has files in %s locked", dir).
				Do("stop that one, or configure another data_dir")
		case <-time.After(10 * time.Millisecond):
		}
	}

	return nil
}

// anyLocked tells whether a file of etcd's log is locked. It asks, and does not
// try: its own lock might be shared in the same way. What it cannot find out is
// left to etcd.
func anyLocked(dir string) bool {
	files, _ := filepath.Glob(filepath.Join(dir, "*.wal"))

	return slices.ContainsFunc(files, func(path string) bool {
		f, err := os.Open(path)
		if err != nil {
			return false
		}
		defer f.Close()
		lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}

		return unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock) == nil && lock.Type != unix.F_UNLCK
	})
}

// serve starts etcd in this process and waits until it serves.
func serve(ctx context.Context, dir string, noSync bool, level zap.AtomicLevel) (*embed.Etcd, error) {
	at := func(name string) url.URL { return url.URL{Scheme: "unix", Path: filepath.Join(dir, name+".sock")} }
	cfg := embed.NewConfig()
	cfg.Name = "clusterm"
	cfg.Dir = filepath.Join(dir, "data")
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{at("client")}, []url.URL{at("client")}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{at("peer")}, []url.URL{at("peer")}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = embed.CompactorModePeriodic, compactEvery
	cfg.QuotaBackendBytes, cfg.SnapshotCount, cfg.MaxRequestBytes = quota, snapshotEvery, maxRequestSize
	cfg.UnsafeNoFsync = noSync
	// A single member that starts again elects itself: this is how long that takes.
	cfg.TickMs, cfg.ElectionMs = 25, 250
	encoder := zapcore.NewConsoleEncoder(
		zapcore.EncoderConfig{MessageKey: "m", LevelKey: "l", EncodeLevel: zapcore.LowercaseLevelEncoder},
	)
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.New(zapcore.NewCore(encoder, zapcore.Lock(os.Stderr), level)))
	for _, u := range []url.URL{at("client"), at("peer")} {
		if err := os.Remove(u.Path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}

	if err := awaitFree(ctx, filepath.Join(cfg.Dir, "member", "wal")); err != nil {
		return nil, err
	}

	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, inventory.Errorf(inventory.KindUnavailable, "the etcd inside did not start: %w", err).
			Do("see its lines in the log; a damaged %s can be restored from a backup", cfg.Dir)
	}

	timer := time.NewTimer(startTimeout)
	defer timer.Stop()

	select {
	case <-e.Server.ReadyNotify():
		return e, nil
	case err = <-e.Err():
	case <-timer.C:
		err = fmt.Errorf("it did not serve within %s", startTimeout)
	case <-ctx.Done():
		err = ctx.Err()
	}

	e.Close()

	return nil, inventory.Errorf(inventory.KindUnavailable, "the etcd inside did not start: %w", err)
}
