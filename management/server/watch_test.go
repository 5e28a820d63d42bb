// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/contracttest"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/notify"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/server"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/state/statetest"
	"github.com/contiv/cluster/management/window"
)

// wire is a watch in its wire form.
type wire struct {
	t *testing.T
	*http.Response
	lines *bufio.Scanner
}

func (s *site) watch(t *testing.T, query string, header ...string) *wire {
	t.Helper()

	req, err := http.NewRequestWithContext(testCtx(t), http.MethodGet, s.url+api.PathWatch+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}

	res, err := (&http.Client{Transport: contracttest.Transport{Report: t.Errorf}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	w := &wire{t: t, Response: res, lines: bufio.NewScanner(res.Body)}
	w.lines.Buffer(nil, 1<<20)

	return w
}

// next returns the next event as "ID EVENT KIND NAME REVISION", "end" after the
// last one, or "broken" after a failure.
func (w *wire) next() string {
	w.t.Helper()

	id, event := "-", ""
	for w.lines.Scan() {
		field, value, _ := strings.Cut(w.lines.Text(), ": ")
		switch field {
		case "id":
			id = value
		case "event":
			event = value
		case "data":
			var c api.Change
			if err := json.Unmarshal([]byte(value), &c); err != nil {
				if !w.lines.Scan() {
					return "broken"
				}

				w.t.Fatalf("%.200s: %v", value, err)
			}

			expect(w.t, "type", string(c.Type), event)

			out := fmt.Sprintf("%s %s %s %s %d", id, event, c.Kind, c.Name, c.Revision)
			if c.Stale {
				out += " stale"
			}
			return strings.Join(strings.Fields(out), " ")
		}
	}

	if w.lines.Err() != nil {
		return "broken"
	}

	return "end"
}

func (w *wire) wants(want ...string) {
	w.t.Helper()

	for _, event := range want {
		if got := w.next(); got != event {
			w.t.Fatalf("got %q, want %q", got, event)
		}
	}
}

// put changes nodes in one revision.
func (m *fakeManager) put(nodes ...inventory.Node) int64 {
	return m.change(func(v *state.View) {
		for _, n := range nodes {
			n.Revision = v.Revision
			v.PutNode(&n)
		}
	})
}

func grouped(label, group string) inventory.Node {
	n := *aNode(label)
	n.Group = group
	return n
}

func TestWatchBeginsWithState(t *testing.T) {
	t.Parallel()
	s := serve(t)
	w := s.watch(t, "")
	expect(t, "content type", w.Header.Get("Content-Type"), api.TypeEventStream)
	w.wants(
		"- put nodes a-1 10",
		"- put nodes bb-1 10",
		"- put nodes ccc-1 10",
		"- put vars global 10",
		"- put config 10",
		"10 sync 10",
	)
	s.manager.put(grouped("a", "x"))
	w.wants("11 put nodes a-1 11")

	_, err := s.manager.Forget(t.Context(), access.Caller{}, node.ForgetRequest{Nodes: []string{"a-1"}})
	if err != nil {
		t.Fatal(err)
	}

	w.wants("12 delete nodes a-1 12")
}

// TestWatchResumes expects an id on the last event of each revision only, and a
// delete event for a node that leaves the selection.
func TestWatchResumes(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.manager.put(
		grouped("a", "service-master"),
		grouped("bb", "service-worker"),
		grouped("dddd", "service-worker"),
	) // 11
	s.manager.put(
		grouped("bb", "service-master"),
	) // 12
	s.manager.change(
		func(v *state.View) { statetest.SetVars(v, "global", configuration.Vars{"x": "y"}) },
	) // 13
	s.manager.put(
		grouped("bb", ""),
	) // 14

	all := s.watch(t, "?kinds=nodes,vars&since=10")

	var got []string
	for range 3 {
		got = append(got, all.next())
	}

	ids := 0
	for i, e := range got {
		if strings.HasPrefix(e, "11 ") {
			ids++
			expect(t, "the event with the id", i, 2)
		}
	}

	expect(t, "events of revision 11 with an id", ids, 1)
	all.wants("12 put nodes bb-1 12", "13 put vars global 13", "14 put nodes bb-1 14", "14 sync 14")

	masters := s.watch(t, "?group=service-master&since=11")
	masters.wants("12 put nodes bb-1 12", "14 delete nodes bb-1 14", "14 sync 14")
	s.watch(t, "?selector=group+in+(service-master),name!%3Da-1&since=11").
		wants("12 put nodes bb-1 12", "14 delete nodes bb-1 14", "14 sync 14")
	named := s.watch(t, "?name=dddd-1&name=zz-1&since=11")
	named.wants("14 sync 14")
	s.manager.put(*aNode("zz"), *aNode("a"))
	named.wants("15 put nodes zz-1 15")
	masters.wants("15 delete nodes a-1 15")

	s.watch(t, "?since=10&kinds=jobs", api.HeaderLastEventID, "14").wants("15 sync 15")
}

func TestWatchHeartbeat(t *testing.T) {
	t.Parallel()
	s := serve(t, func(o *server.Options) { o.Heartbeat = 10 * time.Millisecond })
	w := s.watch(t, "?kinds=jobs")
	w.wants("10 sync 10", "10 progress 10")
	s.manager.put(grouped("a", "x")) // not selected, but the position moves on

	for i := 0; ; i++ {
		if got := w.next(); got == "11 progress 11" {
			break
		} else if got != "10 progress 10" || i > 1000 {
			t.Fatal(got)
		}
	}

	s.manager.feed.SetStale(true)

	for i := 0; ; i++ {
		if got := w.next(); got == "11 progress 11 stale" {
			break
		} else if got != "11 progress 11" || i > 1000 {
			t.Fatal(got)
		}
	}
}

func TestWatchRefuses(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.manager.feed = state.NewFeed(10, 1, 1000)
	s.manager.put(*aNode("a"))

	for i := range 3 {
		s.manager.put(grouped("a", fmt.Sprint(i)))
	}

	for _, row := range []struct {
		query, header string
		status        int
		says          string
	}{
		{"?kinds=pods", "", 400, "the kinds are nodes, jobs, vars, config"},
		{"?kinds=", "", 400, "the kinds are"},
		{"?kinds=jobs&name=a-1", "", 400, "watch only the kind nodes"},
		{"?group=nosuch", "", 404, "nosuch"},
		{"?since=-1", "", 400, "whole number"},
		{"?since=x", "", 400, "whole number"},
		{"?kinds=vars&selector=group", "", 400, "watch only the kind nodes"},
		{"?selector=status%3DNosuch", "", 400, "the statuses are"},
		{"?sinc=1", "", 400, "kinds, name, group, selector, since"},
		{"", "x", 400, "Last-Event-ID"},
		{"?since=11", "", 410, "leave the revision out"},
		{"?since=99", "11", 410, "urn:clusterm:problem:expired"},
	} {
		var header []string
		if row.header != "" {
			header = []string{api.HeaderLastEventID, row.header}
		}

		w := s.watch(t, row.query, header...)

		body, err := io.ReadAll(w.Body)
		if err != nil || w.StatusCode != row.status || !strings.Contains(string(body), row.says) ||
			w.Header.Get("Content-Type") != api.TypeProblem {
			t.Errorf("%s %s: %d %s %v", row.query, row.header, w.StatusCode, body, err)
		}
	}

	req, err := http.NewRequestWithContext(testCtx(t), http.MethodHead, s.url+api.PathWatch, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	expect(t, "HEAD", res.StatusCode, 200)
}

func TestWatchLimit(t *testing.T) {
	t.Parallel()
	s := serve(t, func(o *server.Options) { o.Watches = 2 })
	one, two := s.watch(t, "?kinds=jobs"), s.watch(t, "?kinds=jobs")
	one.wants("10 sync 10")
	two.wants("10 sync 10")
	w := s.watch(t, "?kinds=jobs")
	expect(t, "one too many", w.StatusCode, 503)
	expect(t, "retry after", w.Header.Get("Retry-After"), "1")

	_ = two.Body.Close()
	for w = s.watch(t, "?kinds=jobs"); w.StatusCode == 503; w = s.watch(t, "?kinds=jobs") {
		_ = w.Body.Close()
	}

	w.wants("10 sync 10")
}

// big returns a node with a large record.
func big(i, size int) inventory.Node {
	n := *aNode("a")
	n.LastError = fmt.Sprint(i, strings.Repeat("x", size))
	return n
}

// bigSize and bigCount are nodes that are more, in bytes, than the buffers of a
// connection hold, in few changes.
const (
	bigSize  = 128 << 10
	bigCount = 100
)

// patient is a server that neither gives up a client nor breaks a silence, however long a
// busy machine stands still.
func patient(o *server.Options) { o.Stall, o.Heartbeat = time.Hour, time.Hour }

// TestSlowReaderIsDropped expects a slow reader to receive every event up to a
// dropped event, without delaying others.
func TestSlowReaderIsDropped(t *testing.T) {
	t.Parallel()
	s := serve(t, patient)
	s.manager.feed = state.NewFeed(10, 20, 1<<20)
	slow, quick := s.watch(t, "?kinds=nodes"), s.watch(t, "?kinds=nodes")
	quick.wants("- put nodes a-1 10", "- put nodes bb-1 10", "- put nodes ccc-1 10", "10 sync 10")

	for i := range bigCount {
		rev := s.manager.put(big(i, bigSize))
		quick.wants(fmt.Sprintf("%d put nodes a-1 %d", rev, rev))
	}

	slow.wants("- put nodes a-1 10", "- put nodes bb-1 10", "- put nodes ccc-1 10", "10 sync 10")

	revision := 10
	for revision < 10+bigCount {
		got := slow.next()
		if want := fmt.Sprintf("%d put nodes a-1 %d", revision+1, revision+1); got == want {
			revision++
			continue
		}

		expect(t, "after revision", got, fmt.Sprintf("- dropped %d", revision))
		expect(t, "after that", slow.next(), "end")

		return
	}

	t.Error("it was never dropped")
}

// TestStalledReaderIsCutOff expects a connection that is not read to be closed.
func TestStalledReaderIsCutOff(t *testing.T) {
	t.Parallel()
	s := serve(t, func(o *server.Options) { o.Stall = 50 * time.Millisecond })

	w := s.watch(t, "?kinds=nodes")
	for i := range 2000 {
		s.manager.put(big(i, 8<<10))
	}

	s.gauge(t, "clusterm_http_watches", 0) // while it is not read
	s.gauge(t, "clusterm_http_watches_dropped_total", 1)

	for got := w.next(); got != "broken"; got = w.next() {
		if got == "end" {
			t.Fatal("an incomplete stream ended without an error")
		}
	}
}

// gauge waits until a metric has the value.
func (s *site) gauge(t *testing.T, name string, want float64) {
	t.Helper()

	ctx := testCtx(t)
	for {
		families, err := s.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}

		got := -1.0
		for _, f := range families {
			if f.GetName() == name {
				got = f.GetMetric()[0].GetGauge().GetValue() + f.GetMetric()[0].GetCounter().GetValue()
			}
		}

		if got == want {
			return
		}

		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%s is %v, want %v", name, got, want)
		}
	}
}

// TestShutdownEndsWatches expects the shutdown to end every watch at once, also a
// stalled one.
func TestShutdownEndsWatches(t *testing.T) {
	t.Parallel()

	t.Run("idle", func(t *testing.T) {
		t.Parallel()

		s := serve(t, patient, func(o *server.Options) { o.StreamGrace = time.Hour })
		w := s.watch(t, "?kinds=nodes")
		w.wants("- put nodes a-1 10", "- put nodes bb-1 10", "- put nodes ccc-1 10", "10 sync 10")

		if err := s.Shutdown(testCtx(t)); err != nil {
			t.Fatal(err)
		}

		expect(t, "a watch", w.next(), "end")
	})

	// The server waits for a client that does not read, but not for long.
	t.Run("stalled", func(t *testing.T) {
		t.Parallel()

		s := serve(t, patient)
		w, stalled := s.watch(t, "?kinds=nodes"), s.watch(t, "?kinds=nodes")
		w.wants("- put nodes a-1 10", "- put nodes bb-1 10", "- put nodes ccc-1 10", "10 sync 10")

		for i := range bigCount {
			rev := s.manager.put(big(i, bigSize))
			w.wants(fmt.Sprintf("%d put nodes a-1 %d", rev, rev))
		}

		if err := s.Shutdown(testCtx(t)); err != nil {
			t.Fatal(err)
		}

		for got := stalled.next(); got != "broken" && got != "end"; got = stalled.next() {
		}
	})
}

// breaker forwards connections to a socket, and breaks each after some bytes.
type breaker struct {
	net.Listener
	mu      sync.Mutex
	rand    *rand.Rand
	healthy bool
	cuts    atomic.Int64
}

func breakUp(t *testing.T, socket string) *breaker {
	t.Helper()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &breaker{Listener: l, rand: rand.New(rand.NewPCG(3, 4))}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { b.pass(c, socket) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})

	return b
}

func (b *breaker) pass(c net.Conn, socket string) {
	defer func() { _ = c.Close() }()

	to, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	b.mu.Lock()

	limit := int64(200 + b.rand.IntN(8000))
	if b.healthy {
		limit = 1 << 40
	}

	b.mu.Unlock()

	go func() {
		_, _ = io.Copy(to, c)
		_ = to.Close()
	}()

	if n, _ := io.CopyN(c, to, limit); n == limit {
		b.cuts.Add(1)
	}
}

// replica is the state that a client builds from a watch.
type replica map[string]string

func (r replica) apply(c api.Change) {
	key := string(c.Kind) + "/" + c.Name
	switch c.Type {
	case api.ChangePut:
		r[key] = string(c.Object)
	case api.ChangeDelete:
		delete(r, key)
	}
}

// TestWatchThroughDisconnects breaks the connection of a watch at random bytes and
// expires the feed now and then. The client must end with the state that a read
// returns.
func TestWatchThroughDisconnects(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := breakUp(t, s.socket)
	c := s.client(t, func(o *client.Options) {
		o.Socket, o.URL = "", "http://"+b.Addr().String()
		o.Patience = patience
	})

	ctx, cancel := context.WithCancel(testCtx(t))
	defer cancel()
	r, last, lost := replica{}, int64(0), 0
	received := make(chan int64, 1)

	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for change, err := range c.Watch(ctx, client.WatchOptions{
			Kinds: []api.WatchKind{api.WatchNodes, api.WatchVars}, Lost: func(error) { lost++ },
		}) {
			if err != nil {
				if ctx.Err() == nil {
					t.Error(err)
				}
				return
			}

			r.apply(change)

			if change.Type == api.ChangeSync || change.Type == api.ChangePut || change.Type == api.ChangeDelete {
				last = max(last, change.Revision)

				select {
				case <-received:
				default:
				}

				received <- last
			}
		}
	})

	random := rand.New(rand.NewPCG(5, 6))
	for i := range 300 {
		switch n := random.IntN(20); {
		case n == 0: // as after a restart
			s.manager.mu.Lock()
			old := s.manager.feed
			s.manager.feed = state.NewFeed(s.manager.view.Revision, 100, 1<<20)
			s.manager.mu.Unlock()
			old.SetStale(true) // wakes the waiting watches
			_, _ = s.manager.Forget(ctx, access.Caller{}, node.ForgetRequest{Nodes: []string{aName(random)}})
		case n < 4:
			_, _ = s.manager.Forget(ctx, access.Caller{}, node.ForgetRequest{Nodes: []string{aName(random)}})
		case n < 6:
			_, _ = fakeVariables{s.manager}.Set(ctx, access.Caller{}, "global", configuration.Vars{"i": int64(i)})
		default:
			var nodes []inventory.Node
			for range 1 + random.IntN(3) {
				nodes = append(nodes, grouped(strings.Repeat("a", 1+random.IntN(9)), fmt.Sprint(i)))
			}

			s.manager.put(nodes...)
		}

		if i%10 == 0 { // let the watch catch up now and then
			select {
			case <-received:
			case <-ctx.Done():
				t.Fatal("the watch receives nothing")
			}
		}
	}

	b.mu.Lock()
	b.healthy = true
	b.mu.Unlock()

	revision := s.manager.put(grouped("end", "end"))
	for got := int64(0); got < revision; {
		select {
		case got = <-received:
		case <-ctx.Done():
			t.Fatalf("the watch received revision %d, but not the last, %d", got, revision)
		}
	}

	cancel()
	wg.Wait()

	want := replica{}

	direct := s.client(t)
	for _, n := range must[api.List[api.Node]](t)(direct.Nodes(testCtx(t), client.NodeFilter{})).Items {
		data := must[[]byte](t)(json.Marshal(n))
		want["nodes/"+n.Name] = string(data)
	}

	data := must[[]byte](t)(json.Marshal(must[api.Vars](t)(direct.Vars(testCtx(t), client.ScopeGlobal))))

	want["vars/global"] = string(data)
	if !reflect.DeepEqual(r, want) {
		t.Errorf("the watch has\n%v\nand the manager\n%v", r, want)
	}

	if cuts := b.cuts.Load(); cuts < 5 || lost < 5 {
		t.Errorf("only %d connections were cut, and the client lost its place %d times", cuts, lost)
	}
}

// aName returns the name of a node that may exist.
func aName(random *rand.Rand) string { return strings.Repeat("a", 1+random.IntN(9)) + "-1" }

// TestWatchKinds expects the client's list and openapi.yaml to have the kinds of the table.
func TestWatchKinds(t *testing.T) {
	t.Parallel()

	if got := server.WatchKinds(); !slices.Equal(got, api.WatchKinds) {
		t.Errorf("the server has %v, package api has %v", got, api.WatchKinds)
	}

	c := must[*contracttest.Contract](t)(contracttest.Load())

	var documented []api.WatchKind
	for _, kind := range c.Components.Schemas["Change"].Value.Properties["kind"].Value.Enum {
		documented = append(documented, api.WatchKind(fmt.Sprint(kind)))
	}

	if !slices.Equal(documented, api.WatchKinds) {
		t.Errorf("openapi.yaml has %v", documented)
	}
}

// TestWatchRecords expects the records of kinds in the watch: several changes of one as one event
// with the newest object.
func TestWatchRecords(t *testing.T) {
	t.Parallel()
	s := serve(t)

	freeze := func(f window.Freeze) {
		s.manager.change(func(v *state.View) { v.View = record.WithOne(v.View, &window.FreezeKind, f) })
	}

	s.watch(t, "?kinds=freeze").wants("10 sync 10")
	freeze(window.Freeze{On: true})
	s.manager.change(func(v *state.View) { v.View = record.With(v.View, &window.FreezeKind, nil) })
	freeze(window.Freeze{On: true}) // 13
	s.manager.put(grouped("a", "x"))

	s.watch(t, "?kinds=freeze").wants("- put freeze 14", "14 sync 14")
	s.watch(t, "?since=10").wants("14 put nodes a-1 14", "14 sync 14")
	s.watch(t, "?kinds=nodes,freeze&since=10").wants("13 put freeze 13", "14 put nodes a-1 14", "14 sync 14")
}

// TestWatchNotifications expects the deliveries of notifications in the watch of a viewer.
func TestWatchNotifications(t *testing.T) {
	t.Parallel()
	s := serve(t, func(o *server.Options) { o.PlainHTTPRole = access.RoleViewer })

	deliver := func(status string) {
		s.manager.change(func(v *state.View) {
			d := notify.Delivery{Delivery: api.Delivery{ID: "chat/4711-job.failed-12", Target: "chat", Status: status}}
			v.View = record.SetAt(v.View, &notify.DeliveryKind, d.ID, &d, v.Revision)
		})
	}

	deliver(notify.Pending)

	w := s.watch(t, "?kinds=notifications")
	w.wants("- put notifications chat/4711-job.failed-12 11", "11 sync 11")
	deliver(notify.Dead)
	w.wants("12 put notifications chat/4711-job.failed-12 12")

	s.manager.change(func(v *state.View) { v.View = record.WithList(v.View, &notify.DeliveryKind) })
	w.wants("13 delete notifications chat/4711-job.failed-12 13")
}

// TestWatchPermission expects a watch to show only what the caller may read by its path.
func TestWatchPermission(t *testing.T) {
	t.Parallel()
	s := serve(t, func(o *server.Options) { o.PlainHTTPRole = access.RoleViewer })

	s.manager.change(func(v *state.View) {
		v.View = record.WithList(v.View, &access.TokenKind, &access.Token{ID: "t"})
		v.View = record.WithOne(v.View, &state.Memory, state.Automation{})
	})

	w := s.watch(t, "?kinds=all&since=10")
	w.wants("11 put policies 11", "11 sync 11")
	expect(t, "by name", s.watch(t, "?kinds=nodes,tokens").StatusCode, http.StatusForbidden)
}
