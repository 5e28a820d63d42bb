// SPDX-License-Identifier: Apache-2.0

package inventory

import "fmt"

// Count returns n followed by the noun in singular or plural, as in "1 node"
// and "2 nodes".
func Count[N int | int64 | uint64](n N, one, many string) string {
	if n == 1 {
		return fmt.Sprintf("%d %s", n, one)
	}
	return fmt.Sprintf("%d %s", n, many)
}
