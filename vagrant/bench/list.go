// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/contiv/cluster/management/api"
)

// serveBytes is the baseline of lists, in a process of its own: a handler that writes
// cached bytes. The query parameter n is their number. It ends at the end of stdin.
func serveBytes() {
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	cached := bytes.Repeat([]byte{'x'}, 64<<20)

	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, _ := strconv.Atoi(r.URL.Query().Get("n"))
			w.Header().Set("Content-Type", api.TypeJSON)
			w.Header().Set("Content-Length", strconv.Itoa(n))
			_, _ = w.Write(cached[:n])
		}))
	}()

	fmt.Fprintln(os.Stdout, l.Addr())

	_, _ = io.Copy(io.Discard, os.Stdin)
}

// bytesServer starts the baseline and returns its URL.
func (b *bench) bytesServer() string {
	cmd := exec.Command(must(os.Executable()), "serve-bytes")
	in, out := must(cmd.StdinPipe()), must(cmd.StdoutPipe())
	cmd.Stderr = os.Stderr

	check(cmd.Start())
	b.cleanup(func() { _, _ = in.Close(), cmd.Wait() })

	addr := ""
	_ = must(fmt.Fscanln(out, &addr))

	return "http://" + addr + "/?n="
}

const (
	changing = 100                    // changing nodes, spread over all
	lanes    = 4                      // concurrent senders; each node belongs to one
	rate     = 100                    // transitions per second
	grace    = 100 * time.Millisecond // an acknowledged report is in every answer after this time
)

// changed is the number of the k-th changing node.
func (b *bench) changed(k int) int { return k * (b.nodes / changing) }

// churn reports alternating states of some nodes and records when each report was
// acknowledged. Every report is a transition with a history entry. The reports of a
// node are numbered from 2 on, and its state and address reveal the number.
type churn struct {
	mu    sync.Mutex
	acked [changing][]time.Time // by the report's number minus 2
	count int
	begun time.Time
	err   error
}

// churn reports changes until the rows of the group are measured.
func (w *world) churn(ctx context.Context) *churn {
	c := &churn{begun: time.Now()}
	ctx, cancel := context.WithCancel(ctx)

	var all sync.WaitGroup
	for lane := range lanes {
		all.Go(func() { c.send(ctx, w, lane) })
	}

	w.bench.cleanup(func() { cancel(); all.Wait() })

	return c
}

// send reports the nodes of a lane one after the other, so that reports of a node keep their
// order. Odd reports discover the node at an address that encodes the number; even ones
// report it as disappeared.
func (c *churn) send(ctx context.Context, w *world, lane int) {
	tick := time.NewTicker(time.Second * lanes / rate)
	defer tick.Stop()

	for k := lane; ctx.Err() == nil; k = (k + lanes) % changing {
		<-tick.C

		number := len(c.acked[k]) + 2
		addr := func(int) string { return fmt.Sprintf("10.200.%d.%d", number>>8, number&255) }

		kind := "disappeared"
		if number%2 == 1 {
			kind = "discovered"
		}
		err := w.report(ctx, kind, w.bench.changed(k), 1, addr)

		c.mu.Lock()

		if err == nil {
			c.acked[k] = append(c.acked[k], time.Now())
			c.count++
		} else if ctx.Err() == nil {
			c.err = err
		}

		c.mu.Unlock()
	}
}

// required returns for each changing node the oldest report that an answer to a request
// sent now may show.
func (c *churn) required() (reports [changing]int) {
	c.mu.Lock()
	defer c.mu.Unlock()

	limit := time.Now().Add(-grace)
	for k, times := range c.acked {
		reports[k] = 1 + len(times)

		for reports[k] > 1 && !times[reports[k]-2].Before(limit) {
			reports[k]--
		}
	}

	return reports
}

// note says what happened meanwhile, and fails if a report did.
func (c *churn) note() string {
	c.mu.Lock()
	defer c.mu.Unlock()

	check(c.err)

	return fmt.Sprintf("%.0f transitions/s at the same time; no answer lacked one that was acknowledged %s before",
		float64(c.count)/time.Since(c.begun).Seconds(), grace)
}

// seen is a node in an answer.
type seen struct{ addr, state string }

// report is the number of the report that the node shows, 1 before the first.
func (s seen) report() int {
	number := 1

	var high, low int
	if n, _ := fmt.Sscanf(s.addr, "10.200.%d.%d", &high, &low); n == 2 {
		number = high<<8 | low
	}

	// A disappeared node keeps the address of the report before.
	if s.state == "Disappeared" {
		number++
	}

	return number
}

// complete requires a complete list without stale nodes.
func (b *bench) complete(nodes map[string]seen, required [changing]int) {
	if len(nodes) != b.nodes {
		fail("the answer has %d nodes instead of %d", len(nodes), b.nodes)
	}

	for k, want := range required {
		if got := nodes[name(b.changed(k))]; got.report() < want {
			fail("stale: %s shows report %d (%+v), and report %d was acknowledged %s before the request",
				name(b.changed(k)), got.report(), got, want, grace)
		}
	}
}

// reader reads lists over one connection.
type reader struct {
	*http.Client
	base    string
	answers []bytes.Buffer // of the newest list; they keep their memory
}

// newReader returns a reader with a connection of its own.
func newReader(base string) *reader {
	c := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1, DisableCompression: true}}
	return &reader{Client: c, base: base}
}

// read reads the answer with that index.
func (r *reader) read(ctx context.Context, i int, path string) *bytes.Buffer {
	if i == len(r.answers) {
		r.answers = append(r.answers, bytes.Buffer{})
	}

	check(fetch(ctx, r.Client, r.base+path, &r.answers[i]))
	return &r.answers[i]
}

// form is one way to list all nodes.
type form struct {
	name  string
	read  func(ctx context.Context, r *reader)
	parse func(answers []bytes.Buffer) map[string]seen
}

var forms = []form{
	{"/info/nodes", func(ctx context.Context, r *reader) { r.read(ctx, 0, "/info/nodes") }, parseInfo},
	{"/v1/nodes in pages of 1000", readPages, parsePages},
}

func parseInfo(answers []bytes.Buffer) map[string]seen {
	var all map[string]api.LegacyNodeInfo

	check(json.Unmarshal(answers[0].Bytes(), &all))

	out := make(map[string]seen, len(all))
	for name, n := range all {
		out[name] = seen{n.Monitoring.Addr, n.Inventory.State}
	}

	return out
}

func readPages(ctx context.Context, r *reader) {
	next := ""
	for i := 0; i == 0 || next != ""; i++ {
		q := url.Values{"limit": {"1000"}}
		if i > 0 {
			q.Set("continue", next)
		}
		next = continuation(r.read(ctx, i, "/v1/nodes?"+q.Encode()).Bytes())
	}
}

// continuation extracts the token of the next page, which follows the items, without
// decoding the whole body.
func continuation(body []byte) string {
	_, rest, _ := bytes.Cut(body[max(0, len(body)-512):], []byte(`"continue":"`))
	token, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(token)
}

func parsePages(answers []bytes.Buffer) map[string]seen {
	out := map[string]seen{}

	for i := range answers {
		var list struct {
			Items []struct{ Name, Addr, State string }
		}

		check(json.Unmarshal(answers[i].Bytes(), &list))

		for _, n := range list.Items {
			out[n.Name] = seen{n.Addr, n.State}
		}
	}

	return out
}

// list measures lists of all nodes while some of them change.
func list(ctx context.Context, b *bench) (rows []row) {
	w, base := b.full(ctx, ""), b.bytesServer()
	c := w.churn(ctx)

	for _, f := range forms {
		rows = append(rows, c.row(ctx, w, base, f, 1), c.row(ctx, w, base, f, 8))
	}

	rows[len(rows)-1].note = c.note

	return rows
}

// row is the row for lists in one form, over so many connections.
func (c *churn) row(ctx context.Context, w *world, base string, f form, conns int) row {
	readers, plain := make([]*reader, conns), make([]*reader, conns)

	for i := range conns {
		readers[i], plain[i] = newReader(w.url), newReader(base)
		w.bench.cleanup(func() { readers[i].CloseIdleConnections(); plain[i].CloseIdleConnections() })
		// The first read opens the connection and sizes the buffers.
		f.read(ctx, readers[i])
	}

	// lists returns the rate of eight lists.
	lists := func(read, after func(i int)) float64 {
		seconds := 0.0

		for range 8 / conns {
			seconds += timed(func() { together(conns, read) })

			for i := range conns {
				after(i)
			}
		}

		return 8 / seconds
	}

	required := make([][changing]int, conns)

	return row{
		Name:    fmt.Sprintf("list %s, %d conn.", f.name, conns),
		Unit:    "lists/s",
		Against: "net/http, cached bytes of the same size",
		Rounds:  5,
		floor:   atLeast(0.5),
		product: func() float64 {
			return lists(func(i int) {
				required[i] = c.required()
				f.read(ctx, readers[i])
			}, func(i int) { w.bench.complete(f.parse(readers[i].answers), required[i]) })
		},
		baseline: func() float64 {
			return lists(func(i int) {
				for k := range readers[0].answers {
					plain[i].read(ctx, 0, strconv.Itoa(readers[0].answers[k].Len()))
				}
			}, func(int) {})
		},
	}
}
