// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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
func serveBytes() int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}

	fmt.Fprintln(os.Stdout, l.Addr())

	var mu sync.Mutex

	cached := map[int][]byte{}

	var server http.Server
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = server.Close()
	}()

	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		mu.Lock()

		body, ok := cached[n]
		if !ok {
			// Sizes differ a little in each round of the product.
			if len(cached) > 64 {
				clear(cached)
			}

			body = bytes.Repeat([]byte{'x'}, n)
			cached[n] = body
		}

		mu.Unlock()
		w.Header().Set("Content-Type", api.TypeJSON)
		w.Header().Set("Content-Length", strconv.Itoa(n))
		_, _ = w.Write(body)
	})

	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}

	return 0
}

// bytesServer starts the baseline and returns its URL.
func (b *bench) bytesServer() (url string, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}

	cmd := exec.Command(self, "serve-bytes")

	in, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}

	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}

	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}

	stop = func() { _ = in.Close(); _ = cmd.Wait() }

	var addr string
	if _, err := fmt.Fscanln(out, &addr); err != nil {
		stop()
		return "", nil, err
	}

	return "http://" + addr + "/", stop, nil
}

// churn reports alternating states of some nodes and records when each report was
// acknowledged. Every report is a transition with a history entry. The reports of a
// node are numbered from 2 on, and its state and address reveal the number.
type churn struct {
	mu    sync.Mutex
	acked [changing][]time.Time // by the report's number minus 2
	begun time.Time
	err   error
}

const (
	changing = 100                    // changing nodes, spread over all
	lanes    = 4                      // concurrent senders; each node belongs to one
	rate     = 100                    // transitions per second
	grace    = 100 * time.Millisecond // an acknowledged report is in every answer after this time
)

// changed is the number of the k-th changing node.
func (b *bench) changed(k int) int { return k * (b.nodes / changing) }

// run sends reports until ctx ends. Odd ones discover the node at an address that
// encodes the number; even ones report it as disappeared.
func (c *churn) run(ctx context.Context, b *bench, w *world) {
	c.begun = time.Now()

	var all sync.WaitGroup
	defer all.Wait()

	for lane := range lanes {
		all.Go(func() {
			tick := time.NewTicker(time.Second * lanes / rate)
			defer tick.Stop()

			for n := 0; ; n++ {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}

				// A lane sends its nodes one after the other, so reports of a node keep their order.
				k := (n*lanes + lane) % changing
				number := len(c.acked[k]) + 2
				addr := func(int) string { return fmt.Sprintf("10.200.%d.%d", number>>8, number&255) }

				kind := "disappeared"
				if number%2 == 1 {
					kind = "discovered"
				}

				err := w.event(ctx, kind, b.changed(k), 1, addr)

				c.mu.Lock()

				if err == nil {
					c.acked[k] = append(c.acked[k], time.Now())
				} else if ctx.Err() == nil {
					c.err = err
				}

				c.mu.Unlock()
			}
		})
	}
}

// required returns for each changing node the oldest report that an answer to a request
// sent now may show.
func (c *churn) required() (reports [changing]int) {
	c.mu.Lock()
	defer c.mu.Unlock()

	limit := time.Now().Add(-grace)
	for k, times := range c.acked {
		reports[k] = 1

		for i := len(times) - 1; i >= 0; i-- {
			if times[i].Before(limit) {
				reports[k] = i + 2
				break
			}
		}
	}

	return reports
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

// check requires a complete list without stale nodes.
func (b *bench) check(nodes map[string]seen, required [changing]int) error {
	if len(nodes) != b.nodes {
		return fmt.Errorf("the answer has %d nodes instead of %d", len(nodes), b.nodes)
	}

	for k, want := range required {
		if got := nodes[name(b.changed(k))]; got.report() < want {
			return fmt.Errorf("stale: %s shows report %d (%+v), and report %d was acknowledged %s before the request",
				name(b.changed(k)), got.report(), got, want, grace)
		}
	}

	return nil
}

// form is one way to list all nodes.
type form struct {
	name string
	// read fetches all nodes into bufs, one buffer for each response.
	read func(ctx context.Context, c *http.Client, base string, bufs *[]*bytes.Buffer) error
	// parse decodes the responses.
	parse func(bufs []*bytes.Buffer) (map[string]seen, error)
}

const page = 1000

var forms = []form{
	{"/info/nodes", readInfo, parseInfo},
	{"/v1/nodes in pages of 1000", readPages, parsePages},
}

func readInfo(ctx context.Context, c *http.Client, base string, bufs *[]*bytes.Buffer) error {
	return fetch(ctx, c, base+"/info/nodes", buffer(bufs, 0))
}

func parseInfo(bufs []*bytes.Buffer) (map[string]seen, error) {
	var all map[string]api.LegacyNodeInfo
	err := json.Unmarshal(bufs[0].Bytes(), &all)

	out := make(map[string]seen, len(all))
	for name, n := range all {
		out[name] = seen{n.Monitoring.Addr, n.Inventory.State}
	}

	return out, err
}

func readPages(ctx context.Context, c *http.Client, base string, bufs *[]*bytes.Buffer) error {
	next := ""
	for i := 0; ; i++ {
		q := url.Values{"limit": {strconv.Itoa(page)}}
		if next != "" {
			q.Set("continue", next)
		}

		buf := buffer(bufs, i)
		if err := fetch(ctx, c, base+"/v1/nodes?"+q.Encode(), buf); err != nil {
			return err
		}

		if next = continuation(buf.Bytes()); next == "" {
			*bufs = (*bufs)[:i+1]
			return nil
		}
	}
}

// continuation extracts the token of the next page, which follows the items, without
// decoding the whole body.
func continuation(body []byte) string {
	end := body[max(0, len(body)-512):]

	_, rest, ok := bytes.Cut(end, []byte(`"continue":"`))
	if !ok {
		return ""
	}

	token, _, _ := bytes.Cut(rest, []byte(`"`))

	return string(token)
}

func parsePages(bufs []*bytes.Buffer) (map[string]seen, error) {
	out := map[string]seen{}
	for _, buf := range bufs {
		var list struct {
			Items []struct{ Name, Addr, State string }
		}
		if err := json.Unmarshal(buf.Bytes(), &list); err != nil {
			return nil, err
		}

		for _, n := range list.Items {
			out[n.Name] = seen{n.Addr, n.State}
		}
	}

	return out, nil
}

func buffer(bufs *[]*bytes.Buffer, i int) *bytes.Buffer {
	for len(*bufs) <= i {
		*bufs = append(*bufs, &bytes.Buffer{})
	}

	return (*bufs)[i]
}

// together calls do concurrently for each connection, several times, and returns the
// calls per second. It calls after once for each call, outside the measured time.
func together(conns, times int, do func(conn int) error, after func(conn int) error) (float64, error) {
	var took time.Duration

	errs := make([]error, conns)
	for range times {
		begun := time.Now()

		var all sync.WaitGroup
		for conn := range conns {
			all.Go(func() { errs[conn] = errors.Join(errs[conn], do(conn)) })
		}

		all.Wait()
		took += time.Since(begun)

		for conn := range conns {
			errs[conn] = errors.Join(errs[conn], after(conn))
		}

		if err := errors.Join(errs...); err != nil {
			return 0, err
		}
	}

	return float64(conns*times) / took.Seconds(), nil
}

// list measures lists of all nodes while some of them change.
func list(ctx context.Context, b *bench) error {
	w, err := b.full(ctx, "")
	if err != nil {
		return err
	}
	defer w.discard()

	base, stop, err := b.bytesServer()
	if err != nil {
		return err
	}
	defer stop()

	var (
		c    churn
		done sync.WaitGroup
	)

	churning, end := context.WithCancel(ctx)

	done.Go(func() { c.run(churning, b, w) })
	defer done.Wait()
	defer end()

	for _, f := range forms {
		for _, conns := range []int{1, 8} {
			times := 8 / conns
			clients := make([]*http.Client, conns)
			bufs := make([][]*bytes.Buffer, conns)
			required := make([][changing]int, conns)

			for i := range clients {
				clients[i] = &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1, DisableCompression: true}}
				defer clients[i].CloseIdleConnections()

				// The first read opens the connection and sizes the buffers.
				if err := f.read(ctx, clients[i], w.url, &bufs[i]); err != nil {
					return fmt.Errorf("%s: %w", f.name, err)
				}
			}

			// The baseline serves responses of the same sizes.
			var sizes []int
			for _, buf := range bufs[0] {
				sizes = append(sizes, buf.Len())
			}

			scratch := make([]bytes.Buffer, conns)
			nothing := func(int) error { return nil }

			err := b.compare(ctx, comparison{
				name:    fmt.Sprintf("list %s, %d conn.", f.name, conns),
				unit:    "lists/s",
				against: "net/http, cached bytes of the same size",
				rounds:  5,
				floor:   atLeast(0.5),
				product: func(ctx context.Context) (float64, error) {
					return together(conns, times, func(i int) error {
						required[i] = c.required()
						return f.read(ctx, clients[i], w.url, &bufs[i])
					}, func(i int) error {
						nodes, err := f.parse(bufs[i])
						if err != nil {
							return err
						}

						return b.check(nodes, required[i])
					})
				},
				baseline: func(ctx context.Context) (float64, error) {
					return together(conns, times, func(i int) error {
						for _, n := range sizes {
							if err := fetch(ctx, clients[i], base+"?n="+strconv.Itoa(n), &scratch[i]); err != nil {
								return err
							}
						}

						return nil
					}, nothing)
				},
			})
			if err != nil {
				return err
			}
		}
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	count := 0
	for _, times := range c.acked {
		count += len(times)
	}

	b.out.Rows[len(b.out.Rows)-1].Note = fmt.Sprintf(
		"%.0f transitions/s at the same time; no answer lacked one that was acknowledged %s before",
		float64(count)/time.Since(c.begun).Seconds(), grace)

	return c.err
}
