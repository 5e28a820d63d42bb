// SPDX-License-Identifier: Apache-2.0

// Package leader drives rollouts: it starts them and changes them for people, and carries out
// the decisions of rollout.Next while its instance leads. All of its memory is in the store, apart
// from the newest results of HTTP checks.
package leader
