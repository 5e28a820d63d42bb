// SPDX-License-Identifier: Apache-2.0

// Package access is the caller of every mutation as a value: who asks, under
// which preconditions, and with which idempotency key. It also records every
// mutation in the audit log, below HTTP, the manager's own decisions included.
package access
