// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"
	"strings"
	"testing"
)

func TestCheckObserver(t *testing.T) {
	for _, name := range []string{"host1", "rack-1.example", "0"} {
		if err := CheckObserver(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}

	long := strings.Repeat("x", MaxLabel+1)
	for _, name := range []string{"", ObserverPost, ObserverGossip, "a b", "-", "a/b", long} {
		if err := CheckObserver(name); KindOf(err) != KindInvalid {
			t.Errorf("%q: %v, want KindInvalid", name, err)
		}
	}
}

func TestCheckOthers(t *testing.T) {
	if err := CheckOthers([]string{"10.0.0.1", "10.0.0.1:7946", "[::1]:7946", "host1.example"}); err != nil {
		t.Error(err)
	}

	for _, others := range [][]string{{"a b"}, {""}, slices.Repeat([]string{"10.0.0.1"}, MaxOthers+1)} {
		if err := CheckOthers(others); KindOf(err) != KindInvalid {
			t.Errorf("%q: %v, want KindInvalid", others, err)
		}
	}
}
