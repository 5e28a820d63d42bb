// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
)

// instance is a server that counts what it gets.
type instance struct {
	*httptest.Server
	mu       sync.Mutex
	requests []*http.Request
}

// start begins an instance.
func start(t *testing.T, answer http.HandlerFunc) *instance {
	t.Helper()

	s := &instance{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)

		s.mu.Lock()
		s.requests = append(s.requests, r)
		s.mu.Unlock()

		answer(w, r)
	}))
	t.Cleanup(s.Close)

	return s
}

// got returns the requests so far.
func (s *instance) got() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()

	return slices.Clone(s.requests)
}

func ok(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", api.TypeJSON)
	_, _ = io.WriteString(w, `{}`)
}

func fails(status int, kind inventory.Kind) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", api.TypeProblem)
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"type":"%s%s","detail":"the instance says no"}`, api.ProblemBase, kind)
	}
}

func dies(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

const refused = "http://127.0.0.1:1"

// silent returns the URL of a listener that no longer takes connections, as a host that is down.
func silent(t *testing.T) string {
	t.Helper()

	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	errtest.None(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	errtest.None(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	errtest.None(t, unix.Listen(fd, 0))

	at, err := unix.Getsockname(fd)
	errtest.None(t, err)

	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(at.(*unix.SockaddrInet4).Port))

	// Its queue is full once a connection gets no answer.
	for range 16 {
		c, err := net.DialTimeout("tcp", addr, 200*time.Millisecond)
		if err != nil {
			return "http://" + addr
		}
		t.Cleanup(func() { _ = c.Close() })
	}

	t.Fatal("the listener takes any number of connections")

	return ""
}

func connect(t *testing.T, urls ...string) *Client {
	t.Helper()

	c, err := New(Options{URL: strings.Join(urls, ","), Patience: -1})
	errtest.None(t, err)

	return c
}

// TestFailover: a call goes to the second instance if the first one cannot have carried it out, if it has a key, or if
// it may be carried out again. Nothing else is sent twice.
func TestFailover(t *testing.T) {
	t.Parallel()

	rack := "r1"
	patch := api.NodePatch{Labels: map[string]*string{"rack": &rack}}

	calls := []struct {
		name   string
		repeat bool
		keyed  bool
		do     func(context.Context, *Client) error
	}{
		{"get", true, false, func(ctx context.Context, c *Client) error { _, err := c.Node(ctx, "a-1"); return err }},
		{"patch", true, true, func(ctx context.Context, c *Client) error {
			_, err := c.PatchNode(ctx, "a-1", patch)
			return err
		}},
		{"submit", true, true, func(ctx context.Context, c *Client) error {
			_, err := c.Submit(ctx, api.JobRequest{})
			return err
		}},
		{"observe", true, false, func(ctx context.Context, c *Client) error {
			_, err := c.Observe(ctx, api.Report{})
			return err
		}},
		{"conditional patch", true, true, func(ctx context.Context, c *Client) error {
			_, err := c.IfMatch(Tag(7)).PatchNode(ctx, "a-1", patch)
			return err
		}},
		{"post", true, true, func(ctx context.Context, c *Client) error {
			_, err := c.CreateToken(ctx, api.TokenRequest{})
			return err
		}},
		{"delete", true, true, func(ctx context.Context, c *Client) error {
			_, err := c.RevokeToken(ctx, "ci")
			return err
		}},
		{"import", false, false, func(ctx context.Context, c *Client) error {
			_, err := c.Import(ctx, api.Import{})
			return err
		}},
	}

	for _, tt := range []struct {
		name    string
		first   func(*testing.T) string
		answer  http.HandlerFunc // of the first one, instead
		repeats bool             // goes on with calls that may be repeated
		always  bool             // goes on with each call
		problem string           // in the errors of the others
		kind    inventory.Kind   // of these errors
	}{
		{name: "refused", first: func(*testing.T) string { return refused }, always: true},
		{name: "silent", first: silent, always: true},
		{
			name: "503", answer: fails(503, inventory.KindUnavailable), repeats: true,
			problem: "the instance says no", kind: inventory.KindUnavailable,
		},
		{name: "dies", answer: dies, repeats: true, problem: "is unknown", kind: inventory.KindUnavailable},
		{
			name: "404", answer: fails(404, inventory.KindNotFound),
			problem: "the instance says no", kind: inventory.KindNotFound,
		},
	} {
		for _, call := range calls {
			t.Run(tt.name+"/"+call.name, func(t *testing.T) {
				t.Parallel()

				second := start(t, ok)

				first, asked := &instance{}, 0

				var at string
				if tt.answer != nil {
					first = start(t, tt.answer)
					at, asked = first.URL, 1
				} else {
					at = tt.first(t)
				}

				goesOn := tt.always || tt.repeats && call.repeat
				served := 0
				if goesOn {
					served = 1
				}

				c := connect(t, at, second.URL)

				err := call.do(t.Context(), c)
				if goesOn {
					errtest.None(t, err)
				} else if inventory.KindOf(err) != tt.kind || !strings.Contains(err.Error(), tt.problem) {
					t.Errorf("%v, want %q", err, tt.problem)
				}

				if n, m := len(first.got()), len(second.got()); n != asked || m != served {
					t.Fatalf("the instances got %d and %d requests, want %d and %d", n, m, asked, served)
				}

				if goesOn && asked == 1 {
					key := first.got()[0].Header.Get(api.HeaderIdempotencyKey)
					again := second.got()[0].Header.Get(api.HeaderIdempotencyKey)
					if again != key || call.keyed != (key != "") {
						t.Errorf("the request was repeated with the key %q after %q", again, key)
					}
				}

				// From now on the client asks the one that answered.
				if goesOn {
					errtest.None(t, call.do(t.Context(), c))

					if n := len(first.got()); n != asked || len(second.got()) != 2 {
						t.Errorf("then, the first instance got %d requests", n)
					}
				}
			})
		}
	}
}

// TestGiveUpSoon: among several instances, a connection to a host that confirms nothing ends soon, and a change that
// was sent over it has an unknown outcome.
func TestGiveUpSoon(t *testing.T) {
	t.Parallel()

	at := start(t, ok)

	for several, want := range map[bool]int{true: int(deadAfter.Milliseconds()), false: 0} {
		conn, err := transport("", nil, several).DialContext(t.Context(), "tcp", at.Listener.Addr().String())
		errtest.None(t, err)

		raw, err := conn.(*net.TCPConn).SyscallConn()
		errtest.None(t, err)
		errtest.None(t, raw.Control(func(fd uintptr) {
			if got, err := unix.GetsockoptInt(
				int(fd),
				unix.IPPROTO_TCP,
				unix.TCP_USER_TIMEOUT,
			); err != nil ||
				got != want {
				t.Errorf("several: %t: the timeout is %d ms (%v), want %d", several, got, err, want)
			}
		}))
		errtest.None(t, conn.Close())
	}

	c := connect(t, at.URL, refused)

	err := c.route.endpoints[0].explain(t.Context(), syscall.ETIMEDOUT)
	err = c.outcome(call{method: http.MethodPost, path: api.PathImport}, err, mayHaveArrived(err))
	if err == nil || !strings.Contains(err.Error(), errUnknown) {
		t.Error(err)
	}
}

// TestHedge: a call that may be repeated goes to another instance, too, while the first one stands still. Its answer
// counts, and the next call begins there. Another call waits.
func TestHedge(t *testing.T) {
	t.Parallel()

	still := func(t *testing.T) (*instance, chan struct{}) {
		t.Helper()

		thaw := make(chan struct{})
		s := start(t, func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-thaw:
				ok(w, r)
			case <-r.Context().Done():
			}
		})
		t.Cleanup(func() { close(thaw) })

		return s, thaw
	}

	for name, do := range map[string]func(context.Context, *Client) error{
		"read":   func(ctx context.Context, c *Client) error { _, err := c.Node(ctx, "a-1"); return err },
		"change": func(ctx context.Context, c *Client) error { _, err := c.RevokeToken(ctx, "ci"); return err },
		"stream": func(ctx context.Context, c *Client) error {
			_, _, err := c.open(ctx, call{method: http.MethodGet, path: api.PathLog, params: []string{"1"}})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			first, _ := still(t)
			second := start(t, ok)
			c := connect(t, first.URL, second.URL)

			errtest.None(t, do(t.Context(), c))
			errtest.None(t, do(t.Context(), c))

			if n, m := len(first.got()), len(second.got()); n != 1 || m != 2 {
				t.Fatalf("the instances got %d and %d requests, want 1 and 2", n, m)
			}

			key := first.got()[0].Header.Get(api.HeaderIdempotencyKey)
			if again := second.got()[0].Header.Get(api.HeaderIdempotencyKey); again != key {
				t.Errorf("the request has the keys %q and %q", key, again)
			}
		})
	}

	t.Run("without a key", func(t *testing.T) {
		t.Parallel()

		synctest.Test(t, func(t *testing.T) {
			c, k := connect(t, refused, "http://127.0.0.1:2"), call{method: http.MethodPost, path: api.PathScan}

			var asked atomic.Int32

			// The attempt takes until another one would have begun.
			attempt := func(context.Context, *endpoint) (int, error) {
				asked.Add(1)
				<-time.After(2 * hedge)

				return 0, nil
			}

			_, _, _, err := failover(t.Context(), c, k, attempt, func(int) {})
			if n := asked.Load(); err != nil || n != 1 {
				t.Errorf("%d attempts: %v", n, err)
			}
		})
	})
}

// registry counts the contexts that are registered with it.
type registry struct {
	context.Context
	registered atomic.Int32
}

// AfterFunc implements what package context looks for in a parent.
func (r *registry) AfterFunc(func()) func() bool {
	r.registered.Add(1)

	return func() bool { return r.registered.Add(-1) >= 0 }
}

// Done returns a channel: without one, nothing registers.
func (r *registry) Done() <-chan struct{} { return make(chan struct{}) }

// TestStreamReleased: once it is closed, a stream from the second instance leaves nothing with the caller's context.
func TestStreamReleased(t *testing.T) {
	t.Parallel()

	second := start(t, ok)
	caller := &registry{Context: context.Background()}

	res, _, err := connect(t, refused, second.URL).open(caller, call{method: http.MethodGet, path: api.PathWatch})
	errtest.None(t, err)

	if n := caller.registered.Load(); n != 1 {
		t.Fatalf("an open stream has %d contexts registered, want 1", n)
	}

	errtest.None(t, res.Body.Close())

	if n := caller.registered.Load(); n != 0 {
		t.Errorf("a closed stream has %d contexts registered", n)
	}
}

// TestNoInstance names each instance with its failure once.
func TestNoInstance(t *testing.T) {
	t.Parallel()

	no, dead := start(t, fails(503, inventory.KindUnavailable)), start(t, dies)

	_, err := connect(t, refused, no.URL, dead.URL).Node(t.Context(), "a-1")
	if inventory.KindOf(err) != inventory.KindUnavailable {
		t.Error(err)
	}

	for _, part := range []string{
		"no instance of the manager answers", refused + " refused", no.URL + ": the instance says no",
		dead.URL + " closed", "is clusterm running",
	} {
		if n := strings.Count(err.Error(), part); n != 1 {
			t.Errorf("%q is there %d times in %q", part, n, err)
		}
	}

	if n, m := len(no.got()), len(dead.got()); n != 1 || m != 1 {
		t.Errorf("the instances got %d and %d requests", n, m)
	}

	for _, bad := range []string{"http://a,ftp://b", "http://a,http://", "http://a,https://u:p@b"} {
		if _, err := New(Options{URL: bad}); inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestLogElsewhere: the bytes of a log come once and whole over two instances that die by turns.
func TestLogElsewhere(t *testing.T) {
	t.Parallel()

	text := strings.Repeat("one line of a log\n", 20)

	serve := func(w http.ResponseWriter, r *http.Request) {
		offset, _ := strconv.Atoi(r.URL.Query().Get("offset"))
		w.Header().Set(api.HeaderJob, "7")
		_, _ = io.WriteString(w, text[offset:min(offset+50, len(text))])
		_ = http.NewResponseController(w).Flush()

		if offset+50 < len(text) {
			panic(http.ErrAbortHandler)
		}
	}
	a, b := start(t, serve), start(t, serve)

	c, err := New(Options{URL: a.URL + "," + b.URL})
	errtest.None(t, err)

	s, err := c.Log(t.Context(), "active", 0, true)
	errtest.None(t, err)
	defer s.Close()

	got, err := io.ReadAll(s)
	if err != nil || string(got) != text {
		t.Errorf("%q, %v", got, err)
	}

	if n, m := len(a.got()), len(b.got()); n == 0 || m == 0 {
		t.Errorf("the instances got %d and %d requests", n, m)
	}
}

// TestWatchElsewhere: a watch goes on at another instance, after the last change.
func TestWatchElsewhere(t *testing.T) {
	t.Parallel()

	event := func(w io.Writer, id int, text string) { fmt.Fprintf(w, "id: %d\ndata: %s\n\n", id, text) }

	var a *instance

	a = start(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", api.TypeEventStream)
		event(w, 4, `{"type":"put","kind":"nodes","name":"a-1","revision":4}`)
		event(w, 5, `{"type":"sync","revision":5}`)
		_ = http.NewResponseController(w).Flush()
		_ = a.Listener.Close()
		panic(http.ErrAbortHandler)
	})
	b := start(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", api.TypeEventStream)
		event(w, 6, `{"type":"put","kind":"nodes","name":"b-1","revision":6}`)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})

	c, err := New(Options{URL: a.URL + "," + b.URL})
	errtest.None(t, err)

	var names []string

	for change, err := range c.Watch(t.Context(), WatchOptions{}) {
		errtest.None(t, err)

		if names = append(names, change.Name); change.Name == "b-1" {
			break
		}
	}

	if !slices.Equal(names, []string{"a-1", "", "b-1"}) || b.got()[0].URL.Query().Get("since") != "5" {
		t.Errorf("%q, resumed by %s", names, b.got()[0].URL)
	}
}

// TestReadsElsewhere: after a change at one instance, a read at another one waits for its revision.
func TestReadsElsewhere(t *testing.T) {
	t.Parallel()

	dead := false
	a := start(t, func(w http.ResponseWriter, r *http.Request) {
		if dead {
			dies(w, r)
		}

		w.Header().Set(api.HeaderRevision, "7")
		ok(w, r)
	})
	b := start(t, ok)
	c := connect(t, a.URL, b.URL)

	_, err := c.CreateToken(t.Context(), api.TokenRequest{})
	errtest.None(t, err)
	_, err = c.Node(t.Context(), "a-1")
	errtest.None(t, err)

	dead = true
	_, err = c.At(3).Node(t.Context(), "a-1")
	errtest.None(t, err)
	_, err = c.Version(t.Context())
	errtest.None(t, err)

	if own := a.got()[1].URL.Query(); own.Has("min_revision") {
		t.Errorf("the same instance is asked for %v", own)
	}

	if q := b.got()[0].URL.Query(); q.Get("min_revision") != "7" {
		t.Errorf("the other instance is asked for %v", q)
	}

	if q := b.got()[1].URL.Query(); q.Has("min_revision") {
		t.Errorf("the version is asked for %v", q)
	}
}
