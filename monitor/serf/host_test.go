// SPDX-License-Identifier: Apache-2.0

package serf

import (
	"reflect"
	"testing"

	"github.com/contiv/cluster/inventory"
)

func TestIdentity(t *testing.T) {
	t.Parallel()

	n, err := Identify(Identity{Label: "x", Serial: "y", Addr: "10.0.0.1"}, true)
	if err != nil || !reflect.DeepEqual(n, Identity{Label: "x", Serial: "y", Addr: "10.0.0.1"}) {
		t.Errorf("%+v, %v", n, err)
	}

	if n, err = Identify(
		Identity{Serial: "y"},
		false,
	); err != nil || inventory.CheckLabel(n.Label) != nil ||
		n.Addr != "" {
		t.Errorf("%+v, %v", n, err)
	}

	if _, err = Identify(
		Identity{Label: "a b", Serial: "y"},
		false,
	); inventory.KindOf(
		err,
	) != inventory.KindInvalid {
		t.Errorf("%v", err)
	}
}
