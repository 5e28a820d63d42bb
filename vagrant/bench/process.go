// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// start measures on the same data how long clusterm takes until it lists all nodes, and
// how long its etcd alone takes until it answers a read.
func start(ctx context.Context, b *bench) []row {
	w := b.full(ctx, "")

	// Both sides start on the same data, one after the other.
	_ = w.raw.Close()
	w.stop()

	return []row{{
		Name:    "start until all nodes are listed",
		Unit:    "s",
		Against: "start of its etcd until it answers a read",
		Rounds:  5,
		floor:   atMost(1.3, 0.3, "<= 1.3 x + 0.3 s"),
		product: func() float64 {
			defer w.stop()
			return w.listed(ctx)
		},
		baseline: func() float64 { return w.etcdAlone(ctx) },
	}}
}

// listed starts clusterm, and returns the seconds until all nodes are listed.
func (w *world) listed(ctx context.Context) float64 {
	var buf bytes.Buffer

	begun := time.Now()

	w.begin()
	took := w.answered(ctx, begun, func() error { return fetch(ctx, w.http, w.url+"/info/nodes", &buf) })
	w.hasAll(buf.Bytes())

	return took
}

// hasAll requires all nodes in an answer of /info/nodes.
func (w *world) hasAll(text []byte) {
	if n := bytes.Count(text, []byte(`"monitoring_state":`)); n != w.bench.nodes {
		fail("the list has %d nodes, want %d", n, w.bench.nodes)
	}
}

// etcdAlone starts the embedded etcd without the daemon and returns the seconds until it
// answers a read.
func (w *world) etcdAlone(ctx context.Context) float64 {
	begun := time.Now()
	cmd := exec.Command(filepath.Join(w.bench.bin, "clusterm"), "etcd", filepath.Dir(w.etcdSocket()))
	in := must(cmd.StdinPipe())
	cmd.Stderr = w.log

	check(cmd.Start())

	// It ends at the end of its input.
	defer func() { _, _ = in.Close(), cmd.Wait() }()

	return w.answered(ctx, begun, func() error {
		if _, err := os.Stat(w.etcdSocket()); err != nil {
			return err
		}

		// The socket exists before etcd serves, so a read decides.
		c, err := dial(w.etcdSocket())
		if err != nil {
			return err
		}
		defer c.Close()

		once, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()

		_, err = c.Get(once, keys+"/schema")

		return err
	})
}

// discover measures a fresh clusterm in each round, so that all nodes are new.
func discover(ctx context.Context, b *bench) []row {
	w := b.full(ctx, "")

	return []row{{
		Name:    "nodes discovered, until listed",
		Unit:    "nodes/s",
		Against: "raw etcd puts of as many records, 100 to a transaction",
		Rounds:  3,
		floor:   atLeast(0.3),
		Note: "1000 to a request, one request after the other; " +
			"clusterm also writes a history entry for each node, the baseline does not",
		product: func() float64 {
			w.close()
			w = b.world(ctx, "")

			var buf bytes.Buffer

			seconds := timed(func() {
				w.fill(ctx, b.nodes)
				check(fetch(ctx, w.http, w.url+"/info/nodes", &buf))
			})

			w.hasAll(buf.Bytes())

			return float64(b.nodes) / seconds
		},
		baseline: func() float64 {
			// A new prefix in each round, so that puts create keys, as the product's do.
			record, prefix := w.record(ctx), w.unused()

			return float64(b.nodes) / timed(func() {
				w.puts(ctx, b.nodes, func(i int) clientv3.Op { return clientv3.OpPut(prefix+name(i), record) })
			})
		},
	}}
}

// puts writes so many records, 100 to a transaction.
func (w *world) puts(ctx context.Context, count int, put func(i int) clientv3.Op) {
	for first := 0; first < count; first += 100 {
		var ops []clientv3.Op
		for i := first; i < min(first+100, count); i++ {
			ops = append(ops, put(i))
		}

		_ = must(w.raw.Txn(ctx).Then(ops...).Commit())
	}
}

// cli measures the whole process, from its start to its end.
func cli(ctx context.Context, b *bench) []row {
	w := b.full(ctx, "")

	process := func(argv ...string) side {
		return func() float64 {
			cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)

			out := must(os.Create(filepath.Join(w.dir, "out")))
			defer out.Close()

			cmd.Stdout = out
			seconds := timed(func() { check(cmd.Run()) })

			// Every node has a line of at least 20 bytes.
			if size := must(out.Seek(0, io.SeekEnd)); size < int64(b.nodes)*20 {
				fail("%s printed %d bytes", argv, size)
			}

			return 1000 * seconds
		}
	}

	return []row{{
		Name:     "clusterctl nodes get, whole process",
		Unit:     "ms",
		Against:  "curl of the same bytes",
		Rounds:   9,
		floor:    atMost(5, 0, "<= 5 x"),
		product:  process(filepath.Join(b.bin, "clusterctl"), "--url", "unix://"+w.socket, "nodes", "get"),
		baseline: process("curl", "-sf", "--unix-socket", w.socket, "http://clusterm/v1/nodes"),
	}}
}

// history is the number of jobs in the store when memory is measured.
const history = 100

// memory measures the processes after the discovery of all nodes, some jobs, and a list
// of the nodes in both forms; and again after a restart.
func memory(ctx context.Context, b *bench) []row {
	w := b.full(ctx, "")

	// A clear needs a Quarantined node, so nodes are quarantined in batches.
	for done := range history {
		if done%atOnce == 0 {
			w.quarantine(ctx, atOnce)
		}

		w.carryOut(ctx, clearing(name(done%atOnce)))
	}

	measured := func(when string, before func()) row {
		note := ""

		return row{
			Name:   "memory, " + when,
			Unit:   "MiB",
			Rounds: 1,
			floor:  floor{ok: func(mib, _ float64) bool { return mib < 200 }},
			note:   func() string { return note },
			product: func() float64 {
				before()
				check(fetch(ctx, w.http, w.url+"/v1/nodes", &bytes.Buffer{}))

				daemon, etcd := resident(w.cmd.Process.Pid), 0.0
				for _, pid := range children(w.cmd.Process.Pid) { // the embedded etcd
					etcd += resident(pid)
				}

				note = fmt.Sprintf(
					"daemon %.0f, etcd %.0f MiB (Pss); %d nodes, %d jobs in history; below 200 is expected",
					daemon,
					etcd,
					b.nodes,
					history,
				)

				return daemon + etcd
			},
		}
	}

	return []row{
		measured("after discovery, jobs and lists", func() {
			check(fetch(ctx, w.http, w.url+"/info/nodes", &bytes.Buffer{}))
		}),
		measured("after a restart and lists", func() { w.stop(); w.listed(ctx) }),
	}
}

// resident is the proportional set size of a process in MiB: its private memory, and
// its share of the memory that it shares.
func resident(pid int) float64 {
	text := string(must(os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))))
	_, pss, _ := strings.Cut(text, "\nPss:")

	var kib float64

	_ = must(fmt.Sscan(pss, &kib))

	return kib / 1024
}

// children lists the child processes of a process.
func children(pid int) (out []int) {
	for _, file := range must(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))) {
		for _, f := range strings.Fields(string(must(os.ReadFile(file)))) {
			out = append(out, must(strconv.Atoi(f)))
		}
	}

	return out
}
