// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/contiv/cluster/clusterctl/exit"
)

// half is a manager with a class and two inspected nodes, which knows the facts of the named ones only.
func half(knows string) http.Handler {
	mux := http.NewServeMux()

	answer := func(path string, body any) {
		mux.HandleFunc("GET /v1/"+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(body)
		})
	}
	list := func(items ...any) any { return map[string]any{"items": items, "total": len(items)} }
	node := func(name string) any {
		return map[string]any{"name": name, "hardware": map[string]any{"inspection": 1}}
	}

	answer("classes", list(map[string]any{
		"name": "good", "nodes": "rack=r1", "shape": map[string]any{"vendor": "Acme"},
	}))
	answer("nodes", list(node("a-1"), node("b-1")))

	for _, name := range []string{"a-1", "b-1"} {
		if strings.Contains(knows, name) {
			answer("nodes/"+name+"/facts", map[string]any{
				"node": name, "inspection": map[string]any{"number": 1}, "facts": map[string]any{
					"system": map[string]any{"vendor": "Other"},
				},
			})
		}
	}

	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"type":"urn:clusterm:not-found","title":"no","status":404,`+
			`"detail":"its facts are gone","kind":"not-found"}`)
	})

	return mux
}

// TestCompareClassWithoutFacts: a node whose facts cannot be read is named, and keeps no other back.
func TestCompareClassWithoutFacts(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		knows string
		code  int
		shown []string // lines
		error string
	}{
		{"a-1 b-1", exit.Done, []string{"a-1", "b-1", "good: 0 same, 2 other, 0 not inspected\n"}, ""},
		{
			"b-1", exit.NotFound,
			[]string{
				"a-1    not read: its facts are gone", "b-1", "good: 0 same, 1 other, 0 not inspected, 1 not read\n",
			},
			"the facts of 1 of 2 nodes could not be read: its facts are gone",
		},
		{"", exit.NotFound, nil, "its facts are gone"},
	} {
		s := httptest.NewServer(half(c.knows))
		defer s.Close()

		var out, problem bytes.Buffer

		code := Run(t.Context(), []string{"clusterctl", "-u", s.URL, "class", "compare", "good"},
			Options{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &problem})

		if code != c.code || !strings.Contains(problem.String(), c.error) || (c.shown == nil) != (out.Len() == 0) {
			t.Errorf("knows %q: exit %d, want %d\n%s%s", c.knows, code, c.code, &out, &problem)
		}

		for _, want := range c.shown {
			if !strings.Contains(out.String(), want) {
				t.Errorf("knows %q: lacks %q:\n%s", c.knows, want, &out)
			}
		}
	}
}
