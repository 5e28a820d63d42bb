// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory/errtest"
)

func checksumOf(t *testing.T, k ChecksumKey, vars map[string]Var, request Vars) string {
	t.Helper()
	sum, err := k.Checksum(vars, request)
	errtest.None(t, err)
	return sum
}

// TestChecksum groups sets of variables by their effect on a host: those of a group have
// one checksum, and no two groups share it.
func TestChecksum(t *testing.T) {
	t.Parallel()

	key := NewChecksumKey()
	trusted := func(v any) Var { return Var{Value: v, Origin: OriginConfig, Trusted: true} }
	nested := map[string]any{"b": []any{int64(1), "x"}, "a": nil}

	groups := [][]map[string]Var{
		{nil, {}},
		{
			{"a": {Value: "x"}}, {"a": {Value: "x", Origin: OriginNode}}, {"a": trusted("x")},
			{"a": {Value: NewSecret("x")}},
		},
		{{"a": {Value: "y"}}},
		{{"b": {Value: "x"}}},
		{{"a": {Value: "x"}, "b": {Value: "x"}}, {"b": {Value: "x"}, "a": {Value: "x"}}},
		{{"a": {Value: int64(1)}}, {"a": {Value: 1}}, {"a": {Value: json.Number("1")}}},
		{{"a": {Value: "1"}}},
		{{"a": {Value: json.Number("1.0")}}},
		{{"a": {Value: true}}},
		{{"a": {Value: nil}}},
		{{"a": {Value: ""}}},
		{{"a": {Value: nested}}, {"a": {Value: Vars(nested)}}, {"a": {Value: NewSecret(nested)}}},
		{{"a": trusted("{{ b }}")}},
		{{"a": {Value: "{{ b }}"}}},
		{{"a": {Value: SourcedSecret()}}},
		{{"ab": {Value: "c"}}},
		{{"a": {Value: "bc"}}},
	}

	seen := map[string]string{}

	for i, group := range groups {
		sum := ""

		for _, vars := range group {
			got := checksumOf(t, key, vars, nil)
			if sum != "" && got != sum {
				t.Errorf("group %d: %v has another checksum", i, vars)
			}
			sum = got
		}

		if other, ok := seen[sum]; ok {
			t.Errorf("group %d has the checksum of %s", i, other)
		}

		seen[sum] = fmt.Sprintf("group %d", i)
	}
}

// TestChecksumOver puts variables over others: the way does not matter.
func TestChecksumOver(t *testing.T) {
	t.Parallel()

	key := NewChecksumKey()
	group := map[string]Var{"a": {Value: "1"}, "b": {Value: "2"}, "l": {Value: LockedSecret("p", "x", "lost")}}
	over := map[string]Var{"b": {Value: "3"}, "c": {Value: "4"}, "l": {Value: "5"}}
	merged := map[string]Var{"a": {Value: "1"}, "b": {Value: "3"}, "c": {Value: "4"}, "l": {Value: "5"}}

	want := checksumOf(t, key, merged, nil)

	if got, err := key.Sums(group).With(over); got != want || err != nil {
		t.Errorf("over sums: %q, %v, want %q", got, err, want)
	}

	if got := checksumOf(t, key, group, Vars{"b": "3", "c": "4", "l": "5"}); got != want {
		t.Errorf("of a request: %q, want %q", got, want)
	}

	// A secret that cannot be read makes the checksum unknown, wherever it is.
	for name, at := range map[string][]map[string]Var{
		"below": {group, {"b": {Value: "3"}}},
		"above": {{"a": {Value: "1"}}, {"l": group["l"]}},
	} {
		if got, err := key.Sums(at[0]).With(at[1]); !errors.Is(err, ErrNoChecksum) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}

	if got, err := (ChecksumKey{}).Checksum(merged, nil); !errors.Is(err, ErrNoChecksum) {
		t.Errorf("without a key: %q, %v", got, err)
	}
}

// TestChecksumHides: neither a checksum nor a key shows its content, and two keys
// have nothing in common.
func TestChecksumHides(t *testing.T) {
	t.Parallel()

	key, other := NewChecksumKey(), NewChecksumKey()
	vars := map[string]Var{"password": {Value: NewSecret("canary")}}
	one, two := checksumOf(t, key, vars, nil), checksumOf(t, other, vars, nil)

	if strings.Contains(one, "canary") || len(one) != 8+1+32 {
		t.Errorf("the checksum is %q", one)
	}

	if one[:9] == two[:9] || one == two || one[:9] != checksumOf(t, key, nil, nil)[:9] {
		t.Errorf("checksums of two keys: %q and %q", one, two)
	}

	again, err := ParseChecksumKey(key.Reveal())
	if err != nil || checksumOf(t, again, vars, nil) != one {
		t.Errorf("a key that was stored: %v, %v", again, err)
	}

	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%q"} {
		if got := fmt.Sprintf(verb, key); got != Hidden {
			t.Errorf("%s prints %q", verb, got)
		}
	}

	for _, text := range []string{"", "x", key.Reveal() + "=", key.Reveal()[:10]} {
		if _, err := ParseChecksumKey(text); err == nil || text != "" && strings.Contains(err.Error(), text) {
			t.Errorf("%q is a key: %v", text, err)
		}
	}
}
