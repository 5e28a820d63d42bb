// SPDX-License-Identifier: Apache-2.0

package secret

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory/errtest"
)

// TestBox seals a value, and opens it with every ring and at every place.
func TestBox(t *testing.T) {
	t.Parallel()

	old, now := NewKey(), NewKey()
	here := Place{"vars", "global", "db"}

	box, err := NewRing(old).Seal(here, []byte(`"canary"`))
	errtest.None(t, err)

	if strings.Contains(string(box), "canary") || box.KeyID() != old.ID() {
		t.Errorf("the box is %s", box)
	}

	for name, ring := range map[string]Ring{"its key": NewRing(old), "after a rotation": NewRing(old).With(now)} {
		if plain, err := ring.Open(here, box); err != nil || string(bytes.TrimSpace(plain)) != `"canary"` {
			t.Errorf("%s: %q, %v", name, plain, err)
		}
	}

	_, err = NewRing(now).Open(here, box)
	if missing, ok := errors.AsType[*MissingKeyError](err); !ok || missing.ID != old.ID() {
		t.Errorf("without its key: %v", err)
	}

	// Parts must not move across their borders either.
	for _, there := range []Place{{"vars", "global", "db2"}, {"vars", "globaldb"}, {"vars", "globald", "b"}, {"vars"}} {
		if _, err := NewRing(old).Open(there, box); !errors.Is(err, ErrDamaged) {
			t.Errorf("at %v: %v", there, err)
		}
	}

	if _, err := NewRing(old).Seal(Place{"vars", "a\x00b"}, nil); err == nil {
		t.Error("a place with a zero byte was accepted")
	}

	if _, err := (Ring{}).Seal(here, nil); !errors.Is(err, ErrNoKey) {
		t.Errorf("without a key: %v", err)
	}
}

// TestBoxesDiffer seals values of different lengths: neither content nor length shows.
func TestBoxesDiffer(t *testing.T) {
	t.Parallel()

	ring := NewRing(NewKey())
	boxes := map[Box]bool{}
	lengths := map[int]bool{}

	for _, value := range []string{`"a"`, `"a"`, `"a much longer password"`} {
		box, err := ring.Seal(Place{"x"}, []byte(value))
		errtest.None(t, err)
		boxes[box], lengths[len(box)] = true, true
	}

	if len(boxes) != 3 || len(lengths) != 1 {
		t.Errorf("%d boxes of %d lengths", len(boxes), len(lengths))
	}
}

// TestDamagedBox changes each byte of a box in turn.
func TestDamagedBox(t *testing.T) {
	t.Parallel()

	ring := NewRing(NewKey())
	box, err := ring.Seal(Place{"x"}, []byte(`1`))
	errtest.None(t, err)

	for i := range box {
		changed := []byte(box)
		changed[i] ^= 1

		if plain, err := ring.Open(Place{"x"}, Box(changed)); err == nil {
			t.Errorf("byte %d changed: it opens to %q", i, plain)
		}
	}

	for _, b := range []Box{"", "v1", "v1..", "v2.a.b", "v1." + Box(ring.Active()) + "."} {
		if _, err := ring.Open(Place{"x"}, b); err == nil {
			t.Errorf("%q opens", b)
		}
	}
}

// TestKeyFile reads key files, and writes one back.
func TestKeyFile(t *testing.T) {
	t.Parallel()

	ring := NewRing(NewKey()).With(NewKey())

	again, err := Parse(ring.Encode())
	errtest.None(t, err)

	if fmt.Sprint(again.IDs()) != fmt.Sprint(ring.IDs()) || again.Active() != ring.IDs()[0] || len(ring.IDs()) != 2 {
		t.Errorf("%v became %v", ring.IDs(), again.IDs())
	}

	if only := ring.OnlyActive(); len(only.IDs()) != 1 || only.Active() != ring.Active() {
		t.Errorf("only the active of %v: %v", ring.IDs(), only.IDs())
	}

	line := strings.Split(string(NewRing(NewKey()).Encode()), "\n")[2]

	for content, want := range map[string]string{
		"":                        "no key",
		"# only a comment\n":      "no key",
		"short\n":                 "line 1",
		"\n" + line + "x\n":       "line 2",
		line + "\n" + line:        "repeats",
		"c2hvcnQ=\n":              "line 1",
		string(many(maxKeys + 1)): "more than",
	} {
		_, err := Parse([]byte(content))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), line) {
			t.Errorf("%.20q: %v", content, err)
		}
	}
}

func many(count int) []byte {
	var r Ring
	for range count {
		r = r.With(NewKey())
	}

	return r.Encode()
}

// TestKeyIsNotPrinted prints a key with the usual verbs.
func TestKeyIsNotPrinted(t *testing.T) {
	t.Parallel()

	k := NewKey()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d"} {
		if got := fmt.Sprintf(verb, k); got != "key "+k.ID() {
			t.Errorf("%s prints %q", verb, got)
		}
	}
}

// FuzzOpen opens any text as a box and as a key file: no input may crash it, and none
// may open.
func FuzzOpen(f *testing.F) {
	ring := NewRing(NewKey())
	box, _ := ring.Seal(Place{"x"}, []byte("1"))
	f.Add(string(box))
	f.Add(string(ring.Encode()))

	f.Fuzz(func(t *testing.T, text string) {
		if _, err := ring.Open(Place{"y"}, Box(text)); err == nil {
			t.Error("a box of another place opened")
		}

		if r, err := Parse([]byte(text)); err == nil && r.Active() == "" {
			t.Error("a key file without a key was read")
		}
	})
}
