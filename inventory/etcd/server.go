// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/localfile"
)

// Times and sizes of the embedded server.
const (
	startTimeout    = 60 * time.Second // until the server serves
	stopTimeout     = 15 * time.Second // until the child process is killed
	lockTimeout     = 15 * time.Second // for an earlier process to release the directory
	maxSocketPath   = 100              // bytes; sun_path has 108
	compactInterval = "30m"
	snapshotEntries = 10_000
	maxRequestSize  = 4 << 20 // bytes

	lanTick, lanElection = 100, 1000 // milliseconds; of a server that other hosts reach
)

// DefaultQuota is the size in bytes at which the embedded etcd refuses writes: the
// largest that etcd recommends. docs/operating/store.md calculates the limits of all
// records from it.
const DefaultQuota = 8 << 30

// quotaVariable is the environment variable with the quota of a child process, in
// bytes. It lets system tests fill a store in seconds.
const quotaVariable = "CLUSTERM_TEST_ETCD_QUOTA"

// ServerOptions configure the embedded server.
type ServerOptions struct {
	// Dir contains all files of the server. It is created with mode 0700.
	Dir string
	// Command is the argv of the child process, without its last argument Dir. If
	// empty, the server runs in this process.
	Command []string
	// Pause is the delay before a child process that exited by itself is restarted;
	// 0 means one second.
	Pause time.Duration
	// MustExist refuses a directory without data (ErrNoData).
	MustExist bool
	// NoSync disables fsync. For tests only: a power failure loses data.
	NoSync bool
	// Quota of a server in this process; 0: DefaultQuota. For tests. A child takes it
	// from the environment.
	Quota int64
	// SnapshotEntries of a server in this process; 0: as usual. For tests.
	SnapshotEntries uint64
	Log             logrus.FieldLogger

	recovering bool // by Recover
}

// Server is a running etcd: the only member of its cluster, or one of several.
type Server struct {
	opts ServerOptions
	lock *localfile.FileLock

	opening sync.Mutex // held by Open, and by a look at the members
	mu      sync.Mutex
	inside  *served            // nil if the server is a child process; guarded by mu
	stop    context.CancelFunc // ends the child process, which is started again; guarded by mu
	closed  bool               // guarded by mu

	cancel   context.CancelFunc
	tasks    sync.WaitGroup
	restarts atomic.Int64
	exit     atomic.Pointer[serverExit]
	hopeless context.Context // ends, with the reason as its cause, when a restart cannot help
	giveUp   context.CancelCauseFunc
	close    func() error
}

// serverExit is an exit of the child process by itself.
type serverExit struct {
	err error
	at  time.Time
}

func (o ServerOptions) socket(name string) string { return filepath.Join(o.Dir, name+".sock") }

// Endpoint returns the endpoint for clients.
func (s *Server) Endpoint() string { return Endpoint(s.opts.Dir) }

// Restarts returns how often the child process exited by itself.
func (s *Server) Restarts() int64 { return s.restarts.Load() }

// Ended returns the error with which the child process last exited by itself, or
// nil if it never did.
func (s *Server) Ended() error { return s.EndedSince(time.Time{}) }

// EndedSince returns the error with which the child process last exited by itself, or
// nil if it did not since the time.
func (s *Server) EndedSince(since time.Time) error {
	exit := s.exit.Load()
	if exit == nil || exit.at.Before(since) {
		return nil
	}
	return fmt.Errorf("the embedded etcd has exited: %w", exit.err)
}

// StartServer starts the server. An in-process server serves on return; a child
// process may need longer, and Dial waits for it. A directory that is not
// writable, or in use by another process for 15 s, is an error.
func StartServer(ctx context.Context, o ServerOptions) (*Server, error) {
	if p := o.socket("client"); len(p) > maxSocketPath {
		return nil, inventory.Errorf(inventory.KindInvalid,
			"the path %s is too long for a socket (%d bytes, the limit is %d)", p, len(p), maxSocketPath).
			Do("configure a shorter data_dir")
	}

	lock, err := LockDir(ctx, o.Dir, o.Log)
	if err != nil {
		return nil, err
	}

	//nolint:gosec // a directory needs its x bit
	if err := os.Chmod(o.Dir, 0o700); err != nil {
		lock.Close()

		return nil, inventory.Errorf(inventory.KindUnavailable,
			"the data directory %s cannot be closed to other accounts: %w", o.Dir, err).
			Do("run as root")
	}

	err = o.unrecovered()
	if err == nil {
		err = o.checkData(ctx)
	}

	if err == nil {
		err = o.prepareJoin(ctx)
	}

	if err != nil {
		lock.Close()
		return nil, err
	}

	s := &Server{opts: o, lock: lock}
	s.hopeless, s.giveUp = context.WithCancelCause(context.Background())
	s.close = sync.OnceValue(s.shutDown)

	if len(o.Command) == 0 {
		if err := s.serveInside(ctx); err != nil {
			lock.Close()
			return nil, err
		}

		return s, nil
	}

	// The server outlives ctx, which only bounds the start; Close cancels it.
	var running context.Context
	running, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.tasks.Go(func() { s.supervise(running) })

	return s, nil
}

// Dial connects to the server and the other voters of its cluster, waits up to a
// minute until one responds, and refuses data of another schema. It gives up early if
// the server finds damaged data, or has been removed from its cluster.
func (s *Server) Dial(ctx context.Context, prefix string) (*Client, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	stop := context.AfterFunc(s.hopeless, cancel)
	defer stop()

	client, err := s.dial(ctx, prefix)

	// The error of the server explains more than the timeout of its client.
	reason, ended := context.Cause(s.hopeless), s.Ended()

	switch {
	case err == nil:
		return client, nil
	case reason != nil && !errors.Is(reason, context.Canceled):
		return nil, reason
	case ended == nil:
		return nil, err
	}

	return nil, inventory.Errorf(inventory.KindUnavailable,
		"the embedded etcd did not start: %w", s.exit.Load().err).
		Do("if the disk is full, free some space; end other processes that use %s", s.opts.Dir)
}

// damage matches the last words of an etcd with an unreadable page in its database,
// which Inspect does not read. A database that cannot be opened for another reason,
// such as a lack of memory or a permission, is no damage.
var damage = regexp.MustCompile(
	`assertion failed|invalid (database|page|freelist)|checksum error|unexpected fault address|` +
		`page \d+: |cannot access page|failed to (read WAL|unmarshal)|` +
		`failed to (open database|recover v3 backend).*version mismatch`)

// LockDir creates the directory with mode 0700 if needed and locks it for this
// process until the returned lock is released. If another daemon has the lock,
// LockDir logs a warning and waits up to 15 s.
func LockDir(ctx context.Context, dir string, log logrus.FieldLogger) (*localfile.FileLock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, inventory.Errorf(inventory.KindUnavailable, "the data directory %s cannot be made: %w", dir, err).
			Do("run as root, or configure another data_dir")
	}

	lock, err := lockDir(ctx, dir, "lock", func() {
		log.Warnf("the data directory %s is in use by another clusterm; waiting for up to %s for it to end",
			dir, lockTimeout)
	})
	if err != nil {
		return nil, err
	}

	// A restore makes it before it looks at the lock.
	if _, err := os.Lstat(RestoringDir(dir)); err == nil {
		lock.Close()
		return nil, inventory.Errorf(inventory.KindRefused, "a restore runs, or did not come to its end: %s exists",
			RestoringDir(dir)).
			Do("repeat it: clusterm restore FILE; or, to go on with the former store, remove the folder")
	}

	return lock, nil
}

// RestoringDir is the directory of the server that a restore fills, and then renames to dir. While it exists, no
// daemon uses dir.
func RestoringDir(dir string) string { return dir + ".restoring" }

// Running reports whether a daemon uses the directory.
func Running(dir string) (bool, error) { return localfile.Locked(filepath.Join(dir, "lock")) }

// Endpoint returns the endpoint of the server in the directory.
func Endpoint(dir string) string { return "unix://" + ServerOptions{Dir: dir}.socket("client") }

// lockDir locks the named file in dir. It calls waiting once if it has to wait.
func lockDir(ctx context.Context, dir, name string, waiting func()) (*localfile.FileLock, error) {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()

	for {
		lock, err := localfile.TryLock(filepath.Join(dir, name))
		if err == nil {
			return lock, nil
		}

		if !errors.Is(err, localfile.ErrLocked) {
			return nil, inventory.Errorf(inventory.KindUnavailable,
				"the data directory %s is not writable: %w", dir, err).
				Do("check its owner, its mode and whether the file system is mounted read-only")
		}

		waiting()
		waiting = func() {}

		select {
		case <-ctx.Done():
			return nil, inventory.Errorf(inventory.KindUnavailable,
				"the data directory %s is in use by another clusterm", dir).
				Do("stop that one, or configure another data_dir")
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// supervise restarts the child process until ctx ends. The pause is constant:
// nothing works without the store, so a longer one would only prolong the outage.
func (s *Server) supervise(ctx context.Context) {
	for {
		child, stop := context.WithCancel(ctx)

		s.mu.Lock()
		s.stop = stop
		s.mu.Unlock()

		err := s.runChild(child)
		asked := child.Err() != nil

		stop()

		switch {
		case ctx.Err() != nil:
			return
		case asked:
			continue
		}

		s.exit.Store(&serverExit{err, time.Now()})

		if strings.Contains(err.Error(), removedWords) {
			s.end(removed(s.opts.Dir))
			return
		}

		s.restarts.Add(1)

		if damage.MatchString(err.Error()) {
			s.giveUp(damaged(s.opts.dataDir(), databaseFile, err))
		}

		s.opts.Log.WithError(err).Error("the embedded etcd has exited; restarting it")

		select {
		case <-ctx.Done():
			return
		case <-time.After(cmp.Or(s.opts.Pause, time.Second)):
		}

		// Other members may have come since. Without an answer, the child itself reports what it lacks.
		if err := s.opts.prepareJoin(ctx); inventory.KindOf(err) == inventory.KindRefused {
			s.end(err)
			return
		}
	}
}

// end gives up for good.
func (s *Server) end(reason error) {
	s.opts.Log.Error(reason)
	s.giveUp(reason)
}

// runChild runs the child process until it exits, and returns the reason. The child
// exits when its standard input closes, so it never outlives this process.
func (s *Server) runChild(ctx context.Context) error {
	argv := append(slices.Clone(s.opts.Command), s.opts.Dir)
	//nolint:gosec // it is this program
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)

	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	cmd.Cancel = stdin.Close
	cmd.WaitDelay = stopTimeout
	// A Ctrl-C at the terminal must reach the daemon only, which then stops the child.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}

	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w

	// relay sets lastError; Wait makes it visible here.
	var (
		relaying  sync.WaitGroup
		lastError string
	)

	relaying.Go(func() { lastError = relay(r, s.opts.Log) })

	err = cmd.Run()

	w.Close()
	relaying.Wait()

	if err == nil {
		err = errors.New("it exited by itself")
	}

	if lastError != "" {
		err = fmt.Errorf("%w: %.300s", err, lastError)
	}

	return err
}

// harmless lists warnings without relevance for a server that only this process can
// reach.
var harmless = []string{
	"Running http and grpc server on single port",
	"simple token is not cryptographically signed",
	// At the first start the term is not on disk yet; etcd retries.
	"missing term information",
}

// relay logs the child's lines at their level and returns the last error. It
// truncates lines that exceed its buffer, and logs the stack of a panic, which
// ends the output, at debug level.
func relay(r *io.PipeReader, log logrus.FieldLogger) (lastError string) {
	log = log.WithField("part", "etcd")
	inStack := false

	in := bufio.NewReaderSize(r, 16<<10)
	for {
		line, err := in.ReadSlice('\n')
		level, text, _ := strings.Cut(strings.TrimSpace(string(line)), "\t")

		inStack = inStack || strings.HasPrefix(level, "goroutine ") || level == "runtime stack:"

		switch {
		case inStack:
			log.Debug(strings.TrimSpace(string(line)))
		case level == "" || slices.ContainsFunc(harmless, func(s string) bool { return strings.Contains(text, s) }):
		case level == "warn":
			log.Warn(text)
		default:
			message := strings.TrimSpace(level + " " + text)

			// The line of a panic repeats the error before it with less detail.
			if lastError == "" || !strings.HasPrefix(message, "panic: ") {
				lastError = strings.ReplaceAll(message, "\t", " ")
			}

			log.Error(message)
		}

		// Skip the rest of a line that exceeds the buffer.
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = in.ReadSlice('\n')
		}

		if err != nil {
			r.CloseWithError(err)
			return lastError
		}
	}
}

// Close stops the server and releases the directory. Further calls return the same
// result.
func (s *Server) Close() error { return s.close() }

func (s *Server) shutDown() error {
	s.giveUp(nil)

	s.mu.Lock()
	s.closed = true
	inside := s.inside
	s.mu.Unlock()

	if inside != nil {
		inside.Close()
	}

	if s.cancel != nil {
		s.cancel()
	}

	s.tasks.Wait()

	return s.lock.Unlock()
}

// Main is the child process. It serves until its standard input closes, and returns
// the exit status of the process.
func Main(dir string) int {
	// The child of a daemon that was killed may still be shutting down, and would
	// remove the sockets of this one.
	lock, err := lockDir(context.Background(), dir, "child.lock", func() {})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer lock.Close()

	level := zap.NewAtomicLevelAt(zapcore.WarnLevel)

	// Without a number in it, the quota is the default.
	quota, _ := strconv.ParseInt(os.Getenv(quotaVariable), 10, 64)

	e, err := serve(context.Background(), ServerOptions{Dir: dir, Quota: quota}, level)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}

	parentGone := make(chan struct{})
	go func() {
		defer close(parentGone)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()

	select {
	case <-parentGone:
		level.SetLevel(zapcore.FatalLevel) // the listeners would log their end as errors
		e.Close()
		return 0
	case <-e.Server.StoppingNotify():
		fmt.Fprintln(os.Stderr, "error\t"+removedWords)
		return 1
	case err := <-e.Err():
		if stopping(e) {
			err = errors.New(removedWords)
		}

		fmt.Fprintln(os.Stderr, err)
		return 1
	}
}

// stopping reports whether etcd ends itself, which it does for one reason: its member was
// removed.
func stopping(e *served) bool {
	select {
	case <-e.Server.StoppingNotify():
		return true
	default:
		return false
	}
}

// awaitUnlocked waits until no process holds a lock on the files in dir, because
// etcd would exit instead of waiting. A process that was forked while a server ran
// here shares its locks until it executes its program, even after the server's end.
func awaitUnlocked(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
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

// anyLocked reports whether a file of etcd's write-ahead log is locked. It queries
// the lock instead of taking it, because its own lock could be shared in the same
// way. Errors are left to etcd to report.
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

// served is an etcd in this process.
type served struct {
	*embed.Etcd
	endStreams context.CancelFunc
}

// Close stops etcd. It first ends the watches, for whose end etcd would wait for several
// seconds, while it accepts no requests any more; their clients go on at another member.
func (e *served) Close() {
	e.endStreams()

	// etcd would wait for the end of listeners that only begin with a quorum.
	select {
	case <-e.Server.ReadyNotify():
	default:
		e.Server.HardStop()
	}

	e.Etcd.Close()
}

// endingStreams returns an interceptor that ends the streams of a server with ctx, with an
// error after which a client goes on elsewhere.
func endingStreams(ctx context.Context) grpc.StreamServerInterceptor {
	return func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		stream, cancel := context.WithCancel(s.Context())
		defer cancel()

		stop := context.AfterFunc(ctx, cancel)
		defer stop()

		err := handle(srv, endingStream{s, stream})
		if ctx.Err() != nil {
			return status.Error(codes.Unavailable, "this member of etcd is being stopped")
		}

		return err
	}
}

// endingStream is a stream with a context of its own.
type endingStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s endingStream) Context() context.Context { return s.ctx }

// answeringRemoved returns an interceptor for the questions about the state of a member. etcd looks itself up among
// the members for an answer, and panics where it was removed just now.
func answeringRemoved(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (
	resp any, err error,
) {
	if info.FullMethod != pb.Maintenance_Status_FullMethodName {
		return handle(ctx, req)
	}

	defer func() {
		if recover() != nil {
			resp, err = nil, status.Error(codes.Unavailable, removedWords)
		}
	}()

	return handle(ctx, req)
}

// serve starts etcd in this process and waits until it serves.
func serve(ctx context.Context, o ServerOptions, level zap.AtomicLevel) (*served, error) {
	cfg, err := o.serverConfig(level)
	if err != nil {
		return nil, err
	}

	// The sockets of a killed process remain, and etcd would not replace them.
	for _, u := range slices.Concat(cfg.ListenClientUrls, cfg.ListenClientHttpUrls, cfg.ListenPeerUrls) {
		if u.Scheme != "unix" {
			continue
		}

		if err := os.Remove(u.Path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}

	if err := awaitUnlocked(ctx, filepath.Join(cfg.Dir, "member", "wal")); err != nil {
		return nil, err
	}

	streams, endStreams := context.WithCancel(context.Background())
	cfg.GRPCAdditionalServerOptions = append(cfg.GRPCAdditionalServerOptions,
		grpc.ChainStreamInterceptor(endingStreams(streams)), grpc.ChainUnaryInterceptor(answeringRemoved))

	started, err := embed.StartEtcd(cfg)
	if err != nil {
		endStreams()

		return nil, inventory.Errorf(inventory.KindUnavailable, "the embedded etcd did not start: %w", err).
			Do("see its lines in the log; if they report damaged data, restore a backup of %s", o.Dir)
	}

	e := &served{started, endStreams}

	// One of several members waits for a quorum, for as long as that takes.
	if len(e.Server.Cluster().Members()) > 1 {
		return e, nil
	}

	timer := time.NewTimer(startTimeout)
	defer timer.Stop()

	select {
	case <-e.Server.ReadyNotify():
		if err = announce(ctx, started); err == nil {
			return e, nil
		}
	case err = <-e.Err():
	case <-timer.C:
		err = fmt.Errorf("it did not serve within %s", startTimeout)
	case <-ctx.Done():
		err = ctx.Err()
	}

	e.Close()

	return nil, inventory.Errorf(inventory.KindUnavailable, "the embedded etcd did not start: %w", err)
}

func (o ServerOptions) dataDir() string { return filepath.Join(o.Dir, "data") }

func (o ServerOptions) serverConfig(level zap.AtomicLevel) (*embed.Config, error) {
	at := func(name string) []url.URL { return []url.URL{{Scheme: "unix", Path: o.socket(name)}} }

	m, err := o.member()
	if err != nil {
		return nil, err
	}

	cfg := embed.NewConfig()
	cfg.Name = "clusterm"
	cfg.InitialClusterToken = rand.Text() // each store that is founded has an id of its own
	cfg.Dir = o.dataDir()
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = at("client"), at("client")
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = at("peer"), at("peer")
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = embed.CompactorModePeriodic, compactInterval
	cfg.QuotaBackendBytes, cfg.SnapshotCount = cmp.Or(o.Quota, DefaultQuota), cmp.Or(o.SnapshotEntries, snapshotEntries)
	cfg.MaxRequestBytes, cfg.UnsafeNoFsync = maxRequestSize, o.NoSync

	// The passwords of tests are no secrets, and a token must not take seconds under the race detector.
	if o.NoSync {
		cfg.BcryptCost = 4 // the least that there is
	}

	cfg.GRPCAdditionalServerOptions = []grpc.ServerOption{
		grpc.StaticStreamWindowSize(window), grpc.StaticConnWindowSize(window),
	}

	// A restarted single member elects itself after this time. The defaults, made for
	// a network between members, would only delay it.
	cfg.TickMs, cfg.ElectionMs = 25, 250

	encoder := zapcore.NewConsoleEncoder(
		zapcore.EncoderConfig{MessageKey: "m", LevelKey: "l", EncodeLevel: zapcore.LowercaseLevelEncoder},
	)
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.New(zapcore.NewCore(encoder, zapcore.Lock(os.Stderr), level)))

	cfg.MaxLearners = MaxMembers - 1

	if m == nil {
		return cfg, nil
	}

	cfg.Name = m.Name
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{*m.peerURL()}, []url.URL{*m.peerURL()}
	cfg.ListenClientUrls = append(cfg.ListenClientUrls, *m.clientURL())
	cfg.AdvertiseClientUrls = []url.URL{*m.clientURL()}
	cfg.ClientTLSInfo, cfg.PeerTLSInfo = m.tlsInfo(), m.tlsInfo()

	// With HTTP on a listener of its own, the others speak plain gRPC. Through the HTTP
	// server, gRPC ignores the options above, and a shutdown waits for idle connections.
	cfg.ListenClientHttpUrls = at("http")
	cfg.EnableGRPCGateway = false

	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	if len(m.InitialCluster) > 0 {
		cfg.InitialCluster, cfg.ClusterState = m.initialCluster(), embed.ClusterStateFlagExisting
	}

	// Between hosts, a pause of a process must not cost the leadership. A server that was
	// opened is about to have others, and cannot change these at run time.
	cfg.TickMs, cfg.ElectionMs = lanTick, lanElection

	return cfg, nil
}
