// SPDX-License-Identifier: Apache-2.0

// Package rollout is an operation over many nodes: a record over jobs, and the pure
// function Next that decides on the next steps. Each node gets a job of its own. A sliding
// window bounds the nodes out of service, a canary goes first, a gate judges each node, and
// failures over a limit stop the rollout. Loop starts rollouts and changes them for people, and
// carries out the decisions of Next while its instance leads. All of its memory is in the store,
// apart from the newest results of checks. See README.md.
package rollout
