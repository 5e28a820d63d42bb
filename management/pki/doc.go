// SPDX-License-Identifier: Apache-2.0

// Package pki keeps the identity of a manager in TLS: a CA and a server
// certificate in the data directory, made at the first need and renewed before
// they expire, or the files of a site's own CA. Both change without a restart.
//
// Clients pin the CA by the fingerprint of its public key, which survives the
// renewal of its certificate. A client certificate names its role in a URI of
// its subject alternative names.
package pki
