// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/cluster/inventory/errtest"
)

// TestCollector: what comes during a write is written together, nothing is lost, and whoever adds an entry waits for
// the write that has it, and gets its error.
func TestCollector(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		var (
			mu      sync.Mutex // of written: whoever is done looks at it while the next batch is written
			written strings.Builder
			writes  int
			all     sync.WaitGroup
		)

		broken := errors.New("broken")
		c := newCollector(func(data []byte) error {
			time.Sleep(time.Second)
			if writes++; writes == 3 {
				return broken
			}

			mu.Lock()
			defer mu.Unlock()
			written.Write(data)

			return nil
		})

		for i := range 100 {
			all.Go(func() {
				entry := fmt.Sprintf("<%d>", i)
				errtest.None(t, c.add(t.Context(), []byte(entry)))

				mu.Lock()
				defer mu.Unlock()

				if !strings.Contains(written.String(), entry) {
					t.Errorf("%s was not written when add returned", entry)
				}
			})
		}

		all.Wait()

		if writes != 2 || strings.Count(written.String(), "<") != 100 {
			t.Errorf("%d writes of %q, want 2 of a hundred entries", writes, written.String())
		}

		if err := c.add(t.Context(), []byte("x")); !errors.Is(err, broken) {
			t.Errorf("add returned %v, and not the error of its write", err)
		}

		ended, end := context.WithCancel(t.Context())
		end()

		if err := c.add(ended, []byte("y")); err == nil || writes != 3 {
			t.Errorf("an entry of a step that has ended: %v, %d writes", err, writes)
		}

		// A request has a bound.
		writes = 10
		big := []byte(strings.Repeat("z", batchLimit/2))

		for range 5 {
			all.Go(func() { errtest.None(t, c.add(t.Context(), big)) })
		}
		all.Wait()

		if writes < 13 || writes > 15 {
			t.Errorf("%d writes of two and a half times the limit", writes-10)
		}
	})
}

// TestWholeLines: what is cut at a size ends with a whole line, wherever the size falls.
func TestWholeLines(t *testing.T) {
	t.Parallel()

	const data = "one\ntwo\n\nthree\n"
	for size, want := range []string{
		"", "", "", "", "one\n", "one\n", "one\n", "one\n", "one\ntwo\n", "one\ntwo\n\n", "one\ntwo\n\n",
	} {
		if got := string(wholeLines([]byte(data), int64(size))); got != want {
			t.Errorf("%d bytes: %q, want %q", size, got, want)
		}
	}
}
