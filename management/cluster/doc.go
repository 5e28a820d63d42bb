// SPDX-License-Identifier: Apache-2.0

// Package cluster names the instances of clusterm and their authority.
//
// An instance has one Identity. Membership grants it authority of two sorts: it
// leads, so it does the singleton duties of the cluster, and it owns jobs, each
// by a lease and under a context that ends with the lease.
package cluster
