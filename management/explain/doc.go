// SPDX-License-Identifier: Apache-2.0

// Package explain answers why a node is, or is not, in service, and why a job is
// as it is. The answers are facts with their kinds; nothing here changes state.
package explain
