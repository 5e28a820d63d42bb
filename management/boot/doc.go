// SPDX-License-Identifier: Apache-2.0

// Package boot gives registered machines their addresses. They are records; the path of a query reads these, and writes
// nothing.
package boot
