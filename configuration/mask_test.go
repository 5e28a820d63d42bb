// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory/errtest"
)

func TestSecretsValues(t *testing.T) {
	t.Parallel()

	got := DefaultSecrets().Values(map[string]any{
		"db_password":  "hunter2",
		"motd":         "shown",
		"my_token":     map[string]any{"id": json.Number("123456"), "list": []any{`a "quoted" one`, true}},
		"deep":         map[string]any{"api_key": "deep-value", "name": "shown"},
		"private_key":  "-----BEGIN-----\nAAAA\n  BBBB\nab\n",
		"has_password": "true",
		"pin_password": "123",
	})

	want := []string{"-----BEGIN-----", "123456", "AAAA", "BBBB", `a "quoted" one`, "deep-value", "hunter2"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestMask masks a stream in writes of every size.
func TestMask(t *testing.T) {
	t.Parallel()

	secrets := []string{"abab", "ababcd", "key-1", "xyzzy"}
	// A secret within another one, one after half of itself, and one that never ends.
	const (
		text = "ab xabab ababcd abababcd key-key-1, nothing, xyzzyxyzzy xyzz"
		want = "ab x(hidden) (hidden) (hidden)abcd key-(hidden), nothing, (hidden)(hidden) xyzz"
	)

	for size := 1; size <= len(text); size++ {
		var out strings.Builder

		m := NewMask(&out, secrets)
		for part := range slices.Chunk([]byte(text), size) {
			if n, err := m.Write(part); n != len(part) || err != nil {
				t.Fatal(n, err)
			}
		}

		if err := m.Close(); err != nil || out.String() != want {
			t.Errorf("writes of %d bytes: %q, %v", size, out.String(), err)
		}
	}
}

// TestEventMask: a secret hides texts of an event, never the fields on which results
// depend.
func TestEventMask(t *testing.T) {
	t.Parallel()

	const lines = `{"event":"ok","host":"failed-1","changed":true}` + "\n" +
		`{"event":"stats","stats":{"failed-1":{"ok":1,"doubt":"it failed"}}}` + "\n" +
		`{"event":"failed","host":"failed-1","message":"login as \"failed\" <a>","item":"x"}` + "\n" + "failed\n"

	for size := 1; size <= len(lines); size++ {
		var out strings.Builder

		m := NewEventMask(&out, []string{"failed", "true"})
		for part := range slices.Chunk([]byte(lines), size) {
			if _, err := m.Write(part); err != nil {
				t.Fatal(err)
			}
		}

		errtest.None(t, m.Close())

		var stream EventStream

		events := stream.Write([]byte(out.String()))
		if len(events) != 3 || !events[0].Changed || events[0].Host != "failed-1" || events[2].Event != EventFailed ||
			events[1].Stats["failed-1"] != (Stats{OK: 1, Doubt: "it (hidden)"}) ||
			events[2].Message != `login as "(hidden)" <a>` || !strings.HasSuffix(out.String(), "\n(hidden)\n") {
			t.Fatalf("writes of %d bytes: %q", size, out.String())
		}
	}
}

// TestEventMaskDiff: a difference shows neither a secret nor the value in its place.
func TestEventMaskDiff(t *testing.T) {
	t.Parallel()

	diff := "--- before: /etc/a\n+++ after: /etc/a\n@@ -1,3 +1,3 @@\n name=x\n-port=1\n+port=2\n same\n" +
		"-password=former\n\\ No newline at end of file\n+password=hunter2\n"

	line, err := json.Marshal(Event{Event: EventOK, Host: "a", Foreseen: true, Diff: diff})
	errtest.None(t, err)

	var out strings.Builder

	m := NewEventMask(&out, []string{"hunter2"})
	if _, err := m.Write(append(line, '\n')); err != nil {
		t.Fatal(err)
	}

	e, ok := ParseEvent([]byte(out.String()))
	want := "--- before: /etc/a\n+++ after: /etc/a\n@@ -1,3 +1,3 @@\n name=x\n-port=1\n+port=2\n same\n" +
		"-(hidden)\n\\(hidden)\n+(hidden)\n"

	if !ok || e.Diff != want || !e.Foreseen {
		t.Errorf("%q", out.String())
	}
}
