// SPDX-License-Identifier: Apache-2.0

// Package inventory says what a node is and what may happen to it next.
//
// It holds the nouns everything else leans on: the node and its two dimensions
// (status: where it is in its life; state: whether the monitor sees it), the
// lifecycle table, the group rules, the history, the grammar of names and the
// kinds of error. Everything in it is a pure decision: no lock, no clock and no
// I/O. It imports the standard library only.
package inventory
