// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"time"
)

// history is the number of jobs in the store when memory is measured.
const history = 100

// memory measures the processes after the discovery of all nodes, some jobs, and a list
// of the nodes in both forms; and again after a restart.
func memory(ctx context.Context, b *bench) error {
	w, err := b.full(ctx, "")
	if err != nil {
		return err
	}
	defer w.discard()

	// A clear needs a Quarantined node, so nodes are quarantined in batches.
	for done := 0; done < history; {
		if err := w.quarantine(ctx, atOnce); err != nil {
			return err
		}

		for i := 0; i < atOnce && done < history; i++ {
			if err := w.clear(ctx, name(i)); err != nil {
				return err
			}

			done++
		}
	}

	measure := func(when string) (float64, error) {
		daemon, err := resident(w.cmd.Process.Pid)
		if err != nil {
			return 0, err
		}

		below, err := children(w.cmd.Process.Pid)
		if err != nil {
			return 0, err
		}

		// The children are the embedded etcd.
		etcd := 0.0
		for _, pid := range below {
			mib, err := resident(pid)
			if err != nil {
				return 0, err
			}

			etcd += mib
		}

		b.out.Rows = append(b.out.Rows, row{
			Name:    "memory, " + when,
			Unit:    "MiB",
			Rounds:  1,
			Product: daemon + etcd,
			OK:      daemon+etcd < 200,
			Note: fmt.Sprintf("daemon %.0f, etcd %.0f MiB (Pss); %d nodes, %d jobs in history; below 200 is expected",
				daemon, etcd, b.nodes, history),
		})

		return daemon + etcd, nil
	}

	var buf bytes.Buffer
	for _, path := range []string{"/info/nodes", "/v1/nodes"} {
		if err := fetch(ctx, w.http, w.url+path, &buf); err != nil {
			return err
		}
	}

	if _, err := measure("after discovery, jobs and lists"); err != nil {
		return err
	}

	if err := w.stop(); err != nil {
		return err
	}

	begun := time.Now()

	if err := w.begin(); err != nil {
		return err
	}

	if _, err := w.listed(ctx, b.nodes, begun); err != nil {
		return err
	}

	if err := fetch(ctx, w.http, w.url+"/v1/nodes", &buf); err != nil {
		return err
	}

	_, err = measure("after a restart and lists")

	return err
}
