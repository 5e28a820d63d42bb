// SPDX-License-Identifier: Apache-2.0

// Package etcd runs the embedded etcd and connects to it, or to an existing etcd.
// It has no keys of the manager: management/etcd builds its transactions from Ops.
//
// The embedded server listens on Unix sockets below its data directory, which
// only its owner can enter, so no other host or user can reach it. It runs as a
// child process of the same binary, because etcd exits when its disk fails;
// tests may run it in-process.
//
// An existing etcd may serve other applications too. The package therefore needs
// no more than a role with read and write access below one prefix, never
// compacts, and stays within the server's default limits (MaxOps, MaxBytes).
package etcd
