// SPDX-License-Identifier: Apache-2.0

// Package merge merges the variables and the ssh parameters of the site, the groups and the nodes into
// those of one node. It is pure: the view and the settings are its only input.
package merge
