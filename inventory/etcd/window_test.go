// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/contiv/cluster/inventory/errtest"
)

// TestNoPings: neither side sends a ping to each message, in order to find out a window.
func TestNoPings(t *testing.T) {
	t.Parallel()

	s := start(t, ServerOptions{Dir: shortDir(t), NoSync: true})

	var sent, received frames

	config := clientv3.Config{Endpoints: []string{s.Endpoint()}}
	setOptions(&config)
	config.DialOptions = append(config.DialOptions, grpc.WithContextDialer(
		func(ctx context.Context, addr string) (net.Conn, error) {
			var d net.Dialer
			path := "/" + strings.TrimLeft(strings.TrimPrefix(addr, "unix:"), "/")
			c, err := d.DialContext(ctx, "unix", path)
			return &tapped{Conn: c, sent: &sent, received: &received}, err
		},
	))

	c, err := open(config)
	errtest.None(t, err)
	defer c.Close()

	const puts = 30
	for range puts {
		if _, err := c.Put(within(t, testTimeout), "/a", "b"); err != nil {
			t.Fatal(err)
		}
	}

	// A connection that is idle for a while may be probed.
	for what, f := range map[string]*frames{"client": &sent, "server": &received} {
		headers, pings := f.count(t)
		if headers < puts {
			t.Fatalf("the %s sent %d headers for %d puts", what, headers, puts)
		}
		if pings > puts/5 {
			t.Errorf("the %s sent %d pings for %d puts", what, pings, puts)
		}
	}
}

// TestAnswerBeyondWindow: an answer that is larger than a window arrives.
func TestAnswerBeyondWindow(t *testing.T) {
	t.Parallel()

	s := start(t, ServerOptions{Dir: shortDir(t), NoSync: true})
	c := dial(t, s, "/t")

	const size = maxRequestSize / 2

	count, value := window/size+2, strings.Repeat("x", size)
	for i := range count {
		if _, err := c.Put(within(t, testTimeout), fmt.Sprintf("/t/large/%d", i), value); err != nil {
			t.Fatal(err)
		}
	}

	resp, err := c.Get(within(t, testTimeout), "/t/large/", clientv3.WithPrefix())
	errtest.None(t, err)
	if len(resp.Kvs) != count || len(resp.Kvs[count-1].Value) != size {
		t.Errorf("got %d records of %d", len(resp.Kvs), count)
	}
}

// tapped is a connection that keeps what it transports.
type tapped struct {
	net.Conn

	sent, received *frames
}

func (c *tapped) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.sent.add(p[:n])
	return n, err
}

func (c *tapped) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.received.add(p[:n])
	return n, err
}

// frames is one direction of an HTTP/2 connection (RFC 9113).
type frames struct {
	mu  sync.Mutex
	raw []byte
}

func (f *frames) add(p []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.raw = append(f.raw, p...)
}

// count returns the number of frames with headers, and of pings that are no answers.
func (f *frames) count(t *testing.T) (headers, pings int) {
	t.Helper()

	f.mu.Lock()
	defer f.mu.Unlock()

	const (
		head       = 9 // bytes: length, type, flags and stream of a frame
		typeHeader = 1
		typePing   = 6
		ack        = 1
	)

	rest := bytes.TrimPrefix(f.raw, []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
	for len(rest) >= head {
		length := int(binary.BigEndian.Uint32(append([]byte{0}, rest[:3]...)))

		switch kind, flags := rest[3], rest[4]; {
		case kind == typeHeader:
			headers++
		case kind == typePing && flags&ack == 0:
			pings++
		}

		rest = rest[min(len(rest), head+length):]
	}

	return headers, pings
}
