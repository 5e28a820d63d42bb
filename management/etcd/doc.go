// SPDX-License-Identifier: Apache-2.0

// Package etcd keeps what management needs to be durable: it is management's
// Store on an etcd, inside or elsewhere.
//
// Reads come from a view in memory that a watch feeds (view.go). Writes are
// transactions guarded by the revisions they were decided on (store.go), and
// return after the view shows them. Logs are compressed chunks under the offset
// of their first byte (log.go).
//
// Every write to the view writes one key more, its head: whether the view is up
// to date is one small read by quorum, and what others write into an etcd that
// is shared does not matter. The server's own reports on the progress of a watch
// are not used: before 3.4.26 and 3.5.9 they could overtake events, and a watch
// that was resumed after that left those out.
//
// An instance holds a session (session.go): a record under a lease, and the
// right to run jobs, which one instance has at a time. The token of that right
// guards every write of a job.
package etcd
