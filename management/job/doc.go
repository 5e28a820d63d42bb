// SPDX-License-Identifier: Apache-2.0

// Package job defines jobs and every decision about them: acceptance, the
// queue, the next step of a running job, and retention.
//
// All functions are pure. They decide on a Snapshot of nodes and jobs and on a
// given time, and return records for others to store or carry out. A verb is a
// value (see Verb): one file holds its options, playbooks and plan. A step has a
// kind (see StepKind), and management/step describes the executor of a kind.
package job
