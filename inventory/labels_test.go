// SPDX-License-Identifier: Apache-2.0

package inventory_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"github.com/contiv/cluster/inventory"
)

func TestLabelKey(t *testing.T) {
	t.Parallel()

	longest, tooLong := strings.Repeat("x", 63), strings.Repeat("x", 64)
	domain := strings.TrimSuffix(strings.Repeat(strings.Repeat("d", 63)+".", 4), ".") // 255 bytes

	for _, key := range []string{
		"rack", "r", "Rack_1.a-b", "example.com/rack", "a/b", longest, "name2", "example.com/status",
		domain[:253] + "/x",
	} {
		if err := inventory.CheckLabelKey(key); err != nil {
			t.Errorf("the key %q is rejected: %v", key, err)
		}
	}

	for _, key := range []string{
		"", "/", "a/", "/a", "a/b/c", "-a", "a-", "a b", "ä", "Example.com/rack", "a_b/rack", "a=b", "a\n",
		tooLong, "x/" + tooLong, domain + "/x",
	} {
		if err := inventory.CheckLabelKey(key); inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("the key %q: got %v, want an invalid error", key, err)
		}
	}

	fields := []string{"connection"}
	for field := range reflect.TypeFor[inventory.Node]().Fields() {
		fields = append(fields, snakeCase(field.Name))
	}

	for _, key := range fields {
		err := inventory.CheckLabelKey(key)
		if inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(err.Error(), "a field of every node") {
			t.Errorf("the field name %q as a key: got %v", key, err)
		}
	}
}

// snakeCase returns the name of a Go field as the API spells it.
func snakeCase(name string) string {
	var b strings.Builder
	for i, r := range name {
		if i > 0 && unicode.IsUpper(r) {
			b.WriteByte('_')
		}

		b.WriteRune(unicode.ToLower(r))
	}

	return b.String()
}

func TestLabelValue(t *testing.T) {
	t.Parallel()

	for value, valid := range map[string]bool{
		"":                      true,
		"r1":                    true,
		strings.Repeat("x", 63): true,
		"1.2_3-4":               true,
		strings.Repeat("x", 64): false,
		"a b":                   false,
		"-1":                    false,
		"a/b":                   false,
		"{{x}}":                 false,
	} {
		if err := inventory.CheckLabelValue(value); (err == nil) != valid {
			t.Errorf("the value %q: got %v, want valid %v", value, err, valid)
		}
	}
}

func TestRelabel(t *testing.T) {
	t.Parallel()

	value := func(s string) *string { return &s }
	n := inventory.Node{Name: "a-1", Labels: map[string]string{"rack": "r1", "old": "x"}}

	m, err := n.Relabel(map[string]*string{"rack": value("r2"), "old": nil, "zone": value(""), "absent": nil})
	if err != nil || fmt.Sprint(m.Labels) != "map[rack:r2 zone:]" {
		t.Errorf("got labels %v, error %v", m.Labels, err)
	}

	if fmt.Sprint(n.Labels) != "map[old:x rack:r1]" {
		t.Errorf("Relabel changed the original: %v", n.Labels)
	}

	for _, patch := range []map[string]*string{{"status": value("x")}, {"a b": value("x")}, {"rack": value("a b")}} {
		if _, err := n.Relabel(patch); inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("patch %v: got %v, want an invalid error", patch, err)
		}
	}

	// Together with the two labels of n these exceed the limit by two.
	patch := map[string]*string{}
	for i := range inventory.MaxLabels {
		patch[fmt.Sprint("k", i)] = value("v")
	}

	if _, err := n.Relabel(patch); inventory.KindOf(err) != inventory.KindInvalid {
		t.Errorf("more labels than the limit: got %v, want an invalid error", err)
	}

	patch["rack"], patch["old"] = nil, nil
	if m, err := n.Relabel(patch); err != nil || len(m.Labels) != inventory.MaxLabels {
		t.Errorf("as many labels as the limit: got %d, %v", len(m.Labels), err)
	}
}
