// SPDX-License-Identifier: Apache-2.0

// Package hardware judges what inspections find on nodes, by the rules of the site and by classes of
// hardware.
package hardware
