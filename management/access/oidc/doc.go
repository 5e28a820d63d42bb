// SPDX-License-Identifier: Apache-2.0

// Package oidc verifies bearer tokens of an OpenID Connect issuer, and maps a claim of
// theirs to a role and a scope. It is the one home of github.com/coreos/go-oidc.
//
// The issuer is asked for its keys only: at the first token, and when a token names an
// unknown key. What it answers is kept for a moment, also a failure, so that a flood of
// tokens is no flood of requests to the issuer.
package oidc
