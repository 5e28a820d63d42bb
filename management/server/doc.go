// SPDX-License-Identifier: Apache-2.0

// Package server serves the API over HTTP: the versioned one under /v1, and the
// contract of the first generation.
//
// A handler parses, calls the manager, and returns an error or writes an
// answer. One adapter (handle.go) does the rest for all of them: it turns kinds
// of error into statuses, recovers panics, and writes the record of every
// request that changes something. Nothing here decides what is legal.
//
// The package knows two kinds of listener. Over a Unix socket the kernel says
// who is there. Over TCP nobody is known, so such a listener is on a loopback
// address only, and what a browser was talked into sending is refused.
package server
