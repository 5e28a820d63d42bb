// SPDX-License-Identifier: Apache-2.0

// Package window decides when jobs may change hosts: within the maintenance windows of
// their nodes, and not during a freeze. It reads no clock and no store; only Keeper, which
// stores the freeze, does. See docs/operating/windows.md.
package window
