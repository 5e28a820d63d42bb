// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"reflect"
	"testing"
	"time"
)

// TestSameNode fails for a field that could change without being stored.
func TestSameNode(t *testing.T) {
	t.Parallel()

	var zero Node

	local := zero
	local.Since = zero.Since.In(time.FixedZone("elsewhere", 3600))

	if !sameNode(zero, local) {
		t.Error("a time in another zone is another time")
	}

	for i := range reflect.TypeFor[Node]().NumField() {
		changed := zero

		switch f := reflect.ValueOf(&changed).Elem().Field(i); f.Kind() {
		case reflect.String:
			f.SetString("x")
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Int:
			f.SetInt(1)
		default:
			f.Set(reflect.ValueOf(epoch))
		}

		if sameNode(zero, changed) {
			t.Errorf("a change of %s is not seen", reflect.TypeFor[Node]().Field(i).Name)
		}
	}
}
