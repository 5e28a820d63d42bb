// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"net/netip"
	"strings"
	"testing"
)

// FuzzRange expects a range to be refused, or to become a bounded list of distinct
// addresses of hosts, in order.
func FuzzRange(f *testing.F) {
	for _, s := range []string{
		"10.0.0.0/24", "10.0.0.5-20", "10.0.0.5-10.0.0.20", "fd00::/120", "fd00::1-fd00::9", "10.0.0.1/24",
		"10.0.0.9-1",
		"0.0.0.0/0", "::/0", "255.255.255.250-255.255.255.255", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff0/124",
		"host-1", "-",
		"10.0.0.1-", "fe80::1%eth0-2", "10.0.0.0/33", "10.0.0.5-+9", "10.0.0.5-007",
	} {
		f.Add(s)
	}

	f.Fuzz(func(t *testing.T, s string) {
		addrs, err := ParseRange(s)
		if err != nil {
			if KindOf(err) != KindInvalid || len(addrs) > 0 {
				t.Fatalf("%q: %v with %d addresses", s, err, len(addrs))
			}
			return
		}

		if len(addrs) == 0 || len(addrs) > MaxRange {
			t.Fatalf("%q has %d addresses", s, len(addrs))
		}

		var last netip.Addr

		for i, text := range addrs {
			a, err := netip.ParseAddr(text)
			if err != nil || a.Zone() != "" || a.Is4In6() {
				t.Fatalf("%q contains %q: %v", s, text, err)
			}
			if i > 0 && (!last.Less(a) || last.Next() != a) {
				t.Fatalf("%q: %v follows %v", s, a, last)
			}

			last = a
		}

		if one, err := ParseRange(addrs[0] + "-" + addrs[len(addrs)-1]); err != nil || len(one) != len(addrs) {
			t.Fatalf("%q as FIRST-LAST: %d addresses, %v; want %d", s, len(one), err, len(addrs))
		}
	})
}

// FuzzLabels expects a patch of labels to be refused without a change, or to
// leave labels within the grammar and the limit.
func FuzzLabels(f *testing.F) {
	for _, s := range [][2]string{
		{"rack", "r1"}, {"example.com/rack", ""}, {"name", "x"}, {"a/b/c", "x"}, {"Example.com/rack", "x"}, {"", ""},
		{"rack", "{{ x }}"}, {"rack", strings.Repeat("v", 64)}, {"x\n", "y"}, {"/x", "y"},
	} {
		f.Add(s[0], s[1], false)
	}

	f.Fuzz(func(t *testing.T, key, value string, remove bool) {
		patch := map[string]*string{key: &value}
		if remove {
			patch[key] = nil
		}

		before := Node{Name: "a-1", Labels: map[string]string{"kept": "yes"}}

		after, err := before.Relabel(patch)
		if len(before.Labels) != 1 || before.Labels["kept"] != "yes" {
			t.Fatalf("the patch %q=%q changed the original: %v", key, value, before.Labels)
		}

		if err != nil {
			if KindOf(err) != KindInvalid {
				t.Fatalf("%q=%q: %v", key, value, err)
			}
			return
		}

		for k, v := range after.Labels {
			if strings.ContainsAny(k+v, " \t\r\n'\"`$;&|<>(){}[]%@\\#=,:*?!\x00") ||
				len(k) > MaxLabelPrefix+1+MaxLabelWord {
				t.Fatalf("%q=%q left the label %q=%q", key, value, k, v)
			}
		}
	})
}

// FuzzShorten expects a cut text within the limit, and valid if the text was.
func FuzzShorten(f *testing.F) {
	f.Add("short", 10)
	f.Add(strings.Repeat("ö", 20), 11)
	f.Add("\xff\xfe\xfd and more", 8)

	f.Fuzz(func(t *testing.T, text string, limit int) {
		limit = 8 + max(limit, -limit)%1024

		got := Shorten(text, limit)
		if len(got) > limit || len(text) <= limit && got != text {
			t.Fatalf("%q to %d bytes: %q", text, limit, got)
		}

		list := ShortenAll([]string{text, text, text}, 2, limit)
		if len(list) != 3 || list[2] != "and 1 more" {
			t.Fatalf("three texts to two: %q", list)
		}
	})
}
