// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/cluster/inventory/errtest"
)

func TestTailFollowsAndEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	synctest.Test(t, func(t *testing.T) {
		polls := 0

		var ended atomic.Bool
		go func() {
			time.Sleep(5 * time.Second)

			f, err := os.Create(path)
			if err != nil {
				t.Error(err)
				return
			}

			f.WriteString("héllo\n")
			time.Sleep(5 * time.Second)
			f.WriteString(strings.Repeat("x", 3*TailChunk))
			f.Close()
			ended.Store(true)
		}()

		var got strings.Builder

		end, err := Tail(
			t.Context(),
			path,
			2,
			func() bool { polls++; return ended.Load() },
			func(offset int64, chunk []byte) error {
				if int(offset) != got.Len()+2 {
					t.Errorf("a chunk at %d, want %d", offset, got.Len()+2)
				}

				got.Write(chunk)
				return nil
			},
		)

		want := "\xa9llo\n" + strings.Repeat("x", 3*TailChunk)
		if err != nil || got.String() != want || end != int64(len(want)+2) {
			t.Errorf("%d bytes, offset %d, %v", got.Len(), end, err)
		}

		if polls > 110 {
			t.Errorf("polled %d times in 10 s", polls)
		}
	})
}

func TestTailStops(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	errtest.None(t, os.WriteFile(path, []byte("abc"), 0o600))

	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()

		never := func() bool { return false }
		accept := func(int64, []byte) error { return nil }

		end, err := Tail(ctx, path, 0, never, accept)
		if !errors.Is(err, context.DeadlineExceeded) || end != 3 {
			t.Errorf("expired context: offset %d, %v; want 3", end, err)
		}

		errRefused := errors.New("refused")
		refuse := func(int64, []byte) error { return errRefused }

		end, err = Tail(t.Context(), path, 1, never, refuse)
		if !errors.Is(err, errRefused) || end != 1 {
			t.Errorf("failing deliver: offset %d, %v; want 1", end, err)
		}
	})
}
