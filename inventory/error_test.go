// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
)

func TestError(t *testing.T) {
	t.Parallel()

	e := Errorf(KindRefused, "%s is asleep: %w", "node-1", io.EOF).Do("wake %s", "it").About("node-1", "node-2")
	if e.Error() != "node-1 is asleep: EOF; wake it" || e.Message != "node-1 is asleep: EOF" || e.Remedy != "wake it" ||
		!slices.Equal(e.Nodes, []string{"node-1", "node-2"}) {
		t.Errorf("%+v", e)
	}

	if !errors.Is(e, io.EOF) || e.Err != io.EOF {
		t.Error("the cause is lost")
	}

	wrapped := fmt.Errorf("and so: %w", e)
	if KindOf(wrapped) != KindRefused {
		t.Error("the kind is lost by wrapping")
	}

	if KindOf(nil) != "" || KindOf(io.EOF) != KindInternal {
		t.Error("kinds of what has none")
	}

	if plain := Errorf(KindInvalid, "no"); plain.Error() != "no" || plain.Unwrap() != nil {
		t.Errorf("%v", plain)
	}
}

func TestKinds(t *testing.T) {
	t.Parallel()

	seen := map[Kind]bool{}
	for _, k := range Kinds {
		if seen[k] || k == "" {
			t.Errorf("%q", k)
		}

		seen[k] = true
	}

	if len(Kinds) != 11 {
		t.Errorf("%d kinds", len(Kinds))
	}
}
