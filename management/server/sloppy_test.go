// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/contiv/cluster/management/api"
)

// sloppy are bodies that scripts send by mistake. Each stands in place of an
// object of variables.
var sloppy = map[string]string{
	"missing value":      `{"foo":}`,
	"missing colon":      `{"foo"}`,
	"trailing comma":     `{"foo":1,}`,
	"list with comma":    `{"foo":[1,]}`,
	"single quotes":      `{'foo':'bar'}`,
	"no quotes":          `{foo: bar}`,
	"equals":             `{"foo"="bar"}`,
	"repeated name":      `{"foo":1,"foo":2}`,
	"repeated below":     `{"foo":{"a":1,"a":2}}`,
	"NaN":                `{"foo":NaN}`,
	"infinity":           `{"foo":-Infinity}`,
	"True":               `{"foo":True}`,
	"byte order mark":    "\ufeff" + `{"foo":1}`,
	"mark, then wrong":   "\ufeff" + `{"foo":}`,
	"cut off":            `{"foo":"ba`,
	"trailing text":      `{"foo":1} done`,
	"two documents":      `{"foo":1}{"bar":2}`,
	"two lines":          "{\"foo\":1}\n{\"bar\":2}",
	"slash comment":      `{"foo":1 // one` + "\n}",
	"number sign":        "{\"foo\":1} # one",
	"comment before":     "# one\n{\"foo\":}",
	"document mark":      "---\n{\"foo\":}",
	"anchor":             `{"foo":&a 1,"bar":*a}`,
	"array":              `[{"foo":1}]`,
	"string":             `"foo"`,
	"number":             `7`,
	"boolean":            `true`,
	"invalid UTF-8":      "{\"foo\":\"\xff\"}",
	"invalid name":       "{\"f\xffo\":1}",
	"form":               `foo=bar&x=1`,
	"control character":  "{\"foo\":\"a\nb\"}",
	"octal":              `{"foo":0644}`,
	"hexadecimal":        `{"foo":0x1F}`,
	"plus":               `{"foo":+1}`,
	"deep list":          `{"foo":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`,
	"deep object":        strings.Repeat(`{"foo":`, 100) + "1" + strings.Repeat("}", 100),
	"very deep":          strings.Repeat("[", 100_000),
	"no-break space":     "\u00a0{\"foo\":}",
	"no-break, no value": "{\"foo\":\u00a0}",
}

// noJSON are bodies that are YAML, which only the versioned API accepts, and only
// as a string.
var noJSON = map[string]string{
	"block":          "foo: bar",
	"anchors":        "foo: &a 1\nbar: *a",
	"only a comment": "# nothing",
}

// TestSloppyBodies expects each wrong body to be refused on each path, with a
// reason and without a change.
func TestSloppyBodies(t *testing.T) {
	t.Parallel()

	type path struct {
		method, path string
		status       int
		body         func(vars string) string
	}

	plain := func(vars string) string { return vars }
	asText := func(before, after string) func(string) string {
		return func(vars string) string { return before + quote(vars) + after }
	}
	within := func(before string) func(string) string {
		return func(vars string) string { return before + vars + "}" }
	}

	legacy := []path{
		{"POST", api.LegacySetGlobals, 500, plain},
		{"POST", api.LegacySetGlobals, 500, within(`{"extra_vars":`)},
		{"POST", api.LegacySetGlobals, 500, asText(`{"extra_vars":`, "}")},
		{"POST", api.LegacyCommission, 500, asText(`{"nodes":["a-1"],"extra_vars":`, "}")},
		{"POST", api.LegacyConfig, 500, within(`{"config":`)},
	}
	versioned := []path{
		{"PUT", api.PathGlobalVars, 400, plain},
		{"PATCH", api.PathGlobalVars, 400, plain},
		{"PATCH", api.PathConfig, 400, plain},
		{"POST", api.PathJobs, 400, asText(`{"verb":"commission","nodes":["a-1"],"extra_vars":`, "}")},
	}

	refused := func(t *testing.T, p path, vars string, headers ...string) {
		t.Helper()

		// JSON text cannot carry other bytes: the encoder would replace them.
		body := p.body(vars)
		s := serve(t)

		res, text := s.exchange(t, p.method, p.path, body, headers...)
		if res.StatusCode != p.status || len(text) < 10 {
			t.Errorf("%s %s with %.80q: %d %.200s", p.method, p.path, body, res.StatusCode, text)
		}

		if s.manager.count() > 0 {
			t.Errorf("%s %s with %.80q called %s", p.method, p.path, body, s.manager.last())
		}
	}

	for name, vars := range sloppy {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			for _, p := range append(legacy, versioned...) {
				refused(t, p, vars)
			}
		})
	}

	for name, vars := range noJSON {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			for _, p := range legacy {
				refused(t, p, vars)
			}

			for _, p := range versioned[:3] {
				refused(t, p, vars)
			}
		})
	}

	t.Run("absent", func(t *testing.T) {
		t.Parallel()

		for _, body := range []string{
			"", " \n", "null", "{}", `{"extra_vars":null}`, `{"extra_vars":""}`, `{"extra_vars":"null"}`,
			`{"extra_vars":{},"extra_vars":{}}`, "[]",
		} {
			refused(t, legacy[0], body)
		}

		for _, body := range []string{"", " \n", "null", "[]"} {
			for _, p := range versioned[:3] {
				refused(t, p, body)
			}
		}
	})

	t.Run("form", func(t *testing.T) {
		t.Parallel()

		form := []string{"Content-Type", "application/x-www-form-urlencoded"}
		for _, p := range []path{
			{"POST", api.LegacySetGlobals, 500, plain},
			{"PUT", api.PathGlobalVars, http.StatusUnsupportedMediaType, plain},
		} {
			refused(t, p, `{"extra_vars":{"a":1}}`, form...)
			refused(t, p, "extra_vars=1", form...)
		}
	})
}

// quote returns text as a JSON string, with invalid bytes kept as they are.
func quote(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(text) + `"`
}
