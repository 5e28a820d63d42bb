// SPDX-License-Identifier: Apache-2.0

// Package etcd is the one home of etcd: the server that comes inside, the
// connection to it or to an existing one (existing.go), and the keys of nodes
// with the guarded writes that move them (keys.go).
//
// The server inside listens on Unix sockets below its data directory, which
// only its owner can enter: nothing of it is reachable from another host or
// user. It normally runs as a child process of the same binary, because etcd
// ends its process when its disk fails; a test may run it in-process.
//
// An existing etcd is a guest's place: nothing is asked of it that needs more
// than a role with the right to read and write below one prefix, it is never
// compacted, and its default limits suffice (MaxOps, MaxBytes).
package etcd
