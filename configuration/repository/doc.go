// SPDX-License-Identifier: Apache-2.0

// Package repository keeps the playbooks that jobs run: a copy of the folder
// as it was when a job was accepted, under the digest of its content. The copy
// is immutable, so a later edit of the folder does not change an accepted job.
package repository
