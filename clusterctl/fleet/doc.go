// SPDX-License-Identifier: Apache-2.0

// Package fleet reads fleet files and the sources of their secrets on the host of
// clusterctl, and carries the steps of a difference out: the manager makes the changes, and
// the jobs run one after the other. The manager compares; see package management/fleet.
package fleet
