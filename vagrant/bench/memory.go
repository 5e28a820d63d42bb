// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"time"
)

// history is how many jobs there are when memory is looked at.
const history = 100

// memory looks at the processes after all nodes were discovered, some jobs have
// run, and the nodes have been listed in both forms.
func memory(ctx context.Context, b *bench) error {
	w, err := b.full(ctx, "")
	if err != nil {
		return err
	}
	defer w.close() //nolint:errcheck // measured already

	for done := 0; done < history; {
		if err := w.quarantine(ctx); err != nil {
			return err
		}

		for i := 0; i < atOnce && done < history; i++ {
			if err := w.clear(ctx, name(i)); err != nil {
				return err
			}

			done++
		}
	}

	look := func(when string) (float64, error) {
		daemon, err := resident(w.cmd.Process.Pid)
		if err != nil {
			return 0, err
		}

		below, err := children(w.cmd.Process.Pid)
		if err != nil {
			return 0, err
		}

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
			Note: fmt.Sprintf(
				"daemon %.0f, etcd %.0f MiB (Pss); %d nodes, %d jobs in history; below 200 is expected",
				daemon,
				etcd,
				b.nodes,
				history,
			),
		})

		return daemon + etcd, nil
	}

	var buf bytes.Buffer
	for _, path := range []string{"/info/nodes", "/v1/nodes"} {
		if err := fetch(ctx, w.http, w.url+path, &buf); err != nil {
			return err
		}
	}

	if _, err := look("after discovery, jobs and lists"); err != nil {
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

	_, err = look("after a restart and lists")

	return err
}
