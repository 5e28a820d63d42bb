// SPDX-License-Identifier: Apache-2.0

package inventory

import "fmt"

// Count is a number of things in words: 1 job runs, 2 jobs run.
func Count[N int | int64 | uint64](n N, one, many string) string {
	if n == 1 {
		return fmt.Sprintf("%d %s", n, one)
	}

	return fmt.Sprintf("%d %s", n, many)
}
