// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"testing"
)

type known struct {
	Name   string            `json:"name"`
	Count  int               `json:"count,omitempty"`
	Part   part              `json:"part,omitzero"`
	List   []part            `json:"list,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
}

type part struct {
	A int `json:"a,omitempty"`
}

// renamed reads a field by its former name as well.
type renamed struct {
	Now int `json:"now,omitempty"`
}

func (r *renamed) UnmarshalJSON(text []byte) error {
	var from struct{ Now, Former int }
	err := json.Unmarshal(text, &from)
	r.Now = max(from.Now, from.Former)
	return err
}

// TestUnknown rewrites records of a newer version: the fields that this one does not know stay, and nothing that it
// knows comes back.
func TestUnknown(t *testing.T) {
	t.Parallel()

	plain := &Kind[known]{Name: "plain"}
	compressed := &Kind[known]{Name: "compressed", Codec: Compressed[known]{}}

	for name, c := range map[string]struct{ stored, now, want string }{
		"none": {`{"name":"a","count":1}`, `{"name":"b"}`, `{"name":"b"}`},
		"a field": {
			`{"name":"a","new":12345678901234567890}`, `{"name":"b"}`, `{"name":"b","new":12345678901234567890}`,
		},
		"nested": {
			`{"name":"a","part":{"a":1,"b":2}}`, `{"name":"a","part":{"a":3}}`, `{"name":"a","part":{"a":3,"b":2}}`,
		},
		"its part": {`{"name":"a","new":1,"part":{"a":1,"b":2}}`, `{"name":"a"}`, `{"name":"a","new":1}`},
		"removed": {
			`{"name":"a","new":1,"labels":{"x":"1","y":"2"}}`, `{"name":"a","labels":{"y":"3"}}`,
			`{"name":"a","new":1,"labels":{"y":"3"}}`,
		},
		"a zero": {`{"name":"a","count":0,"new":1}`, `{"name":"a","count":4}`, `{"name":"a","count":4,"new":1}`},
		"a list": {
			`{"name":"a","list":[{"a":1,"b":1},{"a":2,"b":2}]}`, `{"name":"a","list":[{"a":2},{"a":3},{"a":1}]}`,
			`{"name":"a","list":[{"a":2,"b":2},{"a":3},{"a":1,"b":1}]}`,
		},
		"an element": {
			`{"name":"a","list":[{"a":1,"b":1},{"a":2,"b":2}]}`, `{"name":"a","list":[{"a":1},{"a":4}]}`,
			`{"name":"a","list":[{"a":1,"b":1},{"a":4,"b":2}]}`,
		},
		"unreadable": {`{"name":1,"new":2}`, `{"name":"a"}`, `{"name":"a"}`},
	} {
		for _, k := range []*Kind[known]{plain, compressed} {
			code := func(text string) []byte {
				if k == compressed {
					return Compress([]byte(text))
				}
				return []byte(text)
			}

			now := code(c.now)
			if u := FindUnknown(k, "key", code(c.stored)); u != nil {
				now = u.Keep(now)
			}

			if k == compressed {
				var err error
				if now, err = Expand(now); err != nil {
					t.Fatal(err)
				}
			}

			if is, want := sorted(t, string(now)), sorted(t, c.want); is != want {
				t.Errorf("%s, %s: %s, want %s", name, k.Name, is, want)
			}
		}
	}

	if u := FindUnknown(&Kind[renamed]{Name: "renamed"}, "key", []byte(`{"former":1}`)); u != nil {
		t.Error("a field that is read by its former name is kept: it would come back")
	}
}

// sorted returns JSON with its keys in order, and every digit.
func sorted(t *testing.T, text string) string {
	t.Helper()

	parsed, _, err := parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	out, err := unparse(parsed, false)
	if err != nil {
		t.Fatal(err)
	}

	return string(out)
}
