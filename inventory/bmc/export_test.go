// SPDX-License-Identifier: Apache-2.0

package bmc

import "time"

// Hasty returns a Pool that soon gives a datagram up for lost.
func Hasty() *Pool {
	p := New()
	p.datagram = 50 * time.Millisecond

	return p
}
