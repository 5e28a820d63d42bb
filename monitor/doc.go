// SPDX-License-Identifier: Apache-2.0

// Package monitor turns what a source of membership says (gossip, or anything
// else that knows members by name) into reports about nodes.
//
// A source tells an Observer of every member that changes and can list all of
// them. The Observer decides which members are nodes, merges changes that come
// close together, compares its view with the complete list from time to time,
// and hands the outcome to a Sink until the Sink has recorded it. It knows no
// particular source: package monitor/serf is one.
package monitor
