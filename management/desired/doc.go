// SPDX-License-Identifier: Apache-2.0

// Package desired computes the configuration that a verb would apply to each node now, and
// compares it with the applied one. A node that differs is outdated.
//
// Desired are the playbooks, the group with its tags, the stored variables of this moment, and the
// masters with their variables, to which templates refer. The variables of a request belong to the
// applied configuration and not to the desired one: nothing keeps them, so the next verb would
// configure the node without them. A variable from a source outside counts by its name, because its
// value is asked only when a run begins.
package desired
