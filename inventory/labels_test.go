// SPDX-License-Identifier: Apache-2.0

package inventory_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
)

func TestLabelGrammar(t *testing.T) {
	long, longest := strings.Repeat("x", 64), strings.Repeat("x", 63)

	domain := strings.TrimSuffix(strings.Repeat(strings.Repeat("d", 63)+".", 4), ".")
	for _, key := range []string{"rack", "r", "Rack_1.a-b", "example.com/rack", "a/b", longest, "name2", "example.com/status", domain[:253] + "/x"} {
		if err := inventory.CheckLabelKey(key); err != nil {
			t.Errorf("%q: %v", key, err)
		}
	}

	for _, key := range []string{"", "/", "a/", "/a", "a/b/c", "-a", "a-", "a b", "ä", "Example.com/rack", "a_b/rack", "a=b", "a\n", long, "x/" + long, domain + "/x"} {
		if err := inventory.CheckLabelKey(key); inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("%q: %v", key, err)
		}
	}

	for _, key := range []string{"name", "status", "group", "labels", "connection", "revision", "seen", "updated"} {
		if err := inventory.CheckLabelKey(
			key,
		); inventory.KindOf(err) != inventory.KindInvalid ||
			!strings.Contains(err.Error(), "is a field of every node") {
			t.Errorf("%q: %v", key, err)
		}
	}

	for value, fine := range map[string]bool{"": true, "r1": true, longest: true, "1.2_3-4": true, long: false, "a b": false, "-1": false, "a/b": false, "{{x}}": false} {
		if err := inventory.CheckLabelValue(value); (err == nil) != fine {
			t.Errorf("%q: %v", value, err)
		}
	}
}

func TestRelabel(t *testing.T) {
	value := func(s string) *string { return &s }
	n := inventory.Node{Name: "a-1", Labels: map[string]string{"rack": "r1", "old": "x"}}

	m, err := n.Relabel(map[string]*string{"rack": value("r2"), "old": nil, "zone": value(""), "absent": nil})
	if err != nil || fmt.Sprint(m.Labels) != "map[rack:r2 zone:]" {
		t.Errorf("%v %v", m.Labels, err)
	}

	if fmt.Sprint(n.Labels) != "map[old:x rack:r1]" {
		t.Errorf("the node itself was changed: %v", n.Labels)
	}

	for _, bad := range []map[string]*string{{"status": value("x")}, {"a b": value("x")}, {"rack": value("a b")}} {
		if _, err := n.Relabel(bad); inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("%v: %v", bad, err)
		}
	}

	many := map[string]*string{}
	for i := range inventory.MaxLabels {
		many[fmt.Sprint("k", i)] = value("v")
	}

	if _, err := n.Relabel(many); inventory.KindOf(err) != inventory.KindInvalid {
		t.Errorf("too many: %v", err)
	}

	many["rack"], many["old"] = nil, nil
	if m, err := n.Relabel(many); err != nil || len(m.Labels) != inventory.MaxLabels {
		t.Errorf("as many as may be: %v", err)
	}
}
