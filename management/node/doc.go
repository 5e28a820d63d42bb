// SPDX-License-Identifier: Apache-2.0

// Package node holds the use cases on single nodes that are not jobs: observing
// them, changing the values that operators set, reading their history, and forgetting them.
package node
