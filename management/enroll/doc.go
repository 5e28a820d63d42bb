// SPDX-License-Identifier: Apache-2.0

// Package enroll registers machines from a list, before their agents speak.
//
// An import is one request over thousands of machines, which no single transaction of the store can have. So it is one
// record: its commit is the import. The leader then carries it out in chunks, each of which it decides on the newest
// view, so that a crash or another leader continues it and a repetition changes nothing. The request waits for its end.
package enroll
