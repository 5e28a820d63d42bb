// SPDX-License-Identifier: Apache-2.0

// Package inventory is the domain model: the node, its lifecycle and the rules
// that govern both.
//
// A node has two independent dimensions. Its status is a step of its lifecycle,
// set by operators and jobs; its state is the result of monitoring. The package
// also holds the lifecycle table, the group rules, the history, the grammar of
// names, the options of a job and the kinds of error.
//
// The options of a job are here, and not in management/job, because the action of a
// remedy has them, which errors carry, and because clusterctl reads their table.
//
// Everything here is a pure decision without locks, clocks or I/O. The package
// imports the standard library only, and every other package may import it.
package inventory
