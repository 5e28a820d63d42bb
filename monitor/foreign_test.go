// SPDX-License-Identifier: Apache-2.0

package monitor

import "testing"

func TestForeign(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ place, addr, want string }{
		{"10.0.0.1:7946", "10.0.0.1", ""},
		{"[fd00::1]:7946", "fd00:0::1", ""},
		{"[::ffff:10.0.0.1]:7946", "10.0.0.1", ""},
		{"10.0.0.66:7946", "10.0.0.1", "10.0.0.66"},
		{"10.0.0.1:7946", "10.0.0.10", "10.0.0.1"},
		{"10.0.0.66:7946", "victim.example", "10.0.0.66"},
		{"no address", "10.0.0.1", ""},
	} {
		r := &record{Member: Member{Addr: c.place}, id: Identity{Label: "a", Serial: "1", Addr: c.addr}}
		if got := foreign(r); got != c.want {
			t.Errorf("%s announces %s: %q, want %q", c.place, c.addr, got, c.want)
		}
	}
}
