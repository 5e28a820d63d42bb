// SPDX-License-Identifier: Apache-2.0

// Package etcd runs the embedded etcd and connects to it, or to an existing etcd.
// It has no keys of the manager: management/etcd builds its transactions from Ops.
//
// The embedded server listens on Unix sockets below its data directory, which
// only its owner can enter, so at first no other host or user can reach it. It runs as a
// child process of the same binary, because etcd exits when its disk fails;
// tests may run it in-process.
//
// Server.Open makes a server reachable for other hosts, over TLS with certificates of an
// authority that is for instances only. It is a member of a cluster of one, three or
// five then: AddLearner adds a member without a vote, and Grow decides when two of them
// become voters. A Client follows the members: it uses the member on its own host while
// that one votes, and otherwise the others.
//
// An existing etcd may serve other applications too. The package therefore needs
// no more than a role with read and write access below one prefix, never
// compacts, and stays within the server's default limits (MaxOps, MaxBytes).
package etcd
