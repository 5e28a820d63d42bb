// SPDX-License-Identifier: Apache-2.0

// Package management holds the use cases: what an operator can ask for, the
// jobs that carry it out, their queue, and what the monitor's reports do to the
// inventory.
//
// Decisions and explanations are pure functions of facts (accept.go, queue.go,
// plan.go, explain.go): they see a snapshot and a time and return what is to be
// done, or why. The Service does it (schedule.go, execute.go), through the
// interfaces in service.go and store.go that its adapters satisfy.
package management
