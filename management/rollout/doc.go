// SPDX-License-Identifier: Apache-2.0

// Package rollout is an operation over many nodes: a record over jobs, and the pure
// function Next that decides on the next steps. Each node gets a job of its own. A sliding
// window bounds the nodes out of service, a canary goes first, a gate judges each node, and
// failures over a limit stop the rollout. See README.md.
package rollout
