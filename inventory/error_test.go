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
	if e.Error() != "node-1 is asleep: EOF; wake it" || e.Message != "node-1 is asleep: EOF" || e.Remedy != "wake it" {
		t.Errorf("got %q, with message %q and remedy %q", e.Error(), e.Message, e.Remedy)
	}
	if !slices.Equal(e.Nodes, []string{"node-1", "node-2"}) {
		t.Errorf("got nodes %v", e.Nodes)
	}

	if !errors.Is(e, io.EOF) || !errors.Is(e.Err, io.EOF) {
		t.Errorf("got cause %v, want EOF", e.Err)
	}

	plain := Errorf(KindInvalid, "no")
	if plain.Error() != "no" || plain.Unwrap() != nil {
		t.Errorf("an error without remedy and cause: got %q, cause %v", plain.Error(), plain.Unwrap())
	}
}

func TestUnder(t *testing.T) {
	t.Parallel()

	cause := Errorf(KindInvalid, "%q is no URL", "x").Do("write one").About("web-1")

	err, ok := errors.AsType[*Error](Under("repository.url", cause))
	if !ok || err.Message != `repository.url: "x" is no URL` || err.Kind != KindInvalid || err.Remedy != "write one" ||
		len(err.Nodes) != 1 {
		t.Errorf("got %+v", err)
	}

	if cause.Message != `"x" is no URL` {
		t.Errorf("the error itself was changed: %s", cause.Message)
	}

	if err := Under("key", io.EOF); !errors.Is(err, io.EOF) {
		t.Errorf("another error: got %v", err)
	}

	if err := Under("key", nil); err != nil {
		t.Errorf("no error: got %v", err)
	}
}

func TestKindOf(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		err  error
		want Kind
	}{
		{nil, ""},
		{io.EOF, KindInternal},
		{Errorf(KindRefused, "no"), KindRefused},
		{fmt.Errorf("commission: %w", Errorf(KindRefused, "no")), KindRefused},
	} {
		if got := KindOf(tt.err); got != tt.want {
			t.Errorf("KindOf(%v) = %q, want %q", tt.err, got, tt.want)
		}
	}
}

func TestKinds(t *testing.T) {
	t.Parallel()

	seen := map[Kind]bool{}
	for _, k := range Kinds {
		if seen[k] || k == "" {
			t.Errorf("kind %q is empty or listed twice", k)
		}

		seen[k] = true
	}

	if len(Kinds) != 14 {
		t.Errorf("%d kinds are listed, want 14", len(Kinds))
	}
}
