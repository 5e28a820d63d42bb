// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
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
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/contiv/cluster/inventory"
)

// The test binary is also the etcd inside, and processes that end at once.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 {
		switch os.Args[1] {
		case "etcd":
			os.Exit(Main(os.Args[2]))
		case "says-much-and-ends":
			os.Stderr.WriteString(
				"warn\tsomething is odd\n\nwarn\t" + expected[0] + "\nerror\tit is broken\n" + strings.Repeat(
					"x",
					100_000,
				) + "\n",
			)
			os.Exit(1)
		}
	}

	waitTogether()
	os.Exit(m.Run())
}

// waitTogether has more tests wait at a time than there are processors, unless
// the command line says otherwise.
func waitTogether() {
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
}

// dir is a folder whose sockets have a short path.
func dir(t *testing.T) string {
	t.Helper()

	d, err := os.MkdirTemp("", "cm")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { os.RemoveAll(d) })

	return d
}

// patience bounds every wait; one that is fulfilled ends at once.
const patience = time.Minute

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)

	return ctx
}

// lines is a logger whose lines can be waited for.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func newLines() (*lines, *logrus.Logger) {
	l := &lines{more: make(chan struct{}, 1)}
	log := logrus.New()
	log.SetOutput(l)

	return l, log
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	select {
	case l.more <- struct{}{}:
	default:
	}

	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.text.String()
}

func (l *lines) await(t *testing.T, ctx context.Context, words string) {
	t.Helper()

	for !strings.Contains(l.String(), words) {
		select {
		case <-l.more:
		case <-ctx.Done():
			t.Fatalf("%q was not logged:\n%s", words, l)
		}
	}
}

func start(t *testing.T, o ServerOptions) *Server {
	t.Helper()

	if o.Log == nil {
		log := logrus.New()
		log.SetOutput(io.Discard)
		o.Log = log
	}

	s, err := StartServer(within(t, patience), o)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { s.Close() })

	return s
}

func dial(t *testing.T, s *Server, prefix string) *Client {
	t.Helper()

	c, err := Dial(within(t, patience), prefix, s.Endpoint())
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { c.Close() })

	return c
}

// TestServer starts the server in both forms, and again on what it left.
func TestServer(t *testing.T) {
	for name, command := range map[string][]string{"in this process": nil, "as a child": {os.Args[0], "etcd"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			o := ServerOptions{Dir: filepath.Join(dir(t), "deep", "etcd"), Command: command, NoSync: true}
			for i := range 2 {
				s := start(t, o)
				c := dial(t, s, "/t")

				got, err := c.Get(within(t, patience), "/t/key")
				if err != nil || len(got.Kvs) != i {
					t.Fatalf("start %d: %v, %v", i, got, err)
				}

				if _, err := c.Put(within(t, patience), "/t/key", "value"); err != nil {
					t.Fatal(err)
				}

				if err := errors.Join(c.Close(), s.Close()); err != nil {
					t.Fatal(err)
				}
			}

			if info, err := os.Stat(o.Dir); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("others may look into it: %v, %v", info.Mode(), err)
			}
		})
	}
}

// TestServerWhoseFilesAreShared: a process that was started while a server ran
// shares its locks until it executes its program; the next server waits for that.
func TestServerWhoseFilesAreShared(t *testing.T) {
	t.Parallel()

	o := ServerOptions{Dir: dir(t), NoSync: true}
	if err := start(t, o).Close(); err != nil {
		t.Fatal(err)
	}

	wal := filepath.Join(o.Dir, "data", "member", "wal")

	files, err := filepath.Glob(filepath.Join(wal, "*.wal"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}

	shared, err := os.OpenFile(files[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()

	if err := unix.FcntlFlock(
		shared.Fd(),
		unix.F_OFD_SETLK,
		&unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart},
	); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()

	if err := awaitFree(ctx, wal); err == nil || !strings.Contains(err.Error(), "locked") {
		t.Fatalf("the lock is not seen: %v", err)
	}

	free := make(chan error, 1)
	go func() { free <- awaitFree(t.Context(), wal) }()
	shared.Close()

	if err := <-free; err != nil {
		t.Fatal(err)
	}

	start(t, o)
}

// TestChildIsKilled: the server comes back by itself, with everything.
func TestChildIsKilled(t *testing.T) {
	t.Parallel()
	d := dir(t)
	pidfile := filepath.Join(d, "pid")
	log, logger := newLines()
	s := start(t, ServerOptions{Dir: filepath.Join(d, "e"), Pause: 50 * time.Millisecond, Log: logger,
		Command: []string{"/bin/sh", "-c", `echo $$ >"$0"; exec "$@"`, pidfile, os.Args[0], "etcd"}})
	c := dial(t, s, "/t")

	ctx := within(t, patience)
	if _, err := c.Put(ctx, "/t/key", "value"); err != nil {
		t.Fatal(err)
	}

	pid, err := os.ReadFile(pidfile)
	if err != nil {
		t.Fatal(err)
	}

	if out, err := exec.Command("kill", "-KILL", strings.TrimSpace(string(pid))).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	log.await(t, ctx, "starting it again")

	for {
		got, err := c.Get(ctx, "/t/key")
		if err == nil {
			if len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "value" || s.Restarts() != 1 {
				t.Fatalf("%v after %d restarts", got.Kvs, s.Restarts())
			}

			return
		}

		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// TestChildrenWords: what a child says is passed on at its level, and no line is
// too long for that.
func TestChildrenWords(t *testing.T) {
	t.Parallel()
	log, logger := newLines()
	s := start(t, ServerOptions{Dir: dir(t), Command: []string{os.Args[0], "says-much-and-ends"}, Log: logger})
	log.await(t, within(t, patience), "starting it again")

	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	for _, want := range []string{`level=warning msg="something is odd"`, `level=error msg="error it is broken"`, `part=etcd`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %s in:\n%.2000s", want, log)
		}
	}

	if strings.Contains(log.String(), expected[0]) {
		t.Errorf("a warning that says nothing was passed on")
	}
}

func TestServerRefuses(t *testing.T) {
	t.Parallel()
	log := logrus.New()
	log.SetOutput(io.Discard)

	file := filepath.Join(dir(t), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	used := ServerOptions{Dir: dir(t), NoSync: true}
	start(t, used)

	for _, tt := range []struct {
		name, dir string
		kind      inventory.Kind
		says      string
	}{
		{"a folder below a file", filepath.Join(file, "etcd"), inventory.KindUnavailable, "cannot be made"},
		{"a path that is too long for a socket", filepath.Join(dir(t), strings.Repeat("x", 100)), inventory.KindInvalid, "configure a shorter data_dir"},
		{"a folder in use", used.Dir, inventory.KindUnavailable, "in use by another clusterm"},
	} {
		limit := patience
		if tt.dir == used.Dir {
			limit = 500 * time.Millisecond // whoever has it could be about to end
		}

		_, err := StartServer(within(t, limit), ServerOptions{Dir: tt.dir, NoSync: true, Log: log})
		if inventory.KindOf(err) != tt.kind || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// TestDamaged: etcd ends its process over a damaged database. That is a child,
// and what it says is in the log.
func TestDamaged(t *testing.T) {
	t.Parallel()

	damaged := dir(t)
	if err := os.MkdirAll(filepath.Join(damaged, "data", "member", "snap"), 0o700); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(
		filepath.Join(damaged, "data", "member", "snap", "db"),
		bytes.Repeat([]byte("damage"), 10_000),
		0o600,
	); err != nil {
		t.Fatal(err)
	}

	log, logger := newLines()
	s := start(t, ServerOptions{Dir: damaged, Command: []string{os.Args[0], "etcd"}, Log: logger})
	ctx := within(t, patience)
	log.await(t, ctx, "invalid database")
	log.await(t, ctx, "starting it again")

	if err := s.Ended(); err == nil ||
		!strings.Contains(err.Error(), `exit status 2: panic failed to open database {`) ||
		!strings.Contains(err.Error(), "invalid database") {
		t.Errorf("why it ended: %v", err)
	}

	if strings.Contains(log.String(), "goroutine ") || strings.Contains(log.String(), ".go:") {
		t.Errorf("the stack is in the log:\n%s", log)
	}
}

// TestNotWritable: a file system that is mounted read-only is a refusal.
func TestNotWritable(t *testing.T) {
	t.Parallel()

	d := dir(t)
	if err := os.Chmod(d, 0o500); err != nil {
		t.Fatal(err)
	}

	err := syscall.Access(d, 2)
	if os.Geteuid() == 0 || err == nil {
		t.Skip("whoever runs this may write everywhere")
	}

	if _, err := StartServer(
		within(t, patience),
		ServerOptions{Dir: d},
	); inventory.KindOf(
		err,
	) != inventory.KindUnavailable {
		t.Errorf("%v", err)
	}
}

// TestLockIsWaitedFor: a daemon that is just ending lets the next one in.
func TestLockIsWaitedFor(t *testing.T) {
	t.Parallel()
	d := dir(t)

	first, err := lockDir(within(t, patience), d, "lock", func() {})
	if err != nil {
		t.Fatal(err)
	}

	got := make(chan error, 1)
	go func() {
		second, err := lockDir(within(t, patience), d, "lock", func() {})
		if err == nil {
			err = second.Close()
		}

		got <- err
	}()

	if err := first.Close(); err != nil {
		t.Fatal(err)
	}

	if err := <-got; err != nil {
		t.Error(err)
	}
}

func TestSchema(t *testing.T) {
	t.Parallel()
	s := start(t, ServerOptions{Dir: dir(t), NoSync: true})
	ctx := within(t, patience)
	c := dial(t, s, "/t")
	dial(t, s, "/t") // the same version again

	if _, err := c.Put(ctx, "/t/schema", "2"); err != nil {
		t.Fatal(err)
	}

	_, err := Dial(ctx, "/t", s.Endpoint())
	if inventory.KindOf(err) != inventory.KindRefused ||
		!strings.Contains(err.Error(), "version 2, this clusterm knows version 1") ||
		!strings.Contains(err.Error(), "newer one") {
		t.Errorf("%v", err)
	}

	dial(t, s, "/elsewhere") // another prefix is another cluster
}

func TestDialNobody(t *testing.T) {
	t.Parallel()

	_, err := Dial(within(t, 300*time.Millisecond), "/t", "unix://"+filepath.Join(dir(t), "client.sock"))
	if inventory.KindOf(err) != inventory.KindUnavailable {
		t.Errorf("%v", err)
	}
}

func TestErrors(t *testing.T) {
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

	if err := Error(
		context.Canceled,
	); !errors.Is(err, context.Canceled) ||
		inventory.KindOf(err) != inventory.KindInternal {
		t.Errorf("the caller's own end: %v", err)
	}
}

// TestTooLarge: a record that the store does not take says so.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	c := dial(t, start(t, ServerOptions{Dir: dir(t), NoSync: true}), "/t")

	_, err := c.Put(within(t, patience), "/t/key", strings.Repeat("x", 5<<20))
	if err = Error(err); inventory.KindOf(err) != inventory.KindTooLarge {
		t.Errorf("%v", err)
	}
}

// TestPutNode: the history is bounded, and a record that changed is left alone.
func TestPutNode(t *testing.T) {
	t.Parallel()
	c := dial(t, start(t, ServerOptions{Dir: dir(t), NoSync: true}), "/t")
	ctx := within(t, patience)
	commit := func(ops Ops, err error) int64 {
		t.Helper()

		if err != nil {
			t.Fatal(err)
		}

		resp, err := c.Txn(ctx).If(ops.If...).Then(ops.Then...).Commit()
		if err != nil {
			t.Fatal(err)
		}

		if !resp.Succeeded {
			return 0
		}

		return resp.Header.Revision
	}

	n := inventory.Node{Name: "a-1"}
	for seq := uint64(0); seq < inventory.HistoryLimit+5; {
		var entries []inventory.HistoryEntry
		for range 15 {
			seq++
			entries = append(entries, inventory.HistoryEntry{Seq: seq})
		}

		if n.Revision = commit(c.PutNode(n, entries)); n.Revision == 0 {
			t.Fatalf("entry %d conflicts", seq)
		}
	}

	kept, err := c.Get(ctx, c.HistoryPrefix("a-1"), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil || len(kept.Kvs) != inventory.HistoryLimit || string(kept.Kvs[0].Key) != c.HistoryKey("a-1", 6) {
		t.Errorf("%d entries are kept, %v", len(kept.Kvs), err)
	}

	old := n

	old.Revision--
	if commit(c.PutNode(old, nil)) != 0 || commit(c.DeleteNode(old), nil) != 0 ||
		commit(c.PutNode(inventory.Node{Name: "a-1"}, nil)) != 0 {
		t.Error("a write on an old revision was taken")
	}

	if commit(c.PutNode(inventory.Node{Name: "a-10"}, []inventory.HistoryEntry{{Seq: 1}})) == 0 ||
		commit(c.DeleteNode(n), nil) == 0 {
		t.Error("conflicts with nobody")
	}

	left, err := c.Get(ctx, "/t/", clientv3.WithPrefix(), clientv3.WithKeysOnly())

	var keys []string
	for _, kv := range left.Kvs {
		keys = append(keys, string(kv.Key))
	}

	if want := "/t/schema /t/v/nodes/a-10 /t/x/history/a-10/0000000000000001"; err != nil ||
		strings.Join(keys, " ") != want {
		t.Errorf("left are %v, %v", keys, err)
	}
}
