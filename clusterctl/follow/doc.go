// SPDX-License-Identifier: Apache-2.0

// Package follow shows things as they change: the progress of a job, its output,
// and the nodes and jobs of a watch.
//
// Everything here survives a restart of the manager. An outage is reported when
// it begins and when it ends, and becomes an error after Patience. A manager that
// does not answer the first request is an error at once.
package follow
