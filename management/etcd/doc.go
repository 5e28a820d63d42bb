// SPDX-License-Identifier: Apache-2.0

// Package etcd keeps what management needs to be durable: it is management's
// Store on an etcd, inside or elsewhere.
//
// Reads come from a view in memory that a watch feeds (view.go). Writes are
// transactions guarded by the revisions they were decided on (store.go), and
// return after the view shows them. Logs are compressed chunks under the offset
// of their first byte (log.go).
package etcd
