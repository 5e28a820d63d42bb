// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/contiv/cluster/clusterctl/exit"
)

// otherwise is a manager whose configuration somebody else changes before the first write, or
// before each one.
type otherwise struct {
	always   bool
	revision int
	groups   []map[string]any
	writes   int
}

func (m *otherwise) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")

	if r.Method == http.MethodPatch {
		m.writes++

		if m.writes == 1 || m.always {
			m.revision++
			m.groups = append(m.groups, map[string]any{"name": fmt.Sprintf("other-%d", m.writes)})
		}

		if r.Header.Get("If-Match") != fmt.Sprintf(`"%d"`, m.revision) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusPreconditionFailed)
			_, _ = io.WriteString(w, `{"type":"urn:clusterm:precondition","title":"changed","status":412,`+
				`"detail":"the configuration has changed","kind":"precondition"}`)

			return
		}

		var patch struct {
			Groups []map[string]any `json:"groups"`
		}

		_ = json.NewDecoder(r.Body).Decode(&patch)
		m.groups = patch.Groups
		m.revision++
	}

	w.Header().Set("ETag", fmt.Sprintf(`"%d"`, m.revision))
	_ = json.NewEncoder(w).Encode(map[string]any{
		"groups": map[string]any{"value": m.groups, "origin": "overlay", "settable": true},
	})
}

// TestItemsKeepOthers changes one group while somebody else adds one: the write is repeated on
// the newer list, and given up after some tries.
func TestItemsKeepOthers(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		always bool
		code   int
		groups string
	}{
		{false, exit.Done, "a other-1 mine"},
		{true, exit.Refused, "a other-1 other-2 other-3 other-4 other-5"},
	} {
		m := &otherwise{always: c.always, revision: 7, groups: []map[string]any{{"name": "a"}}}

		s := httptest.NewServer(m)
		defer s.Close()

		var out, problem bytes.Buffer

		code := Run(t.Context(), []string{"clusterctl", "-u", s.URL, "group", "set", "mine", "on_return=record"},
			Options{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &problem})

		var names []string
		for _, g := range m.groups {
			names = append(names, fmt.Sprint(g["name"]))
		}

		if got := strings.Join(names, " "); code != c.code || got != c.groups {
			t.Errorf("exit code %d, want %d; groups %s, want %s\n%s", code, c.code, got, c.groups, problem.String())
		}
	}
}
