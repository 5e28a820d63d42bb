// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// start measures on the same data how long clusterm takes until it lists all nodes, and
// how long its etcd alone takes until it answers a read.
func start(ctx context.Context, b *bench) error {
	w, err := b.full(ctx, "")
	if err != nil {
		return err
	}
	defer w.discard()

	// Both sides start on the same data, one after the other.
	if err := w.raw.Close(); err != nil {
		return err
	}

	w.raw = nil

	if err := w.stop(); err != nil {
		return err
	}

	return b.compare(ctx, comparison{
		name:    "start until all nodes are listed",
		unit:    "s",
		against: "start of its etcd until it answers a read",
		rounds:  5,
		floor:   atMost(1.3, 0.3, "<= 1.3 x + 0.3 s"),
		product: func(ctx context.Context) (float64, error) {
			begun := time.Now()

			if err := w.begin(); err != nil {
				return 0, err
			}

			took, err := w.listed(ctx, b.nodes, begun)
			if serr := w.stop(); err == nil {
				err = serr
			}

			return took, err
		},
		baseline: func(ctx context.Context) (float64, error) { return w.etcdAlone(ctx) },
	})
}

// listed polls until all nodes are listed and returns the seconds since begun.
func (w *world) listed(ctx context.Context, count int, begun time.Time) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()

	var buf bytes.Buffer
	for {
		err := fetch(ctx, w.http, w.url+"/info/nodes", &buf)
		if err == nil {
			took := time.Since(begun)

			if n := bytes.Count(buf.Bytes(), []byte(`"monitoring_state":`)); n != count {
				return 0, fmt.Errorf("the list has %d nodes, want %d", n, count)
			}

			return took.Seconds(), nil
		}

		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("clusterm does not answer: %w\n%s", err, w.logTail())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// etcdAlone starts the embedded etcd without the daemon and returns the seconds until it
// answers a read.
func (w *world) etcdAlone(ctx context.Context) (float64, error) {
	dir := filepath.Join(w.dir, "data/etcd")
	begun := time.Now()
	cmd := exec.Command(filepath.Join(w.bin, "clusterm"), "etcd", dir)

	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}

	cmd.Stderr = w.log
	if err := cmd.Start(); err != nil {
		return 0, err
	}

	// It ends at the end of its input.
	defer func() { _, _ = in.Close(), cmd.Wait() }()

	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()

	socket := filepath.Join(dir, "client.sock")
	for {
		if _, err := os.Stat(socket); err == nil {
			// The socket exists before etcd serves, so a read decides.
			c, err := dial(socket)
			if err != nil {
				return 0, err
			}

			once, cancel := context.WithTimeout(ctx, 10*time.Second)
			_, err = c.Get(once, keys+"/schema")
			took := time.Since(begun)
			cancel()
			_ = c.Close()

			if err == nil {
				return took.Seconds(), nil
			}
		}

		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("etcd does not answer\n%s", w.logTail())
		case <-time.After(5 * time.Millisecond):
		}
	}
}
