// SPDX-License-Identifier: Apache-2.0

// Package variable sets and reads the variables of the site, the groups and the nodes, and keeps the
// history of their changes. Package merge merges them.
package variable
