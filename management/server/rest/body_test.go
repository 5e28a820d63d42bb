// SPDX-License-Identifier: Apache-2.0

package rest_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/server/rest"
)

var position = regexp.MustCompile(`at line (\d+), column (\d+)`)

// FuzzDecode expects every body to be decoded, or refused with a position inside
// the body.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `{"verb":"commission","nodes":["a-1"],"timeout":"1h"}`, "{\n\n  \"verb\": 7}",
		`{"nodes":[1,2,{"a":null}]}`, `{"verb":"a","verb":"b"}`,
		"{\"v\u00e9rb\":\n\"\xff\"}", `{"extra_vars":{"a":{"a":[{}]}}} x`, `[[[[`, `"\ud800"`, `{"force":tru}`,
		`{"x":1e999}`,
	} {
		f.Add([]byte(seed))
	}

	f.Fuzz(func(t *testing.T, body []byte) {
		lines := strings.Split(string(body), "\n")
		for _, strict := range []bool{true, false} {
			var v api.JobRequest

			err := rest.Decode(body, &v, strict)
			if err == nil {
				continue
			}

			if inventory.KindOf(err) != inventory.KindInvalid {
				t.Fatalf("%q: %v", body, err)
			}

			m := position.FindStringSubmatch(err.Error())
			if m == nil {
				continue
			}
			line, _ := strconv.Atoi(m[1])
			column, _ := strconv.Atoi(m[2])

			if line < 1 || line > len(lines) || column < 1 || column > len(lines[line-1])+1 {
				t.Fatalf("%q: %v", body, err)
			}
		}
	})
}
