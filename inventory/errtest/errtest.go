// SPDX-License-Identifier: Apache-2.0

// Package errtest ends tests at an error that they do not expect.
package errtest

import "testing"

// None ends the test at an error.
func None(t testing.TB, err error) {
	t.Helper()

	if err != nil {
		t.Fatal(err)
	}
}
