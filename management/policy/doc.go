// SPDX-License-Identifier: Apache-2.0

// Package policy decides for the manager without a person. A policy is a pure function
// from the view, its memory and a time to decisions with evidence. It reads no clock,
// store or host: package leader asks hosts, records decisions and carries them out.
// See README.md.
package policy
