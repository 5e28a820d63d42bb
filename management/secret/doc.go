// SPDX-License-Identifier: Apache-2.0

// Package secret encrypts values for storage. A Ring holds the keys; a Box is an
// encrypted value that opens only at the place it was sealed for.
//
// The cipher is XChaCha20-Poly1305: its random nonces of 24 bytes need no counter that
// a restart or a second process could repeat. The place is the associated data, so a
// box that was moved to another variable, node or job does not open there.
package secret
