// SPDX-License-Identifier: Apache-2.0

// Package access is the caller of every mutation as a value: its principal, its
// precondition and its idempotency key. It also records every
// mutation in the audit log, below HTTP, the manager's own decisions included.
package access
