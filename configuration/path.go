// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"fmt"
	"path/filepath"
	"strings"
)

var safePath = lazy(`^/[A-Za-z0-9._/@+=,-]*$`)

// CheckPath accepts a clean absolute path that needs no quotes in ansible.cfg,
// in a list of paths and in the options of ssh. The error names the path as
// what.
func CheckPath(what, path string) error {
	if !safePath().MatchString(path) || filepath.Clean(path) != path {
		return fmt.Errorf("%s %q is not an absolute path of letters, digits and ._/@+,=-", what, path)
	}
	return nil
}

var vaultID = lazy(`^([A-Za-z0-9_-]+@)?/[A-Za-z0-9._/+=-]*$`)

// CheckVaultID accepts PATH or ID@PATH: a password of Ansible Vault, as in its
// vault_identity_list.
func CheckVaultID(id string) error {
	if path := VaultPath(id); !vaultID().MatchString(id) || filepath.Clean(path) != path {
		return fmt.Errorf("%q is not PATH or ID@PATH, with an absolute path of letters, digits and ._/+=-", id)
	}
	return nil
}

// VaultPath returns the path of a vault id.
func VaultPath(id string) string {
	if _, path, ok := strings.Cut(id, "@"); ok {
		return path
	}
	return id
}
