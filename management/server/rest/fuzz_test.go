// SPDX-License-Identifier: Apache-2.0

package rest_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/server/rest"
)

// FuzzConditions expects If-Match and If-None-Match to be refused as invalid, or
// to let through exactly the revisions that they name.
func FuzzConditions(f *testing.F) {
	for _, s := range [][2]string{
		{`"17"`, ""}, {`"17.00ff"`, `"18"`}, {`W/"17"`, ""}, {"*", ""}, {"", "*"}, {`"17", "18"`, ""}, {`17`, ""},
		{`"17`, ""}, {`"a,b", "17"`, ""},
		{`"17" "18"`, ""}, {`"017"`, ""}, {`"17"x`, ""}, {"\"\x00\"", ""}, {`"-17"`, ""},
	} {
		f.Add(s[0], s[1], int64(17))
	}

	f.Fuzz(func(t *testing.T, must, mustNot string, revision int64) {
		r := httptest.NewRequest(http.MethodPatch, "/v1/nodes/a-1", nil)
		r.Header["If-Match"] = []string{must}

		if mustNot != "" {
			r.Header["If-None-Match"] = []string{mustNot}
		}

		check, err := rest.PreconditionOf(r)
		if err != nil {
			if inventory.KindOf(err) != inventory.KindInvalid {
				t.Fatalf("%q, %q: %v", must, mustNot, err)
			}
			return
		}

		if check == nil {
			t.Fatalf("the header %q is ignored", must)
		}

		err = check("a-1", func(tags rest.Tags) bool { return tags.MatchRecord(revision) })
		if kind := inventory.KindOf(err); err != nil && kind != inventory.KindPrecondition {
			t.Fatalf("%q, %q: %v", must, mustNot, err)
		}

		named := strings.TrimSpace(must) == "*" || strings.Contains(must, `"`+strconv.FormatInt(revision, 10))
		if err == nil && !named {
			t.Fatalf("%q lets revision %d through", must, revision)
		}
	})
}

// FuzzIdempotencyKey expects a key to be refused as invalid, or to have digests as
// its parts: no text of a client becomes a part of a stored key.
func FuzzIdempotencyKey(f *testing.F) {
	for _, s := range []string{"3f2b", "", "a b", "../x", "a\n", strings.Repeat("k", 300), "\xff", "{{ x }}"} {
		f.Add(s, "root", "/v1/jobs")
	}

	f.Add("b", "root\nPOST", "/v1/a%2Fb")

	f.Fuzz(func(t *testing.T, key, client, path string) {
		r := httptest.NewRequest(http.MethodPost, "/v1/jobs", nil)
		r.URL.Path = path
		r.Header[api.HeaderIdempotencyKey] = []string{key}

		k, err := rest.IdempotencyKey(r, client, map[string]string{"a": key})
		if err != nil {
			if inventory.KindOf(err) != inventory.KindInvalid {
				t.Fatalf("%q: %v", key, err)
			}
			return
		}

		hex := func(s string) bool { return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == "" }
		if !hex(k.ID) || !hex(k.Request) || len(key) > api.MaxIdempotencyKey {
			t.Fatalf("%q is the key %+v", key, k)
		}

		// Another client has another key.
		other, err := rest.IdempotencyKey(r, client+"x", map[string]string{"a": key})
		if err != nil || other.ID == k.ID || other.Request != k.Request {
			t.Fatalf("%q of two clients: %+v and %+v, %v", key, k, other, err)
		}
	})
}

// FuzzPages reads a list page by page, with any order and any continue token: a
// refusal is invalid, and each item is on one page.
func FuzzPages(f *testing.F) {
	for _, s := range [][3]string{
		{"", "", "2"}, {"-size", "", "1"}, {"size,name", "", "3"}, {"nosuch", "", "1"}, {"name,size", "", "1"},
		{"", "eyJxIjoxLCJhIjpbIngiXX0", "1"},
		{"", "e30", "1"}, {"", "!!", "0"}, {"", "", "-1"}, {"", "", "99999999999999999999"},
		{"size,,name", "", "1"}, {"-", "", "1"},
	} {
		f.Add(s[0], s[1], s[2])
	}

	list := rest.Listing[string]{Key: "name", Default: "name", Fields: map[string]func(string) string{
		"name": func(s string) string { return s },
		"size": func(s string) string { return rest.SortNumber(strconv.Itoa(len(s))) },
	}}
	items := []string{"a", "b", "cc", "ccc", "d", "e"}

	f.Fuzz(func(t *testing.T, sort, token, limit string) {
		var seen []string

		for range 2 * len(items) {
			q := url.Values{}
			for name, value := range map[string]string{"sort": sort, "continue": token, "limit": limit} {
				if value != "" {
					q.Set(name, value)
				}
			}

			r := httptest.NewRequest(http.MethodGet, "/v1/things", nil)

			values, err := rest.ParseQuery(q.Encode(), list.Query())
			if err != nil {
				return
			}
			page, answer, err := rest.Page[string, string](r, values, list, rest.Snapshot{Revision: 1}, items)
			if err != nil {
				if inventory.KindOf(err) != inventory.KindInvalid || len(page) > 0 {
					t.Fatalf("sort=%q continue=%q limit=%q: %v", sort, token, limit, err)
				}
				return
			}

			seen = append(seen, page...)

			if token = answer.Continue; token == "" {
				break
			}
		}

		slices.Sort(seen)

		if token != "" || len(slices.Compact(slices.Clone(seen))) != len(seen) {
			t.Fatalf("sort=%q limit=%q: the pages have %q, then %q", sort, limit, seen, token)
		}
	})
}
