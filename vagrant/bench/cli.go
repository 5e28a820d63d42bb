// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// cli measures the whole process, from its start to its end.
func cli(ctx context.Context, b *bench) error {
	w, err := b.full(ctx, "")
	if err != nil {
		return err
	}
	defer w.discard()

	timed := func(argv ...string) side {
		return func(ctx context.Context) (float64, error) {
			cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)

			out, err := os.Create(filepath.Join(w.dir, "out"))
			if err != nil {
				return 0, err
			}
			defer out.Close()

			cmd.Stdout = out
			begun := time.Now()

			if err := cmd.Run(); err != nil {
				return 0, fmt.Errorf("%s: %w", argv, err)
			}

			took := time.Since(begun)

			// Every node has a line of at least 20 bytes.
			if size, err := out.Seek(0, io.SeekEnd); err != nil || size < int64(b.nodes)*20 {
				return 0, fmt.Errorf("%s printed %d bytes", argv, size)
			}

			return float64(took.Microseconds()) / 1000, nil
		}
	}

	return b.compare(ctx, comparison{
		name:     "clusterctl nodes get, whole process",
		unit:     "ms",
		against:  "curl of the same bytes",
		rounds:   9,
		floor:    atMost(5, 0, "<= 5 x"),
		product:  timed(filepath.Join(b.bin, "clusterctl"), "--url", "unix://"+w.socket, "nodes", "get"),
		baseline: timed("curl", "-sf", "--unix-socket", w.socket, "http://clusterm/v1/nodes"),
	})
}
