// SPDX-License-Identifier: Apache-2.0

// Package serf is the gossip of the cluster: it runs a serf agent inside this
// process, or watches an existing one by RPC, and says what it sees of other
// members to a monitor.Sink.
//
// It is the only code that knows serf. The daemon uses Start or WatchRemote;
// `clusterm agent`, which runs on every node, is RunAgent with the AgentConfig it
// has loaded. A stock serf agent with the tags NodeLabel, NodeSerial and NodeAddr
// is as good a member as one of ours.
package serf
