// SPDX-License-Identifier: Apache-2.0

// Package audit keeps the audit trail in the store: entries are written with the changes
// that they record, and sealed into a chain. Each entry holds the hash of the one before,
// so that a missing or changed entry shows. README.md has the format and its limits.
package audit
