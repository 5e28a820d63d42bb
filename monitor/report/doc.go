// SPDX-License-Identifier: Apache-2.0

// Package report is the program `clusterm monitor` as a library: it takes the
// view of a gossip and reports it to managers outside that gossip.
//
// Load reads its configuration, Start runs it beside other work, and Run is the
// whole life of the process. Each manager has a queue and a retry of its own: one
// that is down delays no other.
package report
