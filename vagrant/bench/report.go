// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/contiv/cluster/management/api"
)

// reports is the number of requests in a round of the row report.
const reports = 500

// reported measures reports of one node each, sent one after the other by one client. Each
// of them changes the state of a node in a full inventory, and is durable when it is
// answered.
func reported(ctx context.Context, b *bench) error {
	w, err := b.full(ctx, "")
	if err != nil {
		return err
	}
	defer w.discard()

	record, err := w.largest(ctx, keys+"/v/nodes/"+name(0))
	if err != nil {
		return err
	}

	c, err := w.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()

	disappeared := make([]bool, b.nodes)
	next := 0

	product := func(ctx context.Context) (float64, error) {
		begun := time.Now()

		for range reports {
			i := next
			next = (next + 97) % b.nodes // nodes far apart

			kind := "disappeared"
			if disappeared[i] {
				kind = "discovered"
			}

			disappeared[i] = !disappeared[i]

			if err := c.post(ctx, "/monitor/event", reportOf(kind, i, 1, addrOf)); err != nil {
				return 0, err
			}
		}

		return reports / time.Since(begun).Seconds(), nil
	}

	baseline := func(ctx context.Context) (float64, error) {
		prefix := w.prefixFor("single")
		begun := time.Now()

		for i := range reports {
			if _, err := w.raw.Put(ctx, prefix+name(i), record); err != nil {
				return 0, err
			}
		}

		return reports / time.Since(begun).Seconds(), nil
	}

	return b.compare(ctx, comparison{
		name:     "reports of one node, one client",
		unit:     "/s",
		against:  "raw etcd puts of a record, one after the other",
		rounds:   9,
		floor:    atLeast(0.5),
		product:  product,
		baseline: baseline,
		note: "each request changes the state of a node and also writes a history entry; " +
			"the baseline writes the record alone",
	})
}

// connection is a client with one connection to the manager. The client of net/http hands each
// request to two goroutines of its own, which takes longer than the manager needs for it.
type connection struct {
	net.Conn

	answers *bufio.Reader
}

// connect connects to the socket of the manager. The connection ends with the context.
func (w *world) connect(ctx context.Context) (*connection, error) {
	var d net.Dialer

	c, err := d.DialContext(ctx, "unix", w.socket)
	if err != nil {
		return nil, err
	}

	// A request that hangs ends with the benchmark.
	context.AfterFunc(ctx, func() { c.Close() })

	return &connection{c, bufio.NewReader(c)}, nil
}

// post sends the body, and returns once the request is answered with success.
func (c *connection) post(ctx context.Context, path string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://clusterm"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}

	req.Header.Set("Content-Type", api.TypeJSON)

	if err := req.Write(c); err != nil {
		return err
	}

	res, err := http.ReadResponse(c.answers, req)
	if err != nil {
		return err
	}
	defer res.Body.Close()

	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %s: %s", path, res.Status, bytes.TrimSpace(text))
	}

	return err
}
