// SPDX-License-Identifier: Apache-2.0

// Package server serves the HTTP API: the versioned API under /v1, one file per
// noun, and, by package legacy, the contract of the first generation.
//
// A handler parses the request, calls a use case, and formats its result.
// Package rest does the work that all handlers have in common. No rule about
// nodes or jobs is decided here.
//
// The server accepts two kinds of listener. On a Unix socket the kernel
// authenticates the client. A TCP listener has no authentication, so it is bound
// to a loopback address, and requests that a browser sends for another site are
// refused.
package server
