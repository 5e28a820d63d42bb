// SPDX-License-Identifier: Apache-2.0

// Package audit keeps the audit trail in append-only files below the data directory,
// one entry per line. Each entry holds the hash of the one before, so that a missing
// or changed entry shows. README.md has the format and its limits.
package audit
