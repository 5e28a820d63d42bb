// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
)

// TestUnknownKind prints the changes of a kind of which this clusterctl knows nothing.
func TestUnknownKind(t *testing.T) {
	var text bytes.Buffer

	e := newEvents(Output{
		Write: func(b []byte) error { _, err := text.Write(b); return err },
		Say:   func(string, ...any) {},
	})
	put := func(object string) api.Change {
		return api.Change{Type: api.ChangePut, Kind: "lamps", Name: "x", Object: json.RawMessage(object)}
	}

	for _, change := range []api.Change{
		put(`{"level":1}`),
		{Type: api.ChangeSync},
		put(`{"level":1,"on":true,"color_of":"dark\u001b red","at":["a","b"],"parts":[{"n":1}]}`),
		put(`{"level":2,"on":true,"color_of":null,"at":["a","b"],"parts":[{"n":2}]}`),
		{Type: api.ChangeDelete, Kind: "lamps", Name: "x"},
		put(`{"level":3}`),
	} {
		errtest.None(t, e.show(change))
	}

	want := []string{
		"on yes; color of dark\ufffd red; at a, b; parts changed",
		"level 2; color of none; parts changed",
		"removed",
		"new; level 3",
	}

	for i, line := range strings.Split(strings.TrimSpace(text.String()), "\n") {
		if _, got, _ := strings.Cut(line, "  lamps x  "); i >= len(want) || got != want[i] {
			t.Errorf("line %d is %q", i, line)
		}
	}

	if err := e.show(put(`[]`)); err == nil || !strings.Contains(err.Error(), "the change of lamps x is malformed") {
		t.Errorf("a list in the place of an object: %v", err)
	}
}
