// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

type unusedEtcd struct{ Etcd }

// TestCheck: the address of an instance that joins is in its usual form, because it is compared as a text, and is part
// of a certificate and of URLs.
func TestCheck(t *testing.T) {
	t.Parallel()

	s := New(Options{Addr: "192.0.2.1", Etcd: unusedEtcd{}})

	for addr, good := range map[string]bool{
		"192.0.2.2": true, "2001:db8::2": true,
		"": false, "host2": false, "192.0.2.1": false, "0.0.0.0": false, "ff02::1": false, "fe80::1%eth0": false,
		"::ffff:192.0.2.2": false, "::ffff:192.0.2.1": false, "2001:DB8::2": false, "2001:db8:0::2": false,
	} {
		err := s.check(api.JoinRequest{ID: "0123456789abcdef", Node: "b-1", Addr: addr, PeerPort: 12380})
		if good != (err == nil) {
			t.Errorf("%q: %v", addr, err)
		}
		if kind := inventory.KindOf(err); !good && kind != inventory.KindInvalid && kind != inventory.KindRefused {
			t.Errorf("%q: %v is %q", addr, err, kind)
		}
	}
}
