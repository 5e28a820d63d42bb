// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"time"

	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// bearer sends a token with each request.
type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)

	return b.next.RoundTrip(r)
}

// remote returns the URL of the world's HTTPS listener, an operator's token for it, and
// an HTTP client that trusts its CA and sends the token over persistent connections.
func (w *world) remote(ctx context.Context, port int) (base, token string, c *http.Client, err error) {
	base = fmt.Sprintf("https://127.0.0.1:%d", port)

	ca, _, err := client.Certificate(ctx, base)
	if err != nil {
		return "", "", nil, err
	}

	created, err := w.CreateToken(ctx, api.TokenRequest{Role: "operator"})
	if err != nil {
		return "", "", nil, err
	}

	roots := x509.NewCertPool()
	roots.AddCert(ca)

	c = &http.Client{Transport: bearer{created.Token, &http.Transport{
		TLSClientConfig:    &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots},
		MaxConnsPerHost:    1,
		DisableCompression: true,
	}}}

	return base, created.Token, c, nil
}

// accessed measures the cost of TLS and a token: the same requests over HTTPS with a token,
// and over the Unix socket, both on connections that are kept.
func accessed(ctx context.Context, b *bench) error {
	port, err := freePort()
	if err != nil {
		return err
	}

	w, err := b.full(ctx, fmt.Sprintf("listen: 127.0.0.1:%d\njobs: {limit: %d}\n", port, atOnce))
	if err != nil {
		return err
	}
	defer w.discard()

	base, token, https, err := w.remote(ctx, port)
	if err != nil {
		return err
	}

	// clusterctl pins the CA and sends the token in the same way.
	ca, _, err := client.Certificate(ctx, base)
	if err != nil {
		return err
	}

	remote, err := client.New(client.Options{
		URL: base, Token: token, Trust: client.Trust{Fingerprint: client.Fingerprint(ca)},
	})
	if err != nil {
		return err
	}

	// lists returns the rate of lists of all nodes over one connection.
	lists := func(c *http.Client, base string) side {
		var bufs []*bytes.Buffer

		return func(ctx context.Context) (float64, error) {
			return together(1, 8,
				func(int) error { return readPages(ctx, c, base, &bufs) },
				func(int) error { return nil })
		}
	}

	// decoded is the same for a program that decodes the nodes.
	decoded := func(over *client.Client) side {
		return func(ctx context.Context) (float64, error) {
			begun := time.Now()

			const times = 4
			for range times {
				count := 0
				for _, err := range over.EachNode(ctx, client.NodeFilter{}) {
					if err != nil {
						return 0, err
					}

					count++
				}

				if count != b.nodes {
					return 0, fmt.Errorf("the answer has %d nodes instead of %d", count, b.nodes)
				}
			}

			return times / time.Since(begun).Seconds(), nil
		}
	}

	// transitions returns the rate of transitions by a job of many nodes.
	transitions := func(over *client.Client) side {
		return func(ctx context.Context) (float64, error) {
			if err := w.quarantine(ctx, atOnce); err != nil {
				return 0, err
			}

			nodes := make([]string, atOnce)
			for i := range nodes {
				nodes[i] = name(i)
			}

			begun := time.Now()
			err := (&world{Client: over}).clear(ctx, nodes...)

			return 2 * atOnce / time.Since(begun).Seconds(), err
		}
	}

	const against = "the same over the Unix socket"

	err = b.compare(ctx, comparison{
		name: "lists over HTTPS with a token, decoded", unit: "lists/s", against: against, rounds: 9,
		floor: atLeast(0.85), product: decoded(remote), baseline: decoded(w.Client),
		note: "all nodes in pages of 1000, by the client of clusterctl",
	})
	if err != nil {
		return err
	}

	err = b.compare(ctx, comparison{
		name: "lists over HTTPS with a token, bytes", unit: "lists/s", against: against, rounds: 9,
		product: lists(https, base), baseline: lists(w.overSocket(), "http://clusterm"),
		note: "without decoding, so that the encryption of some megabytes is most of the time",
	})
	if err != nil {
		return err
	}

	return b.compare(ctx, comparison{
		name: "transitions over HTTPS with a token, a job of 64 nodes", unit: "/s", against: against, rounds: 9,
		floor: atLeast(0.85), product: transitions(remote), baseline: transitions(w.Client),
	})
}
