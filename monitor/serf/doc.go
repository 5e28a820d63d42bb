// SPDX-License-Identifier: Apache-2.0

// Package serf adapts the gossip of the cluster to package monitor: it runs a
// serf agent inside this process, or watches an existing one over RPC, and
// reports the members to a monitor.Sink.
//
// It is the only home of serf. The daemon uses Start or WatchRemote; RunAgent is
// `clusterm agent`, which runs on every node. A stock serf agent with the tags
// NodeLabel, NodeSerial and NodeAddr is an equal member.
package serf
