// SPDX-License-Identifier: Apache-2.0

// Package hardware judges what inspections find on nodes, by the rules of the site.
package hardware
