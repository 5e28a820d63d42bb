// SPDX-License-Identifier: Apache-2.0

// Package program is ansible-playbook behind the executor of playbooks: the playbooks of the configuration by content,
// from a folder or a git repository, their runs under supervision, and the checks of both.
package program
