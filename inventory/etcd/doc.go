// SPDX-License-Identifier: Apache-2.0

// Package etcd is the one home of etcd: the server that comes inside, the
// connection to it, and the keys of nodes with the guarded writes that move
// them (keys.go).
//
// The server inside listens on Unix sockets below its data directory, which
// only its owner can enter: nothing of it is reachable from another host or
// user. It normally runs as a child process of the same binary, because etcd
// ends its process when its disk fails; a test may run it in-process.
package etcd

import "go.etcd.io/etcd/api/v3/version"

// Version is the version of the etcd that comes inside.
var Version = version.Version
