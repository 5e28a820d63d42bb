// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"errors"
	"strings"
	"testing"
)

func TestIdentityOf(t *testing.T) {
	good := map[string]string{TagLabel: "rack1", TagSerial: "S-0.1_x", TagAddr: "192.0.2.7"}

	with := func(k, v string) map[string]string {
		m := map[string]string{"other": "x"}
		for a, b := range good {
			m[a] = b
		}

		if v == "\x00" {
			delete(m, k)
		} else {
			m[k] = v
		}

		return m
	}
	for _, c := range []struct {
		name string
		tags map[string]string
		want string // part of the error, "" for none
	}{
		{"good", good, ""},
		{"more tags", with("role", "web"), ""},
		{"IPv6", with(TagAddr, "2001:db8::1"), ""},
		{"host name", with(TagAddr, "host1.example.org"), ""},
		{"none", nil, "none of the tags"},
		{"others only", map[string]string{"role": ""}, "none of the tags"},
		{"no label", with(TagLabel, "\x00"), "NodeLabel is missing"},
		{"no serial", with(TagSerial, "\x00"), "NodeSerial is missing"},
		{"no address", with(TagAddr, "\x00"), "NodeAddr is missing"},
		{"empty label", with(TagLabel, ""), "NodeLabel is invalid"},
		{"injection in the label", with(TagLabel, "a\nansible_connection: local"), "NodeLabel is invalid"},
		{"injection in the address", with(TagAddr, "10.0.0.1 ansible_user=root"), "NodeAddr is invalid"},
		{"brackets", with(TagAddr, "[::1]"), "NodeAddr is invalid"},
		{"unspecified", with(TagAddr, "0.0.0.0"), "NodeAddr is invalid"},
		{"a huge serial", with(TagSerial, strings.Repeat("s", 256)), "limit is 255"},
		{"a long serial", with(TagSerial, strings.Repeat("s", 64)), "NodeSerial is invalid"},
	} {
		t.Run(c.name, func(t *testing.T) {
			id, err := IdentityOf(c.tags)
			switch {
			case c.want == "" && err != nil:
				t.Fatal(err)
			case c.want == "" && id.Name() != "rack1-S-0.1_x":
				t.Fatalf("name %q", id.Name())
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Fatalf("error %v, want %q in it", err, c.want)
			case c.want == "none of the tags" && !errors.Is(err, ErrNotNode):
				t.Fatalf("%v is not ErrNotNode", err)
			case c.want != "" && id != Identity{}:
				t.Fatalf("an invalid identity is returned: %+v", id)
			}
		})
	}

	id, err := IdentityOf(Identity{Label: "l", Serial: "s", Addr: "::1"}.Tags())
	if err != nil || id.Addr != "::1" {
		t.Fatalf("tags do not survive a round trip: %+v %v", id, err)
	}
}
