// SPDX-License-Identifier: Apache-2.0

// Package rest is the kit that the HTTP API is built with: routes, strict
// bodies, lists, entity tags, idempotency keys, event streams and errors.
//
// A handler returns its error; Router alone writes errors, counts requests and
// logs them. The package contains no use case: its only imports from this
// project are the error kinds and the wire types that every route shares.
package rest
