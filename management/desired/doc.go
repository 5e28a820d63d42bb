// SPDX-License-Identifier: Apache-2.0

// Package desired computes what each node would be configured with now, and compares
// that with what was applied to it. A node that differs is outdated.
//
// Desired are the playbooks, the group and the stored variables of this moment. The
// variables of a request belong to what was applied and not to what is desired: nothing
// keeps them, so the next verb would configure the node without them. A variable from a
// source outside counts by its name, because its value is asked only when a run begins.
package desired
