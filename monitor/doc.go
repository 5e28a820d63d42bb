// SPDX-License-Identifier: Apache-2.0

// Package monitor turns the membership of a gossip, or of any other source of
// named members, into reports about nodes.
//
// A source passes every change of a member to an Observer and can list all of
// them. The Observer decides which members are nodes, coalesces changes that
// come close together, reconciles its view with the complete list from time to
// time, and offers the result to a Sink until the Sink has recorded it. The
// package depends on no particular source: package monitor/serf is one.
package monitor
