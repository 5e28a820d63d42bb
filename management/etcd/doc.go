// SPDX-License-Identifier: Apache-2.0

// Package etcd stores the records of the manager in etcd and serves reads from a view
// in memory. README.md lists the keys and explains the reservation protocol.
//
// Stored, domain and wire types are separate. Each kind of record has a type with its
// JSON names here, in a file of its own (node.go, job.go, …), and a conversion to and
// from the domain type.
//
// A watch feeds the view (view.go), and the view publishes its changes to API watches
// (changes.go). Writes are transactions with conditions on the revisions they were
// decided on (txn.go), and return once the view shows them. A claim of many nodes takes
// several transactions with one commit point (reservation.go). A view that has all that came
// before applies a write of its own process at once, ahead of the watch (own.go).
//
// Every write to the view also writes its head key, so one small quorum read shows
// whether the view is current, even if other applications write to the same etcd. The
// package does not use etcd's progress notifications: before 3.4.26 and 3.5.9 they
// could overtake events, and a watch resumed after one would miss those events.
//
// An instance holds a session (session.go): a record under a lease, and the right to
// run jobs, which one instance has at a time. The fencing token of that right is a
// condition of every write of a job.
package etcd
