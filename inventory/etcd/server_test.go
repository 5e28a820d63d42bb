// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

// The test binary doubles as the embedded etcd, and as a child that exits at once.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 {
		switch os.Args[1] {
		case "etcd":
			wal.SegmentSizeBytes = 1 << 20
			os.Exit(Main(os.Args[2]))
		case "log-and-exit":
			longLine := strings.Repeat("x", 100_000)
			os.Stderr.WriteString("warn\tsomething is odd\n\n" +
				"warn\t" + harmless[0] + "\n" +
				"error\tit is broken\n" +
				longLine + "\n")
			os.Exit(1)
		}
	}

	wal.SegmentSizeBytes = 1 << 20 // of 64 MiB, which are taken in advance

	// These tests mostly wait, so run more of them in parallel than there are
	// processors. The command line is parsed later and takes precedence.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}

	os.Exit(m.Run())
}

// shortDir returns a temporary directory with a path short enough for sockets.
func shortDir(t *testing.T) string {
	t.Helper()

	d, err := os.MkdirTemp("", "cm")
	errtest.None(t, err)
	t.Cleanup(func() { os.RemoveAll(d) })
	return d
}

// testTimeout bounds every wait. It only matters for a test that fails.
const testTimeout = time.Minute * slowness

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// logBuffer collects the lines of a logger and can wait for them.
type logBuffer struct {
	mu    sync.Mutex
	text  bytes.Buffer
	wrote chan struct{}
}

func newLogBuffer() (*logBuffer, *logrus.Logger) {
	l := &logBuffer{wrote: make(chan struct{}, 1)}
	log := logrus.New()
	log.SetOutput(l)
	return l, log
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	select {
	case l.wrote <- struct{}{}:
	default:
	}

	return l.text.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logBuffer) await(ctx context.Context, t *testing.T, text string) {
	t.Helper()

	for !strings.Contains(l.String(), text) {
		select {
		case <-l.wrote:
		case <-ctx.Done():
			t.Fatalf("%q was not logged:\n%s", text, l)
		}
	}
}

func discardLog() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

func start(t *testing.T, o ServerOptions) *Server {
	t.Helper()

	if o.Log == nil {
		o.Log = discardLog()
	}

	s, err := StartServer(within(t, testTimeout), o)
	errtest.None(t, err)
	t.Cleanup(func() { s.Close() })

	return s
}

func dial(t *testing.T, s *Server, prefix string) *Client {
	t.Helper()

	c, err := Dial(within(t, testTimeout), prefix, s.Endpoint())
	errtest.None(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// TestServer starts the server in both forms, and once more on its data.
func TestServer(t *testing.T) {
	for name, command := range map[string][]string{"in this process": nil, "as a child": {os.Args[0], "etcd"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			o := ServerOptions{Dir: filepath.Join(shortDir(t), "deep", "etcd"), Command: command, NoSync: true}
			for i := range 2 {
				s := start(t, o)
				c := dial(t, s, "/t")

				got, err := c.Get(within(t, testTimeout), "/t/key")
				if err != nil || len(got.Kvs) != i {
					t.Fatalf("start %d: got %v, %v, want %d keys", i, got, err, i)
				}

				if _, err := c.Put(within(t, testTimeout), "/t/key", "value"); err != nil {
					t.Fatal(err)
				}

				errtest.None(t, errors.Join(c.Close(), s.Close()))
			}

			if info, err := os.Stat(o.Dir); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("the directory has mode %v, %v, want 0700", info.Mode(), err)
			}
		})
	}
}

// TestQuotaOfAChild: a child process takes its quota from the environment.
func TestQuotaOfAChild(t *testing.T) {
	t.Parallel()

	for value, want := range map[string]int64{"1048576": 1 << 20, "": DefaultQuota} {
		command := []string{"env", quotaVariable + "=" + value, os.Args[0], "etcd"}
		s := start(t, ServerOptions{Dir: shortDir(t), Command: command, NoSync: true})

		if got := dial(t, s, "/t").Spaces(within(t, testTimeout))[0]; got.Quota != want {
			t.Errorf("%q: the quota is %d, want %d: %v", value, got.Quota, want, got.Err)
		}
	}
}

// TestServerWaitsForSharedLocks simulates a process that was forked while a server
// ran and shares its locks until it executes its program.
func TestServerWaitsForSharedLocks(t *testing.T) {
	t.Parallel()

	o := ServerOptions{Dir: shortDir(t), NoSync: true}
	errtest.None(t, start(t, o).Close())
	wal := filepath.Join(o.Dir, "data", "member", "wal")

	files, err := filepath.Glob(filepath.Join(wal, "*.wal"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	shared, err := os.OpenFile(files[0], os.O_RDWR, 0)
	errtest.None(t, err)
	defer shared.Close()

	// A process that another test forks may still share the lock of the server.
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	for unix.FcntlFlock(shared.Fd(), unix.F_OFD_SETLK, &lock) != nil {
		errtest.None(t, awaitUnlocked(within(t, testTimeout), wal))
	}

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()

	if err := awaitUnlocked(ctx, wal); err == nil || !strings.Contains(err.Error(), "locked") {
		t.Fatalf("got %v, want an error about the lock", err)
	}

	unlocked := make(chan error, 1)
	go func() { unlocked <- awaitUnlocked(t.Context(), wal) }()

	shared.Close()

	errtest.None(t, <-unlocked)

	start(t, o)
}

// TestKilledChildIsRestarted kills the child process and expects it back with its
// data.
func TestKilledChildIsRestarted(t *testing.T) {
	t.Parallel()

	d := shortDir(t)
	pidfile := filepath.Join(d, "pid")
	log, logger := newLogBuffer()
	s := start(t, ServerOptions{Dir: filepath.Join(d, "e"), Pause: 50 * time.Millisecond, Log: logger,
		Command: []string{"/bin/sh", "-c", `echo $$ >"$0"; exec "$@"`, pidfile, os.Args[0], "etcd"}})
	c := dial(t, s, "/t")

	ctx := within(t, testTimeout)
	if _, err := c.Put(ctx, "/t/key", "value"); err != nil {
		t.Fatal(err)
	}

	pid, err := os.ReadFile(pidfile)
	errtest.None(t, err)
	if out, err := exec.Command("kill", "-KILL", strings.TrimSpace(string(pid))).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	log.await(ctx, t, "restarting it")

	for {
		got, err := c.Get(ctx, "/t/key")
		if err == nil {
			if len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "value" || s.Restarts() != 1 {
				t.Fatalf("got %v after %d restarts, want the value after one", got.Kvs, s.Restarts())
			}
			return
		}

		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// TestRelay checks that the child's lines keep their level, whatever their length.
func TestRelay(t *testing.T) {
	t.Parallel()

	log, logger := newLogBuffer()
	s := start(t, ServerOptions{Dir: shortDir(t), Command: []string{os.Args[0], "log-and-exit"}, Log: logger})
	log.await(within(t, testTimeout), t, "restarting it")

	errtest.None(t, s.Close())

	for _, want := range []string{
		`level=warning msg="something is odd"`,
		`level=error msg="error it is broken"`,
		`part=etcd`,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%s is not logged:\n%.2000s", want, log)
		}
	}

	if strings.Contains(log.String(), harmless[0]) {
		t.Errorf("the harmless warning %q is logged", harmless[0])
	}
}

// TestDamageIsProven checks the last words of an etcd: only proof of damage leads to the
// advice to restore a backup.
func TestDamageIsProven(t *testing.T) {
	t.Parallel()

	for words, want := range map[string]bool{
		`panic failed to open database {"path": "/d/db", "error": "invalid database"}`:       true,
		`panic failed to open database {"path": "/d/db", "error": "checksum error"}`:         true,
		`panic failed to open database {"path": "/d/db", "error": "version mismatch"}`:       true,
		`panic failed to open database {"path": "/d/db", "error": "cannot allocate memory"}`: false,
		`panic failed to open database {"path": "/d/db", "error": "permission denied"}`:      false,
		`panic failed to open database {"path": "/d/db", "error": "too many open files"}`:    false,
		`fatal failed to recover v3 backend from snapshot {"error": "no space left"}`:        false,
		`panic: assertion failed: Page expected to be: 7, but self identifies as 0`:          true,
	} {
		if got := damage.MatchString(words); got != want {
			t.Errorf("%s: damage %t, want %t", words, got, want)
		}
	}
}

func TestServerRefuses(t *testing.T) {
	t.Parallel()

	file := filepath.Join(shortDir(t), "file")
	errtest.None(t, os.WriteFile(file, nil, 0o600))

	used := ServerOptions{Dir: shortDir(t), NoSync: true}
	start(t, used)

	longPath := filepath.Join(shortDir(t), strings.Repeat("x", 100))

	for _, tt := range []struct {
		name, dir string
		kind      inventory.Kind
		want      string
	}{
		{"a directory below a file", filepath.Join(file, "etcd"), inventory.KindUnavailable, "cannot be made"},
		{"a path too long for a socket", longPath, inventory.KindInvalid, "configure a shorter data_dir"},
		{"a directory in use", used.Dir, inventory.KindUnavailable, "in use by another clusterm"},
	} {
		limit := testTimeout
		if tt.dir == used.Dir {
			limit = 500 * time.Millisecond // StartServer waits for the lock
		}
		_, err := StartServer(within(t, limit), ServerOptions{Dir: tt.dir, NoSync: true, Log: discardLog()})
		if inventory.KindOf(err) != tt.kind || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want a %s error with %q", tt.name, err, tt.kind, tt.want)
		}
	}
}

func TestDirectoryNotWritable(t *testing.T) {
	t.Parallel()

	d := shortDir(t)
	errtest.None(t, os.Chmod(d, 0o500))
	if os.Geteuid() == 0 || syscall.Access(d, unix.W_OK) == nil {
		t.Skip("this account may write everywhere")
	}

	_, err := StartServer(within(t, testTimeout), ServerOptions{Dir: d})
	if inventory.KindOf(err) != inventory.KindUnavailable {
		t.Errorf("got %v, want an unavailable error", err)
	}
}

// TestLockDirWaits releases the lock while another caller waits for it.
func TestLockDirWaits(t *testing.T) {
	t.Parallel()

	d := shortDir(t)

	first, err := lockDir(within(t, testTimeout), d, "lock", func() {})
	errtest.None(t, err)

	got := make(chan error, 1)
	go func() {
		second, err := lockDir(within(t, testTimeout), d, "lock", func() {})
		if err == nil {
			err = second.Close()
		}

		got <- err
	}()

	errtest.None(t, first.Close())

	if err := <-got; err != nil {
		t.Error(err)
	}
}

// TestSchema opens data of several versions, and raises the former one.
func TestSchema(t *testing.T) {
	t.Parallel()

	s := start(t, ServerOptions{Dir: shortDir(t), NoSync: true})
	admin := dial(t, s, "/admin")

	for stored, readable := range map[string]bool{"1": false, "2": true, "3": true, "4": false, "x": false} {
		prefix := "/v" + stored
		if _, err := admin.Put(within(t, testTimeout), prefix+"/schema", stored); err != nil {
			t.Fatal(err)
		}
		c, err := s.Dial(within(t, testTimeout), prefix)

		switch {
		case readable && err == nil:
			t.Cleanup(func() { _ = c.Close() })
			wantRaised(t, c, stored != Schema)
		case readable:
			t.Errorf("version %s: %v", stored, err)
		case err == nil:
			t.Cleanup(func() { _ = c.Close() })
			t.Errorf("version %s was opened", stored)
		default:
			wantRefusedSchema(t, err, stored)
		}

		if resp, err := admin.Get(within(t, testTimeout), prefix+"/schema"); err != nil ||
			string(resp.Kvs[0].Value) != stored {
			t.Errorf("version %s: opening it stored %v, %v", stored, resp, err)
		}
	}

	dial(t, s, "/elsewhere") // another prefix is another cluster
}

func wantRefusedSchema(t *testing.T, err error, stored string) {
	t.Helper()

	want := "the stored data has version " + stored + ", this clusterm supports version " + Schema
	remedy := map[string]string{"1": "upgrade step by step: first start a version of clusterm that supports version 2"}
	if inventory.KindOf(err) != inventory.KindRefused || !strings.Contains(err.Error(), want) ||
		!strings.Contains(err.Error(), cmp.Or(remedy[stored], "or a newer one")) {
		t.Errorf("version %s: %v", stored, err)
	}
}

// wantRaised expects the operations of a client that has just connected. They are not carried
// out.
func wantRaised(t *testing.T, c *Client, raised bool) {
	t.Helper()

	ops, upgraded, err := c.SchemaOps(within(t, testTimeout))
	if err != nil || upgraded != raised || len(ops.If) != 1 || len(ops.Then) != map[bool]int{true: 1}[raised] {
		t.Errorf("%s: %+v, %v, %v", c.Prefix, ops, upgraded, err)
	}
}

func TestDialWithoutServer(t *testing.T) {
	t.Parallel()

	_, err := Dial(within(t, 300*time.Millisecond), "/t", "unix://"+filepath.Join(shortDir(t), "client.sock"))
	if inventory.KindOf(err) != inventory.KindUnavailable {
		t.Errorf("got %v, want an unavailable error", err)
	}
}

func TestError(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		err  error
		kind inventory.Kind
	}{
		{nil, ""},
		{rpctypes.ErrCompacted, inventory.KindConflict},
		{rpctypes.ErrFutureRev, inventory.KindConflict},
		{rpctypes.ErrRequestTooLarge, inventory.KindTooLarge},
		{status.Error(codes.ResourceExhausted, "trying to send message larger than max"), inventory.KindTooLarge},
		{rpctypes.ErrNoSpace, inventory.KindUnavailable},
		{rpctypes.ErrTooManyOps, inventory.KindTooLarge},
		{rpctypes.ErrNoLeader, inventory.KindUnavailable},
		{rpctypes.ErrTimeout, inventory.KindUnavailable},
		{context.DeadlineExceeded, inventory.KindUnavailable},
		{status.Error(codes.Unavailable, "connection refused"), inventory.KindUnavailable},
	} {
		if got := inventory.KindOf(Error(tt.err)); got != tt.kind {
			t.Errorf("%v is %q, want %q", tt.err, got, tt.kind)
		}
	}

	err := Error(context.Canceled)
	if !errors.Is(err, context.Canceled) || inventory.KindOf(err) != inventory.KindInternal {
		t.Errorf("got %v, want context.Canceled unchanged", err)
	}
}

func TestRecordTooLarge(t *testing.T) {
	t.Parallel()

	c := dial(t, start(t, ServerOptions{Dir: shortDir(t), NoSync: true}), "/t")

	_, err := c.Put(within(t, testTimeout), "/t/key", strings.Repeat("x", 5<<20))
	if err = Error(err); inventory.KindOf(err) != inventory.KindTooLarge {
		t.Errorf("got %v, want a too-large error", err)
	}
}
