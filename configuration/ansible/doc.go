// SPDX-License-Identifier: Apache-2.0

// Package ansible runs ansible-playbook under supervision: one process of our
// own per run, which outlives the daemon, bounds the output, ends everything it
// started and says truthfully how it ended. It also keeps the folders of
// playbooks that runs are pinned to. README.md says why it is a process.
//
// It works on Linux only: it needs /proc, PR_SET_CHILD_SUBREAPER and FIFOs.
package ansible
