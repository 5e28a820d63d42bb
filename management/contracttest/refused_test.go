// SPDX-License-Identifier: Apache-2.0

package contracttest_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/contiv/cluster/management/api"
)

// TestRefused: an exchange that differs from the document in anything is found.
func TestRefused(t *testing.T) {
	t.Parallel()

	c := load(t)

	const token = `{"id":"0b1327509c41c84f","name":"backup","role":"viewer","created":"2026-11-20T16:47:31Z",` +
		`"created_by":"root","expires":"2026-12-20T16:47:31Z"}`

	list := func(items string) string { return `{"items":[` + items + `],"total":1,"revision":60}` }

	for _, answer := range []struct {
		name, path, body string
		allowed          bool
	}{
		{"a list", "/v1/tokens", list(token), true},
		{"some fields of a list", "/v1/tokens?fields=name", list(`{"name":"backup"}`), true},
		{"a part of a list", "/v1/tokens", list(`{"name":"backup"}`), false},
		{"an unknown field", "/v1/tokens", `{"items":[],"total":1,"revision":60,"more":1}`, false},
		{"a wrong type", "/v1/tokens", `{"items":[],"total":"1","revision":60}`, false},
		{"no time", "/v1/tokens", list(strings.Replace(token, "T16", " at 16", 1)), false},
		{"another role", "/v1/tokens", list(strings.Replace(token, "viewer", "guest", 1)), false},
	} {
		r := httptest.NewRequest(http.MethodGet, answer.path, nil)
		header := http.Header{}
		header.Set("Content-Type", api.TypeJSON)
		header.Set("Etag", `"60"`)
		header.Set(api.HeaderRevision, "60")
		header.Set(api.HeaderRequestID, "0123456789abcdef")

		err := c.Response(&http.Response{StatusCode: http.StatusOK, Header: header, Request: r}, []byte(answer.body))
		if (err == nil) != answer.allowed {
			t.Errorf("%s: %v", answer.name, err)
		}
	}

	for body, allowed := range map[string]bool{
		`{"role":"operator","name":"pipeline","expires":"168h"}`: true,
		`{"role":"operator","name":"pipeline","expires":168}`:    false,
		`{"role":"operator","name":"pipeline","more":1}`:         false,
		``: false,
	} {
		r := httptest.NewRequest(http.MethodPost, "/v1/tokens", nil)
		r.Header.Set("Content-Type", api.TypeJSON)

		if err := c.Request(r, []byte(body)); (err == nil) != allowed {
			t.Errorf("%s: %v", body, err)
		}
	}
}
