// SPDX-License-Identifier: Apache-2.0

// Package variable holds the variables of the site, the groups and the nodes:
// setting and reading them, and merging them for a node.
package variable
