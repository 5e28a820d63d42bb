// SPDX-License-Identifier: Apache-2.0

// Package access holds the roles, the identity behind a request, and the permissions
// that routes declare. It also holds the caller of every mutation as a value:
// its principal, its precondition and its idempotency key. It records every
// mutation in the audit log, below HTTP, the manager's own decisions included.
package access
