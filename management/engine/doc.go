// SPDX-License-Identifier: Apache-2.0

// Package engine accepts jobs and carries them out: it schedules the queue,
// claims nodes, calls the executor of each step, ships logs, and applies the
// retention.
//
// Every decision is made by the pure package management/job. The engine makes
// each one durable before it acts, so that after a crash any process continues a
// job from its record.
package engine
