// SPDX-License-Identifier: Apache-2.0

// Package ansible runs ansible-playbook under supervision. Each run has a
// runner process of its own, which survives the daemon, bounds the output, ends
// every process of the run and records its result. README.md gives the reasons
// for a separate process.
//
// The package needs Linux: /proc, PR_SET_CHILD_SUBREAPER and FIFOs.
package ansible
