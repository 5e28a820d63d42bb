// SPDX-License-Identifier: Apache-2.0

// Package systemtest holds the tests on real hosts. They drive clusterm as an
// operator does, through clusterctl on the first host of a lab, and check the
// hosts afterwards. They run as root if CLUSTERM_LAB=1 is set; see README.md.
package systemtest
