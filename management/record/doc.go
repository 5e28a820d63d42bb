// SPDX-License-Identifier: Apache-2.0

// Package record makes a kind of record a value.
//
// A Kind names the keys of its records, their codec, the nodes that they concern, and
// what a caller with a scope sees of them. It is written once, beside the noun. What all
// kinds have in common is written once here, over kinds: reading the records from a
// store, the immutable View of them, their changes, and the part of both within a scope.
//
// The package is pure. The store (management/etcd) feeds Tables with keys and values.
package record
