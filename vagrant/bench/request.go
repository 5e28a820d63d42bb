// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// accessed measures the cost of TLS and a token: the same requests over HTTPS with a token,
// and over the Unix socket, both on connections that are kept.
func accessed(ctx context.Context, b *bench) []row {
	port := freePort()
	w := b.full(ctx, fmt.Sprintf("listen: 127.0.0.1:%d\njobs: {limit: %d}\n", port, atOnce))
	base := fmt.Sprintf("https://127.0.0.1:%d", port)
	token := must(w.CreateToken(ctx, api.TokenRequest{Role: "operator"})).Token

	ca, _, err := client.Certificate(ctx, base)
	check(err)

	// clusterctl pins the CA and sends the token in the same way.
	remote := must(client.New(client.Options{
		URL: base, Token: token, Trust: client.Trust{Fingerprint: client.Fingerprint(ca)},
	}))

	roots := x509.NewCertPool()
	roots.AddCert(ca)

	https := func(ctx context.Context) *http.Client {
		config := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots}
		return b.over(ctx, must(tls.Dial("tcp", strings.TrimPrefix(base, "https://"), config)), token)
	}

	// lists returns the rate of lists of all nodes over one connection.
	lists := func(connect func(ctx context.Context) *http.Client) side {
		var r *reader

		return func() float64 {
			// The manager closes a connection that waits for its first request.
			if r == nil {
				r = &reader{Client: connect(ctx), base: socketURL}
			}

			return 8 / timed(func() {
				for range 8 {
					readPages(ctx, r)
				}
			})
		}
	}

	// decoded is the same for a program that decodes the nodes.
	decoded := func(over *client.Client) side {
		return func() float64 {
			return 4 / timed(func() {
				for range 4 {
					count := 0

					for _, err := range over.EachNode(ctx, client.NodeFilter{}) {
						check(err)
						count++
					}

					if count != b.nodes {
						fail("the answer has %d nodes instead of %d", count, b.nodes)
					}
				}
			})
		}
	}

	// transitions returns the rate of transitions by a job of many nodes.
	transitions := func(over *client.Client) side {
		return func() float64 { return w.clearFirst(ctx, &world{Client: over}) }
	}

	rows := []row{
		{
			Name: "lists over HTTPS with a token, decoded", Unit: "lists/s", floor: atLeast(0.85),
			product: decoded(remote), baseline: decoded(w.Client),
			Note: "all nodes in pages of 1000, by the client of clusterctl",
		},
		{
			Name: "lists over HTTPS with a token, bytes", Unit: "lists/s",
			product: lists(https), baseline: lists(w.overSocket),
			Note: "without decoding, so that the encryption of some megabytes is most of the time",
		},
		{
			Name: "transitions over HTTPS with a token, a job of 64 nodes", Unit: "/s", floor: atLeast(0.85),
			product: transitions(remote), baseline: transitions(w.Client),
		},
	}

	for i := range rows {
		rows[i].Against, rows[i].Rounds = "the same over the Unix socket", 9
	}

	return rows
}

// reported measures reports of one node each, sent one after the other by one client. Each
// of them changes the state of a node in a full inventory, and is durable when it is
// answered.
func reported(ctx context.Context, b *bench) []row {
	w := b.full(ctx, "")
	record, f := w.record(ctx), w.flips()

	w.http.CloseIdleConnections()
	w.http, w.url = w.overSocket(ctx), socketURL

	return []row{{
		Name:    "reports of one node, one client",
		Unit:    "/s",
		Against: "raw etcd puts of a record, one after the other",
		Rounds:  9,
		floor:   atLeast(0.5),
		Note: "each request changes the state of a node and also writes a history entry; " +
			"the baseline writes the record alone",
		product: func() float64 {
			return float64(b.reports) / timed(func() {
				for range b.reports {
					_, _, report := f.turn(ctx)
					check(report())
				}
			})
		},
		baseline: func() float64 {
			prefix := w.unused()

			return float64(b.reports) / timed(func() {
				for i := range b.reports {
					_ = must(w.raw.Put(ctx, prefix+name(i), record))
				}
			})
		},
	}}
}

// watch measures the time from the request of an event to its arrival in a watch, one
// event after the other.
func watch(ctx context.Context, b *bench) []row {
	w := b.full(ctx, "")
	record, f := w.record(ctx), w.flips()

	change, stop := iter.Pull2(w.Watch(ctx, client.WatchOptions{Kinds: []api.WatchKind{api.WatchNodes}}))
	b.cleanup(stop)

	// arrival waits for the next change that is meant.
	arrival := func(meant func(api.Change) bool) api.Change {
		for {
			next, err, open := change()
			check(err)

			if !open {
				fail("the watch has ended")
			}

			if meant(next) {
				return next
			}
		}
	}

	// A watch begins with the current nodes.
	arrival(func(c api.Change) bool { return c.Type == api.ChangeSync })

	prefix := w.unused()
	// The raw watch receives puts below this prefix only, not the product's writes.
	changes := w.raw.Watch(ctx, prefix, clientv3.WithPrefix())

	return []row{{
		Name:    "event to watch, p99",
		Unit:    "ms",
		Against: "raw put to raw watch, p99",
		Rounds:  5,
		floor:   atMost(3, 5, "<= 3 x + 5 ms"),
		Note:    fmt.Sprintf("from POST /monitor/event to the change in /v1/watch, %d events a round", b.events),
		product: func() float64 {
			return b.latency(func(int) (do func() error, arrives func()) {
				node, state, report := f.turn(ctx)

				return report, func() {
					// Not progress events, nor late changes of other nodes.
					put := arrival(func(c api.Change) bool { return c.Type == api.ChangePut && c.Name == node })
					if n := must(put.Node()); n.State != state {
						fail("the watch has %s as %s, want %s", n.Name, n.State, state)
					}
				}
			})
		},
		baseline: func() float64 {
			return b.latency(func(i int) (do func() error, arrives func()) {
				return func() error { _, err := w.raw.Put(ctx, prefix+name(i), record); return err }, func() {
					resp, open := <-changes
					if !open || resp.Err() != nil {
						fail("the raw watch has ended: %w", resp.Err())
					}
				}
			})
		},
	}}
}

// latency returns the 99th percentile of the time from an event to its arrival in ms, of events
// one after the other.
func (b *bench) latency(event func(i int) (do func() error, arrives func())) float64 {
	var took []float64

	for i := range b.events {
		do, arrives := event(i)
		begun := time.Now()

		// The change may arrive before the answer to the event.
		answered := make(chan error, 1)
		go func() { answered <- do() }()

		arrives()

		took = append(took, 1000*time.Since(begun).Seconds())

		check(<-answered)
	}

	return p99(took)
}
