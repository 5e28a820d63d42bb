// SPDX-License-Identifier: Apache-2.0

// Package hosts writes the nodes of a manager for the operator's own Ansible and
// ssh: as the answer of an inventory script, and as a file of known host keys.
package hosts
