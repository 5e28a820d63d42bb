// SPDX-License-Identifier: Apache-2.0

// Package systemtest holds the tests on real hosts: they drive clusterm as an
// operator does, through clusterctl on the first host of a lab, and look at what
// became of the hosts. They run where CLUSTERM_LAB=1 is set, as root; README.md
// says how.
package systemtest
